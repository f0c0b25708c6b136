use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Slow;
use super::aligned::Buffers;
use super::count::Operation;

const DELAY: Duration = Duration::from_millis(3);

fn mounted(delay: Duration) -> (TempDir, TempDir, Slow) {
    let (folder, mount) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let slow = Slow::mount(folder.path(), mount.path(), delay).unwrap();
    (folder, mount, slow)
}

#[test]
fn what_is_done_at_the_mount_is_done_to_the_folder() {
    let (folder, mount, slow) = mounted(Duration::ZERO);
    fs::create_dir(mount.path().join("log")).unwrap();
    fs::write(mount.path().join("log/a"), vec![7; 3 << 20]).unwrap();
    fs::rename(mount.path().join("log"), mount.path().join("old")).unwrap();
    fs::rename(mount.path().join("old/a"), mount.path().join("old/b")).unwrap();
    assert_eq!(fs::read(folder.path().join("old/b")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read(mount.path().join("old/b")).unwrap().len(), 3 << 20);
    let file = OpenOptions::new().write(true).open(mount.path().join("old/b")).unwrap();
    file.set_len(4096).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8192).unwrap();
    file.sync_data().unwrap();
    assert_eq!(fs::metadata(folder.path().join("old/b")).unwrap().len(), 8192);
    assert_eq!(fs::read_dir(mount.path().join("old")).unwrap().count(), 1);
    fs::remove_file(mount.path().join("old/b")).unwrap();
    fs::remove_dir(mount.path().join("old")).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    drop(file);
    slow.unmount().unwrap();
}

#[test]
fn a_local_socket_can_be_made_and_used() {
    let (_folder, mount, _slow) = mounted(Duration::ZERO);
    let path = mount.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn direct_io_goes_through_and_a_short_read_ends_the_file() {
    let target = crate::paths::target_folder().unwrap();
    // Not below /tmp: a file system in memory refuses O_DIRECT.
    let (folder, mount) = (TempDir::new_in(&target).unwrap(), TempDir::new().unwrap());
    let _slow = Slow::mount(folder.path(), mount.path(), Duration::ZERO).unwrap();
    let path = mount.path().join("direct");
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).custom_flags(direct);
    let file = options.open(&path).unwrap();
    Buffers::new().with(8192, |bytes| {
        bytes.fill(9);
        file.write_all_at(bytes, 4096).unwrap();
        file.sync_data().unwrap();
        file.set_len(4096 + 5000).unwrap();
        assert_eq!(file.read_at(bytes, 4096).unwrap(), 5000);
        assert_eq!(bytes.first(), Some(&9));
    });
}

#[test]
fn each_operation_waits_and_is_counted() {
    let (folder, mount, slow) = mounted(DELAY);
    fs::write(folder.path().join("a"), vec![1; 4 << 20]).unwrap();
    let file = OpenOptions::new().read(true).open(mount.path().join("a")).unwrap();
    let before = slow.counts().of(Operation::Read);
    let began = Instant::now();
    let mut bytes = vec![0; 4 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let reads = slow.counts().of(Operation::Read) - before;
    // The kernel may cut a read at its own limit; each piece waits, one after the other.
    assert!((1..=64).contains(&reads), "{reads} reads of 4 MiB");
    assert!(began.elapsed() >= DELAY * u32::try_from(reads).unwrap(), "{reads} reads");
    assert!(slow.counts().json().contains(&format!("\"read\":{}", before + reads)));
}
