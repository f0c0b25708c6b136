//! What live instances reported to be at risk, against what a fail-over lost: messages put that are
//! gone, and messages removed that are there again.
//!
//! Not here: what is lost (`ledger` says where each deed is). Invariant: a sample is what the
//! status of an instance showed at its time, or a moment later.

use towline_types::{Histories, HistoryId, Lsn};

use super::ledger::{DeedEntry, DeedLedger};
use crate::history::Fate;

/// What a live instance showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExposureSample {
    pub(super) at_us: u64,
    /// In which it led. Of one that leads no more, and has not heard so, it is an older one.
    pub(super) term: u64,
    pub(super) history: HistoryId,
    /// End of what the other group was said to keep.
    pub(super) point: Lsn,
    pub(super) puts: u64,
    pub(super) removals: u64,
}

impl ExposureSample {
    /// Whether a deed was acknowledged before, by an instance that led in this term or before: then
    /// it is counted. What is acknowledged in a later one is not known to this instance.
    fn has(&self, deed: &DeedEntry) -> bool {
        deed.place.at_us < self.at_us && deed.place.term <= self.term
    }
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
        let is_lost = |deed: &DeedEntry| {
            let place = &deed.place;
            deed.fate == Fate::Yes && place.history == Some(before.id) && place.from >= next.fork
        };
        let lost = |deeds: &mut dyn Iterator<Item = usize>| -> Vec<DeedEntry> {
            deeds.map(|deed| ledger.deeds[deed]).filter(is_lost).collect()
        };
        let puts = lost(&mut ledger.messages.iter().map(|it| it.put));
        let removals = lost(&mut ledger.messages.iter().flat_map(|it| it.gets.iter().copied()));
        for sample in samples.iter().filter(|sample| sample.history == before.id) {
            judged += 1;
            if sample.point > next.fork {
                return Err(format!("{sample:?} was reported to be safe, and {next:?} lost it"));
            }
            for (what, deeds, reported) in
                [("puts", &puts, sample.puts), ("removals", &removals, sample.removals)]
            {
                let lost = deeds.iter().filter(|deed| sample.has(deed)).count() as u64;
                if lost > reported {
                    return Err(format!("{lost} {what} were lost in {next:?}, and {sample:?}"));
                }
            }
        }
    }
    Ok(judged)
}
