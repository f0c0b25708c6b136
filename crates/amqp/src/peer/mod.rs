//! A scripted peer for tests of the machines, here and in other crates: it sends and expects frames
//! written as text (see [`text`]), and keeps the virtual time.
//!
//! It does *not* check what it is given to send: it is there to break rules.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that the peer cannot follow has to fail where it stands"
)]

pub mod text;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towline_types::Time;

use crate::connection::{Connection, ServerOptions};
use crate::event::Event;
use crate::frame::{Frame, FrameKind, Protocol};
use crate::types::SaslFrame;

/// The other end of one [`Connection`].
#[derive(Debug)]
pub struct Peer {
    /// The machine under test.
    pub connection: Connection,
    /// The virtual time.
    pub now: Time,
    input: BytesMut,
    output: BytesMut,
    /// Lengths of the frames read so far.
    pub frame_bytes: Vec<usize>,
}

impl Peer {
    /// The peer of this machine.
    #[must_use]
    pub fn new(connection: Connection, now: Time) -> Peer {
        let input = BytesMut::new();
        let output = BytesMut::new();
        Peer { connection, now, input, output, frame_bytes: Vec::new() }
    }

    /// The client of a server without SASL, both open, as far as the events that this made.
    #[must_use]
    pub fn opened() -> Peer {
        Peer::opened_with("open container-id=client")
    }

    /// As [`Peer::opened`], with an open frame of one's own.
    #[must_use]
    pub fn opened_with(open: &str) -> Peer {
        let now = Time(1_000_000_000);
        let options = ServerOptions { require_sasl: false, ..ServerOptions::default() };
        let mut peer = Peer::new(Connection::server(options, now), now);
        peer.send_header(Protocol::Amqp);
        peer.expect_header(Protocol::Amqp);
        peer.send(open);
        assert!(matches!(peer.event(), Event::Opened(_)), "opened");
        peer.connection.accept_open();
        peer.expect("open container-id=towline");
        peer
    }

    /// As [`Peer::opened`], with a session on channel 0.
    #[must_use]
    pub fn begun() -> Peer {
        let mut peer = Peer::opened();
        peer.send("begin");
        peer.expect("begin remote-channel=0");
        assert!(matches!(peer.event(), Event::SessionBegun(_)), "begun");
        peer
    }

    /// Hands raw bytes to the machine.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.connection.receive(self.now, &mut self.input);
    }

    /// Lets the machine look again at bytes that it left.
    pub fn resend(&mut self) {
        self.connection.receive(self.now, &mut self.input);
    }

    /// Sends a protocol header.
    pub fn send_header(&mut self, protocol: Protocol) {
        self.send_bytes(&protocol.header());
    }

    /// Sends a frame.
    pub fn send(&mut self, line: &str) {
        self.send_bytes(&text::encode(line));
    }

    /// Sends a SASL frame.
    pub fn send_sasl(&mut self, frame: &SaslFrame) {
        let mut out = BytesMut::new();
        crate::frame::encode(&mut out, FrameKind::Sasl, 0, 0, |out| frame.encode(out));
        self.send_bytes(&out);
    }

    fn collect(&mut self) {
        let mut pieces: VecDeque<Bytes> = VecDeque::new();
        while self.connection.has_output() {
            self.connection.take_output(&mut pieces, 4_096);
        }
        for piece in pieces {
            self.output.extend_from_slice(&piece);
        }
    }

    /// Reads a protocol header.
    ///
    /// # Panics
    /// When another one comes, or none.
    pub fn expect_header(&mut self, protocol: Protocol) {
        self.collect();
        assert_eq!(Protocol::take(&mut self.output), Ok(Some(protocol)), "protocol header");
    }

    /// Reads a SASL frame.
    ///
    /// # Panics
    /// When something else comes, or nothing.
    pub fn expect_sasl(&mut self) -> SaslFrame {
        self.collect();
        let frame = Frame::take(&mut self.output, 512).unwrap().expect("a SASL frame");
        assert_eq!(frame.kind, FrameKind::Sasl, "kind of the frame");
        SaslFrame::decode(&frame.body).expect("a SASL frame")
    }

    /// Reads the next frame, if there is one.
    ///
    /// # Panics
    /// When it is not an AMQP frame.
    pub fn next_frame(&mut self) -> Option<String> {
        self.collect();
        let before = self.output.len();
        let frame = Frame::take(&mut self.output, u32::MAX).expect("a frame")?;
        self.frame_bytes.push(before - self.output.len());
        assert_eq!(frame.kind, FrameKind::Amqp, "kind of the frame");
        Some(text::show(frame.channel, &frame.body))
    }

    /// Reads the next frame, which must have all words of `line` (and may have more); its line.
    ///
    /// # Panics
    /// When it has not, or there is none.
    pub fn expect(&mut self, line: &str) -> String {
        let Some(frame) = self.next_frame() else { panic!("{line:?} did not come") };
        let words: Vec<&str> = frame.split(' ').collect();
        for word in line.split(' ') {
            assert!(words.contains(&word), "expected {line:?}, got {frame:?}");
        }
        frame
    }

    /// Checks that the machine has nothing to say.
    ///
    /// # Panics
    /// When it has.
    pub fn expect_nothing(&mut self) {
        if let Some(frame) = self.next_frame() {
            panic!("expected nothing, got {frame:?}");
        }
    }

    /// The next event.
    ///
    /// # Panics
    /// When there is none.
    pub fn event(&mut self) -> Event {
        self.connection.next_event().expect("an event")
    }

    /// Checks that nothing happened.
    ///
    /// # Panics
    /// When something did.
    pub fn no_event(&mut self) {
        assert_eq!(self.connection.next_event(), None, "events");
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.connection.tick(self.now);
    }
}
