//! The second half of a drill: this group became live by one, and switches back when its time has
//! come.
//!
//! That it is a drill, and how long this group stays live, stands in the log, as the cause of the
//! newest history: so any instance that becomes active here carries it out, and no other group can
//! ask for it.
//!
//! Not here: the switch (`region_orders`), the first half (`towline region drill`). Invariants: any
//! later change of roles ends the drill; nothing is switched back later than [`RETURN_MAX`] behind
//! its time, so that a group which was away does not change roles when that is not expected.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::{REGION_DRILL_RETURNS, REGION_DRILL_STAYS};
use towline_logging::log as say;
use towline_os::thread::Builder;
use towline_replica::OpenReplica;
use towline_types::{ChangeCause, ChangeKind, Histories, HistoryId, Time};

use super::region_orders::RegionOrders;

/// It is tried for so long behind its time.
const RETURN_MAX: Duration = Duration::from_secs(600);
/// How often it is looked whether this instance still leads.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(500);
/// One attempt. Clients are let go for some seconds of it at most (`region_switch`).
const ATTEMPT_MAX: Duration = Duration::from_secs(20);

/// A drill that is to go back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DueReturn {
    /// The history that it began.
    history: HistoryId,
    /// The group that was live before.
    back_to: String,
    by: String,
    /// From now on.
    wait: Duration,
    /// From now on: then it is over, done or not.
    over: Duration,
}

/// The return that is due in a log of which `group` is live at `now`, if its newest history began
/// with a drill.
fn due(histories: &Histories, group: &str, now: Time) -> Option<DueReturn> {
    let newest = histories.newest().filter(|newest| newest.live == group)?;
    let ChangeCause { kind: ChangeKind::Drill { back_after_s }, by, .. } =
        ChangeCause::parse(&newest.cause)?
    else {
        return None;
    };
    let back_to = histories.get(newest.parent?)?.live.clone();
    let stay = Duration::from_secs(back_after_s);
    // By the clock of the other region, which may be ahead.
    let past = now.since(newest.began);
    let over = stay.saturating_add(RETURN_MAX).checked_sub(past)?;
    let wait = stay.saturating_sub(past);
    Some(DueReturn { history: newest.id, back_to, by, wait, over })
}

/// This instance became active: if its group is live by a drill, it goes back in time.
///
/// # Errors
/// There is no thread.
pub(super) fn watch(
    opened: &Arc<OpenReplica>,
    orders: &Arc<RegionOrders>,
    group: &str,
) -> std::io::Result<()> {
    let Some(door) = opened.door() else { return Ok(()) };
    let histories = door.look(|instance| instance.histories().clone());
    let Some(drill) = due(&histories, group, opened.clock.wall()) else { return Ok(()) };
    let (opened, orders) = (Arc::clone(opened), Arc::clone(orders));
    Builder::new()
        .name("region-drill".into())
        .spawn(move || run(&opened, &orders, &drill))
        .map(drop)
}

fn run(opened: &OpenReplica, orders: &RegionOrders, drill: &DueReturn) {
    let driver = &opened.driver;
    let seconds = drill.wait.as_secs().to_string();
    say(&REGION_DRILL_RETURNS, &[&drill.back_to, &seconds, &drill.by]);
    let began = driver.now();
    let is_it = || {
        let newest = |it: &Histories| it.newest().is_some_and(|it| it.id == drill.history);
        let door = opened.door();
        driver.leads() && door.is_some_and(|it| it.look(|instance| newest(instance.histories())))
    };
    let pause = |most: Duration| {
        let since = driver.now();
        while driver.leads() && !driver.is_ending() {
            let left = most.saturating_sub(driver.now().since(since));
            if left.is_zero() {
                return;
            }
            driver.pause(left.min(LOOK_INTERVAL));
        }
    };
    pause(drill.wait);
    let mut why = "its time was over".to_owned();
    while is_it() && !driver.is_ending() {
        let left = drill.over.saturating_sub(driver.now().since(began));
        if left.is_zero() {
            say(&REGION_DRILL_STAYS, &[&drill.back_to, &why]);
            return;
        }
        match orders.goes_back(&drill.by, ATTEMPT_MAX) {
            Ok(()) => return,
            Err(refused) => why = refused,
        }
        pause(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use towline_types::{History, Lsn};

    use super::*;

    const STAY: u64 = 30;

    fn log(kind: ChangeKind, live: &str) -> Histories {
        let cause = ChangeCause { kind, by: "root".into(), instance: "a".into() }.to_string();
        let mut histories = Histories::default();
        let of = |number: u8, live: &str, cause: &str| History {
            id: HistoryId([number; 16]),
            parent: number.checked_sub(2).map(|before| HistoryId([before + 1; 16])),
            fork: Lsn(if number > 1 { 100 } else { 0 }),
            live: live.into(),
            began: Time(1_000_000_000),
            cause: cause.into(),
        };
        histories.push(of(1, "WEST", "")).unwrap();
        histories.push(of(2, live, &cause)).unwrap();
        histories
    }

    fn at(seconds: u64) -> Time {
        Time(1_000_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn a_group_that_is_live_by_a_drill_goes_back_when_its_time_has_come() {
        let drill = log(ChangeKind::Drill { back_after_s: STAY }, "EAST");
        let found = due(&drill, "EAST", at(10)).unwrap();
        assert_eq!((found.back_to.as_str(), found.by.as_str()), ("WEST", "root"));
        assert_eq!(found.wait, Duration::from_secs(20));
        assert_eq!(found.over, Duration::from_secs(20) + RETURN_MAX);
        assert_eq!(due(&drill, "EAST", at(45)).unwrap().wait, Duration::ZERO);
        let ahead = due(&drill, "EAST", Time(0)).unwrap();
        assert_eq!(ahead.wait, Duration::from_secs(STAY), "the clock there was ahead");
    }

    #[test]
    fn no_other_change_goes_back_and_no_drill_of_long_ago() {
        for kind in [ChangeKind::Switch, ChangeKind::Failover, ChangeKind::DrillReturn] {
            assert_eq!(due(&log(kind, "EAST"), "EAST", at(40)), None);
        }
        let drill = log(ChangeKind::Drill { back_after_s: STAY }, "EAST");
        assert_eq!(due(&drill, "WEST", at(40)), None, "it is live no more");
        assert_eq!(due(&drill, "EAST", at(STAY + RETURN_MAX.as_secs() + 1)), None);
        let endless = log(ChangeKind::Drill { back_after_s: u64::MAX }, "EAST");
        assert!(due(&endless, "EAST", at(40)).is_some());
        assert_eq!(due(&Histories::default(), "EAST", at(1)), None);
    }
}
