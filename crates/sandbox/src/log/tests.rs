use std::fs;
use std::path::{Path, PathBuf};

use protocol::exit::{Cause, OutputTotal, Survivor, Usage};

use super::carry::Bounds;
use super::record::{Parsed, Record, RecordBody, encode_record, parse_record};
use super::segment::{segment_numbers, segment_path};
use super::*;
use crate::limits::LOG_RECORD_BYTES_MAX;

/// A directory that goes with the test.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("burrow-log-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn small(&self) -> Writer {
        Writer::open_bounded(&self.0, SMALL).unwrap()
    }

    fn entries(&self, from: From) -> Vec<Event> {
        drain(&mut Reader::open(&self.0, from).unwrap())
    }

    fn newest(&self) -> PathBuf {
        segment_path(&self.0, *segment_numbers(&self.0).unwrap().last().unwrap())
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bounds without shares.
pub(super) const SMALL: Bounds = Bounds {
    segment_bytes: 2000,
    segments_max: 3,
    share_bytes: 0,
    carried_bytes_max: 0,
    apart: false,
};

/// Bounds with shares of about ten records.
const SHARED: Bounds = Bounds { share_bytes: 1500, carried_bytes_max: 4000, ..SMALL };

impl TestDirectory {
    fn shared(&self) -> Writer {
        Writer::open_bounded(&self.0, SHARED).unwrap()
    }

    fn bytes(&self) -> u64 {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

#[test]
fn a_flood_does_not_push_out_the_output_of_another_session() {
    let place = TestDirectory::new("flood");
    let (quiet, loud, over) = (session("quiet"), session("loud"), session("over"));
    let mut log = place.shared();
    log.started(&over, run(3), "over").unwrap();
    log.output(&over, Channel::Stdout, 0, b"gone, but known\n").unwrap();
    log.exited(&over, &exit()).unwrap();
    log.released(&over).unwrap();
    for (id, number) in [(&quiet, 1), (&loud, 2)] {
        log.started(id, run(number), id.as_str()).unwrap();
    }
    write_lines(&mut log, &quiet, 0..3);
    write_lines(&mut log, &loud, 0..3_000);
    log.output(&quiet, Channel::Stdout, log.next_offset(&quiet, Channel::Stdout), b"last\n")
        .unwrap();
    let bound = 3 * SHARED.segment_bytes + SHARED.carried_bytes_max;
    assert!(place.bytes() <= bound + 1000, "{} bytes", place.bytes());
    // The result must be the same as events, as one output, and as known sessions.
    let expected = format!("{}last\n", lines_of(0..3));
    let output = |name: &str| {
        let reader = Reader::open(&place.0, From::Start).unwrap();
        text_of(&drain(&mut reader.only(session(name))))
    };
    assert_eq!(
        (output("quiet"), output("over")),
        (expected.clone(), "gone, but known\n".to_owned())
    );
    assert_eq!(read_all(&place, "quiet", run(1), 0), (Some(0), expected));
    assert_eq!(read_all(&place, "over", run(3), 6), (Some(6), "but known\n".to_owned()));
    let known = recorded_sessions(&place.0, 10).unwrap();
    let known: Vec<_> = known.iter().map(|one| (one.session.as_str(), &*one.command)).collect();
    assert_eq!(known, [("loud", ""), ("over", "over"), ("quiet", "quiet")]);
    let known = recorded_session(&place.0, &quiet).unwrap().expect("it is known");
    assert_eq!(known.outputs[&Channel::Stdout].oldest, 0);
    let known = recorded_session(&place.0, &over).unwrap().expect("it is known");
    assert!(known.exit.is_some() && known.is_released);
    // Missing output is counted.
    let events = place.entries(From::Start);
    let missing: u64 = events
        .iter()
        .map(|event| match event {
            Event::Missing { bytes } => *bytes,
            _ => 0,
        })
        .sum();
    let all = log.recorded_bytes();
    assert_eq!(missing + text_of(&events).len() as u64, all);
}

#[test]
fn a_session_keeps_its_newest_records_up_to_its_share_and_all_up_to_theirs() {
    let place = TestDirectory::new("share");
    let mut log = place.shared();
    for number in 1..=6 {
        let id = session(&format!("s{number}"));
        log.started(&id, run(number), "seq").unwrap();
        write_lines(&mut log, &id, 0..40);
        log.exited(&id, &exit()).unwrap();
        log.released(&id).unwrap();
    }
    let loud = session("loud");
    log.started(&loud, run(9), "loud").unwrap();
    write_lines(&mut log, &loud, 0..3_000);
    let bound = 3 * SHARED.segment_bytes + SHARED.carried_bytes_max;
    assert!(place.bytes() <= bound + 1000, "{} bytes", place.bytes());
    let count = |number: u32| {
        let read = read_all(&place, &format!("s{number}"), run(number), 0);
        assert!(read.1.is_empty() || lines_of(0..40).ends_with(&read.1), "the newest: {read:?}");
        read.1.len()
    };
    let count: Vec<usize> = (1..=6).map(count).collect();
    assert_eq!(count[0], 0, "the oldest makes room: {count:?}");
    assert!(count[5] > 0 && count[5] < lines_of(0..40).len(), "a share of it: {count:?}");
}

#[test]
fn reading_from_a_mark_gives_each_record_once_and_counts_missing_ones() {
    let place = TestDirectory::new("marks");
    let mut log = place.shared();
    let names = ["quiet", "loud", "other"];
    for (number, name) in (1..).zip(names) {
        log.started(&session(name), run(number), name).unwrap();
    }
    let mut live = Reader::open(&place.0, From::Start).unwrap();
    let mut marks: Vec<(Mark, u64)> = Vec::new();
    let (mut read, mut expected) = (0, Vec::new());
    for round in 0..240_u64 {
        let name = match round % 29 {
            0 => "quiet",
            1..5 => "other",
            _ => "loud",
        };
        let id = session(name);
        let offset = log.next_offset(&id, Channel::Stdout);
        let text = format!("{name} {round}\n");
        log.output(&id, Channel::Stdout, offset, text.as_bytes()).unwrap();
        expected.push(text);
        // It falls behind, and is overtaken sometimes.
        if round % 97 < 60 {
            while let Some(entry) = live.next().unwrap() {
                read += match &entry.event {
                    Event::Output { bytes, .. } => bytes.len() as u64,
                    Event::Missing { bytes } => *bytes,
                    _ => 0,
                };
                marks.push((live.mark().expect("a place"), read));
            }
            assert_eq!(read, log.recorded_bytes(), "round {round}");
        }
        // From every mark that was ever returned, read and missing output must add up to the rest.
        if round % 60 == 59 {
            for (mark, read) in &marks {
                let again: Mark = mark.to_string().parse().unwrap();
                let events = drain(&mut Reader::resume(&place.0, again).unwrap());
                let mut next = std::collections::BTreeMap::new();
                let mut count = *read;
                for event in &events {
                    match event {
                        Event::Missing { bytes } => count += bytes,
                        Event::Output { session, offset, bytes, .. } => {
                            let end = offset + bytes.len() as u64;
                            let before = next.insert(session.clone(), end);
                            assert!(before.is_none_or(|before| before <= *offset), "twice: {mark}");
                            count += bytes.len() as u64;
                        }
                        _ => {}
                    }
                }
                assert_eq!(count, log.recorded_bytes(), "round {round}, mark {mark}");
            }
        }
    }
    // Each place that a reader of today names is as good, the carried ones too.
    let mut reader = Reader::open(&place.0, From::Start).unwrap();
    let mut rest = place.entries(From::Start);
    assert!(rest.iter().any(|event| matches!(event, Event::Missing { .. })));
    while let Some(entry) = reader.next().unwrap() {
        assert_eq!(rest.remove(0), entry.event);
        let events = drain(&mut Reader::resume(&place.0, reader.mark().unwrap()).unwrap());
        assert_eq!(events, rest);
    }
}

fn lines_of(lines: std::ops::Range<u64>) -> String {
    lines.map(|line| format!("line {line:04}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn one_changed_byte_costs_one_record_and_is_reported_as_damage() {
    let place = TestDirectory::new("damaged");
    let session: SessionId = "one".parse().unwrap();
    let output = |log: &mut Writer, at: u64| {
        log.output(&session, Channel::Stdout, at * 50, &[b'x'; 50]).unwrap();
    };
    let mut log = Writer::open(&place.0).unwrap();
    log.started(&session, Run { pid: 1, started_at_ms: 1 }, "seq").unwrap();
    let head_ends = fs::metadata(place.newest()).unwrap().len();
    (0..3).for_each(|at| output(&mut log, at));
    let begins = fs::metadata(place.newest()).unwrap().len();
    output(&mut log, 3);
    let ends = fs::metadata(place.newest()).unwrap().len();
    (4..7).for_each(|at| output(&mut log, at));
    drop(log);
    let whole = fs::read(place.newest()).unwrap();
    let offsets = |events: &[Event]| -> Vec<u64> {
        let all = events.iter();
        all.filter_map(|event| match event {
            Event::Output { offset, .. } => Some(offset / 50),
            _ => None,
        })
        .collect()
    };
    assert!(head_ends < begins);
    for at in begins..ends {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 0x15;
        fs::write(place.newest(), &bytes).unwrap();
        // The next bridge cuts nothing off, and continues after the last record.
        let mut log = Writer::open(&place.0).unwrap();
        assert_eq!((log.cut_bytes(), log.next_offset(&session, Channel::Stdout)), (0, 350));
        output(&mut log, 7);
        drop(log);
        let events = place.entries(From::Start);
        if at < begins + 4 {
            // Its length is recovered from its checksum.
            assert_eq!(offsets(&events), [0, 1, 2, 3, 4, 5, 6, 7], "byte {at}");
            continue;
        }
        assert_eq!(offsets(&events), [0, 1, 2, 4, 5, 6, 7], "byte {at}");
        let damage = events.iter().filter(|event| matches!(event, Event::Damaged { .. })).count();
        assert_eq!(damage, 1, "{events:?}");
        assert!(!events.iter().any(|event| matches!(event, Event::Missing { .. })));
        let mut recording = Recording::new(
            place.0.clone(),
            session.clone(),
            Run { pid: 1, started_at_ms: 1 },
            Channel::Stdout,
        );
        assert_eq!(recording.read(150, 1000).unwrap().expect("what is behind it").0, 200);
    }
    fs::write(place.newest(), &whole).unwrap();
}

#[test]
fn a_damaged_head_costs_no_record_behind_it() {
    let place = TestDirectory::new("head");
    let session: SessionId = "one".parse().unwrap();
    let mut log = place.small();
    log.started(&session, Run { pid: 1, started_at_ms: 1 }, "seq").unwrap();
    for at in 0..12 {
        log.output(&session, Channel::Stdout, at * 200, &[b'x'; 200]).unwrap();
    }
    let next = log.next_offset(&session, Channel::Stdout);
    drop(log);
    let expected = place.entries(From::Start).len();
    let mut bytes = fs::read(place.newest()).unwrap();
    bytes[20] ^= 1;
    fs::write(place.newest(), &bytes).unwrap();
    let log = place.small();
    assert_eq!((log.cut_bytes(), log.next_offset(&session, Channel::Stdout)), (0, next));
    let events = place.entries(From::Start);
    assert_eq!(events.len(), expected + 1, "and the damage");
    assert!(events.iter().any(|event| matches!(event, Event::Damaged { .. })), "{events:?}");
}

/// Reads by steps, and says in how many.
fn drain_narrowly(reader: &mut Reader) -> (Vec<Event>, usize) {
    let (mut events, mut steps) = (Vec::new(), 0);
    loop {
        steps += 1;
        match reader.step(&mut narrow()).unwrap() {
            Step::Entry(entry) => events.push(entry.event),
            Step::Paused => {}
            Step::AtEnd => return (events, steps),
        }
    }
}

fn drain(reader: &mut Reader) -> Vec<Event> {
    std::iter::from_fn(|| reader.next().unwrap()).map(|entry| entry.event).collect()
}

/// Room for one record only.
fn narrow() -> ReadBudget {
    ReadBudget { records: 1, bytes: usize::MAX }
}

fn recorded_session(
    directory: &Path,
    session: &SessionId,
) -> Result<Option<RecordedSession>, LogError> {
    let mut look = OneSession::new(directory, session)?;
    loop {
        if let Some(found) = look.step(&mut narrow())? {
            return Ok(found);
        }
    }
}

fn recorded_sessions(
    directory: &Path,
    sessions_max: usize,
) -> Result<Vec<RecordedSession>, LogError> {
    let mut look = AllSessions::new(directory, sessions_max)?;
    loop {
        if let Some(found) = look.step(&mut narrow())? {
            return Ok(found);
        }
    }
}

fn session(name: &str) -> SessionId {
    name.parse().unwrap()
}

fn run(pid: u32) -> Run {
    Run { pid, started_at_ms: 1000 + u64::from(pid) }
}

fn exit() -> ExitRecord {
    ExitRecord {
        cause: Cause::Exited { code: 3 },
        started_at_ms: 1,
        ended_at_ms: 2,
        duration_us: 1000,
        usage: Usage::default(),
        outputs: vec![OutputTotal {
            channel: Channel::Stdout,
            written: 5,
            dropped: 0,
            digested: None,
            sha256: None,
        }],
        left_behind: Vec::new(),
        left_behind_count: 0,
    }
}

fn text_of(events: &[Event]) -> String {
    let bytes: Vec<u8> = events
        .iter()
        .filter_map(|event| match event {
            Event::Output { bytes, .. } => Some(bytes.as_slice()),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn records_are_read_in_order() {
    let place = TestDirectory::new("order");
    let mut log = place.small();
    let (one, two) = (session("one"), session("two"));
    log.started(&one, run(1), "echo").unwrap();
    log.output(&one, Channel::Stdout, 0, b"hello").unwrap();
    log.started(&two, run(2), "cat").unwrap();
    log.output(&two, Channel::Terminal, 0, &[0, 255, 10]).unwrap();
    log.skip_to(&two, Channel::Terminal, 9).unwrap();
    log.exited(&one, &exit()).unwrap();
    log.released(&one).unwrap();
    log.close("as asked").unwrap();
    let (channel, bytes) = (Channel::Terminal, vec![0, 255, 10]);
    let mut expected = vec![
        Event::Started { session: one.clone(), command: "echo".to_owned(), started_at_ms: 1001 },
        Event::Output {
            session: one.clone(),
            channel: Channel::Stdout,
            offset: 0,
            bytes: b"hello".to_vec(),
        },
        Event::Started { session: two.clone(), command: "cat".to_owned(), started_at_ms: 1002 },
        Event::Output { session: two.clone(), channel, offset: 0, bytes },
        Event::Gap { session: two.clone(), channel, from: 3, to: 9 },
        Event::Exited { session: one.clone(), record: exit() },
        Event::Closed { why: "as asked".to_owned() },
    ];
    assert_eq!(place.entries(From::Start), expected);
    let mut only = Reader::open(&place.0, From::Start).unwrap().only(two.clone());
    expected.retain(|event| event.session() != Some(&one));
    assert_eq!(drain(&mut only), expected);
    assert!(only.is_closed());
}

#[test]
fn bytes_that_come_again_are_left_out_and_missing_ones_are_named() {
    let place = TestDirectory::new("again");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), "x").unwrap();
    log.output(&one, Channel::Stdout, 0, b"abcdef").unwrap();
    log.output(&one, Channel::Stdout, 2, b"cdefgh").unwrap();
    log.output(&one, Channel::Stdout, 0, b"abc").unwrap();
    assert_eq!(log.next_offset(&one, Channel::Stdout), 8);
    log.output(&one, Channel::Stdout, 10, b"kl").unwrap();
    let events = place.entries(From::Start);
    assert_eq!(text_of(&events), "abcdefghkl");
    let gap = Event::Gap { session: one, channel: Channel::Stdout, from: 8, to: 10 };
    assert!(events.contains(&gap), "{events:?}");
}

#[test]
fn a_reopened_log_goes_on_where_it_ended_and_a_new_run_begins_at_zero() {
    let place = TestDirectory::new("reopen");
    let one = session("one");
    {
        let mut log = place.small();
        log.started(&one, run(1), "x").unwrap();
        log.output(&one, Channel::Stdout, 0, b"abc").unwrap();
        log.exited(&one, &exit()).unwrap();
    }
    {
        let mut log = place.small();
        assert_eq!(log.next_offset(&one, Channel::Stdout), 3);
        assert!(log.has_exited(&one));
        log.exited(&one, &exit()).unwrap();
        log.started(&one, run(1), "x").unwrap();
        log.output(&one, Channel::Stdout, 3, b"def").unwrap();
        log.started(&one, run(2), "y").unwrap();
        assert_eq!(log.next_offset(&one, Channel::Stdout), 0);
        assert!(!log.has_exited(&one));
        log.output(&one, Channel::Stdout, 0, b"new").unwrap();
        log.released(&one).unwrap();
    }
    assert_eq!(place.small().next_offset(&one, Channel::Stdout), 0);
    let events = place.entries(From::Start);
    assert_eq!(text_of(&events), "abcdefnew");
    let exits = events.iter().filter(|event| matches!(event, Event::Exited { .. }));
    assert_eq!(exits.count(), 1);
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_and_what_it_held_is_asked_for_again() {
    let place = TestDirectory::new("torn");
    let one = session("one");
    let (whole, before_last) = {
        let mut log = place.small();
        log.started(&one, run(1), "x").unwrap();
        log.output(&one, Channel::Stdout, 0, b"abc").unwrap();
        let before_last = fs::metadata(place.newest()).unwrap().len();
        log.output(&one, Channel::Stdout, 3, b"def").unwrap();
        (fs::read(place.newest()).unwrap(), before_last as usize)
    };
    for length in before_last..whole.len() {
        for filler in [0, 9] {
            let mut torn = whole[..length].to_vec();
            torn.resize(length + filler, 0);
            fs::write(place.newest(), torn).unwrap();
            assert_eq!(text_of(&place.entries(From::Start)), "abc", "cut at {length}");
            let mut log = place.small();
            assert_eq!(log.next_offset(&one, Channel::Stdout), 3);
            assert_eq!(log.cut_bytes() as usize, length + filler - before_last);
            log.output(&one, Channel::Stdout, 3, b"def").unwrap();
            assert_eq!(text_of(&place.entries(From::Start)), "abcdef", "cut at {length}");
        }
    }
}

#[test]
fn a_segment_without_a_whole_head_is_begun_again() {
    let place = TestDirectory::new("headless");
    let one = session("one");
    {
        let mut log = place.small();
        log.started(&one, run(1), "x").unwrap();
        log.output(&one, Channel::Stdout, 0, b"abc").unwrap();
    }
    fs::write(segment_path(&place.0, 2), [0, 0, 1]).unwrap();
    let mut log = place.small();
    log.output(&one, Channel::Stdout, 3, b"def").unwrap();
    assert_eq!(text_of(&place.entries(From::Start)), "abcdef");
    assert_eq!(segment_numbers(&place.0).unwrap(), [1]);
}

/// Numbered lines until the log has turned over several times.
fn write_lines(log: &mut Writer, session: &SessionId, lines: std::ops::Range<u64>) {
    for line in lines {
        let text = format!("line {line:04}\n");
        let offset = log.next_offset(session, Channel::Stdout);
        log.output(session, Channel::Stdout, offset, text.as_bytes()).unwrap();
    }
}

#[test]
fn rotation_keeps_the_bound_and_tells_readers_how_much_is_missing() {
    let place = TestDirectory::new("rotation");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), "x").unwrap();
    write_lines(&mut log, &one, 0..500);
    assert_eq!(segment_numbers(&place.0).unwrap().len(), 3);
    for number in segment_numbers(&place.0).unwrap() {
        assert!(fs::metadata(segment_path(&place.0, number)).unwrap().len() <= 2000);
    }
    let events = place.entries(From::Start);
    let Event::Missing { bytes } = events[0] else { panic!("{:?}", events[0]) };
    let rest = text_of(&events);
    assert_eq!(bytes + rest.len() as u64, 5000);
    assert!(rest.ends_with("line 0499\n"));
    drop(log);
    assert_eq!(place.small().next_offset(&one, Channel::Stdout), 5000);
}

#[test]
fn a_reader_that_is_overtaken_reads_its_segment_to_the_end_and_counts_the_rest() {
    let place = TestDirectory::new("overtaken");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), "x").unwrap();
    write_lines(&mut log, &one, 0..3);
    let mut reader = Reader::open(&place.0, From::Start).unwrap();
    let first = drain(&mut reader);
    write_lines(&mut log, &one, 3..400);
    let rest = drain(&mut reader);
    let missing: u64 = rest
        .iter()
        .map(|event| if let Event::Missing { bytes } = event { *bytes } else { 0 })
        .sum();
    assert!(missing > 0);
    let read = text_of(&first).len() + text_of(&rest).len();
    assert_eq!(missing + read as u64, 4000);
    assert!(text_of(&rest).starts_with("line 0003\n"), "what was still there was not read");
}

#[test]
fn the_last_lines_are_found_across_records_and_segments() {
    let place = TestDirectory::new("lines");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), "x").unwrap();
    write_lines(&mut log, &one, 0..200);
    let all = text_of(&place.entries(From::Start));
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    for wanted in [1, 2, 10, 40, lines.len()] {
        let tail = text_of(&place.entries(From::Lines(wanted as u64)));
        assert_eq!(tail, lines[lines.len() - wanted..].concat(), "{wanted} lines");
    }
    assert_eq!(text_of(&place.entries(From::Lines(0))), "");
    assert_eq!(text_of(&place.entries(From::Lines(1_000_000))), all);
}

#[test]
fn lines_that_are_cut_into_pieces_are_still_lines() {
    let place = TestDirectory::new("pieces");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), "x").unwrap();
    let mut offset = 0;
    for piece in ["a\nb", "b\nc", "", "cc\n\nd", "d"] {
        log.output(&one, Channel::Stdout, offset, piece.as_bytes()).unwrap();
        offset += piece.len() as u64;
    }
    for (lines, expected) in
        [(1, "dd"), (2, "\ndd"), (3, "ccc\n\ndd"), (4, "bb\nccc\n\ndd"), (9, "a\nbb\nccc\n\ndd")]
    {
        assert_eq!(text_of(&place.entries(From::Lines(lines))), expected, "{lines} lines");
    }
}

#[test]
fn since_leaves_out_what_is_older() {
    let place = TestDirectory::new("since");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), "x").unwrap();
    log.output(&one, Channel::Stdout, 0, b"a").unwrap();
    let mut reader = Reader::open(&place.0, From::Start).unwrap();
    let time_ms = std::iter::from_fn(|| reader.next().unwrap()).last().unwrap().time_ms;
    assert_eq!(text_of(&place.entries(From::Since { ms: time_ms })), "a");
    assert!(place.entries(From::Since { ms: time_ms + 60_000 }).is_empty());
}

#[tokio::test]
async fn a_follower_sees_what_is_written_later_and_ends_with_the_sandbox() {
    let place = TestDirectory::new("follow");
    let mut log = place.small();
    let one = session("one");
    let mut reader = Reader::open(&place.0, From::Lines(0)).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    log.started(&one, run(1), "x").unwrap();
    let follower = tokio::spawn(async move {
        let mut events = Vec::new();
        while let Some(entry) = reader.follow().await.unwrap() {
            events.push(entry.event);
        }
        events
    });
    write_lines(&mut log, &one, 0..20);
    log.close("killed").unwrap();
    let events = follower.await.unwrap();
    assert_eq!(text_of(&events).len(), 200);
    assert_eq!(events.last(), Some(&Event::Closed { why: "killed".to_owned() }));
}

#[test]
fn a_guest_that_lies_cannot_make_a_record_larger_than_a_record() {
    let place = TestDirectory::new("liar");
    let mut log = place.small();
    let one = session("one");
    log.started(&one, run(1), &"c".repeat(1024 * 1024)).unwrap();
    let mut record = exit();
    record.cause = Cause::Killed { signal: 9, by: "b".repeat(500_000) };
    let survivor = Survivor { pid: 1, command: "s".repeat(5000) };
    record.left_behind = vec![survivor; 1000];
    log.exited(&one, &record).unwrap();
    log.output(&one, Channel::Stdout, u64::MAX - 1, b"beyond").unwrap();
    log.output(&one, Channel::Stdout, u64::MAX, b"the end").unwrap();
    assert!(place.entries(From::Start).len() >= 3);
    assert!(matches!(
        log.output(&session("unknown"), Channel::Stdout, 0, b"x"),
        Err(LogError::UnknownSession { .. })
    ));
}

#[test]
fn any_bytes_are_a_record_or_not_and_never_a_panic() {
    let mut whole = Vec::new();
    let what = RecordBody::Exited { session: session("one"), record: exit() };
    encode_record(&Record::new(5, what), &mut whole).unwrap();
    assert!(matches!(parse_record(&whole), Parsed::Record(_, length) if length == whole.len()));
    for at in 0..whole.len() {
        assert!(matches!(parse_record(&whole[..at]), Parsed::Incomplete));
        for value in [0, 1, 0x7f, 0x80, 0xc1, 0xdd, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            let same = changed == whole;
            assert_eq!(matches!(parse_record(&changed), Parsed::Record(..)), same, "byte {at}");
        }
    }
    let mut long = (LOG_RECORD_BYTES_MAX as u32 + 1).to_be_bytes().to_vec();
    long.extend([0; 4]);
    assert!(matches!(parse_record(&long), Parsed::Damaged));
}

fn read_all(place: &TestDirectory, name: &str, run: Run, from: u64) -> (Option<u64>, String) {
    let mut recording = Recording::new(place.0.clone(), session(name), run, Channel::Stdout);
    let (mut first, mut text) = (None, Vec::new());
    let mut at = from;
    while let Some((offset, bytes)) = recording.read(at, u64::MAX).unwrap() {
        first.get_or_insert(offset);
        at = offset + bytes.len() as u64;
        text.extend(bytes);
    }
    (first, String::from_utf8(text).unwrap())
}

#[test]
fn an_output_is_read_from_any_offset_over_segments_and_beside_others() {
    let place = TestDirectory::new("recording");
    let mut writer = place.small();
    writer.started(&session("a"), run(1), "a").unwrap();
    writer.started(&session("b"), run(2), "b").unwrap();
    let mut offset = 0;
    for number in 0..30 {
        let line = format!("{number:03}\n");
        writer.output(&session("b"), Channel::Stdout, offset, b"zzzz").unwrap();
        writer.output(&session("a"), Channel::Stderr, offset, b"xxxx").unwrap();
        writer.output(&session("a"), Channel::Stdout, offset, line.as_bytes()).unwrap();
        offset += 4;
    }
    let recorded = recorded_session(&place.0, &session("a")).unwrap().unwrap();
    let extent = recorded.outputs[&Channel::Stdout];
    assert_eq!(extent.end, 120);
    let all = (0..30).map(|number| format!("{number:03}\n")).collect::<Vec<_>>().concat();
    for from in 0..=120 {
        let (first, text) = read_all(&place, "a", run(1), from);
        let oldest = from.max(extent.oldest);
        assert_eq!(first, (oldest < 120).then_some(oldest), "from {from}");
        assert_eq!(text, all[oldest as usize..], "from {from}");
    }
}

#[test]
fn a_recording_goes_on_where_it_was_when_more_is_written() {
    let place = TestDirectory::new("recording-on");
    let mut writer = place.small();
    writer.started(&session("a"), run(1), "a").unwrap();
    let mut recording = Recording::new(place.0.clone(), session("a"), run(1), Channel::Stdout);
    for offset in (0..400).step_by(4) {
        assert_eq!(recording.read(offset, offset + 4).unwrap(), None);
        writer.output(&session("a"), Channel::Stdout, offset, b"abcd").unwrap();
        assert_eq!(recording.read(offset, offset + 2).unwrap(), Some((offset, b"ab".to_vec())));
        let rest = recording.read(offset + 3, offset + 4).unwrap();
        assert_eq!(rest, Some((offset + 3, b"d".to_vec())));
    }
}

#[test]
fn sessions_of_one_name_are_distinguished_by_their_runs() {
    let place = TestDirectory::new("recording-runs");
    let mut writer = place.small();
    for pid in 1..=2 {
        writer.started(&session("a"), run(pid), "a").unwrap();
        let text = format!("run {pid}");
        writer.output(&session("a"), Channel::Stdout, 0, text.as_bytes()).unwrap();
        if pid == 1 {
            writer.exited(&session("a"), &exit()).unwrap();
            writer.released(&session("a")).unwrap();
        }
    }
    assert_eq!(read_all(&place, "a", run(1), 0).1, "run 1");
    assert_eq!(read_all(&place, "a", run(2), 0).1, "run 2");
    let last = recorded_session(&place.0, &session("a")).unwrap().unwrap();
    assert_eq!((last.run, last.exit, last.is_released), (run(2), None, false));
    assert_eq!(recorded_session(&place.0, &session("b")).unwrap(), None);
    assert_eq!(recorded_sessions(&place.0, 10).unwrap(), vec![recorded_of(&place)]);
}

fn recorded_of(place: &TestDirectory) -> RecordedSession {
    recorded_session(&place.0, &session("a")).unwrap().unwrap()
}

#[test]
fn a_sessions_state_is_joined_from_its_segments() {
    let place = TestDirectory::new("recording-joined");
    let mut writer = place.small();
    writer.started(&session("a"), run(1), "the command").unwrap();
    for offset in (0..100).step_by(4) {
        writer.output(&session("a"), Channel::Stdout, offset, b"abcd").unwrap();
    }
    assert!(segment_numbers(&place.0).unwrap().len() >= 2, "over several segments");
    writer.exited(&session("a"), &exit()).unwrap();
    writer.released(&session("a")).unwrap();
    let recorded = recorded_of(&place);
    assert_eq!(recorded.command, "the command");
    assert_eq!(recorded.outputs[&Channel::Stdout], Extent { oldest: 0, end: 100 });
    assert_eq!((recorded.exit, recorded.is_released), (Some(exit()), true));
    assert_eq!(recorded_sessions(&place.0, 10).unwrap(), vec![recorded_of(&place)]);
}

#[test]
fn looking_at_what_is_not_wanted_takes_room_too() {
    let place = TestDirectory::new("room");
    let mut log = place.small();
    log.started(&session("a"), run(1), "seq").unwrap();
    for offset in 0..40 {
        log.output(&session("a"), Channel::Stdout, offset * 3, b"a\nb").unwrap();
    }
    let open = |from| Reader::open(&place.0, from).unwrap();
    let (all, _) = drain_narrowly(&mut open(From::Start));
    assert_eq!(all, place.entries(From::Start));
    for from in [From::Lines(3), From::Lines(0), From::Lines(1000), From::Since { ms: 0 }] {
        assert_eq!(drain_narrowly(&mut open(from)).0, place.entries(from), "{from:?}");
    }
    for reader in [
        open(From::Start).only(session("nobody")),
        open(From::Lines(2)).only(session("nobody")),
        open(From::Since { ms: u64::MAX }),
    ] {
        let mut reader = reader;
        let (found, steps) = drain_narrowly(&mut reader);
        assert!(!found.iter().any(|event| matches!(event, Event::Output { .. })), "{found:?}");
        assert!(steps >= all.len() - 1, "{steps} steps for {} entries", all.len());
    }
    let mut room = ReadBudget { records: usize::MAX, bytes: 4 };
    let mut reader = open(From::Start).only(session("nobody"));
    while let Step::Entry(_) = reader.step(&mut room).unwrap() {}
    assert!(room.bytes == 0 && room.records > usize::MAX - 8, "{room:?}");
}

#[test]
fn what_a_thread_of_its_own_removes_is_what_the_writer_would_remove() {
    let places = [false, true].map(|apart| {
        let place = TestDirectory::new(&format!("apart-{apart}"));
        let mut log = Writer::open_bounded(&place.0, Bounds { apart, ..SHARED }).unwrap();
        log.started(&session("quiet"), run(1), "quiet").unwrap();
        log.output(&session("quiet"), Channel::Stdout, 0, b"once").unwrap();
        log.started(&session("loud"), run(2), "loud").unwrap();
        for piece in 0..200 {
            log.output(&session("loud"), Channel::Stdout, piece * 100, &[b'x'; 100]).unwrap();
        }
        drop(log);
        place
    });
    let files = places.each_ref().map(|place| {
        let entries = fs::read_dir(&place.0).unwrap().map(Result::unwrap);
        let mut files: Vec<_> =
            entries.map(|file| (file.file_name(), file.metadata().unwrap().len())).collect();
        files.sort();
        files
    });
    assert_eq!(files[0], files[1]);
    assert_eq!(files[0].len(), SHARED.segments_max);
    assert_eq!(read_all(&places[1], "quiet", run(1), 0).1, "once");
}
