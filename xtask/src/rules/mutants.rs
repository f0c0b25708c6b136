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

/// Whether a test of the crate, or a module of its tests, has this text in its path, as the test
/// program will look for it. A name alone is not enough: a test that moved to another module keeps
/// its name.
fn exists(tree: &Tree, killer: &Killer) -> bool {
    match killer {
        Killer::Simulator { .. } => true,
        Killer::Unit { package, target, test } => {
            let folder = match package.trim_start_matches("towline-") {
                "e2e" => "tests/e2e/".to_owned(),
                name => format!("crates/{name}/"),
            };
            let mut files = tree.with_extension("rs");
            files.any(|(path, text)| {
                let modules =
                    path.strip_prefix(&folder).and_then(|it| modules(it, target.as_deref()));
                modules.is_some_and(|modules| has_path(&modules, text, test))
            })
        }
    }
}

/// The modules that a path of a crate stands for in the test program; `None`: it is no part of it.
fn modules(path: &str, target: Option<&str>) -> Option<Vec<String>> {
    let path = path.strip_suffix(".rs")?;
    let path = match target {
        None => path.strip_prefix("src/")?,
        Some(target) => path.strip_prefix("tests/")?.strip_prefix(target)?.trim_start_matches('/'),
    };
    let is_root = |name: &str| matches!(name, "" | "lib" | "main" | "mod");
    Some(path.split('/').filter(|name| !is_root(name)).map(str::to_owned).collect())
}

/// Whether a function or a module in this text, below `modules` and perhaps a module that stands in
/// the text itself, has `test` in its path.
fn has_path(modules: &[String], text: &str, test: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name_of = |line: &str, keyword: &str| {
        let (_, name) = line.split_once(keyword)?;
        Some(name.split(|letter| !is_letter(letter)).next()?.to_owned())
    };
    let inline = text.lines().filter(|line| line.ends_with(" {"));
    let inline: Vec<String> = inline.filter_map(|line| name_of(line, "mod ")).collect();
    let around: Vec<Option<&String>> = [None].into_iter().chain(inline.iter().map(Some)).collect();
    let mut names = text.lines().filter_map(|line| name_of(line, "fn ").or(name_of(line, "mod ")));
    names.any(|name| {
        around.iter().any(|around| {
            let path = modules.iter().chain(*around).chain([&name]).map(String::as_str);
            path.collect::<Vec<_>>().join("::").contains(test)
        })
    })
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
        assert_eq!(findings(&mutant("no-sync", "sync();", "log::a_test_of")), [""; 0]);
        let gone = findings(&mutant("no-sync", "fsync();", "a_test_of_it"));
        assert_eq!(gone, ["no-sync: its `find` is not in crates/log/src/log.rs"]);
        let gone = findings(&mutant("no-sync", "sync();", "another_test"));
        assert_eq!(gone, ["no-sync: there is no test `towline-log another_test`"]);
        assert!(findings(&mutant("No_sync", "sync();", "a_test"))[0].contains("small letters"));
        assert!(findings("[a]\nwhat = 1")[0].contains("it has no `what`"));
        assert!(findings("[a")[0].contains("expected"), "{:?}", findings("[a"));
    }

    #[test]
    fn a_test_that_moved_to_another_module_is_found() {
        let modules = |path, target| modules(path, target).map(|it| it.join("::"));
        assert_eq!(modules("src/member/tests/terms.rs", None).unwrap(), "member::tests::terms");
        assert_eq!(modules("src/lib.rs", None).unwrap(), "");
        assert_eq!(modules("tests/session/waiting.rs", Some("session")).unwrap(), "waiting");
        assert_eq!(modules("tests/session/main.rs", Some("session")).unwrap(), "");
        assert_eq!(modules("tests/session/waiting.rs", None), None);
        let text = "mod tests {\n    #[test]\n    fn it_holds() {}\n}\nmod other {\n}";
        let has = |test| has_path(&["lease".to_owned()], text, test);
        assert!(has("lease::tests::it_holds") && has("it_") && has("lease::tests"));
        assert!(!has("tests::more::it_holds") && !has("out::it_holds"));
    }

    #[test]
    fn no_two_mutants_have_one_name() {
        let text = mutant("no-sync", "sync();", "a_test");
        let tree = tree(&[CODE, ("tests/mutants/a.toml", &text), ("tests/mutants/b.toml", &text)]);
        let findings = check(&tree);
        assert_eq!(findings[0].what, "no-sync: another mutant has this name");
    }
}
