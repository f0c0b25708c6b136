//! Which number stands for which path below the folder that is shown.
//!
//! Numbers are given on first sight and never used again. A rename takes along all that lies below.
//! Not here: any file. Invariant: a path has at most one number.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Number of the folder itself.
pub(super) const ROOT: u64 = 1;

/// See the module.
pub(super) struct Numbers {
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    next: u64,
}

impl Numbers {
    /// Only the folder itself is known.
    pub(super) fn new(root: PathBuf) -> Self {
        let paths = HashMap::from([(ROOT, root.clone())]);
        Self { paths, numbers: HashMap::from([(root, ROOT)]), next: ROOT + 1 }
    }

    /// The path of a number, when it has one.
    pub(super) fn path(&self, number: u64) -> Option<&Path> {
        self.paths.get(&number).map(PathBuf::as_path)
    }

    /// The path of a name in a folder.
    pub(super) fn below(&self, folder: u64, name: &OsStr) -> Option<PathBuf> {
        Some(self.path(folder)?.join(name))
    }

    /// The number of a path: its own, or a new one.
    pub(super) fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(path.to_path_buf(), number);
        self.paths.insert(number, path.to_path_buf());
        number
    }

    /// A path is gone: a process that still has its number open continues with the file's handle.
    pub(super) fn remove(&mut self, path: &Path) {
        if let Some(number) = self.numbers.remove(path) {
            self.paths.remove(&number);
        }
    }

    /// A path and all below it have another name now.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.remove(to);
        let moved: Vec<(PathBuf, u64)> = self
            .numbers
            .iter()
            .filter(|(path, _)| path.starts_with(from))
            .map(|(path, number)| (path.clone(), *number))
            .collect();
        for (old, number) in moved {
            let Ok(rest) = old.strip_prefix(from) else { continue };
            let new = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            self.numbers.remove(&old);
            self.numbers.insert(new.clone(), number);
            self.paths.insert(number, new);
        }
    }
}
