//! What a test holds.

use std::marker::PhantomData;
use std::rc::Rc;

use super::fs::{self, FileSystem};
use super::schedule::{self, Process, ProcessEnd, Schedule, create, with};

/// The coroutines of a test, and their clock.
///
/// One world on a thread at a time. What the test itself does outside of coroutines must not wait.
#[derive(Debug)]
pub struct World(PhantomData<Rc<()>>);

impl World {
    /// A world without coroutines, at time zero.
    ///
    /// # Panics
    /// When this thread has one.
    #[must_use]
    pub fn new(seed: u64) -> World {
        Schedule::begin(seed);
        World(PhantomData)
    }

    /// Virtual time since the beginning, in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        with(|schedule| schedule.now_us)
    }

    /// From now on another coroutine goes first, so often in 1,000 times, before a lock is taken.
    pub fn set_overtaken(&self, per_mille: u64) {
        schedule::set_overtaken(per_mille);
    }

    /// Sets the wall clock of a process, to so many microseconds ahead of that of the others.
    pub fn set_wall_clock(&self, process: Process, ahead_us: i64) {
        with(|schedule| *schedule.wall_ahead_us.entry(process).or_default() = ahead_us);
    }

    /// From now on a process sees the files of this file system. Several can see the same one.
    pub fn mount(&self, process: Process, file_system: &FileSystem) {
        fs::mount(process, file_system);
    }

    /// Starts a coroutine of a process.
    pub fn start(&self, process: Process, name: &str, body: impl FnOnce() + Send + 'static) {
        create(process, name.to_owned(), body);
    }

    /// Lets one coroutine go on until it waits; when none is ready, lets time pass up to the next
    /// deadline, `until_us` at most. False when nothing happens before that.
    pub fn step(&self, until_us: u64) -> bool {
        schedule::step(until_us)
    }

    /// Runs all coroutines up to a time, in microseconds since the beginning.
    pub fn run_until(&self, until_us: u64) {
        while self.step(until_us) {}
    }

    /// Kills a process, as `kill -9` does: nothing that its coroutines do from now on has an
    /// effect.
    pub fn kill(&self, process: Process) {
        with(|schedule| schedule.kill(process, ProcessEnd::Killed));
    }

    /// Stops a process, as SIGSTOP does.
    pub fn pause(&self, process: Process) {
        with(|schedule| schedule.stop(process));
    }

    /// Lets a process that was paused go on.
    pub fn resume(&self, process: Process) {
        with(|schedule| schedule.go_on(process));
    }

    /// How a process ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self, process: Process) -> Option<ProcessEnd> {
        with(|schedule| schedule.ended.get(&process).cloned())
    }

    /// How many processes have ended.
    #[must_use]
    pub fn ends(&self) -> usize {
        with(|schedule| schedule.ended.len())
    }

    /// Whether coroutines of a process are left.
    #[must_use]
    pub fn is_left(&self, process: Process) -> bool {
        with(|schedule| schedule.has_tasks_of(process))
    }

    /// Coroutines that have not ended, by process, with their names.
    #[must_use]
    pub fn left(&self) -> Vec<(Process, String)> {
        with(|schedule| schedule.left())
    }

    /// From now on it is kept where each coroutine waits, for [`World::waits`]; slow.
    pub fn set_traced(&self) {
        with(|schedule| schedule.is_traced = true);
    }

    /// Where each coroutine waits, as a backtrace.
    #[must_use]
    pub fn waits(&self) -> Vec<String> {
        with(|schedule| schedule.waits())
    }

    /// How often a coroutine was resumed.
    #[must_use]
    pub fn switches(&self) -> u64 {
        with(|schedule| schedule.switches)
    }
}

/// Coroutines are resumed so often, at most, to unwind at the end of a world.
const UNWINDING_STEPS_MAX: u32 = 100_000;

impl Drop for World {
    fn drop(&mut self) {
        // Their stacks, and what is on them, are given back.
        with(Schedule::kill_all);
        for _ in 0..UNWINDING_STEPS_MAX {
            if !schedule::step(u64::MAX) {
                break;
            }
        }
        Schedule::end();
        fs::unmount_all();
    }
}
