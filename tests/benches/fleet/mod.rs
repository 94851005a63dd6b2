//! The figures of a fleet: what a call costs through a bridge that does not have its sandbox, beside the same call at the
//! one that has it, and how many sandboxes are made in a second, beside a bridge of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::fleet::{Nats, open};
use tests::http::Client;
use tests::server::Server;

use super::{Report, Target, beside, median, timed};

/// Calls of each kind of which the median is taken, and those before them that are not counted.
const CALLS: usize = 300;
const FIRST_CALLS: usize = 20;
/// Sandboxes that are made by each way, and clients that make them at once.
const CREATES: usize = 48;
const CLIENTS: usize = 4;
const BOX: &str = "/v1/sandboxes/default/box";

pub fn figures(report: &mut Report) {
    let own = Server::dev();
    let alone = creates(&[&Client::new(own.url())], "alone");
    drop(own);
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    hop(report, &members[0].client, &members[1].client, &members[1].server);
    let clients: Vec<_> = members.iter().map(|member| &member.client).collect();
    let fleet = creates(&clients, "fleet");
    println!("{:<52} {:>10.1}/s", "creates of a bridge of its own, by 4 clients", rate(alone));
    println!("{:<52} {:>10.1}/s", "  of a fleet of two on this machine", rate(fleet));
    let each = |time: Duration| time / CREATES as u32;
    report.ratio("a create in a fleet, beside one without", each(fleet), each(alone), CREATE);
}

/// A create in a fleet asks NATS for the name and the nodes for room first.
const CREATE: Target = Target { promise: 2.5, goal: 2.0 };
/// Of a look at a sandbox where it is, which is the HTTP call that the hop adds.
const HOP: Target = Target { promise: 2.0, goal: 1.0 };
/// Of the smallest HTTP round trip, in which nobody asks who calls.
const HOP_OF_TRIPS: Target = Target { promise: 3.0, goal: 1.0 };

fn rate(time: Duration) -> f64 {
    CREATES as f64 / time.as_secs_f64()
}

/// The same calls at a gateway and at the owner, in turns.
fn hop(report: &mut Report, gateway: &Client, owner: &Client, server: &Server) {
    server.ok(&["start", "--name", "box"]);
    let run = json!({ "argv": ["/bin/true"] });
    let (mut trips, mut looks, mut looks_at_gateway) = (Vec::new(), Vec::new(), Vec::new());
    let (mut runs, mut runs_at_gateway) = (Vec::new(), Vec::new());
    for number in 0..FIRST_CALLS + CALLS {
        let look = |client: &Client, path: &str| timed(|| drop(client.get(path).expect(200)));
        let exec = |client: &Client| {
            timed(|| {
                let ran: Value = client.post(&format!("{BOX}/exec"), &run).expect(200).json();
                assert_eq!(ran["exit_code"], 0, "{ran}");
            })
        };
        let times = [
            look(gateway, "/livez"),
            look(owner, BOX),
            look(gateway, BOX),
            exec(owner),
            exec(gateway),
        ];
        if number >= FIRST_CALLS {
            let all =
                [&mut trips, &mut looks, &mut looks_at_gateway, &mut runs, &mut runs_at_gateway];
            all.into_iter().zip(times).for_each(|(all, time)| all.push(time));
        }
    }
    let trip = median(trips);
    println!("{:<52} {trip:>12.1?}", "one HTTP round trip to the gateway (`GET /livez`)");
    let (look, at_gateway) = (median(looks), median(looks_at_gateway));
    beside("a look at a sandbox through a gateway, at its node", at_gateway, look);
    let added = at_gateway.saturating_sub(look);
    report.ratio("what the gateway adds to a look, beside one", added, look, HOP);
    report.ratio("  beside the smallest round trip", added, trip, HOP_OF_TRIPS);
    let (run, at_gateway) = (median(runs), median(runs_at_gateway));
    beside("`true` through a gateway, at its node", at_gateway, run);
    let added = at_gateway.saturating_sub(run);
    report.ratio("what the gateway adds to `true`, beside a look", added, look, HOP);
    report.ratio("  beside the smallest round trip", added, trip, HOP_OF_TRIPS);
    owner.delete(&format!("{BOX}?force=true")).expect(200);
}

/// So small that all of them fit on one machine, as the fleet counts.
fn small(name: &str) -> Value {
    json!({ "name": name, "memory_mib": 64, "cpus": 0.25 })
}

/// The time that all creates take, by several clients at once through these bridges in turns.
fn creates(bridges: &[&Client], prefix: &str) -> Duration {
    // The first one waits for what every bridge does once.
    for (at, client) in bridges.iter().enumerate() {
        client.post("/v1/sandboxes", &small(&format!("{prefix}-first{at}"))).expect(201);
    }
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= CREATES {
                        return;
                    }
                    let client = bridges[number % bridges.len()];
                    let body = small(&format!("{prefix}-{number}"));
                    client.post("/v1/sandboxes", &body).expect(201);
                }
            });
        }
    });
    begun.elapsed()
}
