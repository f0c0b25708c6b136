//! Every bound that the product has, by name. A limit that can be configured has its default here.

use std::time::Duration;

/// Longest name of a queue, in bytes of UTF-8.
pub const QUEUE_NAME_BYTES_MAX: usize = 255;
/// Largest value MAXMSGL can take: 100 MiB, as in IBM MQ.
pub const MESSAGE_BYTES_MAX: u64 = 104_857_600;
/// MAXMSGL of a queue and of the queue manager unless defined otherwise: as large as it can be, so
/// that programs of other brokers find no new limit (docs/adr; 4 MiB in IBM MQ).
pub const MESSAGE_BYTES_DEFAULT: u64 = MESSAGE_BYTES_MAX;
/// Sections around a body (annotations, properties, footer) that MAXMSGL does not count.
pub const ENVELOPE_BYTES_MAX: u64 = 64 * 1024;
/// The longest message that any link takes, body and all.
pub const TRANSFER_BYTES_MAX: u64 = MESSAGE_BYTES_MAX + ENVELOPE_BYTES_MAX;
/// Bytes of batches that a relay of a recovery group has sent to another member of it, and that one
/// has not received: one message more may pass it. As much as a leader has in flight.
pub const RELAYED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Connections of the control socket at once. One more closes the connection that has been idle for
/// longest, or is refused while all of them wait for an answer.
pub const CONTROL_CONNECTIONS_MAX: usize = 64;
/// Longest request on the control socket: one line of JSON.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 64 * 1024;
/// A connection of the control socket that sends no complete request for so long is closed.
pub const CONTROL_IDLE_MAX: Duration = Duration::from_secs(600);
/// A client of the control socket that has not read its answer after this is disconnected.
pub const CONTROL_ANSWER_MAX: Duration = Duration::from_secs(30);
/// After this, an answer that its client does not read makes way for another client when all
/// connections of the control socket are in use.
pub const CONTROL_ANSWER_STALLED: Duration = Duration::from_secs(1);
/// Bytes that a rehearsal may write beside the log that it shares: as it is ordered, within these.
pub const REHEARSAL_ROOM_MIN: u64 = 64 * 1024 * 1024;
/// See [`REHEARSAL_ROOM_MIN`].
pub const REHEARSAL_ROOM_MAX: u64 = 1 << 40;
/// Longest administration request.
pub const ADMIN_REQUEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Administration requests of one link that may wait for their answers: they are carried out one
/// after the other, beside the clients, and each may be a long script.
pub const ADMIN_REQUESTS_WAITING_MAX: u32 = 8;
/// Rows of a list of administration that are made under the lock of the instance at once: about a
/// tenth of a millisecond. A list of more is made in pieces, between which clients go on.
pub const ADMIN_ROWS_AT_ONCE_MAX: usize = 256;
/// Largest value MAXDEPTH can take, as in IBM MQ; also its default here (docs/adr).
pub const QUEUE_DEPTH_MAX: u64 = 999_999_999;
/// MAXUMSGS: messages put and got in one unit of work unless configured otherwise, as in IBM MQ.
pub const UNIT_MESSAGES_DEFAULT: u32 = 10_000;
/// Gets that a client settled in a unit of work that is full, or that was rolled back already, and
/// that wait for its end: twice what clients usually ask for ahead. Beyond it the full unit is
/// rolled back, and what is settled in one that was goes back to its queue at once.
pub const LATE_GETS_MAX: usize = 2_048;
/// Bytes put in one unit of work unless configured otherwise. They are on the disk, not in memory.
pub const UNIT_BYTES_DEFAULT: u64 = 4 * 1024 * 1024 * 1024;
/// Persistent bodies of one open unit of work that are kept in memory; beyond it they go to the log
/// ahead of the commit.
pub const UNIT_STAGED_BYTES_MAX: u64 = 1024 * 1024;
/// The same for all open units of work of one connection together, in equal shares. As much again
/// for the message annotations of their outcomes: a unit with more cannot commit.
pub const CONNECTION_STAGED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The part of the memory for messages (one in so many) that persistent bodies of all open units of
/// work may take before they go to the log earlier than that.
pub const UNITS_STAGED_SHARE: u64 = 4;
/// Memory counted for each put of an open unit of work beside its body.
pub const STAGED_PUT_BYTES: u64 = 256;
/// Puts of all open units of work of one connection, or MAXUMSGS if that is more: what a connection
/// may have in memory, and no other bound is as near.
pub const CONNECTION_STAGED_PUTS_MAX: u64 = CONNECTION_BYTES_DEFAULT / STAGED_PUT_BYTES;
/// Memory counted for the message annotations of one outcome in an open unit of work beside their
/// bytes.
pub const STAGED_ANNOTATIONS_BYTES: u64 = 192;
/// Memory counted for each get of an open unit of work, here and at its queue. Measured with
/// 400,000 of them: 118 bytes.
pub const STAGED_GET_BYTES: u64 = 160;
/// Memory counted for one that the client has not settled, beside that and what counts for the
/// delivery: which unit has it.
pub const PROVISIONAL_OUTCOME_BYTES: u64 = 64;
/// Bytes of incomplete large messages, of all connections together; beyond it only one
/// of these connections is read.
pub const ARRIVING_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A message up to this does not wait for longer ones: it has memory of its own, in either
/// direction.
pub const MEDIUM_MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// That memory, for each direction, beside [`ARRIVING_BYTES_MAX`] and [`DEPARTING_BYTES_MAX`].
pub const MEDIUM_MESSAGES_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of large messages that are being sent, of all connections together; beyond it no
/// connection begins another one. One is sent in any case.
pub const DEPARTING_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Used part of the recovery log, in percent, above which the unit of work that holds its oldest
/// position is rolled back, as in IBM MQ.
pub const LOG_PRESSURE_PERCENT: u64 = 80;
/// Used part of the recovery log, in percent, above which log is no longer retained for a replica
/// that is receiving a copy: the queue manager goes on, and the replica needs another copy.
pub const LOG_HOLD_PERCENT: u64 = 80;
/// The longest frame between instances that may be left uncompressed by the threshold.
pub const COMPRESSION_THRESHOLD_MAX: u64 = 1 << 30;
/// Addresses of another region's group that are configured: one for each of its instances.
pub const REGION_ADDRESSES_MAX: usize = 3;
/// Longest `host:port` that is said to another region: a DNS name of 253 (RFC 1035), and a port.
pub const REGION_ADDRESS_BYTES_MAX: usize = 259;
/// Addresses at which clients find one instance of another region, one for each of its listeners.
pub const REGION_CLIENTS_MAX: usize = 16;
/// StatusInterval can be so long: an hour. Beyond it the backlog that live shows means nothing.
pub const REGION_STATUS_INTERVAL_MS_MAX: u64 = 3_600_000;
/// StatusCommitThreshold unless configured otherwise: with 1 MiB the published test of IBM MQ had a
/// backlog of 14 MB; with its default, which is none, 1,200 MB.
pub const REGION_STATUS_COMMIT_BYTES_DEFAULT: u64 = 1024 * 1024;
/// ShortRetryTimer unless configured otherwise, in milliseconds, as in IBM MQ.
pub const REGION_SHORT_RETRY_MS_DEFAULT: u64 = 2_500;
/// The least it can be.
pub const REGION_SHORT_RETRY_MS_MIN: u64 = 100;
/// ShortRetryCount unless configured otherwise: a minute of them. IBM MQ publishes none.
pub const REGION_SHORT_RETRIES_DEFAULT: u32 = 24;
/// The most it can be, as SHORTRTY of channels in IBM MQ.
pub const REGION_SHORT_RETRIES_MAX: u32 = 999_999_999;
/// LongRetryTimer unless configured otherwise, in milliseconds, as in IBM MQ.
pub const REGION_LONG_RETRY_MS_DEFAULT: u64 = 60_000;
/// The least it can be.
pub const REGION_LONG_RETRY_MS_MIN: u64 = 1_000;
/// The most that either timer can be: an hour.
pub const REGION_RETRY_MS_MAX: u64 = 3_600_000;
/// Bytes of log on their way to another region unless configured otherwise: 400 MB/s at 40 ms.
pub const REGION_WINDOW_BYTES_DEFAULT: u64 = 16 * 1024 * 1024;
/// The least it can be. A longer batch goes alone.
pub const REGION_WINDOW_BYTES_MIN: u64 = 64 * 1024;
/// The most it can be: what waits in memory for one link.
pub const REGION_WINDOW_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Log that live keeps for recovery when neither `log_bytes_behind_max` nor `log_bytes_max` is
/// configured: as much as for an instance of the group.
pub const REGION_BEHIND_BYTES_DEFAULT: u64 = 16 * 1024 * 1024 * 1024;
/// What a region says to the other of its configuration: three instances with addresses of full
/// length for all listeners, their own and the other group's, take 28 KiB.
pub const REGION_AGREEMENT_BYTES_MAX: usize = 32 * 1024;
/// Age at which an open unit of work is rolled back unless configured otherwise.
pub const UNIT_AGE_DEFAULT: Duration = Duration::from_secs(300);
/// Open units of work of one connection.
pub const UNITS_PER_CONNECTION_MAX: usize = 1_000;
/// Connections that begin on one I/O thread before its sockets are asked again, about a millisecond
/// of them: fewer would keep those that wait for a slot waiting longer, until some are refused.
pub const ARRIVALS_PER_ROUND: usize = 16;
/// The same of connections that end.
pub const ENDS_PER_ROUND: usize = 16;
/// Messages that one consumer said are undeliverable to it and that are remembered; beyond it the
/// oldest of them may come to it again. As many as a unit of work may have gets by default.
pub const REFUSED_PER_CONSUMER_MAX: usize = 10_000;
/// The same for all consumers of a connection together, in equal shares: 16 MiB.
pub const REFUSED_PER_CONNECTION_MAX: usize = 1_000_000;
/// Encoded message annotations that `modified` outcomes gave one message. One outcome with more is
/// refused; of several that are longer together, the last one counts.
pub const MODIFIED_ANNOTATIONS_BYTES_MAX: usize = 4_096;
/// The same in entries: a step delivers some hundred messages, and merges so many for each.
pub const MODIFIED_ANNOTATIONS_MAX: usize = 32;
/// Messages with such annotations; beyond it, those that were annotated first lose theirs.
pub const ANNOTATED_MESSAGES_MAX: usize = 10_000;
/// The same in bytes: as many messages with as much as one may have.
pub const ANNOTATIONS_BYTES_MAX: usize = ANNOTATED_MESSAGES_MAX * MODIFIED_ANNOTATIONS_BYTES_MAX;
/// Bodies of one consumer that settles in advance which wait in memory until their get is durable;
/// one more is taken while they are fewer bytes than this, the others wait without their bodies. It
/// is what such a consumer can lose when it takes back its window, or goes.
pub const LEAVING_BYTES_MAX: usize = 256 * 1024;
/// The same in messages.
pub const LEAVING_MESSAGES_MAX: usize = 64;
/// Bodies of one connection that are in memory and wait for the windows of its sessions, or until
/// their gets are durable; one more is begun while they are fewer bytes than this.
pub const BEGUN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Deliveries that the instance may have dispatched to one consumer and its connection has neither
/// sent nor given back, whatever credit the client gave: what is not read does not gather. More
/// than clients usually ask for ahead (1,000), so that it takes nothing from them.
pub const DISPATCHED_AHEAD_MAX: u64 = 1_024;
/// The same for all consumers of a connection together, in equal shares.
pub const DISPATCHED_AHEAD_OF_CONNECTION_MAX: u64 = 8_192;
/// The least share: 10,000 links have 40,000 together.
pub const DISPATCHED_AHEAD_MIN: u64 = 4;
/// Memory of one connection unless configured otherwise, beside one message of the largest length
/// that is on its way in: what is beyond it stays in queues, or with the client.
pub const CONNECTION_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Memory of all connections together, beyond which each of them may have its equal part only.
pub const CONNECTIONS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The least part: an ordinary client holds less, and does not notice.
pub const CONNECTION_BYTES_MIN: u64 = 1024 * 1024;
/// Memory counted for one link on which messages arrive, beside its name. Measured: 918 bytes, with
/// 40,000 producers on four connections.
pub const PRODUCER_LINK_BYTES: u64 = 1_024;
/// Memory counted for one link on which messages leave, beside its name and its selector. Measured:
/// 1,340 to 1,420 bytes, with 40,000 consumers, and what their lines keep once they were used.
pub const CONSUMER_LINK_BYTES: u64 = 2_048;
/// The part of a connection's memory (one in so many) that its links may take: a client that has
/// its deliveries unsettled can still attach links, and one with many links is still served.
pub const LINKS_SHARE: u64 = 2;
/// Memory counted for one delivery that was dispatched and waits, without its body, until it can be
/// sent. Measured with 100,000 of them.
pub const HELD_DELIVERY_BYTES: u64 = 640;
/// Memory counted for one delivery that the client has not settled, here and at its queue, whose
/// entry cannot leave memory meanwhile. Measured with 260,000 of them.
pub const UNSETTLED_DELIVERY_BYTES: u64 = 352;
/// Memory counted for one delivery that is settled before an older one of its session.
pub const SETTLED_DELIVERY_BYTES: u64 = 24;
/// Bytes that the log has taken and its disk has not written, beyond which it is behind: what adds
/// to it waits with its connection, and producers of persistent messages get no further credit. The
/// put of another client waits until so much is written, and what was added within shares: 17 ms at
/// 250 MB/s with both.
pub const LOG_BEHIND_BYTES: u64 = 3584 * 1024;
/// When no more than this are not written, a log that was behind is not any more.
pub const LOG_CAUGHT_UP_BYTES: u64 = 3 * 1024 * 1024;
/// Messages without an answer, in bytes, up to which a connection does not wait for a log that is
/// behind. In turn with those that fill the log, each of which adds a step, a small message would
/// wait for as many steps as there are of them. Less than a step: those that fill the log would all
/// have their shares as well.
pub const LOG_SHARE_BYTES: u64 = 64 * 1024;
/// So much all connections within their shares may add to a log that is behind, until it has caught
/// up and those that wait in turn have theirs.
pub const LOG_SHARES_BYTES_MAX: u64 = 512 * 1024;
/// Bytes of large messages, and of commits in parts, that the log has taken and its disk has not
/// written, beyond which the next piece waits: about ten milliseconds of writing, for which what
/// others log waits as well.
pub const PIECES_AHEAD_BYTES: u64 = 2 * 1024 * 1024;
/// A persistent message longer than this goes to the log in pieces, with the turns of others
/// between them.
pub const PUT_AT_ONCE_BYTES_MAX: usize = 1024 * 1024;
/// Requests of one connection that the instance takes in one step, some two milliseconds of them:
/// others have their turn between. One frame settles as many deliveries as a client was sent, and
/// a client that settles them in more steps than it gets them falls behind its queue.
pub const STEP_REQUESTS_MAX: usize = 4_096;
/// Requests of one connection that wait behind a message of its own that goes to the log in pieces:
/// with so many, nothing more is taken from it before they are done. One step more waits at most.
pub const REQUESTS_WAITING_MAX: usize = STEP_REQUESTS_MAX;
/// A message longer than this is checked beside the connections of its thread: one of so many bytes
/// takes two milliseconds at worst, when each byte is a value.
pub const CHECKED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of messages of one step; one more is taken while they are fewer.
pub const STEP_BYTES_MAX: usize = 256 * 1024;
/// A body longer than this goes to the log in chunks of this size.
pub const BODY_CHUNK_BYTES: usize = 512 * 1024;

/// Bytes of the fields of one record, entry of a page or part of an image: what is longer was never
/// written, and is refused when read.
pub const FIELD_BYTES_MAX: u64 = 4_096;

/// Bytes of a name of a group or an instance: it becomes part of a certificate's common name, which
/// holds 64 (RFC 5280, ub-common-name).
pub const GROUP_NAME_BYTES_MAX: usize = 48;
/// Histories that a log keeps the names and forks of: with a change of regions each week that is
/// twenty years, and with their causes they take 350 KB of an image at most. Of older ones the
/// number is kept.
pub const HISTORIES_MAX: usize = 1_000;
/// Bytes of the cause of a history.
pub const HISTORY_CAUSE_BYTES_MAX: usize = 256;
/// Changes of roles that the status shows.
pub const ROLE_CHANGES_SHOWN: usize = 20;
/// Reports of changes of roles that are kept in a data folder; older ones are removed.
pub const REGION_REPORTS_MAX: usize = 100;
/// Bytes of such a report: with all its texts it has less than 8 KiB.
pub const REGION_REPORT_BYTES_MAX: u64 = 32 * 1024;
/// Bytes in which the histories of a log are said to the other region: what is longer was never
/// said. Today's take 83 bytes each at most.
pub const HISTORIES_BYTES_MAX: usize = 128 * 1024;
/// Sequences of messages that are left out when a group becomes live that did not take over in
/// order: more than the lost end of a log can have. 2^20 such changes use them up.
pub const SEQUENCES_LEFT_OUT: u64 = 1 << 40;

/// Messages that one MOVE QLOCAL moves: nothing else happens meanwhile.
pub const MOVE_MESSAGES_MAX: u64 = 10_000;

/// Length of an extent of the recovery log unless configured otherwise.
pub const EXTENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Memory for the indexes of all queues unless configured otherwise.
pub const INDEX_BYTES_DEFAULT: u64 = 96 * 1024 * 1024;
/// Blocks of queues that leave memory while all clients wait: what the index of keys has of each
/// goes with it, 256 messages for either kind of key at about a microsecond.
pub const BLOCKS_LEAVING_MAX: usize = 4;

/// max-frame-size that we offer (AMQP 2.7.1).
pub const FRAME_BYTES_MAX: u32 = 65_536;
/// max-frame-size before authentication (AMQP 2.8.1, MIN-MAX-FRAME-SIZE).
pub const SASL_FRAME_BYTES_MAX: u32 = 512;
/// channel-max that we offer.
pub const CHANNEL_MAX: u16 = 255;
/// handle-max that we offer for each session.
pub const HANDLE_MAX: u32 = 1_023;
/// Nesting of described types, lists, maps and arrays in one value.
pub const NESTING_DEPTH_MAX: usize = 32;
/// Longest delivery tag (AMQP 2.8.7).
pub const DELIVERY_TAG_BYTES_MAX: usize = 32;
/// Outcomes of one disposition that a connection takes at once; the others of
/// the range come when other connections had their turn.
pub const OUTCOMES_AT_ONCE_MAX: usize = 1_024;
/// Unfinished multi-frame deliveries of one session.
pub const DELIVERIES_UNFINISHED_MAX: usize = 256;
/// Dynamic queues of one connection that wait for their detached links to come back; one more goes
/// with its link.
pub const QUEUES_KEPT_MAX: usize = 64;
/// Longest selector text in bytes.
pub const SELECTOR_BYTES_MAX: usize = 4_096;
/// Bytes of one message that one selector may walk through to find its properties (what stands
/// before the body, for each of them), and as many along which its patterns may go: about two
/// milliseconds each. A message for which that is more does not match.
pub const SELECTOR_WALK_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Up to so many bytes before the body all properties are found in one walk, however many they are.
pub const SELECTOR_ONE_WALK_BYTES_MAX: usize = 256 * 1024;
/// A byte of that walk costs as much as so many of the other one: each name is looked up.
pub const SELECTOR_ONE_WALK_WEIGHT: usize = 8;
/// So many bytes to walk through count as one message more to look at.
pub const SELECTOR_LOOK_BYTES: usize = 1_024;
/// Plain consumers that are served by a step of the instance: all clients wait for it. The rest is
/// done in slices. About a millisecond.
pub const DELIVERIES_PER_STEP: u32 = 512;
/// Messages that a step looks at for consumers that choose: what a put of one message costs beside
/// some dozens of them. About a tenth of a millisecond.
pub const LOOKS_PER_STEP: u32 = 64;
/// Looks, or deliveries, of one queue before the next one has its turn.
pub const LOOKS_PER_TURN: u32 = 256;
/// Looks that an expired message costs: its end is a run of the log of its own.
pub const LOOKS_PER_EXPIRED: u32 = 8;
/// Places of one queue where messages came back, until all selectors that had looked there have
/// taken note; beyond it, those that have not look at everything from the first of them on.
pub const RETURNED_PLACES_MAX: usize = 65_536;
/// The same of one selector, until it has looked there.
pub const RETURNED_PER_SCANNER_MAX: usize = 4_096;
/// Messages of one unit of work, or of one consumer, that come back to their queues in one step.
pub const RETURNED_AT_ONCE_MAX: usize = 1_000;
/// Messages of one unit of work that are committed in one step, some two milliseconds of them.
pub const COMMITTED_AT_ONCE_MAX: usize = 1_000;
/// Puts and gets of one part of a commit.
pub const OPERATIONS_PER_PART: usize = 128;
/// Nesting of one selector.
pub const SELECTOR_DEPTH_MAX: usize = 32;
/// Link credit that we keep granted to a producer: so much that one link keeps up with a connection
/// of a thousand, although each message of both waits as long for the log.
pub const PRODUCER_CREDIT: u32 = 4_000;
/// The same for all producers of a connection together, in equal shares.
pub const CREDIT_OF_CONNECTION_MAX: u32 = 10_000;
/// The least share: so few messages are less work than the link that they come on.
pub const PRODUCER_CREDIT_MIN: u32 = 10;

/// What an instance says first on a connection to another region, and its answer: a thousand
/// histories of a hundred bytes, and what the two groups compare of their configurations.
pub const REGION_HELLO_BYTES_MAX: usize = 256 * 1024;
/// Sections of such a hello.
pub const REGION_SECTIONS_MAX: usize = 32;
/// Longest reason that an instance gives to another region for a refusal, or the end of a
/// connection.
pub const REGION_REASON_BYTES_MAX: usize = 400;
/// Bytes of frames that wait for the connection to another region, below which the sender is asked
/// for more: 4 ms at 1 GB/s.
pub const REGION_WRITABLE_BYTES: usize = 4 * 1024 * 1024;

const _: () = assert!(MEDIUM_MESSAGE_BYTES_MAX <= MEDIUM_MESSAGES_BYTES_MAX / 8);
const _: () = assert!(LOG_CAUGHT_UP_BYTES < LOG_BEHIND_BYTES);
const _: () = assert!(LOG_SHARE_BYTES <= LOG_SHARES_BYTES_MAX / 8);
// One batch is written while the next one fills.
const _: () = assert!(PIECES_AHEAD_BYTES >= 2 * PUT_AT_ONCE_BYTES_MAX as u64);
// Pieces alone never keep a log from having caught up.
const _: () = assert!(PIECES_AHEAD_BYTES + PUT_AT_ONCE_BYTES_MAX as u64 <= LOG_CAUGHT_UP_BYTES);
const _: () = assert!(BODY_CHUNK_BYTES <= PUT_AT_ONCE_BYTES_MAX);
const _: () = assert!(BODY_CHUNK_BYTES as u64 <= MESSAGE_BYTES_DEFAULT);
// Any selector finds properties of ordinary length.
const _: () = assert!(ENVELOPE_BYTES_MAX <= SELECTOR_ONE_WALK_BYTES_MAX as u64);
const _: () =
    assert!(SELECTOR_ONE_WALK_BYTES_MAX * SELECTOR_ONE_WALK_WEIGHT <= SELECTOR_WALK_BYTES_MAX);
// Thirty-two patterns may go along the longest of them; more, along texts that are shorter.
const _: () = assert!(32 * ENVELOPE_BYTES_MAX <= SELECTOR_WALK_BYTES_MAX as u64);
const _: () = assert!(CONTROL_ANSWER_STALLED.as_millis() < CONTROL_ANSWER_MAX.as_millis());
const _: () = assert!(REFUSED_PER_CONSUMER_MAX <= REFUSED_PER_CONNECTION_MAX);
const _: () = assert!(UNIT_STAGED_BYTES_MAX <= CONNECTION_STAGED_BYTES_MAX);
// The changelog names it.
const _: () = assert!(CONNECTION_STAGED_PUTS_MAX == 262_144);
const _: () = assert!(PRODUCER_CREDIT_MIN <= PRODUCER_CREDIT);
// One link is not much weaker than a thousand.
const _: () = assert!(CREDIT_OF_CONNECTION_MAX <= 3 * PRODUCER_CREDIT);
const _: () = assert!(PRODUCER_CREDIT <= CREDIT_OF_CONNECTION_MAX);
const _: () = assert!(DISPATCHED_AHEAD_MIN <= DISPATCHED_AHEAD_MAX);
const _: () = assert!(DISPATCHED_AHEAD_MAX <= DISPATCHED_AHEAD_OF_CONNECTION_MAX);
const _: () = assert!(HISTORIES_MAX * (2 + 33 + GROUP_NAME_BYTES_MAX) + 64 <= HISTORIES_BYTES_MAX);
const _: () = assert!(ROLE_CHANGES_SHOWN <= HISTORIES_MAX);
// A report is completed by one request.
const _: () = assert!(REGION_REPORT_BYTES_MAX < CONTROL_REQUEST_BYTES_MAX as u64);
// A name, a cause and five numbers.
const _: () =
    assert!((GROUP_NAME_BYTES_MAX + HISTORY_CAUSE_BYTES_MAX + 96) as u64 <= FIELD_BYTES_MAX);
const _: () = assert!(SASL_FRAME_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(REGION_SHORT_RETRY_MS_DEFAULT >= REGION_SHORT_RETRY_MS_MIN);
const _: () = assert!(REGION_SHORT_RETRY_MS_DEFAULT <= REGION_LONG_RETRY_MS_DEFAULT);
const _: () = assert!(REGION_WINDOW_BYTES_MIN <= REGION_WINDOW_BYTES_DEFAULT);
// Two groups with addresses for links and clients, and 2 KiB for all else.
const _: () = assert!(
    2 * REGION_ADDRESSES_MAX * (1 + REGION_CLIENTS_MAX) * (2 + REGION_ADDRESS_BYTES_MAX) + 2_048
        <= REGION_AGREEMENT_BYTES_MAX
);
