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

fn folder(disk: &mut Disk, at: u64, name: &str) -> u64 {
    disk.make(at, OsStr::new(name), Kind::Folder, 0o040_755).unwrap().node
}

#[test]
fn what_moved_into_a_new_folder_is_not_lost_with_the_name_of_that_folder() {
    let (mut disk, one, _, file) = two_folders();
    let (a, new) = (OsStr::new("a"), OsStr::new("new"));
    let made = folder(&mut disk, ROOT, "new");
    disk.rename(one, a, made, a).unwrap();
    disk.sync_folder(made).unwrap();
    disk.cut_power(0, &mut Chance::of(8));
    assert_eq!(disk.find(ROOT, new).unwrap().node, made);
    assert_eq!(disk.find(made, a).unwrap().node, file);
}

#[test]
fn what_moved_out_of_a_folder_is_not_lost_with_that_folder() {
    let (mut disk, one, other, file) = two_folders();
    let a = OsStr::new("a");
    disk.rename(one, a, other, a).unwrap();
    disk.remove(ROOT, OsStr::new("one")).unwrap();
    disk.sync_folder(ROOT).unwrap();
    disk.cut_power(0, &mut Chance::of(9));
    assert_eq!(disk.find(other, a).unwrap().node, file);
}

#[test]
fn a_folder_that_moves_takes_along_all_that_it_holds() {
    for seed in 0..100 {
        let (mut disk, one, other, file) = two_folders();
        let (inner, a, name) =
            (folder(&mut disk, one, "inner"), OsStr::new("a"), OsStr::new("inner"));
        disk.rename(one, a, inner, a).unwrap();
        disk.sync_folder(one).unwrap();
        disk.rename(one, name, other, name).unwrap();
        disk.cut_power(50, &mut Chance::of(seed));
        let names = [one, other].map(|folder| disk.find(folder, name).is_ok());
        assert!(names == [true, false] || names == [false, true], "seed {seed}: {names:?}");
        assert_eq!(disk.find(inner, a).unwrap().node, file, "seed {seed}");
    }
}

/// All names that lead to each node.
fn names_of(disk: &Disk) -> HashMap<u64, usize> {
    let mut names = HashMap::new();
    let mut left = vec![ROOT];
    while let Some(folder) = left.pop() {
        for (_, look) in disk.list(folder).unwrap() {
            let count = names.entry(look.node).or_default();
            *count += 1;
            // A folder that is in itself would lead round for ever.
            if look.kind == Kind::Folder && *count == 1 {
                left.push(look.node);
            }
        }
    }
    names
}

/// The folders that `node` is in, from the nearest on.
fn way_to(disk: &Disk, folders: &[u64], node: u64) -> Vec<u64> {
    let mut way = Vec::new();
    let mut at = node;
    while let Some(parent) = folders
        .iter()
        .find(|folder| disk.list(**folder).is_ok_and(|it| it.iter().any(|(_, l)| l.node == at)))
    {
        way.push(*parent);
        at = *parent;
    }
    way
}

/// Nothing is removed but empty folders: so what had a durable name once has one name for ever.
#[test]
fn whatever_moves_has_one_name_after_a_power_cut() {
    for seed in 0..2_000 {
        let mut chance = Chance::of(seed);
        let mut disk = Disk::new(1 << 30);
        let mut folders = vec![ROOT];
        let mut durable: HashSet<u64> = HashSet::new();
        for number in 0..chance.within(5, 40) {
            let at = folders[chance.index(folders.len())];
            let name = OsString::from(format!("n{number}"));
            let there = disk.list(at).unwrap();
            match chance.within(0, 10) {
                0..2 => folders.push(folder(&mut disk, at, &format!("n{number}"))),
                2..3 => drop(disk.make(at, &name, Kind::File, 0o100_644).unwrap()),
                3..7 if !there.is_empty() => {
                    let to = folders[chance.index(folders.len())];
                    let (old, look) = &there[chance.index(there.len())];
                    let into_itself =
                        to == look.node || way_to(&disk, &folders, to).contains(&look.node);
                    if !into_itself {
                        disk.rename(at, old, to, &name).unwrap();
                    }
                }
                7..8 if !there.is_empty() => {
                    let (old, look) = &there[chance.index(there.len())];
                    if look.kind == Kind::Folder && disk.remove(at, old).is_ok() {
                        folders.retain(|folder| *folder != look.node);
                        durable.remove(&look.node);
                    }
                }
                _ => disk.sync_folder(at).unwrap(),
            }
            let named = names_of(&disk);
            durable.extend(disk.reachable(true).into_iter().filter(|it| named.contains_key(it)));
        }
        disk.cut_power(40, &mut chance);
        let names = names_of(&disk);
        assert!(names.values().all(|count| *count == 1), "seed {seed}: {names:?}");
        let lost: Vec<&u64> = durable.iter().filter(|node| !names.contains_key(node)).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} of {durable:?}");
    }
}

#[test]
fn what_is_left_for_people_has_both_views_and_what_is_between_them() {
    let (mut disk, one, _, file) = two_folders();
    disk.write(file, 0, b"durable bytes").unwrap();
    disk.sync_file(file).unwrap();
    disk.write(file, 0, b"written").unwrap();
    disk.write(file, 5_000, b"more").unwrap();
    disk.rename(one, OsStr::new("a"), one, OsStr::new("b")).unwrap();
    let left = tempfile::tempdir().unwrap();
    disk.keep_in(left.path()).unwrap();
    let durable = std::fs::read(left.path().join("durable/one/a")).unwrap();
    assert_eq!(durable, b"durable bytes");
    let seen = std::fs::read(left.path().join("seen/one/b")).unwrap();
    assert_eq!((&seen[..13], seen.len()), (&b"written bytes"[..], 5_004));
    let changes = std::fs::read_to_string(left.path().join("changes.txt")).unwrap();
    for part in ["not durable: ", "Rename(\"a\", \"b\")", "5004 bytes, 13 durable", "[0, 1]"] {
        assert!(changes.contains(part), "no {part} in {changes}");
    }
    disk.cut_power(0, &mut Chance::of(1));
    assert_eq!(disk.read(file, 0, 100).unwrap(), durable);
}
