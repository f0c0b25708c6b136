//! Backups of the active process while clients work, and restores of them on a machine of their
//! own, also after the restore was interrupted.
//!
//! Not here: what a restored queue manager must hold (`restored`).
//!
//! Invariant: what is restored is compared with what was promised when the backup was asked for,
//! and with what was asked for until it was seen to be done.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex as Plain;
use towline_backup::{BackupError, Upto};
use towline_config::Config;
use towline_engine::{OpenInstance, StartOptions, backup};
use towline_log::LogError;
use towline_os::process::exit;
use towline_os::simulated::fs::{FileSystem, Verdict};
use towline_os::simulated::{Process, ProcessEnd};
use towline_os::task::Handle;
use towline_process::Clock;
use towline_standby::Home;
use towline_types::Lsn;

use super::weather::OPERATORS;
use super::{Alone, AloneEvent, AlonePhase, process, restored};
use crate::history::History;
use crate::served::compare;
use crate::served::look::{self, SeenQueues, SeenSlot};

const BACKUP: &str = "/backup";
const RESTORED: &str = "/restored";
/// More than a run makes: all can be restored.
const IMAGES_KEPT: usize = 100;
/// Operations of a restore that is interrupted, at most.
const INTERRUPTED_MAX: u64 = 60;

/// The backups of a run.
#[derive(Default)]
pub(super) struct Backups {
    running: Option<RunningBackup>,
    points: Vec<Point>,
    check: Option<Check>,
}

struct RunningBackup {
    process: Process,
    is_full: bool,
    before: History,
    answer: Arc<Plain<Option<Result<String, String>>>>,
}

/// A backup that was made.
struct Point {
    end: Lsn,
    before: History,
    after: History,
}

/// A restore under way.
struct Check {
    process: Process,
    disk: FileSystem,
    upto: Upto,
    before: History,
    after: History,
    seen: SeenSlot,
    /// One before it was interrupted.
    is_second: bool,
}

impl Backups {
    pub(super) fn is_idle(&self) -> bool {
        self.check.is_none()
    }
}

impl Alone {
    /// An image, and the next one.
    pub(super) fn image(&mut self) {
        let is_wanted = self.plan.image_every_us > 0 || self.plan.script.is_some();
        if !is_wanted || self.phase != AlonePhase::Safety {
            return;
        }
        if self.plan.image_every_us > 0 {
            let after = 1 + self.dice.below(2 * self.plan.image_every_us);
            self.plan_in(after, AloneEvent::Image);
        }
        let Some((_, process, door)) = self.active() else { return };
        self.counts.images += 1;
        self.world.start(process, "image", move || {
            // It may be refused.
            look::administer(&door, "image", String::new()).ok();
        });
    }

    /// A backup, and the next one.
    pub(super) fn backup(&mut self) {
        let is_wanted = self.plan.backup_every_us > 0 || self.plan.script.is_some();
        if !is_wanted || self.phase != AlonePhase::Safety {
            return;
        }
        if self.plan.backup_every_us > 0 {
            let after = 1 + self.dice.below(2 * self.plan.backup_every_us);
            self.plan_in(after, AloneEvent::Backup);
        }
        if self.backups.running.is_some() {
            return;
        }
        let Some((_, process, door)) = self.active() else { return };
        let is_full = self.dice.chance(100);
        let request = serde_json::json!({
            "to": BACKUP, "full": is_full, "keep_images": IMAGES_KEPT,
        });
        let before = self.ledger.history.lock().clone();
        let answer = Arc::<Plain<Option<Result<String, String>>>>::default();
        let slot = Arc::clone(&answer);
        self.tell(format_args!("backup, full: {is_full}"));
        self.world.start(process, "backup", move || {
            let answer = look::administer(&door, "backup", request.to_string());
            *slot.lock() = Some(answer);
        });
        self.backups.running = Some(RunningBackup { process, is_full, before, answer });
    }

    pub(super) fn look_at_backups(&mut self) {
        self.look_for_backup();
        self.look_for_restore();
    }

    fn look_for_backup(&mut self) {
        let Some(running) = self.backups.running.take() else { return };
        let answer = running.answer.lock().take();
        let Some(answer) = answer else {
            if self.world.ended(running.process).is_none() {
                self.backups.running = Some(running);
            } else if running.is_full {
                // Nothing says whether it replaced those before it.
                self.backups.points.clear();
            }
            return;
        };
        if running.is_full {
            self.backups.points.clear();
        }
        let reply = answer.and_then(|json| end_of(&json));
        match reply {
            Ok(end) => {
                self.tell(format_args!("a backup ends at {end}"));
                let after = self.ledger.history.lock().clone();
                self.backups.points.push(Point { end, before: running.before, after });
                if self.plan.script.is_some() || self.dice.chance(500) {
                    self.check_restore();
                }
            }
            Err(why) => {
                self.tell(format_args!("no backup: {why}"));
                let disturbed = (0..self.machines.len()).any(|node| self.is_disturbed(node));
                let rots = self.machines.iter().any(|machine| machine.may_exit);
                let is_full = self.disk.bytes_free() < 1 << 30 || why.contains("No space");
                // Its process ends in order.
                let is_over = why.contains(&LogError::Stopped.to_string());
                if !disturbed && !rots && !is_full && !is_over {
                    self.fail(format!("a backup failed: {why}"));
                }
            }
        }
    }

    /// Restores one of the backups on another machine, which has a copy of the disk as it is now,
    /// or would be after a power cut.
    pub(super) fn check_restore(&mut self) {
        if self.backups.check.is_some() || self.backups.points.is_empty() {
            return;
        }
        let newest = self.backups.points.len() - 1;
        let (at, upto) = if self.dice.chance(300) {
            (newest, Upto::End)
        } else {
            let at = if self.dice.chance(500) { newest } else { self.dice.index(newest + 1) };
            (at, Upto::Lsn(self.backups.points[at].end))
        };
        let disk = self.disk.copy();
        disk.set_bytes_max(super::DISK_BYTES);
        if self.dice.chance(500) {
            disk.power_cut(&mut self.dice);
        }
        let interrupted = self.dice.chance(400).then(|| self.dice.between(1, INTERRUPTED_MAX));
        if let Some(last) = interrupted {
            let mut count = 0;
            disk.set_faults(move |operation| {
                count += u64::from(operation.kind.changes());
                if count == last { Verdict::KillsAfter } else { Verdict::Goes }
            });
        }
        let point = &self.backups.points[at];
        let before = point.before.clone();
        let after = match upto {
            // One that was not answered any more may be in it.
            Upto::End => self.ledger.history.lock().clone(),
            Upto::Lsn(_) | Upto::Time(_) => point.after.clone(),
        };
        self.tell(format_args!("restore to {upto:?}, interrupted: {interrupted:?}"));
        let seen = Arc::default();
        let (process, is_second) = (Process(0), false);
        let check = Check { process, disk, upto, before, after, seen, is_second };
        self.restore(check);
    }

    fn restore(&mut self, mut check: Check) {
        self.operators += 1;
        let process = Process(OPERATORS + self.operators);
        self.world.mount(process, &check.disk);
        let (upto, queues, config) = (check.upto, self.queues(), self.config());
        let is_second = check.is_second;
        let slot = Arc::clone(&check.seen);
        self.world.start(process, "restore", move || {
            let seen = restore_and_look((upto, is_second), &queues, &config);
            *slot.lock() = Some(seen);
            exit(0);
        });
        check.process = process;
        self.backups.check = Some(check);
    }

    fn look_for_restore(&mut self) {
        let Some(mut check) = self.backups.check.take() else { return };
        let seen = check.seen.lock().take();
        match (seen, self.world.ended(check.process)) {
            (None, None) => self.backups.check = Some(check),
            (None, Some(ProcessEnd::Killed)) => {
                self.tell(format_args!("the restore was interrupted"));
                check.disk.clear_faults();
                check.is_second = true;
                if self.dice.chance(500) {
                    check.disk.power_cut(&mut self.dice);
                }
                self.restore(check);
            }
            (None, Some(how)) => self.fail(format!("a restore ended: {how:?}")),
            (Some(seen), _) => {
                self.counts.restores += 1;
                let judged = seen.and_then(|(rows, depths)| {
                    compare::judge_depths(&rows, &depths)?;
                    let queues = self.plan.base.queues;
                    let present = compare::identify(&check.after, queues, &rows)?;
                    restored::judge(&check.before, &check.after, &present)
                });
                match judged {
                    Ok(()) => self.tell(format_args!("what was restored is right")),
                    Err(why) => {
                        let manifest = check.disk.bytes(format!("{BACKUP}/manifest.json"));
                        let manifest = manifest.unwrap_or_default();
                        self.tell(format_args!("{}", String::from_utf8_lossy(&manifest)));
                        self.fail(format!("restored to {:?}: {why}", check.upto));
                    }
                }
            }
        }
    }
}

fn end_of(json: &str) -> Result<Lsn, String> {
    let reply: serde_json::Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if let Some(error) = reply.get("error").and_then(|error| error.as_str()) {
        return Err(error.to_owned());
    }
    let lsn = reply.get("lsn").and_then(|lsn| lsn.as_str()).unwrap_or_default();
    lsn.parse().map_err(|_| format!("a backup without an end: {json}"))
}

fn restore_and_look(
    (upto, is_second): (Upto, bool),
    queues: &[String],
    config: &Config,
) -> SeenQueues {
    let (from, to) = (Path::new(BACKUP), Path::new(RESTORED));
    let restored = backup::restore(from, to, upto, &mut |_, _| {});
    match restored {
        // The first one was done, but for its end: what it made must be right.
        Err(BackupError::NotEmpty { .. }) if is_second => {}
        restored => drop(restored.map_err(|error| format!("not restored: {error}"))?),
    }
    let home = Home::single(to);
    let open = OpenInstance::open("QMS", &home, config, StartOptions::default(), Clock::start());
    let open = open.map_err(|error| format!("no start after a restore: {error}"))?;
    let running = open.start(config, process::jobs(), &Handle::current());
    let running = running.map_err(|error| error.to_string())?;
    look::see(running.door(), queues)
}
