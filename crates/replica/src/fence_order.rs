//! An operator fences the live group: it is to serve no client, durably, until that is taken back.
//! It can be ordered at any of its instances.
//!
//! The instance that is asked keeps the order and says it to the others, and each that has it says
//! it on. The one that is active lets its clients go at once; what it had decided is committed, and
//! sent to the other region, as ever.
//!
//! Not here: what a fence does (`Driver::order_fence`). Invariants: an order is of the history that
//! goes on, so that it ends with it; a group that was superseded is not unfenced.

use std::time::Duration;

use towline_config::GroupConfig;
use towline_group::Mode;
use towline_link::Where;
use towline_os::time::Instant;
use towline_replication::driver::{Driver, MemberStand};
use towline_replication::fence::{FenceOrder, NO_HISTORY, REASON_CHARACTERS_MAX, RegionFence};
use towline_replication::region_part::RegionPart;
use towline_types::Lsn;

use crate::open::OpenReplica;

/// What is not answered is asked again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// Members have so long to say where they stand.
const ANSWERS_MAX: Duration = Duration::from_secs(2);

/// What is to be expected of an order to fence this group, or to take that back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceOutlook {
    /// Why it would be refused.
    pub obstacles: Vec<String>,
    /// What the operator should know besides.
    pub notes: Vec<String>,
    /// Names of the members that answered.
    pub reached: Vec<String>,
}

/// A fence that a majority has, or has no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceDone {
    /// Names of the members that have the order.
    pub kept_by: Vec<String>,
    /// Names of those that get it when they come.
    pub not_reached: Vec<String>,
    /// End of the log of this group, if nothing that was decided waits.
    pub end: Option<Lsn>,
    /// Each step, and when it was done: milliseconds since the order.
    pub steps: Vec<(&'static str, u64)>,
}

/// Looks what stands in the way. `is_on`: it is to be fenced.
#[must_use]
pub fn outlook(
    (opened, part): (&OpenReplica, &RegionPart),
    group: &GroupConfig,
    is_on: bool,
) -> FenceOutlook {
    let driver = &opened.driver;
    driver.ask_for_stands();
    let all = driver.names().len();
    driver.wait_until(ANSWERS_MAX, || driver.stands().iter().flatten().count() == all);
    let stands = driver.stands();
    let mut found =
        FenceOutlook { reached: names(driver, &stands, |_| true), ..Default::default() };
    let silent = names_of_silent(driver, &stands);
    if driver.mode() != Mode::Voting {
        found.obstacles.push(format!("group '{}' is not live", group.name));
        return found;
    }
    note_histories(opened);
    let is_lost = is_of_lost_log(driver);
    if driver.newest_begun().is_none() && (is_on || !is_lost) {
        let why = "the log has no history yet: no other region was connected so far";
        found.obstacles.push(why.to_owned());
    }
    let is_fenced = is_ordered(driver);
    match (driver.superseded(), is_on, is_fenced) {
        (Some(by), ..) => found.obstacles.push(format!(
            "group '{}' took over from this one, which serves no client since: 'towline region \
             divergence', then 'towline region rejoin'",
            by.fork.other
        )),
        (None, true, true) => found.obstacles.push("it is fenced already".to_owned()),
        (None, false, false) => found.obstacles.push("it is not fenced".to_owned()),
        (None, true, false) | (None, false, true) => {}
    }
    let is_closed = opened.door().is_some_and(|door| door.look(|it| it.is_closed()));
    if is_on && is_closed && !driver.is_fenced() {
        found.obstacles.push("a change of roles is under way".to_owned());
    }
    if found.reached.len() <= all / 2 {
        found.notes.push(format!(
            "only {} of {all} instances answer: the others may serve clients until they hear of it",
            found.reached.len()
        ));
    } else if !silent.is_empty() {
        found.notes.push(format!("told when they come: {}", silent.join(", ")));
    }
    found.notes.extend(note_of_other(part, is_on));
    found
}

fn note_of_other(part: &RegionPart, is_on: bool) -> Option<String> {
    let view = part.view();
    let shipping = view.shipping?;
    match (is_on, shipping.connected) {
        (true, true) => {
            let bytes = shipping.exposure.bytes;
            Some(format!(
                "the other group lacks {bytes} bytes of the log now, and goes on to get them"
            ))
        }
        (true, false) => {
            Some("the other group is not connected, and lacks what it lacks".to_owned())
        }
        (false, true) => None,
        (false, false) => Some(
            "the other group is not connected: see first that it was not promoted meanwhile"
                .to_owned(),
        ),
    }
}

/// Fences this group (`is_on`), or takes that back. `by`: the user that ordered it, and why.
///
/// # Errors
/// Why not. After `most`: which members have the order; it stays, and is said to the others as they
/// come.
pub fn order(
    (opened, part): (&OpenReplica, &RegionPart),
    group: &GroupConfig,
    is_on: bool,
    ((by, reason), most): ((&str, &str), Duration),
) -> Result<FenceDone, String> {
    let began = Instant::now();
    let left = || most.saturating_sub(began.elapsed());
    let ms = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let driver = &opened.driver;
    let found = outlook((opened, part), group, is_on);
    if !found.obstacles.is_empty() {
        return Err(found.obstacles.join("; "));
    }
    if left().is_zero() {
        return Err("the time-out was over before anything was changed: give more time".to_owned());
    }
    driver.order_fence(new_order(opened, is_on, (by, reason))?)?;
    let mut steps = vec![("kept", ms())];
    let has_order = driver.kept_fence().mark().order;
    let has_it = |stand: &MemberStand| stand.fence.order == has_order;
    let is_told = || {
        let stands = driver.stands();
        names(driver, &stands, has_it).len() > stands.len() / 2
            && driver.names().iter().zip(&stands).enumerate().all(|(peer, (_, stand))| {
                !driver.is_connected(peer) || stand.as_ref().is_some_and(has_it)
            })
    };
    if !until(driver, left, is_told) {
        let stands = driver.stands();
        return Err(format!(
            "too few instances have the order in time: {}. It stays, and is said to the others as \
             they come",
            names(driver, &stands, has_it).join(", ")
        ));
    }
    steps.push(("told", ms()));
    let stands = driver.stands();
    let kept_by = names(driver, &stands, has_it);
    let not_reached: Vec<String> =
        driver.names().iter().filter(|name| !kept_by.contains(name)).cloned().collect();
    let is_done = || {
        let stands = driver.stands();
        let mut known = stands.iter().flatten();
        let here = *driver.whereabouts().borrow() == Where::Here;
        match is_on {
            // Each that is connected, and not only those that were quick.
            true => has_heard_all(driver, &stands) && known.all(|it| !it.serves && it.is_still),
            false => here || known.any(|stand| stand.serves),
        }
    };
    let is_done = until(driver, left, is_done);
    if is_done {
        steps.push((if is_on { "still" } else { "serving" }, ms()));
    }
    let stands = driver.stands();
    Ok(FenceDone {
        kept_by,
        not_reached,
        end: (is_on && is_done)
            .then(|| Lsn(stands.iter().flatten().map(|it| it.last_end).max().unwrap_or(0))),
        steps,
    })
}

/// The order, behind that which this instance knows.
fn new_order(
    opened: &OpenReplica,
    is_on: bool,
    (by, reason): (&str, &str),
) -> Result<FenceOrder, String> {
    let driver = &opened.driver;
    let of = match driver.newest_begun() {
        Some(of) => of.0,
        None if is_of_lost_log(driver) => NO_HISTORY,
        None => return Err("the log has no history".to_owned()),
    };
    let before = driver.kept_fence().order.filter(|order| order.of == of);
    Ok(FenceOrder {
        of,
        number: before.map_or(0, |order| order.number).saturating_add(1),
        id: towline_process::random::bytes(),
        is_on,
        by: by.to_owned(),
        reason: reason.chars().take(REASON_CHARACTERS_MAX).collect(),
        at_ms: opened.clock.wall().as_millis(),
    })
}

/// Whether each member with which this one is connected has answered.
fn has_heard_all(driver: &Driver, stands: &[Option<MemberStand>]) -> bool {
    let mut peers = stands.iter().enumerate();
    peers.all(|(peer, stand)| stand.is_some() || !driver.is_connected(peer))
}

/// Asks the members again and again until `done`.
fn until(driver: &Driver, left: impl Fn() -> Duration, done: impl Fn() -> bool) -> bool {
    loop {
        driver.ask_for_stands();
        if driver.wait_until(left().min(AGAIN), &done) {
            return true;
        }
        if left().is_zero() || driver.is_ending() {
            return false;
        }
    }
}

/// Whether this group serves no client because the other one has the log that it lost.
fn is_of_lost_log(driver: &Driver) -> bool {
    driver.fence().and_then(|fence| fence.order).is_some_and(|order| order.of == NO_HISTORY)
}

fn is_ordered(driver: &Driver) -> bool {
    let RegionFence { order, .. } = driver.kept_fence();
    driver.is_fenced() && order.is_some_and(|order| order.is_on)
}

/// The first history of a log is not known to the member when it begins here.
fn note_histories(opened: &OpenReplica) {
    let histories = opened.replica.look_if_there(|instance| instance.histories().clone());
    let histories = histories.unwrap_or_default();
    opened.driver.histories_begun(histories.iter().map(|history| history.id));
}

fn names(
    driver: &Driver,
    stands: &[Option<MemberStand>],
    fits: impl Fn(&MemberStand) -> bool,
) -> Vec<String> {
    let named = driver.names().iter().zip(stands);
    let fitting = named.filter(|(_, stand)| stand.as_ref().is_some_and(&fits));
    fitting.map(|(name, _)| name.clone()).collect()
}

fn names_of_silent(driver: &Driver, stands: &[Option<MemberStand>]) -> Vec<String> {
    let named = driver.names().iter().zip(stands);
    named.filter(|(_, stand)| stand.is_none()).map(|(name, _)| name.clone()).collect()
}
