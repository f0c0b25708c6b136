//! The files of the project as they stand, read once. Knows no rule.
//!
//! It walks folders and asks no version control system, so that it gives the same answer in a fresh
//! clone, in an unpacked archive and in a container that owns the files under another name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that hold what tools made; all are in .gitignore.
const MADE_BY_TOOLS: &[&str] =
    &[".git", "target", "node_modules", "__pycache__", ".cache", ".venv", ".pytest_cache"];
/// Folders at the root only: where `make run` keeps its messages.
const MADE_AT_ROOT: &[&str] = &["data"];

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Its text; `None` when it is not UTF-8.
    pub(crate) text: Option<String>,
}

/// All files, sorted by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Sorted by path.
    pub(crate) entries: Vec<Entry>,
}

impl Tree {
    /// The project that this program was built from.
    ///
    /// # Errors
    /// When a file or folder cannot be read.
    pub(crate) fn of_this_project() -> io::Result<Tree> {
        Tree::read(&project_root())
    }

    /// Everything under `root` except what tools made.
    ///
    /// # Errors
    /// When a file or folder cannot be read.
    pub(crate) fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let kind = entry.file_type()?;
                let made = MADE_BY_TOOLS.contains(&name.as_str())
                    || (folder == root && MADE_AT_ROOT.contains(&name.as_str()));
                if kind.is_dir() && !made {
                    folders.push(entry.path());
                } else if kind.is_file() && !made && !is_log(&name) {
                    tree.entries.push(read_entry(root, &entry.path())?);
                }
            }
        }
        tree.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// Files with a path that ends with `.extension`, with their text.
    pub(crate) fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries.iter().filter_map(move |entry| {
            let (_, found) = entry.path.rsplit_once('.')?;
            let text = entry.text.as_deref()?;
            (found == extension).then_some((entry.path.as_str(), text))
        })
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.path == path)?.text.as_deref()
    }

    /// Whether a file or folder of that path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.entries.iter().any(|entry| entry.path == path || entry.path.starts_with(&folder))
    }
}

/// The root of the project that this program was built from.
pub(crate) fn project_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// What programs print while they run; in .gitignore.
fn is_log(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension == "log")
}

fn read_entry(root: &Path, path: &Path) -> io::Result<Entry> {
    let content = fs::read(path)?;
    let relative = path.strip_prefix(root).unwrap_or(path);
    Ok(Entry {
        path: relative.to_string_lossy().replace('\\', "/"),
        bytes: content.len() as u64,
        text: String::from_utf8(content).ok(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree made of texts.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let entries = files.iter().map(|(path, text)| Entry {
            path: (*path).to_owned(),
            bytes: text.len() as u64,
            text: Some((*text).to_owned()),
        });
        Tree { entries: entries.collect() }
    }

    #[test]
    fn what_tools_made_is_not_read() {
        let scratch = std::env::temp_dir().join(format!("xtask-tree-{}", std::process::id()));
        for folder in ["target", "data", "docs/data"] {
            fs::create_dir_all(scratch.join(folder)).unwrap();
            fs::write(scratch.join(folder).join("one.md"), "text").unwrap();
        }
        let tree = Tree::read(&scratch).unwrap();
        fs::remove_dir_all(&scratch).unwrap();
        let paths: Vec<&str> = tree.entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["docs/data/one.md"]);
    }
}
