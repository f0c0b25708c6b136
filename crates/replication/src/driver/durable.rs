//! How far the log is durable, for the member: what it acknowledges depends on it.
//!
//! Not here: when the log says so (`towline_log::Listener`).
//!
//! Invariant: a position of the log is read under the lock of the member. Under that lock the log
//! is cut, too: what was read before may be of batches that are cut off meanwhile, and others, not
//! yet written, stand at their positions then.

use towline_group::Input;

use super::{Core, Driver};

impl Driver {
    /// Nothing happened, but it may be time for something.
    pub fn look_again(&self) {
        let mut core = self.core.lock();
        self.run_durable(&mut core);
        drop(core);
        self.after();
    }

    /// Reports to the member what became durable; a thread that holds the lock meanwhile does it
    /// when it leaves.
    pub(super) fn take_durable_news(&self) {
        self.core.take_posted(|core| self.run_durable(core), |()| ());
    }

    pub(super) fn run_durable(&self, core: &mut Core) {
        let upto = self.log().durable();
        self.run(core, Input::Durable(upto));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use towline_group::{HardState, Message};
    use towline_log::{Disk, LinuxDisk};
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::{DiskTiming, FileSystem};
    use towline_os::thread::Builder;
    use towline_types::{Batch, Lsn};

    use super::super::tests::{LONG, append, one_of};
    use super::*;

    #[test]
    fn what_was_durable_before_a_cut_acknowledges_nothing_of_what_took_its_place() {
        let system = FileSystem::new();
        system.make_folder("/data");
        system.set_timing(DiskTiming { sync_us: (5_000, 5_000), ..DiskTiming::default() });
        let done = crash::in_process(&system, 1, || {
            let disk = Arc::new(LinuxDisk::open(Path::new("/data/log")).unwrap()) as Arc<dyn Disk>;
            let hard_state =
                HardState { term: 1, may_vote: true, knows_term: true, ..HardState::default() };
            let (driver, _told) = one_of(&["a", "b", "c"], hard_state, &disk, Path::new("/data"));
            let first = driver.log().tail().0.next_multiple_of(4_096);
            let batch = |index, term| Batch {
                index,
                term,
                lsn: Lsn(first + (index - 1) * 4_096),
                payload: bytes::Bytes::new(),
            };
            let message = |term, behind, batches: &[Batch]| {
                Message::decode(&append(term, behind, batches)).unwrap()
            };
            let of_first_leader = [batch(1, 1), batch(2, 1), batch(3, 1)];
            driver.hear(message(1, (0, 0), &of_first_leader)).unwrap();
            let durable = || driver.group().durable;
            assert!(driver.wait_until(LONG, || durable() == batch(3, 1).end()));

            // The other thread comes while the next leader's batches take the place of these.
            let mut core = driver.core.lock();
            let other = Arc::clone(&driver);
            let looks = Builder::new().spawn(move || other.look_again()).unwrap();
            let of_next_leader = message(2, (1, 1), &[batch(2, 2), batch(3, 2)]);
            driver.run(&mut core, Input::Message(of_next_leader));
            drop(core);
            looks.join().unwrap();
            assert_eq!(durable(), batch(1, 1).end(), "the next two are on their way to the disk");
            assert!(driver.wait_until(LONG, || durable() == batch(3, 2).end()));
            driver.log().shutdown();
        });
        assert_eq!(done, Ok(()));
    }
}
