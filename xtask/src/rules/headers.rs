//! Every program file opens with what it is for: Rust with `//!` on its first line, other languages
//! with a comment before the first thing that is defined. A `tests.rs` has its name for that: it is
//! the tests of the module above it.
//!
//! Whether the text is any good (what it does *not* do, its invariants) is for the reviewer.

use crate::finding::Finding;
use crate::tree::Tree;

/// Shortest header that can say something, in letters.
const HEADER_LETTERS_MIN: usize = 20;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if path.ends_with("/tests.rs") {
            continue;
        }
        let header: usize =
            text.lines().take_while(|line| line.starts_with("//!")).map(|line| line.len()).sum();
        if header < HEADER_LETTERS_MIN {
            let what = "starts without `//!` that says what it is for, what it does not do, and its \
                        invariants";
            findings.push(Finding::line(path, 1, what));
        }
    }
    for (extension, opens, starts_code) in [
        ("java", &["/**", "/*", "//"][..], &["class ", "interface ", "enum ", "record "][..]),
        ("py", &["\"\"\"", "# "], &["import ", "from ", "def ", "class "]),
        ("go", &["//", "/*"], &["package "]),
        ("js", &["//", "/*"], &["import ", "const ", "let ", "function ", "require("]),
        ("mjs", &["//", "/*"], &["import ", "const ", "let ", "function "]),
        ("sh", &["# "], &["set ", "cd "]),
    ] {
        for (path, text) in tree.with_extension(extension) {
            let mut before = text.lines().take_while(|line| {
                !starts_code.iter().any(|start| code_starts(extension, line, start))
            });
            let found = before.any(|line| opens.iter().any(|open| line.trim().starts_with(open)));
            if !found && !text.trim().is_empty() {
                findings.push(Finding::line(path, 1, "starts without a comment on what it is for"));
            }
        }
    }
    findings
}

/// In Java the class may follow modifiers; elsewhere code starts at the margin.
fn code_starts(extension: &str, line: &str, start: &str) -> bool {
    if extension == "java" {
        let comment = line.trim_start().starts_with(['*', '/']);
        return line.contains(start) && !comment;
    }
    line.starts_with(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_file_without_a_header_is_found() {
        for (path, text) in [
            ("a.rs", "use std::fs;\n"),
            ("a.rs", "//! x\n"),
            ("A.java", "package a;\nimport b.C;\npublic final class A {}\n"),
            ("a.py", "#!/usr/bin/env python3\nimport os\n"),
            ("a.go", "package main\n"),
        ] {
            assert_eq!(check(&tree(&[(path, text)])).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn a_file_with_a_header_is_not() {
        for (path, text) in [
            ("a.rs", "//! What the rules know of a message.\nuse std::fs;\n"),
            ("A.java", "package a;\n/** One class of scenarios. */\npublic final class A {}\n"),
            ("a.py", "#!/usr/bin/env python3\n\"\"\"Browses a queue.\"\"\"\nimport os\n"),
            ("a.go", "// Puts and gets.\npackage main\n"),
            ("a.sh", "#!/bin/sh\n# Installs what tests need.\nset -eu\n"),
        ] {
            assert_eq!(check(&tree(&[(path, text)])), [], "{path}: {text}");
        }
    }
}
