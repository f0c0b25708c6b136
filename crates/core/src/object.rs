//! Objects: what DEFINE, ALTER, DELETE and CLEAR speak of. Attribute names are IBM MQ's.

use towline_types::{Time, limits};

use crate::QueueId;

/// An object with all its attributes, as it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// QLOCAL, and dynamic queues made from a QMODEL.
    Local(LocalQueue),
    /// QALIAS.
    Alias(AliasQueue),
    /// QMODEL.
    Model(ModelQueue),
    /// QMGR: there is exactly one, and it has no name among the queues.
    QueueManager(QueueManagerAttributes),
}

/// The type named by ALTER, DELETE and DISPLAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectType {
    /// QLOCAL.
    Local,
    /// QALIAS.
    Alias,
    /// QMODEL.
    Model,
}

impl ObjectType {
    /// The word that messages to operators use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ObjectType::Local => "local queue",
            ObjectType::Alias => "alias queue",
            ObjectType::Model => "model queue",
        }
    }
}

/// A local queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueue {
    /// Its name, case-sensitive, 1 to 255 bytes.
    pub name: String,
    /// This incarnation.
    pub id: QueueId,
    /// How it came to be (DEFTYPE).
    pub kind: QueueKind,
    /// Its attributes.
    pub attributes: LocalAttributes,
    /// When it was made and changed.
    pub stamps: Stamps,
}

/// CRDATE and CRTIME, ALTDATE and ALTTIME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When the object was defined first.
    pub created_at: Time,
    /// When it was defined or altered last.
    pub altered_at: Time,
}

/// DEFTYPE of a local queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// PREDEFINED.
    #[default]
    Predefined,
    /// PERMDYN: made from a model, stays.
    PermanentDynamic,
    /// TEMPDYN: made from a model, goes with the connection that made it. Never logged; what is put
    /// there is non-persistent.
    TemporaryDynamic,
}

/// Attributes of a local or model queue. Defaults are IBM MQ's except where docs/adr says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAttributes {
    /// DESCR, up to 64 characters.
    pub description: String,
    /// MAXDEPTH, 0 to 999,999,999.
    pub depth_max: u64,
    /// MAXMSGL in bytes, 0 to 104,857,600.
    pub message_bytes_max: u64,
    /// PUT(ENABLED).
    pub put_enabled: bool,
    /// GET(ENABLED).
    pub get_enabled: bool,
    /// DEFPSIST(YES).
    pub default_persistent: bool,
    /// DEFPRTY, 0 to 9.
    pub default_priority: u8,
    /// MSGDLVSQ.
    pub sequence: DeliverySequence,
    /// BOTHRESH; 0 = never.
    pub backout_threshold: u32,
    /// BOQNAME; empty = the dead-letter queue.
    pub backout_queue: String,
    /// SHARE.
    pub shareable: bool,
    /// DEFSOPT(EXCL) is false, DEFSOPT(SHARED) true.
    pub default_shared: bool,
}

impl Default for LocalAttributes {
    fn default() -> LocalAttributes {
        LocalAttributes {
            description: String::new(),
            depth_max: limits::QUEUE_DEPTH_MAX,
            message_bytes_max: limits::MESSAGE_BYTES_DEFAULT,
            put_enabled: true,
            get_enabled: true,
            default_persistent: false,
            default_priority: 4,
            sequence: DeliverySequence::Priority,
            backout_threshold: 0,
            backout_queue: String::new(),
            shareable: true,
            default_shared: true,
        }
    }
}

/// MSGDLVSQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliverySequence {
    /// By priority, then first in, first out.
    #[default]
    Priority,
    /// First in, first out, whatever the priority.
    Fifo,
}

/// An alias queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasQueue {
    /// Its name.
    pub name: String,
    /// TARGET: the name of a local queue (it may be defined later).
    pub target: String,
    /// DESCR.
    pub description: String,
    /// PUT(ENABLED).
    pub put_enabled: bool,
    /// GET(ENABLED).
    pub get_enabled: bool,
    /// DEFPSIST of the alias: the first object on the path decides.
    pub default_persistent: bool,
    /// DEFPRTY of the alias.
    pub default_priority: u8,
    /// When it was made and changed.
    pub stamps: Stamps,
}

/// A model queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelQueue {
    /// Its name.
    pub name: String,
    /// DEFTYPE(TEMPDYN) or DEFTYPE(PERMDYN).
    pub kind: QueueKind,
    /// What queues made from it start with.
    pub attributes: LocalAttributes,
    /// When it was made and changed.
    pub stamps: Stamps,
}

/// Attributes of the queue manager that ALTER QMGR changes; they win over the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueManagerAttributes {
    /// DESCR.
    pub description: String,
    /// DEADQ; empty: none.
    pub dead_letter_queue: String,
    /// MAXMSGL in bytes.
    pub message_bytes_max: u64,
    /// MAXUMSGS.
    pub unit_messages_max: u32,
}

impl Definition {
    /// The object's type; `None` for the queue manager itself.
    #[must_use]
    pub const fn object_type(&self) -> Option<ObjectType> {
        match self {
            Definition::Local(_) => Some(ObjectType::Local),
            Definition::Alias(_) => Some(ObjectType::Alias),
            Definition::Model(_) => Some(ObjectType::Model),
            Definition::QueueManager(_) => None,
        }
    }

    /// The object's name, empty for the queue manager itself.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Definition::Local(queue) => &queue.name,
            Definition::Alias(queue) => &queue.name,
            Definition::Model(queue) => &queue.name,
            Definition::QueueManager(_) => "",
        }
    }
}
