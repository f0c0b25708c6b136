//! Why the rules say no. Each refusal maps to one AMQP error condition (in `node`) and one message
//! id.

use std::fmt;

use towline_types::limits;

/// The caller may not. Texts say what was wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say what the text of the refusal shows")]
pub enum Refusal {
    /// No object of that name, for a producer or consumer.
    UnknownQueue(String),
    /// The same, and there is one with the same name but for upper and lower case.
    UnknownQueueButCase { queue: String, there: String },
    /// The queue is to be defined on its first use, of a model that does not exist.
    UnknownModel { queue: String, model: String },
    /// No object of that name, for a command.
    UnknownObject { expected: &'static str, name: String, there: Option<String> },
    /// The name is empty, too long, or has a control character.
    BadName(String),
    /// An alias with a target that does not exist, or an alias of an alias.
    BadAlias(String),
    /// PUT(DISABLED).
    PutInhibited(String),
    /// GET(DISABLED).
    GetInhibited(String),
    /// MAXDEPTH reached.
    QueueFull { queue: String, depth_max: u64 },
    /// Longer than MAXMSGL of the queue; without a name: of the queue manager.
    MessageTooLong { queue: Option<String>, bytes: u64, bytes_max: u64 },
    /// The queue is open for exclusive input, or is NOSHARE and in use.
    QueueInUse(String),
    /// A temporary queue: only the connection that made it may consume from it.
    BelongsToOther(String),
    /// Too many messages in one unit of work (MAXUMSGS).
    UnitTooManyMessages { messages_max: u32 },
    /// Too many puts in all open units of work of the connection.
    UnitsTooManyPuts { puts_max: u64 },
    /// Too many bytes in one unit of work.
    UnitTooLarge { bytes_max: u64 },
    /// The unit of work was open for too long.
    UnitTooOld { seconds_max: u64 },
    /// The recovery log was nearly full, and the unit of work held its oldest position.
    UnitHeldLog { percent: u64 },
    /// No open unit of work of that id on this connection.
    UnknownUnit,
    /// A put or a settlement inside the unit of work was refused, or found no delivery.
    UnitDoomed,
    /// Too many open units of work on this connection.
    TooManyUnits { units_max: usize },
    /// The object exists already (DEFINE without REPLACE).
    AlreadyExists(String),
    /// The object is of another type.
    WrongType { name: String, expected: &'static str },
    /// DELETE or CLEAR of a queue that is open.
    ObjectOpen(String),
    /// DELETE without PURGE of a queue that holds messages.
    NotEmpty { queue: String, depth: u64 },
    /// CLEAR of a queue with uncommitted messages.
    Uncommitted(String),
    /// An attribute out of its range.
    BadAttribute { attribute: &'static str, why: String },
    /// Memory for non-persistent messages is used up.
    MemoryFull { bytes_max: u64 },
    /// The recovery log has no free space for new messages (gets still work).
    LogFull,
    /// The queue manager is ending.
    Ending,
    /// Another group is live, in another region: nothing is decided here.
    NotLive { live: String },
    /// The group is fenced: it serves nobody.
    Fenced { why: String },
    /// No history can begin.
    NoHistory { why: String },
    /// The caller lacks the authority for it.
    NotAuthorized(String),
    /// The object was deleted while it was open.
    Deleted(String),
    /// A message cannot be read from the log.
    MessageDamaged { queue: String, place: String, moved: bool },
}

fn write_bad_name(out: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(out, "'{name}' is not a valid name: 1 to 255 characters, no control characters")
}

fn write_too_long(
    out: &mut fmt::Formatter<'_>,
    queue: Option<&str>,
    bytes: u64,
    bytes_max: u64,
) -> fmt::Result {
    let most = limits::MESSAGE_BYTES_MAX;
    match queue {
        Some(queue) => write!(
            out,
            "message of {bytes} bytes is longer than MAXMSGL({bytes_max}) of queue '{queue}'; raise \
             it (ALTER QLOCAL('{queue}') MAXMSGL, at most {most}), or send it in parts"
        ),
        None => write!(
            out,
            "message of {bytes} bytes is longer than maxmsgl = {bytes_max} of the queue manager; \
             raise it (queue_manager.maxmsgl, at most {most}), or send it in parts"
        ),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Refusal as R;
        match self {
            R::UnknownQueue(name) => write!(
                out,
                "queue '{name}' does not exist; define it with DEFINE QLOCAL('{name}'), \
                 or set auto_define"
            ),
            R::UnknownQueueButCase { .. } | R::UnknownModel { .. } | R::UnknownObject { .. } => {
                self.write_unknown(out)
            }
            R::BadName(name) => write_bad_name(out, name),
            R::BadAlias(name) => {
                write!(out, "the TARGET of alias '{name}' is not a local queue; correct it")
            }
            R::PutInhibited(name) => write_inhibited(out, "put", "PUT", name),
            R::GetInhibited(name) => write_inhibited(out, "get", "GET", name),
            R::QueueFull { queue, depth_max } => write!(
                out,
                "queue '{queue}' holds MAXDEPTH({depth_max}) messages; get some, or raise MAXDEPTH"
            ),
            R::MessageTooLong { queue, bytes, bytes_max } => {
                write_too_long(out, queue.as_deref(), *bytes, *bytes_max)
            }
            R::QueueInUse(name) => write!(out, "queue '{name}' is in use by an exclusive consumer"),
            R::BelongsToOther(name) => write!(
                out,
                "temporary queue '{name}' belongs to another connection; only that one may consume"
            ),
            R::UnitTooManyMessages { .. }
            | R::UnitsTooManyPuts { .. }
            | R::UnitTooLarge { .. }
            | R::UnitTooOld { .. }
            | R::UnitHeldLog { .. }
            | R::UnknownUnit
            | R::UnitDoomed
            | R::TooManyUnits { .. } => self.write_unit(out),
            R::AlreadyExists(name) => {
                write!(out, "object '{name}' exists already; use REPLACE to change it")
            }
            R::WrongType { name, expected } => write!(out, "object '{name}' is not a {expected}"),
            R::ObjectOpen(name) => {
                write!(out, "object '{name}' is open; close its producers and consumers first")
            }
            R::NotEmpty { queue, depth } => {
                write!(out, "queue '{queue}' holds {depth} messages; use PURGE to delete them too")
            }
            R::Uncommitted(name) => write!(
                out,
                "queue '{name}' has uncommitted messages; wait for their units of work to end"
            ),
            R::BadAttribute { attribute, why } => write!(out, "{attribute}: {why}"),
            R::MemoryFull { bytes_max } => write!(
                out,
                "non-persistent messages and open units of work fill {bytes_max} bytes of memory; \
                 get some, commit, or raise memory_bytes_max"
            ),
            R::LogFull => write!(
                out,
                "the recovery log has no space for new messages; get some, free disk space, or raise log_bytes_max"
            ),
            R::Ending => write!(out, "the queue manager is ending: try again when it runs"),
            R::NotLive { .. } | R::Fenced { .. } | R::NoHistory { .. } => self.write_region(out),
            R::NotAuthorized(what) => write!(out, "not authorized: {what}"),
            R::Deleted(name) => write!(out, "object '{name}' was deleted"),
            R::MessageDamaged { queue, place, moved } => write_damaged(out, queue, place, *moved),
        }
    }
}

fn write_inhibited(
    out: &mut fmt::Formatter<'_>,
    what: &str,
    attribute: &str,
    name: &str,
) -> fmt::Result {
    write!(
        out,
        "{what} is disabled for queue '{name}'; ALTER QLOCAL('{name}') {attribute}(ENABLED) allows it"
    )
}

fn write_damaged(
    out: &mut fmt::Formatter<'_>,
    queue: &str,
    place: &str,
    moved: bool,
) -> fmt::Result {
    let advice = match moved {
        true => "it was moved to the dead-letter queue",
        false => "name a dead-letter queue that can take it (ALTER QMGR DEADQ)",
    };
    write!(
        out,
        "a message of queue '{queue}' cannot be read: {place}; {advice}; see the guide damaged-log"
    )
}

impl Refusal {
    /// The text of a refusal that concerns a name which is not there.
    fn write_unknown(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnknownQueueButCase { queue, there } => {
                write!(out, "queue '{queue}' does not exist; did you mean '{there}'?")
            }
            Refusal::UnknownModel { queue, model } => write!(
                out,
                "queue '{queue}' cannot be defined on its first use: model '{model}' of its rule \
                 auto_define does not exist; define it with DEFINE QMODEL('{model}')"
            ),
            Refusal::UnknownObject { expected, name, there } => match there {
                Some(there) => {
                    write!(out, "{expected} '{name}' does not exist; did you mean '{there}'?")
                }
                None => write!(
                    out,
                    "{expected} '{name}' does not exist; DISPLAY QUEUE(*) shows those that do"
                ),
            },
            // Nothing else comes here.
            _ => write!(out, "there is no such object"),
        }
    }

    /// The text of a refusal that concerns two regions.
    fn write_region(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotLive { live } => write!(
                out,
                "group '{live}' is live, in another region: connect to its instances, or make this \
                 region live first"
            ),
            Refusal::Fenced { why } => out.write_str(why),
            Refusal::NoHistory { why } => write!(out, "no history can begin: {why}"),
            // Nothing else comes here.
            _ => write!(out, "another region is live"),
        }
    }

    /// The text of a refusal that concerns units of work.
    fn write_unit(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnitTooManyMessages { messages_max } => write!(
                out,
                "more than {messages_max} messages in one unit of work; commit more often, \
                 or raise MAXUMSGS"
            ),
            Refusal::UnitsTooManyPuts { puts_max } => write!(
                out,
                "more than {puts_max} messages put in the open units of work of this connection; \
                 commit or roll back some"
            ),
            Refusal::UnitTooLarge { bytes_max } => write!(
                out,
                "more than {bytes_max} bytes in one unit of work; commit more often, \
                 or raise unit_bytes_max"
            ),
            Refusal::UnitTooOld { seconds_max } => write!(
                out,
                "unit of work was open for more than {seconds_max} s and was rolled back"
            ),
            Refusal::UnitHeldLog { percent } => write!(
                out,
                "unit of work was rolled back because the recovery log is {percent} % full; \
                 commit more often, or raise log_bytes_max"
            ),
            Refusal::TooManyUnits { units_max } => {
                write!(out, "more than {units_max} units of work open on this connection")
            }
            Refusal::UnitDoomed => {
                let text = "a message or an outcome of this unit of work was refused or lost; \
                            it was rolled back";
                write!(out, "{text}")
            }
            // `UnknownUnit`; nothing else comes here.
            _ => write!(out, "no such unit of work is open on this connection"),
        }
    }
}

impl std::error::Error for Refusal {}
