//! The real disk: a folder of a Linux file system.
//!
//! Direct I/O where the file system takes it (it halves the time of small synced writes and keeps
//! the log out of the page cache), else buffered. Not here: any decision about what to write.
//!
//! Invariant: one process writes a folder; a lock on the file `lock` says which.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use towline_os::fs::{
    self, DirBuilderExt, File, FileExt, OpenOptions, OpenOptionsExt, TryLockError,
};
use towline_os::sync::Mutex;

use super::{Disk, DiskFile, FileSystem};
use crate::block::Aligned;
use crate::error::{LogError, is_full};
use crate::format::BLOCK_BYTES;

const LOCK_NAME: &str = "lock";
const PROBE_NAME: &str = "probe";
/// Not in errno(3), and what the kernel's NFS passes on all the same.
const ENOTSUPP: i32 = 524;

/// A folder on a Linux file system.
#[derive(Debug)]
pub struct LinuxDisk {
    folder: PathBuf,
    directory: File,
    direct: bool,
    writable: bool,
    /// Held, never read: closing it gives the folder free.
    _lock: Option<File>,
}

impl LinuxDisk {
    /// Takes the folder for this process: makes it when it is not there, and locks it.
    ///
    /// # Errors
    /// [`LogError::Locked`] when another process holds it; [`LogError::Io`].
    pub fn open(folder: &Path) -> Result<LinuxDisk, LogError> {
        let name = folder.display().to_string();
        make_folder(folder).map_err(|e| LogError::io("make the log folder", &name, e))?;
        let lock = take_lock(folder)?;
        let directory = File::open(folder).map_err(|e| LogError::io("open", &name, e))?;
        let mut disk = LinuxDisk {
            folder: folder.to_owned(),
            directory,
            direct: true,
            writable: true,
            _lock: Some(lock),
        };
        disk.direct = disk.takes_direct()?;
        Ok(disk)
    }

    /// Looks into a folder without taking it and without changing it; safe beside a running
    /// process, which may then seem to have a torn tail.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn read_only(folder: &Path) -> Result<LinuxDisk, LogError> {
        let name = folder.display().to_string();
        let directory = File::open(folder).map_err(|e| LogError::io("open", &name, e))?;
        let folder = folder.to_owned();
        Ok(LinuxDisk { folder, directory, direct: false, writable: false, _lock: None })
    }

    /// The same folder through the page cache: for files that need not survive.
    #[must_use]
    pub fn through_cache(self) -> LinuxDisk {
        LinuxDisk { direct: false, ..self }
    }

    /// Whether a process holds the folder now. Changes nothing: a start at this very moment may
    /// find the folder locked, so it is asked only where a start fails anyway.
    #[must_use]
    pub fn is_in_use(folder: &Path) -> bool {
        let Ok(file) = File::open(folder.join(LOCK_NAME)) else { return false };
        file.try_lock_shared().is_err()
    }

    /// Whether the file system takes direct I/O in blocks of ours.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether the file system takes direct I/O; and whether it can be written at all, which had
    /// better be known now than when the next extent is made.
    fn takes_direct(&self) -> Result<bool, LogError> {
        let block = Aligned::zeroed(BLOCK_BYTES);
        // A full disk is another matter: what is there can still be got.
        let full_is_well = |result: io::Result<()>| match result {
            Err(e) if is_full(&e) => Ok(()),
            other => other,
        };
        let probe = |direct: bool| {
            let file = self.create_with(PROBE_NAME, direct)?;
            full_is_well(file.write_at(block.bytes(), 0))
        };
        let or_no_direct = |tried: io::Result<()>| match tried {
            Err(e) if is_no_direct(&e) => Ok(false),
            // Also a disk that failed for a moment. Taken for one without direct I/O, it would be
            // written through the system's memory, and a later start trust what it reads there.
            other => other.map(|()| true),
        };
        let is_direct = match probe(true) {
            // Not even a name can be added. The lock is there, and opened as an extent would be.
            Err(e) if is_full(&e) => {
                let opened = self.open_with(LOCK_NAME, &mut OpenOptions::new(), true);
                or_no_direct(opened.map(drop))
            }
            tried => or_no_direct(tried).and_then(|is_direct| {
                if !is_direct {
                    full_is_well(probe(false))?;
                }
                self.remove(PROBE_NAME).map(|()| is_direct)
            }),
        };
        let place = self.folder.join(PROBE_NAME);
        is_direct
            .map_err(|e| LogError::io("write to the log folder", &place.display().to_string(), e))
    }

    fn create_with(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        self.open_with(name, options.write(true).create(true).truncate(true), direct)
    }

    fn open_with(
        &self,
        name: &str,
        options: &mut OpenOptions,
        direct: bool,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let mut flags = OFlags::NOFOLLOW;
        if direct {
            flags |= OFlags::DIRECT;
        }
        options.read(true).custom_flags(flags.bits().cast_signed()).mode(0o600);
        let file = options.open(self.folder.join(name))?;
        Ok(Arc::new(LinuxFile { file, sync_failed: (!direct).then(Mutex::default) }))
    }
}

impl Disk for LinuxDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.create_with(name, self.direct)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(name, OpenOptions::new().write(self.writable), self.direct)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // A name that is not text is not ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Known from the folder itself: nothing is asked of the file.
            if entry.file_type()?.is_file() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.folder.join(name))?.len())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn file_system(&self) -> Option<FileSystem> {
        let fs::Space { bytes_max, bytes_free } = fs::space(&self.directory).ok()?;
        Some(FileSystem { bytes_max, bytes_free })
    }

    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn is_buffered(&self) -> bool {
        !self.direct
    }
}

struct LinuxFile {
    file: File,
    /// Without direct I/O: held by a sync; true when one failed. What the system could not write
    /// from its memory it reports once to each open file, whichever thread wrote it: of two that
    /// sync at a time, one would take for safe what is lost.
    sync_failed: Option<Mutex<bool>>,
}

impl DiskFile for LinuxFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            // A direct read that ends inside a block ended at the end of the file.
            if !filled.is_multiple_of(BLOCK_BYTES) {
                break;
            }
        }
        Ok(filled)
    }

    fn sync_data(&self) -> io::Result<()> {
        let Some(failed) = &self.sync_failed else { return self.file.sync_data() };
        let mut failed = failed.lock();
        if *failed {
            return Err(io::Error::other("an earlier sync of the file failed"));
        }
        let synced = self.file.sync_data();
        *failed = synced.is_err();
        synced
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        fs::reserve(&self.file, bytes)
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        // Never longer: that would make a hole, which a sync does not fill.
        if bytes <= self.len()? { self.file.set_len(bytes) } else { Ok(()) }
    }
}

/// Whether the file system says that it has no direct I/O, or not in blocks of ours (open(2)).
fn is_no_direct(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(ENOTSUPP)
}

/// Makes a folder, and those above it that are missing; syncs the name of each.
fn make_folder(folder: &Path) -> io::Result<()> {
    let Some(parent) = folder.parent() else { return Ok(()) };
    let is_there = fs::is_dir(folder);
    if !is_there {
        make_folder(parent)?;
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    // The folder's own name must survive a power cut as the files in it do: also when the folder is
    // there, because the process that made it may have been killed before it synced the name.
    match fs::sync_name_of(folder) {
        // Made by another user, in a folder that this one may only pass through.
        Err(error) if is_there && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

fn take_lock(folder: &Path) -> Result<File, LogError> {
    let place = folder.join(LOCK_NAME).display().to_string();
    let failed = |e| LogError::io("lock the log folder", &place, e);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .mode(0o600)
        .open(folder.join(LOCK_NAME))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = (&file).take(32).read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(LogError::Locked { folder: folder.to_owned(), pid });
        }
        Err(TryLockError::Error(e)) => return Err(failed(e)),
    }
    match write_pid(&file) {
        // Only the refusal of another process names it: a full disk must not keep anything from
        // starting.
        Err(error) if !is_full(&error) => Err(failed(error)),
        _ => Ok(file),
    }
}

/// Writes over the existing file and keeps its block: on a full disk another process might take it.
fn write_pid(file: &File) -> io::Result<()> {
    let text = format!("{}\n", std::process::id());
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::io::Errno;
    use towline_os::simulated::fs::{DiskTiming, FileSystem, OperationKind, Verdict};
    use towline_os::simulated::{Process, World, crash};
    use towline_types::SeededRandom;

    use super::*;

    #[test]
    fn in_a_simulation_what_was_synced_survives_a_power_cut_and_another_process_finds_it() {
        for seed in 0..20 {
            let (system, world) = (FileSystem::new(), World::new(seed));
            assert!(system.make_folder("/data"));
            for number in 1..=2 {
                world.mount(Process(number), &system);
                world.start(Process(number), "writes", move || {
                    let disk = LinuxDisk::open(Path::new("/data/log")).unwrap();
                    assert!(disk.is_direct());
                    let mut block = Aligned::zeroed(BLOCK_BYTES);
                    if number == 2 {
                        disk.open("extent").unwrap().read_at(block.bytes_mut(), 0).unwrap();
                        assert!(block.bytes().iter().all(|byte| *byte == 7), "seed {seed}");
                    }
                    let file = disk.create("extent").unwrap();
                    file.reserve(16 * BLOCK_BYTES as u64).unwrap();
                    block.bytes_mut().fill(7);
                    file.write_at(block.bytes(), 0).unwrap();
                    file.sync_data().unwrap();
                    disk.sync_names().unwrap();
                    block.bytes_mut().fill(8);
                    file.write_at(block.bytes(), BLOCK_BYTES as u64).unwrap();
                    towline_os::sync::OnceLock::<()>::new().wait();
                });
                world.run_until(number * 500_000);
                assert_eq!(world.ended(Process(number)), None);
                world.kill(Process(number));
                world.run_until(number * 500_000 + 1);
                system.power_cut(&mut SeededRandom::mixed(seed));
            }
            let bytes = system.bytes("/data/log/extent").unwrap();
            assert!(bytes.starts_with(&[7; BLOCK_BYTES]), "seed {seed}");
        }
    }

    /// Two threads write a block each and sync it, and the first sync fails: blocks that are taken
    /// for safe and are not.
    fn believed_and_lost(seed: u64, is_direct: bool) -> usize {
        let (system, world) = (FileSystem::new(), World::new(seed));
        system.make_folder("/data");
        system.put("/data/log/extent", &[0; 2 * BLOCK_BYTES]);
        system.set_takes_direct(is_direct);
        system.set_timing(DiskTiming { sync_us: (0, 100_000), ..DiskTiming::default() });
        let mut fails = true;
        system.set_faults(move |operation| {
            let is_extent = operation.path == Path::new("/data/log/extent");
            let is_sync = is_extent && operation.kind == OperationKind::Sync;
            if is_sync && std::mem::take(&mut fails) {
                Verdict::FailsAfter(Errno::IO.raw_os_error())
            } else {
                Verdict::Goes
            }
        });
        world.mount(Process(1), &system);
        let believed = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&believed);
        world.start(Process(1), "syncs", move || {
            let disk = LinuxDisk::open(Path::new("/data/log")).unwrap();
            assert_eq!(disk.is_direct(), is_direct);
            let file = disk.open("extent").unwrap();
            for at in 0..2_u8 {
                let (file, list) = (Arc::clone(&file), Arc::clone(&list));
                let write = move || {
                    let mut block = Aligned::zeroed(BLOCK_BYTES);
                    block.bytes_mut().fill(at + 1);
                    file.write_at(block.bytes(), u64::from(at) * BLOCK_BYTES as u64).unwrap();
                    if file.sync_data().is_ok() {
                        list.lock().push(at);
                    }
                };
                towline_os::thread::Builder::new().spawn(write).unwrap();
            }
            towline_os::sync::OnceLock::<()>::new().wait();
        });
        world.run_until(1_000_000);
        let is_safe = |at: u8| {
            let offset = u64::from(at) * BLOCK_BYTES as u64;
            system.is_synced("/data/log/extent", offset, &[at + 1; BLOCK_BYTES])
        };
        believed.lock().iter().filter(|at| !is_safe(**at)).count()
    }

    #[test]
    fn of_two_threads_that_sync_a_file_none_takes_for_safe_what_a_failed_sync_lost() {
        for seed in 0..200 {
            for is_direct in [false, true] {
                assert_eq!(believed_and_lost(seed, is_direct), 0, "seed {seed}, {is_direct}");
            }
        }
    }

    #[test]
    fn a_disk_that_fails_for_a_moment_is_not_taken_for_one_without_direct_io() {
        let (invalid, unsupported) = (Errno::INVAL.raw_os_error(), Errno::NOTSUP.raw_os_error());
        let no_such_way = [invalid, unsupported, ENOTSUPP].map(|error| (error, Some(false)));
        for (error, way) in [(Errno::IO.raw_os_error(), None)].into_iter().chain(no_such_way) {
            let system = FileSystem::new();
            let mut fails = true;
            system.set_faults(move |operation| {
                let is_probe = operation.path == Path::new("/log/probe");
                let is_write = is_probe && operation.kind == OperationKind::Write;
                if is_write && std::mem::take(&mut fails) {
                    Verdict::Fails(error)
                } else {
                    Verdict::Goes
                }
            });
            let open = || LinuxDisk::open(Path::new("/log")).map(|disk| disk.is_direct());
            let opened = crash::in_process(&system, 1, open).unwrap();
            assert_eq!(opened.ok(), way, "{error}");
            let opened = crash::in_process(&system, 2, open).unwrap();
            assert!(opened.unwrap(), "{error}: nothing is left of the probe");
        }
    }

    /// Opens a log in `/mount/data/log`, where the sync of one folder fails.
    fn opened_where_a_sync_fails(folder: &'static str, error: i32) -> io::Result<()> {
        let system = FileSystem::new();
        assert!(system.make_folder("/mount/data/log"));
        system.set_faults(move |operation| {
            let is_it =
                operation.kind == OperationKind::Sync && operation.path == Path::new(folder);
            if is_it { Verdict::Fails(error) } else { Verdict::Goes }
        });
        let opens = || {
            make_folder(Path::new("/mount/data"))?;
            LinuxDisk::open(Path::new("/mount/data/log")).unwrap().sync_names()
        };
        crash::in_process(&system, 1, opens).unwrap()
    }

    #[test]
    fn a_folder_above_the_own_ones_that_takes_no_sync_is_left_without_and_an_own_one_is_not() {
        for no_such_sync in [Errno::INVAL, Errno::NOTSUP] {
            let number = no_such_sync.raw_os_error();
            opened_where_a_sync_fails("/mount", number).unwrap();
            opened_where_a_sync_fails("/mount/data/log", number).unwrap_err();
        }
        opened_where_a_sync_fails("/mount", Errno::IO.raw_os_error()).unwrap_err();
    }

    #[test]
    fn the_folders_above_a_log_survive_a_power_cut_as_it_does() {
        for seed in 0..50 {
            let (system, world) = (FileSystem::new(), World::new(seed));
            world.mount(Process(1), &system);
            world.start(Process(1), "makes", || {
                let disk = LinuxDisk::open(Path::new("/made/too/log")).unwrap();
                disk.create("extent").unwrap();
                disk.sync_names().unwrap();
            });
            world.run_until(1_000_000);
            assert_eq!(world.ended(Process(1)), None);
            system.power_cut(&mut SeededRandom::mixed(seed));
            assert!(system.has("/made/too/log/extent"), "seed {seed}");
        }
    }

    #[test]
    fn a_second_owner_of_a_folder_is_refused_by_the_first_ones_pid() {
        let folder = tempfile::tempdir().unwrap();
        let first = LinuxDisk::open(folder.path()).unwrap();
        match LinuxDisk::open(folder.path()) {
            Err(LogError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("not refused: {other:?}"),
        }
        drop(first);
        LinuxDisk::open(folder.path()).unwrap();
    }

    #[test]
    fn the_pid_of_the_last_owner_is_written_over_and_a_longer_one_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK_NAME), "123456789012345\n").unwrap();
        let _held = LinuxDisk::open(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join(LOCK_NAME)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_by_name_and_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        // Root may write anywhere but over a folder.
        fs::create_dir(folder.path().join(PROBE_NAME)).unwrap();
        let refused = LinuxDisk::open(folder.path()).unwrap_err().to_string();
        let place = folder.path().join(PROBE_NAME);
        assert!(refused.contains(&place.display().to_string()), "{refused}");
        let denied = io::ErrorKind::PermissionDenied.into();
        let text = LogError::io("lock the log folder", "/data/log/lock", denied).to_string();
        assert!(text.contains("/data/log/lock") && text.contains("; give the user"), "{text}");
        let read_only = io::ErrorKind::ReadOnlyFilesystem.into();
        let text = LogError::io("lock the log folder", "/data/log/lock", read_only).to_string();
        assert!(text.contains("; the file system is mounted read-only"), "{text}");
    }

    #[test]
    fn what_is_written_is_read_back_after_a_rename() {
        let folder = tempfile::tempdir().unwrap();
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let file = disk.create("one").unwrap();
        file.reserve(8 * BLOCK_BYTES as u64).unwrap();
        assert!(file.is_empty().unwrap());
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        block.bytes_mut().fill(7);
        file.write_at(block.bytes(), BLOCK_BYTES as u64).unwrap();
        file.sync_data().unwrap();
        disk.rename("one", "two").unwrap();
        disk.sync_names().unwrap();
        let mut back = Aligned::zeroed(4 * BLOCK_BYTES);
        let count = disk.open("two").unwrap().read_at(back.bytes_mut(), 0).unwrap();
        assert_eq!(count, 2 * BLOCK_BYTES);
        assert!(back.bytes()[..BLOCK_BYTES].iter().all(|byte| *byte == 0));
        assert!(back.bytes()[BLOCK_BYTES..count].iter().all(|byte| *byte == 7));
        assert!(disk.free_bytes() > 0);
    }

    #[test]
    fn a_symbolic_link_in_the_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let disk = LinuxDisk::open(folder.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("extent-0")).unwrap();
        assert!(disk.open("extent-0").is_err());
        let names = disk.list().unwrap();
        assert!(names.iter().all(|(name, _)| name == LOCK_NAME), "{names:?}");
    }
}
