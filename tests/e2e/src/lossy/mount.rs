//! Shows a [`Disk`] to the kernel through FUSE, and lets a test cut its power.
//!
//! Every open file is in direct mode, so no page cache hides what the disk holds, and O_DIRECT
//! works. The mount goes away when [`Lossy`] is dropped. Not here: what is durable (disk.rs).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use tempfile::TempDir;

use crate::chance::Chance;
use crate::lossy::disk::{Disk, Kind, Look, No, PAGE_BYTES};
use crate::{Try, paths};

/// Nothing is remembered by the kernel: after a power cut it must ask again.
const FORGET_AT_ONCE: Duration = Duration::ZERO;
/// O_DSYNC, also set in O_SYNC.
const WRITE_IS_SYNC: i32 = 0o10_000;

/// A mounted disk that forgets.
pub struct Lossy {
    session: Option<BackgroundSession>,
    disk: Arc<Mutex<Disk>>,
    folder: TempDir,
}

impl Lossy {
    /// Mounts an empty disk of `bytes_max` bytes below the target folder.
    ///
    /// # Errors
    /// When FUSE is not there (tests/install.sh installs `fuse3`; `/dev/fuse` must be usable).
    pub fn mount(bytes_max: u64) -> Try<Self> {
        let below = paths::target_folder()?.join("e2e").join("mounts");
        std::fs::create_dir_all(&below)?;
        let folder = tempfile::Builder::new().prefix("lossy-").tempdir_in(below)?;
        let disk = Arc::new(Mutex::new(Disk::new(bytes_max)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("towline-lossy".into())];
        let shown = MountedDisk { disk: Arc::clone(&disk) };
        let session = fuser::spawn_mount(shown, folder.path(), &config)
            .map_err(|error| format!("cannot mount with FUSE: {error}; see tests/install.sh"))?;
        Ok(Self { session: Some(session), disk, folder })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().to_path_buf()
    }

    /// The power goes: about `keep_percent` of what was not synced stays. Nothing may be open.
    pub fn cut_power(&self, keep_percent: u64, chance: &mut Chance) {
        lock(&self.disk).cut_power(keep_percent, chance);
    }

    /// The disk itself: its size, its faults.
    pub fn with_disk<T>(&self, act: impl FnOnce(&mut Disk) -> T) -> T {
        act(&mut lock(&self.disk))
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.session.take().map(BackgroundSession::umount_and_join) {
            eprintln!("cannot unmount {}: {error}", self.folder.path().display());
        }
    }
}

struct MountedDisk {
    disk: Arc<Mutex<Disk>>,
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno(no: No) -> Errno {
    match no {
        No::Entry => Errno::ENOENT,
        No::Exists => Errno::EEXIST,
        No::NotEmpty => Errno::ENOTEMPTY,
        No::Kind => Errno::EINVAL,
        No::Space => Errno::ENOSPC,
        No::Broken => Errno::EIO,
    }
}

fn file_type(look: Look) -> FileType {
    match look.kind {
        Kind::File => FileType::RegularFile,
        Kind::Folder => FileType::Directory,
        Kind::Special => FileType::Socket,
    }
}

fn attributes(look: Look, request: &Request) -> FileAttr {
    let now = SystemTime::now();
    FileAttr {
        ino: INodeNo(look.node),
        size: look.bytes,
        blocks: look.bytes.div_ceil(512),
        atime: now,
        mtime: now,
        ctime: now,
        crtime: UNIX_EPOCH,
        kind: file_type(look),
        perm: u16::try_from(look.mode & 0o7777).unwrap_or(0o600),
        nlink: 1,
        uid: request.uid(),
        gid: request.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn entry(found: Result<Look, No>, request: &Request, reply: ReplyEntry) {
    match found {
        Ok(look) => reply.entry(&FORGET_AT_ONCE, &attributes(look, request), Generation(0)),
        Err(no) => reply.error(errno(no)),
    }
}

fn empty(done: Result<(), No>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(no) => reply.error(errno(no)),
    }
}

impl Filesystem for MountedDisk {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(lock(&self.disk).find(parent.0, name), request, reply);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match lock(&self.disk).look(ino.0) {
            Ok(look) => reply.attr(&FORGET_AT_ONCE, &attributes(look, request)),
            Err(no) => reply.error(errno(no)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut disk = lock(&self.disk);
        let sized = size.map_or(Ok(()), |bytes| disk.resize(ino.0, bytes));
        let moded = mode.map_or(Ok(()), |mode| disk.set_mode(ino.0, mode));
        match sized.and(moded).and_then(|()| disk.look(ino.0)) {
            Ok(look) => reply.attr(&FORGET_AT_ONCE, &attributes(look, request)),
            Err(no) => reply.error(errno(no)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let kind = if mode & 0o170_000 == 0o100_000 { Kind::File } else { Kind::Special };
        entry(lock(&self.disk).make(parent.0, name, kind, mode), request, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode | 0o040_000;
        entry(lock(&self.disk).make(parent.0, name, Kind::Folder, mode), request, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(lock(&self.disk).remove(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(lock(&self.disk).remove(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.is_empty() {
            empty(lock(&self.disk).rename(parent.0, name, newparent.0, newname), reply);
        } else {
            reply.error(Errno::EINVAL);
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match lock(&self.disk).make(parent.0, name, Kind::File, mode | 0o100_000) {
            Ok(look) => reply.created(
                &FORGET_AT_ONCE,
                &attributes(look, request),
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO,
            ),
            Err(no) => reply.error(errno(no)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match lock(&self.disk).read(ino.0, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(no) => reply.error(errno(no)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut disk = lock(&self.disk);
        let written = disk.write(ino.0, offset, bytes);
        let synced = if flags.0 & WRITE_IS_SYNC == 0 { Ok(()) } else { disk.sync_file(ino.0) };
        match written.and(synced) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(no) => reply.error(errno(no)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(lock(&self.disk).sync_file(ino.0), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(lock(&self.disk).sync_folder(ino.0), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match lock(&self.disk).list(ino.0) {
            Ok(names) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                for (at, (name, look)) in names.iter().enumerate().skip(start) {
                    let next = at as u64 + 1;
                    if reply.add(INodeNo(look.node), next, file_type(*look), name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(no) => reply.error(errno(no)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (bytes_max, used) = lock(&self.disk).room();
        let page = PAGE_BYTES as u64;
        let free = bytes_max.saturating_sub(used) / page;
        reply.statfs(bytes_max / page, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode == 0 {
            empty(lock(&self.disk).extend(ino.0, offset + length), reply);
        } else {
            reply.error(Errno::EOPNOTSUPP);
        }
    }
}

/// A folder on the mounted disk, made and durable before the test starts.
///
/// # Errors
/// When it cannot be made.
pub fn folder_on(lossy: &Lossy, name: &str) -> Try<PathBuf> {
    let path = lossy.path().join(name);
    std::fs::create_dir(&path)?;
    sync_folder(&lossy.path())?;
    Ok(path)
}

fn sync_folder(path: &Path) -> Try {
    std::fs::File::open(path)?.sync_all()?;
    Ok(())
}
