//! Strangers that reach the port, and instances of the other group that send nonsense.

use towline_types::SeededRandom;

use super::*;

#[test]
fn nonsense_before_tls_and_before_the_hello_harms_no_instance() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 4_000], &[0x16, 3, 1, 0xFF, 0xFF]] {
            let mut socket = TcpStream::connect(&*bench.addresses[EAST][0]).await.unwrap();
            socket.write_all(bytes).await.unwrap();
            socket.shutdown().await.unwrap();
            let mut end = Vec::new();
            // Reset or ended; an alert may come before.
            socket.read_to_end(&mut end).await.ok();
        }
        let of_a_group = b"TWLNLINK\x02\0\x03\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let too_long = b"TWLNREGN\x01\0\x01\0\xFF\xFF\xFF\xFF";
        for bytes in [&b"no hello of any link"[..], of_a_group, too_long, &[0; 2_000]] {
            let files = bench.files(WEST, 0);
            let mut stream = bench.shake_hands(&files, (EAST, 0)).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            let mut end = Vec::new();
            stream.read_to_end(&mut end).await.ok();
        }
    });
    assert!(of_east.events.lock().is_empty(), "an instance was let in");
    let (west, of_west) = bench.start(WEST, 0);
    west.dial(true);
    of_west.link(1);
}

#[test]
fn silent_connections_do_not_keep_instances_out() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(TcpStream::connect(&*bench.addresses[EAST][0]).await.unwrap());
        }
        let (west, of_west) = bench.start(WEST, 0);
        west.dial(true);
        of_west.link(1);
        of_east.link(1);
        // More than 256 at once are not kept.
        let mut end = [0];
        assert_eq!(silent[0].read(&mut end).await.unwrap_or(0), 0);
    });
}

#[test]
fn a_connection_on_which_the_answer_is_not_taken_is_not_opened() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        for first in [framed(1, b"early"), framed(PING, &[0; 8]), framed(END, b"no"), vec![9; 16]] {
            let mut stream = bench.unconfirmed((WEST, 0), (EAST, 0)).await;
            stream.write_all(&first).await.unwrap();
            stream.flush().await.unwrap();
            let mut end = Vec::new();
            stream.read_to_end(&mut end).await.ok();
        }
    });
    assert!(!of_east.let_in());
}

#[test]
fn frames_right_behind_the_confirmation_are_not_lost() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        let mut stream = bench.unconfirmed((WEST, 0), (EAST, 0)).await;
        let all = [framed(START, &[]), framed(1, &[1]), framed(2, &[2; 100])].concat();
        stream.write_all(&all).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(of_east.frames(2)[1], (2, Bytes::from(vec![2; 100])));
    });
}

#[test]
fn a_wrong_frame_ends_its_connection_and_the_other_end_hears_why() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    let mut flipped = framed(1, &[9; 100]);
    flipped[frame::HEADER_BYTES + 50] ^= 1;
    let mut flags = framed(1, &[9; 100]);
    flags[9] = 0x80;
    let too_long = [&u32::MAX.to_le_bytes()[..], &[0; 12]].concat();
    let hostile = [
        (flipped, "it sent a frame with a wrong checksum"),
        (flags, "it sent a frame with flags 0x80"),
        (too_long, "it sent a frame of 4294967295 bytes"),
        (framed(PING, &[0; 65]), "it sent a ping that is too long"),
        (framed(PONG, &u64::MAX.to_be_bytes()), "it answered a ping that we did not send"),
        (framed(PONG, &[1]), "it answered a ping that we did not send"),
    ];
    for (times, (bytes, why)) in hostile.iter().enumerate() {
        run(async {
            let mut stream = bench.by_hand((WEST, 0), (EAST, 0)).await;
            stream.write_all(&framed(7, &[])).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            assert_eq!(last_words(&mut stream).await, *why);
        });
        assert_eq!(of_east.end(times + 1), *why);
    }
    let kinds: Vec<u8> = of_east.frames(0).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [7; 6], "only what was whole arrived");
}

#[test]
fn kinds_of_a_later_version_are_skipped() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        let mut stream = bench.by_hand((WEST, 0), (EAST, 0)).await;
        let all = [framed(0xF9, b"later"), framed(3, &[3])].concat();
        stream.write_all(&all).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(of_east.frames(1), [(3, Bytes::from(vec![3]))]);
    });
}

#[test]
fn a_flood_of_pings_is_answered_with_the_newest_and_takes_no_memory() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    run(async {
        let mut stream = bench.by_hand((WEST, 0), (EAST, 0)).await;
        let pings = (0..10_000_u64).map(|number| framed(PING, &number.to_be_bytes()));
        stream.write_all(&pings.collect::<Vec<_>>().concat()).await.unwrap();
        stream.flush().await.unwrap();
        let (mut input, mut newest) = (BytesMut::new(), Bytes::new());
        while newest != 9_999_u64.to_be_bytes()[..] {
            let frame = next(&mut stream, &mut input).await.unwrap();
            if frame.kind == PONG {
                newest = frame.body;
            }
        }
        assert_eq!(of_east.frames(0).len(), 0);
    });
}

#[test]
fn random_bytes_of_an_instance_end_its_connection_and_nothing_else() {
    let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| std::process::id().into());
    println!("TOWLINE_SEED={seed}");
    let mut random = SeededRandom::new(seed);
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    for round in 1..=30 {
        let mut noise = vec![0; random.index(3_000) + 20];
        random.fill(&mut noise);
        // A length that may be true, so that more than the header is looked at.
        noise[2..4].fill(0);
        noise[6..8].fill(0);
        let whole = [framed(5, b"whole"), noise].concat();
        run(async {
            let mut stream = bench.by_hand((WEST, 0), (EAST, 0)).await;
            stream.write_all(&whole).await.unwrap();
            // What is no whole frame yet must not be waited for.
            stream.shutdown().await.unwrap();
            let mut end = Vec::new();
            stream.read_to_end(&mut end).await.ok();
        });
        of_east.end(round);
        assert_eq!(of_east.frames(round).len(), round);
    }
}
