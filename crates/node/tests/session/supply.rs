//! Credit stays exact, whatever happens to a delivery between the instance and the wire: its body
//! is being read, or is damaged; the credit is taken back; the session's window is closed; the
//! client drains.

use towline_amqp::types::SenderSettleMode;
use towline_types::{SeededRandom, Time, limits};

use super::rig::{Rig, Slow};
use super::text::message;

const NOW: Time = Time(1_700_000_000_000_000);
const MESSAGES: usize = 60;

/// A queue with messages: some are larger than a tenth of the session's window.
fn filled(dice: &mut SeededRandom, mixed: bool) -> (Rig, Vec<String>) {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("DLQ");
    rig.mqsc("ALTER QMGR DEADQ(DLQ)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let bodies: Vec<String> = (0..MESSAGES)
        .map(|number| {
            let bytes = if dice.below(3) == 0 { 100_000 } else { 10 };
            format!("{number:03} {}", "x".repeat(bytes))
        })
        .collect();
    for (key, body) in bodies.iter().enumerate() {
        let text = message(body);
        let text = if mixed && (dice.below(3) == 0) { text } else { text.durable() };
        rig.send(&mut client, sender, key as u64, text);
    }
    (rig, bodies)
}

/// One small step of something.
fn move_on(rig: &mut Rig, slow: &mut Slow, dice: &mut SeededRandom, damage_one_in: u64) {
    match dice.below(8) {
        0 => _ = slow.server_hears(NOW),
        1 => _ = slow.client_hears(NOW),
        2 => rig.steps_for(slow),
        3 => rig.syncs_for(slow),
        _ => {
            let slowly = dice.below(2) == 0;
            let damaged = dice.below(damage_one_in) == 0;
            rig.responds(slow, slowly, damaged);
        }
    }
}

/// Everything until nothing more happens.
fn rest(rig: &mut Rig, slow: &mut Slow, dice: &mut SeededRandom) {
    loop {
        let mut moved = slow.server_hears(NOW) | slow.asks();
        rig.steps_for(slow);
        rig.syncs_for(slow);
        moved |= rig.responds(slow, dice.below(2) == 0, dice.below(10) == 0);
        moved |= slow.client_hears(NOW);
        if !moved {
            return;
        }
    }
}

/// The client asks for everything that is left, so many at a time, each time with a drain: one that
/// is answered with credit left says that there is nothing more.
fn drain_all(rig: &mut Rig, slow: &mut Slow, dice: &mut SeededRandom) {
    loop {
        let (before, credit) = (slow.bodies.len(), 1 + dice.below(9));
        slow.grants(u32::try_from(credit).unwrap(), true);
        rest(rig, slow, dice);
        assert_eq!(slow.credit(), 0, "a drain leaves no credit");
        if ((slow.bodies.len() - before) as u64) < credit {
            return;
        }
    }
}

fn run(seed: u64, mode: SenderSettleMode, browses: bool) {
    let dice = &mut SeededRandom::new(seed);
    let (mut rig, sent) = filled(dice, mode == SenderSettleMode::Settled);
    let mut slow = rig.slow("Q", mode, browses);
    if dice.below(20) == 0 {
        // So many that the instance is ahead of each by a few deliveries only.
        rig.define("OTHER");
        (0..500).for_each(|_| rig.other_link_of(&mut slow, "OTHER"));
    }
    rig.hold_log();
    for _ in 0..dice.below(1_500) {
        if dice.below(20) == 0 {
            let most = if dice.below(3) == 0 { 1 } else { 30 };
            slow.grants(u32::try_from(dice.below(most)).unwrap(), dice.below(3) == 0);
        }
        move_on(&mut rig, &mut slow, dice, 10);
    }
    rest(&mut rig, &mut slow, dice);
    drain_all(&mut rig, &mut slow, dice);
    assert_eq!(
        slow.bodies.len() + slow.unsent.len(),
        MESSAGES,
        "each message came, or was reported"
    );
    let mut wanted = sent.iter();
    for body in &slow.bodies {
        assert!(wanted.any(|wanted| wanted == body), "{:.3} out of its order", body);
    }
}

#[test]
fn credit_is_exact_in_any_order_of_events() {
    let given = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| {
        use std::hash::{BuildHasher, Hasher, RandomState};
        RandomState::new().build_hasher().finish()
    });
    let rounds = if given.is_some() { 1 } else { 60 };
    for round in 0..rounds {
        let seed = first.wrapping_add(round);
        println!("TOWLINE_SEED={seed}");
        run(seed, SenderSettleMode::Unsettled, false);
        run(seed, SenderSettleMode::Settled, false);
        run(seed, SenderSettleMode::Settled, true);
    }
}

#[test]
fn a_drain_is_answered_when_the_queue_is_empty_however_little_is_dispatched_at_once() {
    let many = usize::try_from(limits::DISPATCHED_AHEAD_MAX).unwrap() * 2 + 7;
    for (settled, depth) in [(true, many), (false, many), (false, many / 2), (false, 5)] {
        let mut rig = Rig::new();
        rig.define("Q");
        let mut client = rig.connect();
        let sender = rig.sender(&mut client, "Q");
        for number in 0..depth {
            rig.send(&mut client, sender, number as u64, message("any"));
        }
        let settles = if settled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let mut slow = rig.slow("Q", settles, false);
        slow.grants(1_000_000, true);
        rest(&mut rig, &mut slow, &mut SeededRandom::new(1));
        assert_eq!((slow.bodies.len(), slow.drains, slow.credit()), (depth, 1, 0));
    }
}

#[test]
fn many_consumers_of_one_connection_share_what_is_dispatched_ahead() {
    let all = limits::DISPATCHED_AHEAD_OF_CONNECTION_MAX;
    let links = usize::try_from(all / limits::DISPATCHED_AHEAD_MAX).unwrap() * 4;
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("OTHER");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for number in 0..3_000 {
        rig.send(&mut client, sender, number, message("any"));
    }
    let mut slow = rig.slow("Q", SenderSettleMode::Unsettled, false);
    (1..links).for_each(|_| rig.other_link_of(&mut slow, "OTHER"));
    slow.grants(1_000_000, false);
    slow.server_hears(NOW);
    rig.steps_for(&mut slow);
    assert_eq!(slow.outbox() as u64, all / links as u64);
    rest(&mut rig, &mut slow, &mut SeededRandom::new(1));
    assert_eq!(slow.bodies.len(), 3_000);
}

/// One that settles in advance, and gets what the queue has.
fn at_most_once(rig: &mut Rig) -> Slow {
    let mut slow = rig.slow("Q", SenderSettleMode::Settled, false);
    slow.grants(10, false);
    slow
}

/// Everything that needs no log.
fn without_the_log(rig: &mut Rig, slow: &mut Slow) {
    for _ in 0..20 {
        slow.server_hears(NOW);
        rig.steps_for(slow);
        rig.responds(slow, false, false);
        slow.client_hears(NOW);
    }
}

#[test]
fn a_persistent_message_that_is_settled_in_advance_is_sent_when_its_get_is_durable() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("first"));
    rig.send(&mut client, sender, 2, message("second").durable());
    rig.send(&mut client, sender, 3, message("third"));
    rig.hold_log();
    let mut slow = at_most_once(&mut rig);
    without_the_log(&mut rig, &mut slow);
    assert_eq!(slow.bodies, ["first"], "nothing waits before, nothing overtakes behind");
    rig.syncs_for(&mut slow);
    without_the_log(&mut rig, &mut slow);
    assert_eq!(slow.bodies, ["first", "second", "third"]);
    let mut rig = rig.restart();
    let mut slow = at_most_once(&mut rig);
    without_the_log(&mut rig, &mut slow);
    assert!(slow.bodies.is_empty(), "it came once");
}

#[test]
fn what_is_settled_in_advance_and_was_not_sent_before_a_crash_is_there_again() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.hold_log();
    let mut slow = at_most_once(&mut rig);
    without_the_log(&mut rig, &mut slow);
    assert!(slow.bodies.is_empty(), "its get could be forgotten");
    let mut rig = rig.restart();
    rig.hold_log();
    let mut slow = at_most_once(&mut rig);
    without_the_log(&mut rig, &mut slow);
    rig.syncs_for(&mut slow);
    without_the_log(&mut rig, &mut slow);
    assert_eq!(slow.bodies, ["one"]);
}

#[test]
fn an_answer_to_an_earlier_drain_does_not_answer_a_later_one() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut slow = rig.slow("Q", SenderSettleMode::Unsettled, false);
    slow.grants(5, true);
    slow.server_hears(NOW);
    rig.steps_for(&mut slow); // The answer is in the outbox.
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one"));
    slow.grants(5, true);
    slow.server_hears(NOW);
    rig.responds(&mut slow, false, false);
    slow.client_hears(NOW);
    assert_eq!(slow.drains, 0, "it knew nothing of the message");
    without_the_log(&mut rig, &mut slow);
    assert_eq!((slow.bodies.len(), slow.drains), (1, 1));
}

#[test]
fn what_was_on_its_way_when_credit_was_withdrawn_serves_another_consumer() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for (key, body) in ["one", "two", "three"].into_iter().enumerate() {
        rig.send(&mut client, sender, key as u64, message(body).durable());
    }
    let mut slow = rig.slow("Q", SenderSettleMode::Unsettled, false);
    slow.grants(3, false);
    slow.server_hears(NOW);
    rig.steps_for(&mut slow);
    rig.responds(&mut slow, false, false);
    slow.grants(0, false);
    without_the_log(&mut rig, &mut slow);
    assert_eq!(slow.bodies.len(), 1, "no more than the credit");
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    let got = rig.received_whole(&mut client);
    let bodies: Vec<String> = got.iter().map(|got| got.body()).collect();
    assert_eq!(bodies, ["two", "three"], "in their order");
    assert!(got.iter().all(|got| got.delivery_count() == 0), "they were never sent");
}
