//! The list of house rules. A rule is a function from the files of the project to findings; it
//! lives in a file of its own in `rules/`. Runs as `cargo xtask tidy` and inside `cargo test`.

use crate::finding::Finding;
use crate::rules::{
    circles, configuration, configuration_read, doc_tests, documents, generated, headers,
    left_open, manifest, matrix, message_ids, mutants, names, simulated, size, sleeping,
    type_names, width, without_io,
};
use crate::tree::Tree;
use crate::wording;

/// One rule.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    size::check,
    names::check,
    headers::check,
    left_open::check,
    simulated::check,
    sleeping::check,
    without_io::check,
    matrix::check,
    manifest::check,
    doc_tests::check,
    documents::check,
    generated::check,
    configuration::check,
    configuration_read::check,
    message_ids::check,
    mutants::check,
    width::check,
    circles::check,
    type_names::check,
    wording::check,
];

/// All broken rules, sorted by position.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_project_is_tidy() {
        let tree = Tree::of_this_project().unwrap();
        let lines: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "house rules (STYLE.md) are broken:\n{}", lines.join("\n"));
    }
}
