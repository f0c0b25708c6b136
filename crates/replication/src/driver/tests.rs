use std::time::Instant;
use towline_os::sync::mpsc::{Receiver, channel};

use towline_admin::status::ReplyWaitsStatus;
use towline_group::{Options, RecoveredLog, Role, Start, Witness};
use towline_log::{Disk, EXTENT_BYTES_MIN, Listener, LogId, MemoryDisk, Recovery, Space, Urgency};

use super::*;
use crate::membership::Membership;
use towline_link::{Greeting, StartsReport};
use towline_types::{BatchPlace, FORMAT_LEVEL_FIRST, FormatLevels, LevelRaise};

/// Longer than any of this takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// As a version made it that did not say it.
pub(super) const LOG: LogId = LogId(7);

/// Listens to a log on which no thread waits.
struct Deaf;

impl Listener for Deaf {
    fn durable(&self, _upto: Lsn) {}

    fn failed(&self, error: &LogError) {
        panic!("{error}");
    }

    fn space(&self, _space: Space) {}
}

impl Replicator for Deaf {
    fn leaves(&self, _batch: Batch) {}
}

fn recovered(disk: &Arc<dyn Disk>) -> Recovery {
    let options = towline_log::Options {
        log_bytes_max: 5 * EXTENT_BYTES_MIN,
        reserve_bytes: EXTENT_BYTES_MIN,
        ..towline_log::Options::small()
    };
    let mut recovery = Recovery::open(Arc::clone(disk), options, LOG).unwrap();
    recovery.keep_places();
    recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
    recovery
}

/// A log, as its leader of term 1 has it.
pub(crate) fn led(disk: &Arc<dyn Disk>) -> Log {
    let log = recovered(disk).start_following(Arc::new(Deaf), Arc::new(Deaf)).unwrap();
    log.lead(1).unwrap();
    log
}

/// Writes to a log, as its leader of term 1, until not even the smallest record fits.
pub(super) fn fill(disk: &Arc<dyn Disk>) {
    let log = led(disk);
    for bytes in [60_000, 1] {
        loop {
            let mut appender = log.appender();
            appender.record(bytes, |memory| memory.resize(memory.len() + bytes, 7));
            match appender.commit(Urgency::Forced) {
                Ok(_) => {}
                Err(LogError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    log.shutdown();
}

/// A member that is a group by itself, so that it is elected whenever it asks; and how it ends.
fn alone(disk: &Arc<dyn Disk>, folder: &std::path::Path) -> (Arc<Driver>, Receiver<EndReason>) {
    let hard_state = HardState { may_vote: true, ..HardState::default() };
    one_of(&["a"], hard_state, disk, folder)
}

/// The first of these members.
pub(crate) fn one_of(
    names: &[&str],
    hard_state: HardState,
    disk: &Arc<dyn Disk>,
    folder: &std::path::Path,
) -> (Arc<Driver>, Receiver<EndReason>) {
    let recovery = recovered(disk);
    let known = recovery.places();
    let (base, places) = (known.base, known.batches);
    let options = Options {
        id: MemberId(1),
        voters: (0..names.len()).map(member_of).collect(),
        tick: Duration::from_millis(10),
        heartbeat_interval: Duration::from_millis(50),
        heartbeat_timeout: Duration::from_millis(500),
        seed: 1,
        meets_first: false,
        lacks_batches: false,
    };
    let began = Instant::now();
    let now = move || Time(1_000_000) + began.elapsed();
    let member = Member::new(options, hard_state, RecoveredLog { base, places, applied: 0 }, now());
    let (orders, _) = channel();
    let surroundings = Surroundings {
        now: Box::new(now),
        // In tests a payload begins with it.
        level_of: Box::new(|payload| payload.first().copied().unwrap_or(FORMAT_LEVEL_FIRST)),
        log_failed_status: 70,
        heartbeat: Heartbeat {
            interval: Duration::from_millis(50),
            timeout: Duration::from_millis(500),
        },
        made_ids: MadeIds { now: LogId(8), before: LOG },
    };
    let hard_state_file = HardStateFile::of(folder);
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let driver = Driver::new(member, hard_state_file, surroundings, names, orders);
    let driver = Arc::new(driver.unwrap());
    let log = recovery.start_following(driver.clone(), driver.clone()).unwrap();
    driver.set_log(log);
    let (tell, told) = channel();
    driver.set_on_end(move |why| tell.send(why).unwrap());
    (driver, told)
}

fn said_to_be(last_index: u64, term: u64) -> Standing {
    Standing { blank: false, last_index, last_term: 1, term, log: 0 }
}

#[test]
fn an_instance_without_a_hard_state_waits_for_both_others_and_keeps_the_term_before_it_tells_it() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, _) = one_of(&["a", "b", "c"], HardState::default(), &disk, folder.path());
    let silent = || driver.why_silent(&driver.group().unheard);
    assert!(silent().ends_with("heard from 'b' and 'c'"), "{}", silent());
    driver.opened(1, said_to_be(4, 11));
    assert!(silent().ends_with("heard from 'c'"), "{}", silent());
    assert_eq!(
        (driver.standing().term, HardStateFile::of(folder.path()).read().unwrap()),
        (0, None)
    );
    // Its disk does not answer for a moment, and the member hears nothing meanwhile.
    driver.core.lock().lifecycle.stalls(true);
    driver.opened(2, said_to_be(4, 12));
    assert!(!driver.group().unheard.is_empty());
    driver.go_on();
    assert_eq!((silent(), driver.standing().term), (String::new(), 12));
    let hard_state = HardStateFile::of(folder.path()).read().unwrap().unwrap();
    assert_eq!((hard_state.term, hard_state.knows_term, hard_state.may_vote), (12, true, false));
    driver.log().shutdown();
}

/// What a peer says of starts, with what it noted of the first member.
fn greeting(start: u64, noted_of_us: u64, witness: Witness) -> Greeting {
    let noted = match noted_of_us {
        0 => vec![(MemberId(3), start_of(30))],
        nonce => vec![(MemberId(1), Start { number: 7, nonce })],
    };
    let known = StartsReport { start: start_of(start), noted, witness };
    let (build, differs) = (Arc::from("0.1.0"), Arc::from(""));
    let levels = FormatLevels::default();
    Greeting { version: 3, build, standing: said_to_be(4, 11), levels, differs, known }
}

fn start_of(nonce: u64) -> Start {
    Start { number: 1, nonce }
}

/// One of three that voted in term 11, at the start 5 of its folder.
fn one_that_starts(folder: &std::path::Path) -> (Arc<Driver>, Receiver<EndReason>) {
    let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
    let hard_state =
        HardState { may_vote: true, knows_term: true, term: 11, ..HardState::default() };
    let membership = Membership { member: MemberId(1), members_count: 3 };
    HardStateFile::of(folder).write_start(&hard_state, Default::default(), membership, 5).unwrap();
    one_of(&["a", "b", "c"], hard_state, &disk, folder)
}

#[test]
fn one_of_which_a_peer_noted_another_start_forgets_durably_and_re_executes_once() {
    let folder = tempfile::tempdir().unwrap();
    let (driver, on_end) = one_that_starts(folder.path());
    let hard_state_file = HardStateFile::of(folder.path());
    let fine = Witness { term: 11, ..Witness::default() };
    driver.greets(1, &greeting(20, 5, fine)).unwrap();
    driver.greets(2, &greeting(30, 0, fine)).unwrap();
    assert!(hard_state_file.read().unwrap().unwrap().may_vote && on_end.try_recv().is_err());
    driver.greets(1, &greeting(20, 6, fine)).unwrap_err();
    assert_eq!(on_end.try_recv(), Ok(EndReason::PutBack));
    let hard_state = hard_state_file.read().unwrap().unwrap();
    assert_eq!(
        (hard_state.term, hard_state.may_vote, hard_state.has_newest_term()),
        (11, false, false)
    );
    let mut starts = hard_state_file.starts().unwrap();
    assert!(starts.is_put_back() && driver.is_put_back());
    starts.begin(8);
    let noted = greeting(20, 6, fine).known.noted;
    assert!(!starts.hear(MemberId(1), &noted).of_unknown_start, "the next start can be declared");
    driver.greets(1, &greeting(20, 6, fine)).unwrap_err();
    assert!(on_end.try_recv().is_err(), "told once");
    driver.log().shutdown();
}

#[test]
fn one_that_a_peer_heard_promise_more_forgets_it_and_re_executes() {
    for (term, index, is_fine) in [(11, 0, true), (12, 0, false), (11, 9, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (driver, on_end) = one_that_starts(folder.path());
        let greeted = driver.greets(1, &greeting(20, 5, Witness { term, index, index_term: 4 }));
        assert_eq!((greeted.is_ok(), on_end.try_recv().is_err()), (is_fine, is_fine));
        assert_eq!(HardStateFile::of(folder.path()).read().unwrap().unwrap().may_vote, is_fine);
        driver.log().shutdown();
    }
}

#[test]
fn what_a_peer_declares_is_on_the_disk_before_anything_else_of_it_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let (driver, _over) = one_that_starts(folder.path());
    driver.greets(1, &greeting(20, 5, Witness::default())).unwrap();
    driver.declared(1, start_of(20));
    let hard_state_file = HardStateFile::of(folder.path());
    let noted = hard_state_file.starts().unwrap().noted().to_vec();
    assert!(noted.contains(&(MemberId(2), start_of(20))), "{noted:?}");
    assert_eq!(hard_state_file.read().unwrap().unwrap().term, 11, "and nothing else is changed");
    driver.log().shutdown();
}

#[test]
fn what_a_third_instance_said_of_a_start_is_on_the_disk_when_that_start_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let (driver, _over) = one_that_starts(folder.path());
    // Kept now and then, and not yet.
    driver.greets(1, &greeting(20, 0, Witness::default())).unwrap();
    driver.declared(2, start_of(30));
    let noted = HardStateFile::of(folder.path()).starts().unwrap().noted().to_vec();
    assert!(noted.contains(&(MemberId(3), start_of(30))), "{noted:?}");
    driver.log().shutdown();
}

#[test]
fn a_second_process_of_one_name_is_refused_while_the_first_one_is_connected_either_way() {
    let folder = tempfile::tempdir().unwrap();
    let (driver, _over) = one_that_starts(folder.path());
    let greets = |start| driver.greets(1, &greeting(start, 5, Witness::default()));
    for incoming in [false, true] {
        greets(20).unwrap();
        driver.connected(1, incoming, Some(start_of(20)));
        greets(20).unwrap();
        let why = greets(21).unwrap_err();
        assert!(why.starts_with("another process that is instance 'b' is connected"), "{why}");
        driver.connected(1, incoming, None);
        greets(21).unwrap();
    }
    // Of a version that says nothing of starts.
    driver.connected(1, true, Some(Start::default()));
    greets(22).unwrap();
    driver.log().shutdown();
}

#[test]
fn a_new_group_forms_with_the_hellos_of_all_and_no_operator() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, _) = one_of(&["a", "b", "c"], HardState::default(), &disk, folder.path());
    let blank = Standing { blank: true, ..Standing::default() };
    driver.opened(1, blank);
    assert!(driver.standing().blank);
    driver.opened(2, blank);
    assert!(!driver.standing().blank, "it votes");
    let hard_state = HardStateFile::of(folder.path()).read().unwrap().unwrap();
    assert!(hard_state.may_vote && hard_state.knows_term);
    driver.log().shutdown();
}

#[test]
fn one_that_is_elected_with_free_space_in_its_log_leads() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, on_end) = alone(&disk, folder.path());
    let leads = || {
        driver.look_again();
        driver.wait(u64::MAX, Duration::ZERO).leads_from == Some(1) && driver.committed_end().0 > 0
    };
    assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
    assert!(on_end.try_recv().is_err());
    driver.log().shutdown();
}

#[test]
fn one_that_is_elected_without_free_space_in_its_log_re_executes_and_does_nothing_more() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    fill(&disk);
    let (driver, on_end) = alone(&disk, folder.path());
    let tail = driver.log().tail();
    let mut ended = None;
    let ends = || {
        driver.look_again();
        ended = on_end.try_recv().ok();
        ended.is_some()
    };
    assert!(driver.wait_until(LONG, ends), "{:?}", driver.group());
    assert_eq!(ended, Some(EndReason::LogFull));
    // It was elected, and nothing came of it; what it hears does not reach its member any more.
    assert_eq!(driver.group().role, Role::Leader);
    assert!(!driver.group().is_in_sync, "it learns of nothing any more");
    let term = driver.group().term;
    for _ in 0..100 {
        driver.tick();
        driver.look_again();
    }
    assert_eq!((driver.group().term, driver.log().tail()), (term, tail));
    assert_eq!(driver.wait(u64::MAX, Duration::ZERO).leads_from, None);
    assert!(on_end.try_recv().is_err(), "told once");
    driver.log().shutdown();
}

/// A leader of this term shows itself to the first member; bytes as `towline_group` draws them.
fn heartbeat(term: u64) -> Input {
    const HEARTBEAT: u8 = 8;
    let mut bytes = vec![HEARTBEAT, 0, 0, 0, 0, 0, 0, 0];
    for number in [2, 1, term, 0, 0, 0, 0, 0, 0, 0] {
        bytes.extend_from_slice(&u64::to_le_bytes(number));
    }
    Input::Message(Message::decode(&bytes.into()).unwrap())
}

#[test]
fn a_newer_term_heard_while_a_copy_comes_costs_no_vote_and_none_is_heard_behind_the_hand_in() {
    for (copied_in, votes) in [(7, true), (6, false)] {
        let (disk, folder) =
            (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
        let hard_state =
            HardState { term: 5, may_vote: true, knows_term: true, ..HardState::default() };
        let (driver, _told) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
        let file = || HardStateFile::of(folder.path()).read().unwrap().unwrap();
        driver.core.lock().lifecycle.ends(EndReason::NeedsCopy(1));
        driver.step(heartbeat(7));
        assert_eq!((file().term, file().may_vote), (7, true), "its own log is there");
        let copy = BatchPlace { index: 3, term: copied_in, ..BatchPlace::default() };
        let mut handed_in = None;
        let done = driver.replaced_by(copy, |hard_state| {
            handed_in = Some(*hard_state);
            Ok(())
        });
        let handed_in = handed_in.unwrap();
        assert!(done.is_ok() && handed_in.term == 7 && handed_in.may_vote == votes);
        driver.step(heartbeat(9));
        assert_eq!(file().term, 7, "the next process hears it");
        assert!(driver.replaced_by(copy, |_| Ok(())).is_err(), "once");
        driver.log().shutdown();
    }
}

/// An append of member 2, leader of this term, behind batch `index`; bytes as `towline_group` draws
/// them.
pub(super) fn append(term: u64, behind: (u64, u64), batches: &[Batch]) -> bytes::Bytes {
    const APPEND: u8 = 3;
    let mut bytes = vec![APPEND, 0, 0, 0];
    bytes.extend_from_slice(&u32::try_from(batches.len()).unwrap().to_le_bytes());
    let (index, of_term) = behind;
    for number in [2, 1, term, of_term, index, 0, 0, 0, 0, 0] {
        bytes.extend_from_slice(&u64::to_le_bytes(number));
    }
    for batch in batches {
        for number in [batch.index, batch.term, batch.lsn.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&u32::try_from(batch.payload.len()).unwrap().to_le_bytes());
    }
    batches.iter().for_each(|batch| bytes.extend_from_slice(&batch.payload));
    bytes.into()
}

/// A certificate of the group is no right to end another instance.
#[test]
fn a_batch_of_a_peer_that_does_not_fit_is_refused_and_the_next_one_that_fits_is_taken() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let hard_state =
        HardState { term: 1, may_vote: true, knows_term: true, ..HardState::default() };
    let (driver, on_end) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
    let hear = |behind, batches: &[Batch]| {
        driver.hear(Message::decode(&append(1, behind, batches)).unwrap())
    };
    let batch = |index, lsn| Batch { index, term: 1, lsn: Lsn(lsn), payload: bytes::Bytes::new() };
    let empty = driver.log().tail();
    let first = empty.0.next_multiple_of(4_096);
    let wrong = [
        ("between two blocks", vec![batch(1, first + 7)]),
        ("a block further", vec![batch(1, first + 4_096)]),
        ("an extent further", vec![batch(1, first + 9 * EXTENT_BYTES_MIN)]),
        ("over the one before", vec![batch(1, first), batch(2, first)]),
        ("no records", vec![Batch { payload: vec![0xff; 40].into(), ..batch(1, first) }]),
    ];
    for (what, batches) in &wrong {
        let why = hear((0, 0), batches).unwrap_err();
        assert!(why.starts_with("it sent a batch that does not fit: batch "), "{what}: {why}");
        assert_eq!(driver.log().tail(), empty, "{what}: none of it was taken");
    }
    hear((0, 0), &[batch(1, first)]).unwrap();
    let end = batch(1, first).end();
    assert_eq!(driver.log().tail(), end);
    // What is here already is taken as it is, or not at all.
    let next = end.0.next_multiple_of(4_096);
    hear((0, 0), &[batch(1, first), batch(2, next)]).unwrap();
    let why = hear((0, 0), &[batch(1, first + 4_096), batch(2, next)]).unwrap_err();
    assert!(why.contains("a batch of it lies elsewhere in this log"), "{why}");
    assert_eq!(driver.log().tail(), batch(2, next).end());
    assert!(on_end.try_recv().is_err(), "the instance goes on");
    driver.log().shutdown();
}

/// A frame that was read when the connections were closed is heard behind that.
#[test]
fn what_comes_while_the_process_ends_in_order_is_not_taken_and_does_not_end_it_otherwise() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let hard_state =
        HardState { term: 1, may_vote: true, knows_term: true, ..HardState::default() };
    let (driver, on_end) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
    let empty = driver.log().tail();
    driver.end();
    driver.shutdown();
    let lsn = Lsn(empty.0.next_multiple_of(4_096));
    let batch = Batch { index: 1, term: 1, lsn, payload: bytes::Bytes::new() };
    driver.hear(Message::decode(&append(1, (0, 0), &[batch])).unwrap()).unwrap();
    assert_eq!(driver.log().tail(), empty);
    assert!(on_end.try_recv().is_err());
}

#[test]
fn a_copy_of_a_newer_leader_takes_part_in_its_term_and_has_no_vote_left_there() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let hard_state =
        HardState { term: 5, may_vote: true, knows_term: true, ..HardState::default() };
    let (driver, _told) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
    driver.core.lock().lifecycle.ends(EndReason::NeedsCopy(1));
    let copy = BatchPlace { index: 3, term: 9, ..BatchPlace::default() };
    let mut handed_in = None;
    let take = |hard_state: &HardState| {
        handed_in = Some(*hard_state);
        Ok(())
    };
    driver.replaced_by(copy, take).unwrap();
    let handed_in = handed_in.unwrap();
    assert_eq!((handed_in.term, handed_in.vote), (9, Some(MemberId::NONE_OF_THEM)));
    driver.log().shutdown();
}

/// Notes how far it hears that the group has committed, and up to where replies may go that wait
/// for the other region.
#[derive(Default)]
pub(crate) struct Serving(AtomicU64, pub(crate) AtomicU64);

impl ActiveInstance for Serving {
    fn committed(&self, upto: Lsn) {
        self.0.fetch_max(upto.0, Ordering::SeqCst);
    }

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

    fn raise_format_level(&self, _to: u8) -> LevelRaise {
        LevelRaise::Refused
    }

    fn region_has(&self, upto: Lsn) {
        self.1.store(upto.0, Ordering::SeqCst);
    }

    fn region_news(&self) {}

    fn answered_alone_upto(&self) -> Option<Lsn> {
        None
    }

    fn reply_waits(&self) -> ReplyWaitsStatus {
        ReplyWaitsStatus::default()
    }

    fn hold_still(&self, act: &mut dyn FnMut() -> bool) -> bool {
        act()
    }
}

#[test]
fn what_only_the_own_disk_has_is_not_reported_as_committed() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    fill(&disk);
    let hard_state =
        HardState { term: 1, may_vote: true, knows_term: true, ..HardState::default() };
    let (driver, _told) = one_of(&["a", "b", "c"], hard_state, &disk, folder.path());
    let serving = Arc::new(Serving::default());
    driver.set_active(serving.clone());
    driver.tick();
    driver.look_again();
    assert!(driver.log().durable() > driver.committed_end());
    assert_eq!(serving.0.load(Ordering::SeqCst), driver.committed_end().0);
    driver.log().shutdown();
}

/// A replica that needs what is gone gets a copy only if its leader knows that it is gone. A hold
/// for it may begin where the log began once.
#[test]
fn positions_in_extents_that_are_gone_are_forgotten_whatever_is_held() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, _told) = alone(&disk, folder.path());
    let log = driver.log();
    let committed = |upto: Lsn| {
        let leads = || {
            driver.look_again();
            driver.committed_end() >= upto
        };
        assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
    };
    committed(Lsn(1));
    while log.durable().0 < 3 * log.extent_bytes() {
        let mut appender = log.appender();
        appender.record(60_000, |memory| memory.resize(memory.len() + 60_000, 7));
        committed(appender.commit(Urgency::Forced).unwrap());
    }
    let held = log.hold(Lsn::ZERO);
    driver.forget(driver.committed_end());
    let base = driver.group().base;
    assert!(base.end < Lsn(log.extent_bytes()), "they are there");
    drop(held);
    log.write_image(log.mark_at(log.durable()).unwrap(), b"all of it").unwrap();
    log.reclaim(log.durable()).unwrap();
    let first = log.first_held();
    assert!(first >= Lsn(2 * log.extent_bytes()), "{first}");
    let _held = log.hold(Lsn::ZERO);
    driver.forget(first);
    assert!(driver.group().base.index > base.index);
    log.shutdown();
}

#[test]
fn positions_that_a_copy_under_way_needs_are_not_forgotten() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, _told) = alone(&disk, folder.path());
    let leads = || {
        driver.look_again();
        driver.committed_end().0 > 0
    };
    assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
    let base = driver.group().base;
    let held = driver.log().hold(Lsn::ZERO);
    driver.forget(driver.committed_end());
    assert_eq!(driver.group().base, base);
    drop(held);
    driver.forget(driver.committed_end());
    assert_ne!(driver.group().base, base, "and then they are");
    driver.log().shutdown();
}
