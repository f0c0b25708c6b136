//! The crates of the lower floors touch no world: no file, no socket, no thread, no clock. Time and
//! randomness are arguments, so that a seed decides everything in a test.
//!
//! Only the product's code is looked at; tests of these crates may read files.

use super::is_test_path;
use crate::finding::Finding;
use crate::source::{Source, line_of, words};
use crate::tree::Tree;

/// Crates without I/O (ARCHITECTURE.md, "Floors").
pub(crate) const CRATES_WITHOUT_IO: &[&str] =
    &["types", "core", "amqp", "group", "region", "admin", "node"];
/// Modules of `std` that touch the world.
const FORBIDDEN_MODULES: &[&str] = &["fs", "net", "thread", "process", "env"];
/// Types that read a clock.
const FORBIDDEN_TYPES: &[&str] = &["Instant", "SystemTime"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let folder = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        let Some(folder) = folder.filter(|folder| CRATES_WITHOUT_IO.contains(folder)) else {
            continue;
        };
        if is_test_path(path) {
            continue;
        }
        let code = Source::of(text).code_without_tests();
        for (position, named) in world(&code) {
            let what = format!("`{folder}` has no I/O and no clock, so it may not name `{named}`");
            findings.push(Finding::line(path, line_of(&code, position), what));
        }
    }
    findings
}

/// Every position where code names the world: `std::fs`, `std::{fs, ..}`, `Instant`.
fn world(code: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    for (start, word) in words(code) {
        if FORBIDDEN_TYPES.contains(&word) {
            named.push((start, word.to_owned()));
        }
        if word != "std" {
            continue;
        }
        let Some(path) = code[start + 3..].strip_prefix("::") else { continue };
        let end = path.find(if path.starts_with('{') { '}' } else { ';' }).unwrap_or(path.len());
        let modules: Vec<&str> = if path.starts_with('{') {
            words(&path[..end]).map(|(_, word)| word).collect()
        } else {
            words(path).map(|(_, word)| word).take(1).collect()
        };
        let forbidden = modules.into_iter().filter(|word| FORBIDDEN_MODULES.contains(word));
        named.extend(forbidden.map(|module| (start, format!("std::{module}"))));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn the_world_is_found_in_crates_without_it() {
        for text in [
            "use std::fs;",
            "use std::{collections::BTreeMap, net::TcpStream};",
            "let now = std::time::Instant::now();",
            "use std::time::{Duration, SystemTime};",
            "fn f() { std::thread::yield_now() }",
        ] {
            assert_eq!(check(&tree(&[("crates/core/src/a.rs", text)])).len(), 1, "{text}");
            assert_eq!(check(&tree(&[("crates/server/src/a.rs", text)])), [], "{text}");
        }
    }

    #[test]
    fn durations_and_tests_are_fine() {
        let text = "use std::time::Duration;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(check(&tree(&[("crates/core/src/a.rs", text)])), []);
        assert_eq!(check(&tree(&[("crates/core/tests/model.rs", "use std::fs;")])), []);
    }
}
