//! `chaos [--rounds N] [--seed S] [--first R] [--minutes M]`: random faults on a group of real processes,
//! judged after each round; exit code 1 when a round failed.
//!
//! What happened in a round that failed is printed, and its folders are left. Not here: the rounds (see
//! `towline_e2e::chaos`).

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towline_e2e::chaos::{Wanted, run};
use towline_e2e::{Try, fail};

const USAGE: &str = "usage: chaos [--rounds N] [--seed S] [--first R] [--minutes M]";

fn main() -> ExitCode {
    match rounds() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rounds() -> Try<bool> {
    let wanted = wanted()?;
    println!("seed {}; clocks are not shifted", wanted.seed);
    let findings = run(wanted, &mut |line| println!("{line}"))?;
    println!(
        "{} rounds, {} faults, {} failed; {:?}",
        findings.rounds,
        findings.faults,
        findings.failed.len(),
        findings.tally
    );
    Ok(findings.failed.is_empty())
}

fn wanted() -> Try<Wanted> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (rounds, first) = (u32::MAX, 0);
    let time = Duration::from_secs(15 * 60);
    let mut wanted = Wanted { rounds, first, seed: clock.as_secs(), time };
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let Some(value) = arguments.next() else { fail!("{USAGE}") };
        match option.as_str() {
            "--rounds" => wanted.rounds = value.parse()?,
            "--seed" => wanted.seed = value.parse()?,
            "--first" => wanted.first = value.parse()?,
            "--minutes" => wanted.time = Duration::from_secs_f64(value.parse::<f64>()? * 60.0),
            _ => fail!("{USAGE}"),
        }
    }
    Ok(wanted)
}
