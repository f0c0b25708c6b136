//! `towline explain`: an entry of the catalogue of messages, with what to do. Asks no queue
//! manager.

use towline_admin::catalogue::{self, Entry, Severity};

use crate::arguments::Explain;
use crate::failure::Failure;
use crate::show;

/// Columns of a text.
const COLUMNS: usize = 80;

/// Runs the command.
pub(crate) fn run(arguments: &Explain) -> Result<(), Failure> {
    let entry = catalogue::find(&arguments.id).map_err(|near| unknown(&arguments.id, &near))?;
    if arguments.json {
        return show::json(&serde_json::json!({
            "id": entry.id,
            "severity": entry.severity(),
            "text": entry.template,
            "explanation": entry.explanation,
        }));
    }
    let kind = match entry.severity() {
        Severity::Information => "information",
        Severity::Warning => "warning",
        Severity::Error => "error: action is needed",
    };
    show::line(&format!("{} ({kind})", entry.id))?;
    show::lines(&wrapped(entry.template))?;
    show::line("")?;
    show::lines(&wrapped(entry.explanation))
}

fn unknown(typed: &str, near: &[&Entry]) -> Failure {
    let ids: Vec<&str> = near.iter().map(|entry| entry.id).collect();
    Failure::Failed(match ids.as_slice() {
        [] => format!("'{typed}' is not a message id; ids look like TWL1012E"),
        ids => format!("there is no message {typed}; the nearest are {}", ids.join(", ")),
    })
}

/// Words in lines that fit.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let columns = line.chars().count() + word.chars().count();
        match line.is_empty() {
            true => line.push_str(word),
            false if columns < COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            false => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_fits_into_a_terminal() {
        for entry in catalogue::ALL.iter() {
            for text in [entry.template, entry.explanation] {
                let shown = wrapped(text);
                assert!(shown.lines().all(|line| line.chars().count() <= COLUMNS), "{shown}");
                assert_eq!(shown.replace('\n', " "), text, "no word is lost");
            }
        }
    }
}
