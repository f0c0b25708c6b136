//! The `towline` command: starts a queue manager, administers it, puts and gets messages.
//!
//! Only arguments, terminals and exit codes: what the commands do is in the crates below (`server`,
//! `client`, `admin`, `log`, `load`).
//!
//! Reading order: `arguments` (all options), `failure` (exit codes), `reach` (how a queue manager
//! is found), then one module for each command.

#![forbid(unsafe_code)]

mod arguments;
mod backup;
mod control;
mod disktest;
mod explain;
mod failure;
mod generate;
mod get;
mod group;
mod image;
mod load;
mod log;
mod move_messages;
mod mqsc;
mod patience;
mod private_file;
mod process;
mod progress;
mod put;
mod quantity;
mod reach;
mod region;
mod reload;
mod restore;
mod run;
mod show;
mod signals;
mod status;
mod stop;
mod user;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Command, Towline};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let (json, result) = match Towline::parse().command {
        Command::Run(arguments) => (arguments.json, run::run(&arguments)),
        Command::Mqsc(arguments) => (arguments.reach.json, mqsc::run(&arguments)),
        Command::Put(arguments) => (arguments.reach.json, put::run(&arguments)),
        Command::Get(arguments) => (arguments.take.reach.json, get::get(&arguments)),
        Command::Browse(arguments) => (arguments.take.reach.json, get::browse(&arguments)),
        Command::Move(arguments) => (arguments.reach.json, move_messages::run(&arguments)),
        Command::Status(arguments) => (arguments.reach.json, status::run(&arguments)),
        Command::Switch(arguments) => (arguments.here.json, group::switch(&arguments)),
        Command::Stop(arguments) => (arguments.here.json, stop::run(&arguments)),
        Command::RollingRestart(arguments) => (arguments.json, group::rolling(&arguments)),
        Command::Instance { command } => (command.is_json(), group::instance(&command)),
        Command::Group { command } => (command.is_json(), group::run(&command)),
        Command::Region { command } => (command.is_json(), region::run(&command)),
        Command::Image(arguments) => (arguments.reach.json, image::run(&arguments)),
        Command::Reload(arguments) => (arguments.json, reload::run(&arguments)),
        Command::Backup(arguments) => (arguments.json, backup::run(&arguments)),
        Command::Restore(arguments) => (arguments.json, restore::run(&arguments)),
        Command::Log { command } => (command.is_json(), log::run(&command)),
        Command::Load(arguments) => return load::run(arguments),
        Command::Disktest(arguments) => return disktest::run(&arguments),
        Command::DisktestPart { part } => return disktest::part(&part),
        Command::RehearsalPart(arguments) => (false, region::rehearsal_part(&arguments)),
        Command::Explain(arguments) => (arguments.json, explain::run(&arguments)),
        Command::User(arguments) => (arguments.json, user::run(&arguments)),
        Command::Completions { shell } => (false, generate::completions(shell)),
        Command::Man { folder } => (false, generate::manual(folder.as_deref())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}
