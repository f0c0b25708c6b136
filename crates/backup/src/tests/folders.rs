//! Folders that a backup or a restore does not take.

use super::*;

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
