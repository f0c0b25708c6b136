//! Requests, one by one: what the rules decide, and the response to the connection.

use std::sync::Arc;

use towline_amqp::codec::Map;
use towline_core::object::{Definition, QueueKind};
use towline_core::selector::{IndexKey, Selector};
use towline_core::{
    ConnectionId, ConsumerId, ConsumerMode, ConsumerSpec, Decision, Filter, FilterKey, LargePutId,
    NewMessage, Principal, PutTarget, QueueId, QueueManager, Refusal, Settlement, UnitId,
};
use towline_types::{Time, fitting};

use super::client_work::{LongRequest, PutInPieces, RunningCommit};
use super::{ConnectedClient, Consumer, Instance, Outbound, Producer, RoutedResponse};
use crate::admin::Asker;
use crate::journal::Journal;
use crate::request::{
    ConsumerOpened, LinkToken, ProducerId, ProducerOpened, PutTo, Request, Response, Terminus,
};

/// Where the answer to a request goes, and when it is.
struct Caller<'a> {
    now: Time,
    connection: ConnectionId,
    journal: &'a dyn Journal,
}

/// What a consumer asks for.
struct Wanted {
    terminus: Terminus,
    browse: bool,
    selector: Option<Arc<Selector>>,
    exclusive: Option<bool>,
}

impl Instance {
    pub(super) fn request(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: Request,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        debug_assert_eq!(self.decision.principal, *self.rules.principal(connection));
        let caller = &Caller { now, connection, journal };
        match request {
            Request::Put { token, target, message, unit, reply_wanted } => {
                let reply = reply_wanted.then_some(token);
                self.put(caller, &target, message, unit, reply, out);
            }
            Request::Settle {
                consumer,
                sequence,
                outcome,
                unit,
                annotations,
                settled,
                link,
                reply_wanted,
            } => {
                let settlement =
                    Settlement { consumer, sequence, outcome, unit, settled, reply_wanted };
                self.settle(caller, settlement, annotations, link, out);
            }
            Request::Credit { consumer, limit, drain, flow } => {
                self.credit(caller, consumer, limit, drain, flow, out);
            }
            Request::Declare { token } => {
                let result = self.declare(caller);
                self.answer(caller, Response::Declared { token, result }, out);
            }
            Request::Discharge { token, unit, fail } => {
                self.discharge(caller, token, unit, fail, out);
            }
            Request::OpenProducer { link, terminus } => {
                let result = self.open_producer(caller, &terminus, out);
                let response = Response::ProducerOpened { link, result };
                self.answer_defined(connection, response, journal, out);
            }
            Request::CloseProducer { producer, keep_queue } => {
                self.close_producer(caller, producer, keep_queue, out);
            }
            Request::OpenConsumer { link, terminus, browse, selector, exclusive } => {
                let wanted = Wanted { terminus, browse, selector, exclusive };
                let result = self.open_consumer(caller, wanted, out);
                let response = Response::ConsumerOpened { link, result };
                self.answer_defined(connection, response, journal, out);
            }
            Request::CloseConsumer { consumer, lost, keep_queue } => {
                self.close_consumer(caller, consumer, lost, keep_queue, out);
            }
            Request::DropKept { queue } => {
                if let Ok(queue) = self.kept(&queue) {
                    self.delete_dynamic(caller, queue, out);
                }
            }
            Request::Admin { token, kind, text, owner } => {
                let asker = Asker { connection, token, owner };
                self.administer(now, asker, &kind, &text, journal, out);
            }
            Request::Connected { container, user, address, sole } => {
                let connected = ConnectedClient { container, user, address, has_left: false };
                let entered = self.enter(caller, connected, sole);
                self.answer(caller, Response::Connected { entered }, out);
            }
            Request::Disconnect { lost } => self.disconnect(caller, lost, out),
        }
    }

    /// Informs the rules of what the log takes. What waits for log space goes first: until then
    /// nothing that adds is decided. What waits for a log that is behind has its space already.
    pub(super) fn look_at_free_space(&mut self, journal: &dyn Journal) {
        let free = match self.log_is_full() {
            true => 0,
            false => journal.room_for_puts().saturating_sub(self.stalled_room),
        };
        self.rules.set_log_room(free);
    }

    /// Whether its container id lets the connection in (see `containers`); then it is known.
    fn enter(&mut self, caller: &Caller<'_>, connected: ConnectedClient, sole: bool) -> bool {
        let entered = self.containers.enter(&connected.container, sole);
        if entered {
            let principal = Principal::of_client(connected.user.as_deref());
            self.decision.principal = principal.clone();
            self.rules.connect(caller.connection, principal);
            let before = self.connections.insert(caller.connection, connected);
            assert!(before.is_none(), "a connection enters once");
        }
        entered
    }

    fn put(
        &mut self,
        caller: &Caller<'_>,
        to: &PutTo,
        message: NewMessage,
        unit: Option<UnitId>,
        reply: Option<u64>,
        out: &mut Outbound,
    ) {
        let begun = match to {
            PutTo::Producer(producer) => match self.producers.get(slot(*producer)) {
                Some(Producer { connection, target, .. }) if *connection == caller.connection => {
                    let (rules, decision) = (&mut self.rules, &mut self.decision);
                    decide_put(rules, caller.now, target, message, unit, decision)
                }
                // An id is given again: what comes too late must not go where another client's
                // messages do.
                Some(_) | None => Err(Refusal::Deleted("the target of this link".into())),
            },
            PutTo::Name(name) => self.put_by_name(caller, name, message, unit, out),
        };
        let result = match begun {
            Ok(Some(id)) => {
                let put = LongRequest::Put(PutInPieces { id, unit, reply });
                return self.client_work.begin(caller.connection, put);
            }
            Ok(None) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        self.doom(caller.connection, unit, result.as_ref().err());
        let refused = result.is_err();
        let response = reply.map(|token| Response::Put { token, unit, result });
        match response {
            Some(response) if refused => self.answer(caller, response, out),
            response => self.carry_out_for(caller, response, out),
        }
    }

    fn put_by_name(
        &mut self,
        caller: &Caller<'_>,
        name: &str,
        message: NewMessage,
        unit: Option<UnitId>,
        out: &mut Outbound,
    ) -> Result<Option<LargePutId>, Refusal> {
        let target = self.open_target(caller, name, out)?;
        let (rules, decision) = (&mut self.rules, &mut self.decision);
        let result = decide_put(rules, caller.now, &target, message, unit, decision);
        self.rules.close_put(&target);
        result
    }

    fn open_target(
        &mut self,
        caller: &Caller<'_>,
        name: &str,
        out: &mut Outbound,
    ) -> Result<PutTarget, Refusal> {
        let target =
            self.rules.open_put(caller.now, caller.connection, name, &mut self.decision)?;
        self.carry_out_for(caller, None, out);
        Ok(target)
    }

    fn settle(
        &mut self,
        caller: &Caller<'_>,
        settlement: Settlement,
        annotations: Option<Box<Map>>,
        link: LinkToken,
        out: &mut Outbound,
    ) {
        let Settlement { consumer, sequence, outcome, unit, reply_wanted, .. } = settlement;
        self.assert_consumer_of(caller.connection, consumer);
        let queue = self.rules.queue_of_delivery(consumer, sequence);
        let annotations = queue.zip(annotations);
        let result = self.rules.settle(caller.now, settlement, &mut self.decision);
        if let (Ok(()), Some((queue, annotations))) = (&result, annotations) {
            let message = (queue, sequence);
            match unit {
                None => self.annotated.add(message, *annotations),
                Some(unit) => {
                    self.annotated.stage((caller.connection, unit), message, *annotations);
                }
            }
        }
        self.doom(caller.connection, unit, result.as_ref().err());
        let is_answered = reply_wanted || result.is_err();
        let response = Response::Settled { link, sequence, unit, outcome, result };
        // What is refused may have given something back.
        self.carry_out_for(caller, is_answered.then_some(response), out);
    }

    /// A unit that lost a message must not commit as though it were whole.
    pub(super) fn doom(
        &mut self,
        connection: ConnectionId,
        unit: Option<UnitId>,
        refusal: Option<&Refusal>,
    ) {
        match (unit, refusal) {
            (_, None | Some(Refusal::UnknownUnit | Refusal::UnitTooOld { .. })) | (None, _) => {}
            (Some(unit), Some(_)) if self.rules.has_unit(connection, unit) => {
                self.holdings.doomed.insert(connection, unit);
            }
            // No connection dooms the unit of another.
            (Some(_), Some(_)) => {}
        }
    }

    /// The id of a consumer is given once, so none comes too late, and one of another connection
    /// would settle messages that another client has.
    fn assert_consumer_of(&self, connection: ConnectionId, consumer: ConsumerId) {
        if let Some(known) = self.consumers.get(&consumer) {
            assert_eq!(known.connection, connection, "{consumer:?} is another connection's");
        }
    }

    fn credit(
        &mut self,
        caller: &Caller<'_>,
        consumer: ConsumerId,
        limit: u64,
        drain: bool,
        flow: u64,
        out: &mut Outbound,
    ) {
        self.assert_consumer_of(caller.connection, consumer);
        let Some(known) = self.consumers.get_mut(&consumer) else { return };
        // The answer to an earlier word would be taken for the answer to this one.
        assert!(flow >= known.flow, "words on credit come in their order");
        known.flow = flow;
        let connection = known.connection;
        let beyond = limit < known.dispatched;
        let credit = limit.saturating_sub(known.dispatched);
        self.rules.set_credit(consumer, u32::try_from(credit).unwrap_or(u32::MAX), drain);
        if beyond {
            let response = Response::Withdrawn { consumer, flow };
            out.routed.push(RoutedResponse { connection, response });
        }
    }

    fn declare(&mut self, caller: &Caller<'_>) -> Result<UnitId, Refusal> {
        if self.quiescing {
            return Err(Refusal::Ending);
        }
        self.rules.declare(caller.now, caller.connection)
    }

    fn discharge(
        &mut self,
        caller: &Caller<'_>,
        token: u64,
        unit: UnitId,
        fail: bool,
        out: &mut Outbound,
    ) {
        let now = caller.now;
        let connection = caller.connection;
        let ours = self.rules.has_unit(connection, unit);
        let doomed = ours && self.holdings.doomed.remove(connection, unit);
        if !fail && !doomed && self.rules.commits_in_parts(connection, unit) {
            if self.image_goes_first(now) {
                let again = Request::Discharge { token, unit, fail };
                return self.client_work.postpone(connection, again);
            }
            if let Ok(id) = self.rules.begin_commit(connection, unit) {
                self.annotated.end_unit((connection, unit), true);
                let commit = LongRequest::Commit(RunningCommit { id, unit, token });
                return self.client_work.begin(connection, commit);
            }
            // What refuses it now refuses it below.
        }
        let decided =
            self.rules.discharge(now, connection, unit, fail || doomed, &mut self.decision);
        let result = match decided {
            Ok(()) if doomed && !fail => Err(Refusal::UnitDoomed),
            Ok(()) => Ok(()),
            Err(refusal) if ours && !fail => {
                // A commit that is refused is a rollback: no client ends such a unit a second time.
                let undone = self.rules.discharge(now, connection, unit, true, &mut self.decision);
                if undone.is_err() {
                    self.decision.clear();
                }
                Err(refusal)
            }
            // One that was rolled back before may give something back now.
            Err(refusal) => Err(refusal),
        };
        // Before the facts: a message that goes to the dead-letter queue takes them along.
        self.annotated.end_unit((connection, unit), result.is_ok() && !fail);
        let response = Response::Discharged { token, unit, fail, result };
        self.carry_out_for(caller, Some(response), out);
    }

    fn open_producer(
        &mut self,
        caller: &Caller<'_>,
        terminus: &Terminus,
        out: &mut Outbound,
    ) -> Result<ProducerOpened, Refusal> {
        if self.quiescing {
            return Err(Refusal::Ending);
        }
        let (name, dynamic) = match terminus {
            Terminus::Queue(name) => (name.clone(), false),
            Terminus::Dynamic { model, private } => {
                (self.make_dynamic(caller, model, *private, out)?.0, true)
            }
            Terminus::Kept(name) => {
                self.kept(name)?;
                (name.clone(), true)
            }
        };
        let target = self.open_target(caller, &name, out)?;
        let message_bytes_max = target.message_bytes_max;
        let connection = caller.connection;
        let slot = self.producers.insert(Producer { connection, target, dynamic });
        let producer = ProducerId(slot as u64);
        self.holdings.producers.insert(connection, producer);
        let by_queue = message_bytes_max < self.rules.limits().message_bytes_max;
        let limit_of = by_queue.then(|| Box::from(name.as_str()));
        let goes_with_link = dynamic && self.goes_with_link(&name);
        let address = name;
        Ok(ProducerOpened { producer, address, message_bytes_max, limit_of, goes_with_link })
    }

    fn make_dynamic(
        &mut self,
        caller: &Caller<'_>,
        model: &str,
        private: bool,
        out: &mut Outbound,
    ) -> Result<(String, QueueId), Refusal> {
        let made = self.rules.open_dynamic(
            caller.now,
            caller.connection,
            model,
            private,
            &mut self.decision,
        )?;
        self.carry_out_for(caller, None, out);
        Ok(made)
    }

    /// A dynamic queue that outlived its link, unless it was deleted.
    fn kept(&self, name: &str) -> Result<QueueId, Refusal> {
        match self.rules.definition(name) {
            Some(Definition::Local(queue)) => Ok(queue.id),
            _ => Err(Refusal::UnknownQueue(name.to_owned())),
        }
    }

    fn close_producer(
        &mut self,
        caller: &Caller<'_>,
        producer: ProducerId,
        keep_queue: bool,
        out: &mut Outbound,
    ) {
        let slot = slot(producer);
        let known = self.producers.get(slot);
        if known.is_some_and(|known| known.connection == caller.connection) {
            let closed = self.producers.remove(slot);
            self.holdings.producers.remove(closed.connection, producer);
            self.rules.close_put(&closed.target);
            if closed.dynamic && !keep_queue {
                self.delete_dynamic(caller, closed.target.queue, out);
            }
        }
    }

    /// Its link is gone. A permanent dynamic queue stays, and its link was promised nothing else;
    /// one that was deleted meanwhile is gone already.
    fn delete_dynamic(&mut self, caller: &Caller<'_>, queue: QueueId, out: &mut Outbound) {
        if self.rules.delete_dynamic(caller.connection, queue).is_ok() {
            self.take_outputs(caller.journal, out);
        }
    }

    /// Whether a queue that was made for a link is deleted with it.
    fn goes_with_link(&self, name: &str) -> bool {
        let definition = self.rules.definition(name);
        matches!(definition, Some(Definition::Local(it)) if it.kind == QueueKind::TemporaryDynamic)
    }

    fn open_consumer(
        &mut self,
        caller: &Caller<'_>,
        wanted: Wanted,
        out: &mut Outbound,
    ) -> Result<ConsumerOpened, Refusal> {
        if self.quiescing {
            return Err(Refusal::Ending);
        }
        let (queue, dynamic) = match &wanted.terminus {
            Terminus::Queue(name) => (name.clone(), None),
            Terminus::Dynamic { model, private } => {
                let (name, queue) = self.make_dynamic(caller, model, *private, out)?;
                (name, Some(queue))
            }
            Terminus::Kept(name) => (name.clone(), Some(self.kept(name)?)),
        };
        let spec = ConsumerSpec {
            queue,
            mode: if wanted.browse { ConsumerMode::Browse } else { ConsumerMode::Consume },
            filter: wanted.selector.map(filter_of),
            exclusive: wanted.exclusive,
        };
        let now = caller.now;
        let connection = caller.connection;
        let (consumer, _) = self.rules.open_get(now, connection, &spec, &mut self.decision)?;
        self.carry_out_for(caller, None, out);
        let opened = Consumer { connection, dispatched: 0, flow: 0, dynamic };
        let before = self.consumers.insert(consumer, opened);
        assert!(before.is_none(), "the id of a consumer is given once");
        self.holdings.consumers.insert(connection, consumer);
        let goes_with_link = dynamic.is_some() && self.goes_with_link(&spec.queue);
        Ok(ConsumerOpened { consumer, address: spec.queue, goes_with_link })
    }

    fn close_consumer(
        &mut self,
        caller: &Caller<'_>,
        consumer: ConsumerId,
        lost: bool,
        keep_queue: bool,
        out: &mut Outbound,
    ) {
        self.assert_consumer_of(caller.connection, consumer);
        if let Some(closed) = self.consumers.remove(&consumer) {
            self.holdings.consumers.remove(closed.connection, consumer);
            self.rules.close_get(caller.now, consumer, lost, &mut self.decision);
            self.carry_out_for(caller, None, out);
            if let Some(queue) = closed.dynamic.filter(|_| !keep_queue) {
                self.delete_dynamic(caller, queue, out);
            }
        }
    }

    fn disconnect(&mut self, caller: &Caller<'_>, lost: bool, out: &mut Outbound) {
        let connection = caller.connection;
        for consumer in self.holdings.consumers.take(connection) {
            self.close_consumer(caller, consumer, lost, false, out);
        }
        for producer in self.holdings.producers.take(connection) {
            self.close_producer(caller, producer, false, out);
        }
        self.rules.disconnect(caller.now, connection, lost, &mut self.decision);
        self.carry_out_for(caller, None, out);
        self.holdings.doomed.take(connection);
        self.annotated.end_connection(connection);
        self.leave_container(connection);
        self.region_replies.leave(connection);
        self.connections.remove(&connection);
    }

    /// The client is gone: its container id is free, also while what it asked for before goes on.
    pub(super) fn leave_container(&mut self, connection: ConnectionId) {
        let Some(client) = self.connections.get_mut(&connection) else { return };
        if !std::mem::replace(&mut client.has_left, true) {
            self.containers.leave(&client.container);
        }
    }

    fn carry_out_for(
        &mut self,
        caller: &Caller<'_>,
        response: Option<Response>,
        out: &mut Outbound,
    ) {
        let reply = response.map(|response| (caller.connection, response));
        self.carry_out(caller.now, reply, caller.journal, out);
    }

    fn answer(&mut self, caller: &Caller<'_>, response: Response, out: &mut Outbound) {
        self.decision.clear();
        out.routed.push(RoutedResponse { connection: caller.connection, response });
    }
}

/// Puts a message, or begins to: a large one goes in pieces.
fn decide_put(
    rules: &mut QueueManager,
    now: Time,
    target: &PutTarget,
    message: NewMessage,
    unit: Option<UnitId>,
    decision: &mut Decision,
) -> Result<Option<LargePutId>, Refusal> {
    if rules.is_large_put(now, target, &message) {
        return rules.begin_large(now, target, message, unit).map(Some);
    }
    rules.put(now, target, message, unit, decision).map(|()| None)
}

fn slot(producer: ProducerId) -> usize {
    fitting(producer.0)
}

fn filter_of(selector: Arc<Selector>) -> Arc<Filter> {
    let key = selector.index_key().map(|key| match key {
        IndexKey::CorrelationId(text) => {
            FilterKey::Correlation(towline_amqp::sections::id_hash(text))
        }
        IndexKey::MessageId(text) => FilterKey::MessageId(towline_amqp::sections::id_hash(text)),
    });
    Arc::new(Filter { key, condition: selector })
}
