//! Files of at most 600 lines, Rust functions of at most 70 lines of code, nothing larger than
//! 256 KiB. Split by meaning, never by size alone. Does *not* measure line width: rustfmt does.

use super::PROGRAM_EXTENSIONS;
use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

const FILE_LINES_MAX: usize = 600;
/// The same number as `too-many-lines-threshold` in clippy.toml, counted in the same way.
const FUNCTION_LINES_MAX: usize = 70;
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Files that tools write and that may be larger, each with the reason.
const LARGE_FILES: &[(&str, &str)] =
    &[("Cargo.lock", "written by cargo"), ("tests/e2e/node/package-lock.json", "written by npm")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in &tree.entries {
        let listed = LARGE_FILES.iter().any(|(path, _)| *path == entry.path);
        if entry.bytes > FILE_BYTES_MAX && !listed {
            let what = format!("{} bytes; the most is {FILE_BYTES_MAX}", entry.bytes);
            findings.push(Finding::file(&entry.path, what));
        }
    }
    for extension in PROGRAM_EXTENSIONS {
        for (path, text) in tree.with_extension(extension) {
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX {
                let what = format!("{lines} lines; the most is {FILE_LINES_MAX}, split by meaning");
                findings.push(Finding::file(path, what));
            }
        }
    }
    for (path, text) in tree.with_extension("rs") {
        findings.extend(long_functions(path, text));
    }
    findings
}

fn long_functions(path: &str, text: &str) -> Vec<Finding> {
    let functions = Source::of(text).functions();
    let long = functions.iter().filter(|function| function.code_lines > FUNCTION_LINES_MAX);
    long.map(|function| {
        let what = format!(
            "function `{}` has {} lines of code; the most is {FUNCTION_LINES_MAX}",
            function.name, function.code_lines
        );
        Finding::line(path, function.line, what)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "step();\n".repeat(lines));
        assert!(check(&tree(&[("a.rs", &function(70))])).is_empty());
        let found = check(&tree(&[("a.rs", &function(71))]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 1);
    }

    #[test]
    fn a_file_of_601_lines_is_found_in_every_language() {
        for name in ["a.rs", "A.java", "a.py", "a.js", "a.go"] {
            assert!(check(&tree(&[(name, &"\n".repeat(600))])).is_empty());
            assert_eq!(check(&tree(&[(name, &"\n".repeat(601))])).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_blob_is_found() {
        let blob = "x".repeat(256 * 1024 + 1);
        assert_eq!(check(&tree(&[("docs/picture.svg", &blob)])).len(), 1);
        assert!(check(&tree(&[("Cargo.lock", &blob)])).is_empty());
    }
}
