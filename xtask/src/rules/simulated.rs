//! The crates that run in the simulator as they are reach files, threads, locks and the time
//! through `towline-os` alone: a call past it reaches those of the machine that simulates. A lock
//! of that machine hangs the whole run when a simulated thread waits for another one, and the time
//! of that machine makes two runs of a seed differ.
//!
//! Only the product's code is looked at; tests of these crates may use real ones beside it. Not
//! here: clippy's `disallowed_methods`, because in the product the names of `towline_os` are those
//! of the standard library.

use super::is_test_path;
use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Crates that the simulator runs.
const SIMULATED: &[&str] =
    &["log", "backup", "process", "standby", "engine", "replication", "replica"];

/// What reaches real files, and words beside which it does not.
const PAST_IT: &[(&str, &[&str])] = &[
    ("std::fs", &[]),
    ("std::os::unix::fs", &[]),
    ("tokio::fs", &[]),
    // Its flags are numbers.
    ("rustix::fs", &["rustix::fs::OFlags;"]),
    ("nix::fcntl", &[]),
    (".exists()", &[]),
    (".try_exists()", &[]),
    (".canonicalize()", &[]),
    (".symlink_metadata()", &[]),
    (".read_dir()", &[]),
    (".read_link()", &[]),
    (".is_dir()", &["file_type()", "metadata("]),
    (".is_file()", &["file_type()", "metadata("]),
    (".is_symlink()", &["file_type()", "metadata("]),
];

/// The same for threads, locks and the time.
const PAST_THE_SCHEDULE: &[&str] = &[
    "std::thread",
    "std::time::Instant",
    "std::time::{Duration, Instant",
    "std::time::SystemTime",
    "SystemTime::now",
    "std::sync::Mutex",
    "std::sync::Condvar",
    "std::sync::RwLock",
    "std::sync::OnceLock",
    "std::sync::mpsc",
    "parking_lot",
    "tokio::spawn",
    "tokio::time",
    "tokio::task",
    "tokio::sync::mpsc",
];

/// Files that use them all the same, and why that is well.
const NOT_SIMULATED: &[(&str, &str)] = &[
    ("crates/engine/src/large/", "large bodies, which no simulated client sends"),
    ("crates/engine/src/backup_folders.rs", "a lock that is never held while a thread waits"),
    ("crates/replication/src/repair_at_start.rs", "the links before a start have a stand-in"),
    ("crates/replication/src/reexec.rs", "a process that executes a program"),
    ("crates/standby/src/testing.rs", "of tests"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let folder = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        if is_test_path(path) || !folder.is_some_and(|folder| SIMULATED.contains(&folder)) {
            continue;
        }
        let is_scheduled = !NOT_SIMULATED.iter().any(|(begin, _)| path.starts_with(begin));
        let code = Source::of(text).code_without_tests();
        for (index, line) in code.lines().enumerate() {
            let past =
                PAST_THE_SCHEDULE.iter().find(|words| is_scheduled && line.contains(**words));
            if let Some(words) = past {
                let what = format!("`{words}` is not that of a simulation: use that of towline_os");
                findings.push(Finding::line(path, index + 1, what));
            }
            let past_it = PAST_IT.iter().find(|(words, beside)| {
                line.contains(words) && !beside.iter().any(|beside| line.contains(beside))
            });
            if let Some((words, _)) = past_it {
                let what = format!(
                    "`{words}` does not reach the files of a simulation: use towline_os::fs"
                );
                findings.push(Finding::line(path, index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn files_past_the_simulation_are_found() {
        for text in [
            "use std::fs;",
            "use std::fs::File;",
            "fn f() { std::fs::remove_file(path).ok(); }",
            "use std::os::unix::fs::FileExt;",
            "use rustix::fs::{FlockOperation, OFlags};",
            "if folder.join(NAME).exists() {",
            "let there = folder.is_dir();",
        ] {
            assert_eq!(check(&tree(&[("crates/log/src/a.rs", text)])).len(), 1, "{text}");
            assert_eq!(check(&tree(&[("crates/cli/src/a.rs", text)])), [], "{text}");
        }
    }

    #[test]
    fn threads_locks_and_clocks_past_the_simulation_are_found_where_code_is_simulated() {
        for text in [
            "std::thread::spawn(|| ());",
            "use std::time::Instant;",
            "use std::time::{Duration, Instant};",
            "use std::sync::Mutex;",
            "use parking_lot::RwLock;",
            "use tokio::time::sleep;",
        ] {
            assert_eq!(check(&tree(&[("crates/log/src/a.rs", text)])).len(), 1, "{text}");
            assert_eq!(check(&tree(&[("crates/cli/src/a.rs", text)])), [], "{text}");
        }
        let text = "use std::sync::{Arc, atomic};\nuse towline_os::time::Instant;";
        assert_eq!(check(&tree(&[("crates/log/src/a.rs", text)])), []);
    }

    #[test]
    fn what_is_not_simulated_is_there() {
        let project = Tree::of_this_project().unwrap();
        for (begin, _) in NOT_SIMULATED {
            let mut paths = project.with_extension("rs").map(|(path, _)| path);
            assert!(paths.any(|path| path.starts_with(begin)), "{begin}");
        }
    }

    #[test]
    fn files_of_the_simulation_and_of_tests_are_fine() {
        for text in [
            "use towline_os::fs::{self, File};",
            "use rustix::fs::OFlags;",
            "if entry.file_type()?.is_file() {",
            "#[cfg(test)]\nmod tests { use std::fs; }\n",
        ] {
            assert_eq!(check(&tree(&[("crates/log/src/a.rs", text)])), [], "{text}");
        }
        assert_eq!(check(&tree(&[("crates/log/src/a/tests.rs", "use std::fs;")])), []);
    }
}
