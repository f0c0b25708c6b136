//! Why a command failed, and its exit code.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use towline_client::Error;
use towline_types::{printable_entry, printable_json};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1: it was tried.
    Failed(String),
    /// 1: it was tried, and what there is to say was said.
    Silent,
    /// 2: the options do not make sense.
    Usage(String),
    /// 3: there is no message.
    NoMessage,
    /// 3: what was looked at does not do, and what there is to say was said.
    Unfit,
    /// 4: no queue manager answers.
    CannotConnect(String),
}

impl Failure {
    /// A failure in the words of whatever caused it.
    pub(crate) fn failed(reason: impl Display) -> Failure {
        Failure::Failed(reason.to_string())
    }

    /// A failure about something that has a name.
    pub(crate) fn about(name: impl Display, reason: impl Display) -> Failure {
        Failure::Failed(format!("{name}: {reason}"))
    }

    /// Why, in one line.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Failure::Failed(text) | Failure::Usage(text) | Failure::CannotConnect(text) => text,
            Failure::Silent => "failed",
            Failure::Unfit => "it does not fit",
            Failure::NoMessage => "no message",
        }
    }

    /// Says it, and gives the exit code.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        let (code, text) = match self {
            Failure::Failed(text) => (1, Some(text)),
            Failure::Silent => (1, None),
            Failure::Usage(text) => (2, Some(text)),
            Failure::NoMessage => (3, json.then(|| "no message".to_owned())),
            Failure::Unfit => (3, None),
            Failure::CannotConnect(text) => (4, Some(text)),
        };
        match text {
            Some(text) if json => {
                // The reader may be gone; there is no other output for the error.
                let line = serde_json::json!({ "error": text, "exit_code": code });
                let line = printable_json(&line.to_string());
                writeln!(std::io::stdout(), "{line}").ok();
            }
            Some(text) => {
                // It may quote what a peer said.
                eprintln!("towline: {}", printable_entry(&text));
                if std::io::stderr().is_terminal()
                    && let Some(hint) = hint(&text)
                {
                    eprintln!("{hint}");
                }
            }
            None => {}
        }
        ExitCode::from(code)
    }
}

/// Where more is said about a text that has the id of a message.
pub(crate) fn hint(text: &str) -> Option<String> {
    let id = towline_admin::catalogue::id_in(text)?;
    Some(format!("What to do: towline explain {id}"))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::CannotConnect { .. } => Failure::CannotConnect(error.to_string()),
            Error::Refused { .. }
            | Error::Lost(_)
            | Error::NoAnswer { .. }
            | Error::Unexpected(_)
            | Error::Io(_) => Failure::Failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            // The reader of our output has seen enough (`| head`).
            std::io::ErrorKind::BrokenPipe => Failure::Silent,
            _ => Failure::failed(error),
        }
    }
}
