//! What a rig shows of a connection's account.

use towline_amqp::types::Role;
use towline_node::ConnectionAccount;

use super::{AnyPeer, Client, Ends, LinkId, Rig, refusal};

impl Rig {
    /// A link with a selector, or the condition with which it is refused.
    pub(crate) fn try_selecting_receiver(
        &mut self,
        client: &mut Client,
        queue: &str,
        selector: &str,
    ) -> Result<LinkId, String> {
        let link = self.attach(client, Role::Receiver, Ends::selecting(queue, selector));
        refusal(client, link).map_or(Ok(link), Err)
    }
}

impl Client {
    pub(crate) fn account(&self) -> ConnectionAccount {
        self.front.account()
    }
}

impl AnyPeer {
    pub(crate) fn account(&self) -> ConnectionAccount {
        self.front.account()
    }
}
