//! `towline load` by itself: for work on the harness without the rest of the command line.

use std::process::ExitCode;

use clap::Parser;
use towline_load::LoadArgs;

/// Drives any AMQP 1.0 broker with a load.
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    load: LoadArgs,
}

fn main() -> ExitCode {
    towline_load::run(Command::parse().load, &std::sync::atomic::AtomicBool::new(false))
}
