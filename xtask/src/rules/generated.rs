//! Pages of the reference that are generated from tables in the code say so in their first line, so
//! that an author changes the table and not the page. That they are up to date is tested beside the
//! table (rewrite them with `UPDATE_REFERENCE=1 cargo test -p towline-admin`).

use crate::finding::Finding;
use crate::tree::Tree;

/// The table (a file or a folder of this name), and the page that is made from it.
const PAGES: &[(&str, &str)] = &[
    ("crates/admin/src/attributes", "docs/reference/mqsc.md"),
    ("crates/admin/src/catalogue", "docs/reference/messages.md"),
    ("crates/admin/src/metrics", "docs/reference/metrics.md"),
];
/// How a page may say it.
const SAYINGS: &[&str] = &["generated from", "made from"];
/// Lines within which the page must say so.
const SAID_WITHIN_LINES: usize = 6;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (table, page) in PAGES {
        if !tree.has(table) && !tree.has(&format!("{table}.rs")) {
            continue;
        }
        match tree.text(page) {
            None => {
                findings.push(Finding::file(page, format!("missing; generate it from {table}")))
            }
            Some(text) => {
                let head = text.lines().take(SAID_WITHIN_LINES).collect::<String>().to_lowercase();
                if !SAYINGS.iter().any(|saying| head.contains(saying)) {
                    findings
                        .push(Finding::file(page, format!("does not say: generated from {table}")));
                }
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
    fn a_missing_page_and_a_page_that_hides_its_origin_are_found() {
        let table = ("crates/admin/src/attributes.rs", "");
        assert_eq!(check(&tree(&[table])).len(), 1);
        assert_eq!(check(&tree(&[table, ("docs/reference/mqsc.md", "# MQSC\n")])).len(), 1);
        let said = "<!-- Generated from attributes.rs -->\n# MQSC\n";
        assert_eq!(check(&tree(&[table, ("docs/reference/mqsc.md", said)])), []);
    }
}
