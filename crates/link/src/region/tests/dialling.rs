//! Which address is dialled, and when again.

use super::*;
use crate::Retries;

fn retries(short_ms: u64, short_count: u32, long_timer: Duration) -> Retries {
    Retries { short_timer: Duration::from_millis(short_ms), short_count, long_timer }
}

#[test]
fn nothing_is_dialled_before_it_is_ordered_nor_after_it_is_not() {
    let bench = RegionBench::new();
    let ((west, of_west), (_east, of_east)) = (bench.start(WEST, 0), bench.start(EAST, 0));
    assert_eq!(west.state().phase, RetryPhase::Off);
    assert!(of_east.events.lock().is_empty());
    west.dial(true);
    of_west.link(1);
    west.dial(false);
    assert_eq!(of_west.end(1), "this group no longer ships its log");
    let there = of_east.end(1);
    assert_eq!(there, "it ended the connection: this group no longer ships its log");
    until("rest", || (west.state().phase == RetryPhase::Off).then_some(()));
    west.kick();
    west.dial(true);
    of_west.link(2);
    of_east.link(2);
}

#[test]
fn addresses_are_dialled_in_order_until_one_takes_the_connection() {
    let mut bench = RegionBench::new();
    // Bound, so that no other process gets the port, but closed to callers.
    let kind = socket2::Type::STREAM;
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let closed = socket.local_addr().unwrap().as_socket().unwrap().to_string();
    bench.addresses[EAST][0] = closed.into();
    let ((_b, of_b), (_c, of_c)) = (bench.start(EAST, 1), bench.start(EAST, 2));
    let not_the_relay = Some((String::new(), "this instance is not the relay".to_owned()));
    *of_b.refusal.lock() = not_the_relay.clone();
    let addresses = bench.addresses[EAST].clone();
    let (west, of_west) = bench.start_with(RegionSettings { addresses, ..bench.settings(WEST, 0) });
    west.dial(true);
    of_west.link(1);
    assert_eq!(
        (west.state().address, &*west.state().instance),
        (bench.addresses[EAST][2].clone(), "c")
    );
    // The roles of the two change, and the next try begins with the first address again.
    *of_b.refusal.lock() = None;
    *of_c.refusal.lock() = not_the_relay;
    of_c.link(1).close("this instance is no longer the relay");
    of_west.link(2);
    assert_eq!(&*west.state().instance, "b");
}

#[test]
fn when_no_address_takes_it_the_reasons_of_all_are_there() {
    let bench = RegionBench::new();
    let started: Vec<_> = (0..3).map(|instance| bench.start(EAST, instance)).collect();
    for (number, (_, recorder)) in (0_u8..).zip(&started) {
        *recorder.refusal.lock() = Some(("a".into(), format!("reason {number}")));
        *recorder.sections.lock() = vec![(7, Bytes::from(vec![number]))];
    }
    let addresses = bench.addresses[EAST].clone();
    let (west, of_west) = bench.start_with(RegionSettings { addresses, ..bench.settings(WEST, 0) });
    west.dial(true);
    let why = trouble(&west);
    for (number, address) in bench.addresses[EAST].iter().enumerate() {
        assert!(why.contains(&format!("{address}: it refused: reason {number}")), "{why}");
    }
    assert!(!of_west.let_in());
    let said: Vec<u8> =
        of_west.refusals.lock().iter().map(|it| it.section(7).unwrap()[0]).collect();
    assert_eq!(said.get(..3), Some(&[0, 1, 2][..]), "each says with that what it has");
}

#[test]
fn the_side_that_dials_may_refuse_and_the_other_one_opens_nothing() {
    let bench = RegionBench::new();
    let ((west, of_west), (_east, of_east)) = (bench.start(WEST, 0), bench.start(EAST, 0));
    *of_west.refusal.lock() = Some(("a".into(), "its log is no prefix of ours".into()));
    west.dial(true);
    let why = trouble(&west);
    assert!(why.contains("refused here: its log is no prefix of ours"), "{why}");
    of_east.count("greetings", 3, |event| matches!(event, RegionEvent::Greeted(true, _)));
    assert!(!of_west.let_in() && !of_east.let_in(), "a connection stood for a moment");
    *of_west.refusal.lock() = None;
    of_west.link(1);
    of_east.link(1);
}

#[test]
fn after_the_short_tries_the_long_timer_applies_and_an_order_ends_it() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    *of_east.refusal.lock() = Some(("a".into(), "not yet".into()));
    // The long timer is longer than any wait here.
    let retries = retries(1, 3, 10 * LONG);
    let (west, of_west) = bench.start_with(RegionSettings { retries, ..bench.settings(WEST, 0) });
    west.dial(true);
    until("the long timer", || (west.state().phase == RetryPhase::Long).then_some(()));
    let tries = |event: &&RegionEvent| matches!(event, RegionEvent::Greeted(..));
    assert_eq!(of_east.events.lock().iter().filter(tries).count(), 4, "three short ones");
    assert!(!of_west.let_in());
    *of_east.refusal.lock() = None;
    west.kick();
    of_west.link(1);
    assert_eq!(west.state().phase, RetryPhase::Connected);
}

/// Two logs that have diverged: each connection stands, for longer than a short timer, until the
/// first batch is compared.
#[test]
fn connections_that_the_other_side_ends_with_a_reason_come_to_the_long_timer() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    let retries = retries(1, 3, 10 * LONG);
    let (west, of_west) = bench.start_with(RegionSettings { retries, ..bench.settings(WEST, 0) });
    west.dial(true);
    for count in 1..=4 {
        let link = of_east.link(count);
        of_west.link(count);
        until("it has stood for a moment", || west.state().link.round_trip_us);
        link.close("its log has another batch 9: the logs have diverged");
        of_west.end(count);
    }
    until("the long timer", || (west.state().phase == RetryPhase::Long).then_some(()));
    assert!(west.state().trouble.contains("another batch 9"), "{}", west.state().trouble);
    west.kick();
    of_west.link(5);
    assert_eq!(west.state().phase, RetryPhase::Connected);
}

#[test]
fn a_hello_of_the_other_side_shows_that_it_lives_and_ends_the_long_timer() {
    let bench = RegionBench::new();
    let (east, of_east) = bench.start(EAST, 0);
    *of_east.refusal.lock() = Some(("a".into(), "not yet".into()));
    let retries = retries(1, 0, 10 * LONG);
    let (west, of_west) = bench.start_with(RegionSettings { retries, ..bench.settings(WEST, 0) });
    west.dial(true);
    until("the long timer", || (west.state().phase == RetryPhase::Long).then_some(()));
    *of_east.refusal.lock() = None;
    // Refused, and a sign of life all the same.
    *of_west.no_stream.lock() = Some("no copy".into());
    let error = run(east.open_stream()).unwrap_err().to_string();
    assert!(error.contains("no copy"), "{error}");
    of_west.link(1);
}

#[test]
fn two_sides_that_refuse_each_other_stay_with_the_long_timer() {
    let bench = RegionBench::new();
    let all = [WEST, EAST].map(|group| {
        let settings = bench.settings(group, 0);
        let retries = retries(1, 2, Duration::from_millis(2));
        let (links, recorder) = bench.start_with(RegionSettings { retries, ..settings });
        *recorder.refusal.lock() = Some((String::new(), "both serve clients".into()));
        (links, recorder)
    });
    all.iter().for_each(|(links, _)| links.dial(true));
    for (links, recorder) in &all {
        recorder.count("greetings", 20, |event| matches!(event, RegionEvent::Greeted(true, _)));
        assert_eq!(links.state().phase, RetryPhase::Long, "a hello alone resets nothing");
        assert!(!recorder.let_in());
    }
}

#[test]
fn an_instance_that_comes_back_is_connected_again_and_the_inbox_hears_each_end() {
    let (bench, [(west, of_west), (east, _)]) = RegionBench::pair();
    drop(east);
    of_west.end(1);
    let (_east, of_east) = bench.start(EAST, 0);
    let link = of_west.link(2);
    assert!(link.send(7, FrameBody::default()));
    of_east.frames(1);
    assert_eq!(west.state().link.connects, 2);
}

#[test]
fn our_own_hello_that_is_too_long_is_reported_and_not_sent() {
    let bench = RegionBench::new();
    let ((west, of_west), (_east, of_east)) = (bench.start(WEST, 0), bench.start(EAST, 0));
    of_west.sections.lock().push((2, Bytes::from(vec![0; 256 * 1024])));
    west.dial(true);
    let why = trouble(&west);
    assert!(why.contains("our hello has 2 sections"), "{why}");
    assert!(!of_east.let_in());
    of_west.sections.lock().pop();
    of_west.link(1);
}
