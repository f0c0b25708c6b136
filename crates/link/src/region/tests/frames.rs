//! Frames between two regions: order, bounds, pings, ends.

use super::super::dial;
use super::*;
use crate::handshakes::LinkListener;
use crate::{BODY_BYTES_MAX, OWN_KINDS};
use towline_types::limits::REGION_WRITABLE_BYTES;

const MIB: usize = 1024 * 1024;

#[test]
fn each_side_hears_the_names_and_the_sections_of_the_other_one() {
    let (_bench, [(west, of_west), (_east, of_east)]) = RegionBench::pair();
    for (recorder, incoming, section) in [(of_west, false, "EAST.a"), (of_east, true, "WEST.a")] {
        let hello = recorder.until("a greeting", |events| {
            events.iter().find_map(|event| match event {
                RegionEvent::Opened(_, is, hello) if *is == incoming => Some(hello.clone()),
                _ => None,
            })
        });
        assert_eq!((&*hello.instance, hello.version), ("a", 1));
        assert_eq!(&*hello.build, env!("CARGO_PKG_VERSION"));
        assert_eq!(hello.sections, [(1, Bytes::from(section))]);
    }
    let state = west.state();
    assert_eq!((state.phase, &*state.instance), (RetryPhase::Connected, "a"));
    assert!(state.link.connected_out && !state.link.connected_in && state.trouble.is_empty());
}

#[test]
fn frames_go_both_ways_in_order_and_what_shrinks_is_compressed_and_counted() {
    let (_bench, [(west, of_west), (east, of_east)]) = RegionBench::pair();
    let ends = [of_west.link(1), of_east.link(1)];
    let text = b"towline towline towline ".repeat(100);
    for number in 0..200_u8 {
        for (side, end) in (0_u8..).zip(&ends) {
            let head = vec![side, number];
            assert!(end.send(number, FrameBody { head, parts: vec![text.clone().into()] }));
        }
    }
    for (side, recorder) in [(1, &of_west), (0, &of_east)] {
        let frames = recorder.frames(200);
        for (number, (kind, body)) in (0..200_u8).zip(&frames) {
            assert_eq!((*kind, &body[..2]), (number, &[side, number][..]));
            assert_eq!(body[2..], text);
        }
        let costs = recorder.costs.lock();
        assert!(costs.iter().all(|cost| cost.wire_bytes < text.len() / 4));
        assert!(costs.iter().any(|cost| !cost.decompression.is_zero()));
    }
    let bytes = 200 * (text.len() as u64 + 2);
    let (sent, received) = (west.state().link, east.state().link);
    assert_eq!(received.received_bytes, bytes);
    assert_eq!((received.received_frames, received.dropped_frames), (200, 0));
    // The numbers of the writer follow when it comes back.
    until("all of them", || (west.state().link.sent_bytes == bytes).then_some(()));
    assert!(sent.compression_us > 0 && received.decompression_us > 0);
    assert_eq!(received.received_wire_bytes, west.state().link.sent_wire_bytes);
    assert!(received.received_wire_bytes < bytes / 4);
}

#[test]
fn the_largest_frame_arrives_whole_and_a_longer_one_is_a_mistake_of_ours() {
    let (_bench, [_west, (_east, of_east)]) = RegionBench::pair();
    let link = _west.1.link(1);
    let body: Vec<u8> = (0_u8..251).cycle().take(BODY_BYTES_MAX).collect();
    assert!(link.send(5, FrameBody::from(body.clone())));
    assert!(of_east.frames(1)[0].1 == body, "other bytes came");
    let send = |kind: u8, bytes: usize| {
        let link = Arc::clone(&link);
        let sent = std::thread::spawn(move || link.send(kind, FrameBody::from(vec![0; bytes])));
        sent.join().is_err()
    };
    assert!(send(1, BODY_BYTES_MAX + 1) && send(*OWN_KINDS.start(), 1));
}

#[test]
fn the_way_there_and_back_is_measured_by_both_ends_and_forgotten_with_the_connection() {
    let (_bench, [(west, _of_west), (east, of_east)]) = RegionBench::pair();
    for links in [&west, &east] {
        until("an answer to a ping", || links.state().link.round_trip_us);
    }
    west.dial(false);
    of_east.end(1);
    until("no round trip", || east.state().link.round_trip_us.is_none().then_some(()));
}

#[test]
fn pings_go_between_frames_that_wait() {
    let bench = RegionBench::new();
    let heartbeat_interval = Duration::from_millis(1);
    let settings =
        RegionSettings { heartbeat_interval, compression_threshold: 0, ..bench.settings(EAST, 0) };
    let (_east, of_east) = bench.start_with(settings);
    run(async {
        let mut stream = bench.by_hand((WEST, 0), (EAST, 0)).await;
        let link = of_east.link(1);
        let body = Bytes::from(vec![0; MIB]);
        for _ in 0..32 {
            assert!(link.send(1, FrameBody { head: vec![], parts: vec![body.clone()] }));
        }
        let (mut input, mut kinds) = (BytesMut::new(), Vec::new());
        while kinds.iter().filter(|kind| **kind == 1).count() < 32 {
            kinds.push(next(&mut stream, &mut input).await.unwrap().kind);
        }
        let first = kinds.iter().position(|kind| *kind == 1).unwrap();
        assert!(kinds[first..].contains(&PING), "32 MiB in a row: {kinds:?}");
    });
}

#[test]
fn a_full_queue_takes_no_more_and_says_when_there_is_space_again() {
    let (_bench, [(west, of_west), (_east, of_east)]) = RegionBench::pair_with(0);
    let (link, there) = (of_west.link(1), of_east.link(1));
    *of_east.full.lock() = true;
    let large = || FrameBody { head: vec![], parts: vec![Bytes::from(vec![1; MIB])] };
    let mut taken = 0;
    while link.queued_bytes() < 60 * MIB {
        assert!(link.send(1, large()));
        taken += 1;
    }
    while link.send(1, large()) {
        taken += 1;
    }
    assert!(link.queued_bytes() <= 64 * MIB);
    assert_eq!(west.state().link.queued_bytes, link.queued_bytes());
    assert_eq!(west.state().link.dropped_frames, 1);
    let writable = |event: &RegionEvent| matches!(event, RegionEvent::Writable(_));
    // While it was filled, the other end's system took some, and it may have run low.
    let before = of_west.events.lock().iter().filter(|event| writable(event)).count();
    *of_east.full.lock() = false;
    there.resume();
    of_west.count("space", before + 1, writable);
    assert!(link.queued_bytes() < REGION_WRITABLE_BYTES);
    assert_eq!(of_east.frames(taken).len(), taken);
    assert!(link.send(1, large()));
}

/// Behind 4 MiB at 2 Mbit/s what the live group said of itself was 18 s old when it came.
#[test]
fn the_newest_frame_that_goes_first_overtakes_what_waits_and_memory_has_space_for_one() {
    const ORDINARY: usize = 40;
    let (_bench, [(_west, of_west), (_east, of_east)]) = RegionBench::pair_with(0);
    let (link, there) = (of_west.link(1), of_east.link(1));
    *of_east.full.lock() = true;
    let large = || FrameBody { head: vec![], parts: vec![Bytes::from(vec![1; MIB])] };
    assert!((0..ORDINARY).all(|_| link.send(1, large())));
    let waiting = link.queued_bytes();
    for number in 0..1_000_u32 {
        assert!(link.send_newest(9, FrameBody::from(number.to_be_bytes().to_vec())));
    }
    assert!(link.queued_bytes() <= waiting, "they do not wait behind each other");
    *of_east.full.lock() = false;
    there.resume();
    let newest = |events: &[RegionEvent]| {
        let last = Bytes::from(999_u32.to_be_bytes().to_vec());
        let is_last =
            |event: &RegionEvent| matches!(event, RegionEvent::Frame(_, 9, body) if *body == last);
        events.iter().any(is_last).then_some(())
    };
    of_east.until("the newest", newest);
    let ordinary = |event: &RegionEvent| matches!(event, RegionEvent::Frame(_, 1, _));
    of_east.count("what waited", ORDINARY, ordinary);
    let kinds: Vec<u8> = of_east.frames(ORDINARY + 1).iter().map(|(kind, _)| *kind).collect();
    let last = kinds.iter().rposition(|kind| *kind == 9).unwrap();
    assert!(kinds.len() - last > ORDINARY / 4, "it came at {last} of {}", kinds.len());
    assert!(kinds.len() < ORDINARY + 100, "those that had not gone were replaced");
    link.close("done");
    of_west.end(1);
    assert!(!link.send_newest(9, FrameBody::default()), "it has ended");
}

#[test]
fn a_receiver_that_is_full_reads_one_frame_for_each_resumption_and_is_not_taken_for_dead() {
    let bench = RegionBench::new();
    let (interval, timeout) = (Duration::from_millis(10), Duration::from_secs(1));
    let settings = RegionSettings {
        heartbeat_interval: interval,
        heartbeat_timeout: timeout,
        ..bench.settings(EAST, 0)
    };
    let (_east, of_east) = bench.start_with(settings);
    *of_east.full.lock() = true;
    run(async {
        let mut stream = bench.by_hand((WEST, 0), (EAST, 0)).await;
        let link = of_east.link(1);
        let three = [framed(1, &[1]), framed(2, &[2]), framed(3, &[3])].concat();
        stream.write_all(&three).await.unwrap();
        stream.flush().await.unwrap();
        // It hears nothing for longer than its heartbeat timeout, because it does not listen.
        let mut input = BytesMut::new();
        let mut kinds = Vec::new();
        while kinds.len() < 120 {
            kinds.push(next(&mut stream, &mut input).await.map(|frame| frame.kind));
        }
        assert_eq!(kinds, [Some(PING); 120]);
        for frames in 1..=3 {
            assert_eq!(of_east.frames(frames).len(), frames);
            link.resume();
        }
        // What it did not hear meanwhile counts for nothing: it waits for as long again.
        assert_eq!(next(&mut stream, &mut input).await.map(|frame| frame.kind), Some(PING));
        assert_eq!(next(&mut stream, &mut input).await.map(|frame| frame.kind), Some(PING));
        stream.write_all(&framed(4, &[4])).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(of_east.frames(4).len(), 4);
    });
}

#[test]
fn nothing_that_the_system_does_ends_a_connection_whose_other_end_takes_nothing() {
    let bench = RegionBench::new();
    let ((west, _), (east, _of_east)) = (bench.start(WEST, 0), bench.start(EAST, 0));
    let checked = |socket: &TcpStream| {
        let options = socket2::SockRef::from(socket);
        assert_eq!(options.tcp_user_timeout().unwrap(), None);
        assert!(options.keepalive().unwrap() && socket.nodelay().unwrap());
    };
    run(async {
        let address = &bench.addresses[EAST][0];
        let dialled = dial::connect(&west.shared, 0, address, RegionMatter::Frames);
        checked(dialled.await.unwrap().stream.get_ref().0);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        LinkListener::tune(&*east.shared, &socket).unwrap();
        checked(&socket);
    });
}

#[test]
fn a_side_that_says_nothing_is_given_up_after_the_heartbeat_timeout() {
    let bench = RegionBench::new();
    let heartbeat_timeout = Duration::from_millis(50);
    let settings = RegionSettings { heartbeat_timeout, ..bench.settings(EAST, 0) };
    let (_east, of_east) = bench.start_with(settings);
    run(async {
        let silent = bench.by_hand((WEST, 0), (EAST, 0)).await;
        assert_eq!(of_east.end(1), "nothing came from it for 50 ms");
        drop(silent);
    });
}

#[test]
fn pings_alone_keep_a_connection() {
    let bench = RegionBench::new();
    let quick = |group: usize| {
        let settings = bench.settings(group, 0);
        let heartbeat_interval = Duration::from_millis(10);
        let heartbeat_timeout = Duration::from_secs(1);
        bench.start_with(RegionSettings { heartbeat_interval, heartbeat_timeout, ..settings })
    };
    let ((west, of_west), (east, _of_east)) = (quick(WEST), quick(EAST));
    west.dial(true);
    of_west.link(1);
    let began = Instant::now();
    // A hundred answers take as long as the timeout, and none of them is a frame.
    let mut before = None;
    let mut answers = 0;
    until("answers for longer than the timeout", || {
        let now = west.state().link.round_trip_us;
        answers += u64::from(now != before);
        before = now;
        (answers > 5 && began.elapsed() > Duration::from_millis(1_100)).then_some(())
    });
    assert_eq!((west.state().link.connects, east.state().link.connected_in), (1, true));
}

#[test]
fn a_connection_that_one_side_closes_ends_for_both_with_the_reason() {
    let (_bench, [(_west, of_west), (_east, of_east)]) = RegionBench::pair();
    let link = of_east.link(1);
    link.close("the position that it reports was never sent\n");
    link.close("another reason");
    assert_eq!(of_east.end(1), "the position that it reports was never sent\n");
    let there = "it ended the connection: the position that it reports was never sent\\n";
    assert_eq!(of_west.end(1), there);
    assert!(!link.send(1, FrameBody::default()));
    assert_eq!(link.queued_bytes(), 0);
    // It is dialled again.
    of_west.link(2);
}

#[test]
fn the_reason_arrives_though_both_sides_are_sending() {
    let (_bench, [(_west, of_west), (_east, of_east)]) = RegionBench::pair_with(0);
    let ends = [of_west.link(1), of_east.link(1)];
    for link in &ends {
        for _ in 0..16 {
            let parts = vec![Bytes::from(vec![1; MIB])];
            assert!(link.send(1, FrameBody { head: vec![], parts }));
        }
    }
    of_west.frames(1);
    ends[1].close("enough");
    let why = of_west.end(1);
    assert_eq!(why, "it ended the connection: enough");
}

#[test]
fn a_frame_that_cannot_be_of_the_other_group_ends_the_connection_with_the_reason() {
    let (_bench, [(_west, of_west), (_east, of_east)]) = RegionBench::pair();
    assert!(of_west.link(1).send(9, FrameBody::from(FORGED.to_vec())));
    assert_eq!(of_west.end(1), "it ended the connection: it is not of that group");
    assert_eq!(of_east.end(1), "it is not of that group");
    of_west.link(2);
}

#[test]
fn the_end_of_a_process_is_noticed_at_once_and_once() {
    // The heartbeat timeout is longer than any wait here.
    let (_bench, [(_west, of_west), (east, _)]) = RegionBench::pair();
    let link = of_west.link(1);
    drop(east);
    of_west.end(1);
    assert!(!link.send(1, FrameBody::default()), "no other end is there");
    let closed = |event: &&RegionEvent| matches!(event, RegionEvent::Closed(..));
    assert_eq!(of_west.events.lock().iter().filter(closed).count(), 1);
}

#[test]
fn a_newer_connection_ends_the_one_before_which_hears_why() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        let mut first = bench.by_hand((WEST, 0), (EAST, 0)).await;
        of_east.link(1);
        let second = bench.by_hand((WEST, 1), (EAST, 0)).await;
        of_east.link(2);
        assert_eq!(last_words(&mut first).await, "a newer connection took its turn");
        let events = of_east.events.lock().clone();
        let order = events.iter().filter_map(|event| match event {
            RegionEvent::Opened(_, _, hello) => Some(hello.instance.to_string()),
            RegionEvent::Closed(_, why) => Some(why.clone()),
            _ => None,
        });
        let order: Vec<String> = order.collect();
        assert_eq!(order, ["a", "a newer connection took its turn", "b"]);
        drop(second);
    });
}

#[test]
fn a_connection_that_may_not_stand_leaves_the_one_before_alone() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    *of_east.refusal.lock() = Some(("b".into(), "its history ended at the fork".into()));
    let (west, of_west) = bench.start(WEST, 0);
    west.dial(true);
    of_west.link(1);
    let (other, of_other) = bench.start(WEST, 1);
    other.dial(true);
    let why = trouble(&other);
    assert!(why.contains("it refused: its history ended at the fork"), "{why}");
    assert!(!of_other.let_in());
    assert!(of_west.link(1).send(1, FrameBody::default()));
    of_east.frames(1);
}
