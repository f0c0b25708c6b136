//! One instance's part in the group.
//!
//! Its driver passes it messages, ticks and the progress of its own log, and carries out each
//! [`Output`] in this order: make `hard_state` durable; give `receive` to the log (what conflicts
//! is cut off first) or make it `lead`; only then `send`. What is `committed` may be applied: it is
//! on this member's disk and on those of a majority.
//!
//! Not here: what is in batches; how a copy is made; when a leader serves clients (when the first
//! batch of its term is committed).
//!
//! Invariants: what a follower acknowledges is durable; no message about a vote is sent before the
//! vote is durable; the library's log and the log on disk have the same batches at the same
//! positions; a member that may have forgotten what it acknowledged neither votes nor asks for
//! votes; one that may have forgotten in which term it did so says nothing before it has learned
//! that (`newest_term`); one that starts says nothing before it has heard what the others know of
//! it (`meeting`).

mod input;
mod leader_commit;
mod meeting;
mod missing_extents;
mod newest_term;
mod out;
mod overtaken;
mod promotion;
mod recovery;
mod relay;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use raft::eraftpb::{Entry, HardState as RaftHardState, Message as RaftMessage, MessageType};
use raft::{Config, Progress as RaftProgress, ProgressState, RawNode, SnapshotStatus, StateRole};
use towline_types::{Batch, BatchPlace, Lsn, Time};

use crate::election::Election;
use crate::hard_state::HardState;
use crate::member_id::MemberId;
use crate::mode::Mode;
use crate::payloads::Payloads;
use crate::store::{FetchRequest, Store};
use crate::table::Table;
use crate::wire::{Message, WireError, lsn_of};
use crate::{Shipment, ShippedAnswer};
use meeting::{HeardPromise, Meeting};

pub use meeting::Witness;

/// Bytes of batches in one message, unless a single one is longer.
const MESSAGE_BYTES_MAX: u64 = 512 * 1024;
/// Messages with batches that a follower has not answered.
const MESSAGES_IN_FLIGHT_MAX: usize = 64;
/// Bytes of newest payloads in memory.
const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Batches read at once for a member that lags.
const FETCH_BATCHES_MAX: u64 = 1_024;
/// Bytes of them, unless a single one is longer; a part of what is kept of what was read.
const FETCH_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What a member must know from the beginning.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its own name.
    pub id: MemberId,
    /// All members, itself included: an odd number of them, three or one.
    pub voters: Vec<MemberId>,
    /// Time between ticks.
    pub tick: Duration,
    /// HeartbeatInterval: the leader shows itself so often when nothing else does.
    pub heartbeat_interval: Duration,
    /// HeartbeatTimeout: a member that hears nothing for so long takes the leader for gone; and a
    /// leader that does not hear a majority gives up.
    pub heartbeat_timeout: Duration,
    /// Of the pauses before elections.
    pub seed: u64,
    /// Whether it is silent until it has met the others: see `meeting`. Not so for one that
    /// re-executed itself.
    pub meets_first: bool,
    /// Whether its log lacks a part before its image that other members have: see `lacking`.
    pub lacks_batches: bool,
}

/// What the log of a member holds when it starts.
#[derive(Clone, Debug, Default)]
pub struct RecoveredLog {
    /// The last batch of which only the position is known.
    pub base: BatchPlace,
    /// The batches behind it; all are durable.
    pub places: Vec<BatchPlace>,
    /// Up to this index the driver has taken them for committed, and applied them.
    pub applied: u64,
}

impl RecoveredLog {
    /// The newest batch.
    #[must_use]
    pub fn last(&self) -> BatchPlace {
        self.places.last().copied().unwrap_or(self.base)
    }

    /// Whether the log still has the batch that was noted as committed. When not, it is not the log
    /// for which the note was made, or an older copy of it: what it acknowledged may be gone, and
    /// what stands in it behind its image may never have been committed.
    #[must_use]
    pub fn has(&self, noted: &HardState) -> bool {
        if noted.committed <= self.base.index {
            return true;
        }
        let places = &self.places;
        let at = places.binary_search_by_key(&noted.committed, |place| place.index);
        let place = at.ok().and_then(|at| places.get(at));
        place.is_some_and(|place| place.end == noted.committed_end)
    }
}

/// What a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Takes what the leader sends.
    #[default]
    Follower,
    /// Asks for votes.
    Candidate,
    /// Decides what comes next.
    Leader,
}

/// What wakes a member.
#[derive(Debug)]
pub enum Input {
    /// [`Options::tick`] passed.
    Tick,
    /// A member says something.
    Message(Message),
    /// A connection to a member stands, and was opened since this process began; what the member
    /// said of itself with it.
    PeerOpened {
        /// Which.
        peer: MemberId,
        /// The newest index of its log.
        last_index: u64,
        /// Its term, which was durable when it said so.
        term: u64,
    },
    /// The connection from a member ended: its process may be gone.
    PeerClosed(MemberId),
    /// The log closed a batch that this leader made.
    Left(Batch),
    /// Answer to [`Output::lead`]: the first batch of the term is there.
    Leading(BatchPlace),
    /// The log is durable up to here. Read at the time of the call, never remembered: positions are
    /// used again when a log is cut.
    Durable(Lsn),
    /// Answer to a [`FetchOrder`]; what could not be read is left out.
    Fetched(u64, Vec<Batch>),
    /// Hand leadership over.
    Transfer(MemberId),
    /// All members are blank: the group begins.
    Form,
    /// Up to this batch all is committed and no run is unfinished: kept with the next
    /// [`HardState`].
    Seam(BatchPlace),
    /// Batches that end at or before this position need not be known any more.
    Forget(Lsn),
    /// The live group of another region ships this to a recovery member, which relays it. Each is
    /// answered with [`Output::shipped`].
    Shipped(Shipment),
    /// The connection to the live group ended: this member relays no more.
    ShippingEnded,
    /// An administrator promotes this recovery group: this member marks itself, and then takes part
    /// in elections. To be said to each member; the mark alone is no promotion.
    Promote {
        /// Id of the history that begins; the same for all members.
        history: [u8; 16],
        /// Whether it asks for votes at once.
        stands: bool,
    },
    /// The batch at this position is applied, and says which part this group has from there on. To
    /// be said before any later batch is applied; after [`Output::begins_again`], or on a leader
    /// that becomes a recovery member, none is applied any more.
    Become {
        /// Voting or recovery.
        mode: Mode,
        /// Id of the history that begins with, or behind, that batch.
        history: [u8; 16],
        /// The batch.
        at: BatchPlace,
    },
}

/// Batches to be read for a member that lags; answered by [`Input::Fetched`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOrder {
    /// Comes back.
    pub id: u64,
    /// Which.
    pub places: Vec<BatchPlace>,
}

/// What one step wants done; see the module for the order.
#[derive(Debug, Default)]
pub struct Output {
    /// To be made durable first.
    pub hard_state: Option<HardState>,
    /// Batches for the log. They may begin before its end: then what is there from the first one's
    /// index on is cut off.
    pub receive: Vec<Batch>,
    /// Leadership of this term begins: make the log lead, then answer with [`Input::Leading`].
    pub lead: Option<u64>,
    /// Messages, in order.
    pub send: Vec<(MemberId, Message)>,
    /// Batches to be read.
    pub fetch: Vec<FetchOrder>,
    /// The role changed. A former leader must forget all that it decided.
    pub role: Option<Role>,
    /// This member lags so far behind that it needs a copy from the leader. Said again now and then
    /// while it answers and still needs one.
    pub copy_from: Option<MemberId>,
    /// To the live group that ships to this member: how far this group is. The newest counts.
    pub shipped: Option<ShippedAnswer>,
    /// This member became a recovery member, and the process restarts from what is on the disk
    /// (with `hard_state`): it led, or what it knows as committed behind the batch that made it so
    /// is void. It takes no input any more.
    pub begins_again: bool,
}

/// What is done when the log is durable up to a batch.
#[derive(Debug)]
struct Awaiting {
    number: u64,
    last: u64,
    messages: Vec<RaftMessage>,
}

/// See the module.
pub struct Member {
    pub(crate) raw: RawNode<Store>,
    pub(crate) peers: Vec<MemberId>,
    pub(crate) role: Role,
    /// Newest index that is durable here.
    pub(crate) durable: u64,
    /// Newest index that is committed and durable here.
    pub(crate) committed: u64,
    options: Options,
    election: Election,
    hard_state: HardState,
    /// The newest term that each of the others sent this process with a connection.
    heard_terms: HashMap<MemberId, u64>,
    /// The newest of the terms that they sent first: before they met this process.
    taken: u64,
    meeting: Meeting,
    /// What each of the others promised this process.
    promised: HashMap<MemberId, HeardPromise>,
    /// What must be durable before this member may vote, once it is known: an index that a leader
    /// said was committed, and the leader's term.
    catch_up_to: Option<(u64, u64)>,
    /// What its leader said of the group.
    leader_commit: leader_commit::LeaderCommit,
    /// A leader's term, and up to where this process acknowledged to it that the logs are the same.
    agreed: (u64, u64),
    awaiting: VecDeque<Awaiting>,
    /// Messages of a new leader that wait for the position of the first batch of its term.
    held: Option<Vec<RaftMessage>>,
    /// Batches of this leader that the library has and that were not taken out of it again.
    proposed: VecDeque<BatchPlace>,
    heard: HashMap<MemberId, Time>,
    /// Members with an ended connection that were not heard since: what they acknowledged may be
    /// gone with their disks.
    pub(crate) gone: HashSet<MemberId>,
    /// What stood in this leader's log when each member's connection last came to stand: until a
    /// member has acknowledged that, it may lack what it acknowledged before.
    pub(crate) opened_at: HashMap<MemberId, u64>,
    /// Since when members need a copy, as far as this leader said so.
    copying: HashMap<MemberId, Time>,
    /// Whether this leader has sent that it has committed a batch of its own term.
    own_commit_sent: bool,
    now: Time,
    /// When it last led, or heard a leader.
    led_at: Time,
    /// What was committed at the last two heartbeats.
    marks: [u64; 2],
    marked_at: Time,
    fetching: Vec<(u64, FetchRequest)>,
    next_fetch: u64,
    /// What a recovery member has; `None` on one that votes, but for one that was away when the
    /// others stopped to.
    recovery: Option<Box<recovery::RecoveryState>>,
    /// It votes, and its log says that another group is live: it was blank when the others were
    /// promoted, and is not marked. It leads none.
    is_behind_other: bool,
    /// The newest index of the log of each of the others, as each said first.
    heard_ends: HashMap<MemberId, u64>,
    /// Since then a leader sends batches from before what is committed here.
    overtaken_since: Option<Time>,
    /// It led the old live group, or knows as committed what is void: it restarts, at the next
    /// tick at the latest, and commits no more.
    ends: bool,
    is_over: bool,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "member {} ({:?}, term {})", self.options.id.0, self.role, self.raw.raft.term)
    }
}

impl Member {
    /// A member that starts now, as a follower. Everything in `held` is durable.
    ///
    /// # Panics
    /// When the library refuses the options: they were checked with the configuration.
    #[must_use]
    pub fn new(options: Options, hard_state: HardState, held: RecoveredLog, now: Time) -> Member {
        let hard_state = hard_state.at_start(&options, &held);
        let table = Table::new(held.base, held.places);
        let base = table.base();
        let last = table.last();
        let committed = held.applied.min(last.index).max(base.index);
        let config = config_of(&options, committed);
        let hard = RaftHardState {
            term: hard_state.term,
            vote: hard_state.vote.map_or(0, |member| member.0),
            commit: committed,
            ..RaftHardState::default()
        };
        let store = Store {
            payloads: Payloads::new(last.index + 1, PAYLOAD_BYTES_MAX),
            table,
            hard,
            voters: options.voters.iter().map(|voter| voter.0).collect(),
            wanted: Default::default(),
        };
        let raw = node(&config, store);
        let peers = options.voters.iter().copied().filter(|voter| *voter != options.id).collect();
        let recovery = (hard_state.mode == Mode::Recovery)
            .then(|| Box::new(recovery::RecoveryState::new(options.seed)));
        Member {
            raw,
            peers,
            role: Role::Follower,
            durable: last.index,
            committed,
            election: Election::new(options.seed ^ options.id.0.rotate_left(32)),
            meeting: Meeting::begun(&options, now),
            promised: HashMap::new(),
            options,
            hard_state,
            heard_terms: HashMap::new(),
            taken: 0,
            catch_up_to: None,
            leader_commit: leader_commit::LeaderCommit::default(),
            agreed: (0, 0),
            awaiting: VecDeque::new(),
            held: None,
            proposed: VecDeque::new(),
            heard: HashMap::new(),
            gone: HashSet::new(),
            opened_at: HashMap::new(),
            copying: HashMap::new(),
            own_commit_sent: false,
            now,
            led_at: now,
            marks: [committed; 2],
            marked_at: now,
            fetching: Vec::new(),
            next_fetch: 0,
            recovery,
            is_behind_other: false,
            heard_ends: HashMap::new(),
            overtaken_since: None,
            ends: false,
            is_over: false,
        }
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.options.id
    }

    /// What must outlive the process, as it is now.
    #[must_use]
    pub fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// The same with the newest batch noted that is committed and durable here.
    #[must_use]
    pub fn noted(&self) -> HardState {
        let newest = self.place(self.committed);
        match newest
            .filter(|place| place.index > self.hard_state.committed && place.end > Lsn::ZERO)
        {
            Some(place) => {
                HardState { committed: place.index, committed_end: place.end, ..self.hard_state }
            }
            None => self.hard_state,
        }
    }

    /// Index of the newest batch that may be applied.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The position of the newest batch that may be applied; all zero while there is none, and on
    /// a leader that does not know the position of its newest batch yet.
    ///
    /// # Panics
    /// When its position was forgotten or its batch cut: neither may happen to a committed batch.
    #[must_use]
    pub fn committed_place(&self) -> BatchPlace {
        match self.place(self.committed) {
            Some(place) => place,
            None => unreachable!("committed batch {} is not in the log", self.committed),
        }
    }

    /// What the library knows of a peer.
    ///
    /// # Panics
    /// When the library does not know it: all members are voters from the start.
    pub(crate) fn raft_progress(&self, peer: MemberId) -> &RaftProgress {
        match self.raw.raft.prs().get(peer.0) {
            Some(progress) => progress,
            None => unreachable!("{peer:?} is a member, and the library does not know it"),
        }
    }

    /// The batches of a message that this member does not have, and the one that they follow in its
    /// log: what it would give to its log if it believed the message. `None`: it would give none.
    ///
    /// # Errors
    /// A batch that this member has too lies elsewhere according to the message.
    pub fn new_batches(
        &self,
        message: &Message,
    ) -> Result<Option<(BatchPlace, Vec<Batch>)>, WireError> {
        let (index, term) = message.behind();
        let Some(mut behind) = self.place(index).filter(|place| place.term == term) else {
            return Ok(None);
        };
        let mut batches = message.batches().peekable();
        while let Some(batch) = batches.peek() {
            match self.place(batch.index) {
                Some(there) if there.term == batch.term => {
                    if there != batch.place() {
                        return Err(WireError("a batch of it lies elsewhere in this log"));
                    }
                    behind = there;
                }
                Some(_) | None => return Ok(Some((behind, batches.collect()))),
            }
            batches.next();
        }
        Ok(None)
    }

    /// The position of a batch, when it is known.
    #[must_use]
    pub fn place(&self, index: u64) -> Option<BatchPlace> {
        self.raw.raft.store().table.place(index)
    }

    /// The newest batch of the log.
    #[must_use]
    pub fn last(&self) -> BatchPlace {
        self.raw.raft.store().table.last()
    }

    /// A batch, when its payload is in memory.
    #[must_use]
    pub fn batch(&self, index: u64) -> Option<Batch> {
        let store = self.raw.raft.store();
        let BatchPlace { index, term, lsn, .. } = store.table.place(index)?;
        Some(Batch { index, term, lsn, payload: store.payloads.get(index)?.clone() })
    }

    /// The leader that this member knows of, itself included; none in recovery, where no member
    /// serves.
    #[must_use]
    pub fn leader(&self) -> Option<MemberId> {
        let leader = MemberId(self.raw.raft.leader_id);
        let is_one = leader.0 != 0 && leader != MemberId::OUTSIDE && self.mode().elects();
        is_one.then_some(leader)
    }

    /// What it is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether it takes part in elections.
    #[must_use]
    pub fn may_vote(&self) -> bool {
        self.hard_state.may_vote
    }

    /// When it wants to be stepped at the latest, if earlier than at the next tick.
    #[must_use]
    pub fn next_try(&self) -> Option<Time> {
        self.election.at()
    }

    /// Whether `peer` was heard within the time-out.
    pub(crate) fn is_heard(&self, peer: MemberId) -> bool {
        let heard = self.heard.get(&peer);
        heard.is_some_and(|heard| self.now.since(*heard) < self.options.heartbeat_timeout)
    }

    /// Whether it leads, or heard its leader within the time-out.
    pub(crate) fn hears_leader(&self) -> bool {
        self.role == Role::Leader || self.leader().is_some_and(|leader| self.is_heard(leader))
    }

    /// Whether it has on its disk all that its leader said is committed, but for what is on its
    /// way.
    pub(crate) fn has_leader_commit(&self) -> bool {
        self.commit_is_of_term() && self.leader_commit.is_reached(self.raw.raft.term, self.durable)
    }

    /// Whether it does not lead, or has a batch of its own term on its disk. Before that its log
    /// does not show that it was elected.
    #[must_use]
    pub fn shows_its_term(&self) -> bool {
        self.role != Role::Leader
            || self.place(self.durable).is_some_and(|place| place.term == self.raw.raft.term)
    }

    /// Whether something of this term is committed here. Before that a new leader does not know,
    /// and so cannot say, how much its predecessor had committed.
    pub(crate) fn commit_is_of_term(&self) -> bool {
        self.committed_place().term == self.raw.raft.term
    }

    /// What was committed one or two heartbeats ago.
    pub(crate) fn committed_before(&self) -> u64 {
        self.marks[0]
    }
}

/// What the library is to know of a member that has applied up to this index.
fn config_of(options: &Options, committed: u64) -> Config {
    let ticks = |time: Duration| {
        let ticks = time.as_micros() / options.tick.as_micros().max(1);
        usize::try_from(ticks).unwrap_or(usize::MAX).max(1)
    };
    let heartbeat_tick = ticks(options.heartbeat_interval);
    Config {
        id: options.id.0,
        election_tick: ticks(options.heartbeat_timeout).max(heartbeat_tick + 1),
        heartbeat_tick,
        applied: committed,
        max_size_per_msg: MESSAGE_BYTES_MAX,
        max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
        check_quorum: true,
        pre_vote: true,
        // The next batch, or the next heartbeat, says that something is committed: a
        // message for it alone would double their number.
        skip_bcast_commit: true,
        // The library never asks for votes by itself, nor draws by chance: see `election`.
        min_election_tick: usize::MAX - 1,
        max_election_tick: usize::MAX,
        ..Config::default()
    }
}

fn node(config: &Config, store: Store) -> RawNode<Store> {
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(config, store, &logger).unwrap_or_else(|error| refused(&error))
}

#[expect(clippy::panic, reason = "options are checked with the configuration")]
fn refused(error: &raft::Error) -> ! {
    panic!("the options of a group were refused: {error}")
}

#[cfg(test)]
mod tests;
