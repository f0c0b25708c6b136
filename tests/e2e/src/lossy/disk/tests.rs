//! The rules of the forgetting disk.

use super::*;

fn disk_with_file(name: &str) -> (Disk, u64) {
    let mut disk = Disk::new(1 << 30);
    let made = disk.make(ROOT, OsStr::new(name), Kind::File, 0o100_644).unwrap();
    (disk, made.node)
}

#[test]
fn unsynced_bytes_are_lost_and_synced_ones_stay() {
    let (mut disk, file) = disk_with_file("a");
    disk.write(file, 10, &[7; 9000]).unwrap();
    disk.sync_file(file).unwrap();
    disk.sync_folder(ROOT).unwrap();
    disk.write(file, 0, &[9; 5000]).unwrap();
    disk.cut_power(0, &mut Chance::of(1));
    let bytes = disk.read(file, 0, 20_000).unwrap();
    assert_eq!(bytes.len(), 9010);
    assert_eq!(&bytes[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7]);
    assert!(bytes[10..].iter().all(|byte| *byte == 7));
}

#[test]
fn a_kept_page_is_kept_whole() {
    let (mut disk, file) = disk_with_file("a");
    disk.sync_folder(ROOT).unwrap();
    disk.write(file, 0, &[3; 40 * PAGE_BYTES]).unwrap();
    disk.cut_power(50, &mut Chance::of(2));
    let bytes = disk.read(file, 0, u32::MAX).unwrap();
    let kept = bytes.chunks(PAGE_BYTES).filter(|page| page.iter().all(|byte| *byte == 3)).count();
    let lost = bytes.chunks(PAGE_BYTES).filter(|page| page.iter().all(|byte| *byte == 0)).count();
    assert_eq!(kept + lost, bytes.chunks(PAGE_BYTES).count());
    assert!(kept > 5 && lost > 5, "kept {kept}, lost {lost}");
}

#[test]
fn a_name_is_lost_unless_its_folder_was_synced() {
    let (mut disk, file) = disk_with_file("a");
    disk.write(file, 0, b"bytes").unwrap();
    disk.sync_file(file).unwrap();
    disk.cut_power(0, &mut Chance::of(3));
    assert_eq!(disk.find(ROOT, OsStr::new("a")).unwrap_err(), No::Entry);
}

#[test]
fn an_unsynced_rename_is_undone() {
    let (mut disk, file) = disk_with_file("a");
    disk.write(file, 0, b"bytes").unwrap();
    disk.sync_file(file).unwrap();
    disk.sync_folder(ROOT).unwrap();
    disk.rename(ROOT, OsStr::new("a"), ROOT, OsStr::new("b")).unwrap();
    assert_eq!(disk.find(ROOT, OsStr::new("b")).unwrap().node, file);
    disk.cut_power(0, &mut Chance::of(4));
    assert_eq!(disk.find(ROOT, OsStr::new("a")).unwrap().node, file);
    assert_eq!(disk.find(ROOT, OsStr::new("b")).unwrap_err(), No::Entry);
}

/// Two folders below the root, durable, with a durable file `a` in the first.
fn two_folders() -> (Disk, u64, u64, u64) {
    let mut disk = Disk::new(1 << 30);
    let folder = |disk: &mut Disk, name: &str| {
        disk.make(ROOT, OsStr::new(name), Kind::Folder, 0o040_755).unwrap().node
    };
    let (one, other) = (folder(&mut disk, "one"), folder(&mut disk, "other"));
    let file = disk.make(one, OsStr::new("a"), Kind::File, 0o100_644).unwrap().node;
    disk.sync_folder(ROOT).unwrap();
    disk.sync_folder(one).unwrap();
    (disk, one, other, file)
}

#[test]
fn a_rename_across_folders_is_kept_or_lost_in_both() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..200 {
        let (mut disk, one, other, file) = two_folders();
        let a = OsStr::new("a");
        disk.make(other, OsStr::new("before"), Kind::File, 0o100_644).unwrap();
        disk.rename(one, a, other, a).unwrap();
        disk.make(one, OsStr::new("behind"), Kind::File, 0o100_644).unwrap();
        disk.cut_power(50, &mut Chance::of(seed));
        let places = [one, other].map(|folder| disk.find(folder, a).map(|look| look.node));
        match places {
            [Ok(node), Err(No::Entry)] if node == file => lost += 1,
            [Err(No::Entry), Ok(node)] if node == file => kept += 1,
            other => panic!("seed {seed}: the file has other than one name: {other:?}"),
        }
    }
    assert!(kept > 10 && lost > 10, "kept {kept}, lost {lost}");
}

#[test]
fn a_sync_of_either_folder_makes_a_rename_across_them_durable() {
    for synced_folder_is_target in [false, true] {
        let (mut disk, one, other, file) = two_folders();
        disk.rename(one, OsStr::new("a"), other, OsStr::new("b")).unwrap();
        disk.make(other, OsStr::new("behind"), Kind::File, 0o100_644).unwrap();
        disk.sync_folder(if synced_folder_is_target { other } else { one }).unwrap();
        disk.cut_power(0, &mut Chance::of(7));
        assert_eq!(disk.find(one, OsStr::new("a")).unwrap_err(), No::Entry);
        assert_eq!(disk.find(other, OsStr::new("b")).unwrap().node, file);
        let behind = disk.find(other, OsStr::new("behind")).is_ok();
        assert_eq!(behind, synced_folder_is_target, "what came later has its own sync");
    }
}

#[test]
fn truncated_bytes_do_not_come_back_when_the_file_grows() {
    let (mut disk, file) = disk_with_file("a");
    disk.write(file, 0, &[5; 10_000]).unwrap();
    disk.sync_file(file).unwrap();
    disk.resize(file, 100).unwrap();
    disk.resize(file, 10_000).unwrap();
    let bytes = disk.read(file, 0, 10_000).unwrap();
    assert!(bytes[..100].iter().all(|byte| *byte == 5));
    assert!(bytes[100..].iter().all(|byte| *byte == 0));
    disk.sync_file(file).unwrap();
    assert_eq!(disk.read(file, 0, 10_000).unwrap(), bytes);
}

#[test]
fn a_full_disk_refuses_growth_but_not_overwriting() {
    let (mut disk, file) = disk_with_file("a");
    disk.set_bytes_max(8192);
    disk.write(file, 0, &[1; 8192]).unwrap();
    assert_eq!(disk.write(file, 8192, &[1]).unwrap_err(), No::Space);
    disk.write(file, 0, &[2; 100]).unwrap();
    disk.remove(ROOT, OsStr::new("a")).unwrap();
    assert_eq!(disk.room(), (8192, 0));
}
