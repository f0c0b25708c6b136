//! Folders that a backup or a restore does not take, and what is left in the folder of a backup.

use super::*;
use towline_log::disk::{Fault, FaultOn};

#[test]
fn a_folder_that_is_not_empty_is_not_restored_into() {
    let mut rig = Rig::new(14);
    let to = MemoryDisk::new();
    rig.append(5);
    rig.image(0, 1);
    rig.back_up(&to, &choices(1)).unwrap();
    let backup = Backup::look_disk(Arc::new(to)).unwrap();
    let refused = restore(&backup, &rig.disk, Upto::End, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty { .. }), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("note"), b"mine").unwrap();
    let refused = restore_folder(&backup, folder.path(), Upto::End, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty { .. }), "{refused}");
    std::fs::remove_file(folder.path().join("note")).unwrap();
    restore_folder(&backup, folder.path(), Upto::End, &mut |_| {}).unwrap();
    let refused = restore_folder(&backup, folder.path(), Upto::End, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty { .. }), "{refused}");
}

#[test]
fn a_backup_into_a_folder_that_has_one_in_the_making_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let first = Backup::open(folder.path()).unwrap();
    let refused = Backup::open(folder.path()).err().unwrap().to_string();
    let expected = format!("a backup into {} is being made already", folder.path().display());
    assert!(refused.starts_with(&expected) && refused.contains("wait until"), "{refused}");
    drop(first);
    Backup::open(folder.path()).unwrap();
}

/// The name of the new list was there, and the folder not synced: what it names was removed.
#[test]
fn when_the_name_of_a_list_cannot_be_synced_the_files_of_both_lists_stay_until_it_is() {
    let (mut rig, target, old_end) = Rig::backed_up_and_grown(15);
    let between = rig.end();
    let (on, error) = (FaultOn::SyncNames, std::io::ErrorKind::Other);
    target.inject(Fault { on, prefix: String::new(), after: 1, times: 1, error });
    assert!(matches!(rig.back_up(&target, &choices(1)), Err(BackupError::Log(_))));
    let failed_at = target.journal().len();
    target.heal();
    rig.append(5);
    rig.back_up(&target, &choices(1)).unwrap();
    let (journal, mut ends) = (target.journal(), BTreeMap::new());
    for (point, seed) in
        (failed_at..=journal.len()).flat_map(|point| (0..12).map(move |s| (point, s)))
    {
        let rule = CrashRule { keep_percent: 50, unit_bytes: 512, seed };
        let found = journal.crash_with_names_in_any_order(CrashPoint(point), rule);
        assert_eq!(check(&found).findings, Vec::<String>::new(), "point {point}, {rule:?}");
        let (restored, _) = brought_back(&found, Upto::End).unwrap();
        *ends.entry(restored.end).or_insert(0) += 1;
    }
    assert_eq!(ends.into_keys().collect::<Vec<_>>(), [old_end, between, rig.end()]);
}
