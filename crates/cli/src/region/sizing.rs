//! The formulas of `towline region plan`, explained in docs/guides/size-the-link-and-the-log.md.
//!
//! Bytes of log are counted as positions count them (whole blocks on the disk) where backlog,
//! window and space in the log are meant, and as they are sent (without padding, compressed, with
//! the headers of TLS and TCP) where the line is meant.
//!
//! Not here: options and tables. No I/O. All numbers are finite; times are seconds.

/// What a put takes in the log besides its message, at most: record, body check, expiry, and the
/// hashes of message id and correlation id. A test compares it with the encoder.
const PUT_OVERHEAD_BYTES: f64 = 52.0;
/// What a get takes at most.
const GET_BYTES: f64 = 12.0;
/// Header of a batch in the log (docs/internals/log-format.md).
const BATCH_HEADER_BYTES: f64 = 40.0;
/// What a batch takes on the link besides its records: its place in the list, and a frame of its
/// own.
const BATCH_ON_LINE_BYTES: f64 = 80.0;
/// Batches are padded to whole blocks.
const BLOCK_BYTES: f64 = 4_096.0;
/// A batch takes records until it has about so many bytes.
const BATCH_TARGET_BYTES: f64 = 1024.0 * 1024.0;
/// The log is retained in whole extents (`extent_bytes`, unless configured when it was made).
const EXTENT_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// Bytes on the line for one of the link: 1,448 of 1,500 are payload (IPv4, TCP with timestamps),
/// and TLS 1.3 adds 22 to each 16,384.
const LINE_FACTOR: f64 = 1_500.0 / 1_448.0 * (16_384.0 + 22.0) / 16_384.0;
/// From this share of the line on it is tight: an outage takes four times its length to drain, and
/// batches wait for each other.
const TIGHT_SHARE: f64 = 0.8;

/// What is planned. Ranges: see the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSizing {
    /// Messages put per second.
    pub(super) rate: f64,
    /// Bytes of a message.
    pub(super) size: f64,
    /// Share of the messages that are removed as fast as they are put.
    pub(super) removed: f64,
    pub(super) rtt_s: f64,
    pub(super) bits_per_s: f64,
    pub(super) outage_s: f64,
    /// Bytes before compression for one after it.
    pub(super) compress: f64,
    /// One synced write.
    pub(super) write_s: f64,
    pub(super) window_bytes: f64,
    pub(super) log_space_bytes: Option<f64>,
    pub(super) data_bytes: Option<f64>,
}

/// What is at risk, at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AtRisk {
    /// Age of the oldest commit that recovery does not have.
    pub(super) age_s: f64,
    /// Log between recovery's position and the end.
    pub(super) bytes: f64,
    /// Puts that a fail-over would lose.
    pub(super) puts: f64,
    /// Removals that it would lose: these messages come back.
    pub(super) removals: f64,
}

/// What a rebase takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RebaseForecast {
    /// The copy alone, with the whole line.
    pub(super) copy_s: f64,
    /// With the log that is written meanwhile, until recovery is in sync.
    pub(super) time_s: f64,
    /// Log that live retains meanwhile.
    pub(super) log_space_bytes: f64,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkForecast {
    /// Log that is written per second, in whole blocks.
    pub(super) log_bytes_per_s: f64,
    pub(super) batches_per_s: f64,
    /// Log that is sent per second, as it is on the line.
    pub(super) line_bits_per_s: f64,
    /// Share of the line's bandwidth.
    pub(super) share: f64,
    /// Log per second (whole blocks) that the line, or the window, carries at most.
    pub(super) carried_bytes_per_s: f64,
    /// Log on its way that fills the line: bandwidth times round trip and write.
    pub(super) window_bytes: f64,
    /// In truth, and as live knows it, half a round trip later. `None`: the backlog grows for ever.
    pub(super) at_risk: Option<[AtRisk; 2]>,
    /// At the end of the outage.
    pub(super) after_outage: AtRisk,
    /// Log that live must retain to ride it out, in whole extents.
    pub(super) outage_space_bytes: f64,
    /// The longest outage that the space given rides out.
    pub(super) outage_max_s: Option<f64>,
    /// Until the backlog of the outage is sent. `None`: never.
    pub(super) drain_s: Option<f64>,
    /// `None`: not asked for, or it would never end.
    pub(super) rebase: Option<RebaseForecast>,
    pub(super) shortages: Vec<Shortage>,
    pub(super) warnings: Vec<LinkWarning>,
}

/// Why it does not fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shortage {
    /// The log is more than the line carries.
    Line,
    /// The log is more than the window lets through in a round trip.
    Window,
    /// The space is less than an outage needs.
    SpaceForOutage,
    /// The space is less than a rebase needs: it would be begun again and again.
    SpaceForRebase,
}

/// What fits, but not well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LinkWarning {
    /// More than [`TIGHT_SHARE`] of the line.
    Tight,
    /// The window does not fill the line: what drains a backlog is slower than the line.
    WindowBelowLine,
}

impl LinkSizing {
    /// Computes it all.
    pub(super) fn forecast(&self) -> LinkForecast {
        let records = self.rate * (self.size + PUT_OVERHEAD_BYTES + self.removed * GET_BYTES);
        let batches_per_s = self.batches_per_s(records);
        let batch = records / batches_per_s;
        let log_bytes_per_s = batches_per_s * on_disk(batch);
        let on_line = (batch + BATCH_ON_LINE_BYTES) / self.compress * LINE_FACTOR;
        let line_bits_per_s = batches_per_s * on_line * 8.0;
        // Bytes of log that one bit on the line stands for.
        let log_per_bit = log_bytes_per_s / line_bits_per_s;
        let share = line_bits_per_s / self.bits_per_s;
        let answer_s = self.rtt_s + self.write_s;
        let line_bytes_per_s = self.bits_per_s * log_per_bit;
        let carried_bytes_per_s = line_bytes_per_s.min(self.window_bytes / answer_s.max(1e-6));
        let batch_s = on_line * 8.0 / self.bits_per_s;
        let fits = carried_bytes_per_s > log_bytes_per_s;
        let at_risk = fits.then(|| {
            let age_s = self.age_s(batch_s, share);
            [age_s, age_s + self.rtt_s / 2.0].map(|age_s| self.at_risk(age_s, log_bytes_per_s))
        });
        let known_s = at_risk.map_or(answer_s, |[_, known]| known.age_s);
        let after_outage = self.at_risk(self.outage_s + known_s, log_bytes_per_s);
        let spare = carried_bytes_per_s - log_bytes_per_s;
        let rebase = self.data_bytes.filter(|_| fits).map(|data| {
            let copy_s = data / self.compress * LINE_FACTOR * 8.0 / self.bits_per_s;
            let kept = log_bytes_per_s * copy_s;
            let time_s = copy_s + kept / spare;
            RebaseForecast { copy_s, time_s, log_space_bytes: in_extents(kept) }
        });
        let mut forecast = LinkForecast {
            log_bytes_per_s,
            batches_per_s,
            line_bits_per_s,
            share,
            carried_bytes_per_s,
            window_bytes: line_bytes_per_s * answer_s,
            at_risk,
            after_outage,
            outage_space_bytes: in_extents(after_outage.bytes),
            outage_max_s: self.log_space_bytes.map(|space| {
                ((space - EXTENT_BYTES).max(0.0) / log_bytes_per_s - known_s).max(0.0)
            }),
            drain_s: fits.then(|| after_outage.bytes / spare),
            rebase,
            shortages: Vec::new(),
            warnings: Vec::new(),
        };
        self.judge(&mut forecast);
        forecast
    }

    /// Each commit makes a batch, but a write takes what came during the one before; and a batch
    /// holds only so much.
    fn batches_per_s(&self, records: f64) -> f64 {
        let commits = self.rate * (1.0 + self.removed);
        commits.min(1.0 / self.write_s.max(1e-6)).max(records / BATCH_TARGET_BYTES)
    }

    /// From the commit until recovery has it: its batch waits for others and is sent (a queue with
    /// one server and equal batches), travels, and is written.
    fn age_s(&self, batch_s: f64, share: f64) -> f64 {
        let waits_s = batch_s * share / (2.0 * (1.0 - share));
        waits_s + batch_s + self.rtt_s / 2.0 + self.write_s
    }

    fn at_risk(&self, age_s: f64, log_bytes_per_s: f64) -> AtRisk {
        let puts = self.rate * age_s;
        AtRisk { age_s, bytes: log_bytes_per_s * age_s, puts, removals: puts * self.removed }
    }

    fn judge(&self, forecast: &mut LinkForecast) {
        let LinkForecast { shortages, warnings, .. } = forecast;
        if forecast.share >= 1.0 {
            shortages.push(Shortage::Line);
        } else if forecast.carried_bytes_per_s <= forecast.log_bytes_per_s {
            shortages.push(Shortage::Window);
        } else if forecast.share > TIGHT_SHARE {
            warnings.push(LinkWarning::Tight);
        }
        if self.window_bytes < forecast.window_bytes {
            warnings.push(LinkWarning::WindowBelowLine);
        }
        let Some(space) = self.log_space_bytes else { return };
        if space < forecast.outage_space_bytes {
            shortages.push(Shortage::SpaceForOutage);
        }
        if forecast.rebase.is_some_and(|rebase| space < rebase.log_space_bytes) {
            shortages.push(Shortage::SpaceForRebase);
        }
    }
}

impl LinkForecast {
    /// Space in the log for an outage and for a rebase.
    pub(super) fn space_bytes(&self) -> f64 {
        let rebase = self.rebase.map_or(0.0, |rebase| rebase.log_space_bytes);
        self.outage_space_bytes.max(rebase)
    }

    /// The bandwidth with which the line would not be tight.
    pub(super) fn bits_per_s_wanted(&self) -> f64 {
        self.line_bits_per_s / TIGHT_SHARE
    }
}

/// A batch on the disk: whole blocks. One of many blocks has half a block of padding on average.
fn on_disk(records: f64) -> f64 {
    let batch = records + BATCH_HEADER_BYTES;
    let blocks = (batch / BLOCK_BYTES).ceil() * BLOCK_BYTES;
    blocks.max(if batch > BLOCK_BYTES { batch + BLOCK_BYTES / 2.0 } else { 0.0 })
}

/// Whole extents, and the one that the position is in.
fn in_extents(bytes: f64) -> f64 {
    ((bytes / EXTENT_BYTES).ceil() + 1.0) * EXTENT_BYTES
}

#[cfg(test)]
mod tests;
