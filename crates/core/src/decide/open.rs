//! Opening for put: names, aliases, automatic definition, dynamic queues.

use towline_types::Time;

use crate::catalogue::{check_name, covers};
use crate::fact::{Durability, Fact};
use crate::object::{Definition, LocalAttributes, LocalQueue, QueueKind, Stamps};
use crate::request::{Decision, PutTarget};
use crate::{ConnectionId, QueueId, QueueManager, Refusal};

/// Where a name led.
#[derive(Debug)]
pub(crate) struct OpenQueue {
    pub(crate) queue: QueueId,
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
}

/// What a name is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Put,
    Get,
}

/// Longest part of a model's name in the name of a dynamic queue; leaves space for the part that
/// makes it unique.
const DYNAMIC_PREFIX_BYTES_MAX: usize = 200;

impl QueueManager {
    /// Opens a queue or alias for put. Counts in OPPROCS until `close_put` or `disconnect`.
    ///
    /// # Errors
    /// A bad or unknown name, an alias that leads nowhere, PUT(DISABLED) on the way.
    pub fn open_put(
        &mut self,
        now: Time,
        connection: ConnectionId,
        name: &str,
        out: &mut Decision,
    ) -> Result<PutTarget, Refusal> {
        self.begin(out)?;
        if let Ok(resolved) = self.catalogue.resolve(name) {
            if let Some(alias) = resolved.alias.filter(|alias| !alias.put_enabled) {
                return Err(Refusal::PutInhibited(alias.name.clone()));
            }
            if !resolved.queue.attributes.put_enabled {
                return Err(Refusal::PutInhibited(resolved.queue.name.clone()));
            }
        }
        let OpenQueue { queue: id, name, alias } =
            self.resolve_or_define(now, name, Access::Put, out)?;
        let message_bytes_max = self.limits.message_bytes_max;
        let queue = self.queue_mut(id);
        queue.open_output += 1;
        let message_bytes_max =
            message_bytes_max.min(queue.definition.attributes.message_bytes_max);
        let opened = self.connections.entry(connection).or_default();
        *opened.outputs.entry(id).or_default() += 1;
        Ok(PutTarget { connection, queue: id, name, message_bytes_max, alias })
    }

    /// Ends what `open_put` began. Closing what is closed already does nothing.
    pub fn close_put(&mut self, target: &PutTarget) {
        let Some(connection) = self.connections.get_mut(&target.connection) else { return };
        let Some(count) = connection.outputs.get_mut(&target.queue) else { return };
        *count -= 1;
        if *count == 0 {
            connection.outputs.remove(&target.queue);
        }
        if let Some(queue) = self.queues.get_mut(&target.queue) {
            queue.open_output -= 1;
        }
    }

    /// Makes a queue of the model's kind with a name of its own: the model's name and a suffix that
    /// was never used before. TEMPDYN goes with the connection and is known at once, and when it is
    /// `private` no other connection consumes from it; PERMDYN is logged.
    ///
    /// # Errors
    /// The model is unknown or is not a model.
    pub fn open_dynamic(
        &mut self,
        now: Time,
        connection: ConnectionId,
        model: &str,
        private: bool,
        out: &mut Decision,
    ) -> Result<(String, QueueId), Refusal> {
        self.begin(out)?;
        check_name(model)?;
        let model = self.catalogue.model(model)?.clone();
        if model.kind != QueueKind::TemporaryDynamic {
            self.check_accepting()?;
        }
        let id = self.next_queue_id();
        let mut end = model.name.len().min(DYNAMIC_PREFIX_BYTES_MAX);
        while !model.name.is_char_boundary(end) {
            end -= 1;
        }
        let prefix = model.name.get(..end).unwrap_or_default();
        // Time does not go back and ids do not repeat within a process: unique over restarts too.
        let mut name = format!("{prefix}.{:X}.{:X}", now.0, id.0);
        // But the other region has another clock, and gives ids again that it has never seen.
        if let Some(history) = self.region.newest() {
            name += &format!(".{:X}", history.id.short());
        }
        let stamps = Stamps { created_at: now, altered_at: now };
        let queue = LocalQueue {
            name: name.clone(),
            id,
            kind: model.kind,
            attributes: model.attributes,
            stamps,
        };
        let definition = Definition::Local(queue);
        if model.kind == QueueKind::TemporaryDynamic {
            self.adopt(&definition);
            let queue = self.queue_mut(id);
            (queue.owner, queue.private) = (Some(connection), private);
            self.catalogue.apply(&name, Some(definition));
            self.connections.entry(connection).or_default().temporary.insert(id);
        } else {
            self.decide_definition(definition, out);
        }
        Ok((name, id))
    }

    /// Follows a name, and defines the queue when a rule of automatic definition covers it.
    pub(crate) fn resolve_or_define(
        &mut self,
        now: Time,
        name: &str,
        access: Access,
        out: &mut Decision,
    ) -> Result<OpenQueue, Refusal> {
        check_name(name)?;
        match self.catalogue.resolve(name) {
            Ok(resolved) => Ok(OpenQueue {
                queue: resolved.queue.id,
                name: resolved.queue.name.clone(),
                alias: resolved.alias.map(|alias| alias.name.clone()),
            }),
            Err(unknown @ (Refusal::UnknownQueue(_) | Refusal::UnknownQueueButCase { .. })) => {
                self.auto_define(now, name, access, out).unwrap_or(Err(unknown))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// `None`: no rule covers the name.
    fn auto_define(
        &mut self,
        now: Time,
        name: &str,
        access: Access,
        out: &mut Decision,
    ) -> Option<Result<OpenQueue, Refusal>> {
        let rule = self.limits.auto_define.iter().find(|rule| covers(&rule.pattern, name))?;
        let attributes = match (rule.model.as_str(), self.catalogue.model(&rule.model)) {
            ("", _) => LocalAttributes::default(),
            (_, Ok(model)) => model.attributes.clone(),
            (model, Err(Refusal::UnknownObject { .. })) => {
                let queue = name.to_owned();
                let model = model.to_owned();
                return Some(Err(Refusal::UnknownModel { queue, model }));
            }
            (_, Err(refusal)) => return Some(Err(refusal)),
        };
        Some(self.define_first_used(now, name.to_owned(), access, attributes, out))
    }

    fn define_first_used(
        &mut self,
        now: Time,
        name: String,
        access: Access,
        attributes: LocalAttributes,
        out: &mut Decision,
    ) -> Result<OpenQueue, Refusal> {
        self.check_accepting()?;
        match access {
            Access::Put if !attributes.put_enabled => return Err(Refusal::PutInhibited(name)),
            Access::Get if !attributes.get_enabled => return Err(Refusal::GetInhibited(name)),
            Access::Put | Access::Get => {}
        }
        let id = self.next_queue_id();
        let stamps = Stamps { created_at: now, altered_at: now };
        let kind = QueueKind::Predefined;
        let queue = LocalQueue { name: name.clone(), id, kind, attributes, stamps };
        self.decide_definition(Definition::Local(queue), out);
        Ok(OpenQueue { queue: id, name, alias: None })
    }

    /// A definition is decided: it counts for requests from now on, and goes to the log.
    pub(crate) fn decide_definition(&mut self, definition: Definition, out: &mut Decision) {
        self.adopt(&definition);
        self.catalogue.decide(definition.name(), Some(definition.clone()));
        let definition = Box::new(definition);
        out.push_logged(Fact::Defined { definition }, Durability::Forced);
    }
}
