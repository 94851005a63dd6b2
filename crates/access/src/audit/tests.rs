use std::fs;
use std::path::Path;
use std::time::Instant;

use super::limits::QUEUE_MAX;
use super::*;

const OPTIONS: Options = Options {
    reads: false,
    arguments: false,
    chain: true,
    on_failure: OnFailure::Continue,
    file_bytes_max: 4096,
    files_max: 3,
    age_max: None,
};

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("burrow-audit-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    place
}

fn open(place: &Path, options: Options) -> Audit {
    Audit::open(place.to_owned(), options, Box::new(drop)).unwrap()
}

fn entry(number: u64) -> Entry {
    let entry = Entry::new(Who::Local, Door::Rest, "create_sandbox").fact("number", number);
    Entry { namespace: Some("team".to_owned()), sandbox: Some(format!("s{number}")), ..entry }
}

fn all(place: &Path) -> Vec<Record> {
    read(place, &Filter::default(), usize::MAX, false).unwrap()
}

fn newest_file(place: &Path) -> PathBuf {
    segment::segments(place).unwrap().pop().unwrap().path
}

/// Writes so many records, and ends.
async fn filled(place: &Path, options: Options, count: u64) {
    let audit = open(place, options);
    for number in 0..count {
        audit.record(entry(number));
    }
    audit.close().await;
}

#[tokio::test]
async fn numbers_have_no_gaps_over_files_and_bridges() {
    let place = place("numbers");
    for _ in 0..3 {
        filled(&place, OPTIONS, 30).await;
    }
    let records = all(&place);
    let numbers: Vec<_> = records.iter().map(|record| record.seq).collect();
    let expected: Vec<_> = (numbers[0]..numbers[0] + numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
    // The first that is kept says what is gone.
    assert!(numbers[0] > 1, "the oldest files have given way");
    assert_eq!(records[0].entry.operation, "audit.began");
    assert_eq!(records[0].entry.facts["records_before"], numbers[0] - 1);
    assert!(segment::segments(&place).unwrap().len() <= OPTIONS.files_max);
    let verified = verify(&place).unwrap();
    assert_eq!((verified.fault, verified.records), (None, numbers.len() as u64));
    assert_eq!(verified.chained, verified.records, "what was before the first is gone");
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn several_processes_write_one_log_in_turns_over_files() {
    let place = place("turns");
    let host = open(&place, Options { files_max: 1000, ..OPTIONS });
    // What they would have by themselves is not what the bridge that serves has set.
    let own = Options { chain: false, file_bytes_max: 1 << 20, files_max: 2, ..OPTIONS };
    let guests = [0, 1].map(|_| Audit::visit(place.clone(), own, Box::new(drop)).unwrap());
    std::thread::scope(|scope| {
        for (at, audit) in [&host, &guests[0], &guests[1]].into_iter().enumerate() {
            scope.spawn(move || {
                for number in 0..200 {
                    audit.record(entry(at as u64 * 1000 + number));
                    std::thread::yield_now();
                }
            });
        }
    });
    for audit in [&guests[0], &host, &guests[1]] {
        audit.close().await;
    }
    let verified = verify(&place).unwrap();
    assert_eq!(verified.fault, None);
    let records = all(&place);
    assert!(records.iter().all(|record| record.entry.operation != "audit.chain"));
    let written = records.iter().filter_map(|record| record.entry.facts.get("number")?.as_u64());
    let mut written: Vec<_> = written.collect();
    written.sort_unstable();
    let expected: Vec<_> = (0..3).flat_map(|at| at * 1000..at * 1000 + 200).collect();
    assert_eq!(written, expected, "each once, whoever wrote it");
    assert!(segment::segments(&place).unwrap().len() > 3, "files were begun meanwhile");
    fs::remove_dir_all(place).unwrap();
}

/// Waits until so many records that [`entry`] makes are there.
async fn numbered(place: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while all(place).iter().filter(|r| r.entry.facts.contains_key("number")).count() < count {
        assert!(Instant::now() < deadline, "{count} records are not written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn those_who_were_there_before_the_bridge_that_serves_keep_the_log_as_it_says_now() {
    let place = place("before");
    let own = Options { chain: false, file_bytes_max: 1 << 20, files_max: 2, ..OPTIONS };
    let guest = Audit::visit(place.clone(), own, Box::new(drop)).unwrap();
    guest.record(entry(0));
    numbered(&place, 1).await;
    assert!((guest.reads(), guest.arguments()) == (false, false), "nobody wants them yet");

    let options = Options { reads: true, arguments: true, files_max: 1000, ..OPTIONS };
    let host = open(&place, options);
    // Before it has had a turn again: what it is to record depends on it.
    assert!(guest.reads() && guest.arguments());
    for number in 1..100 {
        guest.record(entry(number));
    }
    numbered(&place, 100).await;
    let records = all(&place);
    let heads = records.iter().filter(|record| record.entry.operation == "audit.began");
    assert!(heads.count() > 5, "files are begun at the size that the host says");
    assert!(records[2..].iter().all(|record| record.prev.is_some()), "and all of it is chained");
    host.close().await;
    let turns = WriteLock::open(&place).unwrap();
    assert_eq!(turns.options(), Some(options), "what stands there is the host's");

    // The next one wants it otherwise, and the same guest goes by that.
    let host = open(&place, Options { chain: false, ..options });
    guest.record(entry(100));
    guest.close().await;
    let last = all(&place).pop().unwrap();
    assert_eq!((last.entry.facts["number"].as_u64(), last.prev), (Some(100), None));
    assert_eq!(turns.options(), Some(Options { chain: false, ..options }));
    host.close().await;
    let verified = verify(&place).unwrap();
    assert_eq!((verified.fault, verified.records), (None, all(&place).len() as u64));
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn the_next_writer_begins_the_chain_that_a_killed_bridge_had_asked_for() {
    let place = place("unsaid");
    let guest = Audit::visit(place.clone(), Options { chain: false, ..OPTIONS }, Box::new(drop));
    let guest = guest.unwrap();
    // It had its turn, left how it wants the log, and was killed.
    let turns = WriteLock::open(&place).unwrap();
    let turn = turns.take().unwrap();
    turn.leave(&write_lock::LogState { next_seq: 0, options: Some(OPTIONS) }).unwrap();
    drop(turn);
    guest.record(entry(1));
    guest.close().await;
    let operations: Vec<_> =
        all(&place).into_iter().map(|r| (r.entry.operation, r.prev.is_some())).collect();
    let expected = [("audit.began", false), ("audit.chain", true), ("create_sandbox", true)];
    assert_eq!(operations, expected.map(|(word, chained)| (word.to_owned(), chained)));
    assert_eq!(verify(&place).unwrap().fault, None);
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn one_that_died_within_its_turn_is_gone_on_from() {
    let place = place("died");
    let host = open(&place, Options { files_max: 1000, ..OPTIONS });
    host.record(entry(1));
    // Behind the line that begins the file: else the other might have its turn first.
    let deadline = Instant::now() + Duration::from_secs(10);
    while all(&place).len() < 2 {
        assert!(Instant::now() < deadline, "its first record is not written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It has written a line and half of another, and not the next number.
    let other = Audit::visit(place.clone(), OPTIONS, Box::new(drop)).unwrap();
    other.record(entry(2));
    other.close().await;
    let path = newest_file(&place);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"seq\":");
    fs::write(&path, bytes).unwrap();
    fs::write(place.join("lock"), "{\"next_seq\":0}").unwrap();
    host.record(entry(3));
    host.close().await;
    assert_eq!(verify(&place).unwrap().fault, None);
    let operations: Vec<_> =
        all(&place).into_iter().map(|record| record.entry.operation).skip(1).collect();
    let made = "create_sandbox";
    assert_eq!(operations, [made, made, "audit.repaired", made]);
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn a_torn_end_is_cut_off_wherever_it_was_torn() {
    let place = place("torn");
    filled(&place, Options { file_bytes_max: 1 << 20, ..OPTIONS }, 3).await;
    let path = newest_file(&place);
    let whole = fs::read(&path).unwrap();
    let ends: Vec<_> = (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        filled(&place, Options { file_bytes_max: 1 << 20, ..OPTIONS }, 1).await;
        let verified = verify(&place).unwrap();
        assert_eq!(verified.fault, None, "{length} bytes were left");
        let records_left = ends.iter().filter(|end| **end <= length).count() as u64;
        let torn = !ends.contains(&length) && length > 0;
        // The head of a new file counts for what was torn completely.
        assert_eq!(verified.records, records_left.max(1) + u64::from(torn) + 1, "{length} bytes");
        let is_repaired =
            all(&place).iter().any(|record| record.entry.operation == "audit.repaired");
        assert_eq!(is_repaired, torn, "{length} bytes");
    }
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn what_was_changed_or_taken_away_is_found() {
    let place = place("forged");
    filled(&place, OPTIONS, 30).await;
    let path = segment::segments(&place).unwrap()[1].path.clone();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let put = |lines: &[&str]| fs::write(&path, lines.join("\n") + "\n").unwrap();
    let fault = || verify(&place).unwrap().fault;
    let changed = lines[2].replace("team", "evil");
    assert_ne!(changed, lines[2]);
    let mut forged = lines.clone();
    forged[2] = &changed;
    put(&forged);
    assert!(matches!(fault(), Some(Fault::Chain { line: 4, .. })), "{:?}", fault());
    forged.remove(2);
    put(&forged);
    assert!(matches!(fault(), Some(Fault::Number { line: 3, .. })), "{:?}", fault());
    let at = lines[2].find(",\"prev\"").unwrap();
    let unchained = format!("{}}}", &lines[2][..at]);
    forged.insert(2, &unchained);
    put(&forged);
    assert!(matches!(fault(), Some(Fault::Unchained { line: 3, .. })), "{:?}", fault());
    forged[2] = "no record";
    put(&forged);
    assert!(matches!(fault(), Some(Fault::NotARecord { line: 3, .. })), "{:?}", fault());
    put(&lines);
    assert_eq!(fault(), None);
    // Going on without a chain is recorded, and is no fault.
    filled(&place, Options { chain: false, files_max: 100, ..OPTIONS }, 3).await;
    filled(&place, Options { files_max: 100, ..OPTIONS }, 3).await;
    assert_eq!(fault(), None);
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn queries_find_what_they_ask_for() {
    let place = place("queries");
    let audit = open(&place, Options { files_max: 100, ..OPTIONS });
    for number in 0..50 {
        let mut entry = entry(number);
        if number % 10 == 0 {
            entry.outcome = Outcome::Refused;
            entry.who = Who::Key { id: "0123456789ab".to_owned(), name: Some("ci".to_owned()) };
        }
        entry.at_ms = 1_700_000_000_000 + number * 1000;
        audit.record(entry);
    }
    audit.close().await;
    let find = |filter: Filter, limit, newest| {
        let found = read(&place, &filter, limit, newest).unwrap();
        found.iter().filter_map(|record| record.entry.facts["number"].as_u64()).collect::<Vec<_>>()
    };
    let refused = Filter { outcome: Some(Outcome::Refused), ..Filter::default() };
    assert_eq!(find(refused.clone(), 100, false), [0, 10, 20, 30, 40]);
    assert_eq!(find(refused.clone(), 2, false), [0, 10]);
    assert_eq!(find(refused, 2, true), [30, 40]);
    for who in ["ci", "0123456789ab", "key"] {
        let filter = Filter { who: Some(who.to_owned()), ..Filter::default() };
        assert_eq!(find(filter, 100, false).len(), 5, "{who}");
    }
    let times = Filter {
        since_ms: Some(1_700_000_010_000),
        until_ms: Some(1_700_000_013_000),
        ..Filter::default()
    };
    assert_eq!(find(times, 100, false), [10, 11, 12]);
    let one = Filter { sandbox: Some("s7".to_owned()), ..Filter::default() };
    assert_eq!(find(one, 100, false), [7]);
    let none = Filter { namespace: Some("other".to_owned()), ..Filter::default() };
    assert_eq!(find(none, 100, false), [0_u64; 0]);
    // Page by page it is the whole.
    let (mut filter, mut pages) = (Filter::default(), Vec::new());
    loop {
        let page = read(&place, &filter, 7, false).unwrap();
        let Some(last) = page.last() else { break };
        filter.after = Some(last.seq);
        pages.extend(page);
    }
    assert_eq!(pages, all(&place));
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_opened_as_soon_as_it_can() {
    for (on_failure, refuses) in [(OnFailure::Refuse, true), (OnFailure::Continue, false)] {
        let place = place(&format!("no-directory-{on_failure:?}"));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, "no directory").unwrap();
        let audit = open(&place, Options { on_failure, ..OPTIONS });
        assert_eq!(audit.admit().is_err(), refuses);
        audit.record(entry(1));
        fs::remove_file(&place).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while audit.admit().is_err() || fs::read_dir(&place).is_err() {
            assert!(Instant::now() < until, "it stays closed");
            tokio::task::yield_now().await;
        }
        audit.close().await;
        assert!(all(&place).iter().any(|record| record.entry.operation == "create_sandbox"));
        fs::remove_dir_all(place).unwrap();
    }
}

#[tokio::test]
async fn what_finds_no_place_is_counted_in_a_record() {
    let place = place("lost");
    let audit = open(&place, Options { file_bytes_max: 1 << 30, ..OPTIONS });
    let requested = 20 * QUEUE_MAX as u64;
    for number in 0..requested {
        audit.record(entry(number));
    }
    audit.close().await;
    let records = all(&place);
    let lost: u64 = records
        .iter()
        .filter(|record| record.entry.operation == "audit.lost")
        .filter_map(|record| record.entry.facts["records"].as_u64())
        .sum();
    let written =
        records.iter().filter(|record| record.entry.operation == "create_sandbox").count();
    assert!(lost > 0, "the queue took them all");
    assert_eq!(written as u64 + lost, requested);
    assert_eq!(verify(&place).unwrap().fault, None);
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn while_it_cannot_be_written_operations_are_refused_or_not_as_set() {
    for (on_failure, refuses) in [(OnFailure::Refuse, true), (OnFailure::Continue, false)] {
        let place = place(&format!("{on_failure:?}"));
        let audit = open(&place, Options { on_failure, files_max: 100, ..OPTIONS });
        audit.admit().unwrap();
        // Its next file has no place.
        let aside = place.with_extension("aside");
        let _ = fs::remove_dir_all(&aside);
        fs::rename(&place, &aside).unwrap();
        for number in 0..40 {
            audit.record(entry(number));
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let is_failing = || {
            let state = &audit.0.as_ref().unwrap().state;
            state.is_failing.load(Ordering::Relaxed)
        };
        while !is_failing() {
            assert!(Instant::now() < deadline, "the missing directory is not noticed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(audit.admit().is_err(), refuses);
        fs::rename(&aside, &place).unwrap();
        while is_failing() {
            assert!(Instant::now() < deadline, "it is not written again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        audit.admit().unwrap();
        audit.close().await;
        // Nothing was lost meanwhile.
        let written = all(&place).iter().filter(|r| r.entry.operation == "create_sandbox").count();
        assert_eq!((written, verify(&place).unwrap().fault), (40, None));
        fs::remove_dir_all(place).unwrap();
    }
}
