//! `towline region` as a person meets it: what the guide shows is what the command prints, and its
//! exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const GUIDE: &str = "../../docs/guides/size-the-link-and-the-log.md";
const PLAN: [&str; 11] = [
    "region",
    "plan",
    "--rate",
    "1000",
    "--size=2KiB",
    "--rtt",
    "40ms",
    "--bandwidth",
    "50M",
    "--outage",
    "10min",
];

fn towline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towline")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The content of the first block of a document in this language.
fn block<'a>(document: &'a str, language: &str) -> &'a str {
    let (_, rest) = document.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_example_of_the_guide_is_what_the_command_prints() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join(GUIDE);
    let guide = std::fs::read_to_string(guide).unwrap();
    let words: Vec<&str> = block(&guide, "sh").split_whitespace().collect();
    assert_eq!(words[0], "towline");
    let output = towline(&words[1..]);
    assert_eq!(text(&output), block(&guide, "text"), "{output:?}");
    assert_eq!(output.status.code(), Some(3));
    assert!(guide.contains("The exit code is 3, because"));
    // What it says would fit, fits.
    for option in ["--log-space 14GiB", "--bandwidth 90M"] {
        assert!(guide.contains(&format!("`{option}`")), "{option}");
        let (name, value) = option.split_once(' ').unwrap();
        let at = words.iter().position(|word| *word == name).unwrap();
        let mut changed = words.clone();
        changed[at + 1] = value;
        assert_eq!(towline(&changed[1..]).status.code(), Some(0), "{option}");
    }
}

#[test]
fn a_plan_that_fits_is_0_and_one_that_does_not_is_3() {
    for (more, code, shortage) in [
        (&["--log-space", "8GiB"][..], 0, None),
        (&["--bandwidth=10M"], 3, Some("line")),
        (&["--window=64KiB"], 3, Some("window")),
        (&["--log-space=1GiB"], 3, Some("space_for_outage")),
        (&["--log-space=8GiB", "--data=1T"], 3, Some("space_for_rebase")),
        (&["--removed", "2"], 2, None),
        (&["--rtt=40"], 2, None),
    ] {
        // The last one of an option that is given twice would be refused.
        let given: Vec<&str> = more.iter().map(|each| each.split('=').next().unwrap()).collect();
        let mut arguments: Vec<&str> = Vec::new();
        let mut skips = false;
        for each in PLAN {
            if skips {
                skips = false;
            } else if given.contains(&each) {
                skips = true;
            } else {
                arguments.push(each);
            }
        }
        arguments.extend(more);
        arguments.push("--json");
        let output = towline(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        if code == 2 {
            continue;
        }
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["fits"], code == 0, "{value}");
        assert_eq!(value["shortages"][0]["id"].as_str(), shortage, "{value}");
    }
}

#[test]
fn all_that_a_plan_needs_must_be_given() {
    for option in ["--rate", "--size=2KiB", "--rtt", "--bandwidth", "--outage"] {
        let at = PLAN.iter().position(|each| *each == option).unwrap();
        let width = if option.contains('=') { 1 } else { 2 };
        let arguments: Vec<&str> = PLAN[..at].iter().chain(&PLAN[at + width..]).copied().collect();
        assert_eq!(towline(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
