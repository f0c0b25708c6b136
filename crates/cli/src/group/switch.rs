//! `towline switch`: has another instance become the active one, and prints how long it took.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use towline_admin::status::GroupStatus;
use towline_server::Answer;

use super::stopped::ask_others_of;
use crate::arguments::Switch;
use crate::control::{AskError, ControlClient, SWITCH, understood};
use crate::failure::Failure;
use crate::patience::Patience;
use crate::{progress, show};

/// A switch that happened.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SwitchResult {
    /// The instance that was active; the same as `to` when there was nothing to do.
    pub(crate) from: String,
    /// The one that is active now.
    pub(crate) to: String,
    /// From the question to the first moment at which the new one served, as the asked instance saw
    /// it.
    pub(crate) took_ms: u64,
}

/// Runs the command.
pub(crate) fn switch(arguments: &Switch) -> Result<(), Failure> {
    let here = &arguments.here;
    let longest = Duration::from_secs_f64(here.timeout);
    let patience = Patience::of(longest);
    let spinner = progress::spinner(here.json);
    spinner.set_message(match &arguments.to {
        Some(to) => format!("switching to {to}"),
        None => "switching".to_owned(),
    });
    let switched = hand_over(&here.data, arguments.to.as_deref(), patience);
    spinner.finish_and_clear();
    let switched = switched?;
    if here.json {
        return show::json(&serde_json::to_value(&switched).unwrap_or_default());
    }
    let SwitchResult { from, to, took_ms } = &switched;
    if from == to {
        return show::line(&format!("{to} is active already"));
    }
    show::line(&format!("{to} is active instead of {from}, {took_ms} ms"))
}

/// Has the active instance hand over, asked through the instance in `data`, whichever that is.
pub(crate) fn hand_over(
    data: &Path,
    to: Option<&str>,
    patience: Patience,
) -> Result<SwitchResult, Failure> {
    let mut asking = ControlClient::reach(data, patience.left())?;
    let process = asking.process()?;
    let report = asking.report()?;
    let before = asking.group()?;
    if let Some(to) = to.filter(|to| *to == before.active) {
        return Ok(SwitchResult { from: to.to_owned(), to: to.to_owned(), took_ms: 0 });
    }
    let began = Instant::now();
    match asking.ask(&json!({ "do": SWITCH, "to": to })) {
        Ok(reply) => Ok(understood(reply)?),
        // An active instance that hands over re-executes, maybe before its answer is out: then it
        // shows which one is active now. One that ended does not: the others know.
        Err(AskError::Lost { .. }) => {
            let here = || {
                Ok(match ControlClient::connect(data, patience.left())? {
                    Some(mut asking) => asking.group().ok(),
                    None => None,
                })
            };
            let has_ended = || Ok(process.wait(Duration::ZERO)?);
            let others = || ask_others_of(&report, patience.left());
            let after = successor(&before, patience, here, has_ended, others)?;
            let after = after.map_err(|unknown| {
                let (instance, pid) = (&before.instance, process.number());
                Failure::Failed(format!(
                    "instance {instance} (process {pid}) ended before it answered, and {unknown}; see its \
                     log, and `towline status` of another instance for the active one"
                ))
            })?;
            if after.active == before.active {
                let again = format!("{} stepped down and was elected again", after.active);
                return Err(Failure::Failed(again));
            }
            if process.wait(Duration::ZERO)? {
                let (instance, pid) = (&before.instance, process.number());
                eprintln!("towline: instance {instance} (process {pid}) ended: start it again");
            }
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            Ok(SwitchResult { from: before.active, to: after.active, took_ms })
        }
        Err(unanswered) => Err(unanswered.into()),
    }
}

/// The group after a switch whose answer was lost: as the instance that was asked sees it when it
/// answers again (`here`), else, once its process has ended, as one of the others does. The inner
/// error: what is known instead when the patience is over.
fn successor(
    before: &GroupStatus,
    patience: Patience,
    mut here: impl FnMut() -> Result<Option<GroupStatus>, Failure>,
    has_ended: impl Fn() -> Result<bool, Failure>,
    mut others: impl FnMut() -> Result<Vec<Answer>, String>,
) -> Result<Result<GroupStatus, String>, Failure> {
    // The same one may be elected again: then there is nothing more to wait for.
    let is_settled = |group: &GroupStatus| {
        let is_another = group.active != before.active || group.term > before.term;
        group.serving && !group.active.is_empty() && is_another
    };
    // What was last said: the last look has hardly any time left for an answer.
    let mut known = None;
    loop {
        if let Some(group) = here()?.filter(&is_settled) {
            return Ok(Ok(group));
        }
        if has_ended()? {
            match others() {
                Ok(answers) => {
                    let told = answers.iter().filter_map(|answer| answer.told.as_ref().ok());
                    let settled = told.map(|told| &told.group).find(|group| is_settled(group));
                    if let Some(group) = settled {
                        return Ok(Ok(group.clone()));
                    }
                    if known.is_none() || answers.iter().any(|answer| answer.told.is_ok()) {
                        known = Some(what_they_said(&answers));
                    }
                }
                Err(why) => {
                    known.get_or_insert(format!("the other instances cannot be asked ({why})"));
                }
            }
        }
        if !patience.pause() {
            let unknown = "no instance has become active that clients are served by";
            return Ok(Err(known.unwrap_or_else(|| unknown.to_owned())));
        }
    }
}

/// What instances said of which one is active, where none is as wanted.
fn what_they_said(answers: &[Answer]) -> String {
    let said = answers.iter().map(|Answer { instance, told }| match told {
        Err(why) => format!("instance {instance} cannot be asked: {why}"),
        Ok(told) if told.group.active.is_empty() => {
            format!("instance {instance} knows of no active one")
        }
        Ok(told) => format!("for instance {instance}, {} is the active one", told.group.active),
    });
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use towline_server::{Report, Stand};

    use super::*;

    fn group(active: &str, term: u64, serving: bool) -> GroupStatus {
        GroupStatus { active: active.into(), term, serving, ..GroupStatus::default() }
    }

    fn answer(instance: &str, group: GroupStatus) -> Answer {
        let told = Ok(Report { group, stand: Stand::default() });
        Answer { instance: instance.into(), told }
    }

    /// What comes of an answer that was lost, of a process that does not come back.
    fn gone(patience: Duration, others: Result<Vec<Answer>, String>) -> Result<String, String> {
        let (before, others) = (group("a", 7, true), std::cell::Cell::new(Some(others)));
        let ask = || others.take().unwrap_or_else(|| Err("asked twice".into()));
        let found = successor(&before, Patience::of(patience), || Ok(None), || Ok(true), ask);
        found.unwrap().map(|group| group.active)
    }

    #[test]
    fn when_the_process_that_was_asked_has_ended_the_others_say_which_one_is_active() {
        let long = Duration::from_secs(3_600);
        let silent = || Answer { instance: "c".into(), told: Err("connection refused".into()) };
        let found = gone(long, Ok(vec![silent(), answer("b", group("b", 8, true))]));
        assert_eq!(found, Ok("b".into()), "at once, not after the time-out");
        let elected_again = gone(long, Ok(vec![answer("b", group("a", 8, true)), silent()]));
        assert_eq!(elected_again, Ok("a".into()));
    }

    #[test]
    fn what_is_not_known_of_a_lost_switch_is_not_said() {
        let ask = |others| gone(Duration::ZERO, others).unwrap_err();
        let said = ask(Err("towline.toml: no such file".into()));
        assert_eq!(said, "the other instances cannot be asked (towline.toml: no such file)");
        let [b, c] = [("b", group("a", 7, true)), ("c", group("", 8, false))];
        let said = ask(Ok(vec![answer(b.0, b.1), answer(c.0, c.1)]));
        let expected = "for instance b, a is the active one, instance c knows of no active one";
        assert_eq!(said, expected);
    }

    #[test]
    fn a_last_look_that_has_no_time_left_leaves_what_was_known() {
        let silent = || vec![Answer { instance: "b".into(), told: Err("no answer".into()) }];
        let said = || vec![answer("b", group("", 8, false))];
        let mut looks = [Ok(silent()), Ok(said())].into_iter();
        let others = || looks.next().unwrap_or_else(|| Ok(silent()));
        let (before, patience) = (group("a", 7, true), Patience::of(Duration::from_millis(250)));
        let found = successor(&before, patience, || Ok(None), || Ok(true), others);
        assert_eq!(found.unwrap().unwrap_err(), "instance b knows of no active one");
    }

    #[test]
    fn an_instance_that_answers_again_says_itself_which_one_is_active() {
        let before = group("a", 7, true);
        let mut looks = [None, Some(group("", 7, false)), Some(group("b", 8, true))].into_iter();
        let here = || Ok(looks.next().unwrap());
        let patience = Patience::of(Duration::from_secs(3_600));
        let found = successor(&before, patience, here, || Ok(false), || Err("not asked".into()));
        assert_eq!(found.unwrap().unwrap().active, "b");
    }
}
