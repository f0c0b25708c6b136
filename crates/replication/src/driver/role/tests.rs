use towline_group::Shipment;
use towline_log::{Disk, MemoryDisk};
use towline_types::{Batch, Histories, History, Lsn};

use super::super::tests::{LONG, one_of};
use super::*;
use crate::hard_state_file::HardStateFile;

const FIRST: HistoryId = HistoryId([1; 16]);
const SECOND: HistoryId = HistoryId([2; 16]);

fn order(history: HistoryId) -> PromotionOrder {
    PromotionOrder { history, cause: "fail-over, ordered by me".into() }
}

fn promote(history: HistoryId, cause: &str) -> Bytes {
    promote_behind(HistoryId([0; 16]), history, cause)
}

fn promote_behind(behind: HistoryId, history: HistoryId, cause: &str) -> Bytes {
    let (history, behind, cause) = (history.0, behind.0, cause.to_owned());
    let frame = RoleFrame::Promote { question: 7, history, behind, cause, stands: false };
    serde_json::to_vec(&frame).unwrap().into()
}

struct Rig {
    driver: std::sync::Arc<Driver>,
    ended: towline_os::sync::mpsc::Receiver<EndReason>,
    folder: tempfile::TempDir,
}

/// The first of these members, of a recovery group.
fn in_recovery(names: &[&str]) -> Rig {
    let disk = std::sync::Arc::new(MemoryDisk::new()) as std::sync::Arc<dyn Disk>;
    let folder = tempfile::tempdir().unwrap();
    let mode = Mode::Recovery;
    let hard_state = HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
    let (driver, ended) = one_of(names, hard_state, &disk, folder.path());
    Rig { driver, ended, folder }
}

impl Rig {
    fn kept(&self) -> HardState {
        HardStateFile::of(self.folder.path()).read().unwrap().unwrap_or_default()
    }

    /// The newest batch that is committed, once this member, which is alone, leads.
    fn led(&self) -> BatchPlace {
        let leads = || {
            self.driver.look_again();
            self.driver.committed_end() > Lsn::ZERO
        };
        assert!(self.driver.wait_until(LONG, leads), "{:?}", self.driver.group());
        self.driver.look(|core| core.member.committed_place())
    }
}

#[test]
fn a_member_that_is_ordered_to_is_marked_durably_and_goes_on_after_a_start() {
    let rig = in_recovery(&["a", "b", "c"]);
    rig.driver.takes_role_frame(1, &promote(FIRST, "why")).unwrap();
    assert_eq!(rig.driver.marked_for(), Some(FIRST));
    assert_eq!((rig.kept().mode, rig.kept().promoted_to), (Mode::Promoting, FIRST.0));
    assert_eq!(rig.driver.promotion_order().unwrap().cause, "why");
    // Said again, also under another name: it is at it already.
    rig.driver.takes_role_frame(2, &promote(FIRST, "again")).unwrap();
    assert_eq!(rig.driver.promotion_order().unwrap().cause, "why");
    rig.driver.takes_role_frame(2, &promote(SECOND, "another")).unwrap();
    assert_eq!(rig.driver.marked_for(), Some(FIRST));
    assert_eq!(rig.driver.promotion_order().unwrap().history, FIRST);
    let started = RoleOrders::new(&rig.kept(), 3);
    assert!(!started.owes.load(Ordering::SeqCst), "its operator may have given it up long since");
    assert_eq!(started.state.lock().order.as_ref().unwrap().history, FIRST);
    rig.driver.log().shutdown();
}

#[test]
fn what_cannot_be_read_or_is_too_long_marks_none() {
    let rig = in_recovery(&["a", "b", "c"]);
    let long = "x".repeat(HISTORY_CAUSE_BYTES_MAX + 1);
    assert!(rig.driver.takes_role_frame(1, &promote(FIRST, &long)).is_err());
    assert!(rig.driver.takes_role_frame(1, &Bytes::from_static(b"{}")).is_err());
    assert_eq!(rig.driver.marked_for(), None);
    rig.driver.log().shutdown();
}

#[test]
fn no_member_is_marked_for_a_history_that_is_over() {
    let rig = in_recovery(&["a", "b", "c"]);
    rig.driver.histories_begun([FIRST, SECOND].into_iter());
    assert!(!rig.driver.mark(order(FIRST), false));
    assert_eq!((rig.driver.marked_for(), rig.driver.promotion_order()), (None, None));
    assert!(rig.driver.mark(order(SECOND), false), "its members may not all have been marked");
    rig.driver.log().shutdown();
}

#[test]
fn none_is_marked_by_one_that_does_not_know_that_roles_have_changed_since() {
    const THIRD: HistoryId = HistoryId([3; 16]);
    let rig = in_recovery(&["a", "b", "c"]);
    rig.driver.histories_begun([FIRST, SECOND].into_iter());
    rig.driver.takes_role_frame(1, &promote_behind(FIRST, THIRD, "of long ago")).unwrap();
    assert_eq!((rig.driver.marked_for(), rig.driver.promotion_order()), (None, None));
    // One that has applied more, or as much.
    rig.driver.takes_role_frame(1, &promote_behind(SECOND, THIRD, "of now")).unwrap();
    assert_eq!(rig.driver.marked_for(), Some(THIRD));
    rig.driver.log().shutdown();
}

/// A start says all histories of the log, and the newest once more when it marks its part.
#[test]
fn a_history_that_is_said_twice_is_still_the_newest() {
    let rig = in_recovery(&["a", "b", "c"]);
    rig.driver.histories_begun(std::iter::once(FIRST));
    rig.driver.histories_begun(std::iter::once(FIRST));
    rig.driver.takes_role_frame(1, &promote_behind(FIRST, SECOND, "why")).unwrap();
    assert_eq!(rig.driver.marked_for(), Some(SECOND));
    rig.driver.log().shutdown();
}

#[test]
fn a_promotion_is_said_for_some_minutes_only() {
    let rig = in_recovery(&["a", "b", "c"]);
    assert!(rig.driver.mark(order(FIRST), false));
    let ordered_at = rig.driver.role.state.lock().ordered_at;
    for (after, is_said) in [(SAID_MAX / 2, true), (SAID_MAX * 2, false)] {
        rig.driver.say_promotion_at(ordered_at + after);
        assert_eq!(rig.driver.role.owes.load(Ordering::SeqCst), is_said, "{after:?}");
    }
    assert_eq!(rig.driver.marked_for(), Some(FIRST), "the mark stays");
    rig.driver.log().shutdown();
}

#[test]
fn an_answer_of_one_that_is_marked_or_votes_ends_what_is_said_to_it() {
    let rig = in_recovery(&["a", "b", "c"]);
    assert!(rig.driver.mark(order(FIRST), false));
    let owed = || rig.driver.role.state.lock().owed.clone();
    let says = |peer, mode: &str, marked_for, newest| {
        let mode = mode.to_owned();
        let stand = MemberStand { mode, marked_for, newest, ..MemberStand::default() };
        let frame = RoleFrame::Stand { question: 0, stand };
        rig.driver.takes_role_frame(peer, &serde_json::to_vec(&frame).unwrap().into()).unwrap();
    };
    let answer = |peer, mode: &str, marked_for| says(peer, mode, marked_for, [0; 16]);
    answer(1, "recovery", [0; 16]);
    answer(2, "promoting", SECOND.0);
    assert_eq!(owed()[1..], [true, true]);
    answer(1, "promoting", FIRST.0);
    // It was away since this group was live last, and votes.
    answer(2, "voting", [0; 16]);
    says(2, "voting", [0; 16], SECOND.0);
    assert_eq!(owed()[1..], [false, true]);
    says(2, "voting", [0; 16], FIRST.0);
    assert_eq!(owed()[1..], [false, false]);
    assert_eq!(rig.driver.stands().iter().flatten().count(), 3);
    rig.driver.ask_for_stands();
    assert_eq!(rig.driver.stands().iter().flatten().count(), 1, "the others have not answered");
    rig.driver.log().shutdown();
}

/// The relay and the live group were lost together, and what it had reported was known to none.
#[test]
fn where_one_stands_is_said_with_what_another_one_reported_of_live() {
    let rig = in_recovery(&["a", "b", "c"]);
    assert_eq!(rig.driver.stand().told, None);
    rig.driver.told_of_live(1, HeardLive::default());
    assert_eq!(rig.driver.stand().told, None, "that one has not heard it");
    rig.driver.told_of_live(1, HeardLive { committed: 90, age_ms: 700, ..HeardLive::default() });
    let stand = rig.driver.stand();
    let told = stand.told.clone().unwrap();
    assert_eq!((told.by.as_str(), told.live.committed), ("b", 90));
    assert!(told.live.age_ms >= 700);
    assert_eq!(stand.live.committed, 0, "it did not hear that itself");
    let mut said = serde_json::to_value(&stand).unwrap();
    assert_eq!(serde_json::from_value::<MemberStand>(said.clone()).unwrap(), stand);
    said.as_object_mut().unwrap().remove("told");
    assert_eq!(serde_json::from_value::<MemberStand>(said).unwrap().told, None, "an older version");
    rig.driver.log().shutdown();
}

/// A fail-over of a live group that was killed behind a slow line said that what it lost had been
/// put within a second, as old as the newest batch to come; that had waited for 18 s.
#[test]
fn what_live_said_is_as_old_as_its_word_and_not_as_the_log_that_comes() {
    let rig = in_recovery(&["a", "b", "c"]);
    let heard = || rig.driver.role.state.lock().live;
    rig.driver.heard_live(Lsn(100), None);
    let first = rig.driver.live_heard();
    assert_eq!((first.age_most_ms, first.sync_age_ms), (None, None), "it may have waited");
    let at = SaidTime { latest: Time(7), earliest: Some(Time(3)) };
    rig.driver.heard_live(Lsn(900), Some((false, at)));
    rig.driver.heard_sync(LiveSync::Strict, at);
    rig.driver.heard_live(Lsn(200), None);
    assert_eq!(heard(), (Lsn(900), at), "that was sent before");
    let known = rig.driver.live_heard();
    assert!(known.age_most_ms >= Some(1) && known.sync_age_most_ms >= Some(1), "{known:?}");
    // It was committed since the other was said, so that is no older; it may be new.
    rig.driver.heard_live(Lsn(950), None);
    let (committed, news) = heard();
    assert_eq!((committed, news.earliest), (Lsn(950), at.earliest));
    assert!(news.latest > at.latest, "{news:?}");
    rig.driver.heard_sync(LiveSync::Strict, SaidTime { earliest: None, ..at });
    assert_eq!(rig.driver.live_heard().sync_age_most_ms, None, "of a version before stamps");
    rig.driver.log().shutdown();
}

#[test]
fn what_live_said_of_itself_counts_while_its_log_is_the_same() {
    let said = |is_still| Some((is_still, SaidTime::default()));
    let rig = in_recovery(&["a", "b", "c"]);
    let heard = || {
        let live = rig.driver.stand().live;
        (live.committed, live.is_still)
    };
    rig.driver.heard_live(Lsn(100), None);
    assert_eq!(heard(), (100, false));
    rig.driver.heard_live(Lsn(100), said(true));
    rig.driver.heard_live(Lsn(100), None);
    assert_eq!(heard(), (100, true), "a frame of before says nothing of it");
    rig.driver.heard_live(Lsn(120), None);
    assert_eq!(heard(), (120, false), "it goes on");
    rig.driver.heard_live(Lsn(120), said(true));
    rig.driver.heard_live(Lsn(110), None);
    assert_eq!(heard(), (120, true), "what was sent before it comes behind it");
    rig.driver.heard_live(Lsn(120), said(false));
    assert_eq!(heard(), (120, false), "it was unfenced");
    rig.driver.log().shutdown();
}

#[test]
fn a_group_of_one_is_promoted_and_its_leader_restarts_when_the_other_group_is_live() {
    let rig = in_recovery(&["a"]);
    rig.driver.tick();
    assert_eq!(rig.driver.committed_end(), Lsn::ZERO, "one in recovery does not stand");
    assert!(rig.driver.mark(order(FIRST), true));
    let first = rig.led();
    assert!(rig.driver.becomes(true, FIRST, first));
    assert_eq!((rig.driver.mode(), rig.kept().mode), (Mode::Voting, Mode::Voting));
    assert_eq!(rig.driver.last_before(FIRST), BatchPlace::default(), "all of it is of the first");
    assert!(!rig.driver.becomes(false, SECOND, first), "nothing further may be applied");
    assert_eq!((rig.driver.mode(), rig.kept().mode), (Mode::Recovery, Mode::Recovery));
    assert_eq!(rig.driver.promotion_order(), None, "another history has begun");
    assert!(rig.ended.try_recv().is_err(), "its last words are on their way");
    rig.driver.tick();
    assert_eq!(rig.ended.try_recv(), Ok(EndReason::ChangesPart));
    rig.driver.log().shutdown();
}

/// A chain: the first history, and these behind it, each from a position on.
fn chain(behind: &[(HistoryId, u64)]) -> Histories {
    let mut chain = Histories::default();
    for (id, fork) in std::iter::once(&(FIRST, 0)).chain(behind) {
        let history = History {
            id: *id,
            parent: chain.newest().map(|newest| newest.id),
            fork: Lsn(*fork),
            live: "WEST".into(),
            began: Time(1),
            cause: String::new(),
        };
        chain.push(history).unwrap();
    }
    chain
}

fn followed(rig: &Rig) -> Histories {
    crate::followed_histories::FollowedHistories::read(rig.folder.path()).unwrap().chain()
}

/// The first batch that the live group ships, once it is committed.
fn shipped(rig: &Rig) -> BatchPlace {
    let lsn = Lsn(rig.driver.log().tail().0.next_multiple_of(4_096));
    let batch = Batch { index: 1, term: 1, lsn, payload: Bytes::new() };
    let (place, batches) = (batch.place(), vec![batch]);
    let shipment = Shipment { term: 1, previous: BatchPlace::default(), batches };
    assert!(rig.driver.ship(shipment).is_ok());
    let is_committed = || rig.driver.committed_end() == place.end;
    assert!(rig.driver.wait_until(LONG, is_committed), "{:?}", rig.driver.group());
    place
}

/// A switch that is in doubt, and a fail-over of the group that ordered it: the batch that makes
/// this group live comes later than the word that another history went on from that.
#[test]
fn a_group_that_has_heard_that_its_history_is_over_does_not_become_live_in_it() {
    for (is_heard, mode) in [(true, Mode::Recovery), (false, Mode::Voting)] {
        let rig = in_recovery(&["a"]);
        rig.driver.histories_begun(std::iter::once(FIRST));
        assert!(rig.driver.follow(&chain(&[])).unwrap());
        let at = shipped(&rig);
        let over = chain(&[(SECOND, at.lsn.0), (HistoryId([3; 16]), at.end.0)]);
        if is_heard {
            assert!(rig.driver.follow(&over).unwrap());
        }
        assert!(rig.driver.becomes(true, SECOND, at), "what comes behind it is applied");
        assert_eq!((rig.driver.mode(), rig.kept().mode), (mode, mode));
        assert_eq!(rig.driver.follow(&over).unwrap(), is_heard, "what votes follows none");
        assert_eq!(followed(&rig), if is_heard { over } else { chain(&[]) });
        rig.driver.log().shutdown();
    }
}

/// A fail-over: the word of the live group's newer history came, and nothing of it.
#[test]
fn a_member_that_votes_or_is_promoted_says_only_histories_that_it_has_applied() {
    let rig = in_recovery(&["a"]);
    rig.driver.histories_begun(std::iter::once(FIRST));
    let fork = rig.driver.log().tail().0;
    let lost = chain(&[(SECOND, fork)]);
    assert!(rig.driver.follow(&lost).unwrap());
    let promoted = HistoryId([3; 16]);
    assert!(rig.driver.mark(order(promoted), true));
    let first = rig.led();
    assert!(rig.driver.last_end().0 > fork, "its log goes on there, and with other batches");
    assert_eq!(rig.driver.mode(), Mode::Promoting);
    assert_eq!(rig.driver.histories_said(chain(&[])), chain(&[]));
    let more = chain(&[(SECOND, fork), (HistoryId([4; 16]), fork)]);
    rig.driver.takes_histories(&Bytes::from(more.to_bytes())).unwrap();
    assert!(!rig.driver.follow(&more).unwrap());
    assert_eq!(followed(&rig), lost, "it takes nothing more of that log");
    assert!(rig.driver.becomes(true, promoted, first));
    assert_eq!(followed(&rig), chain(&[]), "what is not in its own log is forgotten");
    assert_eq!(rig.driver.histories_said(chain(&[])), chain(&[]));
    rig.driver.log().shutdown();
}

/// A replica goes on in one process through a fence, a fail-over and the switch back: it called the
/// live group fenced two histories later.
#[test]
fn what_was_heard_of_live_is_forgotten_when_another_history_begins() {
    let rig = in_recovery(&["a", "b", "c"]);
    let begins = |id: u8| rig.driver.histories_begun(std::iter::once(HistoryId([id; 16])));
    begins(1);
    let at = SaidTime { latest: Time(7), earliest: Some(Time(3)) };
    let hears = || {
        rig.driver.heard_live(Lsn(900), Some((true, at)));
        rig.driver.heard_sync(LiveSync::Strict, at);
        rig.driver.told_of_live(1, HeardLive { committed: 90, ..HeardLive::default() });
    };
    hears();
    begins(1);
    let stand = rig.driver.stand();
    assert!(stand.live.is_still && stand.told.is_some(), "the same history is said again");
    begins(2);
    let stand = rig.driver.stand();
    assert_eq!((stand.live.committed, stand.live.is_still, stand.told), (0, false, None));
    assert_eq!((stand.live.sync, stand.live.sync_age_ms), (LiveSync::Not, None));
    rig.driver.log().shutdown();
}
