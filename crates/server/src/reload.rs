//! What can change while the queue manager runs: users and administrators, certificates of
//! listeners, those between the instances of a group, folders of backups, the log level. Read again
//! on SIGHUP and for `towline reload`; certificates also when their files change.
//!
//! Not here: the control socket and the signal; when the files of the group are in force
//! (`link::rotation`).
//!
//! Invariant: what cannot be used leaves in force what was read before, and is reported.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use towline_admin::catalogue::{
    Entry, KEY_OPEN, LISTENER_CERTIFICATE_EXPIRED, LISTENER_CERTIFICATE_EXPIRES,
    LISTENER_CERTIFICATE_READ, LISTENER_CERTIFICATE_UNREADABLE, NO_USER_LEFT, RELOAD_FAILED,
    RELOAD_LATER, RELOADED,
};

use crate::net::ListenerTls;
use towline_access::Users;
use towline_config::{Config, UsersConfig};
use towline_engine::{AdminJobs, BackupFolders};
use towline_link::{Links, RegionLinks};
use towline_logging::{log, set_level};
use towline_tls::{Expiry, mode_open_to_all};

/// Between two looks at the files of certificates.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two warnings that a certificate expires.
const WARN_EVERY: Duration = Duration::from_secs(86_400);

/// What came of reading everything again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ReloadReport {
    /// What is in force from now on, and was not before.
    changed: Vec<String>,
    /// What an operator should know.
    warnings: Vec<String>,
    /// What cannot be used: there, what was read before stays in force.
    failed: Vec<String>,
}

impl ReloadReport {
    fn failed(&mut self, why: String) {
        log(&RELOAD_FAILED, &[&why]);
        self.failed.push(why);
    }
}

/// See the module. Shared by all that need what it has.
pub(crate) struct Reload {
    file: Option<PathBuf>,
    /// The configuration as it was last read and taken.
    in_force: Mutex<Config>,
    pub(crate) users: Arc<Users>,
    pub(crate) folders: Arc<BackupFolders>,
    listeners: Mutex<Vec<Arc<ListenerTls>>>,
    /// Of an instance of a group, once they are started.
    links: OnceLock<Weak<Links>>,
    /// Those to the other region, once they are started.
    region: OnceLock<Weak<RegionLinks>>,
}

impl Reload {
    /// Of the configuration `config` as it stands in `file`, before the command line added to it.
    ///
    /// # Errors
    /// What is wrong with the users file.
    pub(crate) fn new(file: Option<PathBuf>, config: &Config) -> Result<Arc<Reload>, String> {
        let users = Arc::new(Users::read(&config.users)?);
        let folders = Arc::new(BackupFolders::new(&config.backup.folders));
        let (in_force, listeners) = (Mutex::new(config.clone()), Mutex::default());
        let (links, region) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(Reload { file, in_force, users, folders, listeners, links, region }))
    }

    /// The configuration file, in full.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let file = self.file.as_deref()?;
        Some(std::path::absolute(file).unwrap_or_else(|_| file.to_owned()))
    }

    /// Logs each private key that every user of this machine can read, and gives what was logged.
    pub(crate) fn tell_open_keys(&self) -> Vec<String> {
        let open = open_keys(&self.in_force.lock());
        let told = open.iter().map(|OpenKey { file, mode }| {
            log(&KEY_OPEN, &[file, mode]);
            KEY_OPEN.message(&[file, mode]).to_string()
        });
        told.collect()
    }

    /// What administration jobs of the queue manager `name` need.
    pub(crate) fn jobs(&self, name: &str) -> AdminJobs {
        AdminJobs { name: name.to_owned(), backup_folders: Arc::clone(&self.folders) }
    }

    /// Watches the certificates of one more listener. Reports at once if they expire.
    pub(crate) fn watch(&self, tls: &Arc<ListenerTls>) {
        tell_expiry(tls);
        self.listeners.lock().push(Arc::clone(tls));
    }

    /// Reads the certificates of these links too.
    ///
    /// # Panics
    /// When there were some before: a process starts them once.
    pub(crate) fn of_group(&self, links: &Arc<Links>) {
        assert!(self.links.set(Arc::downgrade(links)).is_ok(), "a process has one set of links");
    }

    /// The same for those to the other region.
    ///
    /// # Panics
    /// When there were some before: a process starts them once.
    pub(crate) fn of_region(&self, links: &Arc<RegionLinks>) {
        let set = self.region.set(Arc::downgrade(links));
        assert!(set.is_ok(), "a process has one link to the other region");
    }

    /// Reads everything again on another thread, and logs what changed.
    pub(crate) fn soon(self: &Arc<Self>) {
        let this = Arc::clone(self);
        drop(tokio::task::spawn_blocking(move || drop(this.now())));
    }

    /// Reads everything again, and logs what changed.
    pub(crate) fn now(&self) -> ReloadReport {
        let mut done = ReloadReport::default();
        self.configuration(&mut done);
        let users = self.in_force.lock().users.clone();
        let had_some = !self.users.is_empty();
        match self.users.reload(&users) {
            Ok((count, true)) => {
                done.changed.push(format!("users ({count})"));
                if let (0, true, Some(file)) = (count, had_some, &users.file) {
                    let text = NO_USER_LEFT.message(&[&file.display().to_string()]).to_string();
                    log(&NO_USER_LEFT, &[&file.display().to_string()]);
                    done.warnings.push(text);
                }
            }
            Ok((_, false)) => {}
            Err(why) => done.failed(why),
        }
        for tls in self.listeners.lock().iter() {
            match tls.reload() {
                Ok(true) => {
                    let (address, until) = (tls.address(), tls.expires());
                    done.changed.push(format!("certificate of {address}, valid until {until}"));
                    done.warnings.extend(tell_expiry(tls));
                }
                Ok(false) => {}
                Err(why) => done.failed(format!("certificate of {}: {why}", tls.address())),
            }
        }
        if let Some(links) = self.links.get().and_then(Weak::upgrade) {
            match links.reload() {
                Ok(Some(until)) => {
                    done.changed.push(format!("certificate of the group, valid until {until}"));
                }
                Ok(None) => {}
                Err(why) => done.failed(format!("certificates of the group: {why}")),
            }
        }
        done.warnings.extend(self.tell_open_keys());
        let nothing = ["nothing has changed".to_owned()];
        let told = if done.changed.is_empty() { &nothing } else { done.changed.as_slice() };
        log(&RELOADED, &[&told.join("; ")]);
        done
    }

    /// Takes from the configuration file what can change now.
    fn configuration(&self, done: &mut ReloadReport) {
        let Some(file) = &self.file else { return };
        let new = match Config::read(file) {
            Ok(new) => new,
            Err(why) => return done.failed(format!("{}: {why}", file.display())),
        };
        let mut now = self.in_force.lock();
        let later = later(&now, &new);
        if !later.is_empty() {
            log(&RELOAD_LATER, &[&later.join(", ")]);
            done.warnings.push(RELOAD_LATER.message(&[&later.join(", ")]).to_string());
        }
        if now.users.administrators != new.users.administrators {
            done.changed.push("administrators".into());
        }
        // Without a file at the start, listeners were opened for clients without a name.
        let file = now.users.file.as_ref().and(new.users.file.clone());
        let file = file.or_else(|| now.users.file.clone());
        let administrators = new.users.administrators;
        now.users = UsersConfig { file, administrators, ..now.users.clone() };
        if now.backup != new.backup {
            self.folders.set(&new.backup.folders);
            done.changed.push("backup.folders".into());
        }
        now.backup = new.backup;
        if now.logging != new.logging {
            match set_level(new.logging.level.as_deref()) {
                Ok(()) => done.changed.push("logging.level".into()),
                Err(why) => done.failed(why),
            }
        }
        now.logging = new.logging;
    }

    /// Looks once at the certificates of all listeners.
    fn look(&self, told: &mut Vec<String>) {
        for tls in self.listeners.lock().iter() {
            let address = tls.address();
            match tls.reload() {
                Ok(true) => {
                    log(&LISTENER_CERTIFICATE_READ, &[&address, &tls.expires().to_string()]);
                    tell_expiry(tls);
                }
                Ok(false) => {}
                Err(why) => {
                    let why = format!("{address}: {why}");
                    if !told.contains(&why) {
                        log(&LISTENER_CERTIFICATE_UNREADABLE, &[&address, &why]);
                        told.push(why);
                    }
                    continue;
                }
            }
            told.retain(|why| !why.starts_with(&format!("{address}: ")));
        }
    }
}

/// A private key that every user of this machine can read or change.
pub(crate) struct OpenKey {
    pub(crate) file: String,
    /// In octal.
    pub(crate) mode: String,
}

/// Those that a configuration names, of listeners, of the group and for the other region.
pub(crate) fn open_keys(config: &Config) -> Vec<OpenKey> {
    let of_listeners = config.listener.iter().filter_map(|listener| listener.private_key.as_ref());
    let of_group = config.group.iter().map(|group| &group.private_key);
    let of_region = config.group.iter().filter_map(|group| group.region_private_key.as_ref());
    let mut keys: Vec<_> = of_listeners.chain(of_group).chain(of_region).collect();
    keys.sort();
    keys.dedup();
    let open = keys.into_iter().filter_map(|file| {
        let mode = format!("{:o}", mode_open_to_all(file)?);
        Some(OpenKey { file: file.display().to_string(), mode })
    });
    open.collect()
}

/// Tables of the file that differ and cannot change now.
fn later(now: &Config, new: &Config) -> Vec<&'static str> {
    let users = |config: &Config| (config.users.file.is_some(), config.users.local_group.clone());
    let tables = [
        ("[queue_manager]", now.queue_manager != new.queue_manager),
        ("[[listener]]", now.listener != new.listener),
        ("[[auto_define]]", now.auto_define != new.auto_define),
        ("[log]", now.log != new.log),
        ("[limits]", now.limits != new.limits),
        ("[shared]", now.shared != new.shared),
        ("[users]", users(now) != users(new)),
        ("[group]", now.group != new.group),
    ];
    tables.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
}

/// Looks at the files of certificates every few seconds, and reports each day which expire.
pub(crate) async fn watch(reload: Arc<Reload>) {
    let (mut told, mut since) = (Vec::new(), Duration::ZERO);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        since += LOOK_EVERY;
        let (this, mut before) = (Arc::clone(&reload), std::mem::take(&mut told));
        let tell = since >= WARN_EVERY;
        // A disk that does not answer must not keep clients waiting.
        let looked = tokio::task::spawn_blocking(move || {
            this.look(&mut before);
            if tell {
                for tls in this.listeners.lock().iter() {
                    tell_expiry(tls);
                }
            }
            before
        });
        told = looked.await.unwrap_or_default();
        if tell {
            since = Duration::ZERO;
        }
    }
}

/// Logs that a certificate expires, or has expired, and gives what was logged.
fn tell_expiry(tls: &ListenerTls) -> Option<String> {
    let (address, expires) = (tls.address(), tls.expires());
    let time = expires.to_string();
    let told = |entry: &Entry, values: &[&str]| {
        log(entry, values);
        Some(entry.message(values).to_string())
    };
    match expires.expiry() {
        Expiry::Far => None,
        Expiry::Near(days) => {
            told(&LISTENER_CERTIFICATE_EXPIRES, &[&address, &days.to_string(), &time])
        }
        Expiry::Over => told(&LISTENER_CERTIFICATE_EXPIRED, &[&address, &time]),
    }
}

#[cfg(test)]
mod tests {
    use towline_config::ListenerConfig;
    use towline_link::testing::Bench;

    use super::*;

    #[test]
    fn files_of_the_group_that_cannot_be_used_are_a_failed_reload() {
        let bench = Bench::new(1);
        let (links, _recorder) = bench.start(0);
        let links = Arc::new(links);
        let reload = Reload::new(None, &Config::default()).unwrap();
        reload.of_group(&links);
        assert_eq!(reload.now(), ReloadReport::default());
        let key = bench.authority.issue(bench.folder.path(), "x", 100).private_key;
        std::fs::rename(key, bench.files("a").private_key).unwrap();
        let ReloadReport { changed, failed, .. } = reload.now();
        let [why] = failed.as_slice() else { panic!("{failed:?}") };
        for part in ["certificates of the group: ", "a-key.pem", "does not belong to certificate"] {
            assert!(why.contains(part), "no '{part}' in: {why}");
        }
        assert!(changed.is_empty(), "{changed:?}");
    }

    #[test]
    fn the_private_key_for_the_other_region_is_looked_at_too() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("region.key");
        std::fs::write(&key, "").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
        let member = |name: &str| {
            format!("[[group.member]]\nname = \"{name}\"\naddress = \"{name}.example:1\"\n")
        };
        let text = format!(
            "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = \"a.pem\"\nprivate_key = \"k\"\n\
             authorities = \"c.pem\"\nregion_certificate = \"r.pem\"\nregion_private_key = {key:?}\n{}",
            ["a", "b", "c"].map(member).concat()
        );
        let open = open_keys(&Config::parse(&text).unwrap());
        let files: Vec<_> = open.iter().map(|open| open.file.as_str()).collect();
        assert_eq!(files, [key.to_str().unwrap()]);
    }

    #[test]
    fn a_private_key_that_every_user_can_read_is_a_warning_at_each_reload() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("server.key");
        std::fs::write(&key, "").unwrap();
        let plain = ListenerConfig::plain("127.0.0.1:0".parse().unwrap());
        let listener = ListenerConfig { private_key: Some(key.clone()), ..plain };
        let config = Config { listener: vec![listener.clone(), listener], ..Config::default() };
        let reload = Reload::new(None, &config).unwrap();
        for (mode, expected) in [(0o600, 0), (0o644, 1), (0o640, 0)] {
            std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
            let ReloadReport { warnings, failed, .. } = reload.now();
            assert_eq!((warnings.len(), failed.len()), (expected, 0), "{mode:o}: {warnings:?}");
            for warning in warnings {
                let parts = ["TWL1101W", "server.key", "644"];
                assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
            }
        }
    }
}
