//! The stream as its readers see it, over restarts, torn files and full disks' like.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{BYTES_MAX, SEGMENT_BYTES, SEGMENTS_MAX};
use super::*;
use host::journal::Segment;
use machine::SandboxId;
use sandbox::event::{Facts, Kind, Subject};
use sandbox::{SandboxRef, State, StopReason};

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("events-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        Self(place)
    }

    fn open(&self) -> Events {
        Events::open(&self.0, Box::new(|what| panic!("{what}"))).unwrap()
    }

    fn segments(&self, namespace: &str) -> Vec<Segment> {
        Segment::all(&self.0.join(namespace), namespace_log::PREFIX).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn subject(which: &str, number: u64) -> Arc<Subject> {
    let which: SandboxRef = which.parse().unwrap();
    let id: SandboxId = format!("{number:012x}").parse().unwrap();
    Arc::new(Subject {
        which,
        id,
        image: None,
        image_digest: None,
        labels: sandbox::Labels::new(),
        key: None,
    })
}

fn emit(events: &Events, of: &Arc<Subject>, kind: Kind, facts: Facts) {
    let sink = events.recording(sandbox::event::nobody());
    let facts = Box::new(facts);
    sink(&Event::Happened { of: Arc::clone(of), kind, facts });
}

fn all(place: &Place, namespace: &str, from: From) -> Vec<Entry> {
    let mut reader = Reader::new(&place.0, &namespace.parse().unwrap(), from);
    let mut found = Vec::new();
    loop {
        let batch = reader.read(&Filter::default(), 100).unwrap();
        found.extend(batch.entries);
        if batch.is_at_end {
            return found;
        }
    }
}

fn offsets(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.offset).collect()
}

fn kinds(entries: &[Entry]) -> Vec<Kind> {
    entries.iter().map(|entry| entry.kind).collect()
}

fn record(which: &str, number: u64, state: State) -> Record {
    let value = serde_json::json!({
        "id": format!("{number:012x}"), "namespace": which.split('/').next(),
        "name": which.split('/').nth(1), "machine": "process", "hostname": "h", "scratch_bytes": 0,
        "env_names": [], "created_at_ms": 1, "egress": [],
    });
    let mut value = value;
    let state = serde_json::to_value(state).unwrap();
    value.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn offsets_go_on_over_restarts_and_each_namespace_has_its_own() {
    let place = Place::new("restarts");
    for round in 0..3 {
        let events = place.open();
        let (a, b) = (subject("a/one", round), subject("b/one", round));
        emit(&events, &a, Kind::Created, Facts::none());
        emit(&events, &a, Kind::Ready, Facts::none());
        emit(&events, &b, Kind::Created, Facts::none());
        events.close().await;
    }
    assert_eq!(offsets(&all(&place, "a", From::Oldest)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(offsets(&all(&place, "b", From::Oldest)), [0, 1, 2]);
    assert_eq!(offsets(&all(&place, "a", From::Offset(4))), [4, 5]);
    assert_eq!(namespaces(&place.0).unwrap().len(), 2);
}

#[tokio::test]
async fn a_follower_is_woken_by_its_namespace_and_leaves_with_the_bridge() {
    let place = Place::new("follow");
    let events = place.open();
    let namespace: Name = "a".parse().unwrap();
    let follower = events.clone();
    let waiting = tokio::spawn(async move {
        let first = follower.reached(&"a".parse().unwrap(), 0).await;
        (first, follower.reached(&"a".parse().unwrap(), 1).await)
    });
    emit(&events, &subject("b/one", 1), Kind::Created, Facts::none());
    emit(&events, &subject("a/one", 2), Kind::Created, Facts::none());
    assert!(events.reached(&namespace, 0).await);
    assert_eq!(events.end(&namespace), Some(1));
    assert!(!waiting.is_finished());
    events.release();
    assert_eq!(waiting.await.unwrap(), (true, false));
    events.close().await;
}

#[tokio::test]
async fn the_oldest_segments_go_and_a_reader_of_them_gets_a_gap() {
    let place = Place::new("bounds");
    let events = place.open();
    let of = subject("a/one", 1);
    let cause = "x".repeat(limits::TEXT_CHARS_MAX);
    let count = (SEGMENTS_MAX as u64 + 2) * SEGMENT_BYTES / 512;
    for at in 0..count {
        emit(&events, &of, Kind::Lost, Facts::cause(&cause));
        // The queue is bounded, and this is faster than a disk.
        if at % 1000 == 999 {
            assert!(events.reached(&"a".parse().unwrap(), at).await);
        }
    }
    events.close().await;
    assert_eq!(place.segments("a").len(), SEGMENTS_MAX);
    let kept = all(&place, "a", From::Oldest);
    let first = kept[0].offset;
    assert!(first > 0 && kept[0].kind == Kind::Lost, "{first}");
    assert_eq!(offsets(&kept), (first..count).collect::<Vec<_>>());
    let from_start = all(&place, "a", From::Offset(3));
    assert_eq!((from_start[0].kind, from_start[0].offset), (Kind::Gap, first - 1));
    assert_eq!((from_start[0].facts.from, from_start[0].facts.to), (Some(3), Some(first)));
    assert_eq!(from_start.len(), kept.len() + 1);
    let bytes: u64 =
        place.segments("a").iter().map(|one| fs::metadata(&one.path).unwrap().len()).sum();
    assert!(bytes < BYTES_MAX && bytes <= SEGMENTS_MAX as u64 * (SEGMENT_BYTES + 1024), "{bytes}");
}

#[tokio::test]
async fn a_torn_line_is_cut_off_and_a_damaged_one_is_a_gap() {
    let place = Place::new("torn");
    let events = place.open();
    for number in 0..3 {
        emit(&events, &subject("a/one", number), Kind::Created, Facts::none());
    }
    events.close().await;
    let path = place.segments("a")[0].path.clone();
    let text = fs::read_to_string(&path).unwrap().replace(r#""offset":1,"#, r#""offset"~1,"#);
    fs::write(&path, text).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(br#"{"offset":3,"at"#).unwrap();
    let events = place.open();
    emit(&events, &subject("a/one", 4), Kind::Created, Facts::none());
    events.close().await;
    let found = all(&place, "a", From::Oldest);
    assert_eq!(offsets(&found), [0, 1, 2, 3]);
    assert_eq!(kinds(&found), [Kind::Created, Kind::Gap, Kind::Created, Kind::Created]);
}

#[tokio::test]
async fn what_a_killed_bridge_has_not_written_is_found_by_the_next() {
    let place = Place::new("settle");
    let events = place.open();
    for number in 1..=3 {
        emit(&events, &subject("a/box", number), Kind::Created, Facts::none());
        emit(&events, &subject("a/box", number), Kind::Ready, Facts::none());
    }
    events.close().await;
    let before = all(&place, "a", From::Oldest).len() as u64;
    // The first is unchanged, the second has ended, the third is gone, and two are new.
    let stopped = State::Stopped { why: StopReason::Requested, at_ms: 7 };
    let present = vec![
        record("a/box", 1, State::Running),
        record("a/box2", 2, stopped),
        record("a/new", 4, State::Running),
        record(
            "b/new",
            5,
            State::Paused { since_ms: 7, by_idle: false, by_lease: false, on_disk: false },
        ),
    ];
    let events = place.open();
    events.settle(present.clone());
    events.close().await;
    let found = all(&place, "a", From::Offset(before));
    let expected = [Kind::Removed, Kind::Exited, Kind::Created, Kind::Ready];
    assert_eq!(kinds(&found), expected, "{found:?}");
    assert!(found.iter().all(|entry| entry.late));
    assert_eq!(kinds(&all(&place, "b", From::Oldest)), [Kind::Created, Kind::Paused]);
    // And only once.
    let events = place.open();
    events.settle(present);
    events.close().await;
    assert_eq!(all(&place, "a", From::Offset(before)), found);
}

#[tokio::test]
async fn the_sandboxes_that_a_log_knows_survive_its_segments() {
    let place = Place::new("roster");
    let events = place.open();
    emit(&events, &subject("a/old", 1), Kind::Created, Facts::none());
    let noisy = subject("a/noisy", 2);
    for at in 1..3 * SEGMENT_BYTES / 512 {
        emit(&events, &noisy, Kind::Lost, Facts::cause("y".repeat(400)));
        if at % 500 == 0 {
            assert!(events.reached(&"a".parse().unwrap(), at).await);
        }
    }
    events.close().await;
    assert!(place.segments("a").len() > 2);
    let events = place.open();
    events.settle(Vec::new());
    events.close().await;
    let found = all(&place, "a", From::Oldest);
    let removed: Vec<_> = found.iter().filter(|one| one.kind == Kind::Removed).collect();
    assert_eq!(removed.len(), 2, "{removed:?}");
}

#[tokio::test]
async fn events_without_room_are_counted_in_the_stream() {
    let place = Place::new("lost");
    let events = place.open();
    let of = subject("a/one", 1);
    // More at once than the queue has room for.
    let count = 3 * limits::QUEUE_MAX as u64;
    for _ in 0..count {
        emit(&events, &of, Kind::Ready, Facts::none());
    }
    let told = |entries: &[Entry]| -> u64 {
        entries.iter().map(|entry| entry.facts.count.unwrap_or(1)).sum()
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while told(&all(&place, "a", From::Oldest)) < count {
        assert!(std::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    events.close().await;
    let found = all(&place, "a", From::Oldest);
    assert_eq!(told(&found), count);
    assert!(found.iter().any(|entry| entry.kind == Kind::EventsLost));
    assert!(offsets(&found).windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[tokio::test]
async fn a_filter_names_sandboxes_by_name_or_id_and_kinds() {
    let place = Place::new("filter");
    let events = place.open();
    for (name, number) in [("a/one", 1), ("a/two", 2), ("a/one", 3)] {
        emit(&events, &subject(name, number), Kind::Created, Facts::none());
        emit(&events, &subject(name, number), Kind::Ready, Facts::none());
    }
    events.close().await;
    let read = |sandboxes: &[&str], kinds: &[Kind]| {
        let sandboxes = sandboxes.iter().map(ToString::to_string).collect();
        let filter = Filter { sandboxes, kinds: kinds.to_vec() };
        let mut reader = Reader::new(&place.0, &"a".parse().unwrap(), From::Oldest);
        offsets(&reader.read(&filter, 100).unwrap().entries)
    };
    assert_eq!(read(&["one"], &[]), [0, 1, 4, 5]);
    assert_eq!(read(&["000000000002"], &[]), [2, 3]);
    assert_eq!(read(&["one", "two"], &[Kind::Ready]), [1, 3, 5]);
    assert!(read(&[], &[Kind::Removed]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lives_of_a_thousand_sandboxes_are_in_order() {
    const THREADS: u64 = 8;
    const EACH: u64 = 125;
    const LIFE: [Kind; 4] = [Kind::Created, Kind::Ready, Kind::Exited, Kind::Removed];
    let place = Place::new("thousand");
    let events = place.open();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let events = events.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let of = subject("a/box", thread * EACH + number);
                    for kind in LIFE {
                        emit(&events, &of, kind, Facts::none());
                    }
                }
            });
        }
    });
    events.close().await;
    let found = all(&place, "a", From::Oldest);
    assert_eq!(offsets(&found), (0..THREADS * EACH * LIFE.len() as u64).collect::<Vec<_>>());
    let mut lives: HashMap<SandboxId, Vec<Kind>> = HashMap::new();
    for entry in found {
        lives.entry(entry.id.unwrap()).or_default().push(entry.kind);
    }
    assert_eq!(lives.len() as u64, THREADS * EACH);
    assert!(lives.values().all(|life| life == &LIFE));
}
