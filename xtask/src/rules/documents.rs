//! The documents of the house: those that must exist, decisions named by their date and complete,
//! and links that lead somewhere: one whose text is a path leads to the file of that path, and code
//! that a document names exists. Does *not* follow links out of the project.

use std::collections::HashSet;

use crate::finding::Finding;
use crate::tree::Tree;

const MUST_EXIST: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE",
    "Makefile",
    ".ci/run",
    "deny.toml",
    "clippy.toml",
    "rustfmt.toml",
    "rust-toolchain.toml",
    "docs/glossary.md",
    "docs/tutorial.md",
];
/// What a decision must contain (docs/adr/README.md).
const DECISION_HEADINGS: &[&str] = &[
    "## Context",
    "## Decision",
    "## Alternatives",
    "## Consequences",
    "## How we would notice that it was wrong",
];

/// Endings by which the text of a link is taken for a path.
const PATH_ENDINGS: &[&str] = &[
    "/", ".conf", ".go", ".java", ".js", ".json", ".md", ".py", ".rs", ".service", ".sh", ".toml",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let missing = MUST_EXIST.iter().filter(|path| !tree.has(path));
    let mut findings: Vec<Finding> =
        missing.map(|path| Finding::file(path, "is missing")).collect();
    if !tree.text("LICENSE").is_some_and(|text| text.contains("Apache License")) {
        findings.push(Finding::file("LICENSE", "must be the Apache License 2.0"));
    }
    let functions = functions(tree);
    for (path, text) in tree.with_extension("md") {
        findings.extend(broken_links(tree, path, text));
        if path == "ARCHITECTURE.md" || path.starts_with("docs/") {
            findings.extend(missing_code(tree, &functions, path, text));
        }
        if path.starts_with("docs/adr/") && path != "docs/adr/README.md" {
            findings.extend(check_decision(path, text));
        }
    }
    findings
}

fn check_decision(path: &str, text: &str) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut findings = Vec::new();
    if !starts_with_a_date(name) {
        findings
            .push(Finding::file(path, "the name of a decision starts with its date, YYYY-MM-DD-"));
    }
    for heading in DECISION_HEADINGS {
        if !text.lines().any(|line| line == *heading) {
            findings.push(Finding::file(path, format!("`{heading}` is missing")));
        }
    }
    findings
}

fn starts_with_a_date(name: &str) -> bool {
    let pattern = b"dddd-dd-dd-";
    name.len() > pattern.len()
        && name.bytes().zip(pattern).all(|(found, wanted)| match wanted {
            b'd' => found.is_ascii_digit(),
            other => found == *other,
        })
}

/// Links to files of the project that do not exist, or have another name than the link says.
fn broken_links(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_example = false;
    for (index, line) in text.lines().enumerate() {
        in_example ^= line.trim_start().starts_with("```");
        if in_example {
            continue;
        }
        for (text, link) in links(line) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let target = resolve(path, target);
            let what = if !tree.has(&target) {
                format!("link to `{link}` leads nowhere")
            } else if !fits(text, &target) {
                format!("link `{text}` leads to `{target}`, which has another name")
            } else {
                continue;
            };
            findings.push(Finding::line(path, index + 1, what));
        }
    }
    findings
}

/// Text and target of the links of a line.
fn links(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut before = line;
    std::iter::from_fn(move || {
        let (text, rest) = before.split_once("](")?;
        let (link, behind) = rest.split_once(')')?;
        before = behind;
        let text = text.rsplit('[').next().unwrap_or(text);
        Some((text.trim_matches('`'), link))
    })
}

/// Whether a link's text, when it is a path, is the end of its target's: of a file the whole end,
/// of a folder any folder on the way.
fn fits(text: &str, target: &str) -> bool {
    let is_path = !text.contains(' ') && PATH_ENDINGS.iter().any(|ending| text.ends_with(ending));
    let target = format!("/{target}");
    let text = format!("/{text}");
    let is_folder = text.ends_with('/');
    !is_path || target.ends_with(&text) || is_folder && format!("{target}/").contains(&text)
}

/// The names of all functions, tests among them.
fn functions(tree: &Tree) -> HashSet<&str> {
    let starts = tree.with_extension("rs").flat_map(|(_, text)| text.split("fn ").skip(1));
    starts.filter_map(|rest| rest.split(|letter: char| !is_of_name(letter)).next()).collect()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Source files and functions that a document names and that do not exist. What has six words or
/// more is taken for the name of a function: tests are called by sentences.
fn missing_code(tree: &Tree, functions: &HashSet<&str>, path: &str, text: &str) -> Vec<Finding> {
    let is_file = |name: &str| {
        let end = format!("/{name}");
        tree.has(name) || tree.entries.iter().any(|entry| entry.path.ends_with(&end))
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Code that goes on in the next line is no name.
        let parts: Vec<&str> = line.split('`').collect();
        for code in parts.iter().skip(1).step_by(2).filter(|_| parts.len() % 2 == 1) {
            let is_one_name =
                |also: &str| code.chars().all(|letter| is_of_name(letter) || also.contains(letter));
            let names_file = code.ends_with(".rs") && is_one_name("./-");
            let names_function = code.matches('_').count() >= 5
                && is_one_name("")
                && !code.contains(|letter: char| letter.is_ascii_uppercase());
            if names_file && !is_file(code) || names_function && !functions.contains(code) {
                let what = format!("`{code}` does not exist");
                findings.push(Finding::line(path, index + 1, what));
            }
        }
    }
    findings
}

/// A relative link as a path from the root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let files = tree(&[("docs/a.md", ""), ("README.md", "")]);
        let text = "[a](../README.md) [b](a.md#part) [c](https://example.org) [d](gone.md)\n\
                    ```\n[e](gone.md)\n```\n";
        let found = broken_links(&files, "docs/b.md", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("gone.md"));
    }

    #[test]
    fn a_link_whose_text_is_another_path_than_its_target_is_found() {
        let files =
            tree(&[("x/src/door.rs", ""), ("x/src/door/lock.rs", ""), ("docs/door.md", "")]);
        let found = |text: &str| broken_links(&files, "docs/b.md", text);
        let fits = "[`door.rs`](../x/src/door.rs) [src/door.rs](../x/src/door.rs) [why](door.md#a) \
                    [`door/lock.rs`](../x/src/door/lock.rs) [`src/door/`](../x/src/door/lock.rs)";
        assert_eq!(found(fits), []);
        for (text, target) in [
            ("`gate.rs`", "../x/src/door.rs"),
            ("y/src/door.rs", "../x/src/door.rs"),
            ("`gate/`", "../x/src/door/lock.rs"),
            ("door.rs", "door.md"),
        ] {
            assert_eq!(found(&format!("see [{text}]({target}), [a](door.md)")).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_source_file_or_a_test_that_does_not_exist_is_found() {
        let files = tree(&[("x/src/door.rs", "#[test]\nfn a_put_that_is_refused_twice() {}")]);
        let functions = functions(&files);
        let found = |text: &str| missing_code(&files, &functions, "docs/b.md", text).len();
        let text = "`door.rs`, `src/door.rs` and `a_put_that_is_refused_twice`, not `cache_bytes`;\n\
                    `make run\nagain` and `a::b`";
        assert_eq!(found(text), 0);
        for gone in ["gate.rs", "y/src/door.rs", "a_put_that_is_refused_once"] {
            assert_eq!(found(&format!("see `{gone}` and `door.rs`")), 1, "{gone}");
        }
    }

    #[test]
    fn a_decision_without_a_date_or_a_part_is_found() {
        let whole = DECISION_HEADINGS.join("\n");
        assert_eq!(check_decision("docs/adr/2026-11-21-lock.md", &whole), []);
        assert_eq!(check_decision("docs/adr/0001-lock.md", &whole).len(), 1);
        let half = whole.replace("## Alternatives\n", "");
        assert_eq!(check_decision("docs/adr/2026-11-21-lock.md", &half).len(), 1);
    }
}
