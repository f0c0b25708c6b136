use super::*;

fn frame(bytes: &[u8], size_max: u32) -> Result<Option<Frame>, FrameError> {
    Frame::take(&mut BytesMut::from(bytes), size_max)
}

#[test]
fn a_frame_comes_out_as_it_went_in() {
    let mut wire = BytesMut::new();
    encode(&mut wire, FrameKind::Amqp, 7, 0, |out| out.put_slice(b"body"));
    encode_empty(&mut wire);
    encode(&mut wire, FrameKind::Sasl, 0, 0, |out| out.put_slice(b"x"));
    let first = Frame::take(&mut wire, 512).unwrap().unwrap();
    assert_eq!((first.kind, first.channel, &first.body[..]), (FrameKind::Amqp, 7, &b"body"[..]));
    let empty = Frame::take(&mut wire, 512).unwrap().unwrap();
    assert_eq!((empty.kind, empty.body.len()), (FrameKind::Amqp, 0));
    assert_eq!(Frame::take(&mut wire, 512).unwrap().unwrap().kind, FrameKind::Sasl);
    assert_eq!(Frame::take(&mut wire, 512), Ok(None));
}

#[test]
fn a_payload_by_reference_counts_in_the_size() {
    let mut wire = BytesMut::from(&b"before"[..]);
    encode(&mut wire, FrameKind::Amqp, 1, 1_000, |out| out.put_slice(b"body"));
    let header = FrameHeader::parse(&wire[6..], 2_000).unwrap().unwrap();
    assert_eq!((header.size, header.body_offset, header.channel), (1_012, 8, 1));
}

#[test]
fn a_partial_frame_is_left_in_place() {
    let mut whole = BytesMut::new();
    encode(&mut whole, FrameKind::Amqp, 7, 0, |out| out.put_slice(b"body"));
    for cut in 0..whole.len() {
        let mut part = BytesMut::from(&whole[..cut]);
        assert_eq!(Frame::take(&mut part, 512), Ok(None));
        assert_eq!(part.len(), cut);
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_from_its_first_four_bytes() {
    let size_max = 512;
    assert_eq!(frame(b"\x00\x00\x02\x00", size_max), Ok(None));
    let error = FrameError::TooLarge { size: 513, size_max };
    assert_eq!(frame(b"\x00\x00\x02\x01", size_max), Err(error));
    let error = FrameError::TooLarge { size: u32::MAX, size_max: 65_536 };
    assert_eq!(frame(b"\xff\xff\xff\xff", 65_536), Err(error));
}

#[test]
fn a_frame_too_short_for_its_header_is_refused() {
    assert_eq!(frame(b"\0\0\0\x07", 512), Err(FrameError::TooSmall(7)));
    assert_eq!(frame(b"\0\0\0\x08\x01\0\0\0", 512), Err(FrameError::DataOffset(1)));
    assert_eq!(frame(b"\0\0\0\x08\x03\0\0\0", 512), Err(FrameError::DataOffset(3)));
    assert_eq!(frame(b"\0\0\0\x08\x02\x02\0\0", 512), Err(FrameError::Kind(2)));
}

#[test]
fn an_extended_header_is_ignored() {
    let taken = frame(b"\0\0\0\x0d\x03\0\0\x05????x", 512).unwrap().unwrap();
    assert_eq!((taken.channel, &taken.body[..]), (5, &b"x"[..]));
}

#[test]
fn protocol_headers_are_compared_byte_by_byte() {
    for protocol in [Protocol::Amqp, Protocol::Sasl, Protocol::Tls] {
        let header = protocol.header();
        for cut in 0..header.len() {
            assert_eq!(Protocol::take(&mut BytesMut::from(&header[..cut])), Ok(None));
        }
        let mut input = BytesMut::from(&header[..]);
        input.put_u8(1);
        assert_eq!(Protocol::take(&mut input), Ok(Some(protocol)));
        assert_eq!(&input[..], b"\x01");
    }
}

#[test]
fn other_protocols_are_refused_as_soon_as_they_show() {
    for bytes in [&b"G"[..], b"AMQP\x01", b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x01\x01", b"\x16\x03"]
    {
        assert!(Protocol::take(&mut BytesMut::from(bytes)).is_err(), "{}", bytes.escape_ascii());
    }
}
