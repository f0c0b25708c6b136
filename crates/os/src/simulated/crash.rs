//! A crash before and after each file operation of a piece of work.
//!
//! Not here: what must be there then. Invariant: each run is repeated by its number alone.

use std::sync::Arc;

use parking_lot::Mutex;
use towline_types::SeededRandom;

use super::World;
use super::fs::{FileSystem, Verdict};
use super::schedule::{Process, ProcessEnd};

/// As long as any piece of work may take, in microseconds of the simulation.
const LONG_US: u64 = 1_000_000_000;
const PROCESS: Process = Process(1);

/// Runs a piece of work in a process of its own, over these files, to its end.
///
/// # Errors
/// How the process ended before that.
///
/// # Panics
/// When it waits for ever, and in a thread that has a world.
pub fn in_process<T: Send + 'static>(
    files: &FileSystem,
    seed: u64,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ProcessEnd> {
    let world = World::new(seed);
    world.mount(PROCESS, files);
    let done = Arc::new(Mutex::new(None));
    let result = Arc::clone(&done);
    world.start(PROCESS, "work", move || {
        let value = body();
        *result.lock() = Some(value);
    });
    world.run_until(LONG_US);
    let (value, end) = (done.lock().take(), world.ended(PROCESS));
    // Threads that wait for work close their files.
    world.kill(PROCESS);
    world.run_until(LONG_US + 1);
    match (value, end) {
        (Some(value), None) => Ok(value),
        (_, Some(end)) => Err(end),
        (None, None) => unreachable!("the work waits for ever"),
    }
}

/// Runs a piece of work over copies of these files, and ends it before and after each of its
/// operations, by a kill and by `cuts` power cuts. `check` gets what is left, and the words that
/// say which run it is. Returns how many runs there were.
///
/// # Panics
/// When the work panics.
pub fn at_each_operation(
    files: &FileSystem,
    cuts: u64,
    body: impl FnOnce() + Clone + Send + 'static,
    check: impl Fn(&FileSystem, &str),
) -> u64 {
    let mut runs = 0;
    for number in 1.. {
        for (verdict, when) in [(Verdict::KillsBefore, "before"), (Verdict::KillsAfter, "after")] {
            for cut in 0..=cuts {
                let left = files.copy();
                left.set_faults(
                    move |operation| {
                        if operation.number == number { verdict } else { Verdict::Goes }
                    },
                );
                left.start_trace();
                match in_process(&left, number, body.clone()) {
                    // There are no so many operations.
                    Ok(()) => return runs,
                    Err(ProcessEnd::Killed) => {}
                    Err(end) => unreachable!("the work ended otherwise: {end:?}"),
                }
                left.clear_faults();
                if cut > 0 {
                    left.power_cut(&mut SeededRandom::mixed(number * 1_000 + cut));
                }
                let last = left.take_trace().last().map(|done| (done.kind, done.path.clone()));
                check(&left, &format!("{when} operation {number}, last {last:?}, cut {cut}"));
                runs += 1;
            }
        }
    }
    runs
}
