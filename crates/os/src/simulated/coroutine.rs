//! Coroutines whose stacks are used again.
//!
//! A stack is memory of the operating system, with a page behind it that ends an overflow. To make
//! one and to touch it for the first time costs more than most coroutines do.
//!
//! Not here: which one goes on (`schedule`). Invariant: a stack is used again only when what ran on
//! it has returned.

use std::cell::RefCell;
use std::sync::Arc;

use generator::{Generator, Gn};
use parking_lot::Mutex;

/// Bytes of a coroutine's stack: what debug builds need. Pages that are not touched cost nothing.
const STACK_BYTES: usize = 1024 * 1024;
/// Stacks that a thread keeps, at most.
const IDLE_MAX: usize = 512;

thread_local! {
    /// Stacks of this thread on which nothing runs.
    static IDLE: RefCell<Idle> = const { RefCell::new(Idle(Vec::new())) };
}

type Body = Box<dyn FnOnce() + Send>;

/// What a coroutine says when it gives control back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// It waits for something.
    Waits,
    /// What it ran has returned.
    HasEnded,
}

/// A piece of work on a stack of its own.
pub(super) struct Coroutine {
    stack: Generator<'static, (), Pause>,
    /// What it runs next; nothing: it ends.
    next: Arc<Mutex<Option<Body>>>,
}

impl Coroutine {
    /// One that runs this when it is resumed. The body must not panic.
    pub(super) fn new(body: Body) -> Coroutine {
        let idle = IDLE.try_with(|idle| idle.borrow_mut().0.pop()).ok().flatten();
        let coroutine = idle.unwrap_or_else(Coroutine::on_new_stack);
        *coroutine.next.lock() = Some(body);
        coroutine
    }

    fn on_new_stack() -> Coroutine {
        let next: Arc<Mutex<Option<Body>>> = Arc::default();
        let given = Arc::clone(&next);
        let stack = Gn::new_opt(STACK_BYTES / size_of::<usize>(), move || {
            loop {
                let body = given.lock().take();
                let Some(body) = body else { return Pause::HasEnded };
                body();
                pause(Pause::HasEnded);
            }
        });
        Coroutine { stack, next }
    }

    /// Lets it go on until it waits; `None`: it has ended.
    pub(super) fn resume(mut self) -> Option<Coroutine> {
        if self.stack.resume() == Some(Pause::Waits) {
            return Some(self);
        }
        let is_kept = IDLE.try_with(|idle| idle.borrow().0.len() < IDLE_MAX);
        if is_kept == Ok(true) {
            IDLE.with_borrow_mut(|idle| idle.0.push(self));
        } else {
            self.retire();
        }
        None
    }

    /// Returns, with nothing to run: dropped where it waits, it would unwind.
    fn retire(mut self) {
        self.stack.resume();
    }

    /// Its stack is not unwound, and its memory not given back.
    pub(super) fn abandon(self) {
        std::mem::forget(self.stack);
    }
}

/// From the coroutine that runs back to what resumed it.
#[expect(deprecated, reason = "scopes would have to be passed through all code between")]
fn pause(why: Pause) {
    generator::yield_with(why);
}

/// Waits to be resumed.
pub(super) fn wait_to_be_resumed() {
    pause(Pause::Waits);
}

struct Idle(Vec<Coroutine>);

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Coroutine::retire);
    }
}
