//! Links come and go: what a terminus asks for, and the answers.

use std::sync::Arc;

use towline_amqp::codec::{Map, Symbols, Value};
use towline_amqp::types::{
    DistributionMode, Error, LinkTarget, Outcome as AmqpOutcome, ReceiverSettleMode, Role,
    SenderSettleMode, Source, Target, TerminusDurability, condition,
};
use towline_amqp::{AttachReply, LinkId, PeerAttach, coordinator};
use towline_core::selector::Selector;
use towline_core::{ConsumerId, Refusal};
use towline_types::limits;

use super::account::{consumer_bytes, producer_bytes};
use super::admin::NOT_AUTHORIZED;
use super::links::{LinkUse, Opening};
use super::outbound::Settling;
use super::{Front, NO_REQUESTER, dynamic, error, refused, topics};
use crate::request::{ConsumerOpened, LinkToken, ProducerOpened, Request, Terminus};

/// Address of the administration node.
pub(super) const ADMIN_ADDRESS: &str = "$admin";
/// Credit of links that carry few messages.
pub(super) const CONTROL_CREDIT: u32 = 100;
/// Name and descriptor of the selector filter (apache.org filters registry).
const SELECTOR_FILTER: &str = "apache.org:selector-filter:string";
const SELECTOR_FILTER_CODE: u64 = 0x0000_468C_0000_0004;

/// Characters of a refused selector that its refusal repeats.
const SELECTOR_SHOWN_MAX: usize = 200;

/// Capability of a node that only its own connection consumes from (AMQP JMS binding, 5.3).
const TEMPORARY_QUEUE: &str = "temporary-queue";

/// Where a link wants to go.
enum LinkPurpose {
    Terminus(Terminus),
    Anonymous,
    Admin,
}

impl Front {
    pub(super) fn attached(&mut self, attached: PeerAttach, requests: &mut Vec<Request>) {
        let link = attached.link;
        let opened = match (attached.peer_role, attached.target.as_deref()) {
            (Role::Sender, Some(LinkTarget::Coordinator(_))) => self.attach_coordinator(attached),
            (Role::Sender, _) => self.attach_producer(attached, requests),
            (Role::Receiver, _) => self.attach_consumer(attached, requests),
        };
        if let Err(error) = opened {
            self.machine.refuse_attach(link, error);
        }
    }

    fn attach_coordinator(&mut self, attached: PeerAttach) -> Result<(), Error> {
        let bytes = producer_bytes(&attached.name);
        self.check_link(bytes)?;
        let link = attached.link;
        let rejects = attached
            .source
            .as_deref()
            .is_none_or(|source| refused::knows_rejected(&source.outcomes));
        self.links.insert(link, LinkUse::Coordinator { credit: CONTROL_CREDIT, rejects }, bytes);
        let capabilities = ["amqp:local-transactions", "amqp:multi-txns-per-ssn"];
        let offered = towline_amqp::types::Coordinator {
            capabilities: capabilities.into_iter().collect::<Symbols>(),
        };
        let reply = AttachReply {
            source: attached.source,
            target: Some(Box::new(LinkTarget::Coordinator(offered))),
            message_bytes_max: coordinator::COMMAND_BYTES_MAX as u64,
            sender_settle_mode: attached.sender_settle_mode,
            receiver_settle_mode: ReceiverSettleMode::First,
            ..AttachReply::default()
        };
        self.machine.accept_attach(link, reply);
        self.machine.set_credit(link, CONTROL_CREDIT);
        Ok(())
    }

    fn attach_producer(
        &mut self,
        attached: PeerAttach,
        requests: &mut Vec<Request>,
    ) -> Result<(), Error> {
        let target = match attached.target.as_deref() {
            Some(LinkTarget::Target(target)) => target,
            _ => return Err(Error::new(condition::INVALID_FIELD, "an attach needs a target")),
        };
        let address = target.address.as_deref();
        check_topic(&target.capabilities, address)?;
        let bytes = producer_bytes(&attached.name);
        self.check_link(bytes)?;
        dynamic::check(&target.dynamic_node_properties)?;
        let rejects = attached
            .source
            .as_deref()
            .is_none_or(|source| refused::knows_rejected(&source.outcomes));
        let private = target.capabilities.contains(TEMPORARY_QUEUE);
        match self.purpose(&attached, address, target.dynamic, private) {
            LinkPurpose::Terminus(terminus) => {
                let used_for =
                    LinkUse::Opening(Box::new(Opening { attached: attached.clone(), flow: None }));
                let link = self.links.insert(attached.link, used_for, bytes);
                requests.push(Request::OpenProducer { link, terminus });
            }
            LinkPurpose::Anonymous => {
                let credit = self.producer_credit();
                let used_for = LinkUse::AnonymousProducer { credit, rejects };
                self.accept_producer(attached, used_for, None, limits::TRANSFER_BYTES_MAX);
            }
            LinkPurpose::Admin => {
                self.check_administrator()?;
                let used_for =
                    LinkUse::AdminRequests { credit: limits::ADMIN_REQUESTS_WAITING_MAX };
                self.accept_producer(attached, used_for, None, limits::ADMIN_REQUEST_BYTES_MAX);
            }
        }
        Ok(())
    }

    fn attach_consumer(
        &mut self,
        attached: PeerAttach,
        requests: &mut Vec<Request>,
    ) -> Result<(), Error> {
        let Some(source) = attached.source.as_deref() else {
            // So a client asks what subscription it has under a name (AMQP JMS binding).
            let text = "no subscription of that name: topics are not supported yet";
            return Err(Error::new(condition::NOT_FOUND, text));
        };
        let address = source.address.as_deref();
        check_topic(&source.capabilities, address)?;
        dynamic::check(&source.dynamic_node_properties)?;
        if let Some(what) = topics::subscription(&attached, source) {
            return Err(topics::unsupported(what));
        }
        // Before its queue is looked for: one that was kept for it would not be found again.
        let selector = selector_of(&source.filter)?;
        let of_selector = selector.as_ref().map_or(0, |selector| selector.memory_bytes() as u64);
        let bytes = consumer_bytes(&attached.name) + of_selector;
        self.check_link(bytes)?;
        let private = source.capabilities.contains(TEMPORARY_QUEUE);
        match self.purpose(&attached, address, source.dynamic, private) {
            LinkPurpose::Terminus(terminus) => {
                let browse = source.distribution_mode == Some(DistributionMode::Copy);
                let exclusive = source.capabilities.contains("exclusive").then_some(true);
                let used_for =
                    LinkUse::Opening(Box::new(Opening { attached: attached.clone(), flow: None }));
                let link = self.links.insert(attached.link, used_for, bytes);
                requests.push(Request::OpenConsumer {
                    link,
                    terminus,
                    browse,
                    selector,
                    exclusive,
                });
                Ok(())
            }
            LinkPurpose::Admin => {
                self.check_administrator()?;
                self.links.insert(attached.link, LinkUse::AdminReplies { credit: 0 }, bytes);
                self.accept_consumer(&attached, ADMIN_ADDRESS, SenderSettleMode::Settled);
                Ok(())
            }
            LinkPurpose::Anonymous => {
                Err(Error::new(condition::INVALID_FIELD, "a source needs an address"))
            }
        }
    }

    fn check_administrator(&self) -> Result<(), Error> {
        if self.may_administer() {
            return Ok(());
        }
        Err(Error::new(condition::UNAUTHORIZED_ACCESS, NOT_AUTHORIZED))
    }

    fn purpose(
        &mut self,
        attached: &PeerAttach,
        address: Option<&str>,
        dynamic: bool,
        private: bool,
    ) -> LinkPurpose {
        match address {
            _ if dynamic => LinkPurpose::Terminus(match self.nodes.comes_back(attached) {
                Some(queue) => Terminus::Kept(queue),
                None => Terminus::Dynamic { model: self.default_model.to_string(), private },
            }),
            None | Some("") => LinkPurpose::Anonymous,
            Some(ADMIN_ADDRESS) => LinkPurpose::Admin,
            Some(address) => {
                let name = address.strip_prefix("queue://").unwrap_or(address);
                LinkPurpose::Terminus(Terminus::Queue(name.to_owned()))
            }
        }
    }

    pub(super) fn producer_opened(
        &mut self,
        token: LinkToken,
        result: Result<ProducerOpened, Refusal>,
        requests: &mut Vec<Request>,
    ) {
        let Some(Opening { attached, .. }) = self.take_opening(token) else {
            if let Ok(ProducerOpened { producer, .. }) = result {
                requests.push(Request::CloseProducer { producer, keep_queue: false });
            }
            return;
        };
        match result {
            Ok(ProducerOpened {
                producer,
                address,
                message_bytes_max,
                limit_of,
                goes_with_link,
            }) => {
                let rejects = attached
                    .source
                    .as_deref()
                    .is_none_or(|source| refused::knows_rejected(&source.outcomes));
                self.nodes.attached(&attached, &address, goes_with_link);
                let credit = self.producer_credit();
                let used_for = LinkUse::Producer { producer, credit, rejects, limit_of };
                let message_bytes_max = message_bytes_max + limits::ENVELOPE_BYTES_MAX;
                self.accept_producer(attached, used_for, Some(&address), message_bytes_max);
            }
            Err(refusal) => self.refuse(attached.link, &refusal),
        }
    }

    pub(super) fn consumer_opened(
        &mut self,
        token: LinkToken,
        result: Result<ConsumerOpened, Refusal>,
        requests: &mut Vec<Request>,
    ) {
        let Some(Opening { attached, flow }) = self.take_opening(token) else {
            if let Ok(ConsumerOpened { consumer, .. }) = result {
                let lost = false;
                let keep_queue = false;
                requests.push(Request::CloseConsumer { consumer, lost, keep_queue });
            }
            return;
        };
        match result {
            Ok(ConsumerOpened { consumer, address, goes_with_link }) => {
                let browse = attached
                    .source
                    .as_deref()
                    .is_some_and(|source| source.distribution_mode == Some(DistributionMode::Copy));
                let asked = attached.sender_settle_mode;
                // A browser settles nothing, whatever it asked for.
                let (settling, mode) = match asked {
                    _ if browse => (Settling::Browsed, SenderSettleMode::Settled),
                    SenderSettleMode::Settled => (Settling::InAdvance, asked),
                    SenderSettleMode::Unsettled | SenderSettleMode::Mixed => {
                        (Settling::ByPeer, asked)
                    }
                };
                self.links.set_consumer(token, consumer, settling);
                self.nodes.attached(&attached, &address, goes_with_link);
                self.accept_consumer(&attached, &address, mode);
                if let Some(flow) = flow {
                    self.flow(flow, requests);
                }
            }
            Err(refusal) => self.refuse(attached.link, &refusal),
        }
    }

    /// The attach that the instance was asked about; `None` when the peer gave it up meanwhile.
    fn take_opening(&mut self, token: LinkToken) -> Option<Opening> {
        let link = self.links.by_token(token)?;
        match std::mem::replace(&mut link.used_for, LinkUse::Abandoned) {
            LinkUse::Opening(opening) => Some(*opening),
            LinkUse::Abandoned => {
                self.links.forget(token);
                None
            }
            other => {
                link.used_for = other;
                None
            }
        }
    }

    fn refuse(&mut self, link: LinkId, refusal: &Refusal) {
        if let Some(token) = self.links.token(link) {
            self.links.forget(token);
        }
        self.machine.refuse_attach(link, error::of_refusal(refusal));
    }

    fn accept_producer(
        &mut self,
        attached: PeerAttach,
        used_for: LinkUse,
        address: Option<&str>,
        message_bytes_max: u64,
    ) {
        let link = attached.link;
        let credit = used_for.credit();
        match self.links.get_mut(link) {
            Some(known) => known.used_for = used_for,
            None => {
                self.links.insert(link, used_for, producer_bytes(&attached.name));
            }
        }
        let mut target = match attached.target.map(|target| *target) {
            Some(LinkTarget::Target(target)) => target,
            _ => Target::default(),
        };
        if let Some(address) = address.filter(|_| target.dynamic || target.address.is_none()) {
            target.address = Some(Arc::from(address));
        }
        target.dynamic_node_properties = self.nodes.promised(link);
        target.durable = TerminusDurability::None;
        target.expiry_policy = dynamic::promised_expiry(target.dynamic, target.expiry_policy);
        target.timeout_s = 0;
        let reply = AttachReply {
            source: attached.source,
            target: Some(Box::new(LinkTarget::Target(target))),
            message_bytes_max,
            sender_settle_mode: attached.sender_settle_mode,
            receiver_settle_mode: ReceiverSettleMode::First,
            ..AttachReply::default()
        };
        self.machine.accept_attach(link, reply);
        self.machine.set_credit(link, credit);
    }

    fn accept_consumer(&mut self, attached: &PeerAttach, address: &str, mode: SenderSettleMode) {
        let wanted = attached.source.as_deref().cloned().unwrap_or_default();
        let source = Source {
            // The address as the peer wrote it: some clients compare. A dynamic node has ours.
            address: Some(
                wanted.address.clone().filter(|_| !wanted.dynamic).unwrap_or(Arc::from(address)),
            ),
            dynamic_node_properties: self.nodes.promised(attached.link),
            durable: TerminusDurability::None,
            expiry_policy: dynamic::promised_expiry(wanted.dynamic, wanted.expiry_policy),
            timeout_s: 0,
            filter: supported_filters(&wanted.filter),
            default_outcome: Some(AmqpOutcome::Released),
            outcomes: OUTCOMES.into_iter().collect(),
            ..wanted
        };
        let reply = AttachReply {
            source: Some(Box::new(source)),
            target: attached.target.clone(),
            sender_settle_mode: mode,
            receiver_settle_mode: attached.receiver_settle_mode,
            ..AttachReply::default()
        };
        self.machine.accept_attach(attached.link, reply);
    }

    /// The link is gone for good.
    pub(super) fn detached(&mut self, link: LinkId, requests: &mut Vec<Request>) {
        self.link_gone(link, true, requests);
    }

    /// The link is gone, whichever side ended it; unless `closed` it may come back.
    pub(super) fn link_gone(&mut self, link: LinkId, closed: bool, requests: &mut Vec<Request>) {
        let keep_queue = self.nodes.detached(link, closed);
        self.units.link_gone(link);
        match self.links.remove(link) {
            Some(LinkUse::Producer { producer, .. }) => {
                requests.push(Request::CloseProducer { producer, keep_queue });
            }
            Some(LinkUse::Consumer { consumer, .. }) => {
                requests.push(Request::CloseConsumer { consumer, lost: false, keep_queue });
            }
            Some(LinkUse::Coordinator { .. }) => {
                // What was declared on it and is still open is rolled back (AMQP 4.3).
                requests.extend(self.units.of_coordinator(link).map(|unit| Request::Discharge {
                    token: NO_REQUESTER,
                    unit,
                    fail: true,
                }));
            }
            Some(
                LinkUse::Opening(_)
                | LinkUse::Abandoned
                | LinkUse::AnonymousProducer { .. }
                | LinkUse::AdminRequests { .. }
                | LinkUse::AdminReplies { .. },
            )
            | None => {}
        }
    }

    pub(super) fn consumer_closed(
        &mut self,
        consumer: ConsumerId,
        reason: &Refusal,
        requests: &mut Vec<Request>,
    ) {
        let lost = false;
        let keep_queue = false;
        requests.push(Request::CloseConsumer { consumer, lost, keep_queue });
        if let Some(token) = self.links.of_consumer(consumer)
            && let Some(link) = self.links.by_token(token).map(|link| link.id)
        {
            self.nodes.detached(link, true);
            self.units.link_gone(link);
            self.links.remove(link);
            self.machine.detach(link, true, Some(error::of_refusal(reason)));
        }
    }
}

const OUTCOMES: [&str; 4] =
    ["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"];

fn check_topic(capabilities: &Symbols, address: Option<&str>) -> Result<(), Error> {
    if topics::is_wanted(capabilities, address) {
        return Err(topics::unsupported(address.unwrap_or("a temporary topic")));
    }
    Ok(())
}

/// The selector among the filters of a source; filters that we do not know are left out of our
/// answer, so that the peer can see it (AMQP 3.5.8).
fn selector_of(filters: &Map) -> Result<Option<Arc<Selector>>, Error> {
    let Some(text) = filters.iter().find_map(|(_, filter)| selector_text(&filter)) else {
        return Ok(None);
    };
    match Selector::parse(text) {
        Ok(selector) => Ok(Some(Arc::new(selector))),
        Err(error) => {
            // Cut: an answer must not be as long as what was asked.
            let shown: String = text.chars().take(SELECTOR_SHOWN_MAX).collect();
            let text = format!("selector '{shown}': {error}");
            Err(Error::new(condition::INVALID_FIELD, &text))
        }
    }
}

fn selector_text<'a>(filter: &Value<'a>) -> Option<&'a str> {
    let Value::Described(described) = filter else { return None };
    let is_selector = match described.descriptor() {
        Value::Symbol(name) => name == SELECTOR_FILTER,
        Value::Ulong(code) => code == SELECTOR_FILTER_CODE,
        _ => false,
    };
    if !is_selector {
        return None;
    }
    match described.value() {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The one that counts, which is the first: others of its kind are not looked at (3.5.8).
fn supported_filters(filters: &Map) -> Map {
    let supported = filters.iter().find(|(_, filter)| selector_text(filter).is_some());
    supported.map_or_else(Map::default, |(name, filter)| Map::default().with_entry(name, filter))
}

#[cfg(test)]
mod tests {
    use towline_amqp::codec::OwnedValue;

    use super::*;

    #[test]
    fn of_many_selectors_the_first_one_counts_and_is_answered_alone() {
        let filter = |text| OwnedValue::described(Value::Symbol(SELECTOR_FILTER), text);
        let other = OwnedValue::described(Value::Symbol("other:filter"), Value::Null);
        let mut asked = Map::default().with("other", other.view());
        for name in ["first", "second", "third"] {
            asked = asked.with(name, filter(Value::String("TRUE")).view());
        }
        let answered = supported_filters(&asked);
        let names: Vec<_> = answered.iter().map(|(name, _)| format!("{name:?}")).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].contains("first"), "{names:?}");
    }
}
