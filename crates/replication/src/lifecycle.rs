//! The lifecycle of a member's process: it follows, and then it leads, gets a copy, or ends; after
//! each of these it re-executes itself.
//!
//! Not here: what the driver does at each turn. Invariant: there is no way back: the log of a
//! former leader takes no batch of another one, and what was decided and not committed ends with
//! the process.

use towline_group::{Input, Output, Role};

use towline_link::Peer;

/// Why this process cannot go on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It was the leader and is not any more.
    LostLeadership,
    /// It was the leader, and its disk does not answer.
    DiskHangs,
    /// Its log has no free space for what the group decided.
    LogFull,
    /// Its data folder was put back, or another process has a copy of it.
    PutBack,
    /// Its log is empty, and is made anew with the id of the group's.
    TakesLogId,
    /// A copy of the live group's log, which came from the other region, replaces its log.
    Rebased,
    /// It lags so far behind that it needs a copy of this peer's log.
    NeedsCopy(Peer),
    /// Its group became a recovery group, and this process led it, or knows as committed what is
    /// void since then; or it is to return as one, and its start carries that out.
    ChangesPart,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// Takes what a leader sends.
    Following,
    /// Decides, since it was elected.
    Leading,
    /// A copy replaces its log.
    Copying,
    /// It followed, and its disk does not answer: it neither hears nor stands until it does.
    Stalled,
    /// It led, and its disk does not answer: it re-executes itself when it does.
    Hanging,
    /// It re-executes itself before anything goes on.
    Ended,
}

impl Lifecycle {
    /// Whether the member gets this input.
    pub(crate) fn takes(self, input: &Input) -> bool {
        match self {
            Lifecycle::Following | Lifecycle::Leading => true,
            // What it acknowledged while a copy is made would be in the log that is replaced. It
            // only shows that it lives, without which the one that is copied from might not stay
            // active.
            Lifecycle::Copying => {
                matches!(input, Input::Message(message) if message.is_heartbeat())
            }
            // A log that led takes nothing of others, and one without free space nothing at all.
            // What a member with a hanging disk wants to keep would stop it under the lock of its
            // driver.
            Lifecycle::Stalled | Lifecycle::Hanging | Lifecycle::Ended => false,
        }
    }

    /// Whether what the member says means that it led and does not any more.
    pub(crate) fn loses(self, out: &Output) -> bool {
        match self {
            Lifecycle::Leading => out.role.is_some_and(|role| role != Role::Leader),
            Lifecycle::Following | Lifecycle::Copying => false,
            Lifecycle::Stalled | Lifecycle::Hanging | Lifecycle::Ended => false,
        }
    }

    /// Whether its log goes on with what the group decides.
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, Lifecycle::Following | Lifecycle::Leading)
    }

    /// Whether its member hears nothing, but goes on to learn where the active instance is.
    pub(crate) fn is_aside(self) -> bool {
        matches!(self, Lifecycle::Stalled | Lifecycle::Hanging)
    }

    /// Its disk does not answer, or does again: a replica is silent meanwhile. Others are not
    /// concerned.
    pub(crate) fn stalls(&mut self, is_late: bool) {
        *self = match (*self, is_late) {
            (Lifecycle::Following, true) => Lifecycle::Stalled,
            (Lifecycle::Stalled, false) => Lifecycle::Following,
            (other, _) => other,
        };
    }

    /// It was elected: from here on the log may write, even if it turns out that it cannot.
    ///
    /// # Panics
    /// When it was elected before, or its log is about to be replaced.
    pub(crate) fn elected(&mut self) {
        assert_eq!(*self, Lifecycle::Following, "a process is elected once, and while it follows");
        *self = Lifecycle::Leading;
    }

    /// A copy is about to replace its log: nothing is promised with the old log any more.
    /// False when something else ended the process meanwhile: what was kept then is not to be
    /// written over.
    pub(crate) fn is_replaced(&mut self) -> bool {
        let was_copying = *self == Lifecycle::Copying;
        *self = Lifecycle::Ended;
        was_copying
    }

    /// The process ends in order.
    pub(crate) fn withdraws(&mut self) {
        *self = Lifecycle::Ended;
    }

    /// The process cannot go on as it is; yields whether that is news: once for each process.
    pub(crate) fn ends(&mut self, why: EndReason) -> bool {
        let before = *self;
        *self = match why {
            EndReason::NeedsCopy(_) => Lifecycle::Copying,
            EndReason::DiskHangs => Lifecycle::Hanging,
            EndReason::LostLeadership
            | EndReason::LogFull
            | EndReason::PutBack
            | EndReason::TakesLogId
            | EndReason::Rebased
            | EndReason::ChangesPart => Lifecycle::Ended,
        };
        match before {
            Lifecycle::Following | Lifecycle::Leading | Lifecycle::Stalled => true,
            // What follows the copy, or the disk's answer, is that it re-executes itself.
            Lifecycle::Copying | Lifecycle::Hanging | Lifecycle::Ended => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use towline_group::{HardState, Member, MemberId, Message, Options, RecoveredLog};
    use towline_types::{BatchPlace, Lsn, Time};

    use super::*;

    fn out(role: Option<Role>) -> Output {
        Output { role, ..Output::default() }
    }

    /// Of two of three members, one of which is elected and shows that it lives.
    fn what_members_say() -> Vec<Message> {
        let mut now = Time(1_000_000_000);
        let ids = [1, 2, 3].map(MemberId);
        let mut members: Vec<Member> = ids[..2]
            .iter()
            .map(|id| {
                let options = Options {
                    id: *id,
                    voters: ids.to_vec(),
                    tick: Duration::from_millis(10),
                    heartbeat_interval: Duration::from_millis(50),
                    heartbeat_timeout: Duration::from_millis(500),
                    seed: 7,
                    meets_first: false,
                    lacks_batches: false,
                };
                let hard_state = HardState { may_vote: true, ..HardState::default() };
                Member::new(options, hard_state, RecoveredLog::default(), now)
            })
            .collect();
        let mut said: Vec<Message> = Vec::new();
        let mut waiting: VecDeque<(MemberId, Message)> = VecDeque::new();
        for _ in 0..100 {
            now = now + Duration::from_millis(10);
            let ticks = ids[..2].iter().map(|id| (*id, Input::Tick));
            let mut inputs: VecDeque<(MemberId, Input)> = ticks.collect();
            inputs.extend(waiting.drain(..).map(|(to, message)| (to, Input::Message(message))));
            while let Some((to, input)) = inputs.pop_front() {
                let Some(at) = ids[..2].iter().position(|id| *id == to) else { continue };
                let mut out = Output::default();
                members[at].step(now, input, &mut out);
                if let Some(term) = out.lead {
                    let first = BatchPlace { index: 1, term, lsn: Lsn(4_096), end: Lsn(4_136) };
                    inputs.push_front((to, Input::Leading(first)));
                }
                said.extend(out.send.iter().map(|(_, message)| message.clone()));
                waiting.extend(out.send);
            }
        }
        said
    }

    #[test]
    fn only_a_leader_can_lose_and_it_loses_by_any_other_role() {
        let mut lifecycle = Lifecycle::Following;
        assert!(!lifecycle.loses(&out(Some(Role::Candidate))));
        lifecycle.elected();
        assert!(!lifecycle.loses(&out(None)) && !lifecycle.loses(&out(Some(Role::Leader))));
        assert!(lifecycle.loses(&out(Some(Role::Follower))));
        assert!(lifecycle.loses(&out(Some(Role::Candidate))));
        assert!(lifecycle.ends(EndReason::LostLeadership));
        assert!(!lifecycle.loses(&out(Some(Role::Follower))), "it is over already");
    }

    #[test]
    fn the_end_is_reported_once_and_nothing_is_taken_after_it() {
        for why in [
            EndReason::LostLeadership,
            EndReason::LogFull,
            EndReason::PutBack,
            EndReason::TakesLogId,
            EndReason::Rebased,
            EndReason::ChangesPart,
        ] {
            let mut lifecycle = Lifecycle::Following;
            assert!(lifecycle.takes(&Input::Tick));
            assert!(lifecycle.ends(why) && !lifecycle.ends(why));
            assert!(lifecycle == Lifecycle::Ended && !lifecycle.takes(&Input::Tick));
        }
    }

    #[test]
    fn a_replica_is_silent_while_its_disk_hangs_and_a_leader_for_good() {
        let mut lifecycle = Lifecycle::Following;
        lifecycle.stalls(false);
        assert_eq!(lifecycle, Lifecycle::Following);
        lifecycle.stalls(true);
        assert!(
            lifecycle == Lifecycle::Stalled
                && lifecycle.is_aside()
                && !lifecycle.takes(&Input::Tick)
        );
        assert!(!lifecycle.loses(&out(Some(Role::Follower))));
        lifecycle.stalls(false);
        assert!(
            lifecycle == Lifecycle::Following
                && !lifecycle.is_aside()
                && lifecycle.takes(&Input::Tick)
        );
        lifecycle.elected();
        lifecycle.stalls(true);
        assert_eq!(lifecycle, Lifecycle::Leading, "a leader gives up instead");
        assert!(lifecycle.ends(EndReason::DiskHangs) && !lifecycle.ends(EndReason::DiskHangs));
        assert!(lifecycle.is_aside() && !lifecycle.takes(&Input::Tick));
        lifecycle.stalls(false);
        assert!(lifecycle.is_aside(), "what it decided is in its memory");
    }

    #[test]
    fn while_a_copy_comes_the_member_only_shows_that_it_lives() {
        let mut lifecycle = Lifecycle::Following;
        assert!(lifecycle.ends(EndReason::NeedsCopy(1)));
        assert!(!lifecycle.ends(EndReason::NeedsCopy(1)), "it was said again");
        assert!(lifecycle == Lifecycle::Copying && !lifecycle.takes(&Input::Tick));
        let said = what_members_say();
        assert!(said.iter().any(Message::is_heartbeat) && !said.iter().all(Message::is_heartbeat));
        for message in said {
            assert_eq!(message.is_heartbeat(), lifecycle.takes(&Input::Message(message)));
        }
        let mut replaced = lifecycle;
        let mut put_back = lifecycle;
        assert!(replaced.is_replaced() && replaced == Lifecycle::Ended);
        assert!(!replaced.ends(EndReason::LogFull), "it is not heard again");
        assert!(
            !put_back.ends(EndReason::PutBack) && !put_back.is_replaced(),
            "it gave up its vote"
        );
        assert!(!lifecycle.ends(EndReason::LogFull), "the copy's end is the end");
        assert_eq!(lifecycle, Lifecycle::Ended);
    }
}
