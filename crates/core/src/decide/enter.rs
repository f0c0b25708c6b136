//! The beginning of a connection, and on behalf of which user its requests are decided.

use crate::principal::Principal;
use crate::sessions::Connection;
use crate::{ConnectionId, QueueManager};

impl QueueManager {
    /// A connection begins. Until it ends, what it asks for is decided on behalf of this principal.
    pub fn connect(&mut self, connection: ConnectionId, principal: Principal) {
        let begun = Connection { principal, ..Connection::default() };
        let before = self.connections.insert(connection, begun);
        assert!(before.is_none(), "a connection begins once");
    }

    /// On behalf of which principal the requests of a connection are decided: put by name,
    /// [`QueueManager::open_put`], [`QueueManager::open_get`] and all that follows from them. A
    /// connection that did not begin, or has ended, is anonymous: it never has the rights of the
    /// process.
    #[must_use]
    pub fn principal(&self, connection: ConnectionId) -> &Principal {
        let known = self.connections.get(&connection);
        known.map_or(&Principal::Anonymous, |known| &known.principal)
    }
}
