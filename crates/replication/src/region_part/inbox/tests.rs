use std::sync::atomic::Ordering;

use towline_group::HardState;
use towline_link::{FrameBody, RegionConnection};
use towline_log::{Disk, MemoryDisk};
use towline_region::wire::KIND_POINT;
use towline_region::{CountedLog, Counts, RecoveryPoint, SyncGate, SyncPolicy};
use towline_types::{BatchPlace, Histories, History, HistoryId, Lsn, Time};

use super::*;
use crate::copy::CopySource;
use crate::driver::tests::{LONG, Serving, one_of};
use crate::region_agreement::tests::{agreement_of, configuration};
use crate::region_part::{OtherRole, RegionHost, RegionTerms};
use crate::region_position::{PositionSums, RegionPosition};
use crate::region_shipping::Shipping;

/// The queues of an instance that has applied nothing.
struct EmptyQueues;

impl RegionHost for EmptyQueues {
    fn histories(&self) -> Histories {
        Histories::default()
    }

    fn counted(&self) -> CountedLog {
        CountedLog::default()
    }

    fn begin_first_history(&self, _cause: &str) -> Result<(), String> {
        Err("it is not live".into())
    }

    fn percent_full(&self) -> u64 {
        0
    }

    fn copy_source(&self) -> Arc<dyn CopySource> {
        unreachable!("one in recovery gives no copy to the other region")
    }

    fn time_at(&self, _position: Lsn) -> Option<Time> {
        None
    }

    fn is_log_older_than(&self, _time: Time) -> Option<bool> {
        Some(false)
    }

    fn time_behind(&self, _position: Lsn) -> Option<Time> {
        None
    }

    fn has_changes_behind(&self, _position: Lsn) -> Result<bool, String> {
        Ok(false)
    }

    fn has_record(&self, _history: &History) -> bool {
        false
    }

    fn drawn(&self) -> u64 {
        7
    }

    fn wall(&self) -> Time {
        Time(5)
    }
}

struct TestLink(u64);

impl RegionConnection for TestLink {
    fn id(&self) -> LinkId {
        LinkId(self.0)
    }

    fn send(&self, _kind: u8, _body: FrameBody) -> bool {
        true
    }

    fn send_newest(&self, kind: u8, body: FrameBody) -> bool {
        self.send(kind, body)
    }

    fn queued_bytes(&self) -> usize {
        0
    }

    fn resume(&self) {}

    fn close(&self, _why: &str) {}
}

struct Rig {
    part: Arc<RegionPart>,
    _folder: tempfile::TempDir,
}

/// The only instance of group `east`, which follows group `west` and has nothing of its log yet.
fn in_recovery() -> Rig {
    in_mode(Mode::Recovery)
}

fn in_mode(mode: Mode) -> Rig {
    let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
    let folder = tempfile::tempdir().unwrap();
    let hard_state = HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
    let (driver, _ends) = one_of(&["a"], hard_state, &disk, folder.path());
    let config = configuration("east", "west", "");
    let group = config.group.clone().unwrap();
    let recovery = group.recovery.clone().unwrap();
    let queue_manager = "QM1".to_owned();
    let terms = RegionTerms { queue_manager, config, group, recovery, extent_bytes: 1 << 26 };
    let part = RegionPart::new(driver, Arc::new(EmptyQueues), terms).unwrap();
    Rig { part, _folder: folder }
}

impl Rig {
    /// What an instance of group `west` says that is live or not, with a log of this one's id.
    fn said(&self, is_live: Option<bool>) -> RegionHello {
        let mut agreement = agreement_of(&configuration("west", "east", ""));
        agreement.is_live = is_live;
        let own = self.part.said();
        let mut histories = Histories::default();
        let first = History {
            id: HistoryId([1; 16]),
            parent: None,
            fork: Lsn::ZERO,
            live: "west".into(),
            began: Time(1),
            cause: String::new(),
        };
        histories.push(first).unwrap();
        let said = RegionSaid { agreement, histories, point: None, ..own };
        let (instance, build) = ("b".into(), "0.1.0".into());
        RegionHello { instance, build, version: 1, sections: said.encode() }
    }

    fn greets(&self, is_live: Option<bool>) -> Result<(), String> {
        self.part.greets(true, &self.said(is_live))
    }

    fn opens(&self, link: u64) {
        self.greets(Some(true)).unwrap();
        self.part.opened(true, &self.said(Some(true)), Arc::new(TestLink(link)));
    }

    /// As the status has it: the role of the other group, and what is wrong.
    fn seen(&self) -> (OtherRole, Option<String>) {
        let view = self.part.view();
        (view.other_role, view.partition.or(view.trouble))
    }
}

/// Behind a fail-over an instance of the live group that was late said that it is being promoted,
/// while another one shipped; nothing was said after that.
#[test]
fn what_one_instance_says_that_is_not_live_changes_nothing_while_another_one_ships() {
    let rig = in_recovery();
    rig.greets(None).unwrap_err();
    let (role, why) = rig.seen();
    assert_eq!(role, OtherRole::PendingLive);
    assert!(why.is_some_and(|why| why.contains("is not live")));
    rig.opens(1);
    assert_eq!(rig.seen(), (OtherRole::Live, None), "a link is worth more than what was before");
    for late in [None, Some(false)] {
        rig.greets(late).unwrap_err();
        assert_eq!(rig.seen(), (OtherRole::Live, None), "{late:?}");
    }
    rig.part.closed(LinkId(1), "it ended");
    rig.greets(Some(false)).unwrap_err();
    assert_eq!(rig.seen().0, OtherRole::Recovery, "there is no link any more");
    rig.opens(2);
    assert_eq!(rig.seen(), (OtherRole::Live, None));
}

/// They waited for the next look of the thread that ships, up to 200 ms with each put.
#[test]
fn replies_go_when_the_other_region_reports_and_not_at_the_next_look() {
    const NOT_TOLD: u64 = 7;
    let rig = in_mode(Mode::Voting);
    let driver = &rig.part.driver;
    let leads = || {
        driver.look_again();
        driver.committed_end() > Lsn::ZERO
    };
    assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
    let served = Arc::new(Serving::default());
    served.1.store(NOT_TOLD, Ordering::SeqCst);
    driver.set_active(served.clone());
    let nothing = (Counts::default(), BatchPlace::default());
    let shipping = Shipping::new(Arc::clone(driver) as _, 1 << 30, nothing, driver.now());
    let wait = Duration::from_secs(5);
    shipping.waits_by(Some(SyncGate::new(SyncPolicy::Strict, wait, driver.now())));
    let empty = RegionPosition { blank: true, ..RegionPosition::default() };
    let at = (&empty, PositionSums::default(), None);
    shipping.opened(Arc::new(TestLink(1)), at, driver.now()).unwrap();
    rig.part.shipping.lock().shipping = Some(Arc::new(shipping));
    let point = RecoveryPoint::default().encode();
    rig.part.frame(LinkId(1), KIND_POINT, point.into(), FrameCost::default()).unwrap();
    assert_eq!(served.1.load(Ordering::SeqCst), 0, "no thread looked here");
    driver.log().shutdown();
}
