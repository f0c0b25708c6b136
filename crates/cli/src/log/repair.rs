//! `towline log repair`: what is damaged in a log at rest is taken from a backup or from the data
//! folder of another instance. What may be written is decided in the log's crate.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use towline_log::mend::{self, DamageLeft, MendReport};
use towline_server::inspection;

use super::{failed, found};
use crate::failure::Failure;
use crate::{progress, show};

/// Runs the command on the log in `folder`.
pub(super) fn run(data: &Path, folder: &Path, from: &Path, json: bool) -> Result<(), Failure> {
    // What is damaged otherwise may keep this from being known; then it is after the repair.
    let lacking = inspection::missing_extents(data).unwrap_or_default();
    // Messages that were set aside too: their notes are messages again with the extent.
    let wanted: Vec<u64> = lacking.of_all().extents().map(|(extent, _)| extent).collect();
    let bar = progress::byte_bar(json);
    let mut tell = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let report = match source_log(from)? {
        Some(source) => {
            mend::mend_from_log(folder, &source, &wanted, &mut tell).map_err(failed(folder))
        }
        None => towline_backup::mend_from_backup(folder, from, &wanted, &mut tell)
            .map_err(Failure::failed),
    };
    bar.finish_and_clear();
    let report = report?;
    if json {
        as_json(&report)?
    } else {
        as_text(&report)?
    }
    let is_certain = report.left.is_empty() && report.ends_at.is_none();
    if is_certain { Ok(()) } else { Err(Failure::Silent) }
}

/// The log of a data folder, or a log folder itself; `None`: it is a backup.
fn source_log(from: &Path) -> Result<Option<PathBuf>, Failure> {
    if !from.is_dir() {
        return Err(Failure::about(from.display(), "the folder does not exist"));
    }
    if from.join("manifest.json").is_file() {
        return Ok(None);
    }
    match towline_server::log_folder(from)? {
        Some(folder) if folder.is_dir() => Ok(Some(folder)),
        Some(_) | None => Err(Failure::about(
            from.display(),
            "this is neither a backup nor the data folder of an instance",
        )),
    }
}

fn as_json(report: &MendReport) -> Result<(), Failure> {
    let mended: Vec<Value> = report.mended.iter().map(found).collect();
    let left = report.left.iter().map(|DamageLeft { found: finding, why }| {
        let mut value = found(finding);
        if let Value::Object(fields) = &mut value {
            fields.insert("why".into(), (*why).into());
        }
        value
    });
    let left: Vec<Value> = left.collect();
    let ends_at = report.ends_at.map(|end| end.to_string());
    show::json(
        &json!({ "repaired": mended, "left": left, "bytes": report.bytes, "ends_at": ends_at }),
    )
}

fn as_text(report: &MendReport) -> Result<(), Failure> {
    for finding in &report.mended {
        show::line(&format!("repaired: {}", finding.without_advice()))?;
    }
    for DamageLeft { found: finding, why } in &report.left {
        show::line(&format!("! not repaired: {finding}; {why}"))?;
    }
    if let Some(end) = report.ends_at {
        show::line(&format!(
            "! the log ended in an extent that was gone, and ends at {end} now, as the source does: \
             what was written after the source was made, if anything was, is lost"
        ))?;
    }
    let (mended, left) = (report.mended.len(), report.left.len());
    match (mended, left) {
        (0, 0) => show::line("Nothing is damaged."),
        _ => show::line(&format!(
            "{mended} findings repaired ({} bytes written), {left} left",
            report.bytes
        )),
    }
}
