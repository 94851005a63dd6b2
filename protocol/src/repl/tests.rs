use proptest::prelude::*;

use super::*;
use crate::limits::BODY_DEPTH_MAX;
use crate::limits::TEXT_BYTES_MAX;
use crate::msgpack::tests::samples::{Draw, HAPPENINGS, numbers};
use crate::record::LENGTH_BYTES;

fn encoded(event: &Event) -> Vec<u8> {
    let mut out = Vec::new();
    encode_record(event, &mut out);
    out
}

fn record_bytes(input: &[u8]) -> Result<Option<usize>, RecordError> {
    let length = record::length(input, EVENT_BYTES_MAX);
    length.map_err(|TooLong { bytes }| RecordError::TooLong { bytes })
}

fn lost(reason: &str) -> Event {
    Event { run: 0, at_us: 1, what: Happening::Lost { reason: reason.into() } }
}

/// Reads a stream like a reader of a link: what has arrived is kept until a record is complete.
fn read_in_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Event>, RecordError> {
    let (mut waiting, mut events) = (Vec::new(), Vec::new());
    for piece in pieces {
        waiting.extend_from_slice(piece);
        while let Some((event, bytes)) = parse_record(&waiting)? {
            waiting.drain(..bytes);
            events.push(event);
        }
    }
    assert!(waiting.is_empty(), "the stream ends with a record");
    Ok(events)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_happening_is_read_back_as_it_was_written(
        numbers in numbers(),
        run: u64,
        at_us: u64,
        following in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        for number in 0..HAPPENINGS {
            let what = Draw(&numbers).happening_number(number);
            let event = Event { run, at_us, what };
            let mut input = encoded(&event);
            let bytes = input.len();
            prop_assert_eq!(record_bytes(&input), Ok(Some(bytes)));
            input.extend_from_slice(&following);
            prop_assert_eq!(parse_record(&input), Ok(Some((event, bytes))));
        }
    }

    #[test]
    fn a_stream_is_the_same_events_in_whatever_pieces_it_comes(
        // Not so many numbers, because long texts take them by the hundred.
        numbers in prop::collection::vec(prop::collection::vec(0..5_u64, 0..30), 1..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let events: Vec<Event> = numbers.iter().map(|numbers| Draw(numbers).event()).collect();
        let stream: Vec<u8> = events.iter().flat_map(encoded).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]);
        prop_assert_eq!(read_in_pieces(pieces), Ok(events.clone()));
        let first = encoded(&events[0]).len();
        for cut in 0..stream.len().min(4096) {
            let is_whole = parse_record(&stream[..cut]).map(|record| record.is_some());
            prop_assert_eq!(is_whole, Ok(cut >= first));
        }
    }

    #[test]
    fn output_is_read_back_as_the_event_that_it_is(
        run: u64,
        at_us: u64,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), b'a'..=b'z'], 0..400),
        is_error: bool,
    ) {
        let channel = if is_error { Channel::Stderr } else { Channel::Stdout };
        let mut out = Vec::new();
        encode_output(&OutputRecord { run, at_us, channel, bytes: &bytes }, &mut out);
        let bytes = Text::from(bytes);
        let what =
            if is_error { Happening::Stderr { bytes } } else { Happening::Stdout { bytes } };
        prop_assert_eq!(parse_record(&out), Ok(Some((Event { run, at_us, what }, out.len()))));
    }

    #[test]
    fn any_length_is_judged_by_itself(length: u32, have in 0..64_usize) {
        let input = [&length.to_be_bytes()[..], &vec![0x80; have]].concat();
        let bytes = length as usize;
        let expected = if bytes > EVENT_BYTES_MAX {
            Err(RecordError::TooLong { bytes })
        } else {
            Ok(Some(LENGTH_BYTES + bytes))
        };
        prop_assert_eq!(record_bytes(&input), expected.clone());
        match (expected, parse_record(&input)) {
            (Err(expected), got) => prop_assert_eq!(got, Err(expected)),
            (Ok(_), Ok(None)) => prop_assert!(have < bytes),
            (Ok(_), got) => {
                let is_malformed = matches!(got, Err(RecordError::Malformed { .. }));
                prop_assert!(have >= bytes && is_malformed, "{got:?}");
            }
        }
    }

    #[test]
    fn mutated_records_are_refused_or_read_as_events_that_can_be_written_again(
        numbers in prop::collection::vec(0..8_u64, 0..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for number in 0..HAPPENINGS {
            let what = Draw(&numbers).happening_number(number);
            let mut input = encoded(&Event { run: 1, at_us: 2, what });
            for (at, byte) in &changes {
                // Most bytes of a long text are alike: the head is what matters.
                let at = at.index(input.len().min(200));
                input[at] = *byte;
            }
            match parse_record(&input) {
                Ok(None) => prop_assert!(record_bytes(&input).unwrap() > Some(input.len())),
                Ok(Some((event, bytes))) => {
                    prop_assert!(bytes <= input.len());
                    let again = encoded(&event);
                    prop_assert_eq!(parse_record(&again), Ok(Some((event, again.len()))));
                }
                Err(RecordError::TooLong { bytes }) => prop_assert!(bytes > EVENT_BYTES_MAX),
                Err(RecordError::Malformed { reason }) => {
                    prop_assert!(!reason.is_empty() && reason.len() <= TEXT_BYTES_MAX);
                }
            }
        }
    }
}

#[test]
fn a_terminals_output_is_reported_as_stdout() {
    let mut out = Vec::new();
    let channel = Channel::Terminal;
    encode_output(&OutputRecord { run: 7, at_us: 9, channel, bytes: b"x" }, &mut out);
    let what = Happening::Stdout { bytes: "x".into() };
    assert_eq!(parse_record(&out), Ok(Some((Event { run: 7, at_us: 9, what }, out.len()))));
}

#[test]
fn a_record_is_read_up_to_the_limit_and_refused_beyond_it() {
    let around = encoded(&lost(&"x".repeat(1 << 16))).len() - LENGTH_BYTES - (1 << 16);
    let longest = lost(&"x".repeat(EVENT_BYTES_MAX - around));
    let mut input = encoded(&longest);
    assert_eq!(input.len(), LENGTH_BYTES + EVENT_BYTES_MAX);
    assert!(matches!(parse_record(&input), Ok(Some((event, _))) if event == longest));
    input[..LENGTH_BYTES].copy_from_slice(&(EVENT_BYTES_MAX as u32 + 1).to_be_bytes());
    let bytes = EVENT_BYTES_MAX + 1;
    // The length alone is enough: nothing waits for the rest.
    assert_eq!(parse_record(&input[..LENGTH_BYTES]), Err(RecordError::TooLong { bytes }));
    assert_eq!(parse_record(&input), Err(RecordError::TooLong { bytes }));
}

#[test]
fn invalid_events_are_refused_with_a_reason() {
    for record in [&[0, 0, 0, 0][..], &[0, 0, 0, 1, 0xc0], &[0, 0, 0, 1, 0x80]] {
        assert!(matches!(parse_record(record), Err(RecordError::Malformed { .. })), "{record:x?}");
    }
    let mut trailing = encoded(&lost("why"));
    trailing[LENGTH_BYTES - 1] += 1;
    trailing.push(0xc0);
    assert!(matches!(parse_record(&trailing), Err(RecordError::Malformed { .. })));
}

#[test]
fn an_event_that_nests_without_end_is_refused() {
    let mut body = b"\x84\xa3run\x01\xa5at_us\x01\xa4what\x81\xa4lost\x81\xa6reason\xa0".to_vec();
    body.extend_from_slice(b"\xa1x");
    body.extend_from_slice(&[0x91].repeat(BODY_DEPTH_MAX));
    body.push(0xc0);
    let record = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
    let Err(RecordError::Malformed { reason }) = parse_record(&record) else { panic!("read") };
    assert!(reason.contains("deep"), "{reason}");
}

#[test]
fn a_list_that_claims_more_than_the_record_holds_is_refused() {
    let head = b"\x83\xa3run\x01\xa5at_us\x01\xa4what\x81\xa7display\x82\xa4role\xa5value\xa4data";
    let body = [&head[..], b"\xdd\xff\xff\xff\xff"].concat();
    let record = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
    assert!(matches!(parse_record(&record), Err(RecordError::Malformed { .. })));
}
