//! No code in documentation comments runs as a test: the test runner (`test_programs`) would not
//! see it. A block of text there says so in its fence.

use crate::finding::Finding;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let mut is_open = false;
        for (index, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let comment = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
            let fence = comment.and_then(|comment| comment.trim_start().strip_prefix("```"));
            let Some(language) = fence else { continue };
            if !is_open && language != "text" {
                let what = "a block of code in a comment is no test here: open it with ```text";
                findings.push(Finding::line(path, index + 1, what));
            }
            is_open = !is_open;
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_block_that_rustdoc_would_run_is_found() {
        for fence in ["/// ```", "//! ```rust", "    /// ```no_run"] {
            let text = format!("{fence}\n/// let a = 1;\n/// ```\nfn f() {{}}\n");
            assert_eq!(check(&tree(&[("a.rs", &text)])).len(), 1, "{fence}");
        }
    }

    #[test]
    fn a_block_of_text_is_fine() {
        let text = "//! ```text\n//! a\n//! ```\n\nlet a = \"\n```\n\";\n";
        assert!(check(&tree(&[("a.rs", text)])).is_empty());
    }
}
