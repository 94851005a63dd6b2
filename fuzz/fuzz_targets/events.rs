//! The events of runs, fed what a hostile guest may send in whatever slices; slices must not
//! matter, and what is accepted is an event like any other.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use protocol::repl::{Event, encode_record, parse_record};

/// The names in an event, which the engine would not find by itself: one of them stands for each
/// byte that MessagePack never uses and the byte after it.
static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let all = "run at_us what started stdout stderr late display artifact error input_request lost \
        gap finished count bytes of channel terminal dropped role value shown update id data mime \
        metadata path name kind message traceback frames file line function source request prompt \
        secret reason events end ok exited code interrupted by timed_out limit_ms died cause \
        cancelled duration_us state_kept rung stdout_bytes stderr_bytes";
    all.split_whitespace().collect()
});
const NEVER_USED: u8 = 0xc1;

fuzz_target!(|data: &[u8]| {
    let Some((slice, spelt)) = data.split_first() else { return };
    let stream = spell(spelt);
    let whole = read(stream.chunks(stream.len().max(1)));
    let pieces = read(stream.chunks(usize::from(*slice) + 1));
    assert_eq!(whole, pieces, "the same stream in other slices");
    // A guess at a length is rarely right, so the same bytes are read as the body of one record.
    let record = [&(stream.len() as u32).to_be_bytes()[..], &stream].concat();
    let (events, _) = read([&record[..]].into_iter());
    for event in whole.0.iter().chain(&events) {
        let mut again = Vec::new();
        encode_record(event, &mut again);
        let read = parse_record(&again).expect("an event that can be written can be read");
        assert_eq!(read, Some((event.clone(), again.len())));
    }
});

fn spell(data: &[u8]) -> Vec<u8> {
    let (mut out, mut data) = (Vec::new(), data.iter());
    while let Some(byte) = data.next() {
        if *byte == NEVER_USED {
            let word = WORDS[usize::from(*data.next().unwrap_or(&0)) % WORDS.len()];
            out.push(0xa0 | word.len() as u8);
            out.extend_from_slice(word.as_bytes());
        } else {
            out.push(*byte);
        }
    }
    out
}

/// The events, and whether the stream was good as far as it went.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, bool) {
    let (mut waiting, mut events) = (Vec::new(), Vec::new());
    for piece in pieces {
        waiting.extend_from_slice(piece);
        loop {
            match parse_record(&waiting) {
                Ok(None) => break,
                Ok(Some((event, bytes))) => {
                    assert!(bytes <= waiting.len(), "no more is taken than has come");
                    waiting.drain(..bytes);
                    events.push(event);
                }
                Err(_) => return (events, false),
            }
        }
    }
    (events, true)
}
