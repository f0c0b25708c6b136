//! The return of an old live group: its log is cut off where another group went on without it, and
//! it is a recovery group from then on. What stands in the way, and the order.
//!
//! Not here: the command (the daemon's control socket), how the order reaches the other instances
//! (`Driver::order_return`), what it does (`return_at_start`). Invariant: an order is kept only
//! when it could be carried out now.

use towline_group::Mode;
use towline_replication::region_part::RegionPart;
use towline_replication::return_order::{self, ExportNote, KnownFork, ReturnOrder, TailEnd};
use towline_types::Lsn;

use crate::open::OpenReplica;
use crate::return_at_start::{COPY, check};

/// What is to be expected of a return, ordered now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnOutlook {
    /// Why it would be refused.
    pub obstacles: Vec<String>,
    /// Where the other group went on, as far as this instance has heard.
    pub known: Option<KnownFork>,
    /// End of the log.
    pub end: Lsn,
    /// What was exported of the tail that is there now.
    pub exported: Option<ExportNote>,
}

/// Looks what stands in the way of a return. `discards`: the tail may go without an export.
#[must_use]
pub fn outlook(opened: &OpenReplica, part: &RegionPart, discards: bool) -> ReturnOutlook {
    let mut found = ReturnOutlook::default();
    match order_of((opened, part), discards, &mut found) {
        Ok(_) => {}
        Err(why) => found.obstacles.push(why),
    }
    found
}

/// Keeps the order that the next start of this instance carries out; yields it. The process is to
/// end ([`towline_replication::driver::Driver::begins_return_with_others`]).
///
/// # Errors
/// Why not: nothing was changed.
pub fn order(
    opened: &OpenReplica,
    part: &RegionPart,
    discards: bool,
    (by, id): (&str, [u8; 16]),
) -> Result<ReturnOrder, String> {
    let mut found = ReturnOutlook::default();
    let order = order_of((opened, part), discards, &mut found)?;
    let order = ReturnOrder { id, by: by.to_owned(), ..order };
    opened.driver.order_return(order.clone())?;
    Ok(order)
}

fn order_of(
    (opened, part): (&OpenReplica, &RegionPart),
    discards: bool,
    found: &mut ReturnOutlook,
) -> Result<ReturnOrder, String> {
    let driver = &opened.driver;
    let data = driver.data();
    let text = |error: std::io::Error| error.to_string();
    // Not what an earlier process heard: the other group may follow this one by now.
    let Some(known) = part.known_fork().filter(|known| is_fit(driver.mode(), known)) else {
        return Err(nothing_known(driver.mode()).to_owned());
    };
    if !known.is_compared {
        return Err(
            "it is not known yet where this log parts from that of the other group: their \
                    batches are being compared. Connect both regions, and order it at the active \
                    instance"
                .to_owned(),
        );
    }
    found.known = Some(known.clone());
    found.end = driver.log().durable();
    let note = return_order::exported(data).map_err(text)?;
    found.exported = note.filter(|note| note.fork == known.fork);
    // Whether it was exported or not: what cannot be done is not asked for.
    if known.common.is_empty() {
        return Err(format!("no batch is left that both logs have. {COPY}"));
    }
    let tail = match (&found.exported, discards) {
        (_, true) => TailEnd::all(),
        (Some(note), false) => note.tail.clone(),
        (None, false) => {
            return Err(
                "what this log has behind the fork was not exported: order 'towline region \
                        divergence --export FILE' first, or give --discard-divergence"
                    .to_owned(),
            );
        }
    };
    let KnownFork { fork, history, common, void, .. } = known;
    let order = ReturnOrder { fork, history, tail, common, void, ..ReturnOrder::default() };
    check(data, &order)?;
    Ok(order)
}

/// Whether an instance returns from such a fork: one in recovery only from a switch that came to
/// nothing.
fn is_fit(mode: Mode, known: &KnownFork) -> bool {
    match mode {
        Mode::Voting => true,
        Mode::Recovery => known.void != [0; 16],
        Mode::Promoting => false,
    }
}

fn nothing_known(mode: Mode) -> &'static str {
    match mode {
        Mode::Voting => {
            "no other group has said to this instance that it went on without this one: connect \
             both regions, and order it at the active instance"
        }
        Mode::Recovery => {
            "this group is in recovery, and no live group has said to this instance that it went on \
             without what the log has: there is nothing to return from; 'towline region check' says \
             what stands in the way"
        }
        Mode::Promoting => "this group is being promoted: it does not return",
    }
}
