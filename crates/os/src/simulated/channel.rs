//! Queues between threads. As [`std::sync::mpsc`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use super::sync::{Condvar, Mutex};
use super::time::Instant;

struct Queue<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
}

struct Inner<T> {
    waiting: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
    /// Values that may wait; `usize::MAX`: there is no bound.
    waiting_max: usize,
}

impl<T> Queue<T> {
    fn take(&self, inner: &mut Inner<T>) -> Option<T> {
        let value = inner.waiting.pop_front()?;
        self.changed.notify_all();
        Some(value)
    }
}

/// As [`std::sync::mpsc::Sender`].
pub struct Sender<T>(Arc<Queue<T>>);

/// As [`std::sync::mpsc::SyncSender`].
pub struct SyncSender<T>(Sender<T>);

/// As [`std::sync::mpsc::Receiver`].
pub struct Receiver<T>(Arc<Queue<T>>);

/// A queue with one sender, which may be cloned.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    queue_of(usize::MAX)
}

/// A queue in which so many values may wait, one at least, with one sender, which may be cloned.
#[must_use]
pub fn sync_channel<T>(waiting_max: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = queue_of(waiting_max.max(1));
    (SyncSender(sender), receiver)
}

fn queue_of<T>(waiting_max: usize) -> (Sender<T>, Receiver<T>) {
    let inner = Inner { waiting: VecDeque::new(), senders: 1, has_receiver: true, waiting_max };
    let queue = Arc::new(Queue { inner: Mutex::new(inner), changed: Condvar::new() });
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

impl<T> Sender<T> {
    /// Adds to the queue.
    ///
    /// # Errors
    /// The receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut inner = self.0.inner.lock();
        if !inner.has_receiver {
            return Err(SendError(value));
        }
        inner.waiting.push_back(value);
        drop(inner);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> SyncSender<T> {
    /// Adds to the queue; waits while it is full.
    ///
    /// # Errors
    /// The receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let Queue { inner, changed } = &*self.0.0;
        let mut inner = inner.lock();
        while inner.has_receiver && inner.waiting.len() >= inner.waiting_max {
            changed.wait(&mut inner);
        }
        if !inner.has_receiver {
            return Err(SendError(value));
        }
        inner.waiting.push_back(value);
        drop(inner);
        changed.notify_all();
        Ok(())
    }

    /// Adds to the queue, unless it is full.
    ///
    /// # Errors
    /// It is full, or the receiver is gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let Queue { inner, changed } = &*self.0.0;
        let mut inner = inner.lock();
        if !inner.has_receiver {
            return Err(TrySendError::Disconnected(value));
        }
        if inner.waiting.len() >= inner.waiting_max {
            return Err(TrySendError::Full(value));
        }
        inner.waiting.push_back(value);
        drop(inner);
        changed.notify_all();
        Ok(())
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        SyncSender(self.0.clone())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.inner.lock().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.inner.lock().senders -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        inner.has_receiver = false;
        let left = std::mem::take(&mut inner.waiting);
        drop(inner);
        self.0.changed.notify_all();
        drop(left);
    }
}

impl<T> Receiver<T> {
    /// The next value; waits for it.
    ///
    /// # Errors
    /// The queue is empty, and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.next(None).map_err(|_| RecvError)
    }

    /// The next value; waits for it at most so long.
    ///
    /// # Errors
    /// None came in time, or none will come.
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        self.next(Some(Instant::now() + time))
    }

    /// The next value, if there is one.
    ///
    /// # Errors
    /// There is none now, or none will come.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut inner = self.0.inner.lock();
        match self.0.take(&mut inner) {
            Some(value) => Ok(value),
            None if inner.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// All values, until all senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// The values that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    fn next(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        let mut inner = self.0.inner.lock();
        loop {
            if let Some(value) = self.0.take(&mut inner) {
                return Ok(value);
            }
            if inner.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            match deadline {
                None => self.0.changed.wait(&mut inner),
                Some(at) if Instant::now() >= at => return Err(RecvTimeoutError::Timeout),
                Some(at) => drop(self.0.changed.wait_until(&mut inner, at)),
            }
        }
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Values<T>;

    fn into_iter(self) -> Values<T> {
        Values(self)
    }
}

/// All values, until all senders are gone.
#[derive(Debug)]
pub struct Values<T>(Receiver<T>);

impl<T> Iterator for Values<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sender")
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SyncSender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Receiver")
    }
}
