//! A following log begins to append.
//!
//! Not here: the vote. Invariant: all that was received is durable before the first batch of the
//! new term, so the term never goes down and nothing that came later is left out.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use towline_types::Batch;

use super::Role;
use super::cut::wait_until_quiet;
use super::following::with_follower;
use super::receive::Turn;
use crate::error::LogError;
use crate::format::BATCH_HEADER_BYTES;
use crate::shared::{OpenOutcome, Shared};

pub(crate) fn lead(shared: &Shared, term: u64) -> Result<Batch, LogError> {
    let _turn = Turn::take(shared);
    let highest =
        with_follower(&mut shared.state(), |follower| follower.last().ok_or(LogError::Failed))?;
    let fits = u32::try_from(term).ok().filter(|term| *term > highest.term);
    let Some(term) = fits else {
        let (index, lsn) = (highest.index, highest.lsn);
        let what = "the term of a leader is higher than that of any batch, and below 2^32";
        return Err(LogError::OutOfPlace { index, lsn, what });
    };
    wait_until_quiet(shared)?;
    let (mut state, opened) = shared.open_batch(shared.state(), BATCH_HEADER_BYTES);
    match opened {
        OpenOutcome::Yes => {}
        OpenOutcome::Full => return Err(LogError::Full),
        OpenOutcome::Stopped => return Err(LogError::Stopped),
        OpenOutcome::Failed | OpenOutcome::Following => return Err(LogError::Failed),
    }
    state.role = Role::Writing;
    state.term = term;
    // Sent in any case: a consumer that assembles runs from the first batch on may hold the
    // beginning of one that its leader left unfinished, while a later leader wrote nothing more.
    state.given_up = true;
    let Some(batch) = &mut state.open else { return Err(LogError::Failed) };
    batch.is_told = false;
    let (index, lsn) = (batch.index, batch.lsn);
    let first = Batch { index, term: u64::from(term), lsn, payload: Bytes::new() };
    if let Some(member) = &shared.member {
        member.came(&first);
    }
    state.seal();
    state.tail = state.sealed_end;
    shared.tail.store(state.tail.0, Ordering::Release);
    shared.unsynced.fetch_add(BATCH_HEADER_BYTES as u64, Ordering::Relaxed);
    shared.note_room(&state);
    shared.wake_writer(&mut state);
    drop(state);
    Ok(first)
}
