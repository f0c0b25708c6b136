//! What a rehearsal writes is seen by it alone.

use towline_types::SeededRandom;

use super::*;
use crate::block::Aligned;
use crate::disk::MemoryDisk;

fn block(byte: u8) -> Aligned {
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    block.bytes_mut().fill(byte);
    block
}

/// A file of `blocks` blocks, each full of its number and 1.
fn base(blocks: u8) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let file = disk.create("shared").unwrap();
    for number in 0..blocks {
        file.write_at(block(number + 1).bytes(), u64::from(number) * BLOCK).unwrap();
    }
    Arc::new(disk)
}

fn shared(bytes: u64, length: u64) -> SharedFile {
    SharedFile { name: "shared".into(), bytes, length, is_kept_open: false }
}

fn over(base: &Arc<MemoryDisk>, file: SharedFile, room: u64) -> (ScratchDisk, Arc<MemoryDisk>) {
    let own = Arc::new(MemoryDisk::new());
    let disk = ScratchDisk::over(base.clone(), own.clone(), &[file], room * BLOCK).unwrap();
    (disk, own)
}

fn read(file: &dyn DiskFile, from: u64, blocks: usize) -> Vec<u8> {
    let mut buffer = Aligned::zeroed(blocks * BLOCK_BYTES);
    let count = file.read_at(buffer.bytes_mut(), from * BLOCK).unwrap();
    buffer.bytes()[..count].chunks(BLOCK_BYTES).map(|block| block[0]).collect()
}

#[test]
fn what_is_behind_the_shared_bytes_is_zeros_and_what_is_written_stays_here() {
    let base = base(6);
    let (disk, own) = over(&base, shared(4 * BLOCK, 8 * BLOCK), 10);
    let file = disk.open("shared").unwrap();
    assert_eq!(read(file.as_ref(), 0, 20), [1, 2, 3, 4, 0, 0, 0, 0]);
    file.write_at(block(9).bytes(), BLOCK).unwrap();
    file.write_at(block(8).bytes(), 5 * BLOCK).unwrap();
    assert_eq!(read(file.as_ref(), 0, 8), [1, 9, 3, 4, 0, 8, 0, 0]);
    assert_eq!(read(disk.open("shared").unwrap().as_ref(), 1, 2), [9, 3], "each opening sees it");
    let there = base.open("shared").unwrap();
    assert_eq!(read(there.as_ref(), 0, 6), [1, 2, 3, 4, 5, 6]);
    assert_eq!(own.names().unwrap(), Vec::<String>::new(), "no name is left");
}

#[test]
fn zeros_where_nothing_is_take_no_space_and_what_is_beyond_the_room_is_refused() {
    let base = base(2);
    let (disk, _own) = over(&base, shared(2 * BLOCK, 2 * BLOCK), 3);
    let file = disk.create("extent").unwrap();
    for number in 0..100 {
        file.write_at(block(0).bytes(), number * BLOCK).unwrap();
    }
    assert_eq!(file.len().unwrap(), 100 * BLOCK);
    assert_eq!(disk.free_bytes(), 3 * BLOCK);
    for number in 0..3 {
        file.write_at(block(7).bytes(), number * BLOCK).unwrap();
    }
    file.write_at(block(0).bytes(), BLOCK).unwrap();
    assert_eq!(read(file.as_ref(), 0, 4), [7, 0, 7, 0], "zeros over something are written");
    let refused = file.write_at(block(7).bytes(), 9 * BLOCK).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    disk.remove("extent").unwrap();
    assert_eq!(disk.free_bytes(), 0, "it is open");
    drop(file);
    assert_eq!(disk.free_bytes(), 3 * BLOCK);
}

#[test]
fn a_removed_or_renamed_file_is_so_here_only() {
    let base = base(2);
    let (disk, _own) = over(&base, shared(2 * BLOCK, 2 * BLOCK), 3);
    disk.rename("shared", "spare").unwrap();
    assert_eq!(read(disk.open("spare").unwrap().as_ref(), 0, 2), [1, 2]);
    assert!(disk.open("shared").is_err());
    disk.remove("spare").unwrap();
    assert!(disk.names().unwrap().is_empty());
    assert_eq!(base.names().unwrap(), ["shared"]);
}

#[test]
fn a_file_that_is_kept_open_is_read_after_the_other_process_removed_it() {
    let base = base(2);
    let kept = SharedFile { is_kept_open: true, ..shared(2 * BLOCK, 2 * BLOCK) };
    let (disk, _own) = over(&base, kept.clone(), 3);
    base.remove("shared").unwrap();
    assert_eq!(read(disk.open("shared").unwrap().as_ref(), 0, 2), [1, 2]);
    let own: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let gone = ScratchDisk::over(base, own, &[kept], 0).map(drop).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

#[test]
fn random_writes_and_cuts_are_read_back_as_from_an_ordinary_file() {
    for seed in 0..50 {
        println!("seed {seed}");
        let mut random = SeededRandom::new(seed);
        let mut below = |most: u64| random.below(most);
        let base = base(40);
        let (disk, _own) = over(&base, shared(40 * BLOCK, 40 * BLOCK), 1_000);
        let file = disk.open("shared").unwrap();
        let mut model: Vec<u8> = (1..=40).collect();
        for _ in 0..200 {
            let at = below(60);
            if below(8) == 0 {
                file.cut(at * BLOCK).unwrap();
                model.truncate(usize::try_from(at).unwrap());
            } else {
                let byte = u8::try_from(below(3) * 100).unwrap();
                file.write_at(block(byte).bytes(), at * BLOCK).unwrap();
                let at = usize::try_from(at).unwrap();
                model.resize(model.len().max(at + 1), 0);
                model[at] = byte;
            }
            assert_eq!(read(file.as_ref(), 0, 100), model);
        }
    }
}
