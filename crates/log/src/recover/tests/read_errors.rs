//! A disk that does not answer for a moment: what it did not give back is never taken for absent.

use super::*;
use crate::format::EXTENT_HEADER_BYTES;

/// A log of which the last batch is the first one of its extent.
fn ends_with_a_first_batch() -> Written {
    let begins = |end: Lsn| end.0.next_multiple_of(BLOCK_BYTES as u64) % EXTENT_BYTES_MIN;
    let mut runs = 2;
    loop {
        let written = write(&MemoryDisk::new(), runs, 30_000, false);
        let (last, before) = (written.ends[written.ends.len() - 1], begins(written.records[0].0));
        let first_in_extent = before + 30_000 + 2 * BLOCK_BYTES as u64;
        if last.0 > EXTENT_BYTES_MIN && last.0 % EXTENT_BYTES_MIN < first_in_extent {
            return written;
        }
        runs += 1;
    }
}

/// Has one or two reads of one extent fail, at any moment of what `looks`.
fn with_each_failing_read(written: &Written, mut looks: impl FnMut(&MemoryDisk, &str)) {
    let extents = 1 + written.ends[written.ends.len() - 1].0 / EXTENT_BYTES_MIN;
    for sequence in 0..=extents {
        for (after, times) in (0..24).flat_map(|after| [(after, 1), (after, 2)]) {
            let disk = copy(&written.disk);
            let (on, error) = (FaultOn::Read, std::io::ErrorKind::Other);
            disk.inject(Fault { on, prefix: extent_name(sequence), after, times, error });
            looks(&disk, &format!("reads {after} and {times} from there of extent {sequence}"));
        }
    }
}

#[test]
fn a_start_with_a_read_that_fails_for_a_moment_is_refused_or_has_all() {
    let written = ends_with_a_first_batch();
    assert!(
        written.records[written.records.len() - 1].0.0 % EXTENT_BYTES_MIN
            < 2 * EXTENT_HEADER_BYTES as u64
    );
    let mut refused = 0;
    with_each_failing_read(&written, |disk, which| {
        match recover(&shared(disk), Options::small()) {
            Ok((_, _, records)) => assert_eq!(records.len(), written.records.len(), "{which}"),
            Err(_) => refused += 1,
        }
        disk.heal();
        let (_, _, records) = recover(&shared(disk), Options::small()).unwrap();
        assert!(records == written.records, "{which}: {} records", records.len());
    });
    assert!(refused > 0, "no fault was met");
}

#[test]
fn a_look_at_a_log_with_a_read_that_fails_for_a_moment_says_so_or_has_all() {
    let written = ends_with_a_first_batch();
    with_each_failing_read(&written, |disk, which| {
        if let Ok(report) = offline::verify_disk(&shared(disk)) {
            let has_all = report.records == written.records.len() as u64;
            assert!(has_all || !report.is_sound(), "{which}: {report:?}");
        }
    });
}
