//! The one table of verbs, objects and attributes: the parser, the help text, DISPLAY and the page
//! docs/reference/mqsc.md are all made from it.
//!
//! Names are IBM MQ's where IBM MQ has one. What IBM MQ has and Towline has not is listed too
//! (`foreign`), so that the answer to it can be clear.

mod foreign;
mod table;

pub use foreign::is_foreign;
pub use table::{ATTRIBUTES, OBJECTS, VERBS};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// DEFINE
    Define,
    /// ALTER
    Alter,
    /// DELETE
    Delete,
    /// DISPLAY
    Display,
    /// CLEAR
    Clear,
    /// MOVE
    Move,
    /// STOP
    Stop,
    /// END, QUIT
    End,
}

/// A verb in the table.
#[derive(Clone, Copy, Debug)]
pub struct VerbEntry {
    /// Which.
    pub verb: Verb,
    /// As reference pages write it.
    pub name: &'static str,
    /// Other ways to write it.
    pub synonyms: &'static [&'static str],
    /// One line.
    pub doc: &'static str,
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// QLOCAL
    Local,
    /// QALIAS
    Alias,
    /// QMODEL
    Model,
    /// QUEUE: all of the three; DISPLAY only.
    Queue,
    /// QMGR
    QueueManager,
    /// QSTATUS
    QueueStatus,
    /// CONN
    Connection,
    /// HANDLE: what DISPLAY of QSTATUS or CONN with TYPE(HANDLE) shows; no verb names it.
    Handle,
}

/// An object in the table.
#[derive(Clone, Copy, Debug)]
pub struct ObjectEntry {
    /// Which.
    pub object: Object,
    /// As reference pages write it; also the attribute that shows its name.
    pub name: &'static str,
    /// Other ways to write it.
    pub synonyms: &'static [&'static str],
    /// What may be done with it.
    pub verbs: &'static [Verb],
    /// One line.
    pub doc: &'static str,
}

/// Which attribute. The order is that of DISPLAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table has one line for each")]
pub enum AttributeId {
    QueueType,
    AlteredDate,
    AlteredTime,
    BackoutQueue,
    BackoutThreshold,
    CreatedDate,
    CreatedTime,
    Depth,
    DefaultPersistence,
    DefaultPriority,
    DefaultInput,
    DefinitionType,
    Description,
    Get,
    Consumers,
    DepthMax,
    MessageBytesMax,
    Sequence,
    Producers,
    Put,
    Share,
    Target,
    QueueManagerName,
    DeadLetterQueue,
    UnitMessagesMax,
    Version,
    LastGetDate,
    LastGetTime,
    LastPutDate,
    LastPutTime,
    OldestAge,
    Uncommitted,
    Puts,
    Gets,
    Damaged,
    Container,
    Address,
    Sessions,
    Links,
    Units,
    User,
    OpenInput,
    OpenBrowse,
    OpenOutput,
}

/// What values an attribute takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text of so many characters at most.
    Text {
        /// Most characters.
        characters_max: usize,
    },
    /// The name of a queue; empty means none.
    Name,
    /// A whole number.
    Number {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// Of what, for the reference page; empty = a plain count.
        unit: &'static str,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The name alone, or the name with NO before it; no value.
    Flag,
}

/// An attribute in the table.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Which.
    pub id: AttributeId,
    /// As reference pages write it.
    pub name: &'static str,
    /// Other ways to write it.
    pub synonyms: &'static [&'static str],
    /// What values it takes.
    pub kind: Kind,
    /// What DEFINE gives it when nothing is said; empty when it cannot be given.
    pub default: &'static str,
    /// Which objects take it in DEFINE and ALTER (and show it in DISPLAY).
    pub set_on: &'static [Object],
    /// Which other objects show it in DISPLAY.
    pub shown_on: &'static [Object],
    /// One line.
    pub doc: &'static str,
}

impl AttributeId {
    /// The attribute's row in the table.
    #[must_use]
    pub fn entry(self) -> &'static Attribute {
        match ATTRIBUTES.iter().find(|attribute| attribute.id == self) {
            Some(attribute) => attribute,
            None => unreachable!("every attribute is in the table: a test checks"),
        }
    }

    /// The attribute's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

impl Object {
    /// The object's row in the table.
    #[must_use]
    pub fn entry(self) -> &'static ObjectEntry {
        match OBJECTS.iter().find(|entry| entry.object == self) {
            Some(entry) => entry,
            None => unreachable!("every object is in the table: a test checks"),
        }
    }
}

impl Attribute {
    /// Whether DEFINE or ALTER of an object takes it.
    #[must_use]
    pub fn can_set(&self, object: Object) -> bool {
        self.set_on.contains(&object)
    }

    /// Whether DISPLAY of an object shows it.
    #[must_use]
    pub fn can_show(&self, object: Object) -> bool {
        let shows = |object| self.set_on.contains(&object) || self.shown_on.contains(&object);
        match object {
            Object::Queue => [Object::Local, Object::Alias, Object::Model].into_iter().any(shows),
            Object::Local
            | Object::Alias
            | Object::Model
            | Object::QueueManager
            | Object::QueueStatus
            | Object::Connection
            | Object::Handle => shows(object),
        }
    }

    /// Whether a word names it; words are in upper case.
    #[must_use]
    pub fn is_called(&self, word: &str) -> bool {
        self.name == word || self.synonyms.contains(&word)
    }
}

/// The verb of a word in upper case.
#[must_use]
pub fn verb(word: &str) -> Option<Verb> {
    let found = VERBS.iter().find(|entry| entry.name == word || entry.synonyms.contains(&word));
    found.map(|entry| entry.verb)
}

/// The object of a word in upper case.
#[must_use]
pub fn object(word: &str) -> Option<Object> {
    let found = OBJECTS.iter().find(|entry| entry.name == word || entry.synonyms.contains(&word));
    found.map(|entry| entry.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_is_in_the_table_once_and_in_order() {
        for pair in ATTRIBUTES.windows(2) {
            assert!(pair[0].id < pair[1].id, "{} {}", pair[0].name, pair[1].name);
        }
        // `AttributeId::OpenOutput` is the last: the table has as many rows as there are
        // attributes.
        assert_eq!(ATTRIBUTES.len(), AttributeId::OpenOutput as usize + 1);
        for attribute in ATTRIBUTES {
            let settable = !attribute.set_on.is_empty();
            assert!(settable || attribute.default.is_empty(), "{}", attribute.name);
            assert!(settable || !attribute.shown_on.is_empty(), "{}", attribute.name);
        }
    }

    #[test]
    fn no_word_means_two_things_on_one_object() {
        for entry in OBJECTS {
            let mut words: Vec<&str> = Vec::new();
            for attribute in ATTRIBUTES.iter().filter(|each| each.can_show(entry.object)) {
                words.push(attribute.name);
                words.extend(attribute.synonyms);
            }
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), count, "{}", entry.name);
            assert!(words.iter().all(|word| !is_foreign(word)), "{}", entry.name);
        }
    }
}
