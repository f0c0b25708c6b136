//! The reference of the configuration file names exactly the keys that the server knows.
//!
//! It compares names only; defaults and ranges are for the reviewer.

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Where the server lists its keys, and the page that explains them.
const KEYS: &str = "crates/config/src/keys.rs";
const PAGE: &str = "docs/reference/config.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(known) = tree.text(KEYS).map(known_keys) else { return Vec::new() };
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::file(PAGE, "is missing")];
    };
    let explained = explained_keys(page);
    let missing = known.iter().filter(|key| !explained.iter().any(|(_, name)| name == *key));
    let mut findings: Vec<Finding> = missing
        .map(|key| Finding::file(PAGE, format!("does not explain the key `{key}` of {KEYS}")))
        .collect();
    for (line, name) in explained.iter().filter(|(_, name)| !known.contains(name)) {
        findings.push(Finding::line(PAGE, *line, format!("`{name}` is no key of {KEYS}")));
    }
    findings
}

/// The strings of the table of keys: everything in quotes before the first function.
fn known_keys(text: &str) -> Vec<String> {
    let code = Source::of(text).code;
    let start = code.find("const TABLES").unwrap_or_default();
    let end = code[start..].find("fn ").map_or(code.len(), |offset| start + offset);
    let quoted = text.get(start..end).unwrap_or_default().lines().flat_map(|line| {
        let code = line.split("//").next().unwrap_or_default();
        code.split('"').skip(1).step_by(2).map(str::to_owned)
    });
    quoted.collect()
}

/// Names of tables in headings, names of keys in the first column, each with its line.
fn explained_keys(page: &str) -> Vec<(usize, String)> {
    let mut explained = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let names = match line.strip_prefix("| ") {
            Some(row) => row.split('|').next().unwrap_or_default(),
            None => line.strip_prefix("## ").unwrap_or_default(),
        };
        for name in names.split('`').skip(1).step_by(2) {
            explained.push((index + 1, name.trim_matches(['[', ']']).to_owned()));
        }
    }
    explained
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    const CODE: &str =
        "//! \"not a key\"\nconst TABLES: X = &[(\"log\", &[\"extent_bytes\"])];\nfn f() {\"a\"}";

    #[test]
    fn a_key_that_is_not_explained_is_found_and_the_other_way_round() {
        let whole = "## `[log]`\n| Key | Is |\n| --- | --- |\n| `extent_bytes` | `64` |\n";
        let check = |page: &str| check(&tree(&[(KEYS, CODE), (PAGE, page)]));
        assert_eq!(check(whole), []);
        assert_eq!(check("## `[log]`\n").len(), 1);
        assert_eq!(check(&format!("{whole}| `gone` | x |\n")).len(), 1);
    }
}
