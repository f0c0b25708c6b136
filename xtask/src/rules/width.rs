//! Prose is wrapped at 100 columns, in comments and in Markdown, so that a change of it can be read
//! as a change. `rustfmt` holds the code to the same width and leaves comments as they are.
//!
//! Does *not* look at what cannot be wrapped: tables, code blocks, a heading, a line without a
//! space to break it at (a link, a command as a code span).

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Columns, as in rustfmt.toml.
const COLUMNS_MAX: usize = 100;
/// How a page starts that is generated: it is as wide as the table that it is made from.
const MADE: &str = "<!-- Made from";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let comments = Source::of(text).comments;
        findings.extend(prose_too_wide(path, &comments, "//"));
    }
    for (path, text) in tree.with_extension("md").filter(|(_, text)| !text.starts_with(MADE)) {
        findings.extend(prose_too_wide(path, text, ""));
    }
    findings
}

/// Lines of prose that are too wide, where each line of it may start with `mark`.
fn prose_too_wide(path: &str, text: &str, mark: &str) -> Vec<Finding> {
    let mut is_code = false;
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start().trim_start_matches(mark);
        let content = content.trim_start_matches(['/', '!']).trim_start();
        if content.starts_with("```") {
            is_code = !is_code;
        }
        let columns = line.trim_end().chars().count();
        let wraps = !content.starts_with(['|', '#']) && !content.starts_with("<!--");
        let wraps = wraps && without_code_spans(content).trim().contains(' ');
        if columns > COLUMNS_MAX && wraps && !is_code {
            let what = format!("prose of {columns} columns; wrap it at {COLUMNS_MAX}");
            findings.push(Finding::line(path, index + 1, what));
        }
    }
    findings
}

/// A line without its code spans, which no line break may cut.
fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn prose_of_101_columns_is_found_in_comments_and_documents() {
        let words = |columns: usize| format!("{}a", &"word ".repeat(30)[..columns - 1]);
        for columns in [100, 101] {
            let page = ("a.md", words(columns));
            let comment = ("a.rs", format!("/// {}\nfn f() {{}}\n", words(columns - 4)));
            for (name, text) in [page, comment] {
                let found = check(&tree(&[(name, &text)]));
                assert_eq!(found.len(), columns - 100, "{name} {found:?}");
            }
        }
    }

    #[test]
    fn tables_code_and_links_are_left_alone() {
        let wide = "word ".repeat(30);
        let link = "x".repeat(120);
        let text =
            format!("| {wide} |\n```\n{wide}\n```\n# {wide}\n{link}\n`{wide}`\n<!-- {wide} -->\n");
        assert_eq!(check(&tree(&[("a.md", &text)])), []);
        let text = format!("//! ```text\n//! {wide}\n//! ```\nlet a = \"{wide}\";\n");
        assert_eq!(check(&tree(&[("a.rs", &text)])), []);
    }
}
