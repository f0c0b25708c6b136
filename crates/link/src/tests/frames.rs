//! Frames between two and three instances: order, bounds, ends.

use towline_group::Start;

use super::*;
use crate::settings::Member;
use crate::{BODY_BYTES_MAX, FrameBody, LinkState};

fn is_frame(observed: &Observation) -> bool {
    matches!(observed, Observation::Frame(..))
}

#[test]
fn an_instance_hears_where_its_peer_stands() {
    let (_bench, [(_a, of_a), (_b, of_b)]) = Bench::pair();
    let greeting = |recorder: &Recorder, incoming| {
        recorder.until("a greeting", |observed| {
            observed.iter().find_map(|observed| match observed {
                Observation::Opened(_, is, greeting) if *is == incoming => Some(greeting.clone()),
                _ => None,
            })
        })
    };
    for incoming in [false, true] {
        let of_peer = greeting(&of_a, incoming);
        let standing = Standing { blank: false, last_index: 1, last_term: 1, term: 4, log: 0 };
        assert_eq!(of_peer.standing, standing);
        assert_eq!((of_peer.version, &*of_peer.build), (3, env!("CARGO_PKG_VERSION")));
        assert!(greeting(&of_b, incoming).standing.blank);
    }
}

#[test]
fn a_start_is_declared_and_noted_before_anything_else_of_a_connection_is_heard() {
    let (_bench, [(a, of_a), (_b, of_b)]) = Bench::pair();
    of_a.linked(1, 1);
    assert!(a.send(1, 7, true, FrameBody::from(vec![7])));
    of_b.count("a frame", 1, is_frame);
    let observed = of_b.observed.lock();
    let declared = observed
        .iter()
        .position(|observed| *observed == Observation::Declared(0, Start { number: 1, nonce: 1 }));
    let first = observed.iter().position(is_frame);
    assert!(declared.is_some() && declared < first, "{observed:?}");
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_peer_says_before_it_has_declared_its_start_is_not_heard() {
    let bench = Bench::new(2);
    let (_b, of_b) = bench.start(1);
    let stream = run(async {
        let mut stream = bench.dial_undeclared(0, 1).await;
        let frames = [framed(7, &[1]), framed(START, &[9; 16]), framed(8, &[2])];
        stream.write_all(&frames.concat()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    });
    of_b.count("the frame behind it", 1, |observed| {
        matches!(observed, Observation::Frame(0, 8, _))
    });
    assert_eq!(of_b.kinds(0), [8]);
    drop(stream);
}

#[test]
fn a_connection_that_may_not_stand_is_refused_with_the_reason() {
    let bench = Bench::new(2);
    let (b, of_b) = bench.start(1);
    *of_b.no_greeting.lock() = Some("another process is 'a'".into());
    let (a, _of_a) = bench.start(0);
    wait_for("the reason", || a.trouble(1).contains("another process is 'a'"));
    assert!(
        !of_b.observed.lock().iter().any(|observed| matches!(observed, Observation::Opened(..)))
    );
    drop(b);
}

#[test]
fn frames_arrive_in_order_between_all_of_three() {
    let bench = Bench::new(3);
    let all: Vec<_> = (0..3).map(|this| bench.start(this)).collect();
    let others = |this: usize| (0..3).filter(move |peer| *peer != this);
    for (this, (_, recorder)) in all.iter().enumerate() {
        others(this).for_each(|peer| recorder.linked(peer, 1));
    }
    for kind in 0..200 {
        for (this, (links, _)) in (0_u8..).zip(&all) {
            for peer in others(this.into()) {
                let head = vec![kind; usize::from(kind) * 50];
                let parts = vec![Bytes::from(vec![this; 1_000])];
                assert!(links.send(peer, kind, false, FrameBody { head, parts }));
            }
        }
    }
    for (this, (_, recorder)) in all.iter().enumerate() {
        recorder.count("all frames", 400, is_frame);
        for peer in others(this) {
            assert_eq!(recorder.kinds(peer), (0..200).collect::<Vec<u8>>());
        }
        for observed in recorder.observed.lock().iter() {
            let Observation::Frame(peer, kind, body) = observed else { continue };
            let (head, part) = body.split_at(usize::from(*kind) * 50);
            assert!(head.iter().all(|byte| byte == kind));
            assert!(part.len() == 1_000 && part.iter().all(|byte| usize::from(*byte) == *peer));
        }
    }
}

#[test]
fn the_largest_frame_arrives_whole_packed_or_not() {
    let bench = Bench::new(2);
    for threshold in [0, 1] {
        let settings = |this| {
            let settings = bench.settings(this);
            LinkSettings { compression_threshold: threshold, ..settings }
        };
        let (a, of_a) = bench.start_with(0, settings(0));
        let (_b, of_b) = bench.start_with(1, settings(1));
        of_a.linked(1, 1);
        let body: Vec<u8> = (0_u8..251).cycle().take(BODY_BYTES_MAX).collect();
        assert!(a.send(1, 5, false, FrameBody::from(body.clone())));
        of_b.count("the frame", 1, is_frame);
        let expected = Observation::Frame(0, 5, Bytes::from(body));
        assert!(of_b.observed.lock().contains(&expected), "other bytes came");
    }
}

#[test]
#[should_panic(expected = "a frame of")]
fn a_frame_that_is_too_long_is_a_mistake_of_ours() {
    let bench = Bench::new(2);
    let (links, _) = bench.start(0);
    links.send(1, 1, false, FrameBody::from(vec![0; BODY_BYTES_MAX + 1]));
}

#[test]
fn a_full_queue_drops_and_urgent_frames_overtake_what_waits() {
    let (_bench, [(a, _), (_b, of_b)]) = Bench::pair();
    of_b.stop(true);
    let large = || FrameBody { head: vec![], parts: vec![Bytes::from(vec![1; 1 << 20])] };
    // The receiver takes one and stops; the system takes some; then the queue fills.
    let settings = || a.state(1);
    let mut taken = 0;
    while settings().queued_bytes < 60 << 20 {
        assert!(a.send(1, 1, false, large()));
        taken += 1;
    }
    while a.send(1, 1, false, large()) {
        taken += 1;
    }
    assert!(settings().dropped_frames == 1 && settings().queued_bytes <= 64 << 20);
    assert!(a.send(1, 2, true, large()), "what is urgent has room of its own");
    of_b.stop(false);
    of_b.count("all frames", taken + 1, is_frame);
    let kinds = of_b.kinds(0);
    let at = kinds.iter().position(|kind| *kind == 2).unwrap();
    // One was read, one or two were on their way.
    assert!(at <= 4, "it came as number {at} of {taken}");
}

#[test]
fn the_end_of_a_process_is_noticed_at_once_and_once() {
    // The heartbeat timeout is longer than any wait here.
    let (_bench, [(a, of_a), (b, _)]) = Bench::pair();
    drop(b);
    for incoming in [false, true] {
        of_a.count("the end", 1, |observed| *observed == Observation::Closed(1, incoming));
    }
    assert!(!a.send(1, 1, true, FrameBody::default()), "no peer is there");
    let LinkState { connected_out, connected_in, queued_bytes, .. } = a.state(1);
    assert_eq!((connected_out, connected_in, queued_bytes), (false, false, 0));
    let closed = |observed: &&Observation| matches!(observed, Observation::Closed(..));
    assert_eq!(of_a.observed.lock().iter().filter(closed).count(), 2);
}

#[test]
fn an_instance_that_comes_back_is_linked_again() {
    let (bench, [(a, of_a), (b, _)]) = Bench::pair();
    drop(b);
    of_a.count("the end", 1, |observed| *observed == Observation::Closed(1, false));
    // Its socket stayed, as when a process re-executes its program.
    let (_b, of_b) = bench.start(1);
    of_a.linked(1, 2);
    of_b.linked(0, 1);
    assert!(a.send(1, 7, false, FrameBody::default()));
    of_b.count("a frame", 1, is_frame);
    assert_eq!(
        of_a.observed
            .lock()
            .iter()
            .filter(|observed| matches!(observed, Observation::Closed(..)))
            .count(),
        2
    );
    assert_eq!(a.state(1).connects, 2);
}

#[test]
fn a_peer_that_does_not_listen_yet_is_dialled_until_it_does() {
    let mut bench = Bench::new(1);
    // Bound, so that no other process gets the port, but closed to callers.
    let kind = socket2::Type::STREAM.nonblocking();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap().to_string();
    bench.members.push(Member { name: "b".into(), address: address.into() });
    bench.authority.issue(bench.folder.path(), "b", 100);
    let (_a, of_a) = bench.start(0);
    let refused = run(_a.open_stream(1, StreamPurpose::Copy)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    socket.listen(16).unwrap();
    bench.listeners.push(socket.into());
    let (_b, of_b) = bench.start(1);
    of_a.linked(1, 1);
    of_b.linked(0, 1);
}

#[test]
fn what_shrinks_goes_packed_and_the_numbers_say_so() {
    let (_bench, [(a, of_a), (_b, of_b)]) = Bench::pair();
    let text = b"towline towline towline ".repeat(400);
    for _ in 0..10 {
        assert!(a.send(1, 1, false, FrameBody::from(text.clone())));
    }
    of_b.count("all frames", 10, is_frame);
    assert!(of_b.observed.lock().contains(&Observation::Frame(0, 1, Bytes::from(text.clone()))));
    let bytes = 10 * text.len() as u64;
    // The numbers follow when the writer comes back.
    assert!(a.send(1, 2, false, FrameBody::default()));
    of_b.count("one more", 11, is_frame);
    let sent = a.state(1);
    assert!(sent.sent_bytes <= bytes && sent.compression_us > 0, "{sent:?}");
    assert!(sent.sent_wire_bytes < bytes / 5, "{sent:?}");
    drop((a, of_a));
}

#[test]
fn the_way_there_and_back_is_measured() {
    let (_bench, [(a, _), (_b, of_b)]) = Bench::pair();
    let deadline = Instant::now() + LONG;
    while a.state(1).round_trip_us.is_none() {
        assert!(Instant::now() < deadline, "no answer to a ping");
        std::thread::yield_now();
    }
    assert!(of_b.kinds(0).is_empty(), "pings are the links' own");
}

#[test]
fn a_newer_connection_of_a_peer_ends_the_one_before() {
    let bench = Bench::new(2);
    let (_a, of_a) = bench.start(0);
    run(async {
        let mut first = bench.dial(1, 0).await;
        of_a.count("the first", 1, |observed| matches!(observed, Observation::Opened(1, true, _)));
        let _second = bench.dial(1, 0).await;
        of_a.count("the second", 2, |observed| matches!(observed, Observation::Opened(1, true, _)));
        let mut byte = [0];
        let read = tokio::io::AsyncReadExt::read(&mut first, &mut byte).await;
        assert!(!matches!(read, Ok(1..)), "{read:?}");
        let order: Vec<bool> = of_a.observed.lock().iter().filter_map(incoming_opened).collect();
        assert_eq!(order, [true, false, true]);
    });
}

/// Whether an incoming connection was opened (else closed).
fn incoming_opened(observed: &Observation) -> Option<bool> {
    match observed {
        Observation::Opened(_, true, _) => Some(true),
        Observation::Closed(_, true) => Some(false),
        _ => None,
    }
}

#[test]
fn a_peer_that_says_nothing_is_given_up_after_the_heartbeat_timeout() {
    let bench = Bench::new(2);
    let heartbeat_timeout = Duration::from_millis(50);
    let settings = LinkSettings { heartbeat_timeout, ..bench.settings(0) };
    let (_a, of_a) = bench.start_with(0, settings);
    run(async {
        let silent = bench.dial(1, 0).await;
        of_a.count("its end", 1, |observed| *observed == Observation::Closed(1, true));
        drop(silent);
    });
}

#[test]
fn a_stream_goes_on_in_another_runtime_and_can_be_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (_bench, [(a, _), (_b, of_b)]) = Bench::pair();
    let mut ours = run(async {
        let mut ours = a.open_stream(1, StreamPurpose::Copy).await.unwrap();
        ours.write_all(b"one").await.unwrap();
        ours.flush().await.unwrap();
        ours
    });
    of_b.count("a stream", 1, |observed| *observed == Observation::Stream(0, StreamPurpose::Copy));
    run(async {
        let mut theirs = of_b.streams.lock().pop().unwrap();
        theirs.settle().unwrap();
        ours.settle().unwrap();
        ours.write_all(b"two").await.unwrap();
        ours.shutdown().await.unwrap();
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "onetwo");
        theirs.write_all(b"back").await.unwrap();
        theirs.shutdown().await.unwrap();
        text.clear();
        ours.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "back");
    });
    *of_b.refusal.lock() = Some("it is not active".into());
    let error = run(a.open_stream(1, StreamPurpose::Copy)).unwrap_err().to_string();
    assert_eq!(error, "it refused: it is not active");
    for peer in [0, 9] {
        assert!(run(a.open_stream(peer, StreamPurpose::Copy)).is_err());
        assert!(!a.send(peer, 1, true, FrameBody::default()));
    }
}

#[test]
fn a_frame_that_cannot_be_of_its_peer_ends_the_connection() {
    let (_bench, [(a, of_a), (_b, of_b)]) = Bench::pair();
    assert!(a.send(1, 9, false, FrameBody::from(FORGED.to_vec())));
    of_b.count("the end", 1, |observed| *observed == Observation::Closed(0, true));
    // It is dialled again: what it says then may be right.
    of_a.count("a new one", 2, |observed| matches!(observed, Observation::Opened(1, false, _)));
    assert!(of_b.kinds(0).is_empty());
}
