//! `towline region divergence`: what the log of an old live group added and removed since another
//! group was promoted. It reads the data folder, beside a running process or without one.
//!
//! Not here: how the log is read (`towline_server::divergence`), the file (`exported`). Invariant:
//! that the tail was exported is noted only when all of the file is on the disk, and nothing of the
//! log was unreadable.

use std::path::Path;

use serde_json::{Value, json};
use towline_client::Message;
use towline_log::offline::{self, BodiesAtRest, Filter, Item};
use towline_server::divergence::{self, Divergence, FoundPut, HowEnded, TailChange, TailMessage};
use towline_server::return_order::{self, ExportNote, TailEnd};
use towline_types::{Lsn, Payload, printable};

use super::exported::{ExportWriter, ExportedHead};
use crate::arguments::RegionDivergence;
use crate::failure::Failure;
use crate::log::position;
use crate::quantity::shown_bytes;
use crate::show;

/// Characters of an id that are shown.
const ID_SHOWN_MAX: usize = 100;

/// Runs the command.
pub(super) fn run(arguments: &RegionDivergence) -> Result<(), Failure> {
    let data = &arguments.place.data;
    let folder = towline_server::log_folder(data)?;
    let nothing = || Failure::about(data.join("log").display(), "there is no recovery log");
    let folder = folder.filter(|folder| folder.is_dir()).ok_or_else(nothing)?;
    let fork = fork(arguments)?;
    let tail = tail_of(&folder, fork)?;
    let bodies = BodiesAtRest::open(&folder).map_err(Failure::failed)?;
    let mut export = arguments.export.as_deref().map(ExportWriter::create).transpose()?;
    let lists = Lists { arguments, bodies };
    let found = divergence::list(&folder, fork, &mut |message| lists.one(message, export.as_mut()));
    let found = found.map_err(|error| match error {
        divergence::DivergenceError::Shown(failure) => failure,
        other => Failure::about(folder.display(), other),
    })?;
    let messages = export.map(ExportWriter::finish).transpose()?;
    lists.summary(&found, messages)?;
    if !found.findings.is_empty() {
        return Err(Failure::Failed(
            "the list may not be complete: parts of the log cannot be read".to_owned(),
        ));
    }
    if let (Some(messages), Some(file)) = (messages, &arguments.export) {
        let file = file.display().to_string();
        let note = ExportNote { fork: fork.0, tail, messages, file };
        return_order::note_exported(data, &note)?;
    }
    Ok(())
}

/// Where the tail begins.
fn fork(arguments: &RegionDivergence) -> Result<Lsn, Failure> {
    if let Some(text) = &arguments.fork {
        return position(text);
    }
    let data = &arguments.place.data;
    match return_order::known_fork(data)? {
        Some(known) if known.is_compared => Ok(Lsn(known.fork)),
        Some(known) => Err(Failure::about(
            data.display(),
            format!(
                "it is not known yet where this log parts from that of group '{}': their batches \
                 are compared while both are connected. Run it again then, at the active instance, \
                 or give --fork",
                known.other
            ),
        )),
        None => Err(Failure::about(
            data.display(),
            "this instance has not heard of another group that went on without this one: connect \
             both, or give --fork (the position in the status of the promoted group)",
        )),
    }
}

/// The end of the tail as it is now: what comes later is not listed as exported.
fn tail_of(folder: &Path, fork: Lsn) -> Result<TailEnd, Failure> {
    let mut tail = TailEnd { end: fork.0, terms: Vec::new() };
    let filter = Filter { from: fork, ..Filter::default() };
    let shown = offline::dump(folder, filter, &mut |item| {
        if let Item::Batch { lsn, index, term, bytes, .. } = item {
            tail.enter(u64::from(term), index, lsn.after(bytes));
        }
    });
    shown.map_err(|error| Failure::about(folder.display(), error))?;
    Ok(tail)
}

struct Lists<'a> {
    arguments: &'a RegionDivergence,
    bodies: BodiesAtRest,
}

impl Lists<'_> {
    fn one(&self, message: &TailMessage, export: Option<&mut ExportWriter>) -> Result<(), Failure> {
        let content = message.put.as_ref().map(|put| self.content(put)).transpose();
        // What was removed may be gone from the log; what is to be exported may not.
        let content = match (content, message.change) {
            (Err(error), TailChange::Added) => return Err(error),
            (content, _) => content.ok().flatten(),
        };
        if let (TailChange::Added, Some(export), Some(put), Some(content)) =
            (message.change, export, &message.put, &content)
        {
            export.put(&head(message, put), content)?;
        }
        if self.arguments.summary {
            return Ok(());
        }
        let ids = content.and_then(|content| Message::decode(&Payload::from(content)).ok());
        match self.arguments.place.json {
            true => show::json(&as_json(message, ids.as_ref())),
            false => show::line(&as_text(message, ids.as_ref())),
        }
    }

    fn content(&self, put: &FoundPut) -> Result<bytes::Bytes, Failure> {
        let mut content = Vec::new();
        for piece in &put.body {
            self.bodies.read(*piece, &mut content).map_err(Failure::failed)?;
        }
        Ok(content.into())
    }

    fn summary(&self, found: &Divergence, exported: Option<u64>) -> Result<(), Failure> {
        let Divergence { fork, end, added, passed, removed, moved, unknown, objects, findings } =
            found;
        if self.arguments.place.json {
            let counts = |of: &(u64, u64)| json!({ "messages": of.0, "bytes": of.1 });
            return show::json(&json!({
                "kind": "summary",
                "fork_lsn": fork.to_string(),
                "end_lsn": end.to_string(),
                "tail_bytes": end.0.saturating_sub(fork.0),
                "added": counts(added),
                "added_and_removed": counts(passed),
                "removed": counts(removed),
                "moved": counts(moved),
                "not_in_log": unknown,
                "objects": objects,
                "findings": findings,
                "exported": exported,
            }));
        }
        let bytes = |of: &(u64, u64)| shown_bytes(of.1 as f64);
        let tail = shown_bytes(end.0.saturating_sub(fork.0) as f64);
        show::line(&format!("From {fork} to {end}: {tail} of log"))?;
        show::line(&format!("  added: {} messages, {}", added.0, bytes(added)))?;
        show::line(&format!("  added and removed again: {}, {}", passed.0, bytes(passed)))?;
        show::line(&format!("  removed: {}, {}", removed.0, bytes(removed)))?;
        show::line(&format!("  moved to another queue: {}", moved.0))?;
        if *unknown > 0 {
            show::line(&format!("  of those, {unknown} of which the put is not in the log"))?;
        }
        if *objects > 0 {
            show::line(&format!("  objects defined, altered or deleted: {objects}"))?;
        }
        for finding in findings {
            show::line(&format!("! {finding}"))?;
        }
        match exported {
            Some(count) => show::line(&format!("{count} messages exported")),
            None => Ok(()),
        }
    }
}

fn head(message: &TailMessage, put: &FoundPut) -> ExportedHead {
    let header = &put.header;
    ExportedHead {
        queue: message.queue.clone(),
        priority: header.priority,
        put_at_us: header.put_at.0,
        expires_at_us: header.expires_at.map(|at| at.0),
        bytes: put.bytes(),
    }
}

/// What happened, in two words: the change, and how.
fn words(change: TailChange) -> (&'static str, Option<&'static str>) {
    match change {
        TailChange::Added => ("added", None),
        TailChange::AddedAndRemoved(how) => ("added and removed", Some(how.as_str())),
        TailChange::Removed(how) => ("removed", Some(HowEnded::as_str(how))),
        TailChange::Moved => ("moved", None),
    }
}

fn as_json(message: &TailMessage, ids: Option<&Message>) -> Value {
    let (change, how) = words(message.change);
    let put = message.put.as_ref();
    json!({
        "kind": "message",
        "change": change.replace(' ', "_"),
        "how": how,
        "queue": message.queue,
        "sequence": message.sequence,
        "message_id": ids.and_then(|ids| ids.message_id.clone()),
        "correlation_id": ids.and_then(|ids| ids.correlation_id.clone()),
        "put_at_ms": put.map(|put| put.header.put_at.as_millis()),
        "bytes": put.map(FoundPut::bytes),
        "priority": put.map(|put| put.header.priority),
        // No other ones are in a log.
        "persistent": true,
        "lsn": put.map(|put| put.lsn.to_string()),
    })
}

fn as_text(message: &TailMessage, ids: Option<&Message>) -> String {
    let (change, how) = words(message.change);
    let how = how.map_or(String::new(), |how| format!(" ({how})"));
    let mut line = format!("{change}{how} {} {}", printable(&message.queue), message.sequence);
    match &message.put {
        Some(put) => {
            let at = put.header.put_at.as_millis();
            line += &format!(": persistent, {} bytes, put at {at} ms", put.bytes());
        }
        None => line += ": its put is not in the log any more",
    }
    if let Some(id) = ids.and_then(|ids| ids.message_id.as_ref()) {
        line += &format!(", id {}", shown_id(id));
    }
    if let Some(id) = ids.and_then(|ids| ids.correlation_id.as_ref()) {
        line += &format!(", correlation id {}", shown_id(id));
    }
    line
}

/// An id that a producer chose: by this list a person decides what goes, so that it forges no entry
/// of it, and does not push others off the screen. JSON has all of it.
fn shown_id(id: &str) -> String {
    let (shown, rest) = match id.char_indices().nth(ID_SHOWN_MAX) {
        Some((at, _)) => (id.get(..at).unwrap_or_default(), "…"),
        None => (id, ""),
    };
    format!("'{}{rest}'", printable(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_producer_forges_no_entry_and_commands_no_terminal() {
        let message =
            TailMessage { change: TailChange::Added, queue: "Q".into(), sequence: 7, put: None };
        let evil = "x\u{1b}[1A\r\nremoved (got) Q 1\u{202e}\u{9b}2J".to_owned();
        let ids = Message {
            message_id: Some(evil.clone()),
            correlation_id: Some("c".repeat(5_000)),
            ..Message::default()
        };
        let text = as_text(&message, Some(&ids));
        let cut = "c".repeat(ID_SHOWN_MAX);
        assert_eq!(
            text,
            format!(
                "added Q 7: its put is not in the log any more, id 'x\u{fffd}[1A\u{fffd}\u{fffd}\
                 removed (got) Q 1\u{fffd}\u{fffd}2J', correlation id '{cut}…'"
            )
        );
        assert_eq!(as_json(&message, Some(&ids))["message_id"], evil, "JSON has it as it is");
    }
}
