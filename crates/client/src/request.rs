//! Administration: a request to the node `$admin`, and its reply, on the same session.
//!
//! A request is a message with a string body, a correlation id and the application property `kind`;
//! the reply has the same correlation id and a body of JSON text. What the JSON says is for the
//! caller.

use std::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::link::{Receiver, Sender};
use crate::message::{Body, Message, Property};
use crate::receive::ReceiverOptions;

/// The address of the administration node.
pub const ADMIN_ADDRESS: &str = "$admin";

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// JSON text.
    pub body: String,
}

impl Client {
    /// Sends a request and waits for its reply. Kinds are the server's: `mqsc`, `status`.
    ///
    /// # Errors
    /// [`Error::Refused`] when the server does not let us.
    pub fn ask_admin(&mut self, kind: &str, body: &str) -> Result<Reply, Error> {
        let (sender, mut receiver) = self.admin_links()?;
        let correlation_id = self.fresh("request");
        let request = Message {
            body: Body::Text(body.into()),
            correlation_id: Some(correlation_id.clone()),
            reply_to: Some(ADMIN_ADDRESS.into()),
            properties: vec![("kind".into(), Property::Text(kind.into()))],
            ..Message::default()
        };
        // Credit goes out ahead of the request: the server need not keep the reply.
        self.ask(&mut receiver)?;
        self.send(sender, &request, None)?;
        self.settle_to(sender, 0)?;
        let deadline = Instant::now() + self.timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(delivery) = self.receive(&mut receiver, Some(left))? else {
                return Err(Error::NoAnswer { what: "a request", after: self.timeout });
            };
            self.accept(&delivery, None)?;
            let reply = delivery.message()?;
            // A reply to an earlier request that was given up.
            if reply.correlation_id.as_deref() != Some(&correlation_id) {
                continue;
            }
            let Body::Text(body) = reply.body else {
                return Err(Error::Unexpected("a reply that is not text".into()));
            };
            return Ok(Reply { body });
        }
    }

    fn admin_links(&mut self) -> Result<(Sender, Receiver), Error> {
        if let Some((sender, receiver)) = &self.admin {
            return Ok((*sender, receiver.clone()));
        }
        // The receiver first: a reply must have where to go.
        let options = ReceiverOptions { window: 1, ..ReceiverOptions::default() };
        let receiver = self.receiver(ADMIN_ADDRESS, &options)?;
        let sender = self.sender(ADMIN_ADDRESS)?;
        self.admin = Some((sender, receiver.clone()));
        Ok((sender, receiver))
    }
}
