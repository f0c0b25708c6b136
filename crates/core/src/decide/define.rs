//! DEFINE, ALTER, DELETE and CLEAR. What they say counts for requests at once, and survives when
//! its fact is durable.

use towline_types::{Time, limits};

use crate::catalogue::{check_name, wrong_type};
use crate::command::{
    AliasChanges, DefineAlias, DefineLocal, DefineModel, LocalChanges, QueueManagerChanges,
};
use crate::fact::{Durability, Fact};
use crate::object::{
    AliasQueue, Definition, LocalAttributes, LocalQueue, ModelQueue, ObjectType, QueueKind,
    QueueManagerAttributes, Stamps,
};
use crate::queue::{EntryState, Spot};
use crate::request::Decision;
use crate::{MessageSequence, QueueId, QueueManager, Refusal};

/// The object from which a DEFINE QLOCAL takes its attributes, when it exists (as in IBM MQ).
const DEFAULT_LOCAL: &str = "SYSTEM.DEFAULT.LOCAL.QUEUE";
/// The same for DEFINE QALIAS.
const DEFAULT_ALIAS: &str = "SYSTEM.DEFAULT.ALIAS.QUEUE";
/// The same for DEFINE QMODEL.
const DEFAULT_MODEL: &str = "SYSTEM.DEFAULT.MODEL.QUEUE";
/// Longest DESCR in characters, as in IBM MQ.
const DESCRIPTION_CHARACTERS_MAX: usize = 64;
/// Largest BOTHRESH and MAXUMSGS, as in IBM MQ.
const COUNT_MAX: u32 = 999_999_999;

/// Names that are relied on and are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DanglingNames {
    /// The dead-letter queue, if one is named.
    pub dead_letter_queue: Option<String>,
    /// Rules of automatic definition: the pattern, and the model that is not there.
    pub models: Vec<(String, String)>,
}

impl QueueManager {
    /// DEFINE QLOCAL. With REPLACE an existing queue keeps its messages.
    ///
    /// # Errors
    /// A bad name or attribute, an object of this name, an unknown LIKE.
    pub fn define_local(
        &mut self,
        now: Time,
        command: &DefineLocal,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        self.check_define(&command.name, command.replace, ObjectType::Local)?;
        let mut attributes = match &command.like {
            Some(like) => self.catalogue.local(like)?.attributes.clone(),
            None => match self.catalogue.local(DEFAULT_LOCAL) {
                Ok(queue) => queue.attributes.clone(),
                Err(_) => LocalAttributes::default(),
            },
        };
        command.changes.apply_to(&mut attributes);
        check_local(&attributes)?;
        let name = command.name.clone();
        let definition = match self.catalogue.local(&name) {
            Ok(old) => LocalQueue {
                name,
                id: old.id,
                kind: old.kind,
                attributes,
                stamps: Stamps { created_at: old.stamps.created_at, altered_at: now },
            },
            Err(_) => LocalQueue {
                name,
                id: self.next_queue_id(),
                kind: QueueKind::Predefined,
                attributes,
                stamps: Stamps { created_at: now, altered_at: now },
            },
        };
        self.change_local(definition, out);
        Ok(())
    }

    /// DEFINE QALIAS. The target may be defined later.
    ///
    /// # Errors
    /// As for `define_local`.
    pub fn define_alias(
        &mut self,
        now: Time,
        command: &DefineAlias,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        self.check_define(&command.name, command.replace, ObjectType::Alias)?;
        let mut alias = match &command.like {
            Some(like) => self.catalogue.alias(like)?.clone(),
            None => match self.catalogue.alias(DEFAULT_ALIAS) {
                Ok(alias) => alias.clone(),
                Err(_) => new_alias(),
            },
        };
        alias.name.clone_from(&command.name);
        let created_at =
            self.catalogue.alias(&command.name).map_or(now, |old| old.stamps.created_at);
        alias.stamps = Stamps { created_at, altered_at: now };
        command.changes.apply_to(&mut alias);
        check_alias(&alias)?;
        self.decide_definition(Definition::Alias(alias), out);
        Ok(())
    }

    /// DEFINE QMODEL.
    ///
    /// # Errors
    /// As for `define_local`; DEFTYPE must be TEMPDYN or PERMDYN.
    pub fn define_model(
        &mut self,
        now: Time,
        command: &DefineModel,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let define = &command.define;
        self.check_define(&define.name, define.replace, ObjectType::Model)?;
        let mut model = match &define.like {
            Some(like) => self.catalogue.model(like)?.clone(),
            None => match self.catalogue.model(DEFAULT_MODEL) {
                Ok(model) => model.clone(),
                Err(_) => new_model(),
            },
        };
        model.name.clone_from(&define.name);
        let created_at =
            self.catalogue.model(&define.name).map_or(now, |old| old.stamps.created_at);
        model.stamps = Stamps { created_at, altered_at: now };
        define.changes.apply_to(&mut model.attributes);
        self.change_model(model, command.kind, out)
    }

    /// ALTER QLOCAL. Later arrivals, opens and puts see it; GET(DISABLED) sends consumers away.
    ///
    /// # Errors
    /// Unknown, of another type, or a bad attribute.
    pub fn alter_local(
        &mut self,
        now: Time,
        name: &str,
        changes: &LocalChanges,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let mut definition = self.catalogue.local(name)?.clone();
        changes.apply_to(&mut definition.attributes);
        check_local(&definition.attributes)?;
        definition.stamps.altered_at = now;
        self.change_local(definition, out);
        Ok(())
    }

    /// ALTER QALIAS.
    ///
    /// # Errors
    /// As for `alter_local`.
    pub fn alter_alias(
        &mut self,
        now: Time,
        name: &str,
        changes: &AliasChanges,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let mut alias = self.catalogue.alias(name)?.clone();
        changes.apply_to(&mut alias);
        check_alias(&alias)?;
        alias.stamps.altered_at = now;
        self.decide_definition(Definition::Alias(alias), out);
        Ok(())
    }

    /// ALTER QMODEL.
    ///
    /// # Errors
    /// As for `alter_local`.
    pub fn alter_model(
        &mut self,
        now: Time,
        name: &str,
        changes: &LocalChanges,
        kind: Option<QueueKind>,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let mut model = self.catalogue.model(name)?.clone();
        changes.apply_to(&mut model.attributes);
        model.stamps.altered_at = now;
        self.change_model(model, kind, out)
    }

    /// ALTER QMGR. From now on this counts, not the configuration.
    ///
    /// # Errors
    /// A bad attribute.
    pub fn alter_queue_manager(
        &mut self,
        changes: &QueueManagerChanges,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let mut attributes = self.queue_manager_attributes();
        let set_text = |field: &mut String, said: &Option<String>| {
            if let Some(text) = said {
                field.clone_from(text);
            }
        };
        set_text(&mut attributes.description, &changes.description);
        set_text(&mut attributes.dead_letter_queue, &changes.dead_letter_queue);
        attributes.message_bytes_max =
            changes.message_bytes_max.unwrap_or(attributes.message_bytes_max);
        attributes.unit_messages_max =
            changes.unit_messages_max.unwrap_or(attributes.unit_messages_max);
        check_description(&attributes.description)?;
        check_optional_name("DEADQ", &attributes.dead_letter_queue)?;
        check_range("MAXMSGL", attributes.message_bytes_max, 0, limits::MESSAGE_BYTES_MAX)?;
        let messages_max = u64::from(attributes.unit_messages_max);
        check_range("MAXUMSGS", messages_max, 1, u64::from(COUNT_MAX))?;
        self.decide_definition(Definition::QueueManager(attributes), out);
        Ok(())
    }

    /// What DISPLAY QMGR shows: as altered, else as configured.
    #[must_use]
    pub fn queue_manager_attributes(&self) -> QueueManagerAttributes {
        match self.catalogue.get("") {
            Some(Definition::QueueManager(attributes)) => attributes.clone(),
            Some(_) | None => QueueManagerAttributes {
                description: String::new(),
                dead_letter_queue: self.limits.dead_letter_queue.clone(),
                message_bytes_max: self.limits.message_bytes_max,
                unit_messages_max: self.limits.unit_messages_max,
            },
        }
    }

    /// Names that are relied on and are not there.
    #[must_use]
    pub fn dangling(&self) -> DanglingNames {
        let dead_letters = self.queue_manager_attributes().dead_letter_queue;
        let lacks = !dead_letters.is_empty() && self.catalogue.resolve(&dead_letters).is_err();
        let rules = self.limits.auto_define.iter();
        let models = rules
            .filter(|rule| !rule.model.is_empty() && self.catalogue.model(&rule.model).is_err())
            .map(|rule| (rule.pattern.clone(), rule.model.clone()));
        let dead_letter_queue = lacks.then_some(dead_letters);
        DanglingNames { dead_letter_queue, models: models.collect() }
    }

    /// DELETE of an object of the type named. A queue goes with its messages only with `purge`.
    ///
    /// # Errors
    /// Unknown, of another type; for a queue: open, with uncommitted messages, or not empty.
    pub fn delete(
        &mut self,
        _now: Time,
        name: &str,
        expected: ObjectType,
        purge: bool,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let id = match (expected, self.catalogue.get(name)) {
            (_, None) => return Err(self.catalogue.unknown(name, expected)),
            (ObjectType::Local, Some(Definition::Local(queue))) => queue.id,
            (ObjectType::Alias, Some(Definition::Alias(_)))
            | (ObjectType::Model, Some(Definition::Model(_))) => {
                self.catalogue.decide(name, None);
                let fact = Fact::Undefined { name: name.to_owned() };
                out.push_logged(fact, Durability::Forced);
                return Ok(());
            }
            (_, Some(_)) => return Err(wrong_type(name, expected)),
        };
        self.check_unused(id, name)?;
        let queue = self.queue_mut(id);
        // No consumer holds a message: what is not available is leaving.
        let depth = if queue.clearing > 0 { 0 } else { queue.available };
        if depth > 0 && !purge {
            return Err(Refusal::NotEmpty { queue: name.to_owned(), depth });
        }
        if queue.definition.kind == QueueKind::TemporaryDynamic {
            let owner = queue.owner;
            if let Some(connection) = owner.and_then(|owner| self.connections.get_mut(&owner)) {
                connection.temporary.remove(&id);
            }
            self.delete_temporary(id);
            return Ok(());
        }
        queue.deleting = true;
        self.catalogue.decide(name, None);
        out.push_logged(Fact::Deleted { queue: id }, Durability::Forced);
        Ok(())
    }

    /// CLEAR QLOCAL.
    ///
    /// # Errors
    /// Unknown, of another type, open, or with uncommitted messages.
    pub fn clear(&mut self, _now: Time, name: &str, out: &mut Decision) -> Result<(), Refusal> {
        self.begin(out)?;
        let id = self.catalogue.local(name)?.id;
        self.check_unused(id, name)?;
        let upto = MessageSequence(self.next.sequence);
        let queue = self.queue_mut(id);
        if queue.definition.kind == QueueKind::TemporaryDynamic {
            let available: Vec<Spot> = queue
                .iter()
                .filter(|(_, entry)| entry.state == EntryState::Available)
                .map(|(lane, entry)| Spot { lane, sequence: entry.sequence })
                .collect();
            queue.totals.cleared += available.len() as u64;
            for spot in available {
                self.drop_message(id, spot);
            }
            return Ok(());
        }
        // All that is in it goes when this is applied; until then no consumer gets anything from
        // it.
        queue.clearing += 1;
        out.push_logged(Fact::Cleared { queue: id, upto }, Durability::Forced);
        Ok(())
    }

    /// No connection has the queue open, and nothing of it is uncommitted or on its way in.
    fn check_unused(&self, id: QueueId, name: &str) -> Result<(), Refusal> {
        let Some(queue) = self.queues.get(&id) else { return Ok(()) };
        if queue.open_input > 0 || queue.open_browse > 0 || queue.open_output > 0 {
            return Err(Refusal::ObjectOpen(name.to_owned()));
        }
        let unfinished = queue.reserved + queue.uncommitted_gets + queue.completing;
        if unfinished > 0 || queue.returning > 0 {
            return Err(Refusal::Uncommitted(name.to_owned()));
        }
        Ok(())
    }

    fn check_define(&self, name: &str, replace: bool, wanted: ObjectType) -> Result<(), Refusal> {
        self.check_accepting()?;
        check_name(name)?;
        match self.catalogue.get(name) {
            None => Ok(()),
            Some(_) if !replace => Err(Refusal::AlreadyExists(name.to_owned())),
            Some(old) if old.object_type() == Some(wanted) => Ok(()),
            Some(_) => Err(wrong_type(name, wanted)),
        }
    }

    fn change_local(&mut self, definition: LocalQueue, out: &mut Decision) {
        let id = definition.id;
        let name = definition.name.clone();
        let inhibited = !definition.attributes.get_enabled;
        let temporary = definition.kind == QueueKind::TemporaryDynamic;
        let definition = Definition::Local(definition);
        if temporary {
            // Never logged, by whatever command: it has an owner, and goes with its connection.
            self.adopt(&definition);
            self.catalogue.apply(&name, Some(definition));
        } else {
            self.decide_definition(definition, out);
        }
        if inhibited {
            self.dismiss_consumers(id, &Refusal::GetInhibited(name));
        }
    }

    fn change_model(
        &mut self,
        mut model: ModelQueue,
        kind: Option<QueueKind>,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        model.kind = kind.unwrap_or(model.kind);
        if model.kind == QueueKind::Predefined {
            let why = "a model makes TEMPDYN or PERMDYN queues".to_owned();
            return Err(Refusal::BadAttribute { attribute: "DEFTYPE", why });
        }
        check_local(&model.attributes)?;
        self.decide_definition(Definition::Model(model), out);
        Ok(())
    }
}

fn new_alias() -> AliasQueue {
    let LocalAttributes { default_persistent, default_priority, .. } = LocalAttributes::default();
    AliasQueue {
        name: String::new(),
        target: String::new(),
        description: String::new(),
        put_enabled: true,
        get_enabled: true,
        default_persistent,
        default_priority,
        stamps: Stamps::default(),
    }
}

fn new_model() -> ModelQueue {
    ModelQueue {
        name: String::new(),
        kind: QueueKind::TemporaryDynamic,
        attributes: LocalAttributes::default(),
        stamps: Stamps::default(),
    }
}

fn check_local(attributes: &LocalAttributes) -> Result<(), Refusal> {
    check_description(&attributes.description)?;
    check_range("MAXDEPTH", attributes.depth_max, 0, limits::QUEUE_DEPTH_MAX)?;
    check_range("MAXMSGL", attributes.message_bytes_max, 0, limits::MESSAGE_BYTES_MAX)?;
    check_range("DEFPRTY", u64::from(attributes.default_priority), 0, 9)?;
    check_range("BOTHRESH", u64::from(attributes.backout_threshold), 0, u64::from(COUNT_MAX))?;
    check_optional_name("BOQNAME", &attributes.backout_queue)
}

fn check_alias(alias: &AliasQueue) -> Result<(), Refusal> {
    check_description(&alias.description)?;
    check_range("DEFPRTY", u64::from(alias.default_priority), 0, 9)?;
    check_optional_name("TARGET", &alias.target)
}

fn check_description(text: &str) -> Result<(), Refusal> {
    let characters = text.chars().count();
    if characters <= DESCRIPTION_CHARACTERS_MAX {
        return Ok(());
    }
    let why = format!("{characters} characters; at most {DESCRIPTION_CHARACTERS_MAX} are allowed");
    Err(Refusal::BadAttribute { attribute: "DESCR", why })
}

fn check_range(attribute: &'static str, value: u64, min: u64, max: u64) -> Result<(), Refusal> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let why = format!("{value} is not between {min} and {max}");
    Err(Refusal::BadAttribute { attribute, why })
}

fn check_optional_name(attribute: &'static str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Ok(());
    }
    check_name(name)
        .map_err(|refusal| Refusal::BadAttribute { attribute, why: refusal.to_string() })
}
