//! One process of a queue manager, as it reports itself on its control socket. Only words and
//! layout: the server fills it in.

use serde::{Deserialize, Serialize};

use super::table::duration;
use crate::text::{cut, printable, row};

/// A process of a queue manager, whether or not a queue manager is active in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// The queue manager.
    pub queue_manager: String,
    /// Process id.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// How it runs.
    pub mode: ProcessMode,
    /// What it is doing.
    pub phase: ProcessPhase,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// In multi-instance mode, the name of this process (host:pid); in a group, of this instance.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Its configuration file, in full; empty: it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
    /// The folder in which it was started: relative paths in the configuration are relative to it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// The process that a standby waits for (host:pid).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub active: String,
}

/// How a process runs its queue manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessMode {
    /// Alone.
    #[default]
    Single,
    /// As one of several processes on a shared data folder.
    MultiInstance,
    /// As an instance of a group.
    Group,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessPhase {
    /// It reads the log, or takes over; no client is served yet.
    #[default]
    Starting,
    /// It waits for the active process of a shared data folder to end.
    Standby,
    /// It serves clients, or is an instance of a group.
    Running,
    /// An orderly shutdown, or a re-exec, is under way.
    Ending,
}

impl ProcessPhase {
    /// As an operator reads it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessPhase::Starting => "starting",
            ProcessPhase::Standby => "standby",
            ProcessPhase::Running => "running",
            ProcessPhase::Ending => "ending",
        }
    }
}

/// The process for a terminal, at most 80 columns wide, each line ended.
#[must_use]
pub fn process_table(process: &ProcessReport) -> String {
    let mut text = String::new();
    let ProcessReport { queue_manager, pid, version, phase, uptime_s, instance, active, .. } =
        process;
    let state = format!("{}, process {pid}, up {}", phase.as_str(), duration(*uptime_s));
    row(&mut text, "Queue manager", &cut(&printable(queue_manager), 58));
    row(&mut text, "State", &state);
    row(&mut text, "Version", &cut(&printable(version), 58));
    if !instance.is_empty() {
        row(&mut text, "Instance", &cut(&printable(instance), 58));
    }
    if !active.is_empty() {
        row(&mut text, "Active", &cut(&printable(active), 58));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_names_itself_and_the_process_that_it_waits_for() {
        let standby = ProcessReport {
            queue_manager: "QM1".into(),
            pid: 12,
            version: "1.0".into(),
            mode: ProcessMode::MultiInstance,
            phase: ProcessPhase::Standby,
            uptime_s: 61,
            instance: "left:12".into(),
            active: "right\u{1b}[2J:7".into(),
            config: String::new(),
            folder: String::new(),
        };
        let text = process_table(&standby);
        assert!(text.contains("standby, process 12, up "), "{text}");
        assert!(text.contains("left:12") && text.contains("right"), "{text}");
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let json = serde_json::to_string(&standby).unwrap();
        assert!(json.contains("\"mode\":\"multi_instance\",\"phase\":\"standby\""), "{json}");
        assert_eq!(serde_json::from_str::<ProcessReport>(&json).unwrap(), standby);
    }
}
