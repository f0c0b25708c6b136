//! Strangers that reach the port, and members that send nonsense.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::FrameBody;
use crate::frame::{Encoder, HEADER_BYTES};

#[test]
fn a_hello_that_comes_byte_by_byte_is_heard() {
    let bench = Bench::new(2);
    let (_a, of_a) = bench.start(0);
    let identity = TlsIdentity::read(&bench.files("b")).unwrap();
    run(async {
        let mut stream = bench.shake_hands(0, &identity.client_frames).await.unwrap();
        let mut whole = Vec::new();
        hello::say(&mut whole, &bench.hello(1, Matter::Frames)).await.unwrap();
        whole.extend(framed(START, &[9; 16]));
        let mut frame: Vec<Bytes> = Vec::new();
        Encoder::new(64).encode(3, FrameBody::from(vec![1; 500]), &mut frame);
        whole.extend(frame.concat());
        for byte in whole {
            stream.write_all(&[byte]).await.unwrap();
            stream.flush().await.unwrap();
        }
        of_a.count(
            "the frame",
            1,
            |observed| matches!(observed, Observation::Frame(1, 3, body) if body.len() == 500),
        );
    });
}

#[test]
fn nonsense_before_tls_and_before_hello_harms_no_peer() {
    let bench = Bench::new(2);
    let (_a, of_a) = bench.start(0);
    let identity = TlsIdentity::read(&bench.files("b")).unwrap();
    run(async {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 4_000], &[0x16, 3, 1, 0xFF, 0xFF]] {
            let mut socket = TcpStream::connect(&*bench.members[0].address).await.unwrap();
            socket.write_all(bytes).await.unwrap();
            socket.shutdown().await.unwrap();
            let mut end = Vec::new();
            // Reset or ended; an alert may come before.
            socket.read_to_end(&mut end).await.ok();
        }
        for bytes in [&b"no hello of a link"[..], b"TWLNLINK\x01\0\x01\0\xFF\xFF", &[0; 2_000]] {
            let mut stream = bench.shake_hands(0, &identity.client_frames).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            let mut end = Vec::new();
            stream.read_to_end(&mut end).await.ok();
        }
    });
    assert!(of_a.observed.lock().is_empty(), "a peer was let in");
    let (_b, of_b) = bench.start(1);
    of_b.linked(0, 1);
}

#[test]
fn a_wrong_frame_ends_its_connection_and_nothing_else() {
    let bench = Bench::new(3);
    let ((a, of_a), (_c, of_c)) = (bench.start(0), bench.start(2));
    of_c.linked(0, 1);
    let frame = |kind, body: Vec<u8>| {
        let mut pieces: Vec<Bytes> = Vec::new();
        Encoder::new(0).encode(kind, FrameBody::from(body), &mut pieces);
        pieces.concat()
    };
    let mut flipped = frame(1, vec![9; 100]);
    flipped[HEADER_BYTES + 50] ^= 1;
    let mut flags = frame(1, vec![9; 100]);
    flags[9] = 0x80;
    let mut packed = frame(1, vec![9; 100]);
    packed[9] = 1;
    let too_long = [&u32::MAX.to_le_bytes()[..], &[0; 12]].concat();
    let hostile = [flipped, flags, packed, too_long];
    for (times, bytes) in hostile.iter().enumerate() {
        run(async {
            let mut stream = bench.dial(1, 0).await;
            stream.write_all(&frame(7, vec![])).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            let mut end = Vec::new();
            stream.read_to_end(&mut end).await.ok();
        });
        of_a.count("its end", times + 1, |observed| *observed == Observation::Closed(1, true));
    }
    assert_eq!(of_a.kinds(1), vec![7; hostile.len()], "only what was whole arrived");
    assert!(a.send(2, 1, false, FrameBody::default()));
    of_c.count("a frame", 1, |observed| matches!(observed, Observation::Frame(0, 1, _)));
    assert!(
        !of_a.observed.lock().iter().any(|observed| matches!(observed, Observation::Closed(2, _)))
    );
}

#[test]
fn silent_connections_do_not_keep_members_out() {
    let bench = Bench::new(2);
    let (_a, of_a) = bench.start(0);
    run(async {
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(&*bench.members[0].address).await.unwrap());
        }
        let (_b, of_b) = bench.start(1);
        of_b.linked(0, 1);
        of_a.linked(1, 1);
        // The slow connection was closed while others waited.
        let mut end = [0];
        assert_eq!(silent[0].read(&mut end).await.unwrap_or(0), 0);
        drop(silent);
    });
}

#[test]
fn a_frame_on_the_connection_that_we_send_on_ends_it() {
    let bench = Bench::new(2);
    let (_a, of_a) = bench.start(0);
    let listener = bench.listeners[1].try_clone().unwrap();
    let identity = TlsIdentity::read(&bench.files("b")).unwrap();
    run(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&identity.server));
        let mut stream = acceptor.accept(socket).await.unwrap();
        let heard = hello::hear(&mut stream, false).await.unwrap();
        assert_eq!((heard.instance.as_str(), heard.matter), ("a", Matter::Frames));
        hello::say(&mut stream, &bench.hello(1, Matter::Frames)).await.unwrap();
        let mut pieces: Vec<Bytes> = Vec::new();
        Encoder::new(0).encode(1, FrameBody::default(), &mut pieces);
        stream.write_all(&pieces.concat()).await.unwrap();
        stream.flush().await.unwrap();
        of_a.count("its end", 1, |observed| *observed == Observation::Closed(1, false));
    });
    assert!(of_a.kinds(1).is_empty());
}
