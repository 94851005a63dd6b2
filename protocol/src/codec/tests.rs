//! Frames over arbitrary slices, and malformed bodies.

use proptest::prelude::*;
use rmpv::Value;

use super::*;
use crate::data::{encode_prefix, parse_data};
use crate::frame::{COUNTED_HEADER_BYTES, HEADER_BYTES, encode_frame};
use crate::hello::{Goodbye, GoodbyeReason, Hello, Welcome};
use crate::message::{Answer, Request, RequestBody};
use crate::stream::{Ack, Fin, Gap};

type Owned = (Kind, u64, Vec<u8>);

fn frame() -> impl Strategy<Value = Owned> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (kind, any::<u64>(), prop::collection::vec(any::<u8>(), 0..600))
}

fn encoded(frames: &[Owned]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, id, body) in frames {
        encode_frame(*kind, *id, body, &mut out);
    }
    out
}

fn take_all(buffer: &mut FrameBuffer, frames: &mut Vec<Owned>) -> Result<(), FrameError> {
    while let Some(frame) = buffer.take()? {
        frames.push((frame.kind, frame.id, frame.body.to_vec()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_split_of_the_input_gives_the_same_frames(
        frames in prop::collection::vec(frame(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        reads_in_place: bool,
    ) {
        let bytes = encoded(&frames);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let mut buffer = FrameBuffer::new();
        let mut taken = Vec::new();
        for piece in at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]) {
            if reads_in_place {
                let mut left = piece;
                while !left.is_empty() {
                    let space = buffer.space();
                    let (part, rest) = left.split_at(left.len().min(space.len()));
                    space[..part.len()].copy_from_slice(part);
                    buffer.filled(part.len());
                    left = rest;
                }
            } else {
                buffer.extend(piece);
            }
            take_all(&mut buffer, &mut taken).expect("they are frames");
        }
        prop_assert_eq!(taken, frames);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut buffer = FrameBuffer::new();
        buffer.extend(&bytes);
        let _ = take_all(&mut buffer, &mut Vec::new());
        decode_as_everything(&bytes);
    }

    #[test]
    fn random_messagepack_never_panics(value in messagepack()) {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).expect("to memory");
        decode_as_everything(&bytes);
    }

    #[test]
    fn data_bodies_are_what_was_encoded(
        offset: u64,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut body = Vec::new();
        encode_prefix(offset, bytes.len() as u32, &mut body);
        prop_assert_eq!(body.len(), crate::data::DATA_PREFIX_BYTES);
        body.extend_from_slice(&bytes);
        prop_assert_eq!(parse_data(&body), Some((offset, &bytes[..])));
        let value = rmpv::decode::read_value(&mut &body[..]).expect("it is MessagePack");
        prop_assert_eq!(value, Value::Array(vec![offset.into(), Value::Binary(bytes)]));
    }

    #[test]
    fn data_bodies_of_every_encoder_are_read(
        bits in 0..64_u32,
        offset: u64,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        // Other encoders choose the shortest width that fits.
        let offset = offset >> bits;
        let value = Value::Array(vec![offset.into(), Value::Binary(bytes.clone())]);
        let mut body = Vec::new();
        rmpv::encode::write_value(&mut body, &value).expect("to memory");
        prop_assert_eq!(parse_data(&body), Some((offset, &bytes[..])));
        for end in 0..body.len() {
            prop_assert_eq!(parse_data(&body[..end]), None, "a shortened body is none");
        }
        body.push(0);
        prop_assert_eq!(parse_data(&body), None, "nor is one with something behind it");
    }
}

fn messagepack() -> impl Strategy<Value = Value> {
    let words = ["request", "done", "start", "session", "streams", "code", "spool", "argv", "ok"];
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..8).prop_map(Value::Binary),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..8))
            .prop_map(|(kind, bytes)| Value::Ext(kind, bytes)),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((inner.clone(), inner), 0..5).prop_map(Value::Map),
        ]
    })
}

fn decode_as_everything(bytes: &[u8]) {
    let _ = decode_body::<Hello>(Kind::Hello, bytes);
    let _ = decode_body::<Welcome>(Kind::Welcome, bytes);
    let _ = decode_body::<Goodbye>(Kind::Goodbye, bytes);
    let _ = decode_body::<RequestBody>(Kind::Request, bytes);
    let _ = decode_body::<Answer>(Kind::Reply, bytes);
    let _ = decode_body::<Ack>(Kind::Ack, bytes);
    let _ = decode_body::<Fin>(Kind::Fin, bytes);
    let _ = decode_body::<Gap>(Kind::Gap, bytes);
    let _ = decode_body::<crate::Fault>(Kind::Reset, bytes);
    let _ = decode_body::<crate::boot::BootConfig>(Kind::Boot, bytes);
    let _ = parse_data(bytes);
}

#[test]
fn the_layout_of_a_frame_never_changes() {
    let mut out = Vec::new();
    encode_frame(Kind::Data, 0x0102_0304_0506_0708, b"xyz", &mut out);
    assert_eq!(out, b"\x00\x00\x00\x0c\x06\x01\x02\x03\x04\x05\x06\x07\x08xyz");
    assert_eq!(out.len(), HEADER_BYTES + 3);
}

fn refusal(header: &[u8]) -> Option<FrameError> {
    let mut buffer = FrameBuffer::new();
    buffer.extend(header);
    let error = buffer.take().err();
    assert!(buffer.bytes.len() <= 2 * READ_BYTES, "nothing is allocated for what was refused");
    error
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_length_alone() {
    let most = FRAME_BYTES_MAX as u32 - 4;
    let bytes = FRAME_BYTES_MAX as u64 + 1;
    assert_eq!(refusal(&(most + 1).to_be_bytes()), Some(FrameError::TooLong { bytes }));
    let bytes = u64::from(u32::MAX) + 4;
    assert_eq!(refusal(&[0xff; 4]), Some(FrameError::TooLong { bytes }));
    assert_eq!(refusal(&most.to_be_bytes()), None);
}

#[test]
fn a_frame_that_is_shorter_than_its_header_is_refused_by_its_length_alone() {
    let least = COUNTED_HEADER_BYTES as u32;
    let bytes = u64::from(least) + 3;
    assert_eq!(refusal(&(least - 1).to_be_bytes()), Some(FrameError::TooShort { bytes }));
    assert_eq!(refusal(&least.to_be_bytes()), None);
}

#[test]
fn a_frame_of_an_unknown_kind_is_refused_before_its_body_comes() {
    for kind in 0..=u8::MAX {
        let known = Kind::from_byte(kind);
        assert_eq!(known.map_or(kind, |known| known as u8), kind);
        let expected = known.is_none().then_some(FrameError::UnknownKind { kind });
        assert_eq!(refusal(&[0, 1, 0, 0, kind]), expected);
    }
}

#[test]
fn the_buffer_holds_one_frame_and_one_read_and_no_more() {
    let mut out = Vec::new();
    for length in [FRAME_BYTES_MAX - HEADER_BYTES, 0, 100_000, FRAME_BYTES_MAX - HEADER_BYTES] {
        encode_frame(Kind::Request, 1, &vec![1; length], &mut out);
    }
    let mut buffer = FrameBuffer::new();
    let mut rest = &out[..];
    let mut frames = 0;
    while !rest.is_empty() {
        let space = buffer.space();
        let count = space.len().min(rest.len());
        space[..count].copy_from_slice(&rest[..count]);
        buffer.filled(count);
        rest = &rest[count..];
        while buffer.take().expect("frames").is_some() {
            frames += 1;
        }
        assert!(buffer.bytes.len() <= FRAME_BYTES_MAX + READ_BYTES, "{}", buffer.bytes.len());
    }
    assert_eq!(frames, 4);
    buffer.clear();
    assert_eq!(buffer.bytes.capacity(), 0, "a cleared buffer gives its memory back");
}

#[test]
fn an_idle_link_has_a_small_buffer_and_a_busy_one_reads_much_at_once() {
    let mut pong = Vec::new();
    encode_frame(Kind::Request, 1, &[], &mut pong);
    let mut buffer = FrameBuffer::new();
    for _ in 0..1000 {
        assert_eq!(buffer.space().len(), READ_BYTES_FIRST);
        buffer.space()[..pong.len()].copy_from_slice(&pong);
        buffer.filled(pong.len());
        while buffer.take().expect("frames").is_some() {}
    }
    let mut flood = Vec::new();
    while flood.len() < READ_BYTES_FIRST {
        encode_frame(Kind::Request, 1, &[0; 100], &mut flood);
    }
    buffer.space().copy_from_slice(&flood[..READ_BYTES_FIRST]);
    buffer.filled(READ_BYTES_FIRST);
    while buffer.take().expect("frames").is_some() {}
    assert!(buffer.space().len() >= READ_BYTES);
    // A cut ends the flood.
    buffer.clear();
    assert_eq!(buffer.space().len(), READ_BYTES_FIRST);
}

#[test]
#[should_panic(expected = "filled more than there was space for")]
fn filling_beyond_the_space_is_a_mistake_of_the_owner() {
    let mut buffer = FrameBuffer::new();
    let space = buffer.space().len();
    buffer.filled(space + 1);
}

fn nested(levels: usize, container: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(Value::Nil, |inner, _| container(inner))
}

fn array(inner: Value) -> Value {
    Value::Array(vec![inner])
}

fn map(inner: Value) -> Value {
    Value::Map(vec![("x".into(), inner)])
}

/// A fin with an unknown field.
fn fin_with(extra: Value) -> Result<Fin, BodyError> {
    let body = Value::Map(vec![("offset".into(), 1.into()), ("extra".into(), extra)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &body).expect("to memory");
    decode_body(Kind::Fin, &bytes)
}

#[test]
fn unknown_fields_are_ignored_up_to_the_depth_limit_and_refused_beyond() {
    for container in [array, map] {
        // The fin itself is a level.
        assert_eq!(fin_with(nested(BODY_DEPTH_MAX - 2, container)), Ok(Fin { offset: 1 }));
        assert!(fin_with(nested(BODY_DEPTH_MAX, container)).is_err());
    }
}

#[test]
fn nesting_that_fills_a_frame_does_not_exhaust_the_stack() {
    let field = b"\x82\xa6offset\x01\xa5extra".to_vec();
    for mark in [0x91, 0x81, 0xdd, 0xc7] {
        let mut body = field.clone();
        body.resize(FRAME_BYTES_MAX - HEADER_BYTES, mark);
        assert!(decode_body::<Fin>(Kind::Fin, &body).is_err());
        assert!(decode_body::<RequestBody>(Kind::Request, &body).is_err());
        assert!(decode_body::<RequestBody>(Kind::Request, &vec![mark; 100_000]).is_err());
    }
}

#[test]
fn lengths_that_lie_are_refused_without_allocating_for_them() {
    let lies: [&[u8]; 5] = [
        b"\x81\xa6offset\xc6\xff\xff\xff\xff", // a binary of 4 GiB
        b"\x81\xa6offset\xdb\xff\xff\xff\xff", // a string of 4 GiB
        b"\x81\xa6offset\xdd\xff\xff\xff\xff", // an array of 4 Gi elements
        b"\xdf\xff\xff\xff\xff",               // a map of 4 Gi entries
        b"\x81\xdb\xff\xff\xff\xff",           // a field whose name has 4 GiB
    ];
    for body in lies {
        decode_as_everything(body);
        assert!(decode_body::<Fin>(Kind::Fin, body).is_err());
    }
    let many_ids = b"\x82\xa4done\xdd\xff\xff\xff\xff\x01\x02";
    assert!(decode_body::<RequestBody>(Kind::Request, many_ids).is_err());
}

#[test]
fn a_body_error_names_the_kind_and_is_cut_to_a_bounded_text() {
    let name = "n".repeat(100_000);
    let answer = std::collections::BTreeMap::from([("ok", name)]);
    let body = rmp_serde::to_vec_named(&answer).expect("to memory");
    let error = decode_body::<Answer>(Kind::Reply, &body).expect_err("no such reply");
    assert_eq!(error.kind, "reply");
    assert!(error.reason.len() <= crate::limits::TEXT_BYTES_MAX);
}

#[test]
fn bytes_behind_a_message_are_an_error() {
    let mut body = encode_body(&Fin { offset: 3 });
    assert_eq!(decode_body::<Fin>(Kind::Fin, &body), Ok(Fin { offset: 3 }));
    body.push(0xc0);
    let error = decode_body::<Fin>(Kind::Fin, &body).expect_err("one byte too many");
    assert_eq!(error.reason, "1 bytes follow the message");
}

#[test]
fn a_message_is_a_map_with_named_fields_in_a_frame() {
    let goodbye = Goodbye { reason: GoodbyeReason::Replaced, message: "again".to_owned() };
    let mut out = Vec::new();
    encode_message(Kind::Goodbye, 5, &goodbye, &mut out);
    let (frame, length) = frame::parse_frame(&out).expect("a frame").expect("a whole one");
    assert_eq!((frame.kind, frame.id, length), (Kind::Goodbye, 5, out.len()));
    let value = rmpv::decode::read_value(&mut &frame.body[..]).expect("MessagePack");
    assert_eq!(value["reason"], "replaced".into());
    assert_eq!(decode_body(Kind::Goodbye, frame.body), Ok(goodbye));
}

#[test]
fn every_width_of_offset_and_length_is_read_in_data() {
    let offsets: [(&[u8], u64); 5] = [
        (b"\x07", 7),
        (b"\xcc\x07", 7),
        (b"\xcd\x01\x00", 256),
        (b"\xce\x01\x00\x00\x00", 1 << 24),
        (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", u64::MAX),
    ];
    let binaries: [&[u8]; 3] = [b"\xc4\x02", b"\xc5\x00\x02", b"\xc6\x00\x00\x00\x02"];
    for (offset, expected) in offsets {
        for binary in binaries {
            let body = [b"\x92", offset, binary, b"hi"].concat();
            assert_eq!(parse_data(&body), Some((expected, &b"hi"[..])));
        }
    }
}

#[test]
fn anything_but_an_unsigned_offset_and_a_binary_is_no_data() {
    let wrong: [&[u8]; 7] = [
        b"",
        b"\x93\x00\xc4\x00\x00",                             // three elements
        b"\xdc\x00\x02\x00\xc4\x00", // a wider array mark than anybody needs
        b"\x92\xff\xc4\x00",         // a negative offset
        b"\x92\xd3\x00\x00\x00\x00\x00\x00\x00\x01\xc4\x00", // a signed one
        b"\x92\x00\xa1x",            // a string
        b"\x92\x00\xc4\x02x",        // a length beyond the end
    ];
    for body in wrong {
        assert_eq!(parse_data(body), None, "{body:x?}");
    }
}

#[test]
fn a_request_that_names_two_requests_or_none_is_refused() {
    let none = b"\x81\xa7request\x80";
    let two = b"\x81\xa7request\x82\xa4info\x80\xa4info\x80";
    let unread = b"\x81\xa7request\x81\xa4warp";
    for body in [&none[..], &two[..], &unread[..]] {
        assert!(decode_body::<RequestBody>(Kind::Request, body).is_err());
    }
    let one = b"\x81\xa7request\x81\xa4info\x80";
    let body: RequestBody = decode_body(Kind::Request, one).expect("a request");
    assert_eq!(body, RequestBody { done: Vec::new(), request: Request::Info {} });
}
