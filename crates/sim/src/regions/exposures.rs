//! What live instances reported to be at risk, against what a fail-over lost.
//!
//! Not here: what is lost (`ledger` says where each deed is). Invariant: a sample is what the
//! status of an instance showed at its time.

use towline_types::{Histories, HistoryId, Lsn};

use super::ledger::DeedLedger;
use crate::history::Fate;

/// What was acknowledged in this time before a sample need not be in it: a disk that stalls keeps
/// the thread that counts from counting.
const FRESH_US: u64 = 2_000_000;

/// What a live instance showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExposureSample {
    pub(super) at_us: u64,
    pub(super) history: HistoryId,
    /// End of what the other group was said to keep.
    pub(super) point: Lsn,
    pub(super) puts: u64,
}

/// Whether what a fail-over gave up had been reported to be at risk.
pub(super) fn judge(
    samples: &[ExposureSample],
    ledger: &DeedLedger,
    histories: &Histories,
) -> Result<u64, String> {
    let chain: Vec<_> = histories.iter().collect();
    let mut judged = 0;
    for pair in chain.windows(2) {
        let [before, next] = pair else { continue };
        let puts: Vec<u64> = lost_puts(ledger, before.id, next.fork);
        for sample in samples.iter().filter(|sample| sample.history == before.id) {
            judged += 1;
            if sample.point > next.fork {
                return Err(format!("{sample:?} was reported to be safe, and {next:?} lost it"));
            }
            let limit = sample.at_us.saturating_sub(FRESH_US);
            let lost = puts.iter().filter(|at_us| **at_us <= limit).count() as u64;
            if lost > sample.puts {
                return Err(format!("{lost} puts were lost in {next:?}, and {sample:?}"));
            }
        }
    }
    Ok(judged)
}

/// When each message was acknowledged that is of this history and behind its end.
fn lost_puts(ledger: &DeedLedger, history: HistoryId, end: Lsn) -> Vec<u64> {
    let deeds = ledger.messages.iter().map(|message| ledger.deeds[message.put]);
    let lost = deeds.filter(|deed| {
        deed.fate == Fate::Yes && deed.place.history == Some(history) && deed.place.from >= end
    });
    lost.map(|deed| deed.place.at_us).collect()
}
