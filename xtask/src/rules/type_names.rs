//! A type name is defined once per crate, and a type that other files see is called by a noun.
//!
//! `Opened` says nothing where it is used, and two types of one name are mistaken for each other.
//! Test code may name its types as it likes; so may a file name those that only it sees, as long as
//! no other file of the crate has that name.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::imports::{Imports, TypeName, crates, name};
use crate::tree::Tree;

/// Crates that keep the rule. A crate joins when its last name is mended, and none leaves.
const WITH_GOOD_NAMES: &[&str] = &[
    "access",
    "admin",
    "amqp",
    "backup",
    "cli",
    "client",
    "config",
    "core",
    "delegation",
    "disktest",
    "e2e",
    "floating",
    "group",
    "link",
    "load",
    "log",
    "logging",
    "node",
    "replication",
    "sim",
    "tls",
    "types",
    "xtask",
];

/// Words that fit everything.
const EMPTY: &[&str] = &["State", "Place"];

/// Participles that do not end in `ed`.
const IRREGULAR: &[&str] = &[
    "Begun",
    "Born",
    "Bound",
    "Broken",
    "Brought",
    "Built",
    "Chosen",
    "Come",
    "Done",
    "Drawn",
    "Driven",
    "Fed",
    "Felt",
    "Forgotten",
    "Found",
    "Frozen",
    "Given",
    "Gone",
    "Gotten",
    "Grown",
    "Heard",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Laid",
    "Led",
    "Left",
    "Lent",
    "Lost",
    "Made",
    "Meant",
    "Met",
    "Paid",
    "Read",
    "Risen",
    "Said",
    "Seen",
    "Sent",
    "Set",
    "Shown",
    "Shut",
    "Sold",
    "Spent",
    "Spoken",
    "Stolen",
    "Sworn",
    "Taken",
    "Taught",
    "Thrown",
    "Told",
    "Torn",
    "Understood",
    "Woken",
    "Won",
    "Worn",
    "Written",
];

/// Names that look like participles and may stay, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("Aligned", "memory whose address suits direct I/O; the word of the field"),
    ("Described", "a described type, as AMQP calls it (part 1, 1.1.2)"),
    ("Feed", "a noun"),
    ("Need", "a noun"),
    ("Seed", "a noun"),
    ("Shared", "what threads share, behind one reference; the word of the field"),
    ("Speed", "a noun"),
    ("Unsettled", "the unsettled map of a link, as AMQP calls it (part 2, 2.6.13)"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    check_crates(tree, WITH_GOOD_NAMES)
}

fn check_crates(tree: &Tree, with_good_names: &[&str]) -> Vec<Finding> {
    let folders = crates(tree).into_iter().filter(|folder| with_good_names.contains(&name(folder)));
    folders.flat_map(|folder| findings(&Imports::of(tree, folder))).collect()
}

/// What `cargo xtask names` prints: what is to mend in one crate, or in all.
pub(crate) fn report(tree: &Tree, only: Option<&str>) -> String {
    let wanted = |folder: &&str| only.is_none_or(|only| only == *folder || only == name(folder));
    let mut report = String::new();
    for folder in crates(tree).into_iter().filter(wanted) {
        let findings = findings(&Imports::of(tree, folder));
        report.push_str(&format!("{folder}: {} type names to mend\n", findings.len()));
        report.extend(findings.iter().map(|finding| format!("  {finding}\n")));
    }
    report
}

fn findings(imports: &Imports) -> Vec<Finding> {
    let mut first: BTreeMap<&str, &TypeName> = BTreeMap::new();
    let mut findings = Vec::new();
    for definition in &imports.types {
        let path = &imports.files[definition.file];
        let name = &definition.name;
        if definition.is_visible && is_no_noun(name) {
            let what = format!("`{name}` is no noun; name what it holds");
            findings.push(Finding::line(path, definition.line, what));
        }
        match first.get(name.as_str()) {
            Some(other) => {
                let (path_of_other, line) = (&imports.files[other.file], other.line);
                let what = format!("`{name}` is defined at {path_of_other}:{line} too");
                findings.push(Finding::line(path, definition.line, what));
            }
            None => drop(first.insert(name, definition)),
        }
    }
    findings
}

/// Whether a name is one word, and that a participle or empty.
fn is_no_noun(name: &str) -> bool {
    let is_one_word = name.chars().filter(|letter| letter.is_uppercase()).count() == 1;
    let is_participle = name.ends_with("ed") || IRREGULAR.contains(&name);
    let is_allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    is_one_word && !is_allowed && (is_participle || EMPTY.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    fn of_files(a: &str, b: &str) -> Vec<String> {
        let root = ("x/src/lib.rs", "mod a; mod b;");
        let tree = tree(&[("x/Cargo.toml", ""), root, ("x/src/a.rs", a), ("x/src/b.rs", b)]);
        assert_eq!(check_crates(&tree, &["y"]), []);
        check_crates(&tree, &["x"]).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_type_name_is_defined_once_per_crate() {
        assert_eq!(
            of_files("struct Lane;", "//! x\npub enum Lane {}"),
            ["x/src/b.rs:2: `Lane` is defined at x/src/a.rs:1 too"]
        );
        assert_eq!(of_files("trait Lane {}", "type Lane = u8;").len(), 1);
        assert_eq!(of_files("mod one { struct A; } mod two { struct A; }", "").len(), 1);
    }

    #[test]
    fn tests_associated_types_and_functions_may_share_a_name() {
        assert!(of_files("struct A;", "#[cfg(test)] mod tests { struct A; }").is_empty());
        let of_impl =
            "impl Iterator for B { type Item = u8; } impl Iterator for C { type Item = u8; }";
        assert!(of_files(of_impl, "fn a() { struct Item; }").is_empty());
    }

    #[test]
    fn what_other_files_see_is_a_noun() {
        for name in ["State", "Place", "Opened", "Told", "Held"] {
            assert_eq!(of_files(&format!("pub(crate) struct {name};"), "").len(), 1, "{name}");
            assert_eq!(of_files(&format!("pub enum {name} {{}}"), "").len(), 1, "{name}");
            assert!(of_files(&format!("struct {name};"), "").is_empty(), "{name}");
            assert!(of_files(&format!("pub struct {name}Queue;"), "").is_empty(), "{name}");
        }
        assert!(of_files("pub struct Seed; pub struct Queue;", "").is_empty());
    }

    #[test]
    fn the_report_counts_for_each_crate() {
        let tree = tree(&[("x/Cargo.toml", ""), ("x/src/lib.rs", "pub struct Told;")]);
        let expected = "x: 1 type names to mend\n  \
                        x/src/lib.rs:1: `Told` is no noun; name what it holds\n";
        assert_eq!(report(&tree, None), expected);
        assert_eq!(report(&tree, Some("y")), "");
    }
}
