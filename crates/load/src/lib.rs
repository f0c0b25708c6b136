//! The load harness `towline load`: drives any AMQP 1.0 broker and says how fast, how late and how
//! complete it was.
//!
//! It knows no queue manager, only AMQP. It runs few threads with many connections each, so that on
//! a machine shared with the server the generator is the smaller part of the cost.
//!
//! Reading order: [`args`] (options), [`plan`] (the same, checked), [`run`] (phases of a run),
//! [`worker`] (a thread's loop), [`wire`] (a socket), [`client`] (what clients do), [`verify`] (was
//! every message there), [`latency`], [`report`].

#![forbid(unsafe_code)]

mod args;
mod board;
mod client;
mod clock;
mod content;
mod desk;
mod dial;
mod events;
mod latency;
mod pace;
mod plan;
mod process;
mod random;
mod redirect;
mod report;
mod run;
mod seat;
mod show;
mod stamp;
mod tls;
mod verify;
mod window;
mod wire;
mod worker;

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use args::{Entropy, LoadArgs, Mechanism, Mode};

use towline_types::printable_entry;

use plan::Plan;
use report::Report;
use show::Show;

/// Runs a load as the command line asks.
///
/// Success means that it ran and that nothing was lost, duplicated (unless allowed) or reordered; 1
/// that something was, or that the run broke off, also because `interrupted` became true (what was
/// done up to then is reported all the same); 2 that the options do not fit together.
#[must_use]
pub fn run(args: LoadArgs, interrupted: &AtomicBool) -> ExitCode {
    let plan = match random::run_number().and_then(|run| Plan::new(&args, run)) {
        Ok(plan) => Arc::new(plan),
        Err(reason) => {
            eprintln!("towline load: {}", printable_entry(&reason));
            return ExitCode::from(2);
        }
    };
    match run_plan(&args, &plan, interrupted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("towline load: {}", printable_entry(&reason));
            ExitCode::FAILURE
        }
    }
}

fn run_plan(args: &LoadArgs, plan: &Arc<Plan>, interrupted: &AtomicBool) -> Result<bool, String> {
    let show = Show { is_quiet: args.quiet };
    let mut outcome = run::run(plan, (&args.server_pid, interrupted), args.csv.as_deref(), &show)?;
    if let Some(path) = &args.events {
        let events = std::mem::take(&mut outcome.events);
        events.write(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if plan.verify_drain {
        let drain = Arc::new(plan.drain());
        let rest = run::run(&drain, (&[], interrupted), None, &Show { is_quiet: true })?;
        outcome.ledger.merge(rest.ledger);
    }
    let complete = match plan.mode {
        Mode::Requester | Mode::Stream | Mode::Transaction => true,
        Mode::Put => plan.verify_drain,
        Mode::Responder | Mode::Get | Mode::Idle => false,
    };
    let was_interrupted = interrupted.load(Ordering::Relaxed);
    if was_interrupted {
        outcome.remarks.push("interrupted: these are the figures up to then".into());
    }
    let report = Report::new(plan, &outcome, !args.server_pid.is_empty(), complete);
    write_report(args, &report).map_err(|error| format!("writing the result: {error}"))?;
    Ok(report.passed() && !was_interrupted)
}

fn write_report(args: &LoadArgs, report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let to_stdout = args.json.as_deref() == Some("-");
    if let Some(file) = &args.json {
        let json = serde_json::to_string_pretty(report)?;
        if to_stdout {
            writeln!(out, "{json}")?;
        } else {
            fs::write(file, json + "\n")?;
        }
    }
    if !args.quiet && !to_stdout {
        writeln!(out, "{report}")?;
    }
    Ok(())
}
