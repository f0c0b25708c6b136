//! Open files of old extents: opened when they are first read, and not too many at a time. A log of
//! 20 GB has 320 extents; a start must not open them all, nor a process hold them all.
//!
//! Not here: which extents there are (`extents`, `recover`), writing to them.
//!
//! Invariant: what is handed out was seen to be the extent of that sequence, of this log.

use std::collections::BTreeMap;
use std::sync::Arc;
use towline_os::sync::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::folder::headers::{Identity, check_header};
use crate::folder::names::extent_name;

/// Files that are held open.
const HANDLES_MAX: usize = 64;

/// The open files.
pub struct Handles {
    disk: Arc<dyn Disk>,
    identity: Identity,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// With the number of the call that used it last.
    files: BTreeMap<u64, (Arc<dyn DiskFile>, u64)>,
    calls: u64,
}

impl Handles {
    /// No file is open yet.
    pub fn new(disk: Arc<dyn Disk>, identity: Identity) -> Handles {
        Handles { disk, identity, open: Mutex::default() }
    }

    /// What the header of each extent must say.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The file of an extent, opened and its header checked if it was not open.
    ///
    /// # Errors
    /// [`LogError::Io`]; what the header says when it is not that of this extent.
    pub fn get(&self, sequence: u64) -> Result<Arc<dyn DiskFile>, LogError> {
        if let Some(file) = self.open.lock().get(sequence) {
            return Ok(file);
        }
        let name = extent_name(sequence);
        let file = self.disk.open(&name).map_err(|e| LogError::io("open an extent", &name, e))?;
        check_header(file.as_ref(), sequence, Some(self.identity))?;
        self.put(sequence, Arc::clone(&file));
        Ok(file)
    }

    /// Whether the file of an extent is open, and so was checked.
    pub fn is_open(&self, sequence: u64) -> bool {
        self.open.lock().files.contains_key(&sequence)
    }

    /// Adds a file after its header was checked.
    pub fn put(&self, sequence: u64, file: Arc<dyn DiskFile>) {
        let mut open = self.open.lock();
        open.calls += 1;
        let call = open.calls;
        open.files.insert(sequence, (file, call));
        while open.files.len() > HANDLES_MAX {
            let oldest = open.files.iter().min_by_key(|(_, (_, call))| *call);
            let Some(oldest) = oldest.map(|(sequence, _)| *sequence) else { return };
            open.files.remove(&oldest);
        }
    }

    /// Closes the file of an extent that is released. A caller that still reads it finds nothing
    /// that passes its checks.
    pub fn forget(&self, sequence: u64) {
        self.open.lock().files.remove(&sequence);
    }

    #[cfg(test)]
    /// How many extents are open.
    pub fn open_count(&self) -> usize {
        self.open.lock().files.len()
    }
}

impl Open {
    fn get(&mut self, sequence: u64) -> Option<Arc<dyn DiskFile>> {
        self.calls += 1;
        let (file, call) = self.files.get_mut(&sequence)?;
        *call = self.calls;
        Some(Arc::clone(file))
    }
}
