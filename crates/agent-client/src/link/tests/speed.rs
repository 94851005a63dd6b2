//! The cost of a round trip and a flow against the test agent on its own thread, compared with a bare socket
//! pair. Ignored by default: figures of a debug build or a busy machine mean nothing.
//!
//! `cargo test --release -p agent-client speed -- --ignored --nocapture --test-threads 1`

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::agent::Agent;
use super::{quick, start};
use crate::guest::{FileTarget, Guest, Piece};
use crate::program::collect;

const ROUNDS: u32 = 20_000;
const FLOW_BYTES: u64 = 2 << 30;

/// A guest whose agent runs on another thread.
async fn guest() -> Guest {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (agent, theirs) = Agent::pair();
            agent.world().keeps = false;
            sender.send(theirs).unwrap();
            std::future::pending::<()>().await;
            drop(agent);
        });
    });
    Guest::over(receiver.recv().unwrap(), None, quick()).await.unwrap()
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{what}: median {median:?}, 99 % {p99:?}");
}

fn rate(what: &str, bytes: u64, began: Instant) {
    println!("{what}: {:.0} MB/s", bytes as f64 / began.elapsed().as_secs_f64() / 1e6);
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_bare_socket_pair() {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while theirs.read(&mut bytes).unwrap() > 0 {
            theirs.write_all(&bytes).unwrap();
        }
    });
    let mut bytes = [0; 64];
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        ours.write_all(&bytes).unwrap();
        ours.read_exact(&mut bytes).unwrap();
        began.elapsed()
    });
    report("bare round trip", times.collect());
    drop(ours);
    echo.join().unwrap();

    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let source = std::thread::spawn(move || {
        let bytes = vec![7; 64 * 1024];
        (0..FLOW_BYTES / bytes.len() as u64).for_each(|_| theirs.write_all(&bytes).unwrap());
    });
    let began = Instant::now();
    let mut bytes = vec![0; 128 * 1024];
    while ours.read(&mut bytes).unwrap() > 0 {}
    rate("bare flow", FLOW_BYTES, began);
    source.join().unwrap();
}

#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_requests() {
    let guest = guest().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        guest.stat("/f", false).await.unwrap();
        times.push(began.elapsed());
    }
    report("request round trip", times);
    let mut times = Vec::new();
    for number in 0..ROUNDS / 4 {
        let run = start(&format!("s{number}"), "stdout 6 stderr 0 exit 0");
        let began = Instant::now();
        collect(&guest, &run, b"", |_| (), |_| ()).await.unwrap();
        times.push(began.elapsed());
    }
    report("start, output and exit", times);
}

#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_flows() {
    let guest = guest().await;
    let (mut output, _, _) = guest.read_file("/zeros", 0, Some(FLOW_BYTES)).await.unwrap();
    let began = Instant::now();
    let mut read = 0;
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => read += bytes.len() as u64,
            Piece::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, FLOW_BYTES);
    rate("flow from the guest", FLOW_BYTES, began);

    let mut upload = guest.write_file(FileTarget::replace("/f")).unwrap();
    let piece = vec![7; 64 * 1024];
    let began = Instant::now();
    for _ in 0..FLOW_BYTES / piece.len() as u64 {
        upload.write(&piece).await.unwrap();
    }
    assert_eq!(upload.finish().await.unwrap().bytes, FLOW_BYTES);
    rate("flow to the guest", FLOW_BYTES, began);
}
