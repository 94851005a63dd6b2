use std::fs;
use std::path::PathBuf;

use protocol::SessionId;
use protocol::exit::{Cause, ExitRecord, Usage};
use protocol::message::Channel;

use super::*;
use access::audit;
use host::instant::{format, now_ms};
use sandbox::Name;
use sandbox::log::{Event, InputLog, Run, Writer};

const ID: &str = "0123456789ab";

/// Files of a bridge, which go with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = format!("burrow-timeline-{}-{name}", std::process::id());
        let place = Self(std::env::temp_dir().join(place));
        let _ = fs::remove_dir_all(&place.0);
        for part in ["events/default", "audit"] {
            fs::create_dir_all(place.0.join(part)).unwrap();
        }
        place
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    fn writer(&self) -> Writer {
        let mut writer = Writer::open(&self.log()).unwrap();
        let run = Run { pid: 7, started_at_ms: now_ms() };
        writer.started(&session(), run, "cat").unwrap();
        writer
    }

    /// Events by their times, kinds and facts.
    fn write_events(&self, events: &[(u64, &str, &str)]) {
        let line = |(offset, (at_ms, kind, facts)): (usize, &(u64, &str, &str))| {
            format!(
                "{{\"offset\":{},\"at_ms\":{at_ms},\"kind\":\"{kind}\",\"sandbox\":\"box\",\"id\":\"{ID}\"{facts}}}\n",
                offset + 1
            )
        };
        let lines: String = events.iter().enumerate().map(line).collect();
        let text = format!("{{\"present\":[]}}\n{lines}");
        fs::write(self.0.join("events/default/events-000000000001.jsonl"), text).unwrap();
    }

    /// Connections by their times and hosts; those to `refused.test` are refused.
    fn write_decisions(&self, decisions: &[(u64, &str)]) {
        let line = |(at, (at_ms, host)): (usize, &(u64, &str))| {
            let mut entry = audit::Entry::of_bridge("egress.connection").fact("host", *host);
            entry.id = Some(ID.to_owned());
            if *host == "refused.test" {
                entry.outcome = audit::Outcome::Refused;
            }
            let record =
                audit::Record { seq: at as u64 + 1, time: format(*at_ms), entry, prev: None };
            serde_json::to_string(&record).unwrap() + "\n"
        };
        let lines: String = decisions.iter().enumerate().map(line).collect();
        fs::write(self.0.join("audit/audit-000000000001.jsonl"), lines).unwrap();
    }

    fn open(&self, selection: Selection) -> Timeline {
        let namespace = Name::default_namespace();
        let reader = Reader::new(&self.0.join("events"), &namespace, From::Oldest);
        let playback = Playback::open(&self.log(), selection.sessions.clone()).unwrap();
        let typed = InputReader::open(&self.log()).unwrap();
        let sources = vec![
            Source::Input(InputSource::new(typed, &selection.sessions)),
            Source::Log(playback),
            Source::Events(EventSource::new(reader, ID)),
            decisions(&self.0.join("audit"), ID, 0).unwrap(),
        ];
        Timeline::merge(selection, sources)
    }

    /// All entries, in steps of this many records.
    fn all(&self, selection: Selection, records: usize) -> Vec<(Moment, super::Place)> {
        drain(&mut self.open(selection), records)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn drain(timeline: &mut Timeline, records: usize) -> Vec<(Moment, super::Place)> {
    let mut all = Vec::new();
    loop {
        match timeline.step(&mut ReadBudget { records, bytes: usize::MAX }).unwrap() {
            Step::Moment(moment) => all.push((*moment, timeline.place())),
            Step::Paused => {}
            Step::AtEnd => return all,
        }
    }
}

fn session() -> SessionId {
    "one".parse().unwrap()
}

fn end(code: i32) -> ExitRecord {
    ExitRecord {
        cause: Cause::Exited { code },
        started_at_ms: 1000,
        ended_at_ms: 2000,
        duration_us: 1_000_000,
        usage: Usage::default(),
        outputs: Vec::new(),
        left_behind: Vec::new(),
        left_behind_count: 0,
    }
}

/// What happens before, during and after a session that fails.
fn eventful(name: &str) -> Place {
    let place = Place::new(name);
    let before = now_ms() - 10_000;
    let mut writer = place.writer();
    writer.output(&session(), Channel::Stdout, 0, b"hello\n").unwrap();
    writer.exited(&session(), &end(3)).unwrap();
    let after = now_ms() + 10_000;
    place.write_events(&[
        (before, "created", ""),
        (before + 2, "command_begun", ",\"session\":\"one\""),
        (after + 1, "run_ended", ",\"context\":\"py\",\"run\":2,\"reason\":\"error\""),
        (after + 3, "out_of_memory", ",\"session\":\"other\",\"limit_bytes\":1000"),
        (after + 5, "exited", ",\"reason\":\"asked\""),
    ]);
    place.write_decisions(&[
        (before + 1, "example.org"),
        (after + 2, "refused.test"),
        (after + 4, "example.org"),
    ]);
    place
}

#[test]
fn entries_of_all_kinds_are_in_the_order_of_time() {
    let place = eventful("order");
    let expected = [
        ("lifecycle", false),
        ("egress", false),
        ("started", false),
        ("output", false),
        ("exited", true),
        ("run", true),
        ("egress", true),
        ("lifecycle", true),
        ("egress", false),
        ("lifecycle", false),
    ];
    for records in [1, 7, usize::MAX] {
        let all = place.all(Selection::default(), records);
        let found: Vec<_> =
            all.iter().map(|(one, _)| (one.kind().name(), one.is_failure())).collect();
        assert_eq!(found, expected);
        assert!(all.is_sorted_by_key(|(one, _)| one.at_ms));
    }
}

#[test]
fn a_selection_is_by_kind_session_time_and_place() {
    let place = eventful("selection");
    let all = place.all(Selection::default(), usize::MAX);
    let egress = Selection { kinds: vec![Kind::Egress], ..Selection::default() };
    assert_eq!(place.all(egress, usize::MAX).len(), 3);
    let one = Selection { sessions: Only::Named(session()), ..Selection::default() };
    assert_eq!(place.all(one, usize::MAX).len(), all.len() - 1, "one is of another session");
    let other = Only::Named("other".parse().unwrap());
    let other = Selection { sessions: other, ..Selection::default() };
    assert_eq!(place.all(other, usize::MAX).len(), all.len() - 3);
    let (from_ms, to_ms) = (all[1].0.at_ms, all[6].0.at_ms);
    let window = Selection { from_ms, to_ms, ..Selection::default() };
    assert_eq!(place.all(window, usize::MAX).len(), 6);
    for (at, (_, after)) in all.iter().enumerate() {
        let rest = Selection { after: Some(*after), ..Selection::default() };
        let rest = place.all(rest, usize::MAX);
        assert_eq!(rest, all[at + 1..], "after {after}");
        assert_eq!(after.to_string().parse(), Ok(*after));
    }
    for wrong in ["", "1", "1-", "-1", "1-2-3", "+1-2", "a-b", "99999999999999999999-1"] {
        assert!(wrong.parse::<super::Place>().is_err(), "{wrong}");
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_turn_the_order_around() {
    let place = Place::new("clock");
    drop(place.writer());
    let now = now_ms();
    place.write_events(&[(now + 9_000, "paused", ""), (5, "resumed", ""), (now, "exited", "")]);
    let all = place.all(Selection::default(), usize::MAX);
    assert!(all.is_sorted_by_key(|(one, _)| one.at_ms));
    let kinds: Vec<_> = all.iter().map(|(one, _)| one.kind().name()).collect();
    assert_eq!(kinds, ["started", "lifecycle", "lifecycle", "lifecycle"]);
}

#[test]
fn damage_is_an_entry_and_the_rest_is_played() {
    let place = Place::new("damage");
    let mut writer = place.writer();
    for at in 0..100 {
        writer.output(&session(), Channel::Stdout, at * 10, b"123456789\n").unwrap();
    }
    drop(writer);
    let segment = fs::read_dir(place.log()).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&segment, bytes).unwrap();
    let all = place.all(Selection::default(), usize::MAX);
    let count = |kind| all.iter().filter(|(one, _)| one.kind() == kind).count();
    assert_eq!((count(Kind::Output), count(Kind::Gap), count(Kind::Damaged)), (99, 1, 1));
    let damaged = all.iter().find(|(one, _)| one.kind() == Kind::Damaged).unwrap();
    assert!(damaged.0.is_failure());
}

#[test]
fn a_source_that_cannot_be_read_is_an_entry_and_hides_nothing_else() {
    let place = eventful("unreadable");
    let events = place.0.join("events/default/events-000000000001.jsonl");
    fs::remove_file(&events).unwrap();
    fs::create_dir(&events).unwrap();
    let all = place.all(Selection::default(), usize::MAX);
    let unknown: Vec<_> = all.iter().filter(|(one, _)| one.kind() == Kind::Unknown).collect();
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].0.summary().starts_with("entries of the kind lifecycle are not known"));
    assert_eq!(all.len(), 7);
}

#[test]
fn summaries_command_no_terminal() {
    let attack = "\x1b]0;title\x07\x1b[2J<script>alert(1)</script>\r\n\u{9b}31m";
    let started =
        Event::Started { session: session(), command: attack.repeat(100), started_at_ms: 0 };
    let what = [What::Log(started), What::Unknown { of: Kind::File, why: attack.to_owned() }];
    for what in what {
        let summary = Moment { at_ms: 0, what }.summary();
        assert!(!summary.contains(char::is_control), "{summary:?}");
        assert!(summary.chars().count() <= 300, "{summary:?}");
    }
}

#[test]
fn a_hundred_thousand_entries_cost_no_memory() {
    let place = Place::new("many");
    let mut writer = place.writer();
    let line = [b'x'; 60];
    for at in 0..100_000 {
        writer.output(&session(), Channel::Stdout, at * 60, &line).unwrap();
    }
    writer.exited(&session(), &end(0)).unwrap();
    drop(writer);
    let now = now_ms();
    let decisions: Vec<_> = (0..20_000).map(|at| (now - 20_000 + at, "example.org")).collect();
    place.write_decisions(&decisions);
    place.write_events(&vec![(now, "paused", ""); 2_000]);
    let mut timeline = place.open(Selection::default());
    let (mut count, mut begin) = (0, 0);
    loop {
        match timeline.step(&mut ReadBudget { records: 4096, bytes: 1 << 20 }).unwrap() {
            Step::Moment(_) => count += 1,
            Step::Paused => {}
            Step::AtEnd => break,
        }
        if count == 1_000 && begin == 0 {
            begin = resident_bytes();
        }
    }
    assert_eq!(count, 100_000 + 2 + 20_000 + 2_000);
    let grown = resident_bytes().saturating_sub(begin);
    assert!(grown < 4 << 20, "{grown} bytes more");
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn what_was_typed_is_before_its_echo_and_says_where_the_output_was() {
    let place = Place::new("typed");
    place.write_events(&[]);
    place.write_decisions(&[]);
    let mut writer = place.writer();
    let input = InputLog::new(&place.log());
    let other: SessionId = "other".parse().unwrap();
    let channel = Channel::Terminal;
    let next_millisecond = || std::thread::sleep(std::time::Duration::from_millis(2));
    input.append(&session(), now_ms(), b"l").unwrap();
    writer.output(&session(), channel, 0, b"l").unwrap();
    next_millisecond();
    input.append(&other, now_ms(), b"x").unwrap();
    input.append(&session(), now_ms(), b"s").unwrap();
    writer.output(&session(), channel, 1, b"s").unwrap();
    writer.exited(&session(), &end(0)).unwrap();
    writer.released(&session()).unwrap();
    // A second one of the same name.
    let run = Run { pid: 8, started_at_ms: now_ms() + 1 };
    next_millisecond();
    writer.started(&session(), run, "cat").unwrap();
    input.append(&session(), now_ms(), b"z").unwrap();
    let typed = |sessions: Only| {
        let selection = Selection { sessions, kinds: vec![Kind::Input], ..Selection::default() };
        let all = place.all(selection, 1);
        let typed = all.into_iter().filter_map(|(moment, _)| match moment.what {
            What::Input { typed, output_offset } => {
                Some((String::from_utf8(typed.bytes).unwrap(), output_offset))
            }
            _ => None,
        });
        typed.collect::<Vec<_>>()
    };
    let text = |all: &[(&str, u64)]| -> Vec<_> {
        all.iter().map(|(text, at)| ((*text).to_owned(), *at)).collect()
    };
    assert_eq!(typed(Only::All), text(&[("l", 0), ("x", 0), ("s", 1), ("z", 0)]));
    assert_eq!(typed(Only::Named(session())), text(&[("l", 0), ("s", 1), ("z", 0)]));
    let first = place.all(Selection::default(), 100);
    let Some((Moment { what: What::Log(Event::Started { started_at_ms, .. }), .. }, _)) =
        first.iter().find(|(moment, _)| moment.kind() == Kind::Started)
    else {
        panic!("it has begun")
    };
    let run = Run { pid: 7, started_at_ms: *started_at_ms };
    assert_eq!(typed(Only::Run(session(), run)), text(&[("l", 0), ("s", 1)]));
    let mut said = first.iter().map(|(moment, _)| moment.summary());
    let said = said.find(|line| line.contains("typed"));
    assert_eq!(said.as_deref(), Some("typed into session one: \"l\""));
}
