//! Everything that a queue has now: taken out of it, or only looked at.
//!
//! Not here: which instance is asked, and what is made of it.

use crate::wire::{Value, amqp, code, described};
use crate::{Try, fail, require};

use super::{PATIENCE, Peer, accept, attach_browser, attach_receiver, drain_flow};

/// Credit that is given at a time.
const CREDIT: u32 = 500;
/// Handle of the link.
const HANDLE: u32 = 77;

impl Peer {
    /// Takes every message that a queue has now, in order, as text. Uses handle 77 of channel 0.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn drain(&mut self, queue: &str) -> Try<Vec<String>> {
        self.read_all(&attach_receiver(HANDLE, queue), &mut |_| Ok(()))
    }

    /// The same messages, which stay on the queue. `each` is called after each, with their number
    /// so far.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn browse(&mut self, queue: &str, each: &mut dyn FnMut(usize) -> Try) -> Try<Vec<String>> {
        self.read_all(&attach_browser(HANDLE, queue), each)
    }

    fn read_all(&mut self, attach: &Value, each: &mut dyn FnMut(usize) -> Try) -> Try<Vec<String>> {
        self.send(&amqp(0, attach, &[]))?;
        let attach = self.expect(code::ATTACH)?;
        require!(*attach.performative.field(5) != Value::Null, "refused: {attach:?}");
        let mut texts = Vec::new();
        let mut received = 0_u32;
        loop {
            let before = texts.len();
            let flow = drain_flow(HANDLE, received, CREDIT);
            self.send(&amqp(0, &flow, &[]))?;
            let count = self.read_some(&mut texts, each)?;
            if texts.len() == before {
                break;
            }
            received = count;
        }
        let fields = vec![Value::Uint(HANDLE), Value::Bool(true)];
        self.send(&amqp(0, &described(code::DETACH, fields), &[]))?;
        while self
            .read_frame(PATIENCE)?
            .is_some_and(|got| got.performative.code() != Some(code::DETACH))
        {}
        Ok(texts)
    }

    /// Reads deliveries until the credit is used up; gives back the sender's delivery count.
    fn read_some(
        &mut self,
        texts: &mut Vec<String>,
        each: &mut dyn FnMut(usize) -> Try,
    ) -> Try<u32> {
        let mut bytes = Vec::new();
        let mut delivery = None;
        loop {
            let Some(got) = self.read_frame(PATIENCE)? else { fail!("no answer to a drain") };
            let fields = &got.performative;
            match fields.code() {
                Some(code::TRANSFER) => {
                    bytes.extend(&got.payload);
                    delivery = delivery.or(fields.field(1).as_number());
                    if *fields.field(5) == Value::Bool(true) {
                        continue;
                    }
                    let text = crate::wire::body_text(&std::mem::take(&mut bytes));
                    texts.push(text.ok_or("a message without text")?);
                    let settled = u32::try_from(delivery.take().ok_or("no delivery id")?)?;
                    self.send(&amqp(0, &accept(settled, settled), &[]))?;
                    each(texts.len())?;
                }
                Some(code::FLOW)
                    if *fields.field(4) != Value::Null
                        && fields.field(6).as_number().unwrap_or(0) == 0 =>
                {
                    return Ok(u32::try_from(fields.field(5).as_number().unwrap_or(0))?);
                }
                Some(code::DETACH | code::END | code::CLOSE) => fail!("drain ended: {got:?}"),
                _ => {}
            }
        }
    }
}
