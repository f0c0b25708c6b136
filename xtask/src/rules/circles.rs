//! Files of one crate import each other in no circle: each file can be read, tested and moved with
//! only what lies below it.
//!
//! What counts as an import: see [`imports`](crate::imports). To open a circle, move the small type
//! that ties it to the lower file, or pass a value in.

use crate::finding::Finding;
use crate::imports::{Imports, crates, name};
use crate::tree::Tree;

/// Crates that have no circle. A crate joins when its last circle opens, and none leaves.
const WITHOUT_CIRCLES: &[&str] = &[
    "access",
    "admin",
    "amqp",
    "backup",
    "cli",
    "client",
    "config",
    "core",
    "delegation",
    "disktest",
    "e2e",
    "floating",
    "group",
    "link",
    "load",
    "log",
    "logging",
    "node",
    "replication",
    "server",
    "sim",
    "tls",
    "types",
    "xtask",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    check_crates(tree, WITHOUT_CIRCLES)
}

fn check_crates(tree: &Tree, without: &[&str]) -> Vec<Finding> {
    let folders = crates(tree).into_iter().filter(|folder| without.contains(&name(folder)));
    folders.flat_map(|folder| findings(&Imports::of(tree, folder))).collect()
}

/// One finding for each import that ties a circle.
fn findings(imports: &Imports) -> Vec<Finding> {
    let circles = imports.circles();
    let ties = circles.iter().flat_map(|circle| {
        let inside = |file: &usize| circle.contains(file);
        let edges = imports.edges.iter();
        edges
            .filter(move |((user, used), _)| inside(user) && inside(used))
            .map(move |edge| (circle, edge))
    });
    ties.map(|(circle, ((user, used), edge))| {
        let what = format!(
            "part of a circle of {} files: uses {} of {}",
            circle.len(),
            names(edge.names.iter()),
            imports.files[*used],
        );
        Finding::line(&imports.files[*user], edge.line, what)
    })
    .collect()
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// What `cargo xtask circles` prints: the circles of one crate, or of all.
pub(crate) fn report(tree: &Tree, only: Option<&str>) -> String {
    let wanted = |folder: &&str| only.is_none_or(|only| only == *folder || only == name(folder));
    crates(tree).into_iter().filter(wanted).map(|folder| report_crate(tree, folder)).collect()
}

fn report_crate(tree: &Tree, folder: &str) -> String {
    let imports = Imports::of(tree, folder);
    let circles = imports.circles();
    if circles.is_empty() {
        return format!("{folder}: no circle among {} files\n", imports.files.len());
    }
    let mut report = String::new();
    for circle in circles {
        report.push_str(&format!("{folder}: a circle of {} files\n", circle.len()));
        for ((user, used), edge) in &imports.edges {
            if circle.contains(user) && circle.contains(used) {
                let (user, used) = (&imports.files[*user], &imports.files[*used]);
                let names = names(edge.names.iter());
                report.push_str(&format!("  {user}:{} -> {used}: {names}\n", edge.line));
            }
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    const MANIFEST: (&str, &str) = ("crates/x/Cargo.toml", "");

    /// Two files that use each other, but for `b`, which is given.
    fn with_b(b: &str) -> Tree {
        tree(&[
            MANIFEST,
            ("crates/x/src/lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("crates/x/src/a.rs", "\nuse crate::b::B;\npub struct A(B);"),
            ("crates/x/src/b.rs", b),
        ])
    }

    #[test]
    fn each_import_that_ties_a_circle_is_a_finding_in_a_crate_without_circles() {
        let tree = with_b("use crate::A;\npub struct B(Option<Box<A>>);");
        let lines: Vec<String> =
            check_crates(&tree, &["x"]).iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "crates/x/src/a.rs:2: part of a circle of 2 files: uses B of crates/x/src/b.rs",
                "crates/x/src/b.rs:1: part of a circle of 2 files: uses A of crates/x/src/a.rs",
            ]
        );
        assert_eq!(check_crates(&tree, &["y"]), []);
        assert_eq!(check_crates(&with_b("pub struct B;"), &["x"]), []);
    }

    #[test]
    fn the_report_names_the_ties_of_the_crate_that_is_asked_for() {
        let tied = with_b("pub struct B(Option<Box<crate::a::A>>);");
        let expected = "crates/x: a circle of 2 files\n  \
                        crates/x/src/a.rs:2 -> crates/x/src/b.rs: B\n  \
                        crates/x/src/b.rs:1 -> crates/x/src/a.rs: A\n";
        assert_eq!(report(&tied, Some("x")), expected);
        assert_eq!(report(&tied, None), expected);
        assert_eq!(report(&tied, Some("y")), "");
        let clean = with_b("pub struct B;");
        assert_eq!(report(&clean, Some("crates/x")), "crates/x: no circle among 3 files\n");
    }
}
