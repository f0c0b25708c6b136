//! Which coroutine goes on.
//!
//! Invariants: one coroutine runs at a time, on the thread of its [`World`](super::World); time
//! passes only when none is ready; a coroutine that waits is woken once for each wait: by a waker,
//! by its deadline, or because its process was killed.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use towline_types::SeededRandom;

use super::coroutine::{Coroutine, wait_to_be_resumed};

thread_local! {
    static CURRENT: RefCell<Option<Schedule>> = const { RefCell::new(None) };
    /// Whether this thread has a world, for the fast answer.
    static IN_WORLD: Cell<bool> = const { Cell::new(false) };
    /// How often in 1,000 times another coroutine goes first before a lock is taken.
    static OVERTAKEN_PER_MILLE: Cell<u64> = const { Cell::new(0) };
}

/// A process of the simulated system: coroutines that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u64);

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The test killed it.
    Killed,
    /// It exited, with this status.
    Exited(i32),
    /// One of its coroutines panicked, with this message.
    Panicked(String),
}

/// In the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId {
    number: u64,
    /// Where it is kept; another one may be there later.
    slot: usize,
}

/// What unwinds the coroutines of a process that ends.
struct Killed;

struct Task {
    name: String,
    process: Process,
    /// `None` while it runs.
    coroutine: Option<Coroutine>,
    /// Counts its waits: a timer of an earlier one does nothing.
    wait: u64,
    /// Whether it waits; otherwise it is ready, or runs.
    waits: bool,
    /// Whether the last wait ended by its deadline.
    is_late: bool,
    /// Whether it unwinds because its process was killed. What it waits for meanwhile, it gets.
    unwinds: bool,
    /// Where it waits, when that is wanted.
    waits_at: Option<Backtrace>,
}

/// All that have not ended, found without a search.
#[derive(Default)]
struct Tasks {
    slots: Vec<Option<(u64, Task)>>,
    free: Vec<usize>,
    made: u64,
}

impl Tasks {
    fn add(&mut self, task: Task) -> TaskId {
        self.made += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some((self.made, task));
        TaskId { number: self.made, slot }
    }

    fn get(&self, id: TaskId) -> Option<&Task> {
        let (number, task) = self.slots.get(id.slot)?.as_ref()?;
        (*number == id.number).then_some(task)
    }

    fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let (number, task) = self.slots.get_mut(id.slot)?.as_mut()?;
        (*number == id.number).then_some(task)
    }

    fn remove(&mut self, id: TaskId) -> Option<Task> {
        self.get(id)?;
        self.free.push(id.slot);
        self.slots[id.slot].take().map(|(_, task)| task)
    }

    /// In no order.
    fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.slots.iter().enumerate().filter_map(|(slot, kept)| {
            let (number, task) = kept.as_ref()?;
            Some((TaskId { number: *number, slot }, task))
        })
    }
}

pub(super) struct Schedule {
    pub(super) now_us: u64,
    tasks: Tasks,
    ready: Vec<TaskId>,
    /// Deadline, task, and which of its waits.
    timers: BinaryHeap<Reverse<(u64, TaskId, u64)>>,
    running: Option<(TaskId, Process)>,
    pub(super) ended: BTreeMap<Process, ProcessEnd>,
    /// By how much the wall clock of a process is ahead, in microseconds.
    pub(super) wall_ahead_us: BTreeMap<Process, i64>,
    /// Processes that are stopped, with those of their tasks that are ready.
    stopped: BTreeMap<Process, Vec<TaskId>>,
    pub(super) dice: SeededRandom,
    /// Whether it is kept where coroutines wait.
    pub(super) is_traced: bool,
    /// Coroutines resumed.
    pub(super) switches: u64,
}

impl Schedule {
    /// Begins a world on this thread.
    ///
    /// # Panics
    /// When the thread has one.
    pub(super) fn begin(seed: u64) {
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "a thread has one world at a time");
            *current = Some(Schedule {
                now_us: 0,
                tasks: Tasks::default(),
                ready: Vec::new(),
                timers: BinaryHeap::new(),
                running: None,
                ended: BTreeMap::new(),
                wall_ahead_us: BTreeMap::new(),
                stopped: BTreeMap::new(),
                dice: SeededRandom::mixed(seed),
                is_traced: false,
                switches: 0,
            });
        });
        OVERTAKEN_PER_MILLE.set(0);
        IN_WORLD.set(true);
    }

    /// Ends the world of this thread. Coroutines that are left are not unwound.
    pub(super) fn end() {
        IN_WORLD.set(false);
        let schedule = CURRENT.take();
        let tasks = schedule.into_iter().flat_map(|schedule| schedule.tasks.slots).flatten();
        for (_, task) in tasks {
            // Their stacks hold locks and handles of each other: unwinding them would wait.
            task.coroutine.into_iter().for_each(Coroutine::abandon);
        }
    }

    fn next(&mut self, until_us: u64) -> Option<(TaskId, Coroutine)> {
        while self.ready.is_empty() {
            let Some(Reverse((at, id, wait))) = self.timers.peek().copied() else {
                self.now_us = self.now_us.max(until_us);
                return None;
            };
            if at > until_us {
                self.now_us = self.now_us.max(until_us);
                return None;
            }
            self.timers.pop();
            let of_this_wait = |task: &&mut Task| task.waits && task.wait == wait;
            let Some(task) = self.tasks.get_mut(id).filter(of_this_wait) else { continue };
            self.now_us = self.now_us.max(at);
            task.is_late = true;
            self.wake(id);
        }
        let at = self.dice.index(self.ready.len());
        let id = self.ready.swap_remove(at);
        let task = self.tasks.get_mut(id)?;
        if let Some(held) = self.stopped.get_mut(&task.process) {
            held.push(id);
            return self.next(until_us);
        }
        let coroutine = task.coroutine.take();
        assert!(coroutine.is_some(), "a coroutine that is ready does not run");
        self.running = Some((id, task.process));
        self.switches += 1;
        coroutine.map(|coroutine| (id, coroutine))
    }

    fn came_back(&mut self, id: TaskId, coroutine: Option<Coroutine>) {
        self.running = None;
        match (coroutine, self.tasks.get_mut(id)) {
            (None, _) => drop(self.tasks.remove(id)),
            (Some(coroutine), Some(task)) => task.coroutine = Some(coroutine),
            (Some(_), None) => unreachable!("a task stays until it has ended"),
        }
    }

    fn wake(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if std::mem::take(&mut task.waits) {
            self.ready.push(id);
        }
    }

    /// A process ends now: its coroutines unwind as soon as they are resumed.
    pub(super) fn kill(&mut self, process: Process, how: ProcessEnd) {
        self.ended.entry(process).or_insert(how);
        let of_process = |(id, task): (TaskId, &Task)| (task.process == process).then_some(id);
        let mut tasks: Vec<_> = self.tasks.iter().filter_map(of_process).collect();
        tasks.sort_unstable();
        tasks.into_iter().for_each(|id| self.wake(id));
    }

    /// Stops a process, as SIGSTOP does: none of its coroutines goes on.
    pub(super) fn stop(&mut self, process: Process) {
        self.stopped.entry(process).or_default();
    }

    /// Lets it go on.
    pub(super) fn go_on(&mut self, process: Process) {
        self.ready.extend(self.stopped.remove(&process).into_iter().flatten());
    }

    /// The end of the world: all processes are killed, also those that are stopped.
    pub(super) fn kill_all(&mut self) {
        let stopped: Vec<_> = self.stopped.keys().copied().collect();
        stopped.into_iter().for_each(|process| self.go_on(process));
        let processes: BTreeSet<_> = self.tasks.iter().map(|(_, task)| task.process).collect();
        processes.into_iter().for_each(|process| self.kill(process, ProcessEnd::Killed));
    }

    fn must_unwind(&mut self, id: TaskId, process: Process) -> bool {
        if !self.ended.contains_key(&process) {
            return false;
        }
        let Some(task) = self.tasks.get_mut(id) else { return false };
        !std::mem::replace(&mut task.unwinds, true)
    }

    pub(super) fn left(&self) -> Vec<(Process, String)> {
        self.tasks.iter().map(|(_, task)| (task.process, task.name.clone())).collect()
    }

    pub(super) fn waits(&self) -> Vec<String> {
        let of = |(_, task): (TaskId, &Task)| {
            let at = task.waits_at.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("process {}, {}:\n{at}", task.process.0, task.name)
        };
        self.tasks.iter().map(of).collect()
    }

    pub(super) fn has_tasks_of(&self, process: Process) -> bool {
        self.tasks.iter().any(|(_, task)| task.process == process)
    }

    pub(super) fn wall_ahead_us(&self) -> i64 {
        let process = self.running_process();
        process.and_then(|process| self.wall_ahead_us.get(&process).copied()).unwrap_or(0)
    }

    pub(super) fn running_process(&self) -> Option<Process> {
        self.running.map(|(_, process)| process)
    }
}

/// Lets one coroutine go on until it waits. False when none can before `until_us`, which is then
/// the time.
pub(super) fn step(until_us: u64) -> bool {
    let Some((id, coroutine)) = with(|schedule| schedule.next(until_us)) else {
        return false;
    };
    // The schedule is not borrowed: the coroutine uses it.
    let coroutine = coroutine.resume();
    with(|schedule| schedule.came_back(id, coroutine));
    true
}

/// Acts on the schedule of this thread.
pub(super) fn with<T>(act: impl FnOnce(&mut Schedule) -> T) -> T {
    CURRENT.with_borrow_mut(|current| match current {
        Some(schedule) => act(schedule),
        None => unreachable!("simulated code runs in a world"),
    })
}

/// Whether this thread has a world: otherwise all is as the operating system has it.
pub(super) fn in_world() -> bool {
    IN_WORLD.get()
}

/// The process of the coroutine that runs.
pub(super) fn running_process() -> Option<Process> {
    with(|schedule| schedule.running_process())
}

/// Whether a process of this thread's world has ended; outside of a world none has.
pub(super) fn has_ended(process: Process) -> bool {
    in_world() && with(|schedule| schedule.ended.contains_key(&process))
}

/// From now on another coroutine goes first, so often in 1,000 times, before a lock is taken.
pub(super) fn set_overtaken(per_mille: u64) {
    OVERTAKEN_PER_MILLE.set(per_mille);
}

/// Before a lock is taken: now and then another coroutine goes first, as threads that run at the
/// same time would have it.
pub(super) fn may_be_overtaken() {
    let per_mille = OVERTAKEN_PER_MILLE.get();
    if per_mille == 0 {
        return;
    }
    let overtaken = with(|schedule| schedule.running.is_some() && schedule.dice.chance(per_mille));
    if overtaken {
        sleep(Duration::ZERO);
    }
}

/// Starts a coroutine.
pub(super) fn create(process: Process, name: String, body: impl FnOnce() + Send + 'static) {
    let guarded = move || {
        let run = || {
            unwind_if_killed();
            body();
        };
        if let Err(why) = catch_unwind(AssertUnwindSafe(run))
            && !why.is::<Killed>()
        {
            let why = words_of(why.as_ref());
            with(|schedule| {
                if let Some(process) = schedule.running_process() {
                    schedule.kill(process, ProcessEnd::Panicked(why));
                }
            });
        }
    };
    let coroutine = Coroutine::new(Box::new(guarded));
    with(|schedule| {
        let task = Task {
            name,
            process,
            coroutine: Some(coroutine),
            wait: 0,
            waits: false,
            is_late: false,
            unwinds: false,
            waits_at: None,
        };
        let id = schedule.tasks.add(task);
        schedule.ready.push(id);
    });
}

fn words_of(why: &(dyn std::any::Any + Send)) -> String {
    let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| why.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The coroutine that runs.
pub(super) fn running() -> Option<TaskId> {
    with(|schedule| schedule.running.map(|(id, _)| id))
}

/// Waits until it is woken, or until the deadline. False when that came first.
///
/// # Panics
/// Outside of a coroutine: the test would wait for itself.
pub(super) fn wait(deadline_us: Option<u64>) -> bool {
    unwind_if_killed();
    let Some(id) = running() else {
        unreachable!("the test itself waits for a coroutine: nothing could go on")
    };
    with(|schedule| {
        let at = deadline_us.map(|at| at.max(schedule.now_us));
        let Some(task) = schedule.tasks.get_mut(id) else { return };
        task.wait += 1;
        (task.waits, task.is_late) = (true, false);
        task.waits_at = schedule.is_traced.then(Backtrace::force_capture);
        let wait = task.wait;
        schedule.timers.extend(at.map(|at| Reverse((at, id, wait))));
    });
    wait_to_be_resumed();
    unwind_if_killed();
    with(|schedule| schedule.tasks.get(id).is_some_and(|task| !task.is_late))
}

/// The coroutine of a process that was killed goes no further. One that unwinds already does.
pub(super) fn unwind_if_killed() {
    let unwinds = with(|schedule| {
        let running = schedule.running;
        running.is_some_and(|(id, process)| schedule.must_unwind(id, process))
    });
    if unwinds {
        resume_unwind(Box::new(Killed));
    }
}

/// Ends the process of the coroutine that runs.
pub(super) fn exit(status: i32) -> ! {
    with(|schedule| {
        if let Some(process) = schedule.running_process() {
            schedule.kill(process, ProcessEnd::Exited(status));
        }
    });
    loop {
        unwind_if_killed();
        // It exits in a destructor, while it unwinds.
        wait(Some(u64::MAX));
    }
}

/// Makes a coroutine ready that waits.
pub(super) fn wake(id: TaskId) {
    with(|schedule| schedule.wake(id));
}

/// A coroutine that waits does so until this time at most.
pub(super) fn hasten(id: TaskId, at_us: u64) {
    with(|schedule| {
        let Some(task) = schedule.tasks.get(id).filter(|task| task.waits) else { return };
        let timer = (at_us.max(schedule.now_us), id, task.wait);
        schedule.timers.push(Reverse(timer));
    });
}

/// Lets virtual time pass.
pub(super) fn sleep(time: Duration) {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let until_us = with(|schedule| schedule.now_us.saturating_add(us));
    // A task that is woken meanwhile for another reason sleeps on.
    while wait(Some(until_us)) {}
}

/// Fills a buffer with numbers of the seed; false outside of a world.
pub(crate) fn fill_from_seed(bytes: &mut [u8]) -> bool {
    let inside = in_world();
    if inside {
        with(|schedule| schedule.dice.fill(bytes));
    }
    inside
}
