//! Users and what proves them: one line each, `name:SCRAM-SHA-256$iterations:salt$stored:server`,
//! base64, never a password. Lines that start with `#` are remarks.
//!
//! Not here: how long a client waits after wrong passwords (`attempts`). Invariants: without users
//! no password is right; a file that does not parse leaves in force what was read before.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use nix::unistd::{Uid, User, geteuid};
use parking_lot::RwLock;
use towline_amqp::sasl::{ScramCredentials, prepared};

use crate::comparisons::Comparisons;
use towline_config::UsersConfig;

/// All users, shared by all listeners. The file can be read again while they are served.
#[derive(Debug, Default)]
pub struct Users {
    table: RwLock<Arc<UserTable>>,
    /// A users file is named, whatever stands in it: then it is meant that clients give a name.
    named: bool,
    salt_secret: Option<Arc<[u8]>>,
    comparisons: Arc<Comparisons>,
}

/// What the file and the configuration said when they were last read.
#[derive(Debug, Default)]
struct UserTable {
    by_name: HashMap<String, ScramCredentials>,
    administrators: Vec<String>,
    /// From which the credentials of users that do not exist are made. Of the first line of the
    /// file: were it new at each start, then the names whose salt changes would be those that do
    /// not exist.
    secret: Option<[u8; 32]>,
    /// The iterations of all users.
    iterations: Vec<u32>,
}

impl Users {
    /// Reads the users file that the configuration names, if it names one.
    ///
    /// # Errors
    /// A text with file and line.
    pub fn read(config: &UsersConfig) -> Result<Users, String> {
        Ok(Users {
            table: RwLock::new(Arc::new(UserTable::read(config)?)),
            named: config.file.is_some(),
            salt_secret: Some(Arc::from(towline_process::random::bytes::<32>())),
            comparisons: Arc::default(),
        })
    }

    /// Reads them again: new logins are judged by what stands there now, and a user that is no
    /// administrator any more is refused at the next request. Yields how many users there are, and
    /// whether anything is new.
    ///
    /// # Errors
    /// A text with file and line; what was read before stays in force.
    pub fn reload(&self, config: &UsersConfig) -> Result<(usize, bool), String> {
        let table = UserTable::read(config)?;
        let before = self.table();
        let same = table.by_name == before.by_name && table.administrators == before.administrators;
        let count = table.by_name.len();
        *self.table.write() = Arc::new(table);
        Ok((count, !same))
    }

    fn table(&self) -> Arc<UserTable> {
        Arc::clone(&self.table.read())
    }

    /// One user, an administrator too, for tests.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn of(name: &str, password: &str) -> Users {
        let credentials = ScramCredentials::derive(password, b"sixteen bytes...", 4_096);
        let by_name = credentials.map(|found| (name.to_owned(), found)).into_iter().collect();
        let administrators = vec![name.to_owned()];
        let table = UserTable { by_name, administrators, ..UserTable::default() };
        let comparisons = Arc::new(Comparisons::with_threads(1));
        let table = RwLock::new(Arc::new(table));
        Users { table, named: true, comparisons, salt_secret: None }
    }

    /// Keeps the threads that compare passwords busy with `work`, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub async fn occupy(
        &self,
        address: IpAddr,
        work: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        self.comparisons.compare(address, work).await
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.table().by_name.len()
    }

    /// Whether there is no user to compare a password with.
    pub fn is_empty(&self) -> bool {
        self.table().by_name.is_empty()
    }

    /// Whether the configuration names a file of them.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// What a password of this user is held against. A user that does not exist has credentials
    /// too, which look like those of others and which no password fits: neither the challenge nor
    /// the time of the answer shows which users exist. `None`: there are no users.
    pub(crate) fn credentials(&self, user: &str) -> Option<ScramCredentials> {
        self.table().credentials(user)
    }

    /// Whether the password is this user's, found out when it is the turn of `address`. `None`: too
    /// much is asked of us, later perhaps.
    pub(crate) async fn compare(
        self: Arc<Self>,
        address: IpAddr,
        user: Arc<str>,
        password: Arc<str>,
    ) -> Option<bool> {
        let comparisons = Arc::clone(&self.comparisons);
        comparisons.compare(address, move || self.password_fits(&user, &password)).await
    }

    /// Whether the password is this user's. Takes as long for a user that does not exist as for a
    /// wrong password.
    fn password_fits(&self, user: &str, password: &str) -> bool {
        let table = self.table();
        let fits = table.credentials(user).is_some_and(|keys| keys.fits(password));
        fits && table.by_name.contains_key(user)
    }

    pub(crate) fn is_administrator(&self, user: &str) -> bool {
        self.table().administrators.iter().any(|name| name == user)
    }

    pub(crate) fn salt_secret(&self) -> Arc<[u8]> {
        self.salt_secret.clone().unwrap_or_else(|| Arc::from([0_u8; 32]))
    }
}

impl UserTable {
    fn read(config: &UsersConfig) -> Result<UserTable, String> {
        let administrators = config.administrators.iter().map(|name| prepared(name).into());
        let mut table = UserTable {
            by_name: HashMap::new(),
            administrators: administrators.collect(),
            ..UserTable::default()
        };
        let Some(path) = &config.file else { return Ok(table) };
        refuse_readable_by_others(path)?;
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || {
                format!(
                    "{}: line {}: not `name:SCRAM-SHA-256$iterations:salt$stored:server`; \
                     `towline user NAME` writes such a line",
                    path.display(),
                    index + 1
                )
            };
            let (name, credentials) = line.split_once(':').ok_or_else(wrong)?;
            let credentials = parse(credentials).ok_or_else(wrong)?;
            table.secret.get_or_insert_with(|| credentials.secret_of_others());
            table.by_name.insert(prepared(name).into_owned(), credentials);
        }
        table.iterations = table.by_name.values().map(ScramCredentials::iterations).collect();
        // The map has no order, and the choice must be the same after a restart.
        table.iterations.sort_unstable();
        Ok(table)
    }

    fn credentials(&self, user: &str) -> Option<ScramCredentials> {
        let made = || {
            let secret = self.secret.as_ref()?;
            Some(ScramCredentials::of_unknown_user(user, secret, &self.iterations))
        };
        self.by_name.get(user).cloned().or_else(made)
    }
}

/// `SCRAM-SHA-256$iterations:salt$stored:server`, the form in which PostgreSQL keeps them too.
fn parse(text: &str) -> Option<ScramCredentials> {
    let rest = text.strip_prefix("SCRAM-SHA-256$")?;
    let (first, keys) = rest.split_once('$')?;
    let (iterations, salt) = first.split_once(':')?;
    let (stored, server) = keys.split_once(':')?;
    let key = |text: &str| <[u8; 32]>::try_from(BASE64.decode(text).ok()?).ok();
    let salt = BASE64.decode(salt).ok()?;
    ScramCredentials::new(&salt, iterations.parse().ok()?, key(stored)?, key(server)?)
}

fn refuse_readable_by_others(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if metadata.mode() & 0o007 != 0 {
        return Err(format!(
            "users file {} can be read or written by everybody; chmod 600 it",
            path.display()
        ));
    }
    Ok(())
}

/// Why a users file cannot be read, and what to do.
fn unreadable(path: &Path, error: &io::Error) -> String {
    let file = path.display();
    let way = match (error.kind(), std::fs::metadata(path)) {
        (io::ErrorKind::NotFound, _) => {
            format!("; add a user with 'towline user NAME --file {file}'")
        }
        (io::ErrorKind::PermissionDenied, metadata) => {
            let owner = metadata.ok().map(|found| (user_name(found.uid()), found.mode() & 0o777));
            forbidden(path, owner, &user_name(geteuid().as_raw()))
        }
        (_, _) => String::new(),
    };
    format!("cannot read users file {file}: {error}{way}")
}

/// What to do about a file of `owner` (name and mode; `None`: it cannot be reached) that the user
/// `ours` may not read.
fn forbidden(path: &Path, owner: Option<(String, u32)>, ours: &str) -> String {
    let file = path.display();
    match owner {
        Some((owner, mode)) => format!(
            ": it belongs to {owner} with mode {mode:o}, and this process runs as {ours}; give it the \
             file: chown {ours} {file} && chmod 600 {file}"
        ),
        None => {
            format!("; this process runs as {ours}, which must be able to enter the folders above")
        }
    }
}

/// The name of a user, or the number where there is none.
fn user_name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};
    use towline_amqp::sasl::ITERATIONS_DEFAULT;

    use super::*;

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, file)
    }

    fn read(text: &str) -> Result<Users, String> {
        let (_folder, file) = written(text, 0o600);
        let administrators = vec!["alice".into()];
        Users::read(&UsersConfig { file: Some(file), administrators, ..UsersConfig::default() })
    }

    fn line(name: &str, password: &str, iterations: Option<u32>) -> String {
        towline_client::user_line(name, password, iterations).unwrap()
    }

    #[test]
    fn a_line_of_the_user_command_takes_its_password_and_no_other() {
        let text = format!("# who may\n\n{}\n", line("alice", "correct horse", None));
        let users = read(&text).unwrap();
        assert!(users.password_fits("alice", "correct horse"));
        assert!(!users.password_fits("alice", "battery"));
        assert!(!users.password_fits("bob", "correct horse"));
        let credentials = users.credentials("alice").unwrap();
        assert_eq!(credentials.iterations(), ITERATIONS_DEFAULT);
        assert_eq!(credentials.salt().len(), 16);
        assert!(users.is_administrator("alice") && !users.is_administrator("bob"));
    }

    #[test]
    fn the_challenge_does_not_reveal_which_users_exist() {
        let lines = [("alice", 10_000), ("bob", 20_000), ("carol", 20_000)];
        let lines = lines.map(|(name, iterations)| line(name, "x", Some(iterations)));
        let text = lines.join("\n");
        let users = read(&text).unwrap();
        let challenge = |users: &Users, name: &str| {
            let keys = users.credentials(name).unwrap();
            (keys.salt().to_vec(), keys.iterations())
        };
        let names: Vec<String> = (0..100).map(|number| format!("unknown-{number}")).collect();
        let count =
            |wanted| names.iter().filter(|name| challenge(&users, name).1 == wanted).count();
        assert!(count(10_000) > 10 && count(20_000) > 40, "as those of the users");
        assert_eq!(count(10_000) + count(20_000), 100);
        let again = read(&format!("{text}\n{}", line("dave", "x", Some(20_000)))).unwrap();
        for name in &names {
            assert_eq!(challenge(&users, name).0, challenge(&again, name).0, "after a restart");
            assert!(!users.password_fits(name, "x"));
        }
    }

    #[test]
    fn a_name_and_a_password_are_the_same_however_their_letters_are_written() {
        let users = read(&line("Zu\u{308}rich", "p\u{2168}", None)).unwrap();
        assert!(users.password_fits("Z\u{fc}rich", "pIX"));
        assert!(!users.password_fits("Z\u{fc}rich", "pix"));
    }

    #[test]
    fn a_wrong_line_is_reported_with_its_number() {
        let good = line("alice", "x", None);
        for wrong in ["bob", "bob:secret", "bob:SCRAM-SHA-256$1:AAAA$AAAA:AAAA"] {
            let refusal = read(&format!("{good}\n{wrong}\n")).unwrap_err();
            assert!(refusal.contains("line 2"), "{refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }

    // Tests may run as root, which reads every file.
    #[test]
    fn a_file_of_another_user_is_reported_with_owner_mode_and_the_command_that_mends_it() {
        let file = Path::new("/etc/towline/users");
        let said = forbidden(file, Some(("root".into(), 0o600)), "towline");
        let expected = ": it belongs to root with mode 600, and this process runs as towline; give it \
                        the file: chown towline /etc/towline/users && chmod 600 /etc/towline/users";
        assert_eq!(said, expected);
        assert!(forbidden(file, None, "towline").contains("enter the folders above"));
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_000), "4000000000");
    }

    #[test]
    fn a_file_that_everybody_may_read_is_refused() {
        let (_folder, file) = written(&line("alice", "x", None), 0o644);
        let config = UsersConfig { file: Some(file), ..UsersConfig::default() };
        assert!(Users::read(&config).unwrap_err().contains("chmod 600"));
    }

    #[test]
    fn a_file_that_is_read_again_counts_at_once_and_one_that_does_not_parse_changes_nothing() {
        let (_folder, file) = written(&line("alice", "x", Some(4_096)), 0o600);
        let administrators = vec!["alice".to_owned()];
        let named = UsersConfig { file: Some(file.clone()), ..UsersConfig::default() };
        let users = Users::read(&UsersConfig { administrators, ..named.clone() }).unwrap();
        std::fs::write(&file, "alice:what").unwrap();
        assert!(users.reload(&named).unwrap_err().contains("line 1"));
        assert!(users.password_fits("alice", "x") && users.is_administrator("alice"));
        std::fs::write(&file, line("bob", "y", Some(4_096))).unwrap();
        assert_eq!(users.reload(&named), Ok((1, true)));
        assert!(!users.password_fits("alice", "x") && !users.is_administrator("alice"));
        assert!(users.password_fits("bob", "y"));
        assert_eq!(users.reload(&named), Ok((1, false)));
        std::fs::write(&file, "# no user any more\n").unwrap();
        assert_eq!(users.reload(&named), Ok((0, true)));
        assert!(users.is_named() && !users.password_fits("bob", "y"));
    }

    fn processor_time() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
    }

    #[test]
    fn a_user_that_does_not_exist_takes_as_long_as_a_wrong_password() {
        let users = read(&line("alice", "x", Some(10_000))).unwrap();
        // Of the processor, by this thread: what else the machine does is not counted. The smallest
        // of some runs, because others leave the caches cold.
        let smallest = |user: &str| {
            let once = |_| {
                let begun = processor_time();
                assert!(!users.password_fits(user, "wrong"));
                processor_time() - begun
            };
            (0..5).map(once).min().unwrap_or(Duration::ZERO)
        };
        let (known, unknown) = (smallest("alice"), smallest("bob"));
        assert!(unknown > known / 3 && unknown < known * 3, "{known:?}, unknown: {unknown:?}");
    }
}
