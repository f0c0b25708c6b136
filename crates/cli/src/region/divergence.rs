//! `towline region divergence`: what the log of an old live group added and removed since another
//! group was promoted. It reads the data folder, beside a running process or without one.
//!
//! Not here: how the log is read (`towline_server::divergence`), the file (`exported`). Invariants:
//! that the tail was exported is noted only when all of the file is on the disk, and nothing of the
//! log was unreadable, gone or not compared; what may be missing is said, and the exit code is not
//! 0.

use std::path::Path;

use serde_json::{Value, json};
use towline_client::Message;
use towline_log::offline::{self, BodiesAtRest, Filter, Item};
use towline_server::divergence::{
    self, Divergence, FoundPut, HowEnded, TailBegin, TailChange, TailMessage,
};
use towline_server::return_order::{self, ExportNote, ForkEvidence, KnownFork, TailEnd};
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
    let (begin, doubt) = begin(arguments)?;
    let fork = begin.from;
    let tail = tail_of(&folder, fork)?;
    let bodies = BodiesAtRest::open(&folder).map_err(Failure::failed)?;
    let mut export = arguments.export.as_deref().map(ExportWriter::create).transpose()?;
    let lists = Lists { arguments, bodies };
    let found =
        divergence::list(&folder, begin, &mut |message| lists.one(message, export.as_mut()));
    let mut found = found.map_err(|error| match error {
        divergence::DivergenceError::Shown(failure) => failure,
        other => Failure::about(folder.display(), other),
    })?;
    found.findings.extend(doubt);
    let messages = export.map(ExportWriter::finish).transpose()?;
    lists.summary(&found, messages)?;
    if !found.findings.is_empty() {
        return Err(Failure::Failed(
            "the list may not be complete, see what is marked with '!' (in JSON: findings). The file \
             of an export has all that is listed as added and perhaps added"
                .to_owned(),
        ));
    }
    if let (Some(messages), Some(file)) = (messages, &arguments.export) {
        let file = file.display().to_string();
        let note = ExportNote { fork: fork.0, tail, messages, file };
        return_order::note_exported(data, &note)?;
    }
    Ok(())
}

/// Where the tail begins; and what may not be in the list, as far as both logs were compared.
fn begin(arguments: &RegionDivergence) -> Result<(TailBegin, Option<String>), Failure> {
    let data = &arguments.place.data;
    if let Some(text) = &arguments.fork {
        let given = position(text)?;
        // It needs no fork that was heard of, and nor need that be readable.
        let known = return_order::known_fork(data).ok().flatten();
        return Ok(match known.filter(|known| known.is_compared) {
            Some(known) if given >= Lsn(known.fork) => {
                let (heard, doubt) = begin_known(&known);
                let begin = begin_at(given, Some(&known));
                (TailBegin { parts_before: heard.parts_before, ..begin }, doubt)
            }
            known => (begin_at(given, known.as_ref()), None),
        });
    }
    match return_order::known_fork(data)? {
        Some(known) if known.is_compared => Ok(begin_known(&known)),
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

/// The tail begins where the operator says. What was put from there on is of this log alone only
/// behind the fork that was heard of.
fn begin_at(given: Lsn, known: Option<&KnownFork>) -> TailBegin {
    let own = known.map_or(given, |known| Lsn(known.own_from.max(known.fork)).max(given));
    TailBegin { own, ..TailBegin::at(given) }
}

/// As both logs were compared.
fn begin_known(known: &KnownFork) -> (TailBegin, Option<String>) {
    let (from, other) = (Lsn(known.fork), printable(&known.other));
    let is_common = !known.common.is_empty();
    match known.evidence {
        ForkEvidence::Histories => {
            let why = format!(
                "one of both logs does not go back to {from} any more, so their batches could not be \
                 compared: the tail begins where the histories part. If this group lost a part of its \
                 log before that (put back from a backup or a snapshot, 'towline instance \
                 force-vote'), messages that it acknowledged then are not in this list: give --fork \
                 with an earlier position, and they are listed as perhaps added, with those that group \
                 '{other}' has too"
            );
            (begin_at(from, Some(known)), Some(why))
        }
        ForkEvidence::OtherBatches => {
            let why = format!(
                "no batch is left that this log and that of group '{other}' both have: they part \
                 before {from}, or there. What is listed as perhaps added may be at group '{other}' \
                 too"
            );
            (TailBegin { parts_before: true, ..begin_at(from, Some(known)) }, Some(why))
        }
        ForkEvidence::Batches | ForkEvidence::Unsaid if is_common => (TailBegin::at(from), None),
        // An earlier version said no more than that nothing was in common.
        ForkEvidence::Batches | ForkEvidence::Unsaid => {
            let why = format!(
                "it is not known where this log parts from that of group '{other}': all that it has is \
                 listed as perhaps added. Connect both regions, and run it again"
            );
            (TailBegin { from, own: Lsn(u64::MAX), parts_before: true }, Some(why))
        }
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
        let is_there = matches!(message.change, TailChange::Added | TailChange::PerhapsAdded);
        let content = match content {
            Err(error) if is_there => return Err(error),
            content => content.ok().flatten(),
        };
        if let (true, Some(export), Some(put), Some(content)) =
            (is_there, export, &message.put, &content)
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
        if self.arguments.place.json {
            return show::json(&summary_json(found, exported));
        }
        let Divergence { fork, end, added, passed, removed, moved, unknown, objects, .. } = found;
        let bytes = |of: &(u64, u64)| shown_bytes(of.1 as f64);
        let tail = shown_bytes(end.0.saturating_sub(fork.0) as f64);
        show::line(&format!("From {fork} to {end}: {tail} of log"))?;
        show::line(&format!("  added: {} messages, {}", added.0, bytes(added)))?;
        show::line(&format!("  added and removed again: {}, {}", passed.0, bytes(passed)))?;
        show::line(&format!("  removed: {}, {}", removed.0, bytes(removed)))?;
        show::line(&format!("  moved to another queue: {}", moved.0))?;
        let (perhaps, ended) = (&found.perhaps_added, &found.perhaps_removed);
        if perhaps.0 > 0 {
            let size = bytes(perhaps);
            show::line(&format!(
                "  perhaps added: {}, {size}: they may be at the other group too",
                perhaps.0
            ))?;
        }
        if ended.0 > 0 {
            let text = "the other group has them, if they were put before the fork";
            show::line(&format!("  removed, and perhaps added: {}: {text}", ended.0))?;
        }
        if *unknown > 0 {
            show::line(&format!("  of those, {unknown} of which the put is not in the log"))?;
        }
        if *objects > 0 {
            show::line(&format!("  objects defined, altered or deleted: {objects}"))?;
        }
        for finding in &found.findings {
            show::line(&format!("! {finding}"))?;
        }
        match exported {
            Some(count) => show::line(&format!("{count} messages exported")),
            None => Ok(()),
        }
    }
}

fn summary_json(found: &Divergence, exported: Option<u64>) -> Value {
    let counts = |of: &(u64, u64)| json!({ "messages": of.0, "bytes": of.1 });
    json!({
        "kind": "summary",
        "fork_lsn": found.fork.to_string(),
        "first_lsn": found.first.map(|first| first.to_string()),
        "end_lsn": found.end.to_string(),
        "tail_bytes": found.end.0.saturating_sub(found.fork.0),
        "added": counts(&found.added),
        "added_and_removed": counts(&found.passed),
        "removed": counts(&found.removed),
        "moved": counts(&found.moved),
        "perhaps_added": counts(&found.perhaps_added),
        "perhaps_removed": counts(&found.perhaps_removed),
        "not_in_log": found.unknown,
        "objects": found.objects,
        "findings": found.findings,
        "exported": exported,
    })
}

fn head(message: &TailMessage, put: &FoundPut) -> ExportedHead {
    let header = &put.header;
    ExportedHead {
        queue: message.queue.clone(),
        priority: header.priority,
        put_at_us: header.put_at.0,
        expires_at_us: header.expires_at.map(|at| at.0),
        bytes: put.bytes(),
        is_perhaps: message.change == TailChange::PerhapsAdded,
    }
}

/// What happened, in two words: the change, and how.
fn words(change: TailChange) -> (&'static str, Option<&'static str>) {
    match change {
        TailChange::Added => ("added", None),
        TailChange::AddedAndRemoved(how) => ("added and removed", Some(how.as_str())),
        TailChange::Removed(how) => ("removed", Some(HowEnded::as_str(how))),
        TailChange::Moved => ("moved", None),
        TailChange::PerhapsAdded => ("perhaps added", None),
        TailChange::PerhapsRemoved(how) => ("perhaps removed", Some(how.as_str())),
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

    #[test]
    fn what_was_not_compared_is_said_and_what_was_is_listed_as_it_is() {
        let known = |evidence, own_from| KnownFork {
            fork: 9_000,
            own_from,
            evidence,
            is_compared: true,
            other: "EAST\u{1b}".into(),
            ..KnownFork::default()
        };
        let compared =
            KnownFork { common: vec![Default::default()], ..known(ForkEvidence::Batches, 9_000) };
        let exactly = TailBegin::at(Lsn(9_000));
        assert_eq!(begin_known(&compared), (exactly, None));
        let earlier =
            KnownFork { common: vec![Default::default()], ..known(ForkEvidence::Unsaid, 0) };
        assert_eq!(begin_known(&earlier), (exactly, None), "as an earlier version kept it");

        let (begin, doubt) = begin_known(&known(ForkEvidence::Histories, 9_000));
        let doubt = doubt.unwrap();
        assert_eq!(begin, exactly, "what was before the fork is not called added");
        assert!(doubt.contains("could not be compared") && doubt.contains("--fork"), "{doubt}");
        assert!(!doubt.contains('\u{1b}'));
        let (begin, doubt) = begin_known(&known(ForkEvidence::OtherBatches, 9_500));
        let own = Lsn(9_500);
        assert_eq!(begin, TailBegin { own, parts_before: true, ..exactly });
        assert!(doubt.unwrap().contains("no batch is left"));
        let (begin, doubt) = begin_known(&known(ForkEvidence::Unsaid, 0));
        assert!(begin.parts_before && begin.own == Lsn(u64::MAX) && doubt.is_some());

        // From an earlier position: what is before the fork may be at the other group.
        let given = begin_at(Lsn(4_096), Some(&compared));
        assert_eq!(given, TailBegin { own: Lsn(9_000), ..TailBegin::at(Lsn(4_096)) });
        assert_eq!(begin_at(Lsn(9_100), Some(&compared)), TailBegin::at(Lsn(9_100)));
        assert_eq!(begin_at(Lsn(4_096), None), TailBegin::at(Lsn(4_096)));
    }

    #[test]
    fn what_is_perhaps_added_is_exported_as_such_and_counted_apart() {
        let put = FoundPut { lsn: Lsn(5), header: Default::default(), body: Vec::new() };
        let message = TailMessage {
            change: TailChange::PerhapsAdded,
            queue: "Q".into(),
            sequence: 7,
            put: Some(put.clone()),
        };
        assert!(head(&message, &put).is_perhaps);
        assert_eq!(as_json(&message, None)["change"], "perhaps_added");
        let found = Divergence {
            perhaps_added: (2, 30),
            perhaps_removed: (1, 0),
            findings: vec!["why".into()],
            ..Divergence::default()
        };
        let said = summary_json(&found, Some(2));
        assert_eq!(said["perhaps_added"], json!({ "messages": 2, "bytes": 30 }));
        assert_eq!(
            (&said["perhaps_removed"]["messages"], &said["findings"][0]),
            (&json!(1), &json!("why"))
        );
    }
}
