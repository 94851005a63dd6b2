//! PROTOCOL.md against the code: a page that people trust must not be able to lie.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use protocol::frame::Kind;
use protocol::hello::VERSION_MAX;
use protocol::limits;
use serde_json::Value as Json;

/// A row of a table: its cells, without code marks.
type Row = Vec<String>;

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the one table whose first column is headed so.
fn table(heading: &str) -> Vec<Row> {
    let document = read("../PROTOCOL.md");
    let cells = |line: &str| -> Row {
        let inner = line.trim_matches('|');
        inner.split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    let mut lines = document.lines();
    let found = lines.find(|line| line.starts_with(&format!("| {heading} |")));
    assert!(found.is_some(), "PROTOCOL.md has a table of {heading}");
    lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The frozen parts of `schema`, which its own test compares with the code.
fn frozen(group: &str) -> serde_json::Map<String, Json> {
    let schema: Json =
        serde_json::from_str(&read(&format!("schema/v{VERSION_MAX}.json"))).expect("JSON");
    schema["messages"][group].as_object().expect("a group of messages").clone()
}

/// The names of a message's fields, as the document writes them.
fn fields(name: &str, message: &Json) -> BTreeSet<String> {
    let fields = message.get(format!("={name}")).and_then(Json::as_object);
    fields.into_iter().flat_map(serde_json::Map::keys).cloned().collect()
}

#[test]
fn the_kinds_are_those_of_the_frame() {
    let expected: Vec<_> =
        Kind::ALL.iter().map(|kind| (kind.name().to_owned(), (*kind as u8).to_string())).collect();
    let written: Vec<_> =
        table("number").into_iter().map(|row| (row[1].clone(), row[0].clone())).collect();
    assert_eq!(written, expected);
}

#[test]
fn messages_have_the_fields_that_are_written() {
    let tables = [
        ("request", "requests"),
        ("reply", "replies"),
        ("cause", "causes"),
        ("event", "happenings"),
        ("end", "run_ends"),
    ];
    for (heading, group) in tables {
        let frozen = frozen(group);
        let rows = table(heading);
        let mut written: Vec<&String> = rows.iter().map(|row| &row[0]).collect();
        written.sort();
        // Sorted as well.
        let expected: Vec<&String> = frozen.keys().collect();
        assert_eq!(written, expected, "names in the table of {heading}");
        for row in rows {
            let written: BTreeSet<String> = row[1].split_whitespace().map(str::to_owned).collect();
            assert_eq!(
                written,
                fields(&row[0], &frozen[&row[0]]),
                "fields of {heading} {}",
                row[0]
            );
        }
    }
}

#[test]
fn every_request_is_answered_by_a_reply_that_exists() {
    let replies = frozen("replies");
    for row in table("request") {
        let reply = row[2].split(',').next().expect("a reply");
        assert!(replies.contains_key(reply), "{} is answered by {reply:?}", row[0]);
    }
}

#[test]
fn faults_and_goodbyes_are_those_of_the_code() {
    for (heading, group) in [("fault", "fault_codes"), ("goodbye", "goodbye_reasons")] {
        let frozen = frozen(group);
        let mut written: Vec<String> =
            table(heading).into_iter().map(|row| row[0].clone()).collect();
        written.sort();
        assert!(written.iter().eq(frozen.keys()), "{heading}: {written:?}");
    }
}

/// A limit as the document writes it.
trait Written {
    fn written(self, name: &str) -> String;
}

impl Written for u64 {
    fn written(self, name: &str) -> String {
        let is_size = name.contains("BYTES") && self >= 16 * 1024;
        match self {
            bytes if is_size && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
            bytes if is_size && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
            count => count.to_string(),
        }
    }
}

impl Written for usize {
    fn written(self, name: &str) -> String {
        (self as u64).written(name)
    }
}

impl Written for Duration {
    fn written(self, _: &str) -> String {
        format!("{} s", self.as_secs())
    }
}

macro_rules! limits {
    ($($name:ident)+) => {
        vec![$((stringify!($name).to_owned(), limits::$name.written(stringify!($name)))),+]
    };
}

#[test]
fn the_limits_have_the_values_that_are_written() {
    let expected: Vec<(String, String)> = limits![
        FRAME_BYTES_MAX CHUNK_BYTES_MAX CREDIT_BYTES_INITIAL SPOOL_BYTES_DEFAULT SPOOL_BYTES_MIN
        SPOOL_BYTES_MAX SPOOLS_BYTES_MAX SPOOLS_MEMORY_SHARE REQUESTS_PENDING_MAX STREAMS_MAX
        CONTROL_BYTES_MAX BODY_DEPTH_MAX SESSIONS_MAX EXIT_RECORD_KEPT EXIT_RECORDS_MAX
        SURVIVORS_LISTED_MAX COMMAND_BYTES_MAX HOLDERS_MAX ARGUMENTS_BYTES_MAX ARGUMENTS_MAX PATH_BYTES_MAX NAME_BYTES_MAX
        TEXT_BYTES_MAX ENTRIES_PAGE_MAX CONTEXTS_MAX RUNS_QUEUED_MAX CODE_BYTES_MAX
        CODE_QUEUED_BYTES_MAX CODE_INLINE_BYTES_MAX EVENT_BYTES_MAX INTERRUPT_GRACE METRICS_PAGE_MAX
        METRICS_KEPT FREEZE_WATCHDOG_MIN FREEZE_WATCHDOG_MAX ENTROPY_BYTES_MIN ENTROPY_BYTES_MAX HEARTBEAT LINK_SILENCE_MAX HEARTBEAT_LOCAL LINK_SILENCE_LOCAL_MAX HELLO_DEADLINE RESUME_WINDOW STOP_GRACE_GUEST STOP_MARGIN_HOST
    ];
    let source = read("src/limits.rs");
    let defined = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    let defined: Vec<&str> = defined.filter_map(|rest| rest.split(':').next()).collect();
    let listed: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(listed, defined, "this test knows every limit");
    let written: Vec<_> =
        table("name").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    assert_eq!(written, expected);
}
