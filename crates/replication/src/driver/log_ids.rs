//! Whether another instance has the log that this one has: they say its id when they connect.
//!
//! A log that is empty takes the id of one that is not; of two that are, both take the same one.
//! An earlier version made the id of the names of queue manager and group, and says none.
//!
//! Not here: how a log is replaced (`log_identity`). Invariant: nothing is appended to a log, and
//! no vote counts, between instances with logs of different ids.

use towline_admin::catalogue::GROUP_LOG_ID_TAKEN;
use towline_log::{Listener, LogError, LogId};

use super::Driver;
use crate::lifecycle::{EndReason, Lifecycle};
use crate::log_identity;
use crate::membership::{log_id, log_id_before};
use towline_link::{Peer, Standing};
use towline_logging::log as say;

/// The ids that the log of this instance may have had when it was made, without a question.
#[derive(Clone, Copy, Debug)]
pub struct MadeIds {
    /// That of a new log.
    pub now: LogId,
    /// That of an earlier version.
    pub before: LogId,
}

impl MadeIds {
    /// Those of a group of a queue manager.
    #[must_use]
    pub fn of(queue_manager: &str, group: &str) -> MadeIds {
        MadeIds { now: log_id(queue_manager), before: log_id_before(queue_manager, group) }
    }
}

impl Driver {
    /// An instance with this log is about to be connected.
    ///
    /// # Errors
    /// It has another log, and one of both is to take the other's id first.
    pub(crate) fn admits_log(&self, peer: Peer, standing: &Standing) -> Result<(), String> {
        let MadeIds { now, before } = self.surroundings.made_ids;
        let theirs = if standing.log == 0 { before } else { LogId(standing.log) };
        let ours = self.log().id();
        if ours == theirs {
            return Ok(());
        }
        let is_empty = self.look(|core| core.member.last().index == 0);
        let [name, this] = [peer, self.this].map(|peer| self.name(peer));
        match (is_empty, standing.last_index == 0) {
            (false, false) => Err(format!(
                "the log of '{name}' ({:032x}) is not that of '{this}' ({:032x}): one of both \
                 folders is of another group, or queue manager, of these names",
                theirs.0, ours.0
            )),
            (false, true) => Err(format!("'{name}' is to take the log of '{this}' first")),
            // That which is not made without a question has a reason; any other rule would do too.
            (true, true) if (theirs == now, theirs.0) > (ours == now, ours.0) => {
                Err(format!("'{name}' is to take the log of '{this}' first"))
            }
            (true, _) => self.takes_log_id(name, theirs),
        }
    }

    /// The log, which is empty, is made anew with this id, of the log of `from`, by the next start.
    ///
    /// # Errors
    /// Always: it takes part in nothing before that, or has another log.
    pub(crate) fn takes_log_id(&self, from: &str, id: LogId) -> Result<(), String> {
        let mut core = self.core.lock();
        if !matches!(core.lifecycle, Lifecycle::Following) || core.member.last().index > 0 {
            return Err("it has another log".into());
        }
        let hard_state = core.member.hard_state();
        let data = core.hard_state_file.folder().to_owned();
        let replaced = self.disk.keeping(|| {
            log_identity::replace_empty(&data, id, &hard_state, self.own_start().nonce)
        });
        if let Err(error) = replaced {
            let error = LogError::io("make an empty log anew", "log-id", error);
            Listener::failed(self, &error);
        }
        say(&GROUP_LOG_ID_TAKEN, &[from, &format!("{:032x}", id.0)]);
        self.ends(&mut core, EndReason::TakesLogId);
        Err("it re-executes itself: its empty log gets another id".into())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use towline_group::HardState;
    use towline_log::{Disk, MemoryDisk};
    use towline_os::sync::mpsc::Receiver;

    use super::super::tests::{LOG, fill, one_of};
    use super::*;
    use crate::log_swap;

    /// The first of three, with a log of the id 7.
    fn driver_on(disk: &Arc<dyn Disk>, data: &Path) -> (Arc<Driver>, Receiver<EndReason>) {
        std::fs::create_dir_all(data.join("log")).unwrap();
        let hard_state = HardState { may_vote: true, ..HardState::default() };
        one_of(&["a", "b", "c"], hard_state, disk, data)
    }

    fn memory() -> Arc<dyn Disk> {
        Arc::new(MemoryDisk::new())
    }

    fn said(last_index: u64, log: u128) -> Standing {
        Standing { last_index, log, ..Standing::default() }
    }

    #[test]
    fn an_empty_log_takes_the_id_of_one_that_has_batches_and_of_two_empty_ones_one_does() {
        let takes = |standing: Standing| {
            let folder = tempfile::tempdir().unwrap();
            let (driver, on_end) = driver_on(&memory(), folder.path());
            let admitted = driver.admits_log(1, &standing);
            driver.log().shutdown();
            if on_end.try_recv().is_err() {
                assert!(log_identity::wanted_id(folder.path()).unwrap().is_none());
                return (admitted.is_ok(), None);
            }
            assert!(driver.admits_log(2, &standing).is_err(), "it is over");
            log_swap::settle(folder.path(), "marker").unwrap();
            (admitted.is_ok(), log_identity::wanted_id(folder.path()).unwrap())
        };
        assert_eq!(takes(said(4, LOG.0)), (true, None));
        assert_eq!(takes(said(4, 0)), (true, None), "a version that does not say it");
        assert_eq!(takes(said(4, 9)), (false, Some(LogId(9))));
        assert_eq!(takes(said(4, 8)), (false, Some(LogId(8))), "also that of a new log");
        assert_eq!(takes(said(0, 3)), (false, Some(LogId(3))));
        for theirs in [8, 9] {
            assert_eq!(takes(said(0, theirs)), (false, None), "that one takes ours");
        }
    }

    #[test]
    fn a_log_with_batches_keeps_its_id_and_is_not_mixed_with_another_one() {
        let (disk, folder) = (memory(), tempfile::tempdir().unwrap());
        fill(&disk);
        let (driver, on_end) = driver_on(&disk, folder.path());
        let why = |last_index| driver.admits_log(1, &said(last_index, 9)).unwrap_err();
        assert!(why(0).contains("'b' is to take the log of 'a' first"));
        for part in ["the log of 'b' (", "09) is not that of 'a'", "07): one of both"] {
            assert!(why(5).contains(part), "{}", why(5));
        }
        assert!(driver.admits_log(1, &said(5, LOG.0)).is_ok() && on_end.try_recv().is_err());
        driver.log().shutdown();
    }
}
