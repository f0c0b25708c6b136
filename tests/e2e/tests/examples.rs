//! The sample programs in `examples/clients`, run as their readers run them: each puts a message
//! that each gets. Not here: .NET, which the machines of the tests do not have.

use std::path::PathBuf;
use std::process::Command;

use towline_e2e::daemon::Site;
use towline_e2e::{Try, paths, program, require};

/// Where the samples are.
fn samples() -> PathBuf {
    paths::sources().join("../../examples/clients")
}

fn sample(language: &str, arguments: &[&str]) -> Try<Command> {
    let folder = samples().join(language);
    let mut command = match language {
        "java" => {
            let libraries = format!("{}/*", paths::installed("jms/lib")?.display());
            let mut java = Command::new("java");
            // A source file is compiled on the way.
            java.args(["-XX:TieredStopAtLevel=1", "-cp", &libraries]);
            java.arg(folder.join("src/main/java/Client.java"));
            java
        }
        "python" => {
            let mut python = Command::new(paths::installed("venv/bin/python")?);
            python.arg("-B").arg(folder.join("client.py"));
            python
        }
        "go" => Command::new(paths::installed("go-sample")?),
        _ => {
            let mut node = Command::new("node");
            node.env("NODE_PATH", paths::sources().join("node/node_modules"));
            node.arg(folder.join("client.js"));
            node
        }
    };
    command.args(arguments);
    Ok(command)
}

const LANGUAGES: [&str; 4] = ["java", "python", "go", "node"];

#[test]
fn each_sample_puts_what_each_sample_gets() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let url = daemon.url();
    for (at, putting) in LANGUAGES.iter().enumerate() {
        // By itself, and by the next one.
        for getting in [putting, LANGUAGES[(at + 1) % LANGUAGES.len()]] {
            let text = format!("from {putting} to {getting}");
            program::run(sample(putting, &[&url, "SAMPLES", "put", &text])?)?;
            let got = program::run(sample(getting, &[&url, "SAMPLES", "get"])?)?;
            require!(got.trim() == text, "{getting} got {got:?} and not {text:?}");
        }
    }
    daemon.stop()
}

#[test]
fn what_a_sample_puts_is_there_after_a_kill() -> Try {
    let mut site = Site::open()?;
    let daemon = site.start()?;
    for language in LANGUAGES {
        let queue = format!("KEPT.{language}");
        program::run(sample(language, &[&daemon.url(), &queue, "put", language])?)?;
    }
    site.listen = daemon.address().to_string();
    daemon.kill()?;
    let daemon = site.start()?;
    for language in LANGUAGES {
        let queue = format!("KEPT.{language}");
        let got = program::run(sample(language, &[&daemon.url(), &queue, "get"])?)?;
        require!(got.trim() == language, "{got:?} in {queue}");
    }
    daemon.stop()
}

#[test]
fn the_sample_in_java_moves_a_message_in_a_unit_of_work() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let url = daemon.url();
    program::run(sample("python", &[&url, "FROM", "put", "moved"])?)?;
    program::run(sample("java", &[&url, "FROM", "move", "TO"])?)?;
    let got = program::run(sample("go", &[&url, "TO", "get"])?)?;
    require!(got.trim() == "moved", "{got:?}");
    daemon.stop()
}
