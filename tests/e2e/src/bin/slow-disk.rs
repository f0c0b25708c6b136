//! `slow-disk FOLDER MOUNT DELAY_US`: shows a folder, each file operation so much later.
//!
//! Says `mounted` when it is there. Each line on standard input is answered with what was asked for
//! so far (JSON); at the end of standard input the mount is taken away. Not here: how it works (see
//! `towline_e2e::slow`).

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use towline_e2e::slow::Slow;
use towline_e2e::{Try, fail};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slow-disk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Try {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, mount, delay_us] = arguments.as_slice() else {
        fail!("usage: slow-disk FOLDER MOUNT DELAY_US");
    };
    let delay = Duration::from_micros(delay_us.parse()?);
    let slow = Slow::mount(Path::new(folder), Path::new(mount), delay)?;
    say("mounted")?;
    for line in std::io::stdin().lock().lines() {
        line?;
        say(&slow.counts().json())?;
    }
    slow.unmount()
}

fn say(line: &str) -> Try {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
