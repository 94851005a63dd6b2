//! Many calls at once: sixteen clients, and a hundred and fifty runs over one pool.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tests::http::Client;

use super::super::{Floor, Report, Target, median, timed};
use super::portal::Portal;
use super::{RPC, command, result, serving};

const CLIENTS: usize = 16;
/// Commands of each.
const COMMANDS: usize = 250;
/// How many calls an SDK's session may have in progress.
const AT_ONCE: usize = 150;
/// Rounds of them; the first opens the connections.
const ROUNDS: usize = 5;
/// Bare commands before and after.
const BARE: usize = 250;

pub fn figures(report: &mut Report) {
    let (server, pool) = serving();
    // An agent is one process, so it is compared with one that does the same without a sandbox.
    let mut floor = Floor::start();
    let mut bare = bare(&mut floor);
    let (all, mut each) = crowd(server.url());
    let rounds = (0..ROUNDS).map(|_| at_once(&pool)).collect();
    bare.extend(self::bare(&mut floor));
    let portal = Portal::start();
    let (reference, _) = crowd(&portal.url);
    let target = Target::toward(1.0 / 1.2, 2.0);
    report.ratio("16 clients, beside the reference server", all, reference, target);
    let (bare, count) = (median(bare), CLIENTS * COMMANDS);
    let target = Target::toward(1.1, 2.5);
    report.ratio("16 clients, beside two bare spawners", all, spawners(count), target);
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

/// What two bare spawners take for so many commands, at the same time.
fn spawners(commands: usize) -> Duration {
    timed(|| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut floor = Floor::start();
                    (0..commands / 2).for_each(|_| floor.ask(b'r'));
                });
            }
        });
    })
}

/// The total time when every client does its share at once, and the time of each call.
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

/// The time until the last of that many commands is answered.
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
