//! A question before something is done that cannot be undone, or that clients notice.
//!
//! Not here: what is asked, and when.

use std::io::{BufRead, IsTerminal, Write};

use towline_types::printable_lines;

use crate::failure::Failure;

/// Refuses when there is a question and no terminal to ask at.
pub(crate) fn can_ask(yes: bool) -> Result<(), Failure> {
    match yes || std::io::stdin().is_terminal() {
        true => Ok(()),
        false => Err(Failure::Usage("there is no terminal for the question; add --yes".into())),
    }
}

/// Asks the person at the terminal.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let mut errors = std::io::stderr();
    write!(errors, "{} (yes/no) ", printable_lines(question))?;
    errors.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::failed("nothing was changed")),
    }
}
