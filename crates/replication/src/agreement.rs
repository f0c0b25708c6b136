//! What the instances of a group must have in common, or should have, beside names and
//! certificates.
//!
//! Not here: how it is said and compared (`link::terms`). What clients are granted by the active
//! alone (bounds of connections, users, threads, caches) may differ and is not mentioned.

use towline_group::{HardState, MemberId};

use towline_config::{Config, GroupConfig};
use towline_link::{INTERVAL, TIMEOUT, Terms};

/// The terms of this instance, for a log with extents of so many bytes. Format levels change while
/// it runs, and are said with each hello (`Driver::levels`).
pub fn terms(config: &Config, group: &GroupConfig, extent_bytes: u64) -> Terms {
    let mut terms = Terms::default();
    // Numbers in consensus come from the names.
    let names: Vec<&str> = group.member.iter().map(|member| &*member.name).collect();
    terms.bind("the list of instances", names.join(", "));
    // A batch stands at the same position everywhere, and never across an extent's end.
    terms.bind("log.extent_bytes", extent_bytes);
    terms.mention(INTERVAL, group.heartbeat_interval_ms);
    terms.mention(TIMEOUT, group.heartbeat_timeout_ms);
    terms.mention("group.preferred_location", &group.preferred_location);
    let manager = &config.queue_manager;
    terms.mention("queue_manager.deadq", &manager.deadq);
    terms.mention("queue_manager.maxmsgl", manager.maxmsgl);
    terms.mention("queue_manager.maxumsgs", manager.maxumsgs);
    terms.mention("queue_manager.unit_bytes_max", manager.unit_bytes_max);
    terms.mention("queue_manager.unit_age_max_s", manager.unit_age_max_s);
    terms.mention("queue_manager.expired_to_deadq", manager.expired_to_deadq);
    terms.mention("the number of listeners", config.listener.len());
    terms
}

/// What was kept by the process before, read by this one. That a vote was given counts; for which
/// number does not: a version that numbered the members as its file listed them may have meant
/// another member. A vote in a term before the start is given to no member again, which costs at
/// most one election.
pub fn of_process_before(hard_state: HardState) -> HardState {
    HardState { vote: hard_state.vote.map(|_| MemberId::NONE_OF_THEM), ..hard_state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_of_the_process_before_counts_but_for_no_number() {
        let hard_state = HardState { term: 7, vote: Some(MemberId(1)), ..HardState::default() };
        let read = of_process_before(hard_state);
        assert_eq!((read.term, read.vote), (7, Some(MemberId::NONE_OF_THEM)));
        assert_eq!(of_process_before(HardState { vote: None, ..hard_state }).vote, None);
    }
}
