//! `towline instance replace`: sets what is left of a lost log aside, so that the instance begins blank
//! and gets everything from its group. Removes nothing.
//!
//! Invariants: never in a folder that is in use; never without a configuration that names a group, for
//! a single instance that begins blank has lost its messages.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use towline_log::backup::manifest::rfc3339;
use towline_log::{LinuxDisk, LogError};
use towline_server::config::Config;
use towline_types::Time;

use super::ask::Asking;
use super::patience::Patience;
use crate::arguments::Replace;
use crate::failure::Failure;
use crate::show;

/// What an instance keeps that is worth nothing without its log.
const LOG: &str = "log";
const REBUILD_MARKER: &str = "rebuild-queues";
/// Nobody who runs takes longer to say so.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(arguments: &Replace) -> Result<(), Failure> {
    let (data, config) = (&arguments.data, &arguments.config);
    let name = instance(config)?;
    if Asking::connect(data, Patience::of(ANSWER).left())?.is_some() {
        return Err(in_use(data, "an instance of a group runs there"));
    }
    let log = data.join(LOG);
    if !log.is_dir() {
        let what = "has no log: there is nothing to set aside, the next start begins blank";
        return Err(Failure::Failed(format!("{} {what}", data.display())));
    }
    if !arguments.yes && !confirmed(&name, data)? {
        return Err(Failure::failed("nothing was changed"));
    }
    // Held until the folder has its new name: who starts meanwhile is refused, or begins blank.
    let lock = LinuxDisk::open(&log).map_err(|error| match error {
        LogError::Locked { .. } => in_use(data, &error.to_string()),
        other => Failure::failed(other),
    })?;
    let aside = aside(data);
    std::fs::rename(&log, &aside).map_err(|error| Failure::about(aside.display(), error))?;
    let marker = data.join(REBUILD_MARKER);
    if marker.exists() {
        std::fs::rename(&marker, aside.join(REBUILD_MARKER))?;
    }
    std::fs::File::open(data)?.sync_all()?;
    drop(lock);
    let shown = aside.display();
    if arguments.json {
        return show::json(&json!({ "instance": name, "set_aside": shown.to_string() }));
    }
    show::line(&format!("The old log is in {shown}."))?;
    show::line(&format!(
        "Start instance {name} as before; it is rebuilt from the group and does not vote until then.\n\
         When it is in sync, remove {shown}."
    ))
}

fn in_use(data: &Path, why: &str) -> Failure {
    Failure::Failed(format!("{}: {why}; stop it first", data.display()))
}

/// The name of the instance that the configuration is for.
fn instance(file: &Path) -> Result<String, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", file.display()));
    let config = Config::read(file).map_err(|error| wrong(&error))?;
    let group = config.group.ok_or_else(|| {
        wrong(&"it has no [group]; a single instance would begin without its messages")
    })?;
    Ok(group.instance)
}

fn confirmed(name: &str, data: &Path) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::Usage("nobody can be asked here: say --yes".into()));
    }
    let mut errors = std::io::stderr();
    writeln!(
        errors,
        "Instance {name} in {} will begin blank. What it had and the two others do not have is lost: \n\
         they must be in sync with each other (towline status on one of them).",
        data.display()
    )?;
    write!(errors, "Set its log aside? (yes/no) ")?;
    errors.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// A name that is not taken: `log.lost-20261122T010000Z`.
fn aside(data: &Path) -> PathBuf {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = rfc3339(Time(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)));
    let second = time.split('.').next().unwrap_or_default().replace(['-', ':'], "");
    let first = data.join(format!("log.lost-{second}Z"));
    let more = (2..).map(|number: u64| data.join(format!("log.lost-{second}Z-{number}")));
    std::iter::once(first).chain(more).find(|path| !path.exists()).unwrap_or_default()
}
