use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use towline_group::HardState;
use towline_link::{Greeting, Standing, StartsReport};
use towline_log::{Disk, MemoryDisk, Space};
use towline_types::{FORMAT_LEVEL, FORMAT_LEVEL_OF_REGIONS, Lsn};

use super::super::tests::one_of;
use super::*;
use crate::active_instance::ActiveInstance;

/// Answers each attempt to raise the level as the test wants, and keeps count.
struct Raising {
    next: Mutex<LevelRaise>,
    attempts: AtomicU64,
    /// To which level the last one was.
    wanted: AtomicU8,
}

impl ActiveInstance for Raising {
    fn committed(&self, _upto: Lsn) {}

    fn space(&self, _space: Space) {}

    fn written(&self) {}

    fn caught_up(&self) {}

    fn close_clients(&self) {}

    fn fence(&self, _why: &str) {}

    fn lift_fence(&self) {}

    fn is_still(&self) -> bool {
        true
    }

    fn runs_pending(&self) -> usize {
        0
    }

    fn raise_format_level(&self, to: u8) -> LevelRaise {
        self.wanted.store(to, Ordering::SeqCst);
        self.attempts.fetch_add(1, Ordering::SeqCst);
        *self.next.lock()
    }

    fn hold_still(&self, act: &mut dyn FnMut() -> bool) -> bool {
        act()
    }
}

/// The instance 'a' of three, which is active, and the folder of its hard state.
struct Rig {
    driver: Arc<Driver>,
    active: Arc<Raising>,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
        let folder = tempfile::tempdir().unwrap();
        let hard_state = HardState { may_vote: true, knows_term: true, ..HardState::default() };
        let (driver, _told) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
        let next = Mutex::new(LevelRaise::OnItsWay);
        let active =
            Arc::new(Raising { next, attempts: AtomicU64::new(0), wanted: AtomicU8::new(0) });
        driver.set_active(active.clone());
        Rig { driver, active, _folder: folder }
    }

    fn connects(&self, peer: Peer, read: u8) {
        let said = FormatLevels { read, ..FormatLevels::default() };
        [true, false]
            .into_iter()
            .for_each(|incoming| self.driver.reads(peer, incoming, Some(said)));
    }

    /// Looks whether it can be raised; how often that was tried, and what hellos say then.
    fn looks(&self) -> (u64, u8) {
        self.driver.raise_level_if_all_read();
        (self.active.attempts.load(Ordering::SeqCst), self.driver.levels().in_force)
    }

    fn greets(&self, peer: Peer, read: u8) -> Result<(), String> {
        self.driver.greets(peer, &greeting(read))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.driver.log().shutdown();
    }
}

fn greeting(read: u8) -> Greeting {
    Greeting {
        version: 3,
        build: Arc::from("0.1.0"),
        standing: Standing::default(),
        levels: FormatLevels { read, ..FormatLevels::default() },
        differs: Arc::from(""),
        known: StartsReport::default(),
    }
}

fn batch(level: u8) -> Batch {
    Batch { index: 1, term: 1, lsn: Lsn(0), payload: vec![level].into() }
}

#[test]
fn the_format_level_is_raised_once_all_others_are_connected_and_read_it() {
    let rig = Rig::new();
    assert_eq!(rig.driver.level_waits_for(), ["b", "c"]);
    rig.connects(1, FORMAT_LEVEL_UNASKED);
    rig.connects(2, FORMAT_LEVEL_FIRST);
    assert_eq!(rig.looks(), (0, FORMAT_LEVEL_FIRST));
    assert_eq!(rig.driver.level_waits_for(), ["c"]);
    // It was updated.
    rig.connects(2, FORMAT_LEVEL_UNASKED);
    assert_eq!(rig.looks(), (1, FORMAT_LEVEL_UNASKED));
    *rig.active.next.lock() = LevelRaise::InForce;
    assert_eq!(
        (rig.looks(), rig.looks()),
        ((2, FORMAT_LEVEL_UNASKED), (2, FORMAT_LEVEL_UNASKED)),
        "once"
    );
    assert!(rig.driver.level_waits_for().is_empty());
}

#[test]
fn what_an_instance_reads_counts_while_both_its_connections_stand() {
    for incoming in [true, false] {
        let rig = Rig::new();
        [1, 2].into_iter().for_each(|peer| rig.connects(peer, FORMAT_LEVEL_UNASKED));
        rig.driver.reads(2, incoming, None);
        assert_eq!(rig.looks(), (0, FORMAT_LEVEL_FIRST), "incoming: {incoming}");
        assert_eq!(rig.driver.level_waits_for(), ["c"]);
    }
}

#[test]
fn a_hello_that_is_refused_says_nothing_of_what_its_instance_reads() {
    let rig = Rig::new();
    rig.connects(1, FORMAT_LEVEL_UNASKED);
    // Whatever comes of it: nothing counts before the connection stands.
    rig.greets(2, FORMAT_LEVEL_UNASKED).unwrap();
    assert_eq!(rig.looks(), (0, FORMAT_LEVEL_FIRST));
}

#[test]
fn a_log_that_refuses_the_level_is_asked_again_if_all_still_read_it() {
    let rig = Rig::new();
    [1, 2].into_iter().for_each(|peer| rig.connects(peer, FORMAT_LEVEL_UNASKED));
    *rig.active.next.lock() = LevelRaise::Refused;
    assert_eq!(rig.looks(), (1, FORMAT_LEVEL_FIRST), "the log does not have it");
    assert_eq!(rig.looks(), (2, FORMAT_LEVEL_FIRST));
    // One of them went back to an earlier version.
    rig.connects(2, FORMAT_LEVEL_FIRST);
    *rig.active.next.lock() = LevelRaise::OnItsWay;
    assert_eq!(rig.looks(), (2, FORMAT_LEVEL_FIRST));
    rig.connects(2, FORMAT_LEVEL_UNASKED);
    assert_eq!(rig.looks(), (3, FORMAT_LEVEL_UNASKED));
}

#[test]
fn while_a_level_is_announced_no_instance_is_accepted_that_does_not_read_it() {
    let rig = Rig::new();
    [1, 2].into_iter().for_each(|peer| rig.connects(peer, FORMAT_LEVEL_UNASKED));
    assert!(rig.driver.levels.announce(0, FORMAT_LEVEL_UNASKED));
    assert_eq!(
        (rig.driver.stored_level(), rig.driver.levels().in_force),
        (1, FORMAT_LEVEL_UNASKED)
    );
    let why = rig.greets(2, FORMAT_LEVEL_FIRST).unwrap_err();
    assert_eq!(why, "the log has, or gets, format level 2, and 'c' does not read that");
    rig.greets(2, FORMAT_LEVEL_UNASKED).unwrap();
}

#[test]
fn a_level_in_a_stored_batch_keeps_those_out_that_do_not_read_it_before_it_is_applied() {
    let rig = Rig::new();
    rig.connects(1, FORMAT_LEVEL_UNASKED);
    rig.connects(2, FORMAT_LEVEL_FIRST);
    rig.driver.note_levels_of(&[batch(FORMAT_LEVEL_FIRST)]);
    rig.greets(2, FORMAT_LEVEL_FIRST).unwrap();
    rig.driver.may_be_heard(2).unwrap();
    rig.driver.note_levels_of(&[batch(FORMAT_LEVEL_UNASKED)]);
    assert_eq!(rig.driver.levels().in_force, FORMAT_LEVEL_UNASKED);
    rig.greets(2, FORMAT_LEVEL_FIRST).unwrap_err();
    // It was connected before.
    rig.driver.may_be_heard(2).unwrap_err();
    assert!(rig.driver.levels.is_excluded(2) && !rig.driver.levels.is_excluded(1));
    rig.connects(2, FORMAT_LEVEL_UNASKED);
    rig.driver.may_be_heard(2).unwrap();
}

#[test]
fn the_level_of_regions_is_wanted_when_it_is_asked_for_and_not_before() {
    let rig = Rig::new();
    [1, 2].into_iter().for_each(|peer| rig.connects(peer, FORMAT_LEVEL));
    *rig.active.next.lock() = LevelRaise::InForce;
    assert_eq!(rig.looks(), (1, FORMAT_LEVEL_UNASKED));
    assert_eq!(rig.looks(), (1, FORMAT_LEVEL_UNASKED), "it is in force");
    rig.driver.wants_level(FORMAT_LEVEL_OF_REGIONS);
    rig.connects(2, FORMAT_LEVEL_UNASKED);
    assert_eq!(rig.looks(), (1, FORMAT_LEVEL_UNASKED));
    assert_eq!(rig.driver.level_waits_for(), ["c"], "it does not read that");
    rig.driver.may_be_heard(2).unwrap();
    rig.connects(2, FORMAT_LEVEL);
    rig.driver.wants_level(FORMAT_LEVEL_UNASKED);
    assert_eq!(rig.looks(), (2, FORMAT_LEVEL_OF_REGIONS));
    assert_eq!(rig.active.wanted.load(Ordering::SeqCst), FORMAT_LEVEL_OF_REGIONS);
    assert_eq!(rig.looks(), (2, FORMAT_LEVEL_OF_REGIONS));
    rig.connects(2, FORMAT_LEVEL_UNASKED);
    rig.driver.may_be_heard(2).unwrap_err();
}
