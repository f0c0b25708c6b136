//! A switch of the active instance, as an administrator asks for it on any instance.
//!
//! Not here: handing over itself (`hand_over`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towline_admin::status::{GroupStatus, InstanceState, InstanceStatus};

use towline_engine::GroupView;
use towline_group::Mode;
use towline_link::Peer;
use towline_replication::driver::Driver;
use towline_replication::hand_over::{NO_OTHER, TRANSFER_MAX, ask, hand_over, position};

/// Twice as long as an instance waits for news of how the others are.
const NEWS_MAX: Duration = Duration::from_secs(1);

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
    let from = driver.active_peer().ok_or_else(|| no_active(driver.mode()))?;
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
    let name = |peer: Peer| driver.name(peer);
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(json!({ "from": name(from), "to": name(next), "took_ms": took_ms }))
}

fn no_active(mode: Mode) -> &'static str {
    match mode {
        Mode::Recovery => {
            "this group is in recovery and has no active instance; 'towline region switch' at the live \
             group has it serve"
        }
        Mode::Voting | Mode::Promoting => "there is no active instance",
    }
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
            && driver.active_peer() == Some(from)
            && let Prospect::Bad(bad) = prospect_of(&view.group(), to)
        {
            why = Some(bad);
        }
        why.is_some() || driver.active_peer().is_some_and(|next| next != from)
    });
    why.map_or(Ok(()), Err)
}

fn prospect_of(group: &GroupStatus, to: Option<&str>) -> Prospect {
    let Some(to) = to else {
        if group.instances.len() == 1 {
            return Prospect::Bad(NO_OTHER.to_owned());
        }
        let others = group.instances.iter().filter(|row| row.instance != group.active);
        let mut fit = others.filter(|row| may_take_over(row)).peekable();
        if fit.peek().is_none() {
            return Prospect::Bad("no other instance is in sync: see `towline status`".into());
        }
        return match fit.any(|row| !loses_address(group, row)) {
            true => Prospect::Good,
            false => Prospect::Bad(address_lost(group, "no other instance in sync can hold")),
        };
    };
    if to == group.active {
        return Prospect::Already;
    }
    let row = group.instances.iter().find(|row| row.instance == to);
    match row.filter(|row| !may_take_over(row)) {
        None if row.is_some_and(|row| loses_address(group, row)) => {
            Prospect::Bad(address_lost(group, &format!("'{to}' cannot hold")))
        }
        None => Prospect::Good,
        Some(InstanceStatus { status, reason, .. }) => {
            let reason = if reason.is_empty() { reason } else { &format!(": {reason}") };
            let status = status.as_str();
            Prospect::Bad(format!("'{to}' is not in sync, but '{status}'{reason}"))
        }
    }
}

/// Whether clients at the floating address would find no instance when this one is active, although
/// they find one now.
fn loses_address(group: &GroupStatus, row: &InstanceStatus) -> bool {
    let active = group.instances.iter().find(|row| row.instance == group.active);
    row.address_refused && active.is_some_and(|active| !active.address_refused)
}

/// What an operator can do then: the address must not keep a machine from being taken out of
/// service.
fn address_lost(group: &GroupStatus, what: &str) -> String {
    format!(
        "{what} the floating address {}, so its clients would find no queue manager (TWL4304E in the \
         log of that instance says why); to do without the address, stop instance '{}'",
        group.floating_address, group.active
    )
}

/// As far as is known: an instance that is not active may not have heard of another one yet.
fn may_take_over(row: &InstanceStatus) -> bool {
    row.in_sync || row.status == InstanceState::Unknown
}

fn wait_for_another(driver: &Driver, from: Peer, most: Duration) -> Result<Peer, String> {
    let mut next = None;
    driver.wait_until(most, || {
        next = driver.active_peer().filter(|next| *next != from);
        next.is_some()
    });
    next.ok_or_else(|| "the active instance did not change in time; see its messages".into())
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

    #[test]
    fn the_only_instance_of_a_group_has_none_to_switch_to() {
        let mut alone = group(InstanceState::Normal, "");
        alone.instances.truncate(1);
        assert_eq!(why(prospect_of(&alone, None)), NO_OTHER);
        assert_eq!(prospect_of(&alone, Some("a")), Prospect::Already, "it is active");
    }

    #[test]
    fn a_switch_to_one_that_cannot_hold_the_floating_address_is_refused_while_the_active_one_can() {
        let mut group = group(InstanceState::Normal, "");
        group.floating_address = "10.0.0.50/24".into();
        group.instances[1].address_refused = true;
        let told = why(prospect_of(&group, Some("b")));
        assert!(told.starts_with("'b' cannot hold the floating address 10.0.0.50/24"), "{told}");
        assert!(told.contains("stop instance 'a'"), "{told}");
        let told = why(prospect_of(&group, None));
        assert!(told.starts_with("no other instance in sync can hold"), "{told}");
        group.instances[0].address_refused = true;
        for to in [Some("b"), None] {
            assert_eq!(prospect_of(&group, to), Prospect::Good, "no client loses anything");
        }
    }
}
