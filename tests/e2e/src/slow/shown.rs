//! Answers the kernel: waits, then does the same to the folder that is shown.
//!
//! Every open file is in direct mode, so each read and write of a program comes here; names and
//! attributes are remembered by the kernel for a second. O_DIRECT is passed on, so that what a
//! program reads past the page cache is not read into it below. The kernel cuts a read or write of
//! a program into pieces (of 1 MiB, unless its `fs.fuse.max_pages_limit` is raised), each of which
//! waits. Not here: links, times, extended attributes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, FileType as NodeType, Mode};

use crate::slow::aligned::{BLOCK, Buffers};
use crate::slow::count::{Counts, Operation};
use crate::slow::gate::Gate;
use crate::slow::numbers::{Numbers, ROOT};

/// How long the kernel remembers names and attributes: as usual with FUSE, less than NFS does.
/// Without it, one open of a program is three operations, one for each part of the path.
const REMEMBER: Duration = Duration::from_secs(1);
const WRITE_ONLY: i32 = 0o1;
const READ_AND_WRITE: i32 = 0o2;
/// O_TRUNC, O_DSYNC, O_DIRECT and the rest of O_SYNC: what is passed on when a file is opened.
const PASSED_ON: i32 = 0o1000 | 0o10_000 | 0o40_000 | 0o4_000_000;

type Handles = HashMap<u64, Arc<File>>;

/// See the module.
pub(super) struct SlowFolder {
    root: PathBuf,
    delay: Duration,
    counts: Arc<Counts>,
    gate: Arc<Gate>,
    numbers: Mutex<Numbers>,
    handles: Mutex<Handles>,
    next: AtomicU64,
    buffers: Buffers,
}

impl SlowFolder {
    /// Shows a folder.
    pub(super) fn new(
        root: PathBuf,
        delay: Duration,
        (counts, gate): (Arc<Counts>, Arc<Gate>),
    ) -> Self {
        let numbers = Mutex::new(Numbers::new(root.clone()));
        let (handles, next) = (Mutex::default(), AtomicU64::new(1));
        Self { root, delay, counts, gate, numbers, handles, next, buffers: Buffers::new() }
    }

    fn wait(&self, operation: Operation) {
        self.counts.add(operation);
        self.gate.pass(operation);
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }

    fn path(&self, node: INodeNo) -> io::Result<PathBuf> {
        let path = lock(&self.numbers).path(node.0).map(Path::to_path_buf);
        path.ok_or_else(gone)
    }

    fn below(&self, folder: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        lock(&self.numbers).below(folder.0, name).ok_or_else(gone)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        lock(&self.handles).get(&handle.0).map(Arc::clone).ok_or_else(gone)
    }

    fn keep(&self, file: File) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.handles).insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn entry(&self, path: &Path) -> io::Result<FileAttr> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(attributes(lock(&self.numbers).number(path), &metadata))
    }

    fn attributes(&self, node: INodeNo, handle: Option<FileHandle>) -> io::Result<FileAttr> {
        let metadata = match handle {
            Some(handle) => self.file(handle)?.metadata()?,
            None => fs::symlink_metadata(self.path(node)?)?,
        };
        Ok(attributes(node.0, &metadata))
    }

    fn resize(&self, node: INodeNo, handle: Option<FileHandle>, bytes: u64) -> io::Result<()> {
        match handle {
            Some(handle) => self.file(handle)?.set_len(bytes),
            None => OpenOptions::new().write(true).open(self.path(node)?)?.set_len(bytes),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        lock(&self.numbers).rename(from, to);
        Ok(())
    }

    fn list(&self, folder: INodeNo) -> io::Result<Vec<(u64, FileType, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path(folder)?)? {
            let entry = entry?;
            let path = entry.path();
            let number = lock(&self.numbers).number(&path);
            found.push((number, file_type(&entry.metadata()?), path));
        }
        found.sort_unstable_by(|one, other| one.2.cmp(&other.2));
        Ok(found)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(Errno::ENOENT.code())
}

fn file_type(metadata: &Metadata) -> FileType {
    if metadata.is_dir() {
        FileType::Directory
    } else if metadata.is_file() {
        FileType::RegularFile
    } else {
        FileType::Socket
    }
}

fn attributes(number: u64, metadata: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: metadata.accessed().unwrap_or(UNIX_EPOCH),
        mtime: metadata.modified().unwrap_or(UNIX_EPOCH),
        ctime: metadata.modified().unwrap_or(UNIX_EPOCH),
        crtime: UNIX_EPOCH,
        kind: file_type(metadata),
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0o600),
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn open(path: &Path, flags: i32, made_with: Option<u32>) -> io::Result<File> {
    let writes = flags & (WRITE_ONLY | READ_AND_WRITE) != 0;
    let mut options = OpenOptions::new();
    options.read(flags & WRITE_ONLY == 0).write(writes).custom_flags(flags & PASSED_ON);
    if let Some(mode) = made_with {
        options.write(true).create(true).mode(mode & 0o7777);
    }
    options.open(path)
}

fn entry(found: io::Result<FileAttr>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&REMEMBER, &found, Generation(0)),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn empty(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn attr(found: io::Result<FileAttr>, reply: ReplyAttr) {
    match found {
        Ok(found) => reply.attr(&REMEMBER, &found),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn direct() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for SlowFolder {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait(Operation::Look);
        entry(self.below(parent, name).and_then(|path| self.entry(&path)), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.wait(Operation::Look);
        attr(self.attributes(ino, handle), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.wait(Operation::Other);
        let sized = size.map_or(Ok(()), |bytes| self.resize(ino, handle, bytes));
        let moded = mode.map_or(Ok(()), |mode| {
            fs::set_permissions(self.path(ino)?, Permissions::from_mode(mode & 0o7777))
        });
        attr(sized.and(moded).and_then(|()| self.attributes(ino, handle)), reply);
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        self.wait(Operation::Other);
        let made = self.below(parent, name).and_then(|path| {
            let (kind, bits) = (NodeType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, bits, 0)?;
            self.entry(&path)
        });
        entry(made, reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        self.wait(Operation::Other);
        let made = self.below(parent, name).and_then(|path| {
            fs::DirBuilder::new().mode(mode & 0o7777).create(&path)?;
            self.entry(&path)
        });
        entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait(Operation::Other);
        let done = self.below(parent, name).and_then(|path| {
            fs::remove_file(&path)?;
            lock(&self.numbers).remove(&path);
            Ok(())
        });
        empty(done, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait(Operation::Other);
        let done = self.below(parent, name).and_then(|path| {
            fs::remove_dir(&path)?;
            lock(&self.numbers).remove(&path);
            Ok(())
        });
        empty(done, reply);
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
        self.wait(Operation::Other);
        if !flags.is_empty() {
            reply.error(Errno::EINVAL);
            return;
        }
        let done = self.below(parent, name).and_then(|from| {
            let to = self.below(newparent, newname)?;
            self.rename(&from, &to)
        });
        empty(done, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.wait(Operation::Open);
        match self.path(ino).and_then(|path| open(&path, flags.0, None)) {
            Ok(file) => reply.opened(self.keep(file), direct()),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.wait(Operation::Open);
        let made = self.below(parent, name).and_then(|path| {
            let file = open(&path, flags, Some(mode))?;
            Ok((self.entry(&path)?, file))
        });
        match made {
            Ok((found, file)) => {
                let handle = self.keep(file);
                reply.created(&REMEMBER, &found, Generation(0), handle, direct());
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.handles).remove(&handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.wait(Operation::Read);
        self.buffers.with(usize::try_from(size).unwrap_or(0), |bytes| {
            match self.file(handle).and_then(|file| read(&file, offset, bytes)) {
                Ok(filled) => {
                    self.counts.add_read_bytes(filled);
                    reply.data(bytes.get(..filled).unwrap_or_default());
                }
                Err(error) => reply.error(Errno::from(error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.wait(Operation::Write);
        self.counts.add_written_bytes(bytes.len());
        match self.file(handle).and_then(|file| write(&self.buffers, &file, offset, bytes)) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, only: bool, reply: ReplyEmpty) {
        self.wait(Operation::Sync);
        let done = self
            .file(handle)
            .and_then(|file| if only { file.sync_data() } else { file.sync_all() });
        empty(done, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait(Operation::Sync);
        empty(self.path(ino).and_then(|path| File::open(path)?.sync_all()), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.wait(Operation::List);
        match self.list(ino) {
            Ok(found) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                for (at, (number, kind, path)) in found.iter().enumerate().skip(start) {
                    let Some(name) = path.file_name() else { continue };
                    if reply.add(INodeNo(*number), at as u64 + 1, *kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        // Also while it hangs: as on a file system that is frozen.
        self.counts.add(Operation::Other);
        debug_assert!(ino.0 >= ROOT, "the kernel asks for nodes that we named");
        match rustix::fs::statvfs(&self.root) {
            Ok(room) => reply.statfs(
                room.f_blocks,
                room.f_bfree,
                room.f_bavail,
                room.f_files,
                room.f_ffree,
                u32::try_from(room.f_bsize).unwrap_or(4096),
                255,
                u32::try_from(room.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(Errno::from(io::Error::from(error))),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.wait(Operation::Other);
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = self
            .file(handle)
            .and_then(|file| Ok(rustix::fs::fallocate(&file, flags, offset, length)?));
        empty(done, reply);
    }
}

/// Fills `bytes` from `offset`; how many came, fewer at the end of the file.
fn read(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64))? {
            0 => break,
            // A direct read that ends inside a block ended at the end of the file.
            more => {
                filled = filled.saturating_add(more);
                if !filled.is_multiple_of(BLOCK) {
                    break;
                }
            }
        }
    }
    Ok(filled)
}

/// Writes from an aligned copy: the kernel's bytes begin anywhere.
fn write(buffers: &Buffers, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    buffers.with(bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        file.write_all_at(copy, offset)
    })
}
