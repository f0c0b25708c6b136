//! Kinds of the frames that instances exchange, and the numbers of the members.
//!
//! Not here: what a frame holds (the file that sends it). Invariant: a number is never given a
//! second meaning, because instances of different versions talk to each other.

use towline_group::MemberId;

use towline_link::Peer;

/// A message of consensus.
pub const KIND_CONSENSUS: u8 = 1;
/// A request of an administrator to the active instance, as JSON.
pub const KIND_WISH: u8 = 2;
/// What the active instance knows of each instance, as JSON.
pub const KIND_ROWS: u8 = 3;
/// The condition of the sender's disk, as JSON.
pub const KIND_CONDITION: u8 = 4;
/// What the sender knows of starts, as in a hello.
pub const KIND_KNOWN: u8 = 5;
/// The histories of the log that a relay is about to send, as in the hello of a region.
pub const KIND_HISTORIES: u8 = 6;
/// What members say to each other about a change of roles, as JSON.
pub const KIND_ROLE: u8 = 7;
/// What the instance to which the live group ships knows of that group, as JSON.
pub const KIND_LIVE: u8 = 10;

/// A member's name in consensus: its position in the list of all, ordered by name, from 1.
pub fn member_of(peer: Peer) -> MemberId {
    MemberId(peer as u64 + 1)
}

/// The position of a member in that list.
///
/// # Panics
/// When it is the number of no member.
pub fn peer_of(member: MemberId) -> Peer {
    match member.0.checked_sub(1).map(usize::try_from) {
        Some(Ok(position)) => position,
        None | Some(Err(_)) => unreachable!("{} is the number of no member", member.0),
    }
}
