//! The window of a session, which its links share, and what is behind it when a link or connection
//! ends: what was never sent is on its queue.

use towline_types::{SeededRandom, limits};

use super::rig::{Narrow, Rig};
use super::text::message;

/// Frames of 512 bytes that a message takes, as its number says; at least as many as it takes.
fn frames(number: usize) -> u32 {
    [1, 1, 3, 8][number % 4]
}

/// Q with messages `text-0`, `text-1` and so on, of one to eight frames; every second pair is
/// persistent, or none is.
fn filled(count: usize, any_persistent: bool) -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for number in 0..count {
        let bytes = frames(number) as usize * 440 - 300;
        let text = message(&format!("text-{number}_{}", "x".repeat(bytes)));
        let persistent = any_persistent && (number / 4).is_multiple_of(2);
        let text = if persistent { text.durable() } else { text };
        rig.send(&mut client, sender, number as u64, text);
    }
    rig
}

/// The numbers of the messages that are on the queue.
fn left(rig: &mut Rig) -> Vec<usize> {
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1_000);
    let bodies = rig.received_whole(&mut client);
    let number = |text: &str| text["text-".len()..].split('_').next().unwrap().parse().unwrap();
    bodies.iter().map(|got| number(&got.body())).collect()
}

/// Each message is on the queue or was sent on a link that settles in advance, never both. Those
/// that were neither are yielded.
fn lost(rig: &mut Rig, narrow: &Narrow, count: usize) -> Vec<usize> {
    let left = left(rig);
    assert!(narrow.settled.iter().all(|number| !left.contains(number)), "sent, and there again");
    assert!(narrow.unsettled.iter().all(|number| left.contains(number)), "it was not settled");
    (0..count).filter(|number| !left.contains(number) && !narrow.settled.contains(number)).collect()
}

#[test]
fn what_the_session_window_holds_back_is_on_its_queue_when_the_connection_ends() {
    for any_persistent in [true, false] {
        for window in [0, 1, 10] {
            for links in [1, 3] {
                let mut rig = filled(40, any_persistent);
                let mut narrow = rig.narrow(window, &vec![true; links]);
                (0..links).for_each(|link| narrow.grants(link, 200));
                rig.narrow_rests(&mut narrow);
                assert_eq!(narrow.window(), 0, "the window is used");
                let narrow = rig.narrow_breaks(narrow);
                let lost = lost(&mut rig, &narrow, 40);
                assert!(lost.is_empty(), "window {window}, {links} links: lost {lost:?}");
            }
        }
    }
}

#[test]
fn what_credit_was_withdrawn_from_behind_a_closed_window_serves_another_consumer() {
    let mut rig = filled(20, true);
    let mut narrow = rig.narrow(1, &[true]);
    narrow.grants(0, 200);
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.settled, [0]);
    narrow.grants(0, 0);
    rig.narrow_rests(&mut narrow);
    assert_eq!(left(&mut rig), (1..20).collect::<Vec<_>>(), "in their order");
}

#[test]
fn what_stands_behind_a_get_is_on_its_queue_when_credit_is_withdrawn() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for number in 0..6 {
        let text = message(&format!("text-{number}_"));
        let text = if number % 3 == 0 { text.durable() } else { text };
        rig.send(&mut client, sender, number, text);
    }
    rig.hold_log();
    let mut narrow = rig.narrow(1_000, &[true]);
    narrow.grants(0, 6);
    rig.narrow_steps(&mut narrow);
    while rig.narrow_responds(&mut narrow) {}
    rig.narrow_steps(&mut narrow); // 0 is being got, the others stand behind it.
    assert!(narrow.settled.is_empty());
    narrow.grants(0, 2);
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.settled, [0, 1], "as far as credit goes, in their order");
    assert_eq!(left(&mut rig), [2, 3, 4, 5], "another consumer has them at once");
}

#[test]
fn a_closed_link_gives_its_part_of_the_window_to_the_others() {
    let mut rig = filled(20, true);
    rig.hold_log();
    let mut narrow = rig.narrow(2, &[true, false]);
    narrow.grants(0, 2);
    rig.narrow_steps(&mut narrow);
    while rig.narrow_responds(&mut narrow) {}
    rig.narrow_steps(&mut narrow); // Both are being got: the window is theirs.
    narrow.grants(1, 5);
    rig.narrow_steps(&mut narrow);
    while rig.narrow_responds(&mut narrow) {}
    assert!(narrow.unsettled.is_empty(), "nothing is left of the window");
    narrow.detaches(0);
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.unsettled, [2], "of three frames: it takes what there is");
    narrow.opens(10);
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.unsettled, [2, 3, 4, 5], "and goes on");
}

fn run(seed: u64) {
    const MESSAGES: usize = 60;
    let dice = &mut SeededRandom::new(seed);
    let any_persistent = dice.below(4) != 0;
    let mut rig = filled(MESSAGES, any_persistent);
    let links: Vec<bool> = (0..=dice.below(4)).map(|_| dice.below(4) != 0).collect();
    let windows = [0, 1, 3, 10, 40];
    let mut narrow = rig.narrow(windows[dice.index(5)], &links);
    rig.hold_log();
    let withdraws = dice.below(3) == 0;
    for _ in 0..dice.below(400) {
        match dice.below(10) {
            0 => narrow.opens(windows[dice.index(5)]),
            1 => {
                let link = dice.index(links.len());
                let least = if withdraws { 0 } else { narrow.credit(link) };
                narrow.grants(link, least + u32::try_from(dice.below(30)).unwrap());
            }
            2 | 3 => rig.narrow_steps(&mut narrow),
            4 => rig.narrow_syncs(&mut narrow),
            _ => _ = rig.narrow_responds(&mut narrow),
        }
    }
    let rested = dice.below(2) == 0;
    if rested {
        rig.narrow_rests(&mut narrow);
    }
    if rested && withdraws {
        // Without credit, only what is got already stays with its link.
        (0..links.len()).for_each(|link| narrow.grants(link, 0));
        rig.narrow_rests(&mut narrow);
        let left = left(&mut rig);
        let gone = |number: &usize| narrow.settled.contains(number) || left.contains(number);
        let is_got = |number: &usize| any_persistent && (number / 4).is_multiple_of(2);
        let sent = narrow.unsettled.clone();
        let locked: Vec<usize> = (0..MESSAGES)
            .filter(|number| !gone(number) && !sent.contains(number) && !is_got(number))
            .collect();
        assert!(locked.is_empty(), "locked to a link without credit: {locked:?}");
        return;
    }
    let takes = narrow.window() > 0 && (0..links.len()).any(|link| narrow.credit(link) > 0);
    let narrow = rig.narrow_breaks(narrow);
    let lost = lost(&mut rig, &narrow, MESSAGES);
    if rested && takes && !withdraws {
        let gone = narrow.settled.len() + narrow.unsettled.len() + lost.len();
        assert_eq!(gone, MESSAGES, "a link with credit and window did not get the others");
    }
    let lost_frames: u32 = lost.iter().map(|number| frames(*number)).sum();
    if withdraws {
        return; // What was being got when its credit was taken back can never be sent.
    }
    if rested {
        assert!(lost.is_empty(), "never sent, and gone: {lost:?}");
    } else {
        // What was being got would have gone out at once.
        assert!(lost.len() <= 1 || lost_frames <= narrow.window(), "gone: {lost:?}");
    }
}

#[test]
fn what_was_never_sent_is_never_lost_whatever_the_order_of_events() {
    let given = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| {
        use std::hash::{BuildHasher, Hasher, RandomState};
        RandomState::new().build_hasher().finish()
    });
    let rounds = if given.is_some() { 1 } else { 300 };
    for round in 0..rounds {
        let seed = first.wrapping_add(round);
        println!("TOWLINE_SEED={seed}");
        run(seed);
    }
}

#[test]
fn credit_for_a_deep_queue_does_not_fill_the_outbox_of_a_connection_that_is_not_written() {
    const DEPTH: usize = 5_000;
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for number in 0..DEPTH {
        rig.send(&mut client, sender, number as u64, message(&format!("text-{number}_")));
    }
    let mut narrow = rig.narrow(1_000_000, &[true, false]);
    narrow.grants(0, 1_000_000);
    narrow.grants(1, 1_000_000);
    for _ in 0..3 {
        rig.narrow_steps(&mut narrow);
    }
    let ahead = usize::try_from(limits::DISPATCHED_AHEAD_MAX).unwrap();
    assert_eq!(Rig::narrow_outbox(&narrow), 2 * ahead, "no more, whatever the credit");
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.settled.len() + narrow.unsettled.len(), DEPTH, "and it all comes");
}

#[test]
fn a_response_costs_the_same_however_many_links_wait() {
    const LINKS: u32 = 1_000;
    let mut rig = filled(16, false);
    let mut narrow = rig.narrow(0, &[]);
    for channel in [2, 3] {
        narrow.browses(channel, 0, LINKS, 1_000_000);
        rig.narrow_rests(&mut narrow);
    }
    let links = u64::from(2 * LINKS);
    assert!(narrow.looks() <= 2 * links, "closed: {} looks", narrow.looks());
    let mut flows = 0;
    let mut got = [0; 2];
    for _ in 0..10 {
        for (index, channel) in [2, 3].into_iter().enumerate() {
            narrow.opens_on(channel, got[index], 500);
            flows += 1;
            rig.narrow_rests(&mut narrow);
            let mark = format!("@{channel} transfer");
            got[index] = narrow.elsewhere.iter().filter(|line| line.starts_with(&mark)).count();
        }
    }
    assert_eq!(narrow.elsewhere.len(), 10_000, "the windows are used");
    let most = 2 * links + 2 * 10_000 + 2 * flows;
    assert!(narrow.looks() <= most, "opened: {} looks, more than {most}", narrow.looks());
}

#[test]
fn a_link_that_is_gone_leaves_nothing_to_look_at() {
    let mut rig = filled(16, false);
    let mut narrow = rig.narrow(0, &[]);
    narrow.browses(2, 0, 1, 100);
    rig.narrow_rests(&mut narrow);
    for time in 0..200 {
        narrow.says_on(2, "detach handle=0 closed");
        narrow.says_on(
            2,
            &format!("attach name=again{time} handle=0 role=receiver source=Q target=t copy"),
        );
        narrow.says_on(
            2,
            "flow next-incoming-id=0 incoming-window=0 handle=0 delivery-count=0 link-credit=100",
        );
        rig.narrow_rests(&mut narrow);
    }
    let before = narrow.looks();
    narrow.opens_on(2, 0, 1_000);
    rig.narrow_rests(&mut narrow);
    assert!(narrow.looks() - before <= 40, "{} looks", narrow.looks() - before);
    assert!(narrow.elsewhere.len() > 16, "all of them came");
}

/// Q with messages of so many bytes, and Q.SMALL with one.
fn with_large(sizes: &[usize]) -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("Q.SMALL");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for (number, bytes) in sizes.iter().enumerate() {
        rig.send(&mut client, sender, number as u64, message(&"x".repeat(*bytes)));
    }
    let sender = rig.sender(&mut client, "Q.SMALL");
    rig.send(&mut client, sender, 0, message("small"));
    rig
}

#[test]
fn bodies_that_wait_for_windows_are_bounded_for_the_connection() {
    const BODY: usize = 9 << 20;
    let mut rig = with_large(&[BODY]);
    let mut narrow = rig.narrow(0, &[]);
    for channel in 2..10 {
        narrow.browses(channel, 1, 1, 1);
        rig.narrow_rests(&mut narrow);
    }
    let begun = narrow.begun_bytes();
    assert!(begun <= limits::BEGUN_BYTES_MAX + BODY + 1_000, "{begun} bytes wait");
    assert_eq!(narrow.elsewhere.len(), 2, "those that were begun used their windows");

    // A small one goes all the same, in a session of its own and in one where a large one waits.
    narrow.says_on(9, "attach name=s handle=1 role=receiver source=Q.SMALL target=t copy");
    narrow.says_on(
        9,
        "flow next-incoming-id=0 incoming-window=1 handle=1 delivery-count=0 link-credit=1",
    );
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.elsewhere.len(), 3, "{:?}", narrow.elsewhere);
    assert!(narrow.elsewhere[2].starts_with("@9 transfer handle=1"), "{:?}", narrow.elsewhere);

    // One that fits into its window by now goes, though none of the others got on.
    narrow.opens_on(8, 0, 30_000);
    rig.narrow_rests(&mut narrow);
    assert!(narrow.elsewhere.len() > 10_000, "it came as a whole");
    assert!(narrow.begun_bytes() <= limits::BEGUN_BYTES_MAX + BODY + 1_000);

    // When one is through, another one is begun.
    narrow.elsewhere.clear();
    narrow.opens_on(2, 1, 30_000);
    rig.narrow_rests(&mut narrow);
    let begun = narrow.elsewhere.iter().filter(|line| !line.starts_with("@2 ")).count();
    assert_eq!(begun, 1, "one that waited");

    // What waits inside goes with its session.
    (2..10).for_each(|channel| narrow.says_on(channel, "end"));
    rig.narrow_rests(&mut narrow);
    assert_eq!(narrow.begun_bytes(), 0);
}

#[test]
fn what_is_got_ahead_of_its_sending_is_bounded() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for number in 0..500 {
        rig.send(&mut client, sender, number, message(&format!("text-{number}_")).durable());
    }
    rig.hold_log();
    let mut narrow = rig.narrow(1_000, &[true]);
    narrow.grants(0, 500);
    for _ in 0..3 {
        rig.narrow_steps(&mut narrow);
        while rig.narrow_responds(&mut narrow) {}
    }
    // The client closes its window while they are being got, and goes.
    narrow.says("flow next-incoming-id=0 incoming-window=0");
    rig.narrow_rests(&mut narrow);
    assert!(narrow.settled.is_empty(), "the window is closed");
    narrow.detaches(0);
    rig.narrow_rests(&mut narrow);
    let left = left(&mut rig);
    assert_eq!(left, (limits::LEAVING_MESSAGES_MAX..500).collect::<Vec<_>>(), "no more is lost");
}
