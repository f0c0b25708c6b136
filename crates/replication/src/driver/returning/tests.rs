use towline_group::HardState;
use towline_link::Peer;
use towline_log::{Disk, MemoryDisk};

use super::super::tests::one_of;
use super::super::{Driver, MemberStand};
use super::*;
use crate::return_order::RefusedOrder;

const LACKED: HistoryId = HistoryId([9; 16]);
const VOID: HistoryId = HistoryId([5; 16]);
const NONE: HistoryId = HistoryId([0; 16]);
const BEFORE: HistoryId = HistoryId([4; 16]);

struct Rig {
    driver: std::sync::Arc<Driver>,
    ended: towline_os::sync::mpsc::Receiver<EndReason>,
    folder: tempfile::TempDir,
}

/// The first of three members, in this mode; an order is kept with this stage.
fn member(mode: Mode, stage: Option<ReturnStage>) -> Rig {
    let kept =
        |stage| KeptReturn { order: order(1), stage, had_all: true, ..KeptReturn::default() };
    with_order(mode, stage.map(kept))
}

fn with_order(mode: Mode, kept: Option<KeptReturn>) -> Rig {
    let disk = std::sync::Arc::new(MemoryDisk::new()) as std::sync::Arc<dyn Disk>;
    let folder = tempfile::tempdir().unwrap();
    if let Some(kept) = kept {
        return_order::keep(folder.path(), &kept).unwrap();
    }
    let hard_state = HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
    let (driver, ended) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
    Rig { driver, ended, folder }
}

fn order(name: u8) -> ReturnOrder {
    let (id, history) = ([name; 16], LACKED.0);
    let (tail, by) = (TailEnd::all(), "me".into());
    ReturnOrder { id, fork: 4_096, history, tail, by, ..ReturnOrder::default() }
}

/// From a switch that came to nothing.
fn of_void() -> ReturnOrder {
    ReturnOrder { void: VOID.0, ..of_no_tail() }
}

fn refused() -> ReturnStage {
    ReturnStage::Refused("why".into())
}

/// By one with nothing behind the fork in its log.
fn of_no_tail() -> ReturnOrder {
    let tail = TailEnd { end: 4_096, terms: Vec::new() };
    ReturnOrder { tail, ..order(1) }
}

impl Rig {
    /// What is said to the others now.
    fn tells(&self) -> ReturnOrder {
        self.driver.region.returning.state.lock().order_for_others().unwrap()
    }

    fn kept(&self) -> Option<KeptReturn> {
        return_order::kept(self.folder.path()).unwrap()
    }

    fn says(&self, peer: Peer, mode: &str) {
        let stand = MemberStand { mode: mode.into(), ..MemberStand::default() };
        self.driver.notes_return(peer, &stand);
    }
}

#[test]
fn a_member_of_a_live_group_keeps_the_order_that_it_hears_and_ends() {
    let rig = member(Mode::Voting, None);
    rig.driver.takes_return(order(1));
    let kept = KeptReturn { order: order(1), ..KeptReturn::default() };
    assert_eq!((rig.kept(), rig.driver.kept_return()), (Some(kept.clone()), Some(kept)));
    assert_eq!(rig.ended.try_recv(), Ok(EndReason::ChangesPart));
    rig.driver.log().shutdown();
}

#[test]
fn an_order_that_was_refused_is_not_taken_again_and_another_one_is() {
    let rig = member(Mode::Voting, Some(refused()));
    rig.driver.takes_return(order(1));
    assert!(rig.ended.try_recv().is_err());
    rig.driver.takes_return(order(2));
    assert_eq!(rig.ended.try_recv(), Ok(EndReason::ChangesPart));
    assert_eq!(rig.kept().unwrap().order, order(2));
    rig.driver.log().shutdown();
}

/// The group returned, became live again, and handed over. One that was away then still votes: an
/// order of before that is not what it waits for, and the others did not take the live group's log,
/// which says so, because it had not returned.
#[test]
fn one_that_votes_in_a_later_history_is_not_awaited() {
    let rig = member(Mode::Recovery, Some(ReturnStage::Done));
    rig.driver.histories_begun([BEFORE, LACKED, VOID].into_iter());
    for (newest, awaits) in
        [(BEFORE, true), (LACKED, false), (NONE, true), (VOID, false), (HistoryId([6; 16]), true)]
    {
        let (mode, newest_id) = ("voting".into(), newest.0);
        let stand = MemberStand { mode, newest: newest_id, ..MemberStand::default() };
        rig.driver.notes_return(1, &stand);
        assert_eq!(rig.driver.awaits_returns(), awaits, "{newest:?}");
    }
    rig.driver.log().shutdown();
}

/// Two members that returned by orders of their own say both of them to one that can take neither:
/// it took the one, refused it, took the other one, and so on.
#[test]
fn of_two_orders_that_were_refused_none_is_taken_again() {
    let mut kept = KeptReturn { order: order(1), stage: refused(), ..KeptReturn::default() };
    for (name, takes) in [(2, true), (1, false), (2, false), (3, true), (1, false)] {
        let rig = with_order(Mode::Voting, Some(kept.clone()));
        rig.driver.takes_return(order(name));
        assert_eq!(rig.ended.try_recv().is_ok(), takes, "{name}");
        kept = KeptReturn { stage: refused(), ..rig.kept().unwrap() };
        rig.driver.log().shutdown();
    }
    for name in 10..40 {
        kept = KeptReturn { order: order(name), refused: kept.refused_before(), ..kept };
    }
    assert!(kept.refused.len() <= 16);
}

#[test]
fn a_log_with_the_history_and_a_recovery_member_take_no_order() {
    let rig = member(Mode::Voting, None);
    rig.driver.histories_begun(std::iter::once(LACKED));
    rig.driver.takes_return(order(1));
    assert!(rig.driver.order_return(order(1)).unwrap_err().contains("has the history"));
    let follows = member(Mode::Recovery, None);
    follows.driver.takes_return(order(1));
    assert!(follows.driver.order_return(order(1)).unwrap_err().contains("not one of a live"));
    for rig in [rig, follows] {
        assert_eq!(rig.kept(), None);
        assert!(rig.ended.try_recv().is_err());
        rig.driver.log().shutdown();
    }
}

#[test]
fn a_recovery_member_takes_an_order_that_names_the_newest_history_of_its_log_and_no_other() {
    for (begun, takes) in [
        (&[BEFORE, VOID][..], true),
        (&[BEFORE], false),
        (&[BEFORE, VOID, LACKED], false),
        (&[BEFORE, VOID, HistoryId([6; 16])], false),
        (&[], false),
    ] {
        let rig = member(Mode::Recovery, None);
        rig.driver.histories_begun(begun.iter().copied());
        rig.driver.takes_return(of_no_tail());
        assert_eq!(rig.kept(), None, "it names none");
        rig.driver.takes_return(of_void());
        let kept = KeptReturn { order: of_void(), in_recovery: true, ..KeptReturn::default() };
        assert_eq!(rig.kept(), takes.then_some(kept), "{begun:?}");
        assert_eq!(rig.ended.try_recv().is_ok(), takes, "{begun:?}");
        rig.driver.log().shutdown();
    }
    let promoting = member(Mode::Promoting, None);
    promoting.driver.histories_begun([BEFORE, VOID].into_iter());
    promoting.driver.takes_return(of_void());
    assert_eq!(promoting.kept(), None, "what it has counts for the promotion");
    promoting.driver.log().shutdown();
}

/// The others are in recovery as well, and have the history or have given it up.
#[test]
fn one_that_returned_from_a_void_switch_awaits_the_others_by_what_their_logs_have() {
    let done = KeptReturn { order: of_void(), stage: ReturnStage::Done, ..KeptReturn::default() };
    let rig = with_order(Mode::Recovery, Some(done));
    let says = |peer, newest: HistoryId, returned: [u8; 16], last| {
        let (mode, newest) = ("recovery".into(), newest.0);
        let stand = MemberStand { mode, newest, returned, last, ..MemberStand::default() };
        rig.driver.notes_return(peer, &stand);
    };
    rig.says(2, "voting");
    for (newest, returned, last, awaits) in [
        (VOID, [0; 16], (1, 9), true),
        (NONE, [0; 16], (1, 9), true),
        (NONE, [0; 16], (0, 0), false),
        (NONE, LACKED.0, (1, 9), false),
        (BEFORE, [0; 16], (1, 9), false),
    ] {
        says(1, newest, returned, last);
        assert_eq!(rig.driver.awaits_returns(), awaits, "{newest:?} {returned:?} {last:?}");
    }
    rig.driver.log().shutdown();
}

#[test]
fn one_that_returned_takes_nothing_of_the_live_group_before_a_majority_has() {
    let rig = member(Mode::Recovery, Some(ReturnStage::Done));
    assert!(rig.driver.awaits_returns());
    rig.says(1, "voting");
    assert!(rig.driver.awaits_returns());
    rig.says(2, "recovery");
    assert!(!rig.driver.awaits_returns(), "the third one is away");
    rig.says(1, "recovery");
    rig.driver.tick();
    assert!(!rig.driver.awaits_returns());
    let never = member(Mode::Recovery, None);
    assert!(!never.driver.awaits_returns());
    for rig in [rig, never] {
        rig.driver.log().shutdown();
    }
}

#[test]
fn when_a_majority_returned_the_others_are_told_that_all_may_go() {
    let (order, stage) = (of_no_tail(), ReturnStage::Done);
    let done = KeptReturn { order, stage, had_all: true, ..KeptReturn::default() };
    let rig = with_order(Mode::Recovery, Some(done.clone()));
    assert_eq!(rig.driver.stand().returned, LACKED.0);
    assert_eq!(rig.tells(), of_no_tail(), "two may have a tail that was acknowledged");
    rig.says(1, "recovery");
    assert_eq!(rig.tells(), of_no_tail(), "one that lost its disk had a tail perhaps");
    for (returned, goes) in [([8; 16], false), (LACKED.0, true)] {
        let stand = MemberStand { mode: "recovery".into(), returned, ..MemberStand::default() };
        rig.driver.notes_return(1, &stand);
        let tail = if goes { TailEnd::all() } else { of_no_tail().tail };
        assert_eq!((rig.tells().id, rig.tells().tail), (of_no_tail().id, tail));
    }
    let lacked = with_order(Mode::Recovery, Some(KeptReturn { had_all: false, ..done }));
    assert_eq!(lacked.driver.stand().returned, [0; 16]);
    let returned = LACKED.0;
    lacked.driver.notes_return(1, &MemberStand { returned, ..MemberStand::default() });
    assert_eq!(lacked.tells(), of_no_tail(), "it lacked what may have been acknowledged");
    for rig in [rig, lacked] {
        rig.driver.log().shutdown();
    }
}

#[test]
fn one_that_refused_takes_the_order_again_once_all_may_go() {
    let kept = KeptReturn { order: of_no_tail(), stage: refused(), ..KeptReturn::default() };
    let rig = with_order(Mode::Voting, Some(kept.clone()));
    assert_eq!(rig.driver.stand().returned, [0; 16]);
    rig.driver.takes_return(of_no_tail());
    assert_eq!((rig.kept(), rig.ended.try_recv().is_err()), (Some(kept), true));
    rig.driver.takes_return(order(1));
    let refused = vec![RefusedOrder { id: [1; 16], all: false }];
    let now = KeptReturn { order: order(1), refused, ..KeptReturn::default() };
    assert_eq!((rig.kept(), rig.ended.try_recv()), (Some(now), Ok(EndReason::ChangesPart)));
    rig.driver.log().shutdown();
}

#[test]
fn one_that_returned_once_and_is_of_a_live_group_again_hears_of_the_other_group() {
    let rig = member(Mode::Voting, Some(ReturnStage::Done));
    assert!(!rig.driver.awaits_returns());
    rig.says(1, "voting");
    assert!(!rig.driver.awaits_returns());
    rig.driver.log().shutdown();
}
