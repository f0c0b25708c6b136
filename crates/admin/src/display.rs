//! DISPLAY: from what a [`Target`] has to rows of attributes. Decides what is shown and what WHERE
//! lets through; how it is printed is `reply`'s.

use std::cmp::Ordering;

use towline_core::object::{
    AliasQueue, Definition, DeliverySequence, LocalAttributes, LocalQueue, ModelQueue, QueueKind,
};
use towline_types::{CivilTime, Time};

use crate::attributes::{ATTRIBUTES, AttributeId as Id};
use crate::catalogue;
use crate::command::{Condition, Display, NamePattern, Operator, Selection, Subject};
use crate::reply::{Attributes, DisplayValue, Row};
use crate::target::{
    ConnectionRow, DefinitionRow, HandleRow, OpenInput, QueueManagerRow, QueueStatusRow, Target,
};

/// Rows that one DISPLAY shows at most.
pub(crate) const ROWS_MAX: usize = 10_000;

/// One object while it is looked at.
#[derive(Clone, Copy)]
enum Source<'a> {
    Definition(&'a DefinitionRow<'a>),
    QueueManager(&'a QueueManagerRow),
    Status(&'a QueueStatusRow<'a>),
    Connection(&'a ConnectionRow<'a>),
    /// The handles of a queue, or of a connection when `by_connection`.
    Handle {
        row: &'a HandleRow<'a>,
        by_connection: bool,
    },
}

/// Rows that were found, with what they are sorted by.
struct Found<'d> {
    display: &'d Display,
    rows: Vec<(u64, String, Attributes)>,
}

/// All rows of a DISPLAY, sorted by name.
pub(crate) fn rows(target: &dyn Target, display: &Display) -> Vec<Row> {
    let mut found = Found { display, rows: Vec::new() };
    match display.subject {
        Subject::Queues | Subject::Locals | Subject::Aliases | Subject::Models => {
            target.definitions(&mut |row| found.offer(0, Source::Definition(&row)));
        }
        Subject::QueueManager => found.offer(0, Source::QueueManager(&target.queue_manager())),
        Subject::QueueStatus => {
            target.queue_status(&mut |row| found.offer(0, Source::Status(&row)));
        }
        Subject::Connections => {
            target.connections(&mut |row| found.offer(row.id, Source::Connection(&row)));
        }
        Subject::QueueHandles | Subject::ConnectionHandles => {
            let by_connection = display.subject == Subject::ConnectionHandles;
            target.handles(&mut |row| {
                let rank = if by_connection { row.connection.id } else { 0 };
                found.offer(rank, Source::Handle { row: &row, by_connection });
            });
        }
    }
    let entry = match display.subject {
        Subject::Queues | Subject::Locals | Subject::Aliases | Subject::Models => {
            catalogue::SHOW_QUEUE
        }
        Subject::QueueManager => catalogue::SHOW_QUEUE_MANAGER,
        Subject::QueueStatus => catalogue::SHOW_QUEUE_STATUS,
        Subject::Connections => catalogue::SHOW_CONNECTION,
        Subject::QueueHandles | Subject::ConnectionHandles => catalogue::SHOW_HANDLE,
    };
    found.rows.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
    let rows = found.rows.into_iter();
    rows.map(|(_, _, attributes)| Row { message: entry.message(&[]), attributes }).collect()
}

/// Whether what is named exists although it has nothing to show: a queue that is not open, or a
/// connection that has none open, has no handles.
pub(crate) fn is_there(target: &dyn Target, display: &Display) -> bool {
    let mut found = false;
    match display.subject {
        Subject::QueueHandles => {
            target.queue_status(&mut |row| found |= display.name.admits(row.name));
        }
        Subject::ConnectionHandles => {
            target.connections(&mut |row| found |= display.name.admits(&row.id.to_string()));
        }
        // They show whatever exists.
        Subject::Queues
        | Subject::Locals
        | Subject::Aliases
        | Subject::Models
        | Subject::QueueManager
        | Subject::QueueStatus
        | Subject::Connections => {}
    }
    found
}

impl Found<'_> {
    /// Keeps an object if it is wanted.
    fn offer(&mut self, rank: u64, source: Source<'_>) {
        let display = self.display;
        let name = source.name();
        if !source.is_of(display.subject) || !display.name.admits(&name) {
            return;
        }
        if let Some(condition) = &display.condition
            && !source.value(condition.attribute).is_some_and(|value| condition.admits(&value))
        {
            return;
        }
        let mut attributes = source.head(&name);
        for attribute in ATTRIBUTES {
            let shown = display.shows(attribute.id) && !source.head_has(attribute.id);
            if let Some(value) = source.value(attribute.id).filter(|_| shown) {
                attributes.push((attribute.name.into(), value));
            }
        }
        self.rows.push((rank, name, Attributes(attributes)));
    }
}

impl Display {
    fn shows(&self, id: Id) -> bool {
        let asked_for = self.condition.as_ref().is_some_and(|condition| condition.attribute == id);
        match (&self.attributes, &self.name, self.subject) {
            (Selection::All, _, _) | (Selection::Unsaid, NamePattern::Exactly(_), _) => true,
            (Selection::Only(only), _, _) => only.contains(&id) || asked_for,
            (Selection::Unsaid, NamePattern::StartsWith(_), subject) => match subject {
                Subject::QueueManager
                | Subject::QueueStatus
                | Subject::Connections
                | Subject::QueueHandles
                | Subject::ConnectionHandles => true,
                Subject::Queues | Subject::Locals | Subject::Aliases | Subject::Models => asked_for,
            },
        }
    }
}

impl Source<'_> {
    fn name(self) -> String {
        match self {
            Source::Definition(row) => row.definition.name().into(),
            Source::QueueManager(row) => row.name.clone(),
            Source::Status(row) => row.name.into(),
            Source::Connection(row) => row.id.to_string(),
            Source::Handle { row, by_connection: true } => row.connection.id.to_string(),
            Source::Handle { row, by_connection: false } => row.queue.into(),
        }
    }

    fn is_of(self, subject: Subject) -> bool {
        let Source::Definition(row) = self else { return true };
        match (subject, row.definition) {
            (_, Definition::QueueManager(_)) => false,
            (Subject::Queues, _)
            | (Subject::Locals, Definition::Local(_))
            | (Subject::Aliases, Definition::Alias(_))
            | (Subject::Models, Definition::Model(_)) => true,
            (_, _) => false,
        }
    }

    /// What is always shown, first.
    fn head(self, name: &str) -> Vec<(String, DisplayValue)> {
        let name = |key: &str| (key.to_owned(), DisplayValue::Text(name.to_owned()));
        let kind = |value: &str| ("TYPE".to_owned(), DisplayValue::Text(value.to_owned()));
        match self {
            Source::Definition(row) => vec![name("QUEUE"), kind(type_of(row.definition))],
            Source::QueueManager(_) => vec![name("QMNAME")],
            Source::Status(_) => vec![name("QUEUE"), kind("QUEUE")],
            Source::Connection(_) => vec![name("CONN"), kind("CONN")],
            Source::Handle { row, by_connection: true } => {
                let queue = ("QUEUE".to_owned(), DisplayValue::Text(row.queue.to_owned()));
                vec![name("CONN"), kind("HANDLE"), queue]
            }
            Source::Handle { row, by_connection: false } => {
                let connection =
                    ("CONN".to_owned(), DisplayValue::Text(row.connection.id.to_string()));
                vec![name("QUEUE"), kind("HANDLE"), connection]
            }
        }
    }

    fn head_has(self, id: Id) -> bool {
        matches!(id, Id::QueueType | Id::QueueManagerName)
    }

    /// The value of an attribute, if the object has it.
    fn value(self, id: Id) -> Option<DisplayValue> {
        match self {
            Source::Definition(row) => definition(row, id),
            Source::QueueManager(row) => queue_manager(row, id),
            Source::Status(row) => status(row, id),
            Source::Connection(row) => connection(row, id),
            Source::Handle { row, .. } => handle(row, id),
        }
    }
}

impl Condition {
    /// Whether WHERE lets a value through.
    fn admits(&self, value: &DisplayValue) -> bool {
        let text = match value {
            DisplayValue::Number(number) => {
                let wanted = self.value.parse::<u64>().unwrap_or(u64::MAX);
                return self.operator.admits(number.cmp(&wanted)).unwrap_or(false);
            }
            DisplayValue::Flag(true) => self.attribute.name().to_owned(),
            DisplayValue::Flag(false) => format!("NO{}", self.attribute.name()),
            DisplayValue::Text(text) => text.clone(),
        };
        let generic = NamePattern::parse(&self.value);
        match self.operator {
            Operator::Like => generic.admits(&text),
            Operator::NotLike => !generic.admits(&text),
            Operator::Contains => text.contains(&self.value),
            Operator::Excludes => !text.contains(&self.value),
            Operator::Less
            | Operator::Greater
            | Operator::Equal
            | Operator::NotEqual
            | Operator::LessOrEqual
            | Operator::GreaterOrEqual => {
                self.operator.admits(text.as_str().cmp(&self.value)).unwrap_or(false)
            }
        }
    }
}

impl Operator {
    /// Whether an order of value and operand satisfies it; `None` when it is not about order.
    fn admits(self, order: Ordering) -> Option<bool> {
        match self {
            Operator::Less => Some(order.is_lt()),
            Operator::Greater => Some(order.is_gt()),
            Operator::Equal => Some(order.is_eq()),
            Operator::NotEqual => Some(order.is_ne()),
            Operator::LessOrEqual => Some(order.is_le()),
            Operator::GreaterOrEqual => Some(order.is_ge()),
            Operator::Like | Operator::NotLike | Operator::Contains | Operator::Excludes => None,
        }
    }
}

fn type_of(definition: &Definition) -> &'static str {
    match definition {
        Definition::Local(_) => "QLOCAL",
        Definition::Alias(_) => "QALIAS",
        Definition::Model(_) => "QMODEL",
        Definition::QueueManager(_) => "QMGR",
    }
}

fn text(value: &str) -> Option<DisplayValue> {
    Some(DisplayValue::Text(value.into()))
}

fn number(value: impl Into<u64>) -> Option<DisplayValue> {
    Some(DisplayValue::Number(value.into()))
}

fn choice(yes: bool, words: [&str; 2]) -> Option<DisplayValue> {
    text(if yes { words[0] } else { words[1] })
}

fn inhibit(enabled: bool) -> Option<DisplayValue> {
    choice(enabled, ["ENABLED", "DISABLED"])
}

fn definition(row: &DefinitionRow<'_>, id: Id) -> Option<DisplayValue> {
    match id {
        Id::QueueType => return text(type_of(row.definition)),
        Id::AlteredDate => return text(&date(altered_at(row))),
        Id::AlteredTime => return text(&time(altered_at(row))),
        _ => {}
    }
    match row.definition {
        Definition::Local(queue) => local(row, queue, id),
        Definition::Alias(queue) => alias(queue, id),
        Definition::Model(queue) => model(queue, id),
        // DISPLAY QMGR has a row of its own.
        Definition::QueueManager(_) => None,
    }
}

/// When a local queue was defined first.
fn created_at(row: &DefinitionRow<'_>, queue: &LocalQueue) -> Option<Time> {
    row.created_at.or(known(queue.stamps.created_at))
}

/// When an object was defined or altered last.
fn altered_at(row: &DefinitionRow<'_>) -> Option<Time> {
    row.altered_at.or(match row.definition {
        Definition::Local(queue) => known(queue.stamps.altered_at),
        Definition::Alias(queue) => known(queue.stamps.altered_at),
        Definition::Model(queue) => known(queue.stamps.altered_at),
        Definition::QueueManager(_) => None,
    })
}

/// A time, unless it was never set.
fn known(at: Time) -> Option<Time> {
    (at != Time::ZERO).then_some(at)
}

fn local(row: &DefinitionRow<'_>, queue: &LocalQueue, id: Id) -> Option<DisplayValue> {
    match id {
        Id::CreatedDate => text(&date(created_at(row, queue))),
        Id::CreatedTime => text(&time(created_at(row, queue))),
        Id::Depth => number(row.usage?.depth),
        Id::Consumers => number(row.usage?.consumers),
        Id::Producers => number(row.usage?.producers),
        Id::DefinitionType => text(kind(queue.kind)),
        other => stored(&queue.attributes, other),
    }
}

fn model(queue: &ModelQueue, id: Id) -> Option<DisplayValue> {
    match id {
        Id::DefinitionType => text(kind(queue.kind)),
        other => stored(&queue.attributes, other),
    }
}

fn kind(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::Predefined => "PREDEFINED",
        QueueKind::PermanentDynamic => "PERMDYN",
        QueueKind::TemporaryDynamic => "TEMPDYN",
    }
}

/// Attributes that local and model queues share.
fn stored(attributes: &LocalAttributes, id: Id) -> Option<DisplayValue> {
    match id {
        Id::Description => text(&attributes.description),
        Id::DepthMax => number(attributes.depth_max),
        Id::MessageBytesMax => number(attributes.message_bytes_max),
        Id::Put => inhibit(attributes.put_enabled),
        Id::Get => inhibit(attributes.get_enabled),
        Id::DefaultPersistence => choice(attributes.default_persistent, ["YES", "NO"]),
        Id::DefaultPriority => number(attributes.default_priority),
        Id::Sequence => {
            choice(attributes.sequence == DeliverySequence::Priority, ["PRIORITY", "FIFO"])
        }
        Id::BackoutThreshold => number(attributes.backout_threshold),
        Id::BackoutQueue => text(&attributes.backout_queue),
        Id::Share => Some(DisplayValue::Flag(attributes.shareable)),
        Id::DefaultInput => choice(attributes.default_shared, ["SHARED", "EXCL"]),
        _ => None,
    }
}

fn alias(queue: &AliasQueue, id: Id) -> Option<DisplayValue> {
    match id {
        Id::Target => text(&queue.target),
        Id::Description => text(&queue.description),
        Id::Put => inhibit(queue.put_enabled),
        Id::Get => inhibit(queue.get_enabled),
        Id::DefaultPersistence => choice(queue.default_persistent, ["YES", "NO"]),
        Id::DefaultPriority => number(queue.default_priority),
        _ => None,
    }
}

fn queue_manager(row: &QueueManagerRow, id: Id) -> Option<DisplayValue> {
    match id {
        Id::QueueManagerName => text(&row.name),
        Id::Description => text(&row.description),
        Id::DeadLetterQueue => text(&row.dead_letter_queue),
        Id::MessageBytesMax => number(row.message_bytes_max),
        Id::UnitMessagesMax => number(row.unit_messages_max),
        Id::Version => text(&row.version),
        _ => None,
    }
}

fn status(row: &QueueStatusRow<'_>, id: Id) -> Option<DisplayValue> {
    match id {
        Id::Depth => number(row.usage.depth),
        Id::Consumers => number(row.usage.consumers),
        Id::Producers => number(row.usage.producers),
        Id::Uncommitted => number(row.uncommitted),
        Id::OldestAge => row.oldest_message_age_s.map_or_else(|| text(""), number),
        Id::LastPutDate => text(&date(row.last_put_at)),
        Id::LastPutTime => text(&time(row.last_put_at)),
        Id::LastGetDate => text(&date(row.last_get_at)),
        Id::LastGetTime => text(&time(row.last_get_at)),
        Id::Puts => number(row.puts),
        Id::Gets => number(row.gets),
        Id::Damaged => number(row.damaged),
        _ => None,
    }
}

fn connection(row: &ConnectionRow<'_>, id: Id) -> Option<DisplayValue> {
    match id {
        Id::User => text(row.user),
        Id::Container => text(row.container),
        Id::Address => text(row.address),
        Id::Sessions => number(row.sessions),
        Id::Links => number(row.links),
        Id::Units => number(row.units),
        _ => None,
    }
}

fn handle(row: &HandleRow<'_>, id: Id) -> Option<DisplayValue> {
    match id {
        Id::User | Id::Container | Id::Address => connection(&row.connection, id),
        Id::OpenInput => text(match row.input {
            OpenInput::No => "NO",
            OpenInput::Shared => "SHARED",
            OpenInput::Exclusive => "EXCL",
        }),
        Id::OpenBrowse => choice(row.browse, ["YES", "NO"]),
        Id::OpenOutput => choice(row.output, ["YES", "NO"]),
        _ => None,
    }
}

/// `2026-11-21`, UTC; empty when it is not known.
fn date(at: Option<Time>) -> String {
    let Some(at) = at else { return String::new() };
    let CivilTime { year, month, day, .. } = CivilTime::of(at);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `21.37.05`, UTC, as IBM MQ writes it; empty when it is not known.
fn time(at: Option<Time>) -> String {
    let Some(at) = at else { return String::new() };
    let CivilTime { hour, minute, second, .. } = CivilTime::of(at);
    format!("{hour:02}.{minute:02}.{second:02}")
}
