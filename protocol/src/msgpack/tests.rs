//! The output is that of rmp-serde, and is read unchanged; nothing is accepted that rmp-serde's own decoder
//! reads differently; and hostile bytes cost neither stack nor memory.

pub(crate) mod samples;

use std::fmt::Debug;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::samples::{Draw, HAPPENINGS, REPLIES, REQUESTS, numbers};
use super::*;
use crate::boot::BootConfig;
use crate::exit::{Cause, ExitRecord, SpawnFailure, SpawnStage};
use crate::fault::Fault;
use crate::hello::{Goodbye, Hello, Welcome};
use crate::limits::{BODY_DEPTH_MAX, FRAME_BYTES_MAX, TEXT_BYTES_MAX};
use crate::message::{Answer, Reply, Request, RequestBody, SessionInfo, SessionList, WatchEvent};
use crate::repl::Event;
use crate::stream::{Ack, Fin, Gap};
use crate::text::Text;
use crate::{decode_enum, decode_struct};

/// rmp-serde's reading of a body, under the same depth limit.
fn reference<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    let mut decoder = rmp_serde::Deserializer::new(std::io::Cursor::new(body));
    decoder.set_max_depth(BODY_DEPTH_MAX);
    let value = T::deserialize(&mut decoder).ok()?;
    (decoder.position() == body.len() as u64).then_some(value)
}

fn reason<T: Decode + Debug>(body: &[u8]) -> Reason {
    decode::<T>(body).expect_err("a body that is not valid").reason().clone()
}

fn agrees<T: Decode + DeserializeOwned + PartialEq + Debug>(body: &[u8]) {
    if let Ok(ours) = decode::<T>(body) {
        assert_eq!(Some(ours), reference(body), "{body:x?}");
    }
}

/// A request that only a newer host knows is read here, and refused by a derived reader.
fn agrees_unless_unknown(body: &[u8]) {
    match decode::<RequestBody>(body) {
        Ok(RequestBody { request: Request::Unknown { .. }, .. }) => {
            assert_eq!(reference::<RequestBody>(body), None, "{body:x?}");
        }
        _ => agrees::<RequestBody>(body),
    }
}

fn all_types_agree(body: &[u8]) {
    agrees::<Hello>(body);
    agrees::<Welcome>(body);
    agrees::<Goodbye>(body);
    agrees::<Fault>(body);
    agrees_unless_unknown(body);
    agrees::<Answer>(body);
    agrees::<Ack>(body);
    agrees::<Fin>(body);
    agrees::<Gap>(body);
    agrees::<BootConfig>(body);
    agrees::<WatchEvent>(body);
    agrees::<Event>(body);
    agrees::<Vec<Option<Text>>>(body);
    agrees::<Vec<(i8, i16)>>(body);
    agrees::<(i64, u16)>(body);
    agrees::<[u8; 3]>(body);
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    let mut body = Vec::new();
    encode(value, &mut body);
    body
}

fn survives<T: Serialize + Decode + PartialEq + Debug>(value: &T) -> Vec<u8> {
    let body = rmp_serde::to_vec_named(value).expect("to memory");
    assert_eq!(decode::<T>(&body).as_ref(), Ok(value));
    assert_eq!(encoded(value), body, "what is written here is what rmp-serde writes");
    body
}

/// Encodes one message of each kind of body, each read back on the way.
fn bodies(draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
    vec![
        survives(&draw.hello()),
        survives(&draw.welcome()),
        survives(&draw.goodbye()),
        survives(&draw.fault()),
        survives(&draw.request()),
        survives(&draw.answer()),
        survives(&draw.ack()),
        survives(&draw.fin()),
        survives(&draw.gap()),
        survives(&draw.boot()),
        survives(&draw.watch_event()),
        survives(&draw.event()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_output_of_rmp_serde_is_read_unchanged(numbers in numbers()) {
        bodies(&mut Draw(&numbers));
    }

    #[test]
    fn every_request_reply_and_happening_is_read_unchanged(numbers in numbers()) {
        for number in 0..REQUESTS {
            survives(&Draw(&numbers).request_number(number));
        }
        for number in 0..REPLIES {
            survives(&Draw(&numbers).reply_number(number));
        }
        for number in 0..HAPPENINGS {
            survives(&Draw(&numbers).happening_number(number));
        }
    }

    #[test]
    fn a_body_that_ends_early_is_refused(numbers in numbers(), cut: prop::sample::Index) {
        let draw = Draw(&numbers).request_number(numbers.len() as u64 % REQUESTS);
        let body = rmp_serde::to_vec_named(&draw).expect("to memory");
        prop_assert_eq!(reason::<Request>(&body[..cut.index(body.len())]), Reason::Truncated);
    }

    #[test]
    fn mutated_bodies_are_refused_or_read_as_rmp_serde_reads_them(
        numbers in prop::collection::vec(0..8_u64, 0..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..6),
    ) {
        for mut body in bodies(&mut Draw(&numbers)) {
            body.truncate(4096);
            for (at, change, byte) in &changes {
                let at = at.index(body.len().max(1)).min(body.len());
                match change {
                    0 if at < body.len() => body[at] = *byte,
                    1 if at < body.len() => body[at] ^= 1 << (byte % 8),
                    2 if at < body.len() => {
                        body.remove(at);
                    }
                    _ => body.insert(at, *byte),
                }
            }
            all_types_agree(&body);
        }
    }

    #[test]
    fn random_bytes_are_refused_or_read_as_rmp_serde_reads_them(
        body in prop::collection::vec(
            prop_oneof![any::<u8>(), 0x80..=0xa4_u8, Just(0xc0), 0xc0..=0xdf_u8],
            0..40,
        ),
    ) {
        all_types_agree(&body);
        // As the value of an unknown field, and as one that some types have.
        let unknown = [b"\x82\xa6offset\x01\xa1x", &body[..]].concat();
        all_types_agree(&unknown);
        for field in [&b"\x81\xa7request"[..], b"\x81\xa2ok", b"\x81\xa5fault"] {
            all_types_agree(&[field, &body[..]].concat());
        }
    }

    #[test]
    fn integers_are_read_at_every_width_and_refused_beyond_their_range(
        number: i64,
        shift in 0..64_u32,
    ) {
        let number = number >> shift;
        let mut widths = vec![[&[0xd3][..], &number.to_be_bytes()].concat()];
        widths.extend(i32::try_from(number).map(|n| [&[0xd2][..], &n.to_be_bytes()].concat()));
        widths.extend(i16::try_from(number).map(|n| [&[0xd1][..], &n.to_be_bytes()].concat()));
        widths.extend(i8::try_from(number).map(|n| [&[0xd0][..], &n.to_be_bytes()].concat()));
        widths.extend(u64::try_from(number).map(|n| [&[0xcf][..], &n.to_be_bytes()].concat()));
        widths.extend(u32::try_from(number).map(|n| [&[0xce][..], &n.to_be_bytes()].concat()));
        widths.extend(u16::try_from(number).map(|n| [&[0xcd][..], &n.to_be_bytes()].concat()));
        widths.extend(u8::try_from(number).map(|n| [&[0xcc][..], &n.to_be_bytes()].concat()));
        widths.push(rmp_serde::to_vec_named(&number).expect("to memory"));
        for body in widths {
            prop_assert_eq!(decode::<i64>(&body).ok(), Some(number));
            prop_assert_eq!(decode::<i32>(&body).ok(), number.try_into().ok());
            prop_assert_eq!(decode::<i16>(&body).ok(), number.try_into().ok());
            prop_assert_eq!(decode::<i8>(&body).ok(), number.try_into().ok());
            prop_assert_eq!(decode::<u64>(&body).ok(), number.try_into().ok());
            prop_assert_eq!(decode::<u32>(&body).ok(), number.try_into().ok());
            prop_assert_eq!(decode::<u16>(&body).ok(), number.try_into().ok());
            prop_assert_eq!(decode::<u8>(&body).ok(), number.try_into().ok());
        }
    }
}

#[test]
fn an_array_that_claims_more_than_its_bytes_can_hold_is_refused_at_once() {
    let lies: [&[u8]; 5] = [
        b"\xdd\xff\xff\xff\xff\x01",
        b"\xdc\xff\xff\x01",
        b"\x92\x01",
        b"\xc6\xff\xff\xff\xff\x01",
        b"\xdf\x80\x00\x00\x00\x01",
    ];
    for body in lies {
        assert_eq!(reason::<Vec<u64>>(body), Reason::Truncated);
        let ignored = [b"\x82\xa6offset\x01\xa1x", body].concat();
        assert_eq!(reason::<Fin>(&ignored), Reason::Truncated);
    }
}

#[test]
fn a_list_longer_than_any_message_needs_is_refused_before_it_is_read() {
    let mut body = vec![0xdd, 0, 1, 0, 1];
    body.resize(body.len() + 65_537, 0);
    assert_eq!(reason::<Vec<u64>>(&body), Reason::TooMany(65_537));
}

#[test]
fn memory_grows_with_the_elements_and_not_with_the_claim() {
    let mut body = vec![0xdd, 0, 0, 0xff, 0x00];
    body.resize(FRAME_BYTES_MAX, 1);
    body[5] = 0xc0; // The first of many is not a number.
    assert_eq!(reason::<Vec<u64>>(&body), Reason::Type { wanted: "an integer", found: "nil" });
    let mut list: Vec<u64> = decode(&[&[0xdc, 0, 100][..], &[7; 100]].concat()).expect("a list");
    assert!(list.capacity() <= 2 * list.len());
    list.dedup();
    assert_eq!(list, [7]);
}

/// Types that lead as deep as the bytes say.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Chain {
    End,
    Link(Box<Self>),
}

decode_enum!(Chain: End, Link());

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Node {
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Box<Self>>,
}

decode_struct!(Node: ; next);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nest(Vec<Self>);

impl Decode for Nest {
    fn blank() -> Self {
        Self(Vec::new())
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        self.0.read(input)
    }
}

impl<T: Decode> Decode for Box<T> {
    fn blank() -> Self {
        Self::new(T::blank())
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        T::read(self, input)
    }
}

#[test]
fn types_that_nest_are_read_to_the_depth_limit_and_not_beyond() {
    let chain = |links: usize| [b"\x81\xa4link".repeat(links), b"\xa3end".to_vec()].concat();
    let node = |links: usize| [b"\x81\xa4next".repeat(links), b"\x80".to_vec()].concat();
    let nest = |links: usize| [b"\x91".repeat(links), b"\x90".to_vec()].concat();
    survives(&decode::<Chain>(&chain(BODY_DEPTH_MAX - 1)).expect("a chain"));
    survives(&decode::<Node>(&node(BODY_DEPTH_MAX - 2)).expect("a node"));
    survives(&decode::<Nest>(&nest(BODY_DEPTH_MAX - 2)).expect("a nest"));
    for deep in [BODY_DEPTH_MAX, 200_000] {
        assert_eq!(reason::<Chain>(&chain(deep)), Reason::Depth);
        assert_eq!(reason::<Node>(&node(deep - 1)), Reason::Depth);
        assert_eq!(reason::<Nest>(&nest(deep - 1)), Reason::Depth);
    }
}

#[test]
fn siblings_do_not_add_up_to_depth() {
    let nests = Nest((0..100).map(|_| Nest(vec![Nest(Vec::new())])).collect());
    survives(&nests);
    let mut fields = b"\x82\xa6offset\x01\xa1x".to_vec();
    fields.extend(rmp_serde::to_vec_named(&nests).expect("to memory"));
    assert_eq!(decode::<Fin>(&fields), Ok(Fin { offset: 1 }));
    survives(&(0..100).map(|_| Chain::Link(Box::new(Chain::End))).collect::<Vec<_>>());
}

#[test]
fn unknown_fields_of_every_kind_are_passed_over() {
    let values: [&[u8]; 20] = [
        b"\xc0",
        b"\xc2",
        b"\xff",
        b"\xd1\x00\x00",
        b"\xca\x00\x00\x00\x00",
        b"\xcb\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xa2\xff\xfe",
        b"\xd9\x01x",
        b"\xda\x00\x01x",
        b"\xc4\x01x",
        b"\xd4\x01x",
        b"\xd8\x010123456789abcdef",
        b"\xc7\x00\x01",
        b"\xc8\x00\x01\x01x",
        b"\xc9\x00\x00\x00\x01\x01x",
        b"\x90",
        b"\x80",
        b"\x92\x91\xc0\x82\xa1x\x90\x01\xc3",
        b"\xdc\x00\x02\x80\x90",
        b"\xdf\x00\x00\x00\x01\x90\x80",
    ];
    for value in values {
        let body = [b"\x83\xa1x", value, b"\xa6offset\x05\xa1y", value].concat();
        assert_eq!(decode::<Fin>(&body), Ok(Fin { offset: 5 }), "{value:x?}");
        assert_eq!(reference(&body), Some(Fin { offset: 5 }), "{value:x?}");
    }
    assert!(decode::<Fin>(b"\x82\xa6offset\x05\xa1y\xc1").is_err(), "0xc1 is never used");
}

/// What rmp-serde's decoder accepts and this one does not, none of which rmp-serde writes.
#[test]
fn input_that_only_rmp_serde_reads() {
    fn only_rmp_serde<T: Decode + DeserializeOwned + Debug>(body: &[u8]) {
        assert!(reference::<T>(body).is_some(), "{body:x?}");
        assert!(decode::<T>(body).is_err(), "{body:x?}");
    }
    only_rmp_serde::<Fin>(b"\x91\x01"); // a struct as an array
    only_rmp_serde::<Fin>(b"\x81\x00\x01"); // a field by its number
    only_rmp_serde::<Fin>(b"\x81\xc4\x06offset\x01"); // a field's name as a binary
    only_rmp_serde::<Fin>(b"\x82\xa6offset\x01\xa1\xff\x01"); // an unknown one beyond UTF-8
    only_rmp_serde::<Chain>(b"\x81\xa3end\xc0"); // nil as the content of a bare variant
    only_rmp_serde::<Chain>(b"\x00"); // a variant by its number
    only_rmp_serde::<String>(b"\xc4\x01x"); // a string as a binary
    only_rmp_serde::<[u8; 2]>(b"\xc4\x02xy"); // numbers as a binary
    only_rmp_serde::<Text>(b"\x91\x41"); // a text as numbers
    only_rmp_serde::<Text>(b"\xa1\xff"); // a string that is no UTF-8, as a text
}

#[test]
fn a_request_of_the_future_is_passed_over_by_its_name() {
    let unknown = |name: &str| Ok(Request::Unknown { name: name.to_owned() });
    let contents: [&[u8]; 4] =
        [b"\x80", b"\xc0", b"\x82\xa6stream\x02\xa4deep\x91\x81\xa1x\x01", b"\x07"];
    for content in contents {
        assert_eq!(decode::<Request>(&[b"\x81\xa5dream", content].concat()), unknown("dream"));
    }
    assert_eq!(decode::<Request>(b"\xa5dream"), unknown("dream"));
    let body = b"\x82\xa4done\x91\x07\xa7request\x81\xa5dream\x81\xa1x\x01";
    let done = vec![crate::RequestId(7)];
    let request = Request::Unknown { name: "dream".to_owned() };
    assert_eq!(decode::<RequestBody>(body), Ok(RequestBody { done, request }));
    // It is still one value, and no deeper than others.
    assert_eq!(reason::<Request>(b"\x81\xa5dream"), Reason::Truncated);
    assert_eq!(reason::<Request>(b"\x81\xa5dream\x80\x80"), Reason::Trailing(1));
    let deep = [&b"\x81\xa5dream"[..], &b"\x91".repeat(200_000)].concat();
    assert_eq!(reason::<Request>(&deep), Reason::Depth);
    let long = rmp_serde::to_vec_named(&"x".repeat(100_000)).expect("to memory");
    assert_eq!(decode::<Request>(&long), unknown(&"x".repeat(TEXT_BYTES_MAX)));
    // A known one with the wrong content stays an error, and so does an unknown word in a known one.
    assert!(decode::<Request>(b"\xa4info").is_err());
    assert!(decode::<Fault>(b"\x82\xa4code\xa5dream\xa7message\xa1x").is_err());
}

#[test]
fn text_is_a_string_or_a_binary() {
    assert_eq!(decode::<Text>(b"\xa1x"), Ok(Text::from("x")));
    assert_eq!(decode::<Text>(b"\xc4\x01x"), Ok(Text::from("x")));
    assert_eq!(decode::<Text>(b"\xc4\x01\xff"), Ok(Text::from(vec![0xff])));
    assert_eq!(decode::<Option<Text>>(b"\xc0"), Ok(None));
}

#[test]
fn errors_say_what_is_wrong_in_few_words() {
    let cases: [(Error, &str); 13] = [
        (decode::<Fin>(b"").unwrap_err(), "it ends within a value"),
        (decode::<Fin>(b"\xa1x").unwrap_err(), "a string where a map belongs"),
        (decode::<Fin>(b"\x81\xa6offset\xff").unwrap_err(), "a number is out of its range"),
        (decode::<Fin>(b"\x80").unwrap_err(), "the field offset is missing"),
        (
            decode::<Fin>(b"\x82\xa6offset\x01\xa6offset\x01").unwrap_err(),
            "the field offset is there twice",
        ),
        (decode::<Chain>(b"\xa1x").unwrap_err(), "there is no variant \"x\""),
        (decode::<Chain>(b"\xa4link").unwrap_err(), "nothing where content of a variant belongs"),
        (
            decode::<Chain>(b"\x81\xa3end\xc0").unwrap_err(),
            "content of a variant where nothing belongs",
        ),
        (
            decode::<[u8; 2]>(b"\x91\x01").unwrap_err(),
            "a list has more or fewer values than its type",
        ),
        (
            decode::<(u8, u8)>(b"\x93\x01\x01\x01").unwrap_err(),
            "a list has more or fewer values than its type",
        ),
        (decode::<String>(b"\xa1\xff").unwrap_err(), "a string is not UTF-8"),
        (
            decode::<u64>(b"\xca\0\0\0\0").unwrap_err(),
            "a float or an extension where an integer belongs",
        ),
        (decode::<bool>(b"\xc3\xc3").unwrap_err(), "1 bytes follow the message"),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn text_of_the_peer_is_clipped_in_errors() {
    let body = rmp_serde::to_vec_named(&"ß".repeat(100_000)).expect("to memory");
    let Reason::UnknownVariant(name) = reason::<Chain>(&body) else { panic!("another reason") };
    assert!(name.len() <= TEXT_BYTES_MAX);
    let Reason::Invalid(text) = reason::<crate::SessionId>(&body) else { panic!("another reason") };
    assert!(text.len() <= TEXT_BYTES_MAX);
}

fn depth(value: &rmpv::Value) -> usize {
    let inside = match value {
        rmpv::Value::Array(values) => values.iter().map(depth).max(),
        rmpv::Value::Map(pairs) => pairs.iter().map(|(_, value)| depth(value)).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or(0)
}

#[test]
fn the_deepest_message_is_within_the_limit() {
    let failure =
        SpawnFailure { stage: SpawnStage::Exec, errno: 2, subject: "/bin/none".to_owned() };
    let cause = Cause::SpawnFailed { failure };
    let exit = ExitRecord { cause, ..Draw(&[]).exit() };
    let session = SessionInfo { exit: Some(exit), ..Draw(&[]).session_info() };
    let list = SessionList { version: 1, sessions: vec![session] };
    let body = survives(&Answer::Ok(Reply::Sessions(list)));
    let value = rmpv::decode::read_value(&mut &body[..]).expect("MessagePack");
    // `ok`, `sessions`, the list, its array, a session, its exit, `spawn_failed`, its fields, the
    // failure: nine maps and arrays, and what is in the last is the tenth level.
    assert_eq!(depth(&value), 9);
    const { assert!(BODY_DEPTH_MAX >= 10) };
}

#[test]
fn every_width_is_written_as_rmp_serde_writes_it() {
    for shift in 0..64 {
        for number in [1_u64 << shift, (1 << shift) - 1, (1 << shift) + 1] {
            survives(&number);
            survives(&(number as i64));
            survives(&(number as i64).wrapping_neg());
        }
    }
    for length in [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
        survives(&"x".repeat(length));
        survives(&Text::from(vec![0xff; length]));
        survives(&vec![true; length]);
    }
}
