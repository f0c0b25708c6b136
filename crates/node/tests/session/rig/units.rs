//! Units of work and settlements, in ways that a well-behaved client has no use for among them.

use std::time::Duration;

use bytes::BytesMut;
use towline_amqp::codec::Symbols;
use towline_amqp::types::{
    Coordinator, CoordinatorCommand, Declare, DeliveryState, Discharge, LinkTarget, Outcome, Role,
    Source, TxnId,
};
use towline_amqp::{Event, IncomingId, LinkId, Outgoing, coordinator, peer};
use towline_node::Input;
use towline_types::Payload;

use super::{Client, Ends, Rig};

impl Rig {
    pub(crate) fn settle(
        &mut self,
        client: &mut Client,
        delivery: IncomingId,
        state: DeliveryState,
    ) {
        client.machine.update_incoming(delivery, Some(state), true);
        self.exchange(client);
    }

    /// Accepted in a unit of work; `settled`: and forgotten.
    pub(crate) fn accept_in(
        &mut self,
        client: &mut Client,
        delivery: IncomingId,
        unit: &TxnId,
        settled: bool,
    ) {
        let outcome = Some(Outcome::Accepted);
        let state = DeliveryState::Transactional { txn_id: *unit, outcome };
        client.machine.update_incoming(delivery, Some(state), settled);
        self.exchange(client);
    }

    /// As `accept_in`, settled, but by its number, and whatever the client's machine thinks of it.
    pub(crate) fn accept_number_in(&mut self, client: &mut Client, number: u32, unit: &TxnId) {
        let unit = std::str::from_utf8(unit.as_bytes()).unwrap();
        let line =
            format!("disposition role=receiver first={number} settled state=accepted@{unit}");
        self.says_anyway(client, &line);
    }

    /// A frame that the client's machine would not send.
    fn says_anyway(&mut self, client: &mut Client, line: &str) {
        let mut input: BytesMut = peer::text::encode(line);
        let mut requests = Vec::new();
        super::checks::take(&mut client.front, self.now, &mut input, &mut requests);
        let input = Input::Requests { connection: client.id, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.exchange(client);
    }

    /// In one write: a message that is none and asks for no answer, and behind it one in a unit.
    pub(crate) fn send_behind_a_malformed_one(
        &mut self,
        client: &mut Client,
        link: LinkId,
        unit: &TxnId,
    ) {
        let malformed = Payload::from(bytes::Bytes::from_static(b"\x00\x53\x77\xff"));
        let state = Some(DeliveryState::Transactional { txn_id: *unit, outcome: None });
        let message = super::super::text::message("behind").encode();
        for (key, content, state) in [(901, malformed, None), (902, message, state)] {
            let outgoing = Outgoing { content, state, settled: true, ..Outgoing::default() };
            client.machine.send(link, key, outgoing);
        }
        self.exchange(client);
    }

    /// In one write: the commit of a unit, an outcome in it, the end of the link of the delivery,
    /// and another link.
    pub(crate) fn change_link_behind_its_unit(
        &mut self,
        client: &mut Client,
        (receiver, delivery): (LinkId, IncomingId),
        unit: &TxnId,
    ) -> LinkId {
        let coordinator = self.coordinator(client);
        let discharge = Discharge { txn_id: *unit, fail: false };
        let command = CoordinatorCommand::Discharge(discharge);
        let content = Payload::from(coordinator::message(&command));
        client.machine.send(coordinator, 1, Outgoing { content, ..Outgoing::default() });
        let mut input = super::flush(&mut client.machine);
        let outcome = Some(Outcome::Accepted);
        let state = DeliveryState::Transactional { txn_id: *unit, outcome };
        client.machine.update_incoming(delivery, Some(state), true);
        input.unsplit(super::flush(&mut client.machine));
        client.machine.detach(receiver, true, None);
        let link = super::request(client, Role::Sender, Ends::to("Q"));
        input.unsplit(super::flush(&mut client.machine));
        let mut requests = Vec::new();
        super::checks::take(&mut client.front, self.now, &mut input, &mut requests);
        let input = Input::Requests { connection: client.id, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.exchange(client);
        link
    }

    /// What the client does from now on goes over another session.
    pub(crate) fn another_session(&mut self, client: &mut Client) {
        client.session = client.machine.begin().unwrap();
        self.exchange(client);
    }

    /// As `accept_number_in`, but with a range that ends before it begins, which ends the session.
    pub(crate) fn accept_backwards_in(&mut self, client: &mut Client, unit: &TxnId) {
        let unit = std::str::from_utf8(unit.as_bytes()).unwrap();
        let line =
            format!("disposition role=receiver first=9 last=8 settled state=accepted@{unit}");
        self.says_anyway(client, &line);
    }

    /// Detached, and not closed: the client may come back for it.
    pub(crate) fn suspend(&mut self, client: &mut Client, link: LinkId) {
        client.machine.detach(link, false, None);
        self.exchange(client);
    }

    /// The session of the client ends, and with it all links.
    pub(crate) fn end_session(&mut self, client: &mut Client) {
        client.machine.end(client.session, None);
        self.exchange(client);
    }

    /// Why the server detached the link, if it did.
    pub(crate) fn detached(&mut self, client: &mut Client, link: LinkId) -> Option<String> {
        super::refusal(client, link)
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.instance.step(self.now, Input::Tick, &self.log, &mut self.out);
        self.settle_down();
    }

    pub(crate) fn declare(&mut self, client: &mut Client) -> TxnId {
        let command = CoordinatorCommand::Declare(Declare);
        match self.command(client, &command) {
            Some(DeliveryState::Declared { txn_id }) => txn_id,
            other => panic!("not declared: {other:?}"),
        }
    }

    pub(crate) fn discharge(
        &mut self,
        client: &mut Client,
        unit: &TxnId,
        fail: bool,
    ) -> Option<DeliveryState> {
        let command = CoordinatorCommand::Discharge(Discharge { txn_id: *unit, fail });
        self.command(client, &command)
    }

    /// As `discharge`, on a link with a source that knows these outcomes only.
    pub(crate) fn discharge_knowing(
        &mut self,
        client: &mut Client,
        unit: &TxnId,
        outcomes: &[&str],
    ) -> (LinkId, Option<DeliveryState>) {
        let command = CoordinatorCommand::Discharge(Discharge { txn_id: *unit, fail: false });
        let outcomes = outcomes.iter().copied().collect::<Symbols>();
        self.command_on(client, &command, Source { outcomes, ..Source::default() })
    }

    fn command(
        &mut self,
        client: &mut Client,
        command: &CoordinatorCommand,
    ) -> Option<DeliveryState> {
        self.command_on(client, command, Source::default()).1
    }

    fn command_on(
        &mut self,
        client: &mut Client,
        command: &CoordinatorCommand,
        source: Source,
    ) -> (LinkId, Option<DeliveryState>) {
        const KEY: u64 = 999;
        let target = LinkTarget::Coordinator(Coordinator::default());
        let link = self.attach(client, Role::Sender, Ends { source, target });
        let content = Payload::from(coordinator::message(command));
        client.machine.send(link, KEY, Outgoing { content, ..Outgoing::default() });
        self.exchange(client);
        let mut state = None;
        client.events.retain(|event| match event {
            Event::Outcome { key: KEY, state: answer, .. } => {
                state.clone_from(answer);
                false
            }
            _ => true,
        });
        (link, state)
    }
}
