//! Frames that wait for the connection to one peer: urgent ones first, bounded, never blocking the
//! caller that puts.
//!
//! Not here: sockets, bytes of a frame. Invariants: while it is closed it is empty; `bytes` is the
//! sum over the frames that were put and not yet reported by `written`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::frame::{BODY_BYTES_MAX, FrameBody, HEADER_BYTES};

/// Bytes that may wait for one peer. A peer that is further behind gets what it lacks later, from
/// the log.
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes beyond it that urgent frames may take: a full queue must not silence a heartbeat.
const URGENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Ordinary bytes taken at once: what was taken can no longer be overtaken.
const TAKEN_BYTES: usize = 64 * 1024;

const _: () = assert!(URGENT_BYTES_MAX > BODY_BYTES_MAX + HEADER_BYTES);

/// A frame that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) kind: u8,
    pub(super) body: FrameBody,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    open: bool,
    bytes: usize,
    urgent: VecDeque<Waiting>,
    ordinary: VecDeque<Waiting>,
}

impl Queue {
    /// Takes a frame if there is a connection and the limit allows it.
    pub(super) fn put(&self, kind: u8, urgent: bool, body: FrameBody) -> bool {
        let bytes = HEADER_BYTES + body.len();
        let most = if urgent { QUEUED_BYTES_MAX + URGENT_BYTES_MAX } else { QUEUED_BYTES_MAX };
        let mut inner = self.inner.lock();
        if !inner.open || inner.bytes + bytes > most {
            return false;
        }
        inner.bytes += bytes;
        let queue = if urgent { &mut inner.urgent } else { &mut inner.ordinary };
        queue.push_back(Waiting { kind, body });
        drop(inner);
        self.filled.notify_one();
        true
    }

    /// Waits for frames, and gives those that are to be written next: all urgent ones, then, if
    /// they may go, `ordinary` ones up to some bytes. Their bytes are counted until `written`.
    pub(super) async fn take(&self, ordinary: bool, into: &mut Vec<Waiting>) -> usize {
        loop {
            let taken = self.take_now(ordinary, into);
            if taken > 0 {
                return taken;
            }
            self.filled.notified().await;
        }
    }

    fn take_now(&self, ordinary: bool, into: &mut Vec<Waiting>) -> usize {
        let mut inner = self.inner.lock();
        let mut bytes = 0;
        while let Some(waiting) = inner.urgent.pop_front() {
            bytes += HEADER_BYTES + waiting.body.len();
            into.push(waiting);
        }
        while ordinary
            && bytes < TAKEN_BYTES
            && let Some(waiting) = inner.ordinary.pop_front()
        {
            bytes += HEADER_BYTES + waiting.body.len();
            into.push(waiting);
        }
        bytes
    }

    /// So many of the bytes that were taken are on their way: the bytes that waited before, and
    /// those that wait now.
    pub(super) fn written(&self, bytes: usize) -> [usize; 2] {
        let mut inner = self.inner.lock();
        let before = inner.bytes;
        inner.bytes = before.saturating_sub(bytes);
        [before, inner.bytes]
    }

    /// A connection stands.
    pub(super) fn open(&self) {
        let mut inner = self.inner.lock();
        assert!(inner.urgent.is_empty() && inner.ordinary.is_empty(), "a closed queue held frames");
        inner.bytes = 0;
        inner.open = true;
    }

    /// It ended: what waits is dropped.
    pub(super) fn close(&self) {
        let dropped = std::mem::take(&mut *self.inner.lock());
        drop(dropped);
    }

    /// Whether there is a connection.
    pub(super) fn is_open(&self) -> bool {
        self.inner.lock().open
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn taken(queue: &Queue) -> Vec<u8> {
        let mut frames = Vec::new();
        let bytes = queue.take_now(true, &mut frames);
        queue.written(bytes);
        frames.iter().map(|waiting| waiting.kind).collect()
    }

    fn body(bytes: usize) -> FrameBody {
        FrameBody::from(vec![0; bytes])
    }

    #[test]
    fn urgent_frames_overtake_and_each_kind_keeps_its_order() {
        let queue = Queue::default();
        queue.open();
        for (kind, urgent) in [(1, false), (2, true), (3, false), (4, true)] {
            assert!(queue.put(kind, urgent, body(10)));
        }
        assert_eq!(taken(&queue), [2, 4, 1, 3]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn few_ordinary_bytes_are_taken_at_once_so_that_the_rest_can_be_overtaken() {
        let queue = Queue::default();
        queue.open();
        for kind in 0..4 {
            queue.put(kind, false, body(TAKEN_BYTES / 2));
        }
        assert_eq!(taken(&queue), [0, 1]);
        queue.put(9, true, body(1));
        assert_eq!(taken(&queue), [9, 2, 3]);
    }

    #[test]
    fn while_ordinary_frames_may_not_go_urgent_ones_do() {
        let queue = Queue::default();
        queue.open();
        queue.put(1, false, body(1));
        queue.put(2, true, body(1));
        let mut frames = Vec::new();
        assert_eq!(queue.take_now(false, &mut frames), HEADER_BYTES + 1);
        assert_eq!(queue.take_now(false, &mut frames), 0);
        assert_eq!(frames.iter().map(|waiting| waiting.kind).collect::<Vec<_>>(), [2]);
        queue.written(HEADER_BYTES + 1);
        assert_eq!(taken(&queue), [1]);
    }

    #[test]
    fn a_full_queue_drops_and_still_takes_what_is_urgent() {
        let queue = Queue::default();
        queue.open();
        let mut count = 0;
        while queue.put(1, false, body(MIB)) {
            count += 1;
        }
        assert_eq!(count, 63, "64 MiB with the headers");
        assert!(queue.put(2, true, body(4 * MIB)));
        while queue.put(3, true, body(MIB)) {}
        assert!(queue.bytes() <= QUEUED_BYTES_MAX + URGENT_BYTES_MAX);
        // What was taken still counts until it is written.
        let mut frames = Vec::new();
        queue.take_now(true, &mut frames);
        assert!(!queue.put(1, false, body(MIB)));
    }

    #[test]
    fn without_a_connection_nothing_is_taken_and_nothing_stays() {
        let queue = Queue::default();
        assert!(!queue.put(1, true, body(1)));
        queue.open();
        assert!(queue.put(1, false, body(1)));
        queue.close();
        assert!(!queue.put(1, false, body(1)));
        assert_eq!((queue.bytes(), taken(&queue)), (0, vec![]));
        queue.open();
        assert_eq!(taken(&queue), [0_u8; 0]);
    }
}
