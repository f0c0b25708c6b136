//! What a rig shows of the credit of a client's senders.

use super::{Client, LinkId, Rig};

impl Rig {
    /// The log is behind, or has caught up, as the driver of this connection sees it.
    pub(crate) fn log_behind(&mut self, client: &mut Client, is_behind: bool) {
        client.front.set_log_behind(is_behind);
        self.exchange(client);
    }
}

impl Client {
    /// Deliveries that it may send on a link.
    pub(crate) fn sender_credit(&self, link: LinkId) -> u32 {
        self.machine.allowance(link).credit
    }

    /// Whether a link waits for credit until the log has caught up.
    pub(crate) fn is_slowed(&self) -> bool {
        self.front.withholds_credit()
    }
}
