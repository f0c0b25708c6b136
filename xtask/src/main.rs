//! Chores of the house, as `cargo xtask COMMAND`.
//!
//! Reading order: [`tidy`] (the list of rules, and the test that runs it), [`rules`] (one file a
//! rule), [`tree`] (the files of the project), [`source`] (a Rust file with its comments and
//! strings separated), [`imports`] (which file uses which), [`licences`] (what the dependencies may
//! be licensed under), [`wording`] (how many words of the prose only this project uses),
//! [`test_programs`] (building and running the tests), [`mutants`] (bugs that the tests must find).
//!
//! It does *not* build or start the product: the Makefile does. It changes no file of the project.

mod finding;
mod imports;
mod licences;
mod mutants;
mod rules;
mod source;
mod test_programs;
mod tidy;
mod tree;
mod wording;

use std::process::ExitCode;

use test_programs::Part;

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy [FOLDER]   check the house rules (STYLE.md) that a program can check
  test unit|e2e   build all tests, and run those of the crates, or the end-to-end tests
  licences        check licence and origin of every dependency against deny.toml
  mutants [NAME]  put bugs into a copy of the tree, and see which tests find them (--help)
  circles [CRATE] list the files that import each other in a circle, with the names that tie them
  names [CRATE]   list the type names that stand for two types, or are no nouns
  words [FILES]   count the words that only this project uses; name the FILES files with most";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match command.as_slice() {
        ["tidy"] => tree::Tree::of_this_project().map(|tree| tidy::check(&tree)),
        ["tidy", folder] => tree::Tree::read(folder.as_ref()).map(|tree| tidy::check(&tree)),
        ["test", "unit"] => return test(Part::Unit),
        ["test", "e2e"] => return test(Part::EndToEnd),
        ["mutants", arguments @ ..] => return ExitCode::from(mutants::run(arguments)),
        ["licences"] => licences::check_this_project(),
        ["circles"] => return show(|tree| rules::circles::report(tree, None)),
        ["circles", only] => return show(|tree| rules::circles::report(tree, Some(only))),
        ["names"] => return show(|tree| rules::type_names::report(tree, None)),
        ["names", only] => return show(|tree| rules::type_names::report(tree, Some(only))),
        ["words"] => return words("0"),
        ["words", files] => return words(files),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(findings) if findings.is_empty() => {
            println!("{}: nothing to mend", command.join(" "));
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("{} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot check: {error}");
            ExitCode::FAILURE
        }
    }
}

fn test(part: Part) -> ExitCode {
    match test_programs::run(part) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot test: {error}");
            ExitCode::FAILURE
        }
    }
}

fn words(files: &str) -> ExitCode {
    let Ok(files) = files.parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    show(|tree| wording::report(tree, files))
}

/// Prints a report on this project.
fn show(report: impl FnOnce(&tree::Tree) -> String) -> ExitCode {
    match tree::Tree::of_this_project() {
        Ok(tree) => {
            print!("{}", report(&tree));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot read the project: {error}");
            ExitCode::FAILURE
        }
    }
}
