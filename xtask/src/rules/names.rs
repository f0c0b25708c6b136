//! Names that say nothing are forbidden for files, folders, modules and types: what they hold goes
//! where it is used, or gets a noun. There is one manager: the queue manager.
//!
//! Does *not* look at functions, variables and fields: there a reader sees the use beside the name.

use super::PROGRAM_EXTENSIONS;
use crate::finding::Finding;
use crate::source::{Source, line_of, words};
use crate::tree::Tree;

const FORBIDDEN: &[&str] = &[
    "util", "utils", "helper", "helpers", "common", "manager", "managers", "data", "info", "infos",
];

/// Names that stay although they hold a forbidden word, each with the reason.
const ALLOWED: &[(&str, &str)] = &[];

/// Words before the name of a module or type.
const INTRODUCERS: &[&str] = &["struct", "enum", "trait", "type", "union", "mod"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in &tree.entries {
        let program = PROGRAM_EXTENSIONS
            .iter()
            .any(|extension| entry.path.rsplit_once('.').is_some_and(|(_, e)| e == *extension));
        if program {
            let parts = entry.path.split('/').filter_map(|part| part.split('.').next());
            for word in parts.filter_map(forbidden_word) {
                let what = format!("`{word}` in the path says nothing; find a noun");
                findings.push(Finding::file(&entry.path, what));
            }
        }
    }
    for (path, text) in tree.with_extension("rs") {
        let code = Source::of(text).code;
        let mut before = "";
        for (start, word) in words(&code) {
            if INTRODUCERS.contains(&before)
                && let Some(forbidden) = forbidden_word(word)
            {
                let what = format!("`{forbidden}` in `{word}` says nothing; find a noun");
                findings.push(Finding::line(path, line_of(&code, start), what));
            }
            before = word;
        }
    }
    findings
}

/// The forbidden word in a name, if there is one.
fn forbidden_word(name: &str) -> Option<String> {
    if ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
        return None;
    }
    let parts = split(name);
    let found = parts.iter().enumerate().find(|(index, part)| {
        let of_queues = *index > 0 && parts[*index - 1] == "queue" && part.as_str() == "manager";
        FORBIDDEN.contains(&part.as_str()) && !of_queues
    });
    found.map(|(_, part)| part.clone())
}

/// `QueueManager`, `queue_manager` and `queue-manager` as `queue`, `manager`.
fn split(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in name.chars() {
        let starts = !letter.is_alphanumeric() || letter.is_uppercase();
        if starts && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn empty_names_are_found_as_file_folder_module_and_type() {
        for (path, text) in [
            ("crates/log/src/util.rs", "//! x"),
            ("crates/common/src/lib.rs", "//! x"),
            ("tests/jms/JmsHelpers.java", ""),
            ("a.rs", "mod string_utils;"),
            ("a.rs", "pub struct ConnectionInfo;"),
            ("a.rs", "enum LinkManager {}"),
            ("a.rs", "type MessageData = u8;"),
        ] {
            assert_eq!(check(&tree(&[(path, text)])).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn the_queue_manager_and_longer_words_are_fine() {
        for (path, text) in [
            ("crates/core/src/queue_manager.rs", "pub struct QueueManager;"),
            ("a.rs", "struct Database; struct Metadata; enum Informed {}"),
            ("a.rs", "struct Link { info: u8, data: u8 } fn data() {}"),
            ("docs/data/notes.md", "mod data;"),
        ] {
            assert_eq!(check(&tree(&[(path, text)])), [], "{path}: {text}");
        }
    }
}
