//! `region_rounds [--rounds N] [--seed S] [--first R] [--minutes M] [--size 1|3]`: random changes
//! of roles on two regions of real processes, judged after each round; exit code 1 when a round
//! failed.
//!
//! What was drawn in a round that failed is printed, and its folders are left. Not here: the rounds
//! (see `towline_e2e::region_rounds`).

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towline_e2e::region_rounds::{RegionRounds, run};
use towline_e2e::{Try, fail, require};

const USAGE: &str =
    "usage: region_rounds [--rounds N] [--seed S] [--first R] [--minutes M] [--size 1|3]";

fn main() -> ExitCode {
    match rounds() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("region_rounds: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rounds() -> Try<bool> {
    let wanted = wanted()?;
    println!("seed {}, {} instances in each group", wanted.seed, wanted.size);
    let findings = run(wanted, &|line| println!("{line}"))?;
    println!("changes: {:?}", findings.changes);
    println!(
        "{} rounds, {} failed {:?}; lost {:?} (put, removed) in fail-overs; {:?}",
        findings.rounds,
        findings.failed.len(),
        findings.failed,
        findings.lost,
        findings.tally
    );
    Ok(findings.failed.is_empty())
}

fn wanted() -> Try<RegionRounds> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut wanted = RegionRounds {
        rounds: 200,
        first: 0,
        seed: clock.as_secs(),
        time: Duration::from_secs(4 * 3_600),
        size: 1,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let Some(value) = arguments.next() else { fail!("{USAGE}") };
        match option.as_str() {
            "--rounds" => wanted.rounds = value.parse()?,
            "--seed" => wanted.seed = value.parse()?,
            "--first" => wanted.first = value.parse()?,
            "--minutes" => wanted.time = Duration::from_secs_f64(value.parse::<f64>()? * 60.0),
            "--size" => wanted.size = value.parse()?,
            _ => fail!("{USAGE}"),
        }
    }
    require!([1, 3].contains(&wanted.size), "{USAGE}");
    Ok(wanted)
}
