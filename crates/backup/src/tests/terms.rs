//! Positions where a term begins.

use super::*;

/// A backup of a new queue manager has no batch.
#[test]
fn a_backup_of_an_empty_log_can_be_restored_also_when_there_are_later_ones() {
    let mut rig = Rig::new(16);
    let to = MemoryDisk::new();
    rig.image_at = rig.log.durable();
    let mark = rig.log.mark_at(rig.image_at).unwrap();
    rig.log.write_image(mark, &image_of(&[])).unwrap();
    let empty = rig.back_up(&to, &choices(9)).unwrap();
    rig.append(30);
    rig.image(0, 2);
    rig.back_up(&to, &choices(9)).unwrap();
    let (restored, records) = brought_back(&to, Upto::Lsn(empty.end)).unwrap();
    assert_eq!((restored.end, records), (empty.end, vec![]));
    let (restored, _) = brought_back(&to, Upto::End).unwrap();
    assert_eq!(restored.end, rig.end());
}

#[test]
fn a_backup_just_after_a_start_can_be_restored_also_when_there_are_later_ones() {
    let mut rig = Rig::new(7);
    let to = MemoryDisk::new();
    rig.append(10);
    rig.image(0, 2);
    rig.back_up(&to, &choices(3)).unwrap();
    rig.log.shutdown();
    let (recovery, ..) = recover(&rig.disk, Options::small()).unwrap();
    rig.watch = Watch::new();
    let listener = Arc::clone(&rig.watch) as Arc<dyn towline_log::Listener>;
    rig.log = recovery.start(listener).unwrap();
    // The log ends with the empty batch by which a start begins its term.
    let started = rig.log.durable();
    assert!(started > rig.end());
    let mark = rig.log.mark_at(started).unwrap();
    rig.log.write_image(mark, &image_of(&rig.used)).unwrap();
    rig.image_at = started;
    assert_eq!(rig.back_up(&to, &choices(3)).unwrap().end, started);
    let at = Time(rig.now);
    rig.append(5);
    rig.back_up(&to, &choices(3)).unwrap();
    for upto in [Upto::Lsn(started), Upto::Time(at)] {
        let (restored, records) = brought_back(&to, upto).unwrap();
        assert_eq!((restored.end, restored.image), (started, Some(started)));
        assert_eq!(records, []);
    }
}
