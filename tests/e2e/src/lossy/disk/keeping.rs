//! Leaves the disk's content in a folder, for people to look at after a test that failed.
//!
//! `seen` has the files as programs see them, `durable` as a power cut leaves them that keeps
//! nothing; `changes.txt` says what is between them: changes of names that are not durable, and
//! pages of files that are only written. Not here: when. Special files are left out.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Try;

use super::{Body, Disk, ROOT};

impl Disk {
    /// See the module; the folder is made.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_in(&self, folder: &Path) -> Try {
        let mut changes = String::new();
        self.keep_node(ROOT, &folder.join("seen"), true)?;
        self.keep_node(ROOT, &folder.join("durable"), false)?;
        self.tell_changes(ROOT, Path::new("/"), &mut changes)?;
        fs::write(folder.join("changes.txt"), changes)?;
        Ok(())
    }

    fn keep_node(&self, number: u64, at: &Path, seen: bool) -> Try {
        match self.nodes.get(&number).map(|node| &node.body) {
            Some(Body::File(file)) => {
                let bytes = if seen { file.read(0, file.bytes) } else { file.durable() };
                fs::write(at, bytes)?;
            }
            Some(Body::Folder(folder)) => {
                fs::create_dir_all(at)?;
                for (name, node) in if seen { &folder.names } else { &folder.synced } {
                    self.keep_node(*node, &at.join(name), seen)?;
                }
            }
            Some(Body::Special) | None => {}
        }
        Ok(())
    }

    fn tell_changes(&self, number: u64, path: &Path, text: &mut String) -> Try {
        match self.nodes.get(&number).map(|node| &node.body) {
            Some(Body::File(file)) => {
                let (pages, durable) = (file.unsynced_pages(), file.durable_bytes());
                if !pages.is_empty() || durable != file.bytes {
                    let (path, bytes) = (path.display(), file.bytes);
                    writeln!(
                        text,
                        "{path} (node {number}): {bytes} bytes, {durable} durable, \
                         pages only written: {pages:?}"
                    )?;
                }
            }
            Some(Body::Folder(folder)) => {
                let path_text = path.display();
                writeln!(text, "{path_text} (folder {number})")?;
                for change in folder.journal() {
                    writeln!(text, "{path_text}: not durable: {change}")?;
                }
                for (name, node) in &folder.names {
                    self.tell_changes(*node, &path.join::<&OsStr>(name), text)?;
                }
            }
            Some(Body::Special) | None => {}
        }
        Ok(())
    }
}
