use std::sync::mpsc::{Receiver, channel};

use towline_group::{Held, Options, Role};
use towline_log::{Disk, EXTENT_BYTES_MIN, LogId, MemoryDisk, Recovery, Urgency};

use super::*;

/// Longer than any of this takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Hears of a log on whose durability nobody waits.
struct Nobody;

impl Listener for Nobody {
    fn durable(&self, _upto: Lsn) {}

    fn failed(&self, error: &LogError) {
        panic!("{error}");
    }

    fn space(&self, _space: Space) {}
}

impl Replicator for Nobody {
    fn leaves(&self, _batch: Batch) {}
}

fn recovered(disk: &Arc<dyn Disk>) -> Recovery {
    let options = towline_log::Options {
        log_bytes_max: 5 * EXTENT_BYTES_MIN,
        reserve_bytes: EXTENT_BYTES_MIN,
        ..towline_log::Options::small()
    };
    let mut recovery = Recovery::open(Arc::clone(disk), options, LogId(7)).unwrap();
    recovery.keep_places();
    recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
    recovery
}

/// Writes to a log, as its leader of term 1, until not even the smallest record has room.
fn fill(disk: &Arc<dyn Disk>) {
    let log = recovered(disk).start_following(Arc::new(Nobody), Arc::new(Nobody)).unwrap();
    log.lead(1).unwrap();
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
fn alone(disk: &Arc<dyn Disk>, folder: &std::path::Path) -> (Arc<Driver>, Receiver<Over>) {
    let kept = Kept { may_vote: true, ..Kept::default() };
    one_of(&["a"], kept, disk, folder)
}

/// The first of these members.
fn one_of(
    names: &[&str],
    kept: Kept,
    disk: &Arc<dyn Disk>,
    folder: &std::path::Path,
) -> (Arc<Driver>, Receiver<Over>) {
    let recovery = recovered(disk);
    let (base, places) = recovery.places();
    let options = Options {
        id: MemberId(1),
        voters: (0..names.len()).map(member_of).collect(),
        tick: Duration::from_millis(10),
        heartbeat_interval: Duration::from_millis(50),
        heartbeat_timeout: Duration::from_millis(500),
        seed: 1,
        meets_first: false,
    };
    let clock = Clock::start();
    let member = Member::new(options, kept, Held { base, places, applied: 0 }, clock.now());
    let (orders, _) = channel();
    let kept_file = KeptFile::of(folder);
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let driver = Arc::new(Driver::new(member, kept_file, clock, names, orders));
    let log = recovery.start_following(driver.clone(), driver.clone()).unwrap();
    driver.set_log(log);
    let (tell, told) = channel();
    driver.set_over(move |why| tell.send(why).unwrap());
    (driver, told)
}

fn said_to_be(last_index: u64, term: u64) -> Standing {
    Standing { blank: false, last_index, last_term: 1, term }
}

#[test]
fn an_instance_without_a_hard_state_waits_for_both_others_and_keeps_the_term_before_it_tells_it() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, _) = one_of(&["a", "b", "c"], Kept::default(), &disk, folder.path());
    let silent = || driver.why_silent(&driver.group().unheard);
    assert!(silent().ends_with("heard from 'b' and 'c'"), "{}", silent());
    driver.opened(1, said_to_be(4, 11));
    assert!(silent().ends_with("heard from 'c'"), "{}", silent());
    assert_eq!((driver.standing().term, KeptFile::of(folder.path()).read()), (0, None));
    // Its disk does not answer for a moment, and the member hears nothing meanwhile.
    driver.core.lock().life.stalls(true);
    driver.opened(2, said_to_be(4, 12));
    assert!(!driver.group().unheard.is_empty());
    driver.go_on();
    assert_eq!((silent(), driver.standing().term), (String::new(), 12));
    let kept = KeptFile::of(folder.path()).read().unwrap();
    assert_eq!((kept.term, kept.knows_term, kept.may_vote), (12, true, false));
    driver.log().shutdown();
}

#[test]
fn a_new_group_forms_with_the_hellos_of_all_and_no_operator() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, _) = one_of(&["a", "b", "c"], Kept::default(), &disk, folder.path());
    let blank = Standing { blank: true, ..Standing::default() };
    driver.opened(1, blank);
    assert!(driver.standing().blank);
    driver.opened(2, blank);
    assert!(!driver.standing().blank, "it votes");
    let kept = KeptFile::of(folder.path()).read().unwrap();
    assert!(kept.may_vote && kept.knows_term);
    driver.log().shutdown();
}

#[test]
fn who_is_elected_with_room_in_its_log_leads() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    let (driver, over) = alone(&disk, folder.path());
    let leads = || {
        driver.look_again();
        driver.wait(u64::MAX, Duration::ZERO).leads_from == Some(1) && driver.committed_end().0 > 0
    };
    assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
    assert!(over.try_recv().is_err());
    driver.log().shutdown();
}

#[test]
fn who_is_elected_without_room_in_its_log_begins_again_and_does_nothing_more() {
    let (disk, folder) =
        (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
    fill(&disk);
    let (driver, over) = alone(&disk, folder.path());
    let tail = driver.log().tail();
    let mut ended = None;
    let ends = || {
        driver.look_again();
        ended = over.try_recv().ok();
        ended.is_some()
    };
    assert!(driver.wait_until(LONG, ends), "{:?}", driver.group());
    assert_eq!(ended, Some(Over::NoRoom));
    // It was elected, and nothing came of it; what it hears is not told to its member any more.
    assert_eq!(driver.group().role, Role::Leader);
    let term = driver.group().term;
    for _ in 0..100 {
        driver.tick();
        driver.look_again();
    }
    assert_eq!((driver.group().term, driver.log().tail()), (term, tail));
    assert_eq!(driver.wait(u64::MAX, Duration::ZERO).leads_from, None);
    assert!(over.try_recv().is_err(), "told once");
    driver.log().shutdown();
}
