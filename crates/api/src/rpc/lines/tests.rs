use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::budget::Share;
use crate::limits::MEMORY_STEP_BYTES;

const PLENTY: usize = 1 << 20;

fn parsed(collected: &Collected) -> (Vec<(String, String)>, String, String) {
    let output: Value = serde_json::from_slice(&collected.output).unwrap();
    let entries = output.as_array().unwrap().iter().map(|entry| {
        assert_eq!(entry.as_object().unwrap().len(), 2);
        let text = |key: &str| entry[key].as_str().unwrap().to_owned();
        (text("stream"), text("text"))
    });
    let whole = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap();
    (entries.collect(), whole(&collected.stdout), whole(&collected.stderr))
}

fn lines_of(collected: &Collected, stream: &str) -> Vec<String> {
    let (entries, _, _) = parsed(collected);
    entries.into_iter().filter(|(name, _)| name == stream).map(|(_, text)| text).collect()
}

fn collected(parts: &[(Stream, &str)]) -> Collected {
    let mut lines = Lines::with_wholes(PLENTY);
    for (stream, text) in parts {
        lines.say(*stream, text.as_bytes());
    }
    lines.finish()
}

#[test]
fn an_entry_is_a_line_without_its_newline() {
    use Stream::{Stderr, Stdout};
    let collected = collected(&[(Stdout, "a\n\nb"), (Stderr, "e\r\n"), (Stdout, "c\n  d  ")]);
    let (entries, stdout, stderr) = parsed(&collected);
    let expected =
        [("stdout", "a"), ("stdout", ""), ("stderr", "e\r"), ("stdout", "bc"), ("stdout", "  d  ")];
    let expected: Vec<(String, String)> =
        expected.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    assert_eq!(entries, expected);
    assert_eq!((stdout.as_str(), stderr.as_str()), ("a\n\nbc\n  d  ", "e\r\n"));
    assert!(!collected.is_truncated);
}

#[test]
fn no_output_is_an_empty_list() {
    let collected = collected(&[]);
    assert_eq!(collected.output, b"[]");
    assert_eq!(collected.stdout, b"\"\"");
}

#[test]
fn notices_are_on_lines_of_their_own() {
    let mut lines = Lines::new(PLENTY);
    lines.say(Stream::Stdout, b"p");
    lines.tell(Stream::Stdout, "v\nw");
    lines.tell(Stream::Stdout, "");
    lines.say(Stream::Stdout, b"q");
    assert_eq!(lines_of(&lines.finish(), "stdout"), ["p", "v", "w", "q"]);
}

#[test]
fn what_finds_no_room_is_left_out_and_reported() {
    for text in ["x".repeat(4000), "x\n".repeat(4000), "\0".repeat(4000), "ä€😀".repeat(900)] {
        let mut lines = Lines::with_wholes(2000);
        for piece in text.as_bytes().chunks(7) {
            lines.say(Stream::Stdout, piece);
        }
        lines.say(Stream::Stderr, b"too late\n");
        let collected = lines.finish();
        assert!(collected.is_truncated);
        assert!(
            collected.output.len() + collected.stdout.len() < 2200,
            "{}",
            collected.output.len()
        );
        let (_, stdout, stderr) = parsed(&collected);
        assert!(!stdout.is_empty() && text.starts_with(&stdout), "{stdout:?}");
        assert!(stderr.contains("cut short") && !stderr.contains("too late"), "{stderr:?}");
    }
}

#[test]
fn what_is_lost_on_the_way_is_reported_in_its_place_and_the_rest_is_kept() {
    let mut lines = Lines::with_wholes(PLENTY);
    lines.say(Stream::Stdout, b"before\nhal");
    lines.lose(Stream::Stdout, 4096);
    lines.say(Stream::Stdout, b"f\nafter\n");
    let collected = lines.finish();
    assert!(collected.is_truncated);
    assert_eq!(lines_of(&collected, "stdout"), ["before", "hal", "f", "after"]);
    assert_eq!(lines_of(&collected, "stderr"), ["[4096 bytes of stdout were lost here]"]);
}

#[test]
fn what_there_is_no_memory_for_is_left_out_and_reported() {
    let step = MEMORY_STEP_BYTES as usize;
    for text in ["x".repeat(step), "x\n".repeat(step / 2)] {
        let mut lines = Lines::with_wholes(usize::MAX / 8).counted(Share::within(0));
        lines.say(Stream::Stdout, b"first\n");
        for piece in text.as_bytes().chunks(5000) {
            lines.say(Stream::Stdout, piece);
        }
        lines.say(Stream::Stderr, b"too late\n");
        let collected = lines.finish();
        assert!(collected.is_truncated);
        assert!(
            collected.output.len() + collected.stdout.len() < 2 * step,
            "{}",
            collected.output.len()
        );
        let (_, stdout, stderr) = parsed(&collected);
        assert!(stdout.starts_with("first\n"), "{}", stdout.len());
        assert!(stderr.contains("no memory") && !stderr.contains("too late"), "{stderr:?}");
    }
}

fn pieces() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
    let byte = prop_oneof![Just(b'\n'), Just(b'a'), Just(b'"'), Just(0xE2), any::<u8>()];
    prop::collection::vec((any::<bool>(), prop::collection::vec(byte, 0..12)), 0..20)
}

proptest! {
    #[test]
    fn the_lines_joined_are_the_text_again(pieces in pieces()) {
        let mut lines = Lines::with_wholes(PLENTY);
        let mut texts = [Vec::new(), Vec::new()];
        for (is_error, bytes) in &pieces {
            let stream = if *is_error { Stream::Stderr } else { Stream::Stdout };
            lines.say(stream, bytes);
            texts[stream as usize].extend_from_slice(bytes);
        }
        let collected = lines.finish();
        let (_, stdout, stderr) = parsed(&collected);
        for (bytes, whole, name) in [(&texts[0], stdout, "stdout"), (&texts[1], stderr, "stderr")] {
            let text = String::from_utf8_lossy(bytes);
            prop_assert_eq!(&whole, &text);
            let joined: String =
                lines_of(&collected, name).into_iter().flat_map(|line| [line, "\n".to_owned()]).collect();
            let ended = text.is_empty() || text.ends_with('\n');
            prop_assert_eq!(joined, if ended { text.into_owned() } else { format!("{text}\n") });
        }
        prop_assert!(!collected.is_truncated);
    }

    #[test]
    fn whatever_the_room_it_is_kept_to(pieces in pieces(), room in 0_usize..400) {
        let mut lines = Lines::with_wholes(room);
        for (_, bytes) in &pieces {
            lines.say(Stream::Stdout, bytes);
        }
        let collected = lines.finish();
        let note = 2 * 80 + 40;
        prop_assert!(collected.output.len() + collected.stdout.len() + collected.stderr.len() < room + note);
        parsed(&collected);
    }
}
