//! What can happen to a group in a round, drawn from a seed, done and undone.
//!
//! Not here: when (`mod.rs`). Invariant: at most one instance in a round loses its disk, and only when
//! all were in sync before it: then what was acknowledged is on another one.

use std::fmt;
use std::time::Duration;

use crate::chance::Chance;
use crate::group::{Group, Instance, NAMES, THREE};
use crate::{Try, wait};

use super::disk::Disk;

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
}

/// Things that are undone later, and when the next one is.
pub(super) struct Weather<'a> {
    group: &'a mut Group,
    disks: &'a [Disk],
    lost: Option<Instance>,
}

impl Fault {
    /// Draws one. `whole`: all instances are in sync now, so that one may lose its disk.
    pub(super) fn draw(chance: &mut Chance, whole: bool, disks: bool) -> Fault {
        let (one, step) = (chance.index(3), 1 + chance.index(2));
        let other = (one + step) % 3;
        let time = Duration::from_millis(chance.within(20, 3_500));
        match chance.within(0, 100) {
            0..25 => Fault::Kill(one, time),
            25..45 => Fault::Pause(one, time),
            45..60 => Fault::Isolate(one, time),
            60..70 => Fault::OneWay(one, other, time),
            70..75 => Fault::Reset(one, other),
            75..80 => Fault::Slow(Duration::from_millis(chance.within(1, 30)), time),
            80..85 if disks => Fault::Full(one, time),
            85..90 if whole => Fault::LoseDisk(one),
            90..95 => Fault::Restart(one),
            _ => Fault::Switch,
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
        }
    }
}

impl<'a> Weather<'a> {
    /// Over a group on a net; `disks` may be empty.
    pub(super) fn over(group: &'a mut Group, disks: &'a [Disk]) -> Weather<'a> {
        Weather { group, disks, lost: None }
    }

    /// Does it, for as long as it is to last, while `overlapping` more happen: each of those begins in
    /// the middle of the one before it.
    ///
    /// # Errors
    /// When it cannot be done, or an instance had ended by itself.
    pub(super) fn happen(&mut self, faults: &[Fault], trace: &mut dyn FnMut(&str)) -> Try {
        let Some((fault, rest)) = faults.split_first() else { return Ok(()) };
        trace(&fault.to_string());
        self.begin(*fault)?;
        let lasts = fault.lasts();
        wait::pause(lasts / 2);
        self.happen(rest, trace)?;
        wait::pause(lasts / 2);
        trace(&format!("over: {fault}"));
        self.end(*fault)
    }

    fn begin(&mut self, fault: Fault) -> Try {
        match fault {
            Fault::Kill(one, _) | Fault::LoseDisk(one) | Fault::Restart(one)
                if !self.group.runs(one) =>
            {
                Ok(())
            }
            Fault::Kill(one, _) => self.group.kill(one),
            Fault::Pause(one, _) if self.group.runs(one) => self.group.pause(one),
            Fault::Isolate(one, _) => {
                self.group.net()?.isolate(one);
                Ok(())
            }
            Fault::OneWay(one, other, _) => {
                self.group.net()?.cut(one, other);
                Ok(())
            }
            Fault::Reset(one, other) => {
                self.group.net()?.reset(one, other);
                Ok(())
            }
            Fault::Slow(delay, _) => {
                self.group.net()?.delay_all(delay);
                Ok(())
            }
            Fault::Full(one, _) => self.disks.get(one).map_or(Ok(()), Disk::fill),
            Fault::LoseDisk(one) if self.lost.is_none() => {
                self.lost = Some(one);
                self.group.kill(one)?;
                self.group.lose_disk(one)
            }
            Fault::Restart(one) if !self.group.is_paused(one) => self.group.stop(one),
            Fault::Switch => {
                // Refused when nobody is in sync, or when the one that is asked is not there.
                if let Some(active) = self.group.active() {
                    drop(self.group.site(active).towline(&["switch", "--timeout", "5"])?.output()?);
                }
                Ok(())
            }
            Fault::Pause(..) | Fault::LoseDisk(_) | Fault::Restart(_) => Ok(()),
        }
    }

    fn end(&mut self, fault: Fault) -> Try {
        match fault {
            Fault::Kill(one, _) | Fault::LoseDisk(one) | Fault::Restart(one) => {
                if !self.group.runs(one) {
                    self.group.start(one)?;
                }
                Ok(())
            }
            Fault::Pause(one, _) if self.group.is_paused(one) => self.group.resume(one),
            Fault::Isolate(..) | Fault::OneWay(..) => {
                self.group.net()?.heal_all();
                Ok(())
            }
            Fault::Slow(..) => {
                self.group.net()?.delay_all(Duration::ZERO);
                Ok(())
            }
            Fault::Full(one, _) => self.disks.get(one).map_or(Ok(()), Disk::free),
            Fault::Pause(..) | Fault::Reset(..) | Fault::Switch => Ok(()),
        }
    }

    /// An instance whose log had no room may end; whoever watches it starts it again.
    ///
    /// # Errors
    /// When one ended for no such reason.
    pub(super) fn calm(&mut self, was_full: bool) -> Try {
        for one in THREE {
            if self.group.has_ended(one) {
                crate::require!(was_full, "{} ended by itself", NAMES[one]);
                self.group.forget(one);
                self.group.start(one)?;
            }
        }
        Ok(())
    }
}

impl Fault {
    fn lasts(self) -> Duration {
        match self {
            Fault::Kill(_, time)
            | Fault::Pause(_, time)
            | Fault::Isolate(_, time)
            | Fault::OneWay(_, _, time)
            | Fault::Slow(_, time)
            | Fault::Full(_, time) => time,
            Fault::Reset(..) | Fault::LoseDisk(_) | Fault::Restart(_) | Fault::Switch => {
                Duration::from_millis(20)
            }
        }
    }
}
