//! Faults done to a group and undone.
//!
//! Not here: which ([`super::fault`]), and when (`mod.rs`).

use std::time::Duration;

use crate::chance::Chance;
use crate::group::{Group, Instance, NAMES, Pace, THREE};
use crate::{Try, wait};

use super::disk::ChaosDisk;
use super::fault::Fault;
use super::trace::Trace;

/// Things that are undone later, and when the next one is.
pub(super) struct Weather<'a> {
    group: &'a mut Group,
    disks: &'a [ChaosDisk],
    lost: Option<Instance>,
    chance: &'a mut Chance,
}

impl<'a> Weather<'a> {
    /// Over a group on a net; `disks` may be empty; `chance` says what a disk forgets.
    pub(super) fn over(
        group: &'a mut Group,
        disks: &'a [ChaosDisk],
        chance: &'a mut Chance,
    ) -> Weather<'a> {
        Weather { group, disks, lost: None, chance }
    }

    /// Does it, for as long as it is to last, while `overlapping` more happen: each of those begins
    /// in the middle of the one before it.
    ///
    /// # Errors
    /// When it cannot be done, or an instance had ended by itself.
    pub(super) fn happen(&mut self, faults: &[Fault], trace: &mut Trace) -> Try {
        let Some((fault, rest)) = faults.split_first() else { return Ok(()) };
        trace.fault(*fault);
        self.begin(*fault)?;
        let lasts = fault.lasts();
        wait::pause(lasts / 2);
        self.happen(rest, trace)?;
        wait::pause(lasts / 2);
        trace.note(&format!("over: {fault}"));
        self.end(*fault)
    }

    fn begin(&mut self, fault: Fault) -> Try {
        match fault {
            Fault::Kill(one, _)
            | Fault::LoseDisk(one)
            | Fault::Restart(one)
            | Fault::Drift(one, ..)
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
            Fault::Full(one, _) => self.disks.get(one).map_or(Ok(()), ChaosDisk::fill),
            Fault::LoseDisk(one) if self.lost.is_none() => {
                self.lost = Some(one);
                self.group.kill(one)?;
                self.group.lose_disk(one)
            }
            Fault::Restart(one) if !self.group.is_paused(one) => self.group.terminate(one),
            Fault::Switch => {
                // Refused when no replica is in sync, or when the one that is asked is not there.
                if let Some(active) = self.group.active() {
                    drop(self.group.site(active).towline(&["switch", "--timeout", "5"])?.output()?);
                }
                Ok(())
            }
            Fault::Jump(one, seconds) => self.group.shift_clock(one, seconds),
            Fault::Drift(one, percent, _) => {
                self.group.kill(one)?;
                self.group.set_pace(one, Pace::Percent(percent));
                self.group.start(one)
            }
            Fault::Power(off, kept, _) => self.power_off(off, kept),
            Fault::Pause(..) | Fault::LoseDisk(_) | Fault::Restart(_) => Ok(()),
        }
    }

    fn power_off(&mut self, off: [bool; 3], kept: u64) -> Try {
        let off = THREE.into_iter().filter(|at| off[*at]);
        for at in off.clone().filter(|at| self.group.runs(*at)).collect::<Vec<_>>() {
            self.group.kill(at)?;
        }
        for disk in off.filter_map(|at| self.disks.get(at)) {
            disk.cut_power(kept, self.chance);
        }
        Ok(())
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
            Fault::Full(one, _) => self.disks.get(one).map_or(Ok(()), ChaosDisk::free),
            Fault::Drift(one, ..) => {
                self.group.set_pace(one, Pace::Even);
                if self.group.runs(one) {
                    self.group.kill(one)?;
                    self.group.start(one)?;
                }
                Ok(())
            }
            Fault::Power(off, ..) => {
                for at in THREE.into_iter().filter(|at| off[*at]) {
                    if !self.group.runs(at) {
                        self.group.start(at)?;
                    }
                }
                Ok(())
            }
            Fault::Pause(..) | Fault::Reset(..) | Fault::Switch | Fault::Jump(..) => Ok(()),
        }
    }

    /// An instance with a full log may end; its watcher starts it again.
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
