//! `towline log`: a recovery log at rest, shown and checked.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use towline_backup::CheckReport;
use towline_core::object::Definition;
use towline_core::{Body, BodyName, Fact, Header, record};
use towline_log::folder::scan::Casualties;
use towline_log::offline::{self, Filter, Item, VerifyReport};
use towline_log::{Finding, LogError};
use towline_server::backup::check_images;
use towline_server::inspection;
use towline_server::missing_extents::MissingExtents;
use towline_types::{History, Lsn};

use crate::arguments::{Log, LogPlace};
use crate::failure::Failure;
use crate::show;

mod repair;

/// Runs the command.
pub(crate) fn run(command: &Log) -> Result<(), Failure> {
    match command {
        Log::Dump { place, from, to } => dump(place, from.as_deref(), to.as_deref()),
        Log::Verify { place } => verify(place),
        Log::Repair { place, from } => repair::run(&place.data, &folder(place)?, from, place.json),
    }
}

/// The log inside a data folder.
fn folder(place: &LogPlace) -> Result<PathBuf, Failure> {
    let folder = towline_server::log_folder(&place.data)?;
    let nothing = || Failure::about(place.data.join("log").display(), "there is no recovery log");
    folder.filter(|folder| folder.is_dir()).ok_or_else(nothing)
}

fn failed(folder: &Path) -> impl Fn(LogError) -> Failure {
    move |error| Failure::about(folder.display(), error)
}

fn dump(place: &LogPlace, from: Option<&str>, to: Option<&str>) -> Result<(), Failure> {
    let folder = folder(place)?;
    let all = Filter::default();
    let filter =
        Filter { from: from.map_or(Ok(all.from), position)?, to: to.map_or(Ok(all.to), position)? };
    let mut result = Ok(());
    let shown = offline::dump(&folder, filter, &mut |item| {
        // The first failure to write (a closed pipe, mostly) is the one that counts.
        if result.is_ok() {
            result =
                if place.json { show::json(&as_json(&item)) } else { show::line(&as_text(&item)) };
        }
    });
    shown.map_err(failed(&folder))?;
    result
}

/// `<a:b:c:d>`, `0x...` or a plain number.
pub(crate) fn position(text: &str) -> Result<Lsn, Failure> {
    let wrong = || Failure::Usage(format!("{text}: expected <a:b:c:d>, 0x... or a number"));
    if text.starts_with('<') {
        return text.parse().map_err(|_| wrong());
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map(Lsn).map_err(|_| wrong())
}

fn as_text(item: &Item<'_>) -> String {
    match item {
        Item::Image { at, bytes } => format!("{at} image, {bytes} bytes"),
        Item::Batch { lsn, index, term, bytes, .. } => {
            format!("{lsn} batch {index}, term {term}, {bytes} bytes")
        }
        Item::Record { lsn, last, bytes } => {
            let end = if *last { "" } else { " ..." };
            match record::decode(bytes, *lsn) {
                Ok((fact, _)) => format!("  {lsn} {}{end}", describe(&fact)),
                Err(error) => format!("  {lsn} not understood: {error}"),
            }
        }
        Item::GivenUp { lsn } => format!("  {lsn} the run so far was given up"),
        Item::Finding(finding) => format!("! {finding}"),
        Item::Damaged(found) => format!("! {}", casualties(*found)),
    }
}

/// What is left of a damaged batch.
fn casualties(found: Casualties) -> String {
    let Casualties { bodies, whole, incomplete } = found;
    let more = if incomplete { "; not all of it can be read" } else { "" };
    format!("  of its bodies {bodies} are damaged, {whole} are whole{more}")
}

fn as_json(item: &Item<'_>) -> Value {
    match item {
        Item::Image { at, bytes } => {
            json!({ "kind": "image", "lsn": at.to_string(), "bytes": bytes })
        }
        Item::Batch { lsn, index, term, bytes, .. } => json!({
            "kind": "batch", "lsn": lsn.to_string(), "index": index, "term": term, "bytes": bytes,
        }),
        Item::Record { lsn, last, bytes } => {
            let fact = record::decode(bytes, *lsn);
            let fact = fact.map_or_else(|error| error.to_string(), |(fact, _)| describe(&fact));
            json!({
                "kind": "record", "lsn": lsn.to_string(), "last": last, "bytes": bytes.len(),
                "fact": fact,
            })
        }
        Item::GivenUp { lsn } => json!({ "kind": "given_up", "lsn": lsn.to_string() }),
        Item::Finding(finding) => {
            let mut value = found(finding);
            if let Value::Object(fields) = &mut value {
                fields.insert("kind".into(), "finding".into());
            }
            value
        }
        Item::Damaged(found) => json!({
            "kind": "damaged_batch", "bodies_damaged": found.bodies, "bodies_whole": found.whole,
            "incomplete": found.incomplete,
        }),
    }
}

pub(super) fn found(finding: &Finding) -> Value {
    json!({
        "extent": finding.extent,
        "file": finding.file,
        "offset": finding.offset,
        "lsn": finding.lsn.to_string(),
        "what": finding.what.text(),
    })
}

/// A fact in one line, without the content of messages.
fn describe(fact: &Fact) -> String {
    match fact {
        Fact::Put { queue, sequence, carried, message } => {
            let header = &message.header;
            let (bytes, priority) = (length(&message.body), header.priority);
            let kind = if header.persistent { "persistent" } else { "non-persistent" };
            let verb = if *carried { "carried" } else { "put" };
            let (sequence, queue) = (sequence.0, queue.0);
            let more = said(header);
            format!(
                "{verb} {sequence} in queue {queue}: {kind}, priority {priority}, {bytes}{more}"
            )
        }
        Fact::Got { queue, sequence } => format!("got {} from queue {}", sequence.0, queue.0),
        Fact::BackedOut { queue, sequence, count } => {
            format!("backed out {} in queue {}: count {count}", sequence.0, queue.0)
        }
        Fact::Expired { queue, sequence } => {
            format!("expired {} in queue {}", sequence.0, queue.0)
        }
        Fact::Committed { operations } => format!("committed {operations} operations"),
        Fact::Part { commit, operations } => {
            format!("part of commit {}: {operations} operations", commit.0)
        }
        Fact::Completed { commit, operations, first } => {
            let (commit, first) = (commit.0, first.0);
            format!("completed commit {commit}: {operations} operations, puts from {first} on")
        }
        Fact::BodyChunk { body, index, chunk } => {
            format!("chunk {index} of {}: {}", named(*body), length(chunk))
        }
        Fact::Abandoned { first, bodies } => {
            format!("abandoned {bodies} bodies from {} on", first.0)
        }
        Fact::Deleted { queue } => format!("deleted queue {}", queue.0),
        Fact::Cleared { queue, upto } => format!("cleared queue {} up to {}", queue.0, upto.0),
        Fact::Defined { definition } => define(definition),
        Fact::Level { level } => format!("format level {level}"),
        Fact::HistoryBegun { history, first: _ } => {
            let History { id, fork, live, cause, .. } = &**history;
            format!("history {id} began: '{live}' is live from {fork} on ({cause})")
        }
        // Seldom, and best seen whole.
        other => format!("{other:?}"),
    }
}

fn define(definition: &Definition) -> String {
    match definition {
        Definition::Local(queue) => {
            format!("defined QLOCAL '{}', queue {}", queue.name, queue.id.0)
        }
        Definition::Alias(queue) => {
            format!("defined QALIAS '{}' for '{}'", queue.name, queue.target)
        }
        Definition::Model(queue) => format!("defined QMODEL '{}'", queue.name),
        Definition::QueueManager(_) => "altered QMGR".into(),
    }
}

fn length(body: &Body) -> String {
    match body {
        Body::Incoming(payload) => format!("{} bytes", payload.len()),
        Body::Memory(bytes) => format!("{} bytes", bytes.len()),
        Body::Log(location) => format!("{} bytes at {}", location.bytes, location.lsn),
        Body::Chunks(chunks) => format!("{} chunks", chunks.len()),
        Body::Announced { body, chunks, bytes } => {
            format!("{bytes} bytes in {chunks} chunks of {}", named(*body))
        }
    }
}

fn named(body: BodyName) -> String {
    match body {
        BodyName::Own(body) => format!("body {}", body.0),
        BodyName::Carried(sequence) => format!("message {}", sequence.0),
    }
}

/// What a producer said of a message beside what each has.
fn said(header: &Header) -> String {
    let mut said = String::new();
    if header.group != 0 {
        said += &format!(", group {:016x}", header.group);
    }
    if header.group_sequence != 0 {
        said += &format!(" number {}", header.group_sequence);
    }
    if let Some(due) = header.deliver_at {
        let delay = due.0.saturating_sub(header.put_at.0);
        said += &format!(", delivery {delay} microseconds after the put");
    }
    said
}

fn verify(place: &LogPlace) -> Result<(), Failure> {
    let folder = folder(place)?;
    let report = offline::verify(&folder).map_err(failed(&folder))?;
    // What a damaged log says of its pages is no news.
    let pages = match report.is_sound() {
        true => check_images(&place.data).map_err(Failure::failed)?,
        false => CheckReport::default(),
    };
    // The log itself does not say which messages live: that is known when it is read as a start
    // does.
    let lacking = match report.is_sound() && pages.is_sound() && report.last.is_some() {
        true => inspection::missing_extents(&place.data),
        false => Err("the damage found prevents reading the log as a start does".to_owned()),
    };
    let none_lacks = lacking.as_ref().is_ok_and(MissingExtents::is_empty) || lacking.is_err();
    let sound = report.is_sound() && pages.is_sound() && none_lacks;
    if place.json {
        let position = |lsn: Option<Lsn>| lsn.map(|lsn| lsn.to_string());
        let findings: Vec<Value> = report.findings.iter().map(found).collect();
        show::json(&json!({
            "sound": sound,
            "batches": report.batches,
            "records": report.records,
            "first_lsn": position(report.first),
            "last_lsn": position(report.last),
            "images": report.images,
            "pages": pages.pages,
            "batches_damaged": report.batches_damaged,
            "bodies_damaged": report.bodies_damaged,
            "bodies_unknown": report.bodies_unknown,
            "findings": findings,
            "page_findings": pages.findings,
            "extents_missing": missing(&lacking),
            "extents_missing_of_notes": missing(&lacking.map(|lacking| lacking.of_notes())),
        }))?;
    } else {
        summary(&report, &pages, (sound, &lacking))?;
    }
    if sound { Ok(()) } else { Err(Failure::Silent) }
}

/// Missing extents and their messages; null when it is not known.
fn missing(lacking: &Result<MissingExtents, String>) -> Value {
    let Ok(lacking) = lacking else { return Value::Null };
    let extents = lacking.extents().map(|(extent, messages)| {
        json!({ "file": format!("extent-{extent:016x}"), "extent": extent, "messages": messages })
    });
    extents.collect()
}

fn summary(
    report: &VerifyReport,
    checked: &CheckReport,
    (sound, lacking): (bool, &Result<MissingExtents, String>),
) -> Result<(), Failure> {
    for finding in &report.findings {
        show::line(&format!("! {finding}"))?;
    }
    for finding in &checked.findings {
        show::line(&format!("! {finding}"))?;
    }
    match lacking {
        Ok(lacking) => missing_extents(lacking)?,
        Err(why) if report.last.is_some() => {
            show::line(&format!("Not checked: messages in missing extents ({why})"))?;
        }
        Err(_) => {}
    }
    let VerifyReport { batches, records, images, .. } = report;
    if let (Some(first), Some(last)) = (report.first, report.last) {
        show::line(&format!("{batches} batches, {records} records, from {first} to {last}"))?;
    }
    show::line(&format!("{images} images; the newest one has {} pages", checked.pages))?;
    if !sound {
        show::line("'towline log repair' can restore it from a backup or another instance.")?;
    }
    if report.batches_damaged > 0 {
        let VerifyReport { batches_damaged, bodies_damaged, bodies_unknown, .. } = report;
        let least = if *bodies_unknown { "at least " } else { "" };
        show::line(&format!(
            "{batches_damaged} damaged batches, in them {least}{bodies_damaged} damaged messages"
        ))?;
    }
    show::line(if sound { "The log is sound." } else { "The log is damaged." })
}

fn missing_extents(lacking: &MissingExtents) -> Result<(), Failure> {
    if !lacking.is_empty() {
        let messages = lacking.messages();
        show::line(&format!("! missing, with {messages} live messages in them: {lacking}"))?;
    }
    let notes = lacking.notes();
    if notes > 0 {
        show::line(&format!(
            "{notes} messages that were set aside need extents that are missing: {}; 'towline log \
             repair' restores them from their notes",
            lacking.of_notes()
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_in_all_their_spellings() {
        let lsn = Lsn(0x0000_0485_a042_e772);
        for text in ["<0:1157:41026:59250>", "0x00000485a042e772", "4971965900658"] {
            assert_eq!(position(text).unwrap(), Lsn(lsn.0), "{text}");
        }
        for text in ["<1:2:3>", "<1:2:3:70000>", "0xg", "", "-1"] {
            assert!(position(text).is_err(), "{text}");
        }
    }
}
