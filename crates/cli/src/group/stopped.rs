//! An instance of a group that does not run, and what an operator is about to do to its files:
//! whether it really does not run, and what the others say.
//!
//! Invariant: nothing is changed here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use towline_admin::status::ProcessReport;
use towline_config::{Config, GroupConfig};
use towline_log::{LinuxDisk, LogError};
use towline_server::{Answer, ask_group, instance_position};

use crate::control::ControlClient;
use crate::failure::Failure;

const LOG: &str = "log";
/// An instance that runs does not take longer to say so.
const ANSWER: Duration = Duration::from_secs(5);
/// Both others have time to answer once, however short a time-out is.
const ANSWERS_MIN: Duration = Duration::from_secs(1);

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
        if ControlClient::connect(data, ANSWER)?.is_some() {
            return Err(in_use(data, "a process of a queue manager is running there"));
        }
        Ok(StoppedInstance { instance: group.instance.clone(), data, group })
    }

    /// Refuses a data folder that belongs to another instance than the configuration.
    pub(super) fn folder_is_its_own(&self) -> Result<(), Failure> {
        let position = instance_position(self.data);
        match position.map_err(|error| Failure::about(self.data.display(), error))? {
            Some(owner) => belongs_to(self.data, owner, &self.group),
            None => Ok(()),
        }
    }

    /// Its position among the instances of its group, ordered by name.
    pub(super) fn position(&self) -> Option<usize> {
        self.group.position(&self.instance)
    }

    /// How many instances its group has.
    pub(super) fn members_count(&self) -> usize {
        self.group.member.len()
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

    /// What the other instances say within `longest`, or a second if that is longer; the error says
    /// why none could be asked at all.
    pub(super) fn ask_others(
        &self,
        queue_manager: &str,
        longest: Duration,
    ) -> Result<Vec<Answer>, String> {
        ask_group(queue_manager, &self.group, longest.max(ANSWERS_MIN))
    }
}

/// Refuses a folder of the member at `owner` unless the configuration is for that one.
fn belongs_to(data: &Path, owner: usize, group: &GroupConfig) -> Result<(), Failure> {
    if group.position(&group.instance) == Some(owner) {
        return Ok(());
    }
    let owner = group.member.get(owner).map_or("none of these", |member| member.name.as_str());
    let (data, instance) = (data.display(), &group.instance);
    Err(Failure::Failed(format!(
        "{data} belongs to instance '{owner}', and the configuration is that of instance \
         '{instance}'; nothing was changed: give --data and --config of the same instance. (If the \
         folder was copied from {owner}, start {instance} with an empty one instead.)"
    )))
}

fn in_use(data: &Path, why: &str) -> Failure {
    Failure::Failed(format!("{}: {why}; stop it first", data.display()))
}

/// What the other instances of the instance of this process say within `longest`; the error says
/// why none could be asked at all.
pub(super) fn ask_others_of(
    process: &ProcessReport,
    longest: Duration,
) -> Result<Vec<Answer>, String> {
    ask_group(&process.queue_manager, &group_of(process)?, longest)
}

/// The group of a process, its files as the process sees them.
fn group_of(process: &ProcessReport) -> Result<GroupConfig, String> {
    if process.config.is_empty() {
        return Err("the process did not report its configuration".to_owned());
    }
    let group = group(Path::new(&process.config)).map_err(|failure| failure.reason().to_owned())?;
    Ok(group.seen_from(Path::new(&process.folder)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_instance_is_refused_with_both_names() {
        let mut text = String::from(
            "[group]\nname = \"G\"\ninstance = \"b\"\ncertificate = \"b.pem\"\n\
             private_key = \"b-key.pem\"\nauthorities = \"authority.pem\"\n",
        );
        for name in ["c", "a", "b"] {
            text += &format!("[[group.member]]\nname = \"{name}\"\naddress = \"{name}:1\"\n");
        }
        let group = Config::parse(&text).unwrap().group.unwrap();
        let of = |owner: usize| belongs_to(Path::new("/var/x"), owner, &group);
        assert!(of(1).is_ok(), "members are numbered by name");
        let why = of(0).unwrap_err();
        for part in
            ["/var/x belongs to instance 'a'", "instance 'b'", "nothing was changed", "--data"]
        {
            assert!(why.reason().contains(part), "no '{part}' in: {why:?}");
        }
        assert!(of(7).unwrap_err().reason().contains("none of these"));
    }

    #[test]
    fn files_of_a_process_are_found_from_the_folder_in_which_it_was_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("b.toml");
        let members = ["a", "b", "c"]
            .map(|name| format!("[[group.member]]\nname = \"{name}\"\naddress = \"{name}:1\"\n"));
        let text = "[group]\nname = \"G\"\ninstance = \"b\"\ncertificate = \"papers/b.pem\"\n\
                    private_key = \"/etc/b-key.pem\"\nauthorities = \"authority.pem\"\n";
        std::fs::write(&file, text.to_owned() + &members.concat()).unwrap();
        let config = file.display().to_string();
        let started = ProcessReport { config, folder: "/srv/q".into(), ..ProcessReport::default() };
        let group = group_of(&started).unwrap();
        assert_eq!(group.certificate, Path::new("/srv/q/papers/b.pem"));
        assert_eq!(group.private_key, Path::new("/etc/b-key.pem"));
        assert_eq!(group.authorities, Path::new("/srv/q/authority.pem"));
        assert!(group_of(&ProcessReport::default()).is_err(), "none was reported");
    }
}
