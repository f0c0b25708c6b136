//! Fuzz: the frame decoder and the protocol headers.

mod mutation;

use bytes::BytesMut;
use mutation::{Mutation, spoiled};
use towline_amqp::frame::{self, Frame, FrameHeader, FrameKind, Protocol};

fn samples() -> Vec<Vec<u8>> {
    let mut wire = BytesMut::new();
    frame::encode(&mut wire, FrameKind::Amqp, 1, 0, |out| out.extend_from_slice(b"\0\x53\x18\x45"));
    frame::encode_empty(&mut wire);
    frame::encode(&mut wire, FrameKind::Sasl, 0, 0, |out| out.extend_from_slice(&[7; 400]));
    vec![wire.to_vec(), Protocol::Amqp.header().to_vec(), Protocol::Sasl.header().to_vec()]
}

#[test]
fn frames_from_any_bytes_lie_within_them() {
    let samples = samples();
    bolero::check!().with_type::<Mutation>().for_each(|mutation| {
        let bytes = spoiled(&samples, mutation);
        let mut input = BytesMut::from(&bytes[..]);
        let mut taken = 0;
        while let Ok(Some(one)) = Frame::take(&mut input, 512) {
            assert!(one.body.len() <= 504);
            taken += 8 + one.body.len();
        }
        assert!(taken + input.len() <= bytes.len());
        if let Ok(Some(header)) = FrameHeader::parse(&bytes, 512) {
            assert!((8..=header.size).contains(&header.body_offset) && header.size <= 512);
        }
        let mut input = BytesMut::from(&bytes[..]);
        match Protocol::take(&mut input) {
            Ok(Some(protocol)) => assert!(bytes.starts_with(&protocol.header())),
            Ok(None) => assert!(bytes.len() < 8),
            Err(_) => assert_eq!(input.len(), bytes.len()),
        }
    });
}

#[test]
fn noise_is_refused_without_a_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let mut input = BytesMut::from(bytes);
        while let Ok(Some(_)) = Frame::take(&mut input, 65_536) {}
    });
}
