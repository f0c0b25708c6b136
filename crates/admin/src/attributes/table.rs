//! The rows of the table. No logic.

use towline_types::limits;

use super::{Attribute, AttributeId as Id, Kind, Object, ObjectEntry, Verb, VerbEntry};

/// DESCR of IBM MQ.
const DESCRIPTION_CHARACTERS_MAX: usize = 64;
/// MAXUMSGS of IBM MQ.
const UNIT_MESSAGES_MAX: u64 = 999_999_999;
/// BOTHRESH of IBM MQ.
const BACKOUT_THRESHOLD_MAX: u64 = 999_999_999;

const LOCAL: &[Object] = &[Object::Local];
const LOCAL_MODEL: &[Object] = &[Object::Local, Object::Model];
const QUEUES: &[Object] = &[Object::Local, Object::Alias, Object::Model];
const QUEUE_MANAGER: &[Object] = &[Object::QueueManager];
const STATUS: &[Object] = &[Object::QueueStatus];
const CONNECTION: &[Object] = &[Object::Connection];
const CONNECTION_HANDLE: &[Object] = &[Object::Connection, Object::Handle];
const HANDLE: &[Object] = &[Object::Handle];
const NONE: &[Object] = &[];

const COUNT: Kind = Kind::Number { min: 0, max: u64::MAX, unit: "" };
const STAMP: Kind = Kind::Text { characters_max: 10 };
const SHOWN_TEXT: Kind = Kind::Text { characters_max: limits::QUEUE_NAME_BYTES_MAX };
const INHIBIT: Kind = Kind::Choice(&["ENABLED", "DISABLED"]);

/// All verbs.
pub const VERBS: &[VerbEntry] = &[
    VerbEntry {
        verb: Verb::Define,
        name: "DEFINE",
        synonyms: &["DEF"],
        doc: "Defines an object. REPLACE changes an existing one; LIKE(name) copies the attributes \
              that are not given.",
    },
    VerbEntry {
        verb: Verb::Alter,
        name: "ALTER",
        synonyms: &["ALT"],
        doc: "Changes attributes of an object; attributes that are not given stay.",
    },
    VerbEntry {
        verb: Verb::Delete,
        name: "DELETE",
        synonyms: &[],
        doc: "Deletes an object. PURGE also deletes a local queue with messages, and the messages.",
    },
    VerbEntry {
        verb: Verb::Display,
        name: "DISPLAY",
        synonyms: &["DIS"],
        doc: "Shows objects: by name, by generic name (ABC*), WHERE(attribute operator value).",
    },
    VerbEntry {
        verb: Verb::Clear,
        name: "CLEAR",
        synonyms: &[],
        doc: "Removes all messages of a local queue.",
    },
    VerbEntry {
        verb: Verb::Move,
        name: "MOVE",
        synonyms: &[],
        doc: "Moves the messages of a local queue that are not locked to another: TOQLOCAL(name). \
              TYPE(MOVE), the default, needs an empty target; TYPE(ADD) adds behind its messages. \
              One command moves at most 10,000; the reply says how many are left.",
    },
    VerbEntry {
        verb: Verb::Stop,
        name: "STOP",
        synonyms: &[],
        doc: "Closes a connection: CONN(number) as DISPLAY CONN shows it. A client that does not answer \
              the close has 5 seconds, then its socket is closed. Its open units of work are \
              rolled back, and unsettled messages go back to their queues.",
    },
    VerbEntry {
        verb: Verb::End,
        name: "END",
        synonyms: &["QUIT"],
        doc: "Ends a script or an interactive session.",
    },
];

const NOTHING: &[Verb] = &[];
const DEFINABLE: &[Verb] = &[Verb::Define, Verb::Alter, Verb::Delete, Verb::Display];

/// All objects.
pub const OBJECTS: &[ObjectEntry] = &[
    ObjectEntry {
        object: Object::Local,
        name: "QLOCAL",
        synonyms: &["QL"],
        verbs: &[Verb::Define, Verb::Alter, Verb::Delete, Verb::Display, Verb::Clear, Verb::Move],
        doc: "A local queue: it holds messages.",
    },
    ObjectEntry {
        object: Object::Alias,
        name: "QALIAS",
        synonyms: &["QA"],
        verbs: DEFINABLE,
        doc: "Another name for a local queue, with PUT, GET and defaults of its own.",
    },
    ObjectEntry {
        object: Object::Model,
        name: "QMODEL",
        synonyms: &["QM"],
        verbs: DEFINABLE,
        doc: "A template for dynamic queues and for queues that auto_define creates.",
    },
    ObjectEntry {
        object: Object::Queue,
        name: "QUEUE",
        synonyms: &["Q"],
        verbs: &[Verb::Display],
        doc: "Queues of all types.",
    },
    ObjectEntry {
        object: Object::QueueManager,
        name: "QMGR",
        synonyms: &[],
        verbs: &[Verb::Alter, Verb::Display],
        doc: "The queue manager itself. It takes no name.",
    },
    ObjectEntry {
        object: Object::QueueStatus,
        name: "QSTATUS",
        synonyms: &["QS"],
        verbs: &[Verb::Display],
        doc: "Status of a local queue. TYPE(HANDLE): the connections that have it open.",
    },
    ObjectEntry {
        object: Object::Connection,
        name: "CONN",
        synonyms: &[],
        verbs: &[Verb::Display, Verb::Stop],
        doc: "Connections of clients. TYPE(HANDLE): the queues that they have open.",
    },
    ObjectEntry {
        object: Object::Handle,
        name: "HANDLE",
        synonyms: &[],
        verbs: NOTHING,
        doc: "A queue that a connection has open. DISPLAY QSTATUS(queue) TYPE(HANDLE) shows those of \
              a queue, DISPLAY CONN(number) TYPE(HANDLE) those of a connection.",
    },
];

/// A row that can be given in DEFINE and ALTER.
const fn set(
    id: Id,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    set_on: &'static [Object],
    doc: &'static str,
) -> Attribute {
    Attribute { id, name, synonyms: &[], kind, default, set_on, shown_on: NONE, doc }
}

/// A row that can only be shown.
const fn shown(
    id: Id,
    name: &'static str,
    kind: Kind,
    shown_on: &'static [Object],
    doc: &'static str,
) -> Attribute {
    Attribute { id, name, synonyms: &[], kind, default: "", set_on: NONE, shown_on, doc }
}

/// All attributes, in the order in which DISPLAY shows them.
#[rustfmt::skip]
pub const ATTRIBUTES: &[Attribute] = &[
    shown(Id::QueueType, "TYPE", Kind::Choice(&["QLOCAL", "QALIAS", "QMODEL"]), QUEUES,
        "Type of the queue."),
    shown(Id::AlteredDate, "ALTDATE", STAMP, QUEUES, "Date of the last change, UTC."),
    shown(Id::AlteredTime, "ALTTIME", STAMP, QUEUES, "Time of the last change, UTC."),
    set(Id::BackoutQueue, "BOQNAME", Kind::Name, "", LOCAL_MODEL,
        "Queue for messages backed out BOTHRESH times; empty = the dead-letter queue."),
    set(Id::BackoutThreshold, "BOTHRESH",
        Kind::Number { min: 0, max: BACKOUT_THRESHOLD_MAX, unit: "" }, "0", LOCAL_MODEL,
        "Number of backouts after which a message is moved to BOQNAME; 0 = never."),
    shown(Id::CreatedDate, "CRDATE", STAMP, LOCAL, "Date of the definition, UTC."),
    shown(Id::CreatedTime, "CRTIME", STAMP, LOCAL, "Time of the definition, UTC."),
    Attribute {
        shown_on: &[Object::Local, Object::QueueStatus],
        ..shown(Id::Depth, "CURDEPTH", COUNT, LOCAL, "Messages in the queue.")
    },
    set(Id::DefaultPersistence, "DEFPSIST", Kind::Choice(&["YES", "NO"]), "NO", QUEUES,
        "Whether a message is persistent if its producer does not set it."),
    set(Id::DefaultPriority, "DEFPRTY", Kind::Number { min: 0, max: 9, unit: "" }, "4", QUEUES,
        "Priority of a message if its producer does not set it."),
    set(Id::DefaultInput, "DEFSOPT", Kind::Choice(&["SHARED", "EXCL"]), "SHARED", LOCAL_MODEL,
        "How a consumer opens the queue by default: shared, or exclusively."),
    Attribute {
        shown_on: LOCAL,
        ..set(Id::DefinitionType, "DEFTYPE",
            Kind::Choice(&["TEMPDYN", "PERMDYN", "PREDEFINED"]), "TEMPDYN", &[Object::Model],
            "QMODEL: whether its dynamic queues end with their connection (TEMPDYN) or stay \
             (PERMDYN). QLOCAL: how it was made.")
    },
    set(Id::Description, "DESCR", Kind::Text { characters_max: DESCRIPTION_CHARACTERS_MAX }, "",
        &[Object::Local, Object::Alias, Object::Model, Object::QueueManager],
        "Description."),
    set(Id::Get, "GET", INHIBIT, "ENABLED", QUEUES, "Whether messages may be got."),
    Attribute {
        shown_on: &[Object::Local, Object::QueueStatus],
        ..shown(Id::Consumers, "IPPROCS", COUNT, LOCAL, "Number of opens for input.")
    },
    set(Id::DepthMax, "MAXDEPTH",
        Kind::Number { min: 0, max: limits::QUEUE_DEPTH_MAX, unit: "messages" }, "999999999",
        LOCAL_MODEL, "Maximum number of messages."),
    set(Id::MessageBytesMax, "MAXMSGL",
        Kind::Number { min: 0, max: limits::MESSAGE_BYTES_MAX, unit: "bytes" }, "104857600",
        &[Object::Local, Object::Model, Object::QueueManager],
        "Maximum body, plus header and properties beyond 64 KiB; the smaller value of queue and \
         queue manager applies."),
    set(Id::Sequence, "MSGDLVSQ", Kind::Choice(&["PRIORITY", "FIFO"]), "PRIORITY", LOCAL_MODEL,
        "Whether messages of higher priority are delivered first."),
    Attribute {
        shown_on: &[Object::Local, Object::QueueStatus],
        ..shown(Id::Producers, "OPPROCS", COUNT, LOCAL, "Number of opens for output.")
    },
    set(Id::Put, "PUT", INHIBIT, "ENABLED", QUEUES, "Whether messages may be put."),
    set(Id::Share, "SHARE", Kind::Flag, "SHARE", LOCAL_MODEL,
        "Whether several consumers may open it."),
    Attribute {
        synonyms: &["TARGQ"],
        ..set(Id::Target, "TARGET", Kind::Name, "", &[Object::Alias],
            "The local queue of the alias.")
    },
    shown(Id::QueueManagerName, "QMNAME", SHOWN_TEXT, QUEUE_MANAGER, "Name of the queue manager."),
    set(Id::DeadLetterQueue, "DEADQ", Kind::Name, "", QUEUE_MANAGER,
        "The dead-letter queue; empty = none."),
    set(Id::UnitMessagesMax, "MAXUMSGS",
        Kind::Number { min: 1, max: UNIT_MESSAGES_MAX, unit: "messages" }, "10000", QUEUE_MANAGER,
        "Maximum messages put and got in one unit of work."),
    shown(Id::Version, "VERSION", SHOWN_TEXT, QUEUE_MANAGER, "Version of Towline."),
    shown(Id::LastGetDate, "LGETDATE", STAMP, STATUS, "Date of the last get since start, UTC."),
    shown(Id::LastGetTime, "LGETTIME", STAMP, STATUS, "Time of the last get since start, UTC."),
    shown(Id::LastPutDate, "LPUTDATE", STAMP, STATUS, "Date of the last put since start, UTC."),
    shown(Id::LastPutTime, "LPUTTIME", STAMP, STATUS, "Time of the last put since start, UTC."),
    shown(Id::OldestAge, "MSGAGE", Kind::Number { min: 0, max: u64::MAX, unit: "seconds" }, STATUS,
        "Age of the oldest message."),
    shown(Id::Uncommitted, "UNCOM", COUNT, STATUS,
        "Puts and gets that are not committed or settled yet."),
    shown(Id::Puts, "PUTS", COUNT, STATUS,
        "Messages put since the queue was defined; kept over a restart."),
    shown(Id::Gets, "GETS", COUNT, STATUS,
        "Messages got since the queue was defined; kept over a restart."),
    shown(Id::Damaged, "DAMAGED", COUNT, STATUS,
        "Messages found unreadable since start (not in IBM MQ)."),
    shown(Id::Container, "APPLTAG", SHOWN_TEXT, CONNECTION_HANDLE,
        "Container id of the client."),
    shown(Id::Address, "CONNAME", SHOWN_TEXT, CONNECTION_HANDLE,
        "Address of the client."),
    shown(Id::Sessions, "SESSIONS", COUNT, CONNECTION, "Sessions that are open."),
    shown(Id::Links, "LINKS", COUNT, CONNECTION, "Links that are attached."),
    shown(Id::Units, "UNITS", COUNT, CONNECTION, "Units of work that are open."),
    shown(Id::User, "USERID", SHOWN_TEXT, CONNECTION_HANDLE,
        "User that logged in; empty = anonymous."),
    shown(Id::OpenInput, "INPUT", Kind::Choice(&["SHARED", "EXCL", "NO"]), HANDLE,
        "Whether it is open for input."),
    shown(Id::OpenBrowse, "BROWSE", Kind::Choice(&["YES", "NO"]), HANDLE,
        "Whether it is open for browsing."),
    shown(Id::OpenOutput, "OUTPUT", Kind::Choice(&["YES", "NO"]), HANDLE,
        "Whether it is open for output."),
];
