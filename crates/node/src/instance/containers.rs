//! Container ids of open connections, so that one which wants to be the only one of its id can be
//! (capability `sole-connection-for-container`; a JMS client id is a container id).
//!
//! It does not close anybody: the one that comes second goes. Invariant: an id is counted as often as
//! it is open, whether or not its connections asked to be alone.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Containers {
    open: HashMap<String, u32>,
}

impl Containers {
    /// False, and nothing is counted, when it wants to be the only one and is not.
    pub(super) fn enter(&mut self, container: &str, sole: bool) -> bool {
        match self.open.get_mut(container) {
            Some(_) if sole => return false,
            Some(count) => *count = count.saturating_add(1),
            None => {
                self.open.insert(container.to_owned(), 1);
            }
        }
        true
    }

    pub(super) fn leave(&mut self, container: &str) {
        let Some(count) = self.open.get_mut(container) else { return };
        *count -= 1;
        if *count == 0 {
            self.open.remove(container);
        }
    }
}
