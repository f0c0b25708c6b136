//! `chaos [--rounds N] [--seed S] [--first R] [--minutes M] [--jobs J] [--power stays|one|goes]`:
//! random faults on groups of real processes, judged after each round; exit code 1 when a round
//! failed.
//!
//! What happened in a round that failed is printed, and its folders are left. Not here: the rounds
//! (see `towline_e2e::chaos`).

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towline_e2e::chaos::{ChaosPlan, Power, run};
use towline_e2e::{Try, fail};

const USAGE: &str = "usage: chaos [--rounds N] [--seed S] [--first R] [--minutes M] [--jobs J] \
                     [--power stays|one|goes]";

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
    println!("seed {}, jobs {}", wanted.seed, wanted.jobs);
    let findings = run(wanted, &|line| println!("{line}"))?;
    let faults: usize = findings.faults.values().sum();
    println!("faults: {:?}", findings.faults);
    println!(
        "{} rounds, {faults} faults, {} failed {:?}; {:?}",
        findings.rounds,
        findings.failed.len(),
        findings.failed,
        findings.tally
    );
    for why in &findings.given_up {
        println!("a job gave up: {why}");
    }
    Ok(findings.are_good())
}

fn wanted() -> Try<ChaosPlan> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut wanted = ChaosPlan {
        rounds: u32::MAX,
        first: 0,
        seed: clock.as_secs(),
        time: Duration::from_secs(15 * 60),
        jobs: 1,
        power: Power::OneOfSeveral,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let Some(value) = arguments.next() else { fail!("{USAGE}") };
        match option.as_str() {
            "--rounds" => wanted.rounds = value.parse()?,
            "--seed" => wanted.seed = value.parse()?,
            "--first" => wanted.first = value.parse()?,
            "--minutes" => wanted.time = Duration::from_secs_f64(value.parse::<f64>()? * 60.0),
            "--jobs" => wanted.jobs = value.parse()?,
            "--power" => {
                wanted.power = match value.as_str() {
                    "stays" => Power::Stays,
                    "one" => Power::OneOfSeveral,
                    "goes" => Power::Goes,
                    _ => fail!("{USAGE}"),
                }
            }
            _ => fail!("{USAGE}"),
        }
    }
    Ok(wanted)
}
