//! An instance of a group that does not run, and what an operator is about to do to its files:
//! whether it really does not run, and what the others say.
//!
//! Invariant: nothing is changed here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use towline_config::{Config, GroupConfig};
use towline_log::{LinuxDisk, LogError};
use towline_server::{Answer, ask_group};

use super::patience::Patience;
use crate::control::ControlClient;
use crate::failure::Failure;

const LOG: &str = "log";
/// An instance that runs does not take longer to say so.
const ANSWER: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct StoppedInstance<'a> {
    /// Its name.
    pub(super) instance: String,
    data: &'a Path,
    group: GroupConfig,
}

impl StoppedInstance<'_> {
    /// The instance in `data`, of which `config` is the configuration.
    pub(super) fn of<'a>(data: &'a Path, config: &Path) -> Result<StoppedInstance<'a>, Failure> {
        let group = group(config)?;
        if ControlClient::connect(data, Patience::of(ANSWER).left())?.is_some() {
            return Err(in_use(data, "a process of a queue manager is running there"));
        }
        Ok(StoppedInstance { instance: group.instance.clone(), data, group })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.data.join(LOG)
    }

    /// Refuses with `what` when there is no log.
    pub(super) fn log_is_there(&self, what: &str) -> Result<(), Failure> {
        match self.log().is_dir() {
            true => Ok(()),
            false => Err(Failure::Failed(format!("{} {what}", self.data.display()))),
        }
    }

    /// Takes the log, so that no instance starts with it meanwhile.
    pub(super) fn lock(&self) -> Result<LinuxDisk, Failure> {
        LinuxDisk::open(&self.log()).map_err(|error| match error {
            LogError::Locked { .. } => in_use(self.data, &error.to_string()),
            other => Failure::failed(other),
        })
    }

    /// What the other instances say; the error says why none could be asked at all.
    pub(super) fn ask_others(&self, queue_manager: &str) -> Result<Vec<Answer>, String> {
        ask_group(queue_manager, &self.group)
    }
}

fn in_use(data: &Path, why: &str) -> Failure {
    Failure::Failed(format!("{}: {why}; stop it first", data.display()))
}

/// The group of a configuration that says which instance it is for.
fn group(file: &Path) -> Result<GroupConfig, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", file.display()));
    let config = Config::read(file).map_err(|error| wrong(&error))?;
    let group = config.group.ok_or_else(|| {
        wrong(&"it has no [group]; a single instance would start without its messages")
    })?;
    if group.instance.is_empty() {
        return Err(wrong(&"group.instance is missing: the name of this instance"));
    }
    Ok(group)
}
