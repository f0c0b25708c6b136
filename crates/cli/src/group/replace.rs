//! `towline instance replace`: sets what is left of a lost log aside, so that the instance starts
//! blank and gets everything from its group. Removes nothing. Waits, with a bound, until the other
//! instances are in sync: a replica with a slow disk lags for a moment, an election takes one, and
//! so does an instance that re-executes. A group in recovery elects none: there each of the others
//! must have what a majority had, and be in sync while the live group ships to one of them.
//!
//! Invariants: never in a folder that is in use; never without a configuration that names a group,
//! for a single instance that starts blank has lost its messages, and neither for the only instance
//! of a group; the vote is given up before the log goes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use towline_server::Answer;
use towline_types::{CivilTime, Time};

use super::question::{can_ask, confirm};
use super::recovery::{is_in_recovery, is_shipped_to};
use super::stopped::StoppedInstance;
use crate::arguments::Replace;
use crate::failure::Failure;
use crate::patience::Patience;
use crate::{progress, show};

/// What an instance keeps that is worth nothing without its log.
const REBUILD_MARKER: &str = "rebuild-queues";
/// An instance that re-executes answers again within this.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(arguments: &Replace) -> Result<(), Failure> {
    let data = &arguments.data;
    let stopped = StoppedInstance::of(data, &arguments.config)?;
    stopped.folder_is_its_own()?;
    let name = &stopped.instance;
    if stopped.members_count() == 1 {
        return Err(Failure::Failed(only_log(name)));
    }
    let what = "has no log to set aside; the next start copies it from the group";
    stopped.log_is_there(what)?;
    can_ask(arguments.yes)?;
    // Held until the folder has its new name: an instance that starts meanwhile is refused, or
    // begins blank.
    let lock = stopped.lock()?;
    if !arguments.force {
        wait_for_others(&stopped, arguments)?;
    }
    let question = format!(
        "Instance {name} in {} will start without a log and not vote until it has caught up.\n\
         What it has and the two others lack is lost: they must be in sync with each other\n\
         (towline status on one of them). Set its log aside?",
        data.display()
    );
    confirm(arguments.yes, &question)?;
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
    show::lines(&format!(
        "Start instance {name} as before; it is rebuilt from the group and does not vote until then.\n\
         When it is in sync, remove {shown}."
    ))
}

/// Also with --force: it could only lose what is there.
fn only_log(name: &str) -> String {
    format!(
        "Instance {name} is the only one of its group, and no other one has its messages: nothing was \
         changed. If its log is damaged, see `towline log repair`; if it is lost, `towline restore` \
         makes a data folder of a backup"
    )
}

/// Why the others cannot do without the log of this instance.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    /// It ends by itself, in most cases soon.
    Passing(String),
    /// An instance does not answer: it re-executes, which is over soon, or it is down.
    Silent(String),
    /// An operator has to do something, or it takes long.
    Lasting(String),
}

/// Waits until the others can do without the log of `stopped`, for as long as `arguments` allow.
fn wait_for_others(stopped: &StoppedInstance<'_>, arguments: &Replace) -> Result<(), Failure> {
    let spinner = progress::spinner(arguments.json);
    let patience = Patience::of(Duration::from_secs_f64(arguments.timeout));
    // What this one knew to be at a majority, if that can still be read.
    let known = towline_server::hard_state(&arguments.data).ok().flatten();
    let known = known.map_or(0, |state| state.committed);
    let ask = || match stopped.ask_others(&arguments.name, patience.left()) {
        Ok(answers) => obstacle(&answers, known),
        Err(why) => Some(Obstacle::Lasting(format!("No other instance can be asked: {why}"))),
    };
    let why =
        wait_while_passing(ask, patience, |why| spinner.set_message(format!("{why}; waiting")));
    spinner.finish_and_clear();
    let (name, seconds) = (&stopped.instance, arguments.timeout);
    let (why, what_to_do) = match why {
        None => return Ok(()),
        Some(Obstacle::Lasting(why) | Obstacle::Silent(why)) => (why, String::new()),
        Some(Obstacle::Passing(why)) => (
            format!("{why} after {seconds} s"),
            "; wait until `towline status` there says that it is in sync, or give --timeout".into(),
        ),
    };
    Err(Failure::Failed(format!(
        "{why}. Without the log of {name} the group may serve no clients, or lose acknowledged \
         messages{what_to_do}; --force sets it aside anyway"
    )))
}

/// Asks until there is no obstacle, one that lasts, or no patience left, of which an instance that
/// is silent gets little; returns what `ask` said last. `show` gets each obstacle that is waited
/// for.
fn wait_while_passing(
    mut ask: impl FnMut() -> Option<Obstacle>,
    patience: Patience,
    mut show: impl FnMut(&str),
) -> Option<Obstacle> {
    let mut silence = Patience::of(SILENCE_MAX);
    loop {
        let found = ask();
        let goes_on = match &found {
            None | Some(Obstacle::Lasting(_)) => return found,
            Some(Obstacle::Silent(why)) => {
                show(why);
                !silence.left().is_zero() && patience.pause()
            }
            Some(Obstacle::Passing(why)) => {
                show(why);
                silence = Patience::of(SILENCE_MAX);
                patience.pause()
            }
        };
        if !goes_on {
            return found;
        }
    }
}

/// What keeps the others from doing without the log of this instance; `None`: nothing does, each of
/// them votes and is in sync with the active one. The one that is worst comes first. `known`: index
/// of a batch that this instance knew to be at a majority.
fn obstacle(answers: &[Answer], known: u64) -> Option<Obstacle> {
    let (mut passing, mut silent) = (None, None);
    let told = answers.iter().filter_map(|answer| answer.told.as_ref().ok());
    let at_majority = told.clone().map(|told| told.stand.committed).fold(known, u64::max);
    let is_led = told.clone().any(|told| is_shipped_to(&told.group));
    for Answer { instance, told } in answers {
        let why = match told {
            Err(why) => {
                let why = format!("Instance {instance} cannot be asked: {why}");
                silent.get_or_insert(Obstacle::Silent(why));
                continue;
            }
            Ok(told) if !told.stand.may_vote => {
                let why = format!("Instance {instance} does not vote: it lost log itself");
                return Some(Obstacle::Lasting(why));
            }
            Ok(told) if is_in_recovery(&told.group) => match told.stand.last_index {
                last if last < at_majority => format!(
                    "Instance {instance} lacks log that a majority of the group had, and gets it when \
                     the live group is connected"
                ),
                _ if is_led && !told.group.in_sync => {
                    format!("Instance {instance} is not in sync")
                }
                _ => continue,
            },
            Ok(told) if told.group.active.is_empty() => {
                format!("Instance {instance} knows of no active instance")
            }
            Ok(told) if !told.group.in_sync => format!("Instance {instance} is not in sync"),
            Ok(_) => continue,
        };
        passing.get_or_insert(Obstacle::Passing(why));
    }
    silent.or(passing)
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
    use towline_admin::status::{GroupStatus, OtherRegionStatus};
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
        assert_eq!(obstacle(&[well(), well()], 0), None);
        let silent = || Answer { instance: "c".into(), told: Err("connection refused".into()) };
        let found = obstacle(&[told("b", false, true), silent()], 0);
        let Some(Obstacle::Silent(said)) = found else { panic!("{found:?}") };
        assert_eq!(said, "Instance c cannot be asked: connection refused");
        let found = obstacle(&[silent(), told("b", true, false)], 0);
        let Some(Obstacle::Lasting(said)) = found else { panic!("{found:?}") };
        assert!(said.contains("does not vote"), "{said}");
        for (answer, why) in
            [(told("", true, true), "no active instance"), (told("b", false, true), "not in sync")]
        {
            let found = obstacle(&[well(), answer], 0);
            let Some(Obstacle::Passing(said)) = found else { panic!("{why}: {found:?}") };
            assert!(said.contains(why), "{said}");
        }
    }

    /// No instance of it is active.
    #[test]
    fn in_a_recovery_group_the_others_are_to_have_what_a_majority_had() {
        let answer = |is_led, in_sync, last_index, committed| {
            let other = OtherRegionStatus { connected: is_led, ..OtherRegionStatus::default() };
            let group_role = "recovery".into();
            let other_region = Some(other);
            let group = GroupStatus { group_role, in_sync, other_region, ..GroupStatus::default() };
            let stand = Stand { may_vote: true, last_index, committed, ..Stand::default() };
            Answer { instance: "c".into(), told: Ok(Report { group, stand }) }
        };
        let why = |answers: [Answer; 2], known| match obstacle(&answers, known) {
            None => String::new(),
            Some(Obstacle::Passing(why)) => why,
            Some(other) => panic!("{other:?}"),
        };
        let led = || answer(true, true, 9, 9);
        assert_eq!(why([led(), led()], 9), "");
        assert_eq!(why([led(), answer(false, false, 9, 8)], 9), "Instance c is not in sync");
        let alone = |last, committed| answer(false, false, last, committed);
        assert_eq!(why([alone(9, 9), alone(9, 8)], 9), "", "nothing is shipped");
        assert!(why([alone(9, 9), alone(8, 8)], 8).contains("lacks log"));
        assert!(why([alone(8, 8), alone(8, 8)], 9).contains("lacks log"), "this one knew of more");
        let mut blank = led();
        if let Ok(told) = &mut blank.told {
            told.stand.may_vote = false;
        }
        assert!(matches!(obstacle(&[led(), blank], 0), Some(Obstacle::Lasting(_))));
    }

    #[test]
    fn an_instance_that_lags_for_a_moment_is_waited_for_with_a_bound_and_a_lost_one_is_not() {
        let passing = || Some(Obstacle::Passing("Instance c is not in sync".into()));
        let silent = || Some(Obstacle::Silent("Instance c cannot be asked".into()));
        let lasting = || Some(Obstacle::Lasting("Instance c does not vote".into()));
        let ask = |answers: Vec<Option<Obstacle>>, patience: Duration| {
            let (mut answers, mut shown) = (answers.into_iter(), Vec::new());
            let show = |why: &str| shown.push(why.to_owned());
            let found =
                wait_while_passing(|| answers.next().unwrap(), Patience::of(patience), show);
            (found, shown.len(), answers.len())
        };
        let long = Duration::from_secs(3_600);
        assert_eq!(ask(vec![passing(), passing(), None], long), (None, 2, 0));
        assert_eq!(ask(vec![passing(), lasting(), None], long), (lasting(), 1, 1));
        assert_eq!(ask(vec![silent(), passing(), None], long), (None, 2, 0), "it re-executed");
        assert_eq!(ask(vec![silent(), None], Duration::ZERO), (silent(), 1, 1));
        assert_eq!(ask(vec![passing(), None], Duration::ZERO), (passing(), 1, 1), "no longer");
    }
}
