//! Many calls at once: sixteen clients, and a hundred and fifty runs over one pool.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tests::http::Client;

use super::super::{Floor, Report};
use super::{RPC, command, result, serving};

const CLIENTS: usize = 16;
/// Commands of each.
const COMMANDS: usize = 250;
/// What an SDK's session may have under way.
const AT_ONCE: usize = 150;
/// Rounds of them; the first opens the connections.
const ROUNDS: usize = 5;

pub fn figures(report: &mut Report) {
    let (server, pool) = serving();
    let url = server.url();
    let floors = crowd(Floor::start, |floor| floor.ask(b'r'));
    let b = server.daemon_pid(); let cpu = |p| -> std::time::Duration { nix::time::clock_getcpuclockid(p).unwrap().now().unwrap().into() };
    let a = tests::children(b)[0]; let a2 = tests::children(a);
    let b0 = (cpu(b), cpu(a), a2.iter().map(|p| cpu(*p)).sum::<Duration>());
    let times = crowd(|| Client::new(url), |client| run(client));
    let b1 = (cpu(b), cpu(a), a2.iter().map(|p| cpu(*p)).sum::<Duration>());
    println!("bridge {:?} agent {:?} {:?}", b1.0-b0.0, b1.1-b0.1, b1.2-b0.2);
    let (floor_all, _) = floors;
    let (all, mut each) = times;
    each.sort_unstable();
    let count = (CLIENTS * COMMANDS) as f64;
    report.ratio("16 clients, 250 commands each, beside bare ones", all, floor_all, 3.0);
    println!(
        "{:<52} {:>8.0} /s  p50 {:.1?}  p99 {:.1?}",
        "  which is",
        count / all.as_secs_f64(),
        each[each.len() / 2],
        each[each.len() * 99 / 100],
    );

    let rounds = (0..ROUNDS).map(|_| at_once(&pool)).min().expect("some");
    let bare = floor_all / (CLIENTS * COMMANDS) as u32 * AT_ONCE as u32;
    report.ratio("150 commands at once over one pool, all of them", rounds, bare, 3.0);
}

/// What all of it takes when every client does its share at once, and each single call.
fn crowd<C: Send>(
    make: impl Fn() -> C + Sync,
    call: impl Fn(&mut C) + Sync,
) -> (Duration, Vec<Duration>) {
    let (ready, each) = (Barrier::new(CLIENTS + 1), &call);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = make();
                    each(&mut client);
                    ready.wait();
                    let timed = |_| {
                        let begun = Instant::now();
                        each(&mut client);
                        begun.elapsed()
                    };
                    (0..COMMANDS).map(timed).collect::<Vec<_>>()
                })
            })
            .collect();
        ready.wait();
        let begun = Instant::now();
        let each = workers.into_iter().flat_map(|worker| worker.join().expect("no failure"));
        let each = each.collect();
        (begun.elapsed(), each)
    })
}

/// What it takes until the last of as many commands is answered.
fn at_once(pool: &Client) -> Duration {
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| run(pool));
        }
    });
    begun.elapsed()
}

fn run(client: &Client) {
    let ran = result(&client.post(RPC, &command("/bin/true", &[])).expect(200));
    assert_eq!(ran["exit_code"], 0, "{ran}");
}
