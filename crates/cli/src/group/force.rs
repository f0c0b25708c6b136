//! `towline instance force-vote`: unsafe recovery. Gives the vote back to an instance that lost
//! log, when so many did that the group elects no active instance any more. Shows first what each
//! instance has.
//!
//! Not here: what the vote is worth (`towline_server::force_vote`). Invariants: never in a folder
//! that is in use; never, unless forced, while the group has an active instance, for then the way
//! back is to start this one and let it catch up.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use towline_log::offline::{self, Filter, Item};
use towline_server::{Answer, HardStateReport, Stand, force_vote, hard_state};

use super::question::{can_ask, confirm};
use super::stopped::StoppedInstance;
use crate::arguments::ForceVote;
use crate::failure::Failure;
use crate::show;

/// Until both others have answered.
const ANSWERS_MAX: Duration = Duration::from_secs(10);

/// What is known of the instance itself.
struct Own {
    state: Option<HardStateReport>,
    /// Whether it has its vote, as the next start with this configuration judges it.
    may_vote: bool,
    /// Index and term of the last batch.
    last: (u64, u64),
}

/// Runs the command.
pub(crate) fn run(arguments: &ForceVote) -> Result<(), Failure> {
    let data = &arguments.data;
    let stopped = StoppedInstance::of(data, &arguments.config)?;
    let name = &stopped.instance;
    stopped.log_is_there("has no log; start the instance once without one")?;
    can_ask(arguments.yes)?;
    let lock = stopped.lock()?;
    let own = Own::read(data, &stopped)?;
    if own.may_vote {
        return Err(Failure::Failed(format!("Instance {name} has its vote: nothing was changed")));
    }
    let is_alone = stopped.members_count() == 1;
    let answers = match stopped.ask_others(&arguments.name, ANSWERS_MAX) {
        Ok(answers) => answers,
        // Without certificates: there is no other that could be asked with them.
        Err(_) if is_alone => Vec::new(),
        Err(why) if arguments.force => {
            show::line(&format!("No other instance can be asked: {why}"))?;
            Vec::new()
        }
        Err(why) => {
            return Err(Failure::Failed(format!(
                "No other instance can be asked: {why}; --force gives the vote back anyway"
            )));
        }
    };
    if let Some(active) = active(&answers).filter(|_| !arguments.force) {
        return Err(Failure::Failed(format!(
            "Instance {active} is active. Start {name}: it catches up and votes again by itself; \
             --force gives the vote back anyway"
        )));
    }
    if !arguments.json {
        table(name, &own, &answers).iter().try_for_each(|line| show::line(line))?;
    }
    let question = format!(
        "Acknowledged messages that are in no log of a voting instance will be lost for ever.\nGive the vote back to {name}, with the log that it has?"
    );
    confirm(arguments.yes, &question)?;
    let heard = answers.iter().filter_map(|answer| Some(answer.told.as_ref().ok()?.stand.term));
    let term = heard.fold(own.last.1, u64::max);
    let members_count = stopped.members_count();
    force_vote(data, term, members_count).map_err(|error| Failure::about(data.display(), error))?;
    drop(lock);
    if arguments.json {
        return show::json(&as_json(name, &own, &answers));
    }
    show::line(&format!("Instance {name} votes again when it is started."))
}

impl Own {
    fn read(data: &Path, stopped: &StoppedInstance<'_>) -> Result<Own, Failure> {
        let log = &stopped.log();
        let state = hard_state(data).map_err(|error| Failure::about(data.display(), error))?;
        let (position, members_count) = (stopped.position(), stopped.members_count());
        let may_vote = state.is_some_and(|state| state.votes_as(position, members_count));
        let mut last = (0, 0);
        let show = &mut |item: Item<'_>| {
            if let Item::Batch { index, term, .. } = item {
                last = (index, u64::from(term));
            }
        };
        offline::dump(log, Filter::default(), show)
            .map_err(|error| Failure::about(log.display(), error))?;
        Ok(Own { state, may_vote, last })
    }

    /// Index of a batch that was known to be committed.
    fn committed(&self) -> u64 {
        self.state.map_or(0, |state| state.committed)
    }

    fn stand(&self) -> Stand {
        Stand {
            term: self.state.map_or(0, |state| state.term),
            may_vote: self.may_vote,
            last_index: self.last.0,
            last_term: self.last.1,
            committed: self.committed(),
        }
    }
}

/// The active instance, if one that answered knows of it.
fn active(answers: &[Answer]) -> Option<&str> {
    let told = answers.iter().filter_map(|answer| answer.told.as_ref().ok());
    told.map(|told| told.group.active.as_str()).find(|active| !active.is_empty())
}

/// What each instance has, and what follows, in words.
fn table(name: &str, own: &Own, answers: &[Answer]) -> Vec<String> {
    let row = |name: &str, stand: &Stand| {
        let votes = if stand.may_vote { "yes" } else { "no" };
        let Stand { term, last_index, last_term, committed, .. } = stand;
        format!("{name:<12} {votes:<5} {term:>6} {last_index:>12} {last_term:>9} {committed:>12}")
    };
    let mut lines =
        vec!["INSTANCE     VOTES   TERM   LAST BATCH  ITS TERM    COMMITTED".to_owned()];
    lines.push(row(name, &own.stand()));
    let mut longest = (name, own.stand().log());
    for Answer { instance, told } in answers {
        match told {
            Ok(told) => {
                lines.push(row(instance, &told.stand));
                if told.stand.log() > longest.1 {
                    longest = (instance, told.stand.log());
                }
            }
            Err(why) => lines.push(format!("{instance:<12} does not answer: {why}")),
        }
    }
    lines.push(format!("The longest log of these is that of {}.", longest.0));
    let known =
        answers.iter().filter_map(|answer| Some(answer.told.as_ref().ok()?.stand.committed));
    let committed = known.fold(own.committed(), u64::max);
    if committed > longest.1.1 {
        lines.push(format!(
            "Batch {committed} was known to be committed: what is behind batch {} is in none of them.",
            longest.1.1
        ));
    }
    lines
}

fn as_json(name: &str, own: &Own, answers: &[Answer]) -> Value {
    let others = answers.iter().map(|Answer { instance, told }| match told {
        Ok(told) => json!({ "instance": instance, "stand": told.stand }),
        Err(why) => json!({ "instance": instance, "error": why }),
    });
    json!({ "instance": name, "before": own.stand(), "others": others.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use towline_admin::status::GroupStatus;
    use towline_server::Report;

    use super::*;

    fn told(instance: &str, active: &str, last_index: u64, committed: u64) -> Answer {
        let group = GroupStatus { active: active.into(), ..GroupStatus::default() };
        let stand = Stand { term: 4, may_vote: true, last_index, last_term: 3, committed };
        Answer { instance: instance.into(), told: Ok(Report { group, stand }) }
    }

    #[test]
    fn the_table_names_the_longest_log_and_what_is_known_to_be_in_none() {
        let state = HardStateReport {
            term: 4,
            may_vote: false,
            is_of_this_log: true,
            committed: 30,
            members_count: 3,
            position: Some(0),
        };
        let own = Own { state: Some(state), may_vote: false, last: (12, 3) };
        let silent = Answer { instance: "c".into(), told: Err("connection refused".into()) };
        let lines = table("a", &own, &[told("b", "", 20, 18), silent]).join("\n");
        for wanted in [
            "a            no         4           12         3           30",
            "b            yes        4           20         3           18",
            "c            does not answer: connection refused",
            "The longest log of these is that of b.",
            "Batch 30 was known to be committed: what is behind batch 20 is in none of them.",
        ] {
            assert!(lines.contains(wanted), "{wanted}\n{lines}");
        }
        let lines = table("a", &own, &[told("b", "", 30, 30)]).join("\n");
        assert!(!lines.contains("in none of them"), "{lines}");
    }

    #[test]
    fn an_active_instance_is_known_from_any_answer() {
        assert_eq!(active(&[told("b", "", 1, 1), told("c", "", 1, 1)]), None);
        assert_eq!(active(&[told("b", "", 1, 1), told("c", "b", 1, 1)]), Some("b"));
    }
}
