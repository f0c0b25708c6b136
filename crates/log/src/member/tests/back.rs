//! Cutting back over the boundary of an extent that is not filled yet: it came with a copy.

use super::*;
use crate::disk::{Fault, FaultOn};
use crate::extents::Space;

/// A replica that received a copy: its newest extent, the third, is as long as what is in it.
fn copied(batches: &[Batch]) -> MemoryDisk {
    let memory = MemoryDisk::new();
    let instance = Instance::start(&memory, Options::small());
    instance.receive(batches);
    instance.end();
    let end = batches.last().unwrap().end().0;
    assert_eq!(end / EXTENT_BYTES_MIN, 2, "the copy ends in the third extent");
    for sequence in 3..9 {
        drop(memory.remove(&extent_name(sequence)));
    }
    let length = size(end % EXTENT_BYTES_MIN).next_multiple_of(BLOCK_BYTES);
    memory.change(&extent_name(2), |file| file.truncate(length));
    memory
}

/// As many batches as reach into the third extent.
fn three_extents() -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    while batches.last().is_none_or(|last| last.end().0 < 2 * EXTENT_BYTES_MIN + 20_000) {
        let behind = batches.last().map(Batch::place).unwrap_or_default();
        batches.push(made(behind, 1, &[(&[7; 9_000], Kind::Last)]));
    }
    batches
}

/// What a new leader has instead of all but the first `kept` batches.
fn instead(batches: &[Batch], kept: usize) -> Vec<Batch> {
    let mut others = vec![made(batches[kept - 1].place(), 2, &[])];
    for _ in 0..60 {
        others.push(made(others.last().unwrap().place(), 2, &[(&[9; 9_000], Kind::Last)]));
    }
    others
}

#[test]
fn a_cut_over_the_boundary_of_an_extent_that_is_not_filled_goes_on_before_it() {
    let batches = three_extents();
    let sequence_of = |batch: &Batch| batch.lsn.0 / EXTENT_BYTES_MIN;
    let first_of = |sequence| batches.iter().position(|b| sequence_of(b) == sequence).unwrap();
    // Into the extent before, and into the one before that.
    for kept in [first_of(2), first_of(2) - 3, first_of(1) - 2] {
        for full in [false, true] {
            let memory = copied(&batches);
            if full {
                // Until it is healed the extent stays as it is.
                let (prefix, error) = (extent_name(2), std::io::ErrorKind::StorageFull);
                let on = FaultOn::Reserve;
                memory.inject(Fault { on, prefix, after: 0, times: u64::MAX, error });
            }
            let instance = Instance::start(&memory, Options::small());
            if full {
                instance.watch.wait_space(Space::Full);
            }
            let others = instead(&batches, kept);
            if full {
                instance.log.receive(&others[..2]).unwrap();
                instance.watch.wait_durable(others[1].end());
                let again = Instance::start(&copy_of(&memory), Options::small());
                assert_eq!(again.places.len(), kept + 2, "a crash leaves what was durable");
                memory.heal();
                instance.watch.wait_space(Space::Ample);
            }
            instance.receive(&others);
            assert_eq!(instance.watch.failures(), 0);
            let again = instance.again();
            let wanted = batches[..kept].iter().chain(&others).map(Batch::place);
            assert_eq!(again.places, wanted.collect::<Vec<_>>(), "{kept} {full}");
            assert_eq!(
                again.log.stats().extents,
                again.places.last().unwrap().end.0 / EXTENT_BYTES_MIN + 1
            );
        }
    }
}

fn copy_of(memory: &MemoryDisk) -> MemoryDisk {
    MemoryDisk::with_files(memory.files())
}
