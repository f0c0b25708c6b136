//! Long messages of rigs are checked at once, as by a driver with a thread to spare.

use towline_node::{Front, MessageCheck, Request};
use towline_types::Time;

use super::{BytesMut, Client, Input, LinkId, Outgoing, Response, Rig, flush};

/// Has the front take what came, and all that it wants to be checked.
pub(crate) fn take(
    front: &mut Front,
    now: Time,
    input: &mut BytesMut,
    requests: &mut Vec<Request>,
) {
    front.receive(now, input, requests);
    while let Some(check) = front.take_check() {
        front.checked(now, check.run(), input, requests);
    }
}

impl Rig {
    /// The client sends messages of which the last one is long. The server acts on the answers to
    /// those before it, and has not checked it.
    pub(crate) fn send_unchecked(
        &mut self,
        client: &mut Client,
        link: LinkId,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> MessageCheck {
        for (key, message) in (1..).zip(messages) {
            client.machine.send(link, key, message);
        }
        let (mut input, mut requests) = (flush(&mut client.machine), Vec::new());
        let check = loop {
            client.front.receive(self.now, &mut input, &mut requests);
            if let Some(check) = client.front.take_check() {
                break check;
            }
            assert!(client.front.has_more(), "a long message");
        };
        self.asks(client, &mut requests);
        let id = client.id;
        let answered = self.waiting.extract_if(.., |(connection, _)| *connection == id);
        let answers: Vec<Response> = answered.map(|(_, response)| response).collect();
        for response in answers {
            let Some(response) = client.front.admit(response) else { continue };
            client.front.respond(self.now, response, None, &mut requests);
        }
        self.asks(client, &mut requests);
        check
    }

    /// The check is done, and the client goes on.
    pub(crate) fn checked(&mut self, client: &mut Client, check: MessageCheck) {
        let (mut input, mut requests) = (BytesMut::new(), Vec::new());
        client.front.checked(self.now, check.run(), &mut input, &mut requests);
        self.asks(client, &mut requests);
        self.exchange(client);
    }

    fn asks(&mut self, client: &Client, requests: &mut Vec<Request>) {
        let input = Input::Requests { connection: client.id, requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.settle_down();
    }
}
