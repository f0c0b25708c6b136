//! Commands as types: what MQSC text means once it has been read. Whether they may be carried out is
//! for the [`crate::Target`] to say.
//!
//! Invariants: names are 1 to 255 bytes; numbers are inside the ranges of [`crate::attributes`];
//! nothing here was defaulted: what the text did not say is `None`.

use towline_core::object::{AliasQueue, DeliverySequence, LocalAttributes, ModelQueue, QueueKind};

use crate::attributes::AttributeId;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// DEFINE QLOCAL.
    DefineLocal(DefineLocal),
    /// DEFINE QALIAS.
    DefineAlias(DefineAlias),
    /// DEFINE QMODEL.
    DefineModel(DefineModel),
    /// ALTER QLOCAL.
    AlterLocal(AlterLocal),
    /// ALTER QALIAS.
    AlterAlias(AlterAlias),
    /// ALTER QMODEL.
    AlterModel(AlterModel),
    /// ALTER QMGR.
    AlterQueueManager(QueueManagerChanges),
    /// DELETE QLOCAL, QALIAS or QMODEL.
    Delete(Delete),
    /// CLEAR QLOCAL.
    Clear(Clear),
    /// DISPLAY of anything.
    Display(Display),
    /// END or QUIT: ends a script or an interactive session.
    End,
}

/// DEFINE QLOCAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefineLocal {
    /// Its name.
    pub name: String,
    /// REPLACE: an existing queue gets these attributes; its messages stay.
    pub replace: bool,
    /// LIKE: attributes that are not given come from this local queue.
    pub like: Option<String>,
    /// What was given.
    pub attributes: LocalChanges,
}

/// DEFINE QALIAS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefineAlias {
    /// Its name.
    pub name: String,
    /// REPLACE.
    pub replace: bool,
    /// LIKE: attributes that are not given come from this alias.
    pub like: Option<String>,
    /// What was given.
    pub attributes: AliasChanges,
}

/// DEFINE QMODEL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefineModel {
    /// Its name.
    pub name: String,
    /// REPLACE.
    pub replace: bool,
    /// LIKE: attributes that are not given come from this model.
    pub like: Option<String>,
    /// What was given.
    pub attributes: ModelChanges,
}

/// ALTER QLOCAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterLocal {
    /// Its name.
    pub name: String,
    /// What changes.
    pub attributes: LocalChanges,
}

/// ALTER QALIAS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterAlias {
    /// Its name.
    pub name: String,
    /// What changes.
    pub attributes: AliasChanges,
}

/// ALTER QMODEL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterModel {
    /// Its name.
    pub name: String,
    /// What changes.
    pub attributes: ModelChanges,
}

/// DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Its name.
    pub name: String,
    /// Of which type it must be.
    pub object: QueueObject,
    /// PURGE: also when it holds messages (QLOCAL only).
    pub purge: bool,
}

/// CLEAR QLOCAL: all messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clear {
    /// Its name.
    pub name: String,
}

/// The types of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueObject {
    /// QLOCAL.
    Local,
    /// QALIAS.
    Alias,
    /// QMODEL.
    Model,
}

/// Given attributes of a local queue. Meanings and ranges: [`LocalAttributes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalChanges {
    /// DESCR.
    pub description: Option<String>,
    /// MAXDEPTH.
    pub depth_max: Option<u64>,
    /// MAXMSGL.
    pub message_bytes_max: Option<u64>,
    /// PUT.
    pub put_enabled: Option<bool>,
    /// GET.
    pub get_enabled: Option<bool>,
    /// DEFPSIST.
    pub default_persistent: Option<bool>,
    /// DEFPRTY.
    pub default_priority: Option<u8>,
    /// MSGDLVSQ.
    pub sequence: Option<DeliverySequence>,
    /// BOTHRESH.
    pub backout_threshold: Option<u32>,
    /// BOQNAME; empty = the dead-letter queue.
    pub backout_queue: Option<String>,
    /// SHARE, NOSHARE.
    pub shareable: Option<bool>,
    /// DEFSOPT(SHARED) is true.
    pub default_shared: Option<bool>,
}

/// Given attributes of an alias queue. Meanings and ranges: [`AliasQueue`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AliasChanges {
    /// TARGET.
    pub target: Option<String>,
    /// DESCR.
    pub description: Option<String>,
    /// PUT.
    pub put_enabled: Option<bool>,
    /// GET.
    pub get_enabled: Option<bool>,
    /// DEFPSIST.
    pub default_persistent: Option<bool>,
    /// DEFPRTY.
    pub default_priority: Option<u8>,
}

/// Given attributes of a model queue. Meanings and ranges: [`ModelQueue`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelChanges {
    /// DEFTYPE.
    pub kind: Option<QueueKind>,
    /// All others.
    pub attributes: LocalChanges,
}

/// ALTER QMGR.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueManagerChanges {
    /// DESCR.
    pub description: Option<String>,
    /// DEADQ; empty = none.
    pub dead_letter_queue: Option<String>,
    /// MAXMSGL in bytes.
    pub message_bytes_max: Option<u64>,
    /// MAXUMSGS.
    pub unit_messages_max: Option<u32>,
}

/// DISPLAY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Display {
    /// Of what.
    pub subject: Subject,
    /// Which.
    pub name: NamePattern,
    /// WHERE.
    pub condition: Option<Condition>,
    /// What to show.
    pub attributes: Selection,
}

/// What DISPLAY shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// QUEUE: definitions of queues of all types.
    Queues,
    /// QLOCAL.
    Locals,
    /// QALIAS.
    Aliases,
    /// QMODEL.
    Models,
    /// QMGR.
    QueueManager,
    /// QSTATUS.
    QueueStatus,
    /// CONN.
    Connections,
}

/// Which attributes DISPLAY shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// None were named: all for one object, the name alone for many, as in MQSC.
    Unsaid,
    /// ALL.
    All,
    /// These, in this order.
    Only(Vec<AttributeId>),
}

/// A name, or a generic name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Exactly this one.
    Exactly(String),
    /// Every name that starts like this: `ABC*`.
    StartsWith(String),
}

impl NamePattern {
    /// Reads a name as DISPLAY takes it: generic when it ends in `*`.
    #[must_use]
    pub fn parse(text: &str) -> NamePattern {
        match text.strip_suffix('*') {
            Some(start) => NamePattern::StartsWith(start.into()),
            None => NamePattern::Exactly(text.into()),
        }
    }

    /// Whether a name is meant.
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        match self {
            NamePattern::Exactly(exactly) => name == exactly,
            NamePattern::StartsWith(start) => name.starts_with(start.as_str()),
        }
    }
}

/// WHERE(attribute operator value).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Of which attribute; an object without it is not shown.
    pub attribute: AttributeId,
    /// How to compare.
    pub operator: Operator,
    /// With what. A number when the attribute is one.
    pub value: String,
}

/// Operators of WHERE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// LT
    Less,
    /// GT
    Greater,
    /// EQ
    Equal,
    /// NE
    NotEqual,
    /// LE
    LessOrEqual,
    /// GE
    GreaterOrEqual,
    /// LK: like a generic name.
    Like,
    /// NL: not like a generic name.
    NotLike,
    /// CT: contains this text.
    Contains,
    /// EX: does not contain this text.
    Excludes,
}

impl LocalChanges {
    /// These changes over what was there, or over what LIKE or the defaults say.
    #[must_use]
    pub fn over(self, base: &LocalAttributes) -> LocalAttributes {
        LocalAttributes {
            description: self.description.unwrap_or_else(|| base.description.clone()),
            depth_max: self.depth_max.unwrap_or(base.depth_max),
            message_bytes_max: self.message_bytes_max.unwrap_or(base.message_bytes_max),
            put_enabled: self.put_enabled.unwrap_or(base.put_enabled),
            get_enabled: self.get_enabled.unwrap_or(base.get_enabled),
            default_persistent: self.default_persistent.unwrap_or(base.default_persistent),
            default_priority: self.default_priority.unwrap_or(base.default_priority),
            sequence: self.sequence.unwrap_or(base.sequence),
            backout_threshold: self.backout_threshold.unwrap_or(base.backout_threshold),
            backout_queue: self.backout_queue.unwrap_or_else(|| base.backout_queue.clone()),
            shareable: self.shareable.unwrap_or(base.shareable),
            default_shared: self.default_shared.unwrap_or(base.default_shared),
        }
    }
}

impl AliasChanges {
    /// These changes over what was there, or over [`default_alias`]. The name stays `base`'s.
    #[must_use]
    pub fn over(self, base: &AliasQueue) -> AliasQueue {
        AliasQueue {
            name: base.name.clone(),
            target: self.target.unwrap_or_else(|| base.target.clone()),
            description: self.description.unwrap_or_else(|| base.description.clone()),
            put_enabled: self.put_enabled.unwrap_or(base.put_enabled),
            get_enabled: self.get_enabled.unwrap_or(base.get_enabled),
            default_persistent: self.default_persistent.unwrap_or(base.default_persistent),
            default_priority: self.default_priority.unwrap_or(base.default_priority),
        }
    }
}

impl ModelChanges {
    /// These changes over what was there, or over [`default_model`]. The name stays `base`'s.
    #[must_use]
    pub fn over(self, base: &ModelQueue) -> ModelQueue {
        ModelQueue {
            name: base.name.clone(),
            kind: self.kind.unwrap_or(base.kind),
            attributes: self.attributes.over(&base.attributes),
        }
    }
}

/// An alias with every attribute at its default and no target.
#[must_use]
pub fn default_alias(name: String) -> AliasQueue {
    let local = LocalAttributes::default();
    AliasQueue {
        name,
        target: String::new(),
        description: String::new(),
        put_enabled: local.put_enabled,
        get_enabled: local.get_enabled,
        default_persistent: local.default_persistent,
        default_priority: local.default_priority,
    }
}

/// A model with every attribute at its default (DEFTYPE is TEMPDYN, as in IBM MQ).
#[must_use]
pub fn default_model(name: String) -> ModelQueue {
    ModelQueue { name, kind: QueueKind::TemporaryDynamic, attributes: LocalAttributes::default() }
}
