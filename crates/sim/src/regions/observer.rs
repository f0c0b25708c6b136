//! What the run sees of an instance: a coroutine of its process that looks at the log, the roles
//! and the status every moment.
//!
//! Not here: what is right (`logs`, `exposures`). Invariant: what is seen was so at one moment in
//! the process, and is older by no more than the pause between two looks and what the disk takes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towline_group::{Mode, Progress, Role};
use towline_os::task::{Handle, sleep};
use towline_replica::OpenReplica;
use towline_replication::applicable::CommittedBatches;
use towline_replication::region_part::RegionPart;
use towline_replication::return_order::{KnownFork, ReturnStage};
use towline_types::{BatchPlace, Histories, HistoryId};

use super::clients::Counter;
use super::exposures::ExposureSample;
use super::logs::Logs;
use crate::cluster::process::Board;
use crate::trace::now_us;

/// What an operator reads of a log that cannot be cut back.
pub(super) const EMPTY_IT: &str = "empty the data folder";
/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of batches that are looked at together.
const LOOK_BYTES: usize = 1 << 20;

/// What is seen.
#[derive(Clone, Debug)]
pub(super) struct RegionSight {
    pub(super) mode: Mode,
    pub(super) group: Progress,
    /// It leads, and its door is open.
    pub(super) serves: bool,
    pub(super) fork: Option<KnownFork>,
    pub(super) histories: Histories,
    /// It refused an order to return, because its log cannot be cut back.
    pub(super) needs_empty_folder: bool,
    /// A link stands on which it ships, or is shipped to.
    pub(super) is_connected: bool,
    /// The other group takes, or gets, a copy.
    pub(super) rebases: bool,
    /// Why nothing is shipped.
    pub(super) trouble: String,
}

/// What an observer needs.
pub(super) struct Sights {
    pub(super) end: usize,
    pub(super) opened: Arc<OpenReplica>,
    pub(super) part: Arc<RegionPart>,
    pub(super) board: Arc<Board>,
    pub(super) sight: Arc<Mutex<Option<RegionSight>>>,
    pub(super) logs: Arc<Logs>,
    pub(super) samples: Arc<Mutex<Vec<ExposureSample>>>,
    pub(super) counter: Arc<Counter>,
}

/// Looks until the process ends.
pub(super) fn look(sights: &Sights) {
    let mut seen = BatchPlace::default();
    loop {
        if let Err(broken) = look_at_log(sights, &mut seen) {
            sights.counter.fail(format!("instance {}: {broken}", sights.end));
        }
        look_at_roles(sights);
        Handle::current().block_on(sleep(LOOK_INTERVAL));
    }
}

fn look_at_log(sights: &Sights, seen: &mut BatchPlace) -> Result<(), String> {
    loop {
        match sights.opened.driver.committed_behind(seen.index, LOOK_BYTES) {
            CommittedBatches::Batches(batches) => {
                sights.logs.committed(sights.end, *seen, &batches)?;
                let Some(last) = batches.last() else { return Ok(()) };
                *seen = last.place();
            }
            // Only on the disk: compared by the one that shipped it, or wrote it.
            CommittedBatches::Places(places) => {
                let Some(last) = places.last() else { return Ok(()) };
                *seen = *last;
            }
        }
    }
}

fn look_at_roles(sights: &Sights) {
    let Sights { opened, part, board, .. } = sights;
    let driver = &opened.driver;
    // Both before the status is made, which has at least all that was acknowledged until then.
    let (at_us, group) = (now_us(), driver.group());
    let view = part.view();
    let door = board.served.lock().clone();
    let histories = opened.replica.look_if_there(|instance| instance.histories().clone());
    let serving = door.filter(|_| driver.leads());
    let histories = match &serving {
        Some((door, _)) => Some(door.look(|instance| instance.histories().clone())),
        None => histories,
    };
    let before = || sights.sight.lock().as_ref().map(|sight| sight.histories.clone());
    let histories = histories.or_else(before).unwrap_or_default();
    let is_closed =
        serving.as_ref().is_some_and(|(door, _)| door.look(|instance| instance.is_closed()));
    let shipping = view.shipping.as_ref();
    if let (Some(shipping), Some(newest)) = (shipping, histories.newest())
        && serving.is_some()
        && group.role == Role::Leader
        && shipping.is_known
    {
        sights.samples.lock().push(ExposureSample {
            at_us,
            term: group.term,
            history: newest.id,
            point: shipping.point.place.end,
            puts: shipping.exposure.puts,
            removals: shipping.exposure.removals,
        });
    }
    // An older order was carried out in another way, when the log has its history.
    let needs_empty_folder = driver.kept_return().is_some_and(|kept| {
        let cannot = matches!(&kept.stage, ReturnStage::Refused(why) if why.contains(EMPTY_IT));
        let id = HistoryId(kept.order.history);
        cannot && group.mode == Mode::Voting && histories.iter().all(|history| history.id != id)
    });
    let trouble = view.partition.clone().or(view.trouble.clone());
    let sight = RegionSight {
        mode: driver.mode(),
        group,
        serves: serving.is_some() && !is_closed,
        fork: part.known_fork(),
        histories,
        needs_empty_folder,
        is_connected: view.receiving.connected || shipping.is_some_and(|it| it.connected),
        rebases: view.rebase.is_some() || view.awaits_rebased,
        trouble: trouble.unwrap_or(view.link.trouble),
    };
    *sights.sight.lock() = Some(sight);
}
