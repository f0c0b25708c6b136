//! Does the disk lie about sync? What can be seen from a program: what the system says of the
//! folder, and how long writes take with and without a sync.
//!
//! A judgement from signs, no proof: the only proof is a power cut ([`super::cut`]). Not here: how
//! the signs are measured (`probe`), how the file system is found out (`location`).

use serde::Serialize;

use super::location::{Device, FolderLocation, Kind};

/// Writes of the probe.
pub(crate) const PROBE_BYTES: u64 = 4096;
/// No storage behind a file system takes more, in bytes per second. Sync did nothing then.
const RATE_MAX: f64 = 50e9;
/// A sync that adds less than this to a write into memory, in microseconds, called no device: a
/// command to one takes longer even when it answers at once.
const SYNC_FREE_US: f64 = 3.0;
/// The fastest disks turn 15,000 times a minute: four milliseconds. Half of it is luck.
const TURN_US: f64 = 2_000.0;
/// Flash that has to empty a volatile cache needs longer than this; flash with a safe cache says
/// `write through`.
const FLASH_FLUSH_US: f64 = 15.0;
/// A flush that costs less than this part of an unsynced write was no flush.
const FLUSH_FREE: f64 = 0.15;

/// What was measured, each the middle (p50) of many writes of 4 KiB, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Probe {
    /// Into memory.
    pub(crate) buffered_write_p50_us: f64,
    /// Into memory, then fdatasync.
    pub(crate) buffered_sync_p50_us: f64,
    /// To the device, as far as its cache. `None`: no direct I/O here.
    pub(crate) direct_write_p50_us: Option<f64>,
    /// To the device, then fdatasync.
    pub(crate) direct_sync_p50_us: Option<f64>,
    /// Megabytes into memory, then one fdatasync: bytes per second of that sync, the best of some.
    pub(crate) bulk_sync_bytes_per_s: f64,
}

/// What is thought of the disk. In the order of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// All that can be seen fits a disk that keeps its word.
    Honest,
    /// Nothing that can be seen from here decides it.
    CannotTell,
    /// Something does not fit.
    Suspicious,
    /// What was said to be synced cannot survive a power cut.
    Lies,
}

impl Verdict {
    /// In words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Verdict::Honest => "honest, as far as a program can see",
            Verdict::CannotTell => "cannot tell",
            Verdict::Suspicious => "suspicious",
            Verdict::Lies => "lies",
        }
    }
}

/// The verdict, and why, in sentences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) evidence: Vec<String>,
    #[serde(flatten)]
    pub(crate) probe: Probe,
}

/// Judges.
pub(crate) fn judge(place: &FolderLocation, probe: Probe) -> Judgement {
    let mut signs = Signs { verdict: base(place.kind), evidence: Vec::new() };
    signs.of_file_system(place);
    signs.of_sync(place.kind, &probe);
    if place.kind == Kind::Local {
        signs.of_device(place.device.as_ref(), &probe);
    }
    Judgement { verdict: signs.verdict, evidence: signs.evidence, probe }
}

/// What may be said when nothing speaks against it.
fn base(kind: Kind) -> Verdict {
    match kind {
        Kind::Local => Verdict::Honest,
        Kind::Memory => Verdict::Lies,
        Kind::Network | Kind::Fuse | Kind::Overlay | Kind::Unknown => Verdict::CannotTell,
    }
}

struct Signs {
    verdict: Verdict,
    evidence: Vec<String>,
}

impl Signs {
    /// Something that fits.
    fn note(&mut self, what: String) {
        self.evidence.push(what);
    }

    /// Something that is at least as bad as `verdict`.
    fn worse(&mut self, verdict: Verdict, what: String) {
        self.evidence.push(what);
        if verdict as u8 > self.verdict as u8 {
            self.verdict = verdict;
        }
    }

    fn of_file_system(&mut self, place: &FolderLocation) {
        let name = &place.file_system;
        match place.kind {
            Kind::Local => self.note(format!("{name} sends a sync on to its device")),
            Kind::Memory => self.note(format!("{name} is memory: nothing survives a power cut")),
            Kind::Network => {
                let from = place.mount_source.as_deref().unwrap_or("another machine");
                self.note(format!(
                    "{name}: a sync ends at {from}, whose own disk is not seen here"
                ));
            }
            Kind::Fuse => self.note(format!("{name}: a program decides what a sync does")),
            Kind::Overlay => {
                self.note(format!("{name} is a layer: what is below decides; test that folder"));
            }
            Kind::Unknown => self.note(format!("file system {name} is not known here")),
        }
        if place.kind == Kind::Overlay && place.has_option("volatile") {
            self.worse(Verdict::Lies, "mounted with `volatile`: syncs are left out".into());
        }
        let barriers_off = ["nobarrier", "barrier=0"].iter().find(|o| place.has_option(o));
        if let Some(option) = barriers_off {
            let cache = place.device.as_ref().and_then(|device| device.write_cache.as_deref());
            let what = format!("mounted with `{option}`: no sync empties the device's cache");
            if cache == Some("write through") {
                self.note(format!("{what}; the device says that it has none"));
            } else {
                self.worse(Verdict::Lies, what);
            }
        }
        if place.has_option("async") && place.kind == Kind::Network {
            self.note("mounted with `async`".into());
        }
    }

    /// A sync that costs nothing did nothing, whatever is below.
    fn of_sync(&mut self, kind: Kind, probe: &Probe) {
        let Probe { buffered_write_p50_us: write, buffered_sync_p50_us: sync, .. } = *probe;
        // Where others may have synced before they were asked to, it only looks odd.
        let nothing = match kind {
            Kind::Local | Kind::Memory => Verdict::Lies,
            Kind::Network | Kind::Fuse | Kind::Overlay | Kind::Unknown => Verdict::Suspicious,
        };
        let cost = sync - write;
        if cost < SYNC_FREE_US {
            let what = format!("write + fdatasync takes {sync:.1} us, a plain write {write:.1} us");
            self.worse(nothing, format!("{what}: the sync does nothing"));
            return;
        }
        self.note(format!("write + fdatasync takes {sync:.1} us, a plain write {write:.1} us"));
        let rate = probe.bulk_sync_bytes_per_s;
        let shown = rate / 1e6;
        if kind != Kind::Local {
            return;
        }
        if rate > RATE_MAX {
            self.worse(nothing, format!("one sync moved {shown:.0} MB/s: no disk can do that"));
        } else if cost < PROBE_BYTES as f64 / rate * 1e6 {
            let what = format!("the device takes {shown:.0} MB/s at best, so 4 KiB need longer");
            self.worse(Verdict::Suspicious, format!("{what} than a sync took ({cost:.1} us)"));
        } else {
            self.note(format!("a sync of megabytes moved {shown:.0} MB/s: bytes do leave memory"));
        }
    }

    fn of_device(&mut self, device: Option<&Device>, probe: &Probe) {
        let Some(device) = device else {
            self.worse(Verdict::CannotTell, "the device below could not be found".into());
            return;
        };
        let name = &device.name;
        let sync = probe.direct_sync_p50_us.unwrap_or(probe.buffered_sync_p50_us);
        let has_cache = match device.write_cache.as_deref() {
            Some("write through") => {
                self.note(format!("{name} says that it has no volatile cache (write through)"));
                false
            }
            Some(cache) => {
                self.note(format!("{name} has a volatile cache ({cache}); a sync must empty it"));
                true
            }
            None => {
                self.worse(Verdict::CannotTell, format!("{name} says nothing of its cache"));
                true
            }
        };
        if has_cache {
            self.of_flush(probe);
        }
        if device.is_virtual {
            let what =
                format!("{name} is virtual: what its host does with a sync is not seen here");
            self.note(what);
        } else if device.rotational == Some(true) && sync < TURN_US {
            let what = format!("{name} turns, but a synced write takes only {sync:.1} us");
            self.worse(Verdict::Suspicious, format!("{what}: a controller's cache? Has it power?"));
        } else if has_cache && device.rotational == Some(false) && sync < FLASH_FLUSH_US {
            let what = format!("{name} is flash with a volatile cache, emptied in {sync:.1} us");
            self.worse(Verdict::Suspicious, format!("{what}: faster than flash"));
        }
    }

    /// Whether emptying the cache takes any time.
    fn of_flush(&mut self, probe: &Probe) {
        let (Some(write), Some(sync)) = (probe.direct_write_p50_us, probe.direct_sync_p50_us)
        else {
            let what = "no direct I/O here, so the cost of emptying the cache is not seen";
            self.worse(Verdict::CannotTell, what.into());
            return;
        };
        let what = format!("past memory, a write takes {write:.1} us and {sync:.1} us with a sync");
        if sync < write * (1.0 + FLUSH_FREE) {
            self.worse(Verdict::Suspicious, format!("{what}: nothing is emptied"));
        } else {
            self.note(what);
        }
    }
}

#[cfg(test)]
mod tests;
