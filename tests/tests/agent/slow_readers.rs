//! Slow readers, loud programs, many sessions at once: nobody delays others, nothing grows, and
//! nothing is lost without being reported.

use std::time::Duration;

use agent_client::guest::{Output, Piece};
use nix::unistd::Pid;
use protocol::message::Channel;
use protocol::requests::{Origin, Role, SpoolPolicy, SpoolSpec, Start, Stdio};
use protocol::{Cause, ExitRecord, FaultCode, SessionId};
use tests::sandbox::{Sandbox, start};
use tests::{PATIENCE, children, resident_bytes, resident_bytes_peak};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Nothing here may take forever.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

fn observer() -> Role {
    Role::Observer {}
}

fn holder() -> Role {
    Role::Holder { name: "slow".to_owned() }
}

/// A program that writes `megabytes` of a pattern in which every eight bytes name their place.
fn flood(session: &str, megabytes: u64) -> Start {
    let script = format!(
        "import os, struct\n\
         for at in range({megabytes} * 16):\n\
         \x20   block = memoryview(struct.pack('<8192Q', *range(at * 8192, (at + 1) * 8192)))\n\
         \x20   while block: block = block[os.write(1, block):]"
    );
    start(session, &["python3", "-c", &script])
}

const MEGABYTE: u64 = 1024 * 1024;

/// Whether `bytes` are those of the flood at `offset`.
fn is_flood(offset: u64, bytes: &[u8]) -> bool {
    // The first number begins within the first eight bytes; the rest is compared in words.
    let head = (8 - (offset % 8) as usize) % 8;
    let whole = |at: u64| (at / 8).to_le_bytes()[(at % 8) as usize];
    let (first, rest) = bytes.split_at(head.min(bytes.len()));
    let begin = offset + first.len() as u64;
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    let tail_at = offset + (bytes.len() - tail.len()) as u64;
    first.iter().zip(offset..).all(|(byte, at)| *byte == whole(at))
        && words.zip(begin / 8..).all(|(word, number)| word == number.to_le_bytes())
        && tail.iter().zip(tail_at..).all(|(byte, at)| *byte == whole(at))
}

/// What a reader has received of a flood.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    missing: u64,
    gaps: u64,
}

/// Reads until `to` or the end, and checks every byte and that pieces and gaps lie end to end.
async fn read_on(output: &mut Output, from: u64, to: u64) -> Seen {
    let mut seen = Seen::default();
    let mut at = from;
    while at < to {
        match soon("more output", output.next()).await {
            Piece::Bytes { offset, bytes } => {
                assert_eq!(offset, at, "neither twice nor left out");
                assert!(is_flood(offset, &bytes), "the bytes at {offset} differ");
                at += bytes.len() as u64;
                seen.bytes += bytes.len() as u64;
            }
            Piece::Gap { from, to } => {
                assert!(from == at && to > from, "a gap {from} to {to} at {at}");
                at = to;
                seen.missing += to - from;
                seen.gaps += 1;
            }
            Piece::End => break,
            Piece::Failed(error) => panic!("at {at}: {error}"),
        }
    }
    seen
}

async fn wait(sandbox: &Sandbox, session: &SessionId) -> ExitRecord {
    soon("the end of the program", sandbox.guest.wait(session)).await.expect("a record")
}

async fn subscribe(sandbox: &Sandbox, session: &SessionId, role: Role) -> Output {
    let from = Origin::Offset { offset: 0 };
    let opened = sandbox.guest.subscribe(session, Channel::Stdout, from, role).await;
    opened.expect("an output").0
}

/// The host's pid of the agent, which is the one child of the one supervisor of this process.
///
/// Tests run in processes of their own, as nextest does it; with threads of one process there
/// could be several, and then nothing is measured.
fn agent_pid() -> Option<Pid> {
    let own = Pid::this();
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let mut supervisors: Vec<Pid> = tasks
        .filter_map(|task| {
            let listed = std::fs::read_to_string(task.path().join("children")).ok()?;
            Some(listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        })
        .flatten()
        .map(Pid::from_raw)
        .collect();
    supervisors.retain(|pid| *pid != own);
    match supervisors.as_slice() {
        [supervisor] => children(*supervisor).first().copied(),
        _ => None,
    }
}

#[test]
fn a_viewer_that_stops_reading_delays_neither_the_process_nor_another_viewer() {
    runtime().block_on(async {
        const TOTAL: u64 = 24 * MEGABYTE;
        let sandbox = Sandbox::start().await;
        // It begins when both look, and ends when we have seen it end.
        let mut flood = flood("loud", TOTAL / MEGABYTE);
        flood.stdio = Stdio::Pipes { stdin: true };
        let script = "read go; exec \"$@\"";
        if let protocol::requests::Program::Argv { argv } = &mut flood.program {
            let words = ["sh", "-c", script, "sh"].map(Into::into);
            argv.splice(0..0, words);
        }
        sandbox.guest.start(&flood).await.expect("started");
        let mut asleep = subscribe(&sandbox, &flood.session, observer()).await;
        let mut awake = subscribe(&sandbox, &flood.session, holder()).await;
        let (mut keys, _) = sandbox.guest.input(&flood.session, None, false).await.expect("stdin");
        keys.write(b"go\n").await.expect("written");
        keys.finish().await.expect("its end");

        let seen = read_on(&mut awake, 0, TOTAL).await;
        assert_eq!(seen, Seen { bytes: TOTAL, missing: 0, gaps: 0 }, "the other viewer");
        let record = wait(&sandbox, &flood.session).await;
        assert_eq!(record.cause, Cause::Exited { code: 0 });

        // Only now the first one reads, and learns what it has missed.
        let seen = read_on(&mut asleep, 0, TOTAL).await;
        assert_eq!(seen.bytes + seen.missing, TOTAL, "{seen:?}");
        assert!(seen.gaps >= 1 && seen.bytes > 0, "{seen:?}");
        assert!(matches!(soon("its end", asleep.next()).await, Piece::End));
        sandbox.end().await;
    });
}

#[test]
fn a_spool_that_drops_its_oldest_holds_nobody_up_and_counts_what_it_dropped() {
    runtime().block_on(async {
        const TOTAL: u64 = 24 * MEGABYTE;
        let sandbox = Sandbox::start().await;
        let mut flood = flood("loud", TOTAL / MEGABYTE);
        flood.spool = SpoolSpec { bytes: None, policy: SpoolPolicy::DropOldest };
        flood.holders = vec!["slow".to_owned()];
        sandbox.guest.start(&flood).await.expect("started");
        // Its holder reads nothing until it has ended.
        let mut output = subscribe(&sandbox, &flood.session, holder()).await;
        let record = wait(&sandbox, &flood.session).await;
        assert_eq!(record.cause, Cause::Exited { code: 0 });
        let total = record.outputs.iter().find(|total| total.channel == Channel::Stdout);
        let total = total.expect("its output is counted");
        assert_eq!(total.written, TOTAL);
        assert!(total.dropped > 0);
        let seen = read_on(&mut output, 0, TOTAL).await;
        assert_eq!(seen.bytes + seen.missing, TOTAL, "{seen:?}");
        // What was on its way when it was dropped still arrives.
        assert!(seen.missing > 0 && seen.missing <= total.dropped, "{seen:?}, {total:?}");
        assert!(matches!(soon("its end", output.next()).await, Piece::End));
        sandbox.end().await;
    });
}

#[test]
fn a_holder_that_reads_slowly_slows_the_program_and_loses_nothing() {
    runtime().block_on(async {
        const TOTAL: u64 = 8 * MEGABYTE;
        let sandbox = Sandbox::start().await;
        let mut flood = flood("loud", TOTAL / MEGABYTE);
        flood.holders = vec!["slow".to_owned()];
        sandbox.guest.start(&flood).await.expect("started");
        let mut output = subscribe(&sandbox, &flood.session, holder()).await;
        // It cannot end while most of its output has nowhere to go.
        let early = timeout(Duration::from_millis(700), sandbox.guest.wait(&flood.session)).await;
        assert!(early.is_err(), "it did not wait for its reader: {early:?}");
        let half = read_on(&mut output, 0, TOTAL / 2).await;
        let still = timeout(Duration::from_millis(200), sandbox.guest.wait(&flood.session)).await;
        assert!(still.is_err(), "it did not wait for its reader: {still:?}");
        let rest = read_on(&mut output, half.bytes, TOTAL).await;
        assert_eq!((half.bytes + rest.bytes, half.gaps + rest.gaps), (TOTAL, 0));
        assert_eq!(wait(&sandbox, &flood.session).await.cause, Cause::Exited { code: 0 });
        sandbox.end().await;
    });
}

/// `megabytes` through a holder that is slower than its program.
async fn memory_stays(megabytes: u64) {
    const GROWTH_MAX: u64 = 16 * MEGABYTE;
    let total = megabytes * MEGABYTE;
    let mut sandbox = Sandbox::start().await;
    // What a first program costs is not what a flood costs.
    sandbox.run(&["python3", "-c", "print('warm' * 1000000)"]).await;
    let own = Pid::this();
    let Some(agent) = agent_pid() else {
        return tests::skip("several sandboxes in one process: run it with cargo nextest");
    };
    let agent_before = resident_bytes(agent).expect("the agent runs");
    let own_before = resident_bytes(own).expect("we run");

    let mut flood = flood("loud", megabytes);
    flood.holders = vec!["slow".to_owned()];
    sandbox.guest.start(&flood).await.expect("started");
    let mut output = subscribe(&sandbox, &flood.session, holder()).await;
    let (mut at, mut own_most) = (0, own_before);
    while at < total {
        let seen = read_on(&mut output, at, (at + 4 * MEGABYTE).min(total)).await;
        assert_eq!(seen.gaps, 0);
        at += seen.bytes;
        // A reader slower than the program, which is stopped for most of the time.
        tokio::time::sleep(Duration::from_millis(5)).await;
        own_most = own_most.max(resident_bytes(own).expect("we run"));
    }
    assert_eq!(wait(&sandbox, &flood.session).await.cause, Cause::Exited { code: 0 });
    let agent_most = resident_bytes_peak(agent).expect("the agent runs");
    let growth = [agent_most.saturating_sub(agent_before), own_most - own_before];
    assert!(growth.iter().all(|bytes| *bytes <= GROWTH_MAX), "agent and bridge: {growth:?}");
    sandbox.end().await;
}

#[test]
fn much_output_through_a_slow_holder_costs_little_memory() {
    runtime().block_on(memory_stays(128));
}

#[test]
#[ignore = "a gigabyte; `just soak`"]
fn soak_a_gigabyte_through_a_slow_holder_costs_little_memory() {
    runtime().block_on(memory_stays(1024));
}

#[test]
fn a_program_that_does_not_read_its_input_stalls_nobody_else() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let mut deaf = start("deaf", &["sleep", "1000"]);
        deaf.stdio = Stdio::Pipes { stdin: true };
        sandbox.guest.start(&deaf).await.expect("started");
        let (mut keys, _) = sandbox.guest.input(&deaf.session, None, false).await.expect("stdin");
        let stuck = tokio::spawn(async move {
            let block = vec![b'x'; 64 * 1024];
            while keys.write(&block).await.is_ok() {}
        });
        for _ in 0..20 {
            let ran = soon("another program", sandbox.run(&["echo", "hello"])).await;
            assert_eq!(ran.stdout, b"hello\n");
        }
        let mut program = start("heard", &["sha1sum"]);
        program.stdio = Stdio::Pipes { stdin: true };
        let input = vec![b'y'; 3_000_000];
        let ran = soon("a program that reads", sandbox.run_start(&program, &input)).await;
        assert_eq!(ran.stdout.len(), "40 digits".len() + 35, "{:?}", ran.stdout);
        assert!(!stuck.is_finished(), "the deaf one has taken endless input");
        stuck.abort();
        sandbox.end().await;
    });
}

#[test]
fn a_hundred_and_fifty_sessions_at_once_are_all_whole() {
    runtime().block_on(async {
        const SESSIONS: usize = 150;
        const LAST: u32 = 20_000;
        let sandbox = Sandbox::start().await;
        let wanted: Vec<String> = (1..=LAST).map(|number| number.to_string()).collect();
        let wanted: std::sync::Arc<str> = (wanted.join("\n") + "\n").into();
        let mut all = tokio::task::JoinSet::new();
        for number in 0..SESSIONS {
            let (guest, wanted) = (sandbox.guest.clone(), std::sync::Arc::clone(&wanted));
            all.spawn(async move {
                let script = format!("seq 1 {LAST}; echo {number} >&2; exit {number}");
                let start = start(&format!("s{number}"), &["sh", "-c", &script]);
                let (mut out, mut err) = (Vec::new(), Vec::new());
                let finished = agent_client::program::collect(
                    &guest,
                    &start,
                    &[],
                    |bytes| out.extend_from_slice(bytes),
                    |bytes| err.extend_from_slice(bytes),
                );
                let finished = finished.await.expect("it runs");
                assert_eq!(finished.record.cause, Cause::Exited { code: number as i32 });
                assert!(out == wanted.as_bytes(), "{number}: {} bytes", out.len());
                assert_eq!(err, format!("{number}\n").into_bytes());
            });
        }
        let all = async {
            while let Some(done) = all.join_next().await {
                done.expect("a session is whole");
            }
        };
        timeout(2 * PATIENCE, all).await.expect("in time");
        sandbox.end().await;
    });
}

#[test]
fn one_session_too_many_is_refused_in_clear_words() {
    runtime().block_on(async {
        const SESSIONS: usize = protocol::limits::SESSIONS_MAX;
        let sandbox = Sandbox::start().await;
        let starts: Vec<_> = (0..SESSIONS)
            .map(|number| start(&format!("s{number}"), &["sleep", "1000"]))
            .map(|start| sandbox.guest.start_now(&start).expect("queued"))
            .collect();
        for started in starts {
            soon("a start", started).await.expect("there is room");
        }
        let error = sandbox.guest.start(&start("more", &["true"])).await.expect_err("it is full");
        assert_eq!(error.fault_code(), Some(FaultCode::Limit), "{error}");
        assert!(error.to_string().contains(&SESSIONS.to_string()), "{error}");
        // The others do not mind, and one that goes makes room.
        let session: SessionId = "s7".parse().expect("an id");
        let kill = protocol::requests::Signal {
            session: session.clone(),
            signal: 9,
            target: protocol::requests::Target::Tree,
        };
        sandbox.guest.signal(kill).await.expect("killed");
        wait(&sandbox, &session).await;
        let release = protocol::requests::Release { session, holder: None, kill_survivors: false };
        sandbox.guest.release(release).await.expect("released");
        sandbox.guest.start(&start("more", &["true"])).await.expect("there is room again");
        sandbox.end().await;
    });
}
