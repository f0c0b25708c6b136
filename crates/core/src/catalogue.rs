//! Names and what they stand for.
//!
//! A definition counts for requests when it is *decided*, and for images when it is *applied*. In
//! between it is `ahead`: an image never holds what the log might not. Alias chains have one link
//! (as in IBM MQ, an alias of an alias is refused).

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::Refusal;
use crate::object::{AliasQueue, Definition, LocalQueue, ModelQueue, ObjectType, QueueKind};
use towline_types::limits;

/// All objects by name. Ordered, so that no choice of names makes a lookup slow.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    objects: BTreeMap<String, Object>,
    /// Decisions of all objects that are on their way.
    decisions: u64,
}

#[derive(Debug, Default)]
struct Object {
    applied: Option<Definition>,
    /// As decided last; counts while `decisions` are on their way. `None`: deleted.
    ahead: Option<Definition>,
    decisions: u32,
}

impl Object {
    fn current(&self) -> Option<&Definition> {
        if self.decisions > 0 { self.ahead.as_ref() } else { self.applied.as_ref() }
    }
}

impl Catalogue {
    /// What this name stands for, for requests.
    pub(crate) fn get(&self, name: &str) -> Option<&Definition> {
        self.objects.get(name).and_then(Object::current)
    }

    /// All definitions that count for requests, by name.
    /// Those behind a name, by name; all without one.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &Definition> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.range::<str, _>((from, Bound::Unbounded));
        objects.filter_map(|(_, object)| object.current())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.objects.values().filter_map(Object::current)
    }

    /// All definitions that count for images, by name.
    pub(crate) fn durable(&self) -> impl Iterator<Item = &Definition> {
        let kept = |definition: &&Definition| match definition {
            Definition::Local(queue) => queue.kind != QueueKind::TemporaryDynamic,
            Definition::Alias(_) | Definition::Model(_) | Definition::QueueManager(_) => true,
        };
        self.objects.values().filter_map(|object| object.applied.as_ref()).filter(kept)
    }

    /// A definition (`None`: a deletion) is decided; its fact is on its way.
    pub(crate) fn decide(&mut self, name: &str, definition: Option<Definition>) {
        let object = self.objects.entry(name.to_owned()).or_default();
        object.ahead = definition;
        object.decisions += 1;
        self.decisions += 1;
    }

    /// Checks that what is on its way is counted. For tests.
    pub(crate) fn audit(&self) {
        let decisions = self.objects.values().map(|object| u64::from(object.decisions)).sum();
        assert_eq!(self.decisions, decisions, "decisions on their way");
    }

    /// Whether something counts for requests that the log might not hold.
    pub(crate) fn is_ahead(&self) -> bool {
        self.decisions > 0
    }

    /// A definition (`None`: a deletion) is applied. True when no later decision stands before it:
    /// it counts for requests now.
    pub(crate) fn apply(&mut self, name: &str, definition: Option<Definition>) -> bool {
        let object = self.objects.entry(name.to_owned()).or_default();
        object.applied = definition;
        let decided_here = object.decisions > 0;
        object.decisions = object.decisions.saturating_sub(1);
        if decided_here {
            // At zero, what is not durable would be shown.
            assert!(self.decisions > 0, "a decision on its way was not counted");
            self.decisions -= 1;
        }
        let last = object.decisions == 0;
        if last {
            object.ahead = None;
            if object.applied.is_none() {
                self.objects.remove(name);
            }
        }
        !decided_here
    }

    /// Follows an alias to its local queue.
    pub(crate) fn resolve(&self, name: &str) -> Result<ResolvedQueue<'_>, Refusal> {
        match self.get(name) {
            None => Err(self.unknown_queue(name)),
            Some(Definition::Local(queue)) => Ok(ResolvedQueue { queue, alias: None }),
            Some(Definition::Alias(alias)) => match self.get(&alias.target) {
                Some(Definition::Local(queue)) => Ok(ResolvedQueue { queue, alias: Some(alias) }),
                Some(Definition::Alias(_) | Definition::Model(_) | Definition::QueueManager(_))
                | None => Err(Refusal::BadAlias(name.to_owned())),
            },
            Some(Definition::Model(_) | Definition::QueueManager(_)) => {
                Err(wrong_type(name, ObjectType::Local))
            }
        }
    }

    /// What a producer or consumer hears about a name that is not there.
    pub(crate) fn unknown_queue(&self, name: &str) -> Refusal {
        match self.in_other_case(name) {
            Some(there) => Refusal::UnknownQueueButCase { queue: name.to_owned(), there },
            None => Refusal::UnknownQueue(name.to_owned()),
        }
    }

    /// What a command hears about a name that is not there.
    pub(crate) fn unknown(&self, name: &str, expected: ObjectType) -> Refusal {
        Refusal::UnknownObject {
            expected: expected.as_str(),
            name: name.to_owned(),
            there: self.in_other_case(name),
        }
    }

    /// Names are folded to upper case by commands and taken as they are by clients: the usual slip.
    /// Two look-ups, because a client can ask for names that do not exist, as often as they like.
    fn in_other_case(&self, name: &str) -> Option<String> {
        let others = [name.to_uppercase(), name.to_lowercase()];
        others.into_iter().find(|other| other != name && self.get(other).is_some())
    }

    /// The local queue of this name.
    pub(crate) fn local(&self, name: &str) -> Result<&LocalQueue, Refusal> {
        match self.get(name) {
            Some(Definition::Local(queue)) => Ok(queue),
            Some(_) => Err(wrong_type(name, ObjectType::Local)),
            None => Err(self.unknown(name, ObjectType::Local)),
        }
    }

    /// The alias of this name.
    pub(crate) fn alias(&self, name: &str) -> Result<&AliasQueue, Refusal> {
        match self.get(name) {
            Some(Definition::Alias(alias)) => Ok(alias),
            Some(_) => Err(wrong_type(name, ObjectType::Alias)),
            None => Err(self.unknown(name, ObjectType::Alias)),
        }
    }

    /// The model of this name.
    pub(crate) fn model(&self, name: &str) -> Result<&ModelQueue, Refusal> {
        match self.get(name) {
            Some(Definition::Model(model)) => Ok(model),
            Some(_) => Err(wrong_type(name, ObjectType::Model)),
            None => Err(self.unknown(name, ObjectType::Model)),
        }
    }
}

/// Where a name leads.
#[derive(Debug)]
pub(crate) struct ResolvedQueue<'a> {
    pub(crate) queue: &'a LocalQueue,
    pub(crate) alias: Option<&'a AliasQueue>,
}

pub(crate) fn wrong_type(name: &str, expected: ObjectType) -> Refusal {
    Refusal::WrongType { name: name.to_owned(), expected: expected.as_str() }
}

/// Whether this can be the name of an object: 1 to 255 bytes, no control characters.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let fits = (1..=limits::QUEUE_NAME_BYTES_MAX).contains(&name.len());
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    // A refusal is shown to people: what it repeats must be short and printable.
    let shown = name.chars().filter(|c| !c.is_control()).take(64).collect();
    Err(Refusal::BadName(shown))
}

/// Whether a name is covered by a pattern: a name, or a generic name that ends in `*`.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}
