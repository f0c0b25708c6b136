//! `slow-net LISTEN=TARGET...`: proxies for TCP that delay, narrow, cut and reset, to put between
//! the instances of a group (their members' addresses are then those of the proxies).
//!
//! Says `listening ADDRESS...`, in the order of the arguments. Each line on standard input is an
//! order (`towline_e2e::slow_net::command`), for all proxies, or with `N:` before it for one,
//! counted from 0; it is answered with a line each. It ends with standard input.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use towline_e2e::slow_net::SlowNet;
use towline_e2e::slow_net::command::Command;
use towline_e2e::{Try, require};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slow-net: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Try {
    let mut nets = Vec::new();
    for argument in std::env::args().skip(1) {
        let (listen, target) =
            argument.split_once('=').ok_or("usage: slow-net LISTEN=TARGET...")?;
        nets.push(SlowNet::start(listen.parse()?, target)?);
    }
    require!(!nets.is_empty(), "usage: slow-net LISTEN=TARGET...");
    let addresses: Vec<String> = nets.iter().map(|net| net.address().to_string()).collect();
    say(&format!("listening {}", addresses.join(" ")))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = order(&nets, &line);
        say(&answer.unwrap_or_else(|why| format!("error: {why}")))?;
    }
    Ok(())
}

fn order(nets: &[SlowNet], line: &str) -> Try<String> {
    let (nets, line) = match line.split_once(':') {
        Some((number, rest)) => {
            let number: usize = number.trim().parse()?;
            (nets.get(number..=number).ok_or("there is no such proxy")?, rest)
        }
        None => (nets, line),
    };
    let command = Command::parse(line)?;
    let answers: Vec<String> = nets.iter().map(|net| net.order(command)).collect();
    Ok(answers.join(" "))
}

fn say(line: &str) -> Try {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
