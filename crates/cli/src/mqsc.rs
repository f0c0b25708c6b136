//! `towline mqsc`: commands from arguments, a file, standard input or a terminal, to the server.
//!
//! The server reads and carries them out; here only END, HELP and continued lines are understood.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use towline_admin::mqsc::{Reader, Statement, parse};
use towline_admin::reply::Outcome;
use towline_admin::{Command, ScriptReply, reference};

use crate::arguments::{Mqsc, Reach};
use crate::failure::{self, Failure};
use crate::show;

/// Runs the command.
pub(crate) fn run(arguments: &Mqsc) -> Result<(), Failure> {
    if let Some(file) = &arguments.file {
        let text = std::fs::read_to_string(file);
        return script(&arguments.reach, &text.map_err(|e| Failure::about(file.display(), e))?);
    }
    if !arguments.command.is_empty() {
        return script(&arguments.reach, &arguments.command.join("\n"));
    }
    if std::io::stdin().is_terminal() {
        return interactive(&arguments.reach);
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    script(&arguments.reach, &text)
}

/// Has a script carried out, and prints what came back.
fn script(reach: &Reach, text: &str) -> Result<(), Failure> {
    if ["HELP", "?"].contains(&text.trim().to_uppercase().as_str()) {
        return show::lines(reference::help().trim_end());
    }
    let (json, reply) = ask(reach, text)?;
    if reach.json {
        show::json_text(&json)?;
    } else {
        show::lines(&reply.to_text())?;
        let mut failed = reply.replies.iter().filter(|reply| reply.outcome == Outcome::Failed);
        if let Some(message) = failed.next().and_then(|reply| reply.messages.first())
            && std::io::stderr().is_terminal()
            && let Some(hint) = failure::hint(&message.id)
        {
            eprintln!("{hint}");
        }
    }
    if reply.is_success() { Ok(()) } else { Err(Failure::Silent) }
}

/// A script's reply, as it came and understood.
fn ask(reach: &Reach, text: &str) -> Result<(String, ScriptReply), Failure> {
    let mut client = reach.connect()?;
    let json = client.ask_admin("mqsc", text)?.body;
    client.close()?;
    let reply = understood(&json)?;
    Ok((json, reply))
}

/// A reply of the administration node; `{"error": "..."}` is its word that it could not.
pub(crate) fn understood<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
        match value.get("error").and_then(serde_json::Value::as_str) {
            Some(reason) => Failure::failed(reason),
            None => Failure::about("the server's reply was not understood", error),
        }
    })
}

/// Reads commands at a terminal until END or the end of input. Each has a connection of its own: a
/// person may think for longer than a connection may be silent.
fn interactive(reach: &Reach) -> Result<(), Failure> {
    let mut client = reach.connect()?;
    let name = client.server().to_owned();
    // Whether this user may administer shows now and not after the first command.
    client.ask_admin("mqsc", "")?;
    client.close()?;
    let mut editor = DefaultEditor::new().map_err(Failure::failed)?;
    let history = history();
    if let Some(file) = &history {
        // There is none before the first time.
        editor.load_history(file).ok();
    }
    show::line(&format!("Connected to {name}. HELP shows the commands, END ends."))?;
    let mut reader = Reader::new();
    loop {
        let prompt = if reader.is_continued() { "     > ".into() } else { format!("{name}> ") };
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                reader = Reader::new();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::failed(error)),
        };
        editor.add_history_entry(&line).map_err(Failure::failed)?;
        if !reader.is_continued() && ["HELP", "?"].contains(&line.trim().to_uppercase().as_str()) {
            show::lines(reference::help().trim_end())?;
            continue;
        }
        let statements = reader.line(&line);
        if statements.iter().any(|statement| parse(statement) == Ok(Command::End)) {
            break;
        }
        for statement in &statements {
            one(reach, statement)?;
        }
    }
    if let Some(file) = &history {
        // A history that cannot be kept is no reason to fail.
        editor.save_history(file).ok();
    }
    Ok(())
}

/// Carries out one interactive command; only a lost server ends the session.
fn one(reach: &Reach, statement: &Statement) -> Result<(), Failure> {
    let (json, reply) = ask(reach, statement.text())?;
    if reach.json {
        return show::json_text(&json);
    }
    for reply in &reply.replies {
        show::lines(&reply.to_text())?;
    }
    Ok(())
}

/// Where earlier commands are kept.
fn history() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".towline_history"))
}
