//! Nothing is left open: no marks for later, no stubs, no tests that are switched off. What is
//! missing is finished or named in the notes of the issue.

use super::PROGRAM_EXTENSIONS;
use crate::finding::Finding;
use crate::source::{Source, words};
use crate::tree::Tree;

/// Words in a comment that put something off.
const MARKS: &[&str] = &["TODO", "FIXME", "XXX"];
/// Code that stands for missing code, and tests that are switched off, in Rust.
const RUST_STUBS: &[&str] = &["todo!", "unimplemented!", "#[ignore", "#[should_panic]"];
/// Tests that are switched off, in other languages.
const SWITCHED_OFF: &[(&str, &str)] = &[
    ("java", "@Disabled"),
    ("java", "@Ignore"),
    ("py", "mark.skip"),
    ("py", "unittest.skip"),
    ("js", ".skip("),
    ("mjs", ".skip("),
    ("go", "t.Skip("),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let source = Source::of(text);
        for (index, line) in source.code.lines().enumerate() {
            for stub in RUST_STUBS.iter().filter(|stub| line.contains(**stub)) {
                findings.push(found(path, index, stub));
            }
        }
        findings.extend(marks(path, &source.comments));
    }
    for extension in PROGRAM_EXTENSIONS.iter().filter(|extension| **extension != "rs") {
        for (path, text) in tree.with_extension(extension) {
            findings.extend(marks(path, text));
            for (index, line) in text.lines().enumerate() {
                let off =
                    SWITCHED_OFF.iter().filter(|(e, what)| e == extension && line.contains(what));
                findings.extend(off.map(|(_, what)| found(path, index, what)));
            }
        }
    }
    findings
}

fn marks(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let marked = lines.filter_map(|(index, line)| {
        let mark = words(line).map(|(_, word)| word).find(|word| MARKS.contains(word))?;
        Some(found(path, index, mark))
    });
    marked.collect()
}

fn found(path: &str, index: usize, what: &str) -> Finding {
    Finding::line(path, index + 1, format!("`{what}`: finish it, or name it in the issue's notes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn what_is_left_open_is_found() {
        for (path, text) in [
            ("a.rs", "// TODO: later"),
            ("a.rs", "fn f() { todo!() }"),
            ("a.rs", "#[ignore = \"slow\"]\nfn f() {}"),
            ("a.py", "# FIXME"),
            ("A.java", "@Disabled void x() {}"),
        ] {
            assert_eq!(check(&tree(&[(path, text)])).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn words_in_strings_and_longer_words_are_fine() {
        let text = "const A: &str = \"TODO\"; // TODOLIST is a word\n";
        assert_eq!(check(&tree(&[("a.rs", text), ("README.md", "TODO")])), []);
    }
}
