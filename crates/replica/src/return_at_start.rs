//! A start carries out the order to return: it cuts the log off at the fork, and is a recovery
//! member.
//!
//! The order is kept in the data folder, and the process that got it has ended. This one looks
//! whether it can be carried out, and does so before the log is opened. So nothing comes between
//! the look and the cut: what was put since the tail was exported is found, and refuses the order.
//! When an image is cut off the start rebuilds the queues: the older one's pages may be reused.
//!
//! Not here: the order (`returning`), the cut itself (`towline_log::cut_back`). Invariants: before
//! anything is cut it is known that a start can go on with what is left; what was cut is cut in all
//! of it before the log is opened; the hard state says recovery before that too.

use std::path::Path;
use std::sync::Arc;

use towline_admin::catalogue::{REGION_RETURN_REFUSED, REGION_RETURNED};
use towline_engine::inspection::Trust;
use towline_engine::{StartError, divergence, inspection};
use towline_group::{HardState, Mode};
use towline_log::cut_back::{CutError, CutView, cut_back, last_upto, removes_images, summed_upto};
use towline_log::{Disk, LinuxDisk, LogError, REBUILD_MARKER, mark_rebuild};
use towline_logging::log as say;
use towline_os::fs;
use towline_replication::batch_marks::BatchMark;
use towline_replication::fence;
use towline_replication::hard_state_file::HardStateFile;
use towline_replication::return_order::{self, ALL, KeptReturn, ReturnOrder, ReturnStage};
use towline_standby::Home;
use towline_types::{BatchPlace, HistoryId, Lsn};

/// Whether an order can be carried out with the log in `data`, and gives up no more than it says.
pub(crate) fn check(data: &Path, order: &ReturnOrder) -> Result<(), String> {
    let home = Home::single(data);
    let folder = home.log_folder();
    let (fork, end) = (Lsn(order.fork), order.tail.end);
    // It need not be applied yet, and others may count on it: a switch is committed with it.
    if divergence::has_record(folder, fork, HistoryId(order.history))? {
        return Err("its log has the history of the other group, and is about to follow it".into());
    }
    let disk = LinuxDisk::read_only(folder).map_err(|error| error.to_string())?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    if end != ALL || !order.common.is_empty() {
        has_common(&disk, order)?;
    }
    if end != ALL {
        if let Some(at) = divergence::first_change(folder, Lsn(end))? {
            return Err(format!(
                "the log went on at {at}, and its tail was looked at up to {} only: export it again",
                Lsn(end)
            ));
        }
        let last = last_upto(&disk, Lsn(end)).map_err(gone)?;
        if last.end > fork && !order.tail.has(last.term, last.index) {
            return Err("its tail is not the one that was exported, but that of another active \
                        instance: export it here too"
                .to_owned());
        }
    }
    if fs::try_exists(home.rebuild_marker()).map_err(|error| error.to_string())? {
        return Err(format!(
            "its queues are to be rebuilt first ({REBUILD_MARKER}): start it again"
        ));
    }
    let trust = match removes_images(&disk, fork).map_err(gone)? {
        true => Trust::Ignored,
        false => Trust::Whole,
    };
    let (view, keep) = CutView::of(&disk, fork).map_err(gone)?;
    let view: Arc<dyn Disk> = Arc::new(view);
    inspection::can_start_at(&view, keep.end, trust)
        .map_err(|why| format!("the log cannot be cut off at {fork}: {why}. {COPY}"))
}

/// What is left when a log cannot be cut off.
pub(crate) const COPY: &str = "It needs a copy of the live group's log: export what it has of its own \
                    first ('towline region divergence --export FILE'), then empty the data folder, \
                    and start it with role = \"recovery\"";

/// Whether what would be left of the log is of the log of the live group: it ends with a batch that
/// both have.
fn has_common(disk: &Arc<dyn Disk>, order: &ReturnOrder) -> Result<(), String> {
    let (place, sum) = summed_upto(disk, Lsn(order.fork)).map_err(gone)?;
    if order.common.contains(&BatchMark::of(place, sum)) {
        return Ok(());
    }
    Err(format!(
        "this log has batch {} at {} before the fork, which the live group does not have, or has not \
         been compared: 'towline region divergence --export FILE' and 'towline region rejoin' here, \
         when both regions are connected",
        place.index, place.lsn
    ))
}

fn gone(error: CutError) -> String {
    format!("{error}. {COPY}")
}

/// A recovery member that was marked for a promotion since it got the order, or took batches of a
/// leader of its own group, has promised what it has to that one.
fn has_its_part(data: &Path, kept: &KeptReturn) -> Result<(), String> {
    let read = HardStateFile::of(data).read().map_err(|error| error.to_string())?;
    let HardState { mode, led_term, .. } = read.unwrap_or_default();
    match kept.in_recovery && (mode != Mode::Recovery || led_term > 0) {
        true => Err("this group was promoted since it was in recovery last".to_owned()),
        false => Ok(()),
    }
}

/// Carries out the order to return that was given to this instance, if there is one. Before the log
/// is opened.
///
/// # Errors
/// The disk failed: the next start goes on.
pub(crate) fn settle(data: &Path) -> Result<(), StartError> {
    let Some(kept) = return_order::kept(data).map_err(StartError::Folder)? else { return Ok(()) };
    let keep = |stage| {
        let now = KeptReturn { stage, had_all: false, ..kept.clone() };
        return_order::keep(data, &now).map_err(StartError::Folder)
    };
    match kept.stage {
        ReturnStage::Done | ReturnStage::Refused(_) => return Ok(()),
        ReturnStage::Cutting => {}
        ReturnStage::Ordered => {
            if let Err(why) = has_its_part(data, &kept).and_then(|()| check(data, &kept.order)) {
                say(&REGION_RETURN_REFUSED, &[&why]);
                return keep(ReturnStage::Refused(why));
            }
            keep(ReturnStage::Cutting)?;
        }
    }
    let home = Home::single(data);
    let disk: Arc<dyn Disk> =
        Arc::new(LinuxDisk::open(home.log_folder()).map_err(StartError::Log)?);
    let last = cut(&disk, &home, Lsn(kept.order.fork))?;
    drop(disk);
    let file = HardStateFile::of(data);
    let hard_state = file.read().map_err(StartError::Folder)?.unwrap_or_default().returned(last);
    // What is noted as committed counts beside the hard state: it must be no more than is there.
    file.note_durably(&hard_state).map_err(StartError::Folder)?;
    file.write(&hard_state).map_err(StartError::Folder)?;
    return_order::forget_fork(data).map_err(StartError::Folder)?;
    // What stopped this group is of the tail that is cut off now.
    fence::forget_fence(data).map_err(StartError::Folder)?;
    let had_all = hard_state.may_vote;
    let done = KeptReturn { stage: ReturnStage::Done, had_all, ..kept };
    return_order::keep(data, &done).map_err(StartError::Folder)?;
    say(&REGION_RETURNED, &[&last.end.to_string(), &last.index.to_string()]);
    Ok(())
}

/// Cuts the log off. When that removes an image, the queues are rebuilt from the log: pages that an
/// older one refers to were let go with the newer one, and hold other messages since, or none.
/// Noted first: once the image is removed nothing else says so.
fn cut(disk: &Arc<dyn Disk>, home: &Home, fork: Lsn) -> Result<BatchPlace, StartError> {
    let failed = |error| match error {
        CutError::Log(error) => StartError::Log(error),
        // It was looked at before anything was cut.
        CutError::WithinBatch(_) | CutError::Gone => {
            let error = std::io::Error::other(error);
            StartError::Log(LogError::io("cut the log off", "log", error))
        }
    };
    if removes_images(disk, fork).map_err(failed)? {
        mark_rebuild(&home.rebuild_marker()).map_err(StartError::Folder)?;
    }
    cut_back(disk, fork).map_err(failed)
}

#[cfg(test)]
mod tests;
