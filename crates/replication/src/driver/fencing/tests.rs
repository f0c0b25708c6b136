use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use towline_group::HardState;
use towline_log::{Disk, MemoryDisk, Space};
use towline_types::LevelRaise;

use super::super::MemberStand;
use super::super::tests::{LONG, one_of};
use super::*;
use crate::active_instance::ActiveInstance;
use crate::lifecycle::EndReason;
use crate::return_order::KnownFork;

const ONE: HistoryId = HistoryId([1; 16]);
const TWO: HistoryId = HistoryId([2; 16]);

struct Rig {
    driver: Arc<Driver>,
    _ended: towline_os::sync::mpsc::Receiver<EndReason>,
    folder: tempfile::TempDir,
}

fn member(names: &[&str], mode: Mode, folder: tempfile::TempDir) -> Rig {
    let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
    let hard_state = HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
    let (driver, ended) = one_of(names, hard_state, &disk, folder.path());
    Rig { driver, _ended: ended, folder }
}

/// The first of three that votes; its log has begun [`ONE`].
fn voting() -> Rig {
    let rig = member(&["a", "b", "c"], Mode::Voting, tempfile::tempdir().unwrap());
    rig.driver.histories_begun(std::iter::once(ONE));
    rig
}

fn superseded() -> Supersession {
    let fork = KnownFork {
        fork: 7,
        other: "EAST".into(),
        history: TWO.0,
        is_old: true,
        ..KnownFork::default()
    };
    Supersession { of: ONE.0, fork, ..Supersession::default() }
}

fn order(number: u64, is_on: bool) -> FenceOrder {
    FenceOrder { of: ONE.0, number, is_on, by: "me".into(), ..FenceOrder::default() }
}

/// What serves clients: how often it was fenced, less how often that was lifted.
#[derive(Default)]
struct Served {
    fenced: AtomicU64,
    lifted: AtomicU64,
}

impl Served {
    fn counts(&self) -> (u64, u64) {
        (self.fenced.load(Ordering::SeqCst), self.lifted.load(Ordering::SeqCst))
    }
}

impl ActiveInstance for Served {
    fn committed(&self, _upto: Lsn) {}

    fn space(&self, _space: Space) {}

    fn written(&self) {}

    fn caught_up(&self) {}

    fn region_has(&self, _upto: Lsn) {}

    fn region_news(&self) {}

    fn answered_alone_upto(&self) -> Option<Lsn> {
        None
    }

    fn reply_waits(&self) -> towline_admin::status::ReplyWaitsStatus {
        towline_admin::status::ReplyWaitsStatus::default()
    }

    fn close_clients(&self) {}

    fn fence(&self, _why: &str) {
        self.fenced.fetch_add(1, Ordering::SeqCst);
    }

    fn lift_fence(&self) {
        self.lifted.fetch_add(1, Ordering::SeqCst);
    }

    fn is_still(&self) -> bool {
        true
    }

    fn runs_pending(&self) -> usize {
        0
    }

    fn raise_format_level(&self, _to: u8) -> LevelRaise {
        LevelRaise::Refused
    }

    fn hold_still(&self, act: &mut dyn FnMut() -> bool) -> bool {
        act()
    }
}

/// A group of one that leads and serves.
fn serving() -> (Rig, Arc<Served>) {
    let rig = member(&["a"], Mode::Voting, tempfile::tempdir().unwrap());
    rig.driver.histories_begun(std::iter::once(ONE));
    let leads = || {
        rig.driver.look_again();
        rig.driver.committed_end() > Lsn::ZERO
    };
    assert!(rig.driver.wait_until(LONG, leads), "{:?}", rig.driver.group());
    let served = Arc::new(Served::default());
    rig.driver.set_active(served.clone());
    rig.driver.lets_clients_in();
    (rig, served)
}

impl Rig {
    fn place(&self) -> Where {
        *self.driver.whereabouts().borrow()
    }

    fn kept(&self) -> RegionFence {
        RegionFence::kept(self.folder.path()).unwrap()
    }
}

#[test]
fn a_group_that_was_superseded_lets_nobody_in_and_its_next_process_neither() {
    let (rig, served) = serving();
    assert_eq!((rig.place(), served.counts()), (Where::Here, (0, 0)));
    rig.driver.supersede(superseded());
    assert_eq!((rig.place(), served.counts()), (Where::NoActive, (1, 0)));
    assert!(rig.driver.is_fenced() && rig.driver.superseded() == Some(superseded()));
    rig.driver.lets_clients_in();
    assert_eq!(rig.place(), Where::NoActive, "for any question");
    // It goes on in its group.
    assert!(rig.driver.is_still() && rig.driver.leads());
    assert!(rig.driver.fence_why().contains("group 'EAST' of another region took over"));
    rig.driver.log().shutdown();
    let Rig { folder, .. } = rig;
    let next = member(&["a"], Mode::Voting, folder);
    assert!(!next.driver.is_fenced(), "it knows of no history of its log yet");
    next.driver.histories_begun(std::iter::once(ONE));
    assert!(next.driver.is_fenced());
    next.driver.histories_begun(std::iter::once(TWO));
    assert!(!next.driver.is_fenced() && next.kept() == RegionFence::default());
    next.driver.log().shutdown();
}

#[test]
fn an_order_stops_a_serving_instance_and_is_taken_back_by_a_later_one() {
    let (rig, served) = serving();
    rig.driver.order_fence(order(1, true)).unwrap();
    assert_eq!((rig.place(), served.counts()), (Where::NoActive, (1, 0)));
    rig.driver.order_fence(order(2, false)).unwrap();
    assert_eq!((rig.place(), served.counts()), (Where::Here, (1, 1)));
    // One that slept says the first one again.
    rig.driver.takes_fence(RegionFence { superseded: None, order: Some(order(1, true)) });
    assert_eq!((rig.place(), served.counts()), (Where::Here, (1, 1)));
    rig.driver.supersede(superseded());
    rig.driver.order_fence(order(3, true)).unwrap();
    rig.driver.order_fence(order(4, false)).unwrap();
    assert!(rig.driver.is_fenced(), "that is no way around a newer history");
    assert_eq!(rig.place(), Where::NoActive);
    rig.driver.log().shutdown();
}

#[test]
fn an_order_to_serve_lets_in_nobody_whom_a_switch_has_let_go() {
    let (rig, _) = serving();
    rig.driver.order_fence(order(1, true)).unwrap();
    rig.driver.lets_no_client_in();
    rig.driver.order_fence(order(2, false)).unwrap();
    assert_eq!(rig.place(), Where::NoActive);
    rig.driver.lets_clients_in();
    assert_eq!(rig.place(), Where::Here);
    rig.driver.log().shutdown();
}

#[test]
fn one_that_becomes_active_in_a_fenced_group_serves_nobody() {
    let rig = voting();
    rig.driver.takes_fence(RegionFence { superseded: Some(superseded()), order: None });
    assert!(rig.driver.is_fenced() && rig.kept().superseded == Some(superseded()));
    let served = Arc::new(Served::default());
    rig.driver.set_active(served.clone());
    rig.driver.lets_clients_in();
    assert_eq!((rig.place(), served.counts()), (Where::NoActive, (1, 0)));
    rig.driver.log().shutdown();
}

#[test]
fn a_member_that_follows_another_region_takes_no_fence() {
    let rig = member(&["a", "b", "c"], Mode::Recovery, tempfile::tempdir().unwrap());
    rig.driver.histories_begun(std::iter::once(ONE));
    rig.driver.supersede(superseded());
    assert!(!rig.driver.is_fenced() && rig.kept() == RegionFence::default());
    rig.driver.log().shutdown();
}

#[test]
fn it_is_said_to_each_that_votes_until_that_one_has_it() {
    let rig = voting();
    let owes = || {
        let state = rig.driver.fencing.state.lock();
        let owed: Vec<Peer> = (1..3).filter(|peer| state.owed[*peer]).collect();
        drop(state);
        owed
    };
    let answer = |peer, mode: &str, fence| {
        let stand = MemberStand { mode: mode.into(), fence, ..MemberStand::default() };
        rig.driver.notes_fence(peer, &stand);
    };
    rig.driver.supersede(superseded());
    assert_eq!(owes(), [1, 2]);
    answer(1, "voting", FenceMark::default());
    answer(2, "recovery", FenceMark::default());
    assert_eq!(owes(), [1], "one that follows has nothing to stop");
    answer(1, "voting", rig.driver.fence_mark());
    assert_eq!(owes(), [0; 0]);
    rig.driver.order_fence(order(1, true)).unwrap();
    assert_eq!(owes(), [1, 2]);
    rig.driver.log().shutdown();
}

/// The active instance was cut off when it was fenced: no other one has heard of it, and the others
/// elect one that serves.
#[test]
fn a_fence_binds_when_a_majority_has_it_and_was_in_no_later_term() {
    let rig = voting();
    rig.driver.order_fence(order(1, true)).unwrap();
    let bound = || {
        let state = rig.driver.fencing.state.lock();
        state.bound.iter().filter(|it| **it).count()
    };
    let term = rig.driver.stand().term;
    let answer = |mode: &str, fence, term| {
        let stand = MemberStand { mode: mode.into(), fence, term, ..MemberStand::default() };
        rig.driver.notes_fence(1, &stand);
    };
    let mark = rig.driver.fence_mark();
    answer("voting", FenceMark::default(), term);
    answer("recovery", mark, term);
    answer("voting", mark, term + 1);
    assert_eq!(bound(), 0, "it has voted for another one, maybe before it had the fence");
    assert!(rig.driver.fencing.state.lock().owed[1], "it is asked again");
    answer("voting", mark, term);
    assert_eq!(bound(), 1);
    rig.driver.order_fence(order(2, true)).unwrap();
    assert_eq!(bound(), 0, "that was another order");
    rig.driver.log().shutdown();
}

#[test]
fn one_that_serves_is_still_only_when_its_fence_binds() {
    let (rig, _served) = serving();
    assert!(!rig.driver.is_still());
    rig.driver.order_fence(order(1, true)).unwrap();
    assert!(rig.driver.is_still(), "it is its own majority");
    // As of three of which none has answered.
    rig.driver.fencing.state.lock().bound.resize(3, false);
    assert!(!rig.driver.is_still(), "it may be alone with it");
    rig.driver.fencing.state.lock().bound[2] = true;
    assert!(rig.driver.is_still());
    rig.driver.fencing.state.lock().noted = FenceMark::default();
    assert!(!rig.driver.is_still(), "not durable here");
    rig.driver.log().shutdown();
}
