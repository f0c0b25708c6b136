//! What can happen to a group in a round, drawn from a seed.
//!
//! Not here: how it is done and undone (`weather.rs`), and when (`mod.rs`). Invariant: at most one
//! instance in a round loses its disk, and only when all were in sync before it: then what was
//! acknowledged is on another one.

use std::fmt;
use std::time::Duration;

use crate::chance::Chance;
use crate::group::{Instance, NAMES, THREE};

/// Longest time that one of them lasts: somewhat more than twice what it takes to miss an instance.
const LASTS_MAX_MS: u64 = 1_800;
/// A wall clock jumps at most so far: certificates of the group count from an hour before they were
/// made.
const JUMP_MAX_S: u64 = 3_600;
/// Of what was not synced so much stays after a power cut: nothing, a third, most.
const KEPT: [u64; 3] = [0, 30, 70];

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// kill -9; it is started again after so long.
    Kill(Instance, Duration),
    /// SIGSTOP for so long.
    Pause(Instance, Duration),
    /// Cut off from both others for so long.
    Isolate(Instance, Duration),
    /// What the first sends does not reach the second for so long.
    OneWay(Instance, Instance, Duration),
    /// Their connections are reset.
    Reset(Instance, Instance),
    /// All ways take longer for so long.
    Slow(Duration, Duration),
    /// The disk is full for so long.
    Full(Instance, Duration),
    /// kill -9, and everything on the disk is gone when it is started again.
    LoseDisk(Instance),
    /// An orderly end, and a start.
    Restart(Instance),
    /// `towline switch`.
    Switch,
    /// Its wall clock is so many seconds ahead from now on, until it jumps again.
    Jump(Instance, i64),
    /// kill -9; then it works for so long with clocks that run at so many percent, and is killed
    /// again.
    Drift(Instance, u32, Duration),
    /// The power of these goes, all at once: kill -9, and what was not synced is gone but for so
    /// many percent of it. They are started again after so long.
    Power([bool; 3], u64, Duration),
}

/// What can happen in a group as it is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Possible {
    /// Disks can be full.
    pub(super) full: bool,
    /// Disks forget what was not synced.
    pub(super) power: bool,
    /// Each has a clock of its own.
    pub(super) clocks: bool,
}

impl Fault {
    /// Draws one. `whole`: all instances are in sync now, so that one may lose its disk.
    pub(super) fn draw(chance: &mut Chance, whole: bool, possible: Possible) -> Fault {
        let (one, step) = (chance.index(3), 1 + chance.index(2));
        let other = (one + step) % 3;
        let time = Duration::from_millis(chance.within(20, LASTS_MAX_MS));
        match chance.within(0, 100) {
            0..20 if possible.power => {
                // One, two or all three of them.
                let more = chance.index(4);
                let mut off = [more == 3; 3];
                (off[one], off[other]) = (true, more >= 2);
                Fault::Power(off, KEPT[chance.index(KEPT.len())], time)
            }
            0..22 => Fault::Kill(one, time),
            22..40 => Fault::Pause(one, time),
            40..52 => Fault::Isolate(one, time),
            52..60 => Fault::OneWay(one, other, time),
            60..65 => Fault::Reset(one, other),
            65..70 => Fault::Slow(Duration::from_millis(chance.within(1, 30)), time),
            70..75 if possible.full => Fault::Full(one, time),
            75..80 if whole => Fault::LoseDisk(one),
            80..85 if possible.clocks => {
                let ahead = i64::try_from(chance.within(0, 2 * JUMP_MAX_S + 1)).unwrap_or_default();
                Fault::Jump(one, ahead - JUMP_MAX_S.cast_signed())
            }
            85..90 if possible.clocks => {
                let percent = if chance.percent(50) { 105 } else { 95 };
                Fault::Drift(one, percent, time)
            }
            90..95 => Fault::Restart(one),
            _ => Fault::Switch,
        }
    }

    /// Its kind, to be counted.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Fault::Kill(..) => "kill",
            Fault::Pause(..) => "pause",
            Fault::Isolate(..) => "isolate",
            Fault::OneWay(..) => "cut one way",
            Fault::Reset(..) => "reset",
            Fault::Slow(..) => "delay",
            Fault::Full(..) => "disk full",
            Fault::LoseDisk(_) => "disk lost",
            Fault::Restart(_) => "restart",
            Fault::Switch => "switch",
            Fault::Jump(..) => "clock jumps",
            Fault::Drift(..) => "clock drifts",
            Fault::Power(..) => "power",
        }
    }

    /// How long it lasts before it is undone.
    pub(super) fn lasts(self) -> Duration {
        match self {
            Fault::Kill(_, time)
            | Fault::Pause(_, time)
            | Fault::Isolate(_, time)
            | Fault::OneWay(_, _, time)
            | Fault::Slow(_, time)
            | Fault::Full(_, time)
            | Fault::Drift(_, _, time)
            | Fault::Power(_, _, time) => time,
            Fault::Reset(..)
            | Fault::LoseDisk(_)
            | Fault::Restart(_)
            | Fault::Switch
            | Fault::Jump(..) => Duration::from_millis(20),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill(one, time) => write!(out, "kill {} for {time:?}", NAMES[*one]),
            Fault::Pause(one, time) => write!(out, "pause {} for {time:?}", NAMES[*one]),
            Fault::Isolate(one, time) => write!(out, "isolate {} for {time:?}", NAMES[*one]),
            Fault::OneWay(one, other, time) => {
                write!(out, "cut {} to {} for {time:?}", NAMES[*one], NAMES[*other])
            }
            Fault::Reset(one, other) => write!(out, "reset {} and {}", NAMES[*one], NAMES[*other]),
            Fault::Slow(delay, time) => write!(out, "delay {delay:?} for {time:?}"),
            Fault::Full(one, time) => write!(out, "disk of {} full for {time:?}", NAMES[*one]),
            Fault::LoseDisk(one) => write!(out, "disk of {} lost", NAMES[*one]),
            Fault::Restart(one) => write!(out, "restart {}", NAMES[*one]),
            Fault::Switch => write!(out, "switch"),
            Fault::Jump(one, seconds) => write!(out, "clock of {} at {seconds:+} s", NAMES[*one]),
            Fault::Drift(one, percent, time) => {
                write!(out, "clocks of {} at {percent} % for {time:?}", NAMES[*one])
            }
            Fault::Power(off, kept, time) => {
                let off = THREE.into_iter().filter(|at| off[*at]).map(|at| NAMES[at]);
                let off: Vec<&str> = off.collect();
                write!(out, "power of {} gone for {time:?}, {kept} % kept", off.join(" and "))
            }
        }
    }
}
