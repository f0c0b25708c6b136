//! Container ids of open connections, so that one which wants to be the only one of its id can be
//! (capability `sole-connection-for-container`; a JMS client id is a container id), and stays it:
//! of the detection policies of Enforcing Connection Uniqueness this is the strong one, which is
//! also what a client assumes when no policy is named.
//!
//! It closes no connection: the one that comes second goes. Invariant: an id is counted as often
//! as it is open, whether or not its connections asked to be alone; one of them that did is alone.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Containers {
    open: HashMap<String, Open>,
}

#[derive(Debug)]
struct Open {
    connections: u32,
    /// Its connection asked to be the only one.
    sole: bool,
}

impl Containers {
    /// False, and nothing is counted, when it wants to be the only one and is not, or another one
    /// is.
    pub(super) fn enter(&mut self, container: &str, sole: bool) -> bool {
        match self.open.get_mut(container) {
            Some(open) if sole || open.sole => return false,
            Some(open) => open.connections = open.connections.saturating_add(1),
            None => {
                self.open.insert(container.to_owned(), Open { connections: 1, sole });
            }
        }
        true
    }

    pub(super) fn leave(&mut self, container: &str) {
        let Some(open) = self.open.get_mut(container) else { return };
        // At zero the entry goes, so one that is here has a connection.
        assert!(open.connections > 0, "a container id without a connection");
        open.connections -= 1;
        if open.connections == 0 {
            self.open.remove(container);
        }
    }
}
