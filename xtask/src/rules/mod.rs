//! The rules, one file each, in the order of STYLE.md.

pub(crate) mod circles;
pub(crate) mod configuration;
pub(crate) mod configuration_read;
pub(crate) mod doc_tests;
pub(crate) mod documents;
pub(crate) mod generated;
pub(crate) mod headers;
pub(crate) mod left_open;
pub(crate) mod manifest;
pub(crate) mod matrix;
pub(crate) mod message_ids;
pub(crate) mod mutants;
pub(crate) mod names;
pub(crate) mod simulated;
pub(crate) mod size;
pub(crate) mod sleeping;
pub(crate) mod type_names;
pub(crate) mod width;
pub(crate) mod without_io;

/// Endings of files that people write as programs.
pub(crate) const PROGRAM_EXTENSIONS: &[&str] =
    &["rs", "java", "py", "js", "mjs", "ts", "go", "sh", "c", "h"];

/// Whether a path is tests (or benches or examples) and not part of the product.
pub(crate) fn is_test_path(path: &str) -> bool {
    let folders = ["tests", "benches", "examples", "fuzz", "peer"];
    let mut parts = path.split('/').rev();
    let file = parts.next().unwrap_or_default();
    file == "tests.rs" || file.ends_with("_tests.rs") || parts.any(|part| folders.contains(&part))
}
