use std::fs;
use std::path::PathBuf;

use protocol::exit::{Cause, Usage};
use protocol::requests::TerminalSize;

use image::digest::Digest;

use super::super::carry::Bounds;
use super::super::record::checksum;
use super::super::tests::SMALL;
use super::super::{Event, Only, Playback, Step, Writer};
use super::*;
use crate::log::segment::segment_path;

const TEXT: &[u8] = b"all that the program has written";

/// A log that goes with the test.
struct Log(PathBuf);

impl Log {
    /// With one session that has written [`TEXT`] in two pieces and has ended.
    fn written(name: &str) -> Self {
        let (log, mut writer) = Self::begun(name);
        writer.output(&session(), Channel::Stdout, 0, &TEXT[..10]).unwrap();
        writer.output(&session(), Channel::Stdout, 10, &TEXT[10..]).unwrap();
        writer.exited(&session(), &end(TEXT)).unwrap();
        log
    }

    fn begun(name: &str) -> (Self, Writer) {
        let place = format!("burrow-verify-{}-{name}", std::process::id());
        let log = Self(std::env::temp_dir().join(place));
        let _ = fs::remove_dir_all(&log.0);
        let mut writer = Writer::open(&log.0).unwrap();
        writer.started(&session(), RUN, "cat").unwrap();
        (log, writer)
    }

    fn compared(&self) -> OutputComparison {
        let compared = verify(&self.0, None).unwrap();
        assert_eq!(compared.len(), 1);
        compared[0].outputs[0].clone()
    }

    fn segment(&self) -> PathBuf {
        segment_path(&self.0, 1)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RUN: Run = Run { pid: 7, started_at_ms: 1000 };

fn session() -> SessionId {
    "one".parse().unwrap()
}

fn end(written: &[u8]) -> ExitRecord {
    let sha256 = Digest::of(written).hex();
    let total = OutputTotal {
        channel: Channel::Stdout,
        written: written.len() as u64,
        dropped: 0,
        digested: Some(written.len() as u64),
        sha256: Some(sha256),
    };
    ExitRecord {
        cause: Cause::Exited { code: 0 },
        started_at_ms: 1000,
        ended_at_ms: 2000,
        duration_us: 1_000_000,
        usage: Usage::default(),
        outputs: vec![total],
        left_behind: Vec::new(),
        left_behind_count: 0,
    }
}

/// Where the second piece is in the file.
fn place_of(bytes: &[u8], piece: &[u8]) -> usize {
    bytes.windows(piece.len()).position(|window| window == piece).unwrap()
}

#[test]
fn what_was_kept_whole_is_equal() {
    let compared = Log::written("equal").compared();
    assert_eq!((compared.finding, compared.kept_bytes), (Finding::Equal, TEXT.len() as u64));
    assert_eq!(compared.kept_sha256, compared.sha256);
}

#[test]
fn one_flipped_bit_of_a_segment_is_found_wherever_it_is() {
    let log = Log::written("flipped");
    let whole = fs::read(log.segment()).unwrap();
    let at = place_of(&whole, &TEXT[10..]);
    for bit in 0..(TEXT.len() - 10) * 8 {
        let mut bytes = whole.clone();
        bytes[at + bit / 8] ^= 1 << (bit % 8);
        fs::write(log.segment(), &bytes).unwrap();
        let compared = log.compared();
        assert_eq!(compared.finding, Finding::Damaged, "bit {bit}");
        let missing = Missing { from: 10, to: TEXT.len() as u64, because: MissingBecause::Damaged };
        assert_eq!(compared.missing, [missing]);
    }
}

#[test]
fn a_change_whose_checksum_was_made_again_differs() {
    let log = Log::written("forged");
    let mut bytes = fs::read(log.segment()).unwrap();
    let at = place_of(&bytes, &TEXT[10..]);
    bytes[at] ^= 1;
    // Length and checksum are before the body: find the record whose body has the place.
    let mut start = 0;
    loop {
        let length = u32::from_be_bytes(bytes[start..start + 4].try_into().unwrap()) as usize;
        let body = start + 8..start + 8 + length;
        if body.contains(&at) {
            let sum = checksum(&bytes[body]).to_be_bytes();
            bytes[start + 4..start + 8].copy_from_slice(&sum);
            break;
        }
        start = body.end;
    }
    fs::write(log.segment(), &bytes).unwrap();
    let compared = log.compared();
    assert_eq!(compared.finding, Finding::Differs);
    assert_ne!(compared.kept_sha256, compared.sha256);
}

#[test]
fn what_never_came_is_partial_and_without_an_end_nothing_is_known() {
    let (log, mut writer) = Log::begun("partial");
    writer.output(&session(), Channel::Stdout, 0, &TEXT[..10]).unwrap();
    assert_eq!(log.compared().finding, Finding::Unknown);
    writer.skip_to(&session(), Channel::Stdout, 20).unwrap();
    writer.output(&session(), Channel::Stdout, 20, &TEXT[20..]).unwrap();
    writer.exited(&session(), &end(TEXT)).unwrap();
    let compared = log.compared();
    assert_eq!((compared.finding, compared.kept_bytes), (Finding::Partial, TEXT.len() as u64 - 10));
    let missing = Missing { from: 10, to: 20, because: MissingBecause::NotRecorded };
    assert_eq!(compared.missing, [missing]);
}

#[test]
fn what_was_rotated_away_is_partial() {
    let (log, writer) = Log::begun("rotated");
    drop(writer);
    let bounds = Bounds { segments_max: 2, ..SMALL };
    let mut writer = Writer::open_bounded(&log.0, bounds).unwrap();
    let all = vec![b'x'; 20_000];
    for (at, piece) in all.chunks(500).enumerate() {
        writer.output(&session(), Channel::Stdout, at as u64 * 500, piece).unwrap();
    }
    writer.exited(&session(), &end(&all)).unwrap();
    let compared = log.compared();
    assert_eq!(compared.finding, Finding::Partial);
    assert!(compared.kept_bytes > 0);
    let kept_from = 20_000 - compared.kept_bytes;
    let missing = Missing { from: 0, to: kept_from, because: MissingBecause::Rotated };
    assert_eq!(compared.missing, [missing]);
}

#[test]
fn a_playback_has_each_byte_once_with_its_sizes_and_gaps() {
    let (log, mut writer) = Log::begun("playback");
    let size = |rows, columns| TerminalSize { rows, columns };
    writer.resized(&session(), size(24, 80)).unwrap();
    writer.resized(&session(), size(24, 80)).unwrap();
    writer.output(&session(), Channel::Terminal, 0, b"abc").unwrap();
    writer.resized(&session(), size(50, 120)).unwrap();
    writer.skip_to(&session(), Channel::Terminal, 5).unwrap();
    writer.output(&session(), Channel::Terminal, 5, b"def").unwrap();
    // Another run under the same name is not this one.
    writer.released(&session()).unwrap();
    writer.started(&session(), Run { pid: 8, started_at_ms: 3000 }, "cat").unwrap();
    writer.output(&session(), Channel::Terminal, 0, b"other").unwrap();
    let mut first = None;
    let played = |only: Only| {
        let mut playback = Playback::open(&log.0, only).unwrap();
        let mut parts = Vec::new();
        while let Step::Entry(entry) = playback.step(&mut ReadBudget::ENDLESS.clone()).unwrap() {
            parts.push(match entry.event {
                Event::Output { bytes, .. } => String::from_utf8(bytes).unwrap(),
                Event::Resized { rows, columns, .. } => format!("[{columns}x{rows}]"),
                Event::Gap { from, to, .. } => format!("[{from}-{to}]"),
                _ => continue,
            });
        }
        parts.concat()
    };
    let room = &mut ReadBudget::ENDLESS.clone();
    for recorded in AllSessions::new(&log.0, 10).unwrap().step(room).unwrap().unwrap() {
        first = Some(RecordedSession { run: RUN, ..recorded });
    }
    let first = Only::of(&first.unwrap());
    assert_eq!(played(first), "[80x24]abc[120x50][3-5]def");
    assert_eq!(played(Only::Named(session())), "[80x24]abc[120x50][3-5]defother");
    assert_eq!(played(Only::All), "[80x24]abc[120x50][3-5]defother");
}
