//! `towline instance replace`: sets what is left of a lost log aside, so that the instance begins
//! blank and gets everything from its group. Removes nothing.
//!
//! Invariants: never in a folder that is in use; never without a configuration that names a group,
//! for a single instance that begins blank has lost its messages; the vote is given up before the
//! log goes.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use towline_server::Answer;
use towline_types::{CivilTime, Time};

use super::stopped::StoppedInstance;
use crate::arguments::Replace;
use crate::failure::Failure;
use crate::show;

/// What an instance keeps that is worth nothing without its log.
const REBUILD_MARKER: &str = "rebuild-queues";

/// Runs the command.
pub(crate) fn run(arguments: &Replace) -> Result<(), Failure> {
    let data = &arguments.data;
    let stopped = StoppedInstance::of(data, &arguments.config)?;
    let name = &stopped.instance;
    let what = "has no log to set aside; the next start copies it from the group";
    stopped.log_is_there(what)?;
    stopped.can_ask(arguments.yes)?;
    // Held until the folder has its new name: an instance that starts meanwhile is refused, or
    // begins blank.
    let lock = stopped.lock()?;
    if !arguments.force
        && let Some(why) = stopped.ask_others(&arguments.name).map_or_else(
            |why| Some(format!("No other instance can be asked: {why}")),
            |it| why_not(&it),
        )
    {
        return Err(Failure::Failed(format!(
            "{why}. Without the log of {name} the group may serve no clients, or lose acknowledged \
             messages; --force sets it aside anyway"
        )));
    }
    let question = format!(
        "Instance {name} in {} will start without a log and not vote until it has caught up.\n\
         What it has and the two others lack is lost: they must be in sync with each other\n\
         (towline status on one of them). Set its log aside?",
        data.display()
    );
    stopped.confirm(arguments.yes, &question)?;
    // First: a blank log must not help to elect an instance that lacks what the old one
    // acknowledged.
    towline_server::give_up_vote(data).map_err(|error| Failure::about(data.display(), error))?;
    let (log, aside) = (stopped.log(), aside(data));
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

/// Why the others cannot do without the log of this instance; `None`: they can, each of them votes
/// and is in sync with the active one.
fn why_not(answers: &[Answer]) -> Option<String> {
    for Answer { instance, told } in answers {
        match told {
            Err(why) => return Some(format!("Instance {instance} cannot be asked: {why}")),
            Ok(told) if !told.stand.may_vote => {
                return Some(format!("Instance {instance} does not vote: it lost log itself"));
            }
            Ok(told) if told.group.active.is_empty() => {
                return Some(format!("Instance {instance} knows of no active instance"));
            }
            Ok(told) if !told.group.in_sync => {
                return Some(format!("Instance {instance} is not in sync"));
            }
            Ok(_) => {}
        }
    }
    None
}

/// A name that is not taken: `log.lost-20261122T010000Z`.
fn aside(data: &Path) -> PathBuf {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = CivilTime::of(Time::ZERO + since).to_string();
    let second = time.split('.').next().unwrap_or_default().replace(['-', ':'], "");
    let first = data.join(format!("log.lost-{second}Z"));
    let more = (2..).map(|number: u64| data.join(format!("log.lost-{second}Z-{number}")));
    std::iter::once(first).chain(more).find(|path| !path.exists()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use towline_admin::status::GroupStatus;
    use towline_server::{Report, Stand};

    use super::*;

    fn told(active: &str, in_sync: bool, may_vote: bool) -> Answer {
        let group = GroupStatus { active: active.into(), in_sync, ..GroupStatus::default() };
        let stand = Stand { may_vote, ..Stand::default() };
        Answer { instance: "b".into(), told: Ok(Report { group, stand }) }
    }

    #[test]
    fn a_log_is_set_aside_only_when_both_others_can_do_without_it() {
        let well = || told("b", true, true);
        assert_eq!(why_not(&[well(), well()]), None);
        let silent = Answer { instance: "c".into(), told: Err("connection refused".into()) };
        for (answer, why) in [
            (silent, "c cannot be asked: connection refused"),
            (told("b", true, false), "does not vote"),
            (told("", true, true), "no active instance"),
            (told("b", false, true), "not in sync"),
        ] {
            let said = why_not(&[well(), answer]).unwrap_or_default();
            assert!(said.contains(why), "{said}");
        }
    }
}
