//! Handing the active part over on purpose.
//!
//! Clients are told to go first, all at once; what was decided is committed; then leadership goes
//! to an instance that has the whole log. Not here: what becomes of this process after it
//! (`again`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towline_admin::catalogue::{GROUP_SWITCH_FAILED, GROUP_SWITCHED};
use towline_admin::status::{GroupStatus, InstanceState, InstanceStatus};
use towline_node::Farewell;

use super::driver::Driver;
use super::{KIND_WISH, Where, peer_of};
use crate::door::GroupView;
use towline_link::{FrameBody, Peer};
use towline_logging::log as say;

/// What an administrator asked another instance for.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "wish")]
pub(crate) enum Wish {
    /// Hand over to `to`, or to whoever is best.
    Switch {
        /// Name of an instance.
        to: Option<String>,
    },
}

/// How long what was decided may take to be committed before it is handed over all the same.
const DRAIN_MAX: Duration = Duration::from_millis(60);
/// Twice as long as an instance waits for news of how the others are.
const NEWS_MAX: Duration = Duration::from_secs(1);
/// How long handing over may take.
const TRANSFER_MAX: Duration = Duration::from_secs(3);

/// A wish that another instance passed on.
pub(crate) fn grant(driver: &Arc<Driver>, wish: Wish) {
    let Wish::Switch { to } = wish;
    let driver = Arc::clone(driver);
    // It waits, and links must not.
    let started = std::thread::Builder::new().name("switch".into()).spawn(move || {
        if let Err(why) = hand_over(&driver, to.as_deref()) {
            say(&GROUP_SWITCH_FAILED, &[&why]);
        }
    });
    if let Err(error) = started {
        say(&GROUP_SWITCH_FAILED, &[&error.to_string()]);
    }
}

/// Carries a switch out, here or by asking the active instance; waits until there is a new one.
///
/// # Errors
/// Why not, in words for the operator: at once when it can be known.
pub(crate) fn switch(
    driver: &Arc<Driver>,
    view: &dyn GroupView,
    to: Option<&str>,
) -> Result<Value, String> {
    let began = Instant::now();
    let from = active(driver).ok_or("there is no active instance")?;
    if let Some(to) = to {
        position(driver, to)?;
    }
    if prospect(driver, view, to)? == Prospect::Already {
        return Ok(json!({ "from": to, "to": to, "took_ms": 0 }));
    }
    if driver.leads() {
        hand_over(driver, to)?;
    } else {
        ask(driver, from, to)?;
        wait_unless_refused(driver, view, (from, to))?;
    }
    let next = wait_for_another(driver, from, TRANSFER_MAX)?;
    let name = |peer: Peer| driver.names().get(peer).cloned().unwrap_or_default();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(json!({ "from": name(from), "to": name(next), "took_ms": took_ms }))
}

/// What is to be expected of a switch.
#[derive(Debug, PartialEq, Eq)]
enum Prospect {
    /// It is active.
    Already,
    Good,
    /// Not as long as this is so, which may have changed since it was heard.
    Bad(String),
}

/// Waits a little while the prospect is bad: an instance that is not active hears now and then how
/// the others are.
fn prospect(driver: &Driver, view: &dyn GroupView, to: Option<&str>) -> Result<Prospect, String> {
    let mut found = prospect_of(&view.group(), to);
    if !driver.leads() {
        driver.wait_until(NEWS_MAX, || {
            found = prospect_of(&view.group(), to);
            !matches!(found, Prospect::Bad(_))
        });
    }
    match found {
        Prospect::Bad(why) => Err(why),
        other => Ok(other),
    }
}

/// Waits for another active instance, but no longer than until it is known why there will be none:
/// what the active one was asked for it may have refused, for it knows more.
fn wait_unless_refused(
    driver: &Driver,
    view: &dyn GroupView,
    (from, to): (Peer, Option<&str>),
) -> Result<(), String> {
    let (began, mut why) = (Instant::now(), None);
    driver.wait_until(TRANSFER_MAX, || {
        if began.elapsed() >= NEWS_MAX
            && active(driver) == Some(from)
            && let Prospect::Bad(bad) = prospect_of(&view.group(), to)
        {
            why = Some(bad);
        }
        why.is_some() || active(driver).is_some_and(|next| next != from)
    });
    why.map_or(Ok(()), Err)
}

fn prospect_of(group: &GroupStatus, to: Option<&str>) -> Prospect {
    let Some(to) = to else {
        let mut others = group.instances.iter().filter(|row| row.instance != group.active);
        return match others.any(may_take_over) {
            true => Prospect::Good,
            false => Prospect::Bad("no other instance is in sync: see `towline status`".into()),
        };
    };
    if to == group.active {
        return Prospect::Already;
    }
    let row = group.instances.iter().find(|row| row.instance == to);
    match row.filter(|row| !may_take_over(row)) {
        None => Prospect::Good,
        Some(InstanceStatus { status, reason, .. }) => {
            let reason = if reason.is_empty() { reason } else { &format!(": {reason}") };
            let status = status.as_str();
            Prospect::Bad(format!("'{to}' is not in sync, but '{status}'{reason}"))
        }
    }
}

/// As far as is known: an instance that is not active may not have heard of another one yet.
fn may_take_over(row: &InstanceStatus) -> bool {
    row.in_sync || row.status == InstanceState::Unknown
}

fn active(driver: &Driver) -> Option<Peer> {
    driver.group().leader.map(peer_of)
}

fn ask(driver: &Driver, active: Peer, to: Option<&str>) -> Result<(), String> {
    let wish = Wish::Switch { to: to.map(str::to_owned) };
    let body = serde_json::to_vec(&wish).map_err(|error| error.to_string())?;
    let sent = driver.links().is_some_and(|links| {
        links.send(active, KIND_WISH, true, FrameBody { head: body, parts: Vec::new() })
    });
    if sent { Ok(()) } else { Err("there is no connection with the active instance".into()) }
}

fn position(driver: &Driver, name: &str) -> Result<Peer, String> {
    let found = driver.names().iter().position(|known| known == name);
    found.ok_or_else(|| format!("'{name}' is no instance; there are {}", driver.names().join(", ")))
}

fn wait_for_another(driver: &Driver, from: Peer, most: Duration) -> Result<Peer, String> {
    let mut next = None;
    driver.wait_until(most, || {
        next = active(driver).filter(|next| *next != from);
        next.is_some()
    });
    next.ok_or_else(|| "the active instance did not change in time; see its messages".into())
}

/// Hands over from this instance, which is active.
///
/// # Errors
/// Why not: then it goes on, but its clients may have been told to go.
pub(crate) fn hand_over(driver: &Driver, to: Option<&str>) -> Result<(), String> {
    let leads = driver.leads();
    let door = driver.door().filter(|_| leads).ok_or("this instance is not active")?;
    let target = who_answers(driver, to)?;
    let name = driver.names().get(target).cloned().unwrap_or_default();
    door.end(Farewell::HandsOver);
    let began = Instant::now();
    driver.wait_until(DRAIN_MAX, || door.look(|instance| instance.runs_pending()) == 0);
    // A batch that is closed while leadership is on its way would end it without an heir.
    let handed = door.hold_still(|| {
        let log = driver.log();
        driver.wait_until(DRAIN_MAX, || driver.committed_end() >= log.tail());
        driver.transfer(target);
        let place = driver.whereabouts();
        driver.wait_until(TRANSFER_MAX, || *place.borrow() != Where::Here)
    });
    if !handed {
        return Err(format!("'{name}' did not take over in time"));
    }
    let took = began.elapsed().as_millis().to_string();
    say(&GROUP_SWITCHED, &[&name, &took]);
    Ok(())
}

/// Who takes over, and was heard after it was asked for: one that was stopped a moment ago still
/// looks as if it could, and clients must not be told to go for it. Waits a heartbeat for that,
/// mostly.
fn who_answers(driver: &Driver, to: Option<&str>) -> Result<Peer, String> {
    let (asked, most) = (driver.clock().now(), driver.heartbeat_timeout());
    let mut found = choose(driver, to, &|_| true)?;
    let answers = driver.wait_until(most, || {
        let heard = driver.heard_since(asked);
        let choice = choose(driver, to, &|peer| heard.contains(&peer));
        choice.map(|choice| found = choice).is_ok()
    });
    answers.then_some(found).ok_or_else(|| {
        let who = to.map_or("no other instance".to_owned(), |to| format!("'{to}'"));
        let not = if to.is_some() { "has not answered" } else { "has answered" };
        let most = most.as_millis();
        format!(
            "{who} {not} for {most} ms: its process or machine stands still, or the network is gone"
        )
    })
}

/// Who takes over: the one that is asked for, if it can; else the one that has most of the log.
fn choose(
    driver: &Driver,
    to: Option<&str>,
    answers: &dyn Fn(Peer) -> bool,
) -> Result<Peer, String> {
    let group = driver.group();
    let wanted = to.map(|name| position(driver, name)).transpose()?;
    if wanted == Some(driver.this()) {
        return Err("it is the active instance already".into());
    }
    let fit = group.peers.iter().filter(|peer| peer.is_in_sync && answers(peer_of(peer.id)));
    let fit = fit.filter(|peer| wanted.is_none_or(|wanted| peer_of(peer.id) == wanted));
    let best = fit.max_by_key(|peer| peer.acknowledged);
    match (best, to) {
        (Some(best), _) => Ok(peer_of(best.id)),
        (None, Some(name)) => Err(format!("'{name}' is not in sync: see `towline status`")),
        (None, None) => Err("no other instance is in sync: see `towline status`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(status: InstanceState, reason: &str) -> GroupStatus {
        let row = |name: &str, in_sync, status, reason: &str| InstanceStatus {
            instance: name.into(),
            in_sync,
            status,
            reason: reason.into(),
            ..InstanceStatus::default()
        };
        let in_sync = status == InstanceState::Normal;
        let a = row("a", true, InstanceState::Normal, "");
        GroupStatus {
            active: "a".into(),
            instances: vec![a, row("b", in_sync, status, reason)],
            ..GroupStatus::default()
        }
    }

    fn why(prospect: Prospect) -> String {
        match prospect {
            Prospect::Bad(why) => why,
            Prospect::Already | Prospect::Good => String::new(),
        }
    }

    #[test]
    fn a_switch_to_one_that_is_active_is_done_and_to_one_that_cannot_take_over_is_refused_with_why()
    {
        let whole = group(InstanceState::Normal, "");
        assert_eq!(prospect_of(&whole, Some("a")), Prospect::Already);
        for to in [Some("b"), None] {
            assert_eq!(prospect_of(&whole, to), Prospect::Good);
            let unheard = group(InstanceState::Unknown, "");
            assert_eq!(prospect_of(&unheard, to), Prospect::Good, "the active one knows");
        }
        let blank = why(prospect_of(&group(InstanceState::Blank, ""), Some("b")));
        assert_eq!(blank, "'b' is not in sync, but 'blank'");
        let gone = group(InstanceState::Disconnected, "Connection refused");
        let told = why(prospect_of(&gone, Some("b")));
        assert_eq!(told, "'b' is not in sync, but 'disconnected': Connection refused");
        assert!(why(prospect_of(&gone, None)).starts_with("no other instance is in sync"));
    }
}
