//! What callers ask for and what a decision yields: the vocabulary between `node` and the rules.
//!
//! No logic beyond small constructors. A [`Decision`] is owned and reused by the caller; every
//! deciding call expects it empty of facts (`facts` drained) and fills it anew.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use towline_types::limits;

use crate::fact::{Durability, Fact};
use crate::message::{Body, DeadLetter, Header};
use crate::principal::Principal;
use crate::{ConnectionId, ConsumerId, MessageSequence, QueueId, UnitId};

/// Bounds and policies of the whole queue manager that do not depend on one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// MAXUMSGS: puts and gets in one unit of work.
    pub unit_messages_max: u32,
    /// Bytes put in one unit of work, in memory and in the log.
    pub unit_bytes_max: u64,
    /// Bytes of persistent bodies that one unit of work keeps in memory.
    pub unit_staged_bytes_max: u64,
    /// An open unit of work older than this is rolled back.
    pub unit_age_max: Duration,
    /// Open units of work of one connection.
    pub units_per_connection_max: usize,
    /// Puts of all open units of work of one connection; MAXUMSGS if that is more.
    pub staged_puts_max: u64,
    /// Bytes of the bodies of all non-persistent messages, and what all open units of work keep in
    /// memory, together.
    pub memory_bytes_max: u64,
    /// MAXMSGL of the queue manager, in bytes; a queue's own MAXMSGL may be lower.
    pub message_bytes_max: u64,
    /// Expired messages go to the dead-letter queue instead of being discarded.
    pub expired_to_dead_letter: bool,
    /// DEADQ; empty: none.
    pub dead_letter_queue: String,
    /// Queues that are defined on their first use.
    pub auto_define: Vec<AutoDefine>,
    /// Time between two scans for expired messages that no consumer tried to get.
    pub expiry_scan_interval: Duration,
    /// Length of the log's extents.
    pub extent_bytes: u64,
    /// Memory for the indexes of all queues together; what is beyond it is kept on pages. At least
    /// 64 blocks of 19 KiB are kept in any case.
    pub index_bytes_max: u64,
    /// Messages of one unit of work, or of one consumer, that come back to their queues in one
    /// step; more come back in slices.
    pub returned_at_once_max: usize,
    /// Messages of one unit of work that are committed in one step; more are committed in parts.
    pub committed_at_once_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            unit_messages_max: limits::UNIT_MESSAGES_DEFAULT,
            unit_bytes_max: limits::UNIT_BYTES_DEFAULT,
            unit_staged_bytes_max: limits::UNIT_STAGED_BYTES_MAX,
            unit_age_max: limits::UNIT_AGE_DEFAULT,
            units_per_connection_max: limits::UNITS_PER_CONNECTION_MAX,
            staged_puts_max: limits::CONNECTION_STAGED_PUTS_MAX,
            memory_bytes_max: 1024 * 1024 * 1024,
            message_bytes_max: limits::MESSAGE_BYTES_DEFAULT,
            expired_to_dead_letter: false,
            dead_letter_queue: String::new(),
            auto_define: Vec::new(),
            expiry_scan_interval: Duration::from_secs(300),
            extent_bytes: limits::EXTENT_BYTES_DEFAULT,
            index_bytes_max: limits::INDEX_BYTES_DEFAULT,
            returned_at_once_max: limits::RETURNED_AT_ONCE_MAX,
            committed_at_once_max: limits::COMMITTED_AT_ONCE_MAX,
        }
    }
}

/// One rule of automatic definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoDefine {
    /// A name, or a generic name that ends in `*`.
    pub pattern: String,
    /// The QMODEL that the queue gets its attributes from; empty: the defaults of QLOCAL.
    pub model: String,
}

/// What one deciding call yields.
#[derive(Debug)]
pub struct Decision {
    /// One run. The first `logged` facts go to the log, as one atomic run, in this order (none when
    /// `durability` is `Memory`); then **all** of them are applied, in this order, together.
    pub facts: Vec<Fact>,
    /// How many facts, from the front, go to the log. The rest concerns non-persistent messages.
    pub logged: usize,
    /// How to treat the run.
    pub durability: Durability,
    /// With `Durability::Memory`: apply only behind everything that is on its way to the log or
    /// waiting behind it. Otherwise order within a queue would break. Meaningless for other runs.
    pub behind: bool,
    /// On behalf of which principal a command is decided that no connection stands behind: one of
    /// an administrator may outlive its connection. The caller says it; a decision keeps it, and is
    /// anonymous when none was said. For
    /// requests of a connection see [`QueueManager::principal`](crate::QueueManager::principal).
    pub principal: Principal,
    /// The log takes nothing of this instance: see `crate::region`.
    is_closed: bool,
}

impl Default for Decision {
    fn default() -> Decision {
        Decision {
            facts: Vec::new(),
            logged: 0,
            durability: Durability::Memory,
            behind: false,
            principal: Principal::default(),
            is_closed: false,
        }
    }
}

impl Decision {
    /// A decision about a command of this principal.
    #[must_use]
    pub fn on_behalf_of(principal: Principal) -> Decision {
        Decision { principal, ..Decision::default() }
    }

    /// Forgets everything but the allocation and the principal.
    pub fn clear(&mut self) {
        self.facts.clear();
        self.logged = 0;
        self.durability = Durability::Memory;
        self.behind = false;
        self.is_closed = false;
    }

    /// Every deciding call starts with this.
    ///
    /// # Panics
    /// When the facts of the call before were not taken: they would be lost.
    pub(crate) fn begin(&mut self, is_closed: bool) {
        assert!(self.facts.is_empty(), "the facts of an earlier decision were not carried out");
        self.clear();
        self.is_closed = is_closed;
    }

    /// Whether nothing may be added to it for the log.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// It decides that the log is open.
    pub(crate) fn open(&mut self) {
        self.is_closed = false;
    }

    /// Adds a fact for the log. All of these come before the first of [`Decision::push_memory`].
    pub(crate) fn push_logged(&mut self, fact: Fact, durability: Durability) {
        assert_eq!(self.logged, self.facts.len(), "a logged fact behind an unlogged one");
        assert_ne!(durability, Durability::Memory, "a logged fact needs the log");
        assert!(!self.is_closed, "nothing is decided while another group is live");
        self.facts.push(fact);
        self.logged = self.facts.len();
        self.durability = self.durability.max(durability);
    }

    /// Adds a fact that is only applied.
    pub(crate) fn push_memory(&mut self, fact: Fact) {
        self.facts.push(fact);
    }
}

/// An open way to put messages on a queue. Give it back with `close_put`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutTarget {
    /// The connection that opened it.
    pub connection: ConnectionId,
    /// The local queue at the end of the path.
    pub queue: QueueId,
    /// Its name.
    pub name: String,
    /// MAXMSGL that counts for this target at the time of opening, in bytes.
    pub message_bytes_max: u64,
    /// The alias through which it was opened, if any: its PUT, DEFPSIST and DEFPRTY count.
    pub alias: Option<String>,
}

/// What a consumer does with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerMode {
    /// Takes them (AMQP distribution mode `move`).
    Consume,
    /// Looks at them; they stay (AMQP distribution mode `copy`).
    Browse,
}

/// What MOVE QLOCAL did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Messages that go to the other queue.
    pub moved: u64,
    /// Messages that stay and are not locked.
    pub left: u64,
}

/// How a consumer is to be opened.
#[derive(Clone, Debug)]
pub struct ConsumerSpec {
    /// Name of a queue or alias.
    pub queue: String,
    /// Take or look.
    pub mode: ConsumerMode,
    /// Which messages; `None`: all.
    pub filter: Option<Arc<Filter>>,
    /// Exclusive input; `None`: as DEFSOPT says. Meaningless for a browser.
    pub exclusive: Option<bool>,
}

/// Which messages a consumer wants.
#[derive(Clone)]
pub struct Filter {
    /// When set, only messages of this key can match: they are found by index, not by a scan.
    pub key: Option<FilterKey>,
    /// The whole condition, evaluated by [`Selection::matches`] (the rules never look inside).
    pub condition: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Filter").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A key of a message, hashed as in its [`Header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterKey {
    /// [`Header::correlation_hash`].
    Correlation(u64),
    /// [`Header::message_id_hash`].
    MessageId(u64),
}

/// A message that a filter is asked about.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// In which queue.
    pub queue: QueueId,
    /// Its sequence.
    pub sequence: MessageSequence,
    /// What the rules know of it.
    pub header: Header,
    /// Where its content is.
    pub body: &'a Body,
    /// See [`crate::Message::backout_count`].
    pub backout_count: u32,
    /// See [`crate::Message::dead_letter`].
    pub dead_letter: Option<&'a DeadLetter>,
}

/// Whether a message passes a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Its content is not at hand: an [`crate::Effect::Fetch`] asks for it, and the question comes
    /// again after `content_arrived`.
    NeedContent,
}

/// Evaluates filters; implemented by the layer that can read content.
pub trait Selection {
    /// Does this message pass this filter? Must give the same answer each time (`NeedContent`
    /// aside).
    fn matches(&mut self, filter: &Filter, candidate: &Candidate<'_>) -> Match;

    /// What the last answer cost beyond one look: long values take longer to look at.
    fn further_looks(&self) -> u32 {
        0
    }
}

/// How a consumer settles a delivery (AMQP 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done with it.
    Accepted,
    /// Not wanted: available again, no backout counted.
    Released,
    /// Invalid: to the dead-letter queue; without a usable one available again, a backout counted,
    /// and not to this consumer again.
    Rejected,
    /// Available again.
    Modified {
        /// Count a backout.
        failed: bool,
        /// Not to this consumer again: others may have it.
        undeliverable_here: bool,
    },
}

/// One delivery's settlement.
#[derive(Clone, Copy, Debug)]
pub struct Settlement {
    /// The consumer that received the delivery.
    pub consumer: ConsumerId,
    /// Which.
    pub sequence: MessageSequence,
    /// How.
    pub outcome: Outcome,
    /// Takes effect when this unit of work commits; `None`: now.
    pub unit: Option<UnitId>,
    /// The consumer has forgotten the delivery (AMQP 2.6.12): after a rollback it goes back to the
    /// queue; one that is not settled stays with its consumer (4.4.2).
    pub settled: bool,
    /// A client waits until it is durable (the client's settlement is to be confirmed).
    pub reply_wanted: bool,
}
