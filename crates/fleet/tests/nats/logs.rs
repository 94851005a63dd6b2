//! Logs of output on a real server: one writer, whatever is killed, and an end that stays where it is.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fleet::event::Outcome;
use fleet::ids::{Incarnation, Name, NodeId, Revision};
use fleet::log::{AppendError, Writer, seal};
use fleet::nats::{Keeping, Link};
use fleet::track::{Draft, Form, LogId, Part, Reading, Track};

use crate::server::Server;

const KEEPING: Keeping =
    Keeping { age_max: Duration::from_secs(3_600), bytes_max: 64 * 1024 * 1024, waits: false };

fn node(id: &str) -> NodeId {
    NodeId::parse(id).expect("a name")
}

fn log(incarnation: u128) -> LogId {
    let name = Name::parse("team", "box").expect("a name");
    LogId { name, incarnation: Incarnation(incarnation) }
}

fn track() -> Track {
    Track::Output { session: "a.1".into(), run: "1-2".into(), channel: "stdout".into() }
}

async fn link(server: &Server, keeping: Keeping) -> Link {
    let link = Link::connect(&server.place(), "n1").await.expect("a link");
    link.open_logs(&server.place(), keeping).await.expect("streams");
    link
}

fn writer(link: &Link, log: &LogId, track: Track, id: &str) -> Writer {
    Writer::new(link.clone(), log.clone(), track, node(id), || true)
}

async fn bytes_of(link: &Link, log: &LogId) -> Vec<u8> {
    let mut records =
        link.read_log(log, &Part::All, Reading::After(Revision(0))).await.expect("records");
    let mut bytes = Vec::new();
    while let Some(record) = records.next().await.expect("a record") {
        if record.track != Track::Lines && record.draft.form == Form::Data {
            assert_eq!(record.draft.offset, bytes.len() as u64, "there is a hole");
            bytes.extend_from_slice(&record.draft.payload);
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_fence_has_moved_cannot_append() {
    let Some(server) = Server::start() else { return };
    let link = link(&server, KEEPING).await;
    let log = log(7);
    let mut lines = writer(&link, &log, Track::Lines, "old");
    let mut old = writer(&link, &log, track(), "old");
    lines.note(Bytes::from_static(b"begun")).await.expect("a line");
    old.append(0, 3, Bytes::from_static(b"abc")).await.expect("bytes");
    // What comes again is left out, and what never came is a gap.
    old.append(1, 4, Bytes::from_static(b"bcd")).await.expect("bytes");
    assert!(seal(&link, &log, &node("new")).await.expect("a seal"));
    let fenced = |error: &AppendError| matches!(error, AppendError::Fenced(by) if by.is_sealed && by.node == node("new"));
    let late = old.append(4, 5, Bytes::from_static(b"e")).await.unwrap_err();
    assert!(fenced(&late), "{late}");
    let late = lines.note(Bytes::from_static(b"more")).await.unwrap_err();
    assert!(fenced(&late), "{late}");
    // Nor can it after it was started again.
    let late = writer(&link, &log, track(), "old")
        .append(4, 5, Bytes::from_static(b"e"))
        .await
        .unwrap_err();
    assert!(fenced(&late), "{late}");
    assert_eq!(bytes_of(&link, &log).await, b"abcd");
    // A seal is set once, and a log that never was has none.
    assert!(seal(&link, &log, &node("third")).await.expect("a seal"));
    let last = link.last(&log, &track()).await.expect("a read").expect("a record");
    assert_eq!((last.draft.node, last.draft.end), (node("new"), 4));
    assert!(!seal(&link, &log2(), &node("new")).await.expect("a look"));
}

fn log2() -> LogId {
    log(8)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_never_write_to_one_track() {
    let Some(server) = Server::start() else { return };
    let link = link(&server, KEEPING).await;
    let log = log(1);
    let write = |id: &'static str| {
        let (link, log) = (link.clone(), log.clone());
        tokio::spawn(async move {
            let mut writer = writer(&link, &log, track(), id);
            let mut done = 0;
            while done < 200 {
                let byte = Bytes::copy_from_slice(&id.as_bytes()[..1]);
                if let Err(error) = writer.append(done, done + 1, byte).await {
                    assert!(matches!(&error, AppendError::Fenced(by) if !by.is_sealed), "{error}");
                    break;
                }
                done += 1;
            }
            done
        })
    };
    let (one, two) = (write("one"), write("two"));
    let (one, two) = (one.await.expect("it ends"), two.await.expect("it ends"));
    assert!((one == 200 && two == 0) || (one == 0 && two == 200), "{one} and {two}");
    let bytes = bytes_of(&link, &log).await;
    assert!(bytes.len() == 200 && bytes.iter().all(|byte| *byte == bytes[0]), "they are mixed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_answer_was_lost_is_there_once() {
    let Some(mut server) = Server::start() else { return };
    let link = link(&server, KEEPING).await;
    let log = log(2);
    let (writing, written) = (link.clone(), log.clone());
    let appending = tokio::spawn(async move {
        let mut lines = writer(&writing, &written, Track::Lines, "n1");
        let mut bytes = writer(&writing, &written, track(), "n1");
        for number in 0_u64..400 {
            let text = format!("{number:07}\n");
            bytes.append(number * 8, number * 8 + 8, text.into()).await.expect("bytes");
            lines.note(format!("{number}").into()).await.expect("a line");
        }
    });
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        server.kill();
        tokio::time::sleep(Duration::from_millis(60)).await;
        server.start_again();
    }
    appending.await.expect("all of it");
    let mut expected = String::new();
    for number in 0..400 {
        writeln!(expected, "{number:07}").expect("a string takes all");
    }
    assert_eq!(bytes_of(&link, &log).await, expected.as_bytes());
    let mut lines =
        link.read_log(&log, &Part::Lines, Reading::After(Revision(0))).await.expect("records");
    let mut count = 0_u64;
    while let Some(line) = lines.next().await.expect("a record") {
        assert_eq!(line.draft.payload, format!("{count}").as_bytes());
        count += 1;
    }
    assert_eq!(count, 400);
}

/// Fills the stream of a log until it takes no more.
async fn fill(link: &Link, log: &LogId) {
    let mut last = Revision(0);
    for at in 0_u64.. {
        let payload = Bytes::from(vec![b'x'; 64 * 1024]);
        let draft = Draft { form: Form::Data, offset: at, end: at + 1, payload, node: node("n1") };
        match link.append(log, &track(), last, &draft).await {
            Outcome::Stored(revision) => last = revision,
            Outcome::Unavailable => return,
            Outcome::Conflict => panic!("nobody else writes"),
        }
        assert!(at < 1_000, "it is never full");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_waits_until_another_is_removed() {
    let Some(server) = Server::start() else { return };
    let keeping = Keeping { bytes_max: 4 * 1024 * 1024, waits: true, ..KEEPING };
    let link = link(&server, keeping).await;
    // Of one shard.
    let (large, small) = (log(4), log(8));
    assert_eq!(large.shard(), small.shard());
    fill(&link, &large).await;
    let is_done = Arc::new(AtomicBool::new(false));
    let waiting = tokio::spawn({
        let (link, small, is_done) = (link.clone(), small.clone(), Arc::clone(&is_done));
        async move {
            let mut writer = writer(&link, &small, track(), "n1");
            writer.append(0, 65_536, vec![b'y'; 65_536].into()).await.expect("bytes");
            is_done.store(true, Ordering::Relaxed);
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!is_done.load(Ordering::Relaxed), "it is not full");
    link.remove_log(&large).await.expect("a purge");
    waiting.await.expect("it goes on");
    assert_eq!(bytes_of(&link, &small).await.len(), 65_536);
    assert_eq!(link.last(&large, &track()).await.expect("a read"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_that_does_not_wait_drops_the_oldest() {
    let Some(server) = Server::start() else { return };
    let keeping = Keeping { bytes_max: 4 * 1024 * 1024, ..KEEPING };
    let link = link(&server, keeping).await;
    let log = log(5);
    let mut writer = writer(&link, &log, track(), "n1");
    for at in 0_u64..64 {
        let bytes = vec![b'x'; 65_536];
        writer.append(at * 65_536, (at + 1) * 65_536, bytes.into()).await.expect("bytes");
    }
    let mut records =
        link.read_log(&log, &Part::All, Reading::After(Revision(0))).await.expect("records");
    let first = records.next().await.expect("a record").expect("one");
    assert!(first.draft.offset > 0, "nothing was dropped");
    assert_eq!(writer.end().await.expect("an end"), 64 * 65_536);
}
