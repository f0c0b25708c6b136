//! `towline run --check`: whether a start would be refused, by the very functions that a start
//! uses.
//!
//! Not here: what only a start can know: whether the ports are free, whether all of the log can be
//! read (`towline log verify` looks at every byte of it).
//!
//! Invariant: nothing is written, no socket is opened, and a queue manager that runs notices
//! nothing.

use std::path::Path;
use std::sync::Arc;

use towline_admin::catalogue::{
    FLOATING_NOT_HELD, GROUP_CERTIFICATE_EXPIRED, GROUP_CERTIFICATE_EXPIRES, KEY_OPEN,
    LISTENER_CERTIFICATE_EXPIRED, LISTENER_CERTIFICATE_EXPIRES, MESSAGES_MISSING,
    NO_DEAD_LETTER_QUEUE, NO_MODEL,
};
use towline_log::LinuxDisk;

use crate::endpoints::check_socket;
use crate::net::{LocalAccess, server_settings};
use crate::refused::RunError;
use crate::reload::{OpenKey, open_keys};
use crate::run::check_group_folder;
use crate::run_args::{RunArgs, of_file, with_command_line};
use towline_access::Attempts;
use towline_access::LoginPolicy;
use towline_access::Users;
use towline_config::{Config, FloatingConfig, GroupConfig, ListenerConfig};
use towline_engine::inspection::{self, Inspection, InspectionError, UndefinedNames};
use towline_engine::{StartError, defaults, name_file, settings};
use towline_link as link;
use towline_tls::Expiry;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// What.
    pub what: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of looking at it; the texts are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A start takes it.
    Fine(String),
    /// A start takes it, and says this.
    Warning(String),
    /// A start refuses it.
    Refused(String),
}

/// Looks at all that a start with these arguments would look at, up to the log. What cannot be
/// looked at because something before it was refused is left out.
#[must_use]
pub fn check(args: &RunArgs) -> Vec<CheckResult> {
    let mut seen = CheckResults(Vec::new());
    let variables = towline_logging::check().map_err(RunError::Environment);
    seen.add("environment", variables.map(|()| "understood".to_owned()));
    let of_config = match &args.config {
        Some(file) => format!("configuration {}", file.display()),
        None => "command line".to_owned(),
    };
    let Some(file) = seen.take(&of_config, of_file(args)) else { return seen.0 };
    let users = users(&mut seen, args, &file);
    let Some(config) = seen.take(&of_config, with_command_line(args, file)) else { return seen.0 };
    let listeners = config.listener.len();
    seen.add(&of_config, Ok(format!("understood, {listeners} listeners")));
    if let Some(users) = users {
        for one in &config.listener {
            listener(&mut seen, args, &config, (one, &users));
        }
    }
    for OpenKey { file, mode } in open_keys(&config) {
        let message = KEY_OPEN.message(&[&file, &mode]).to_string();
        seen.push(&format!("private key {file}"), Verdict::Warning(message));
    }
    if let Some(group) = &config.group {
        match of_group(args, group) {
            Ok(verdict) => seen.push("group", verdict),
            Err(error) => seen.add("group", Err(error)),
        }
        if let Some(floating) = &group.floating {
            seen.push("floating address", of_floating(floating));
        }
    }
    let socket = check_socket(args, &config).map(|()| "its path is short enough".to_owned());
    seen.add("local socket", socket);
    folder(&mut seen, args, &config);
    seen.0
}

/// The listeners of a configuration and the users that can log in there, as a start in a queue
/// manager of this name looks at them.
#[must_use]
pub fn check_listeners(name: &str, file: &Path, config: &Config) -> Vec<CheckResult> {
    let args =
        RunArgs { name: name.to_owned(), config: Some(file.to_owned()), ..RunArgs::of_nothing() };
    let mut seen = CheckResults(Vec::new());
    if let Some(config) = seen.take("listeners", with_command_line(&args, config.clone()))
        && let Some(users) = users(&mut seen, &args, &config)
    {
        for one in &config.listener {
            listener(&mut seen, &args, &config, (one, &users));
        }
    }
    seen.0
}

/// What was looked at so far.
struct CheckResults(Vec<CheckResult>);

impl CheckResults {
    fn add(&mut self, what: &str, result: Result<String, RunError>) {
        self.push(
            what,
            match result {
                Ok(fine) => Verdict::Fine(fine),
                Err(error) => Verdict::Refused(error.to_string()),
            },
        );
    }

    fn push(&mut self, what: &str, verdict: Verdict) {
        self.0.push(CheckResult { what: what.to_owned(), verdict });
    }

    /// Something that the rest is needed for.
    fn take<T>(&mut self, what: &str, result: Result<T, RunError>) -> Option<T> {
        match result {
            Ok(taken) => Some(taken),
            Err(error) => {
                self.push(what, Verdict::Refused(error.to_string()));
                None
            }
        }
    }
}

fn users(seen: &mut CheckResults, args: &RunArgs, config: &Config) -> Option<Arc<Users>> {
    let wrong = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    let users = seen.take("users", Users::read(&config.users).map_err(wrong))?;
    if let Some(file) = &config.users.file {
        let what = format!("users {}", file.display());
        seen.add(&what, Ok(format!("{} users", users.count())));
    }
    let access = LocalAccess::of_process(config.users.local_group.as_deref()).map_err(wrong);
    seen.take("users.local_group", access)?;
    Some(Arc::new(users))
}

fn listener(
    seen: &mut CheckResults,
    args: &RunArgs,
    config: &Config,
    (listener, users): (&ListenerConfig, &Arc<Users>),
) {
    let what = format!("listener {}", listener.address);
    let tls = server_settings(listener).map_err(RunError::Tls);
    let Some(tls) = seen.take(&what, tls) else { return };
    let attempts = Arc::new(Attempts::default());
    let policy = LoginPolicy::new(&args.name, listener, &config.limits, users, &attempts);
    let wrong = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    if seen.take(&what, policy.map_err(wrong)).is_none() {
        return;
    }
    let Some(tls) = tls else { return seen.add(&what, Ok("without TLS".into())) };
    let (address, expires) = (tls.address(), tls.expires());
    let until = expires.to_string();
    seen.push(
        &what,
        match expires.expiry() {
            Expiry::Far => Verdict::Fine(format!("TLS, certificate valid until {until}")),
            Expiry::Near(days) => Verdict::Warning(
                LISTENER_CERTIFICATE_EXPIRES
                    .message(&[&address, &days.to_string(), &until])
                    .to_string(),
            ),
            Expiry::Over => Verdict::Warning(
                LISTENER_CERTIFICATE_EXPIRED.message(&[&address, &until]).to_string(),
            ),
        },
    );
}

fn of_group(args: &RunArgs, group: &GroupConfig) -> Result<Verdict, RunError> {
    let wrong = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    group.own().map_err(wrong)?;
    let expires = link::expires(&args.name, group, &group.instance).map_err(wrong)?;
    let (expiry, until) = (expires.expiry(), expires.to_string());
    if let Expiry::Over = expiry {
        // A start takes it: the files may be replaced while the instance runs.
        return Ok(Verdict::Warning(GROUP_CERTIFICATE_EXPIRED.message(&[&until]).to_string()));
    }
    link::check(&args.name, group, &group.instance).map_err(wrong)?;
    let (instance, name) = (&group.instance, &group.name);
    Ok(match expiry {
        Expiry::Near(days) => Verdict::Warning(
            GROUP_CERTIFICATE_EXPIRES.message(&[&days.to_string(), &until]).to_string(),
        ),
        Expiry::Far | Expiry::Over => Verdict::Fine(format!(
            "instance '{instance}' of '{name}', certificate valid until {until}"
        )),
    })
}

/// A start takes it whether or not this user could hold the address.
fn of_floating(floating: &FloatingConfig) -> Verdict {
    let (address, interface) = (floating.address.to_string(), floating.interface.as_str());
    match towline_floating::obstacle(floating) {
        None => Verdict::Fine(format!("{address} can be added to {interface} by this user")),
        Some(why) => {
            Verdict::Warning(FLOATING_NOT_HELD.message(&[&address, interface, &why]).to_string())
        }
    }
}

/// The data folder, and what is known of names from the log in it.
fn folder(seen: &mut CheckResults, args: &RunArgs, config: &Config) {
    let data = &args.data;
    let what = format!("data folder {}", data.display());
    let refused = |error| RunError::Start {
        name: args.name.as_str().into(),
        data: data.as_path().into(),
        error,
    };
    let there = match std::fs::metadata(data) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(std::io::ErrorKind::NotADirectory.into()),
        Err(error) => Err(error),
    };
    let there = there.map_err(|error| refused(StartError::Folder(error)));
    let Some(there) = seen.take(&what, there) else { return };
    let of_group = check_group_folder(data, config).map_err(refused);
    if seen.take(&what, of_group).is_none() {
        return;
    }
    let owner = name_file::check(data, &args.name).map_err(refused);
    if seen.take(&what, owner).is_none() {
        return;
    }
    if !there || towline_standby::log_folder(data).is_ok_and(|log| log.is_none()) {
        seen.add(&what, Ok("a new queue manager is made there".into()));
        return of_new(seen, config);
    }
    of_log(seen, (&what, data), args, config);
}

/// What a new queue manager has is known.
fn of_new(seen: &mut CheckResults, config: &Config) {
    let name = &config.queue_manager.deadq;
    let dead_letters = (!name.is_empty() && !defaults::is_default(name)).then(|| name.clone());
    let rules = config.auto_define.iter();
    let models = rules
        .filter(|rule| !defaults::is_default(&rule.model))
        .map(|rule| (rule.pattern.clone(), rule.model.clone()));
    names(seen, UndefinedNames { dead_letter_queue: dead_letters, models: models.collect() });
}

fn of_log(seen: &mut CheckResults, (what, data): (&str, &Path), args: &RunArgs, config: &Config) {
    match inspection::inspect(data, settings::rules(config)) {
        Ok(Inspection { missing, .. }) if !missing.is_empty() && !args.without_missing_extents => {
            let (count, extents) = (missing.messages().to_string(), missing.to_string());
            let message = MESSAGES_MISSING.message(&[&count, &extents]);
            seen.push(what, Verdict::Refused(message.to_string()));
        }
        Ok(Inspection { undefined, .. }) => {
            seen.add(what, Ok(format!("the log of '{}' can be read", args.name)));
            names(seen, undefined);
        }
        // The log of a running one moves while it is read, and members of a group help each other.
        Err(InspectionError::Refused(error)) if config.group.is_none() && !is_in_use(data) => {
            let (name, data) = (args.name.as_str().into(), data.into());
            seen.add(what, Err(RunError::Start { name, data, error }));
        }
        // A start reads it in other ways too, or says in its own words why it cannot.
        Err(why) => {
            let why = format!("its log was not looked at: {why}; see `towline log verify`");
            seen.push(what, Verdict::Warning(why));
        }
    }
}

fn is_in_use(data: &Path) -> bool {
    let folder = towline_standby::log_folder(data).ok().flatten();
    folder.is_some_and(|folder| LinuxDisk::is_in_use(&folder))
}

fn names(seen: &mut CheckResults, undefined: UndefinedNames) {
    let UndefinedNames { dead_letter_queue: dead_letters, models } = undefined;
    if dead_letters.is_none() && models.is_empty() {
        seen.add("names", Ok("the dead-letter queue and the models are there".into()));
    }
    if let Some(name) = dead_letters {
        let message = NO_DEAD_LETTER_QUEUE.message(&[&name]);
        seen.push("names", Verdict::Warning(message.to_string()));
    }
    for (pattern, model) in models {
        let message = NO_MODEL.message(&[&pattern, &model]);
        seen.push("names", Verdict::Warning(message.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use towline_link::testing::{Bench, NAMES};

    use super::*;

    #[test]
    fn the_folder_of_an_instance_of_a_group_is_refused_without_its_configuration() {
        for name in ["group-state", "group-committed"] {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path().to_owned();
            let args = RunArgs { name: "QM1".into(), data: data.clone(), ..RunArgs::of_nothing() };
            let verdict = || {
                let all = check(&args);
                all.into_iter().rfind(|one| one.what.starts_with("data folder")).unwrap().verdict
            };
            assert!(matches!(verdict(), Verdict::Fine(_)));
            fs::write(data.join(name), b"").unwrap();
            let Verdict::Refused(why) = verdict() else { panic!("it would start") };
            assert!(why.contains("instance of a group") && why.contains("--config"), "{why}");
        }
    }

    // The files may be replaced while the instance runs, so a look ahead refuses no more than a
    // start does.
    #[test]
    fn a_start_and_its_check_take_an_expired_certificate_and_the_check_warns_of_it() {
        let bench = Bench::new(3);
        let verdict = |days: i64| {
            let files = bench.authority.issue(bench.folder.path(), "a", days);
            let member = |name: &str| {
                format!("[[group.member]]\nname = \"{name}\"\naddress = \"{name}.example:1\"\n")
            };
            let text = format!(
                "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = {:?}\nprivate_key = {:?}\n\
                 authorities = {:?}\n{}",
                files.certificate,
                files.private_key,
                files.authorities,
                NAMES.map(member).concat()
            );
            let (config, data) = (bench.folder.path().join("towline.toml"), bench.folder.path());
            fs::write(&config, text).unwrap();
            let args = RunArgs {
                name: "QM1".into(),
                config: Some(config),
                data: data.join("none"),
                ..RunArgs::of_nothing()
            };
            let all = check(&args);
            all.into_iter().find(|one| one.what == "group").unwrap().verdict
        };
        assert!(matches!(verdict(100), Verdict::Fine(_)));
        assert!(matches!(verdict(3), Verdict::Warning(text) if text.starts_with("TWL4106W")));
        assert!(matches!(verdict(-1), Verdict::Warning(text) if text.starts_with("TWL4107E")));
        bench.start(0);
    }
}
