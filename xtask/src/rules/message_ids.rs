//! Every message id that code or documents use (`TWL2003I`) is explained in the catalogue's page,
//! so that an operator can look up one that appears in a log.

use crate::finding::Finding;
use crate::tree::Tree;

/// The page that is made from the catalogue.
const PAGE: &str = "docs/reference/messages.md";
const PREFIX: &str = "TWL";
/// Severities: information, warning, error.
const SEVERITIES: &[char] = &['I', 'W', 'E'];
const DIGITS: usize = 4;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else { return Vec::new() };
    let explained: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| ")).filter_map(first_id).collect();
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs").chain(tree.with_extension("md")) {
        // The checker's own tests name ids that do not exist.
        if path.starts_with("xtask/") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            for id in ids(line).filter(|id| !explained.contains(id)) {
                let what = format!("`{id}` is not in the catalogue ({PAGE})");
                findings.push(Finding::line(path, index + 1, what));
            }
        }
    }
    findings
}

fn first_id(text: &str) -> Option<&str> {
    ids(text).next()
}

/// Every id in a line.
fn ids(line: &str) -> impl Iterator<Item = &str> {
    let length = PREFIX.len() + DIGITS + 1;
    line.match_indices(PREFIX).filter_map(move |(start, _)| {
        let id = line.get(start..start + length)?;
        let digits = id.get(PREFIX.len()..length - 1)?;
        let whole = digits.chars().all(|digit| digit.is_ascii_digit()) && id.ends_with(SEVERITIES);
        whole.then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn an_id_without_an_explanation_is_found() {
        let page = (PAGE, "| TWL1001I | text | why |\n");
        let known = ("crates/server/src/run.rs", "info!(id = \"TWL1001I\")");
        assert_eq!(check(&tree(&[page, known])), []);
        let unknown = ("crates/server/src/run.rs", "warn!(id = \"TWL1002W\")");
        assert_eq!(check(&tree(&[page, unknown])).len(), 1);
        let pattern = ("README.md", "ids look like TWLnnnnI");
        assert_eq!(check(&tree(&[page, pattern])), []);
    }
}
