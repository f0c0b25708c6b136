//! Commands as types: what MQSC text means once it has been read. Whether they may be carried out
//! is for the [`crate::Target`] to say.
//!
//! Invariants: names are 1 to 255 bytes; numbers are inside the ranges of [`crate::attributes`];
//! nothing here was defaulted: what the text did not say is `None`.

pub use towline_core::command::{
    AliasChanges, Define, DefineAlias, DefineLocal, DefineModel, LocalChanges, QueueManagerChanges,
};
pub use towline_core::object::ObjectType;
use towline_core::object::QueueKind;

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
    /// MOVE QLOCAL.
    Move(Move),
    /// STOP CONN.
    StopConnection(StopConnection),
    /// DISPLAY of anything.
    Display(Display),
    /// END or QUIT: ends a script or an interactive session.
    End,
}

/// ALTER QLOCAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterLocal {
    /// Its name.
    pub name: String,
    /// What changes.
    pub changes: LocalChanges,
}

/// ALTER QALIAS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterAlias {
    /// Its name.
    pub name: String,
    /// What changes.
    pub changes: AliasChanges,
}

/// ALTER QMODEL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterModel {
    /// Its name.
    pub name: String,
    /// What changes.
    pub changes: LocalChanges,
    /// DEFTYPE.
    pub kind: Option<QueueKind>,
}

/// DELETE QLOCAL, QALIAS or QMODEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Its name.
    pub name: String,
    /// Of which type it must be.
    pub object: ObjectType,
    /// PURGE: also when it holds messages (QLOCAL only).
    pub purge: bool,
}

/// CLEAR QLOCAL: all messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clear {
    /// Its name.
    pub name: String,
}

/// MOVE QLOCAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The queue that has the messages.
    pub name: String,
    /// TOQLOCAL: the queue that gets them.
    pub to: String,
    /// TYPE(ADD): also when that has messages.
    pub add: bool,
}

/// STOP CONN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopConnection {
    /// CONN: its number.
    pub id: u64,
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
    /// QSTATUS TYPE(HANDLE).
    QueueHandles,
    /// CONN TYPE(HANDLE).
    ConnectionHandles,
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
