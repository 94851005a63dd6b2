//! Many calls at once: sixteen clients, and a hundred and fifty runs over one pool.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tests::http::Client;

use super::super::{Floor, Report, median, timed};
use super::{RPC, command, result, serving};

const CLIENTS: usize = 16;
/// Commands of each.
const COMMANDS: usize = 250;
/// What an SDK's session may have under way.
const AT_ONCE: usize = 150;
/// Rounds of them; the first opens the connections.
const ROUNDS: usize = 5;
/// Bare commands before and after.
const BARE: usize = 250;

pub fn figures(report: &mut Report) {
    let (server, pool) = serving();
    // An agent is one process, so what it is held against is one that does the same bare.
    let mut floor = Floor::start();
    let mut bare = bare(&mut floor);
    let (all, mut each) = crowd(server.url());
    let rounds = (0..ROUNDS).map(|_| at_once(&pool)).collect();
    bare.extend(self::bare(&mut floor));
    let (bare, count) = (median(bare), CLIENTS * COMMANDS);
    report.ratio("16 clients, 250 commands each", all, bare * count as u32, 2.5);
    each.sort_unstable();
    println!(
        "{:<52} {:>10.0} /s  p50 {:.1?}  p99 {:.1?}",
        "  which is",
        count as f64 / all.as_secs_f64(),
        each[each.len() / 2],
        each[each.len() * 99 / 100],
    );
    report.ratio("150 commands at once over one pool", median(rounds), bare * AT_ONCE as u32, 2.5);
}

fn bare(floor: &mut Floor) -> Vec<Duration> {
    (0..BARE).map(|_| timed(|| floor.ask(b'r'))).collect()
}

/// What it takes when every client does its share at once, and each single call.
fn crowd(url: &str) -> (Duration, Vec<Duration>) {
    let ready = Barrier::new(CLIENTS + 1);
    thread::scope(|scope| {
        let client = || {
            let client = Client::new(url);
            // The first opens the connection.
            run(&client);
            ready.wait();
            (0..COMMANDS).map(|_| timed(|| run(&client))).collect::<Vec<_>>()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        ready.wait();
        let begun = Instant::now();
        let each = clients.into_iter().flat_map(|client| client.join().expect("no failure"));
        let each = each.collect();
        (begun.elapsed(), each)
    })
}

/// What it takes until the last of as many commands is answered.
fn at_once(pool: &Client) -> Duration {
    timed(|| {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| run(pool));
            }
        });
    })
}

fn run(client: &Client) {
    let ran = result(&client.post(RPC, &command("/bin/true", &[])).expect(200));
    assert_eq!(ran["exit_code"], 0, "{ran}");
}
