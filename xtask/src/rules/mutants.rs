//! Each mutant of tests/mutants/ can be put into the code as it stands, has a name of its own, and
//! names tests that exist. So code that moves takes its mutants along, or says which it left.
//!
//! Not here: whether it compiles, and whether anything notices it (`cargo xtask mutants`).

use crate::finding::Finding;
use crate::mutants::list::{Killer, Mutant, is_list, parse};
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (path, text) in tree.with_extension("toml").filter(|(path, _)| is_list(path)) {
        for mutant in parse(path, text) {
            match mutant {
                Err(why) => findings.push(Finding::file(path, why)),
                Ok(mutant) => {
                    let wrong = wrong_with(tree, &mutant, &names);
                    let finding = |why| Finding::file(path, format!("{}: {why}", mutant.name));
                    findings.extend(wrong.into_iter().map(finding));
                    names.push(mutant.name);
                }
            }
        }
    }
    findings
}

fn wrong_with(tree: &Tree, mutant: &Mutant, names: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    if names.contains(&mutant.name) {
        wrong.push("another mutant has this name".to_owned());
    }
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    if !mutant.name.chars().all(|letter| is_plain(letter) || letter == '-') {
        wrong.push("a name has small letters, digits and `-`".to_owned());
    }
    match tree.text(&mutant.file) {
        None => wrong.push(format!("there is no {}", mutant.file)),
        Some(text) => wrong.extend(mutant.changed(text).err()),
    }
    let missing = mutant.killers.iter().filter(|killer| !exists(tree, killer));
    wrong.extend(missing.map(|killer| format!("there is no test `{killer}`")));
    wrong
}

/// Whether the crate has a test, or a module of tests, of that name.
fn exists(tree: &Tree, killer: &Killer) -> bool {
    match killer {
        Killer::Simulator { .. } => true,
        Killer::Unit { package, test, .. } => {
            let name = test.rsplit("::").next().unwrap_or(test);
            let wanted = [format!("fn {name}"), format!("mod {name}")];
            let folder = format!("crates/{}/", package.trim_start_matches("towline-"));
            let files = tree.with_extension("rs").filter(|(path, _)| path.starts_with(&folder));
            files.into_iter().any(|(_, text)| wanted.iter().any(|name| text.contains(name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    const CODE: (&str, &str) =
        ("crates/log/src/log.rs", "fn a() { sync(); }\nfn a_test_of_it() {}");

    fn findings(text: &str) -> Vec<String> {
        let tree = tree(&[CODE, ("tests/mutants/log.toml", text)]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    fn mutant(name: &str, find: &str, test: &str) -> String {
        format!(
            "[{name}]\nwhat = \"w\"\nfile = \"crates/log/src/log.rs\"\nfind = \"{find}\"\n\
             replace = \"\"\nkillers = [{{ package = \"towline-log\", test = \"{test}\" }}]\n"
        )
    }

    #[test]
    fn a_mutant_of_code_that_moved_or_of_a_test_that_is_gone_is_found() {
        assert_eq!(findings(&mutant("no-sync", "sync();", "m::a_test_of")), [""; 0]);
        let gone = findings(&mutant("no-sync", "fsync();", "a_test_of_it"));
        assert_eq!(gone, ["no-sync: its `find` is not in crates/log/src/log.rs"]);
        let gone = findings(&mutant("no-sync", "sync();", "another_test"));
        assert_eq!(gone, ["no-sync: there is no test `towline-log another_test`"]);
        assert!(findings(&mutant("No_sync", "sync();", "a_test"))[0].contains("small letters"));
        assert!(findings("[a]\nwhat = 1")[0].contains("it has no `what`"));
        assert!(findings("[a")[0].contains("expected"), "{:?}", findings("[a"));
    }

    #[test]
    fn no_two_mutants_have_one_name() {
        let text = mutant("no-sync", "sync();", "a_test");
        let tree = tree(&[CODE, ("tests/mutants/a.toml", &text), ("tests/mutants/b.toml", &text)]);
        let findings = check(&tree);
        assert_eq!(findings[0].what, "no-sync: another mutant has this name");
    }
}
