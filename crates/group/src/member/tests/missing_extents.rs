//! A member that was started without a part of its log.

use super::promises::{alone, message, noted};
use super::*;

fn lacks() -> Member {
    let mut member = alone(noted(3), 3);
    member.options.lacks_batches = true;
    member
}

/// Steps it as time passes, and yields when it asked for votes first.
fn first_asks(member: &mut Member, until: Duration) -> Option<Duration> {
    let ticks = (0_u32..).map(|tick| tick * Duration::from_millis(10));
    for at in ticks.take_while(|at| *at < until) {
        let mut out = Output::default();
        member.step(Time(1) + at, Input::Tick, &mut out);
        if !out.send.is_empty() {
            return Some(at);
        }
    }
    None
}

#[test]
fn one_that_lacks_a_part_of_its_log_stands_when_no_other_member_did_for_long() {
    let long = TIMEOUT * 12;
    assert!(first_asks(&mut alone(noted(3), 3), long) < Some(TIMEOUT));
    let asked = first_asks(&mut lacks(), long).unwrap();
    assert!((TIMEOUT * 10..TIMEOUT * 11).contains(&asked), "{asked:?}");
}

#[test]
fn one_that_lacks_a_part_of_its_log_asks_its_leader_for_a_copy_and_takes_no_leadership() {
    for (mut member, is_lacking) in [(alone(noted(3), 3), false), (lacks(), true)] {
        let mut out = Output::default();
        member.step(Time(2), Input::Tick, &mut out);
        assert_eq!(out.copy_from, None, "there is no leader");
        for kind in [MessageType::MsgHeartbeat, MessageType::MsgTimeoutNow] {
            member.step(Time(3), message(kind, 2, 5, RaftMessage::default()), &mut out);
            member.step(Time(4), Input::Tick, &mut out);
        }
        assert_eq!(out.copy_from, is_lacking.then_some(MemberId(2)));
        assert_eq!(member.role() == Role::Follower, is_lacking, "it is asked to stand");
        assert!(member.may_vote() && !(is_lacking && member.progress().is_in_sync));
    }
}
