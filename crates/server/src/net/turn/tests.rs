//! Turns on one thread, with work that is said and not done.

use std::future::poll_fn;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::task::Poll;

use tokio::task::{LocalSet, spawn_local, yield_now};

use super::*;

/// Of work that no stretch of time ends.
const NOW: Time = Time(1_000_000);

/// What a task does in its turn: how long it took, and whether it was cut.
type Work = (Duration, bool);

/// Turns of `tasks` that go on for ever, between an event on a socket and the turn of the one
/// that waits for it.
fn turns_before_an_event(tasks: usize, work: Work) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async move {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
        let (line, turns) = (Rc::new(Line::default()), Rc::new(Cell::new(0)));
        let busy = (0..tasks).map(|_| {
            let (counted, mut own) = (Rc::clone(&turns), Turns::of(&line));
            let mut ours = ours.try_clone().unwrap();
            spawn_local(poll_fn(move |context| {
                if own.begins(context, false) {
                    // When each of them had some turns.
                    if counted.get() == 3 * tasks {
                        ours.write_all(b"x").unwrap();
                    }
                    counted.set(counted.get() + 1);
                    own.goes_on(context, NOW, work.0, work.1);
                    own.ends();
                }
                Poll::<()>::Pending
            }))
        });
        let busy: Vec<_> = busy.collect();
        theirs.readable().await.unwrap();
        busy.iter().for_each(|task| task.abort());
        turns.get() - 3 * tasks
    }))
}

#[test]
fn an_event_on_a_socket_waits_for_one_long_turn_however_many_are_busy() {
    for tasks in [1, 10, 100] {
        let turns = turns_before_an_event(tasks, (Duration::ZERO, true));
        assert!(turns <= 3, "{turns} turns of {tasks} connections");
    }
}

#[test]
fn an_event_on_a_socket_waits_for_no_more_work_than_a_part_of_a_millisecond() {
    for tasks in [1, 10, 100] {
        let turns = turns_before_an_event(tasks, (UNASKED_MAX / 4, false));
        assert!(turns <= 9, "{turns} turns of {tasks} connections");
    }
    // Also of those that are short: each of them may have one turn.
    for tasks in [1, 10, 30] {
        let turns = turns_before_an_event(tasks, (SHORT_TURN_MAX * 9 / 10, false));
        assert!(turns <= tasks + 9, "{turns} turns of {tasks} connections");
    }
    let turns = turns_before_an_event(1, (Duration::ZERO, false));
    assert!(turns > 20, "{turns} turns: streams pay for each look at the sockets");
}

/// Runs on a thread whose sockets are asked when it awaits [`yield_now`].
fn on_a_thread<R>(body: impl AsyncFnOnce(Rc<Line>, &Context<'_>) -> R) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let context = Context::from_waker(Waker::noop());
    runtime.block_on(LocalSet::new().run_until(body(Rc::default(), &context)))
}

/// A connection with long turns, which stands in the line.
fn one_in_line(line: &Rc<Line>, context: &Context<'_>) -> Turns {
    let mut busy = Turns::of(line);
    (0..2).for_each(|_| busy.goes_on(context, NOW, UNASKED_MAX, true));
    busy.ends();
    assert!(!busy.begins(context, false) && busy.ticket.is_some());
    busy
}

/// The order in which tasks have their turns: each of `works` is one, until all had `most`.
fn order(works: &'static [Work], most: usize) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async move {
        let (line, order) = (Rc::new(Line::default()), Rc::new(RefCell::new(Vec::new())));
        let tasks = works.iter().enumerate().map(|(number, &(took, was_cut))| {
            let (order, mut own) = (Rc::clone(&order), Turns::of(&line));
            let mut left = most;
            spawn_local(poll_fn(move |context| {
                if !own.begins(context, false) {
                    return Poll::Pending;
                }
                order.borrow_mut().push(number);
                left -= 1;
                if left > 0 {
                    own.goes_on(context, NOW, took, was_cut);
                }
                own.ends();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            }))
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            task.await.unwrap();
        }
        order.take()
    }))
}

#[test]
fn those_with_long_turns_have_them_in_order_and_as_often_as_each_other() {
    let order = order(&[(UNASKED_MAX, true); 7], 20);
    // Before it is known that they have long ones, the runtime says which is first.
    let (_, rounds) = order.split_at(7);
    for round in rounds.chunks(7) {
        assert_eq!(round, &rounds[..7], "{order:?}");
    }
    let each: std::collections::BTreeSet<_> = rounds[..7].iter().collect();
    assert_eq!(each.len(), 7, "{order:?}");
}

#[test]
fn short_turns_go_before_long_ones_and_do_not_keep_them_from_theirs() {
    const LONG: Work = (UNASKED_MAX, false);
    let order = order(&[LONG, LONG, LONG, (Duration::ZERO, false)], 50);
    let ended = order.iter().rposition(|number| *number == 3).unwrap();
    let meanwhile = order[..ended].iter().filter(|number| **number < 3).count();
    assert!((2..=60).contains(&meanwhile), "{meanwhile} long turns in {order:?}");
}

#[test]
fn one_long_turn_alone_puts_no_connection_into_the_line() {
    on_a_thread(async |line, context| {
        let _busy = one_in_line(&line, context);
        let mut other = Turns::of(&line);
        other.goes_on(context, NOW, UNASKED_MAX, false);
        assert!(!other.begins(context, false) && other.ticket.is_none());
        yield_now().await;
        assert!(other.begins(context, false), "the sockets were asked");
        other.goes_on(context, NOW, UNASKED_MAX, false);
        assert!(!other.begins(context, false) && other.ticket.is_some(), "it is its way");
    });
}

#[test]
fn what_wakes_a_connection_before_the_sockets_were_asked_begins_no_round() {
    on_a_thread(async |line, context| {
        let mut turns = Turns::of(&line);
        turns.goes_on(context, NOW, SHORT_TURN_MAX / 2, false);
        line.unasked.set(UNASKED_MAX);
        turns.goes_on(context, NOW, SHORT_TURN_MAX / 4, false);
        turns.ends();
        for _ in 0..3 {
            assert!(!turns.begins(context, false));
            assert!(line.unasked.get() >= UNASKED_MAX && line.round.get() == 0);
        }
        yield_now().await;
        assert!(turns.begins(context, false));
        assert_eq!((line.unasked.get(), line.round.get()), (Duration::ZERO, 1));
    });
}

#[test]
fn many_short_turns_are_a_long_one_only_without_a_pause() {
    on_a_thread(async |line, context| {
        let _busy = one_in_line(&line, context);
        for (pauses, stands) in [(true, false), (false, true)] {
            let mut turns = Turns::of(&line);
            for _ in 0..20 {
                turns.goes_on(context, NOW, SHORT_TURN_MAX / 2, false);
                turns.ends();
                if pauses {
                    turns.ends();
                }
            }
            turns.begins(context, false);
            assert_eq!(turns.ticket.is_some(), stands);
        }
    });
}

#[test]
fn those_that_had_less_time_are_next() {
    on_a_thread(async |line, context| {
        let mut all: Vec<_> = (0..6).map(|_| Turns::of(&line)).collect();
        for number in [0, 5] {
            (0..2).for_each(|_| all[number].goes_on(context, NOW, UNASKED_MAX, true));
        }
        for (number, turns) in all.iter_mut().enumerate() {
            assert!(!turns.begins(context, (1..5).contains(&number)));
        }
        yield_now().await;
        let mut order = Vec::new();
        while !line.is_empty() {
            let called = all
                .iter_mut()
                .position(|turns| turns.ticket.is_some() && turns.begins(context, false));
            let called = called.expect("one is called while any waits");
            all[called].ends();
            order.push(called);
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5], "the first had more time than the next four");
    });
}

#[test]
fn those_that_log_in_have_half_of_the_time_and_not_every_other_turn() {
    const TURNS: usize = 256 * 5;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let busy_turns = runtime.block_on(LocalSet::new().run_until(async move {
        let (line, busy_turns) = (Rc::new(Line::default()), Rc::new(Cell::new(0)));
        let (counted, mut own) = (Rc::clone(&busy_turns), Turns::of(&line));
        let busy = spawn_local(poll_fn(move |context| {
            if own.begins(context, false) {
                counted.set(counted.get() + 1);
                own.goes_on(context, NOW, Duration::from_millis(1), true);
                own.ends();
            }
            Poll::<()>::Pending
        }));
        let logins: Vec<_> = (0..TURNS / 5)
            .map(|_| {
                let (mut own, mut left) = (Turns::of(&line), 5);
                spawn_local(poll_fn(move |context| {
                    if own.begins(context, true) {
                        left -= 1;
                        own.goes_on(context, NOW, Duration::from_micros(20), false);
                        own.ends();
                    }
                    if left == 0 { Poll::Ready(()) } else { Poll::Pending }
                }))
            })
            .collect();
        for login in logins {
            login.await.unwrap();
        }
        busy.abort();
        busy_turns.get()
    }));
    let logins_ms = TURNS * 20 / 1_000;
    assert!(busy_turns <= logins_ms + 15, "{busy_turns} ms for {logins_ms} ms of logins");
    assert!(busy_turns >= logins_ms / 2, "{busy_turns} ms for {logins_ms} ms of logins");
}

#[test]
fn one_that_is_called_at_once_waits_when_others_use_the_time_up() {
    on_a_thread(async |line, context| {
        let mut all: Vec<_> = (0..2).map(|_| one_in_line(&line, context)).collect();
        yield_now().await;
        assert!(all[0].begins(context, false));
        all[0].goes_on(context, NOW, SHORT_TURN_MAX, false);
        let round = line.round.get();
        all[0].ends();
        line.unasked.set(UNASKED_MAX);
        assert!(!all[1].begins(context, false), "the sockets were not asked");
        assert_eq!(line.round.get(), round);
        yield_now().await;
        assert!(all[1].begins(context, false));
        assert_eq!((line.round.get(), line.unasked.get()), (round + 1, Duration::ZERO));
    });
}

#[test]
fn a_long_turn_and_a_short_one_behind_it_are_not_two_long_ones() {
    on_a_thread(async |line, context| {
        let _busy = one_in_line(&line, context);
        let mut small = Turns::of(&line);
        for took in [10 * UNASKED_MAX, Duration::from_micros(20)] {
            small.goes_on(context, NOW, took, false);
            small.ends();
            small.begins(context, false);
            assert!(small.ticket.is_none(), "one turn was long");
        }
    });
}

#[test]
fn one_that_leaves_the_line_holds_up_no_other() {
    on_a_thread(async |line, context| {
        let mut of_line: Vec<_> = (0..4).map(|_| one_in_line(&line, context)).collect();
        // One in the middle, then the first one, which is called.
        of_line.remove(1);
        of_line.remove(0);
        yield_now().await;
        assert!(of_line[0].begins(context, false) && !of_line[1].begins(context, false));
        of_line[0].ends();
        assert!(of_line[1].begins(context, false));
        of_line[1].ends();
        assert!(line.is_empty());
    });
}

/// One whose turns take so long, at such a time.
fn works(turns: &mut Turns, context: &Context<'_>, now: Time, took: Duration) {
    turns.goes_on(context, now, took, false);
    turns.ends();
}

#[test]
fn the_sockets_are_asked_less_often_only_while_no_light_connection_is_served() {
    on_a_thread(async |line, context| {
        let (mut busy, mut light) = (Turns::of(&line), Turns::of(&line));
        let at = |after: Duration| NOW + after;
        works(&mut busy, context, NOW, UNASKED_MAX * 2);
        assert_eq!(line.unasked_max(), UNASKED_ALONE_MAX, "nothing is known of any light one");
        works(&mut light, context, NOW, SHORT_TURN_MAX / 5);
        assert_eq!(line.unasked_max(), UNASKED_MAX, "from its first turn on");
        works(&mut busy, context, at(LIGHT_FOR / 2), UNASKED_MAX * 2);
        assert_eq!(line.unasked_max(), UNASKED_MAX);
        works(&mut busy, context, at(LIGHT_FOR), UNASKED_MAX * 2);
        assert_eq!(line.unasked_max(), UNASKED_ALONE_MAX);
    });
}

#[test]
fn one_that_has_much_of_a_stretch_of_time_is_not_light_until_it_had_little_of_one() {
    on_a_thread(async |line, context| {
        let mut turns = Turns::of(&line);
        let stretch = Duration::from_millis(STRETCH_MS);
        let mut light = |stretches: u32, took: Duration| {
            works(&mut turns, context, NOW + stretch * stretches, took);
            line.light_at.take().is_some()
        };
        let half = LIGHT_WORK_MAX / 2;
        assert!(light(0, half) && light(0, half), "together what is allowed");
        assert!(!light(0, half), "more than that");
        assert!(!light(1, half), "it had much in the stretch before");
        assert!(light(2, half) && !light(2, half * 2));
        assert!(light(4, half), "in the one between it had nothing");
    });
}

#[test]
fn those_whose_turns_fit_are_called_together_and_one_at_least() {
    for (took, together) in [(UNASKED_MAX / 4, 4), (UNASKED_MAX / 2, 2), (UNASKED_MAX * 3, 1)] {
        on_a_thread(async |line, context| {
            let mut first = one_in_line(&line, context);
            let mut others: Vec<_> = (0..6).map(|_| Turns::of(&line)).collect();
            for turns in &mut others {
                (0..2).for_each(|_| works(turns, context, NOW, took));
                assert!(!turns.begins(context, false));
            }
            yield_now().await;
            assert!(first.begins(context, false));
            first.ends();
            let called =
                others.iter_mut().filter_map(|turns| turns.begins(context, false).then_some(1));
            assert_eq!(called.sum::<usize>(), together, "{took:?} each");
            assert_eq!(line.called.borrow().len(), together);
            drop(others);
            assert!(line.is_empty() && line.expected.get() == Duration::ZERO);
        });
    }
}

#[test]
fn those_that_come_are_called_one_at_a_time() {
    on_a_thread(async |line, context| {
        let mut first = one_in_line(&line, context);
        let mut coming: Vec<_> = (0..6).map(|_| Turns::of(&line)).collect();
        coming.iter_mut().for_each(|turns| assert!(!turns.begins(context, true)));
        yield_now().await;
        assert!(first.begins(context, false));
        first.ends();
        assert_eq!(line.called.borrow().len(), 1);
        drop(coming);
        assert!(line.is_empty() && line.expected.get() == Duration::ZERO);
    });
}

#[test]
fn a_long_turn_comes_also_beside_short_ones_that_fill_each_round() {
    on_a_thread(async |line, context| {
        let mut busy = one_in_line(&line, context);
        let mut small: Vec<_> = (0..6).map(|_| Turns::of(&line)).collect();
        let mut rounds = 0;
        while !busy.begins(context, false) {
            assert!(rounds < 3, "it stands in the line for ever");
            rounds += 1;
            // What comes for them is seen before what was left with the runtime.
            yield_now().await;
            for turns in &mut small {
                assert!(turns.begins(context, false));
                works(turns, context, NOW, SHORT_TURN_MAX * 9 / 10);
                turns.ends();
            }
            assert!(line.is_used_up());
        }
    });
}

#[test]
fn one_that_was_put_off_has_its_turn_in_the_next_round_and_not_before() {
    on_a_thread(async |line, context| {
        let mut all: Vec<_> = (0..2).map(|_| one_in_line(&line, context)).collect();
        yield_now().await;
        assert!(all[0].begins(context, false));
        all[0].ends();
        line.unasked.set(UNASKED_MAX);
        for _ in 0..3 {
            assert!(!all[1].begins(context, false), "the sockets were not asked");
        }
        yield_now().await;
        line.look();
        line.unasked.set(UNASKED_MAX);
        assert!(all[1].begins(context, false), "whatever the others did");
    });
}

#[test]
fn those_that_come_are_called_one_at_a_time_also_where_all_are_busy() {
    on_a_thread(async |line, context| {
        let mut first = one_in_line(&line, context);
        let mut coming: Vec<_> = (0..6).map(|_| Turns::of(&line)).collect();
        coming.iter_mut().for_each(|turns| assert!(!turns.begins(context, true)));
        line.is_alone.set(true);
        yield_now().await;
        assert!(first.begins(context, false));
        first.ends();
        assert_eq!(line.called.borrow().len(), 1);
    });
}

#[test]
fn where_all_are_busy_more_is_done_before_the_sockets_are_asked() {
    for (is_alone, begins, together) in [(true, true, 4), (false, false, 1)] {
        on_a_thread(async |line, context| {
            line.is_alone.set(is_alone);
            line.unasked.set(UNASKED_MAX);
            let mut busy = Turns::of(&line);
            busy.times_long = 2;
            assert_eq!(busy.begins(context, false), begins, "the line is empty");
            drop(busy);
            line.unasked.set(Duration::ZERO);
            let mut all: Vec<_> = (0..6).map(|_| one_in_line(&line, context)).collect();
            line.is_alone.set(is_alone);
            yield_now().await;
            assert!(all[0].begins(context, false));
            line.unasked.set(Duration::ZERO);
            all[0].ends();
            assert_eq!(line.called.borrow().len(), together);
        });
    }
}

#[test]
fn what_those_do_that_come_and_go_counts_as_well() {
    on_a_thread(async |line, context| {
        let mut gone = Turns::of(&line);
        assert!(gone.begins(context, true));
        gone.worked(UNASKED_MAX);
        drop(gone);
        let mut next = Turns::of(&line);
        assert!(!next.begins(context, true), "the sockets are asked first");
        yield_now().await;
        assert!(next.begins(context, true));
    });
}

#[test]
fn handshakes_have_their_turns_one_at_a_time() {
    on_a_thread(async |line, context| {
        let (clock, begun) = (Cell::new(NOW), Cell::new(0));
        let handshake = || {
            in_turns(&line, || clock.get(), async {
                // It takes so long, and waits for its client between its two parts.
                for _ in 0..2 {
                    begun.set(begun.get() + 1);
                    clock.set(clock.get() + UNASKED_MAX * 2);
                    yield_now().await;
                }
            })
        };
        let mut all: Vec<_> = (0..4).map(|_| Box::pin(handshake())).collect();
        for rounds in 1.. {
            assert!(rounds < 20, "{} are left", all.len());
            let before = begun.get();
            let mut context = Context::from_waker(context.waker());
            all.retain_mut(|work| work.as_mut().poll(&mut context).is_pending());
            assert!(begun.get() <= before + 1, "more than one between two looks at the sockets");
            if all.is_empty() {
                return;
            }
            yield_now().await;
        }
    });
}
