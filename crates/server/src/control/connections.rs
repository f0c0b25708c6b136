//! Which connections of the control socket are open, and which one makes way when there are as many
//! as may be: one that is idle first, then one whose client does not read its answer.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What a connection waits for.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// For a request, since then.
    Request(Instant),
    /// For this process, which carries a request out.
    Work,
    /// For its client, which has to read the answer, since then.
    Reader(Instant),
}

struct OpenConnection {
    /// The same socket as the one that is served: to end it from outside.
    stream: UnixStream,
    wait: Wait,
}

/// The open connections of the control socket.
pub(super) struct Connections {
    most: usize,
    /// An answer that its client has not read after this may make way.
    stalled: Duration,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, OpenConnection>,
    next: u64,
}

impl Connections {
    pub(super) fn new(most: usize, stalled: Duration) -> Connections {
        Connections { most, stalled, table: Mutex::default() }
    }

    /// Admits a connection; `None`: there are too many, and each waits for its answer.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn admit(&self, stream: &UnixStream) -> io::Result<Option<u64>> {
        let stream = stream.try_clone()?;
        let mut table = self.table.lock();
        if table.open.len() >= self.most {
            let Some(id) = table.makes_way(self.stalled) else { return Ok(None) };
            if let Some(closed) = table.open.remove(&id) {
                // Its client may have closed it.
                closed.stream.shutdown(Shutdown::Both).ok();
            }
        }
        let id = table.next;
        table.next += 1;
        let wait = Wait::Request(Instant::now());
        table.open.insert(id, OpenConnection { stream, wait });
        Ok(Some(id))
    }

    /// The connection has sent its request.
    pub(super) fn works(&self, id: u64) {
        self.set(id, Wait::Work);
    }

    /// The answer is on its way.
    pub(super) fn answers(&self, id: u64) {
        self.set(id, Wait::Reader(Instant::now()));
    }

    /// The answer was read.
    pub(super) fn is_idle(&self, id: u64) {
        self.set(id, Wait::Request(Instant::now()));
    }

    /// The connection has ended.
    pub(super) fn remove(&self, id: u64) {
        self.table.lock().open.remove(&id);
    }

    /// How many wait for a request of their client.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        let table = self.table.lock();
        table.open.values().filter(|open| matches!(open.wait, Wait::Request(_))).count()
    }

    fn set(&self, id: u64, wait: Wait) {
        // One that made way is not in the table any more.
        if let Some(open) = self.table.lock().open.get_mut(&id) {
            open.wait = wait;
        }
    }
}

impl Table {
    fn makes_way(&self, stalled: Duration) -> Option<u64> {
        let since = |which: fn(Wait) -> Option<Instant>| {
            let times = self.open.iter().filter_map(|(id, open)| Some((which(open.wait)?, *id)));
            times.min()
        };
        let idle = since(|wait| match wait {
            Wait::Request(since) => Some(since),
            Wait::Work | Wait::Reader(_) => None,
        });
        let unread = since(|wait| match wait {
            Wait::Reader(since) => Some(since),
            Wait::Work | Wait::Request(_) => None,
        });
        idle.or(unread.filter(|(since, _)| since.elapsed() >= stalled)).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn is_closed(client: &UnixStream) -> bool {
        client.set_nonblocking(true).unwrap();
        matches!((&mut &*client).read(&mut [0; 1]), Ok(0))
    }

    #[test]
    fn the_longest_idle_makes_way_then_one_that_does_not_read_and_never_one_that_waits() {
        let connections = Connections::new(3, Duration::ZERO);
        let pairs: Vec<_> = (0..8).map(|_| UnixStream::pair().unwrap()).collect();
        let admit = |at: usize| connections.admit(&pairs[at].1).unwrap();
        let ids: Vec<u64> = (0..3).map(|at| admit(at).unwrap()).collect();
        connections.works(ids[0]);
        connections.answers(ids[1]);
        assert!(admit(3).is_some());
        let closed = || [0, 1, 2, 3].map(|at: usize| is_closed(&pairs[at].0));
        assert_eq!(closed(), [false, false, true, false], "the idle one");
        connections.works(3);
        assert!(admit(4).is_some());
        assert_eq!(closed(), [false, true, true, false], "the one that did not read");
        connections.works(4);
        assert!(admit(5).is_none(), "each waits for its answer");
        connections.remove(ids[0]);
        assert!(admit(6).is_some());
        let patient = Connections::new(1, Duration::from_secs(600));
        let id = patient.admit(&pairs[0].1).unwrap().unwrap();
        patient.answers(id);
        assert!(patient.admit(&pairs[1].1).unwrap().is_none(), "it may be reading");
        patient.is_idle(id);
        assert!(patient.admit(&pairs[1].1).unwrap().is_some());
    }
}
