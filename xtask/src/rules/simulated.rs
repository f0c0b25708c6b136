//! The crates that run in the simulator as they are reach files through `towline-os` alone: a call
//! past it reaches the files of the machine that simulates.
//!
//! Only the product's code is looked at; tests of these crates may use real files beside it. Not
//! here: clippy's `disallowed_methods`, because in the product the names of `towline_os::fs` are
//! those of the standard library.

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

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let folder = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        if is_test_path(path) || !folder.is_some_and(|folder| SIMULATED.contains(&folder)) {
            continue;
        }
        let code = Source::of(text).code_without_tests();
        for (index, line) in code.lines().enumerate() {
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
