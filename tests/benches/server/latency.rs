//! One call at a time: what HTTP adds to the agent's own time, and the life of a sandbox.

use std::thread::sleep;
use std::time::{Duration, Instant};

use agent_client::guest::contexts::{self, RunCode};
use agent_client::program::{Event, Program};
use protocol::Cause;
use protocol::repl::{OpenContext, RunEnd};
use protocol::requests::Release;
use serde_json::json;
use tests::http::{Answer, Client};
use tests::sandbox::{Sandbox, start};
use tests::server::Server;

use super::super::{Floor, Report, Target, beside, median, timed};
use super::idle::{used, waits};
use super::portal::Portal;
use super::{BOX, RPC, command, request, result, serving};

/// Calls of each kind of which the median is taken, and those before them that are not counted.
const CALLS: usize = 500;
const FIRST_CALLS: usize = 20;
/// The request, some words of the agent, and one turn of the threads that gather: no hand-over between
/// threads.
const WAITS_PER_COMMAND: f64 = 5.5;
/// Sandboxes that are made and removed.
const LIVES: usize = 30;
/// More than any of these runs prints.
const SAID_BYTES_MAX: usize = 1024;

/// The same work in turns, by every way to it.
#[derive(Default)]
struct Times {
    trips: Vec<Duration>,
    direct: Vec<Duration>,
    rpc: Vec<Duration>,
    native: Vec<Duration>,
}

pub async fn figures(report: &mut Report) {
    let (server, client) = serving();
    counts(report, &server, &client);
    let sandbox = Sandbox::start().await;
    let floor = commands(report, &client, &sandbox).await;
    code(report, &client, &sandbox).await;
    println!("{:<52} {floor:>12.1?}", "  bare spawn and wait of `true`");
    sandbox.end().await;
}

/// The cost of one `true` for the bridge in counts, which a busy machine affects less than times: how often
/// one of its threads had to wait, and its CPU time.
fn counts(report: &mut Report, server: &Server, client: &Client) {
    let bridge = server.daemon_pid();
    let line = command("/bin/true", &[]).to_string();
    let call = || {
        let headers = [("content-type", "application/json")];
        let ran = client.send("POST", RPC, &headers, line.as_bytes());
        assert_eq!(result(&ran)["exit_code"], 0, "{}", ran.text());
    };
    (0..FIRST_CALLS * 2).for_each(|_| call());
    let (switches, cpu) = (waits(bridge), used(bridge));
    (0..CALLS).for_each(|_| call());
    let waited = (waits(bridge) - switches) as f64 / CALLS as f64;
    let cpu = used(bridge).saturating_sub(cpu).as_secs_f64() * 1e6 / CALLS as f64;
    report.bound("times that the bridge waits, per `true`", waited, "", WAITS_PER_COMMAND);
    println!("{:<52} {cpu:>9.0} us", "  its CPU time, per `true`");
}

/// `true` by the floor, by the agent's socket, by JSON-RPC and by the native API; the floor's median.
async fn commands(report: &mut Report, client: &Client, sandbox: &Sandbox) -> Duration {
    let mut floor = Floor::start();
    let (mut floors, mut times) = (Vec::new(), Times::default());
    let line = command("/bin/true", &[]).to_string();
    let native = json!({ "argv": ["/bin/true"] }).to_string();
    // Everything about a call except its work: nobody knows this method.
    let nothing = request("sandbox.nothing", json!({})).to_string();
    let (portal, mut portals) = (Portal::start(), Vec::new());
    let mut nothings = Vec::new();
    // In turns, so that other work of the machine affects all alike.
    for number in 0..FIRST_CALLS + CALLS {
        floors.push(timed(|| floor.ask(b'r')));
        round_trip(client);
        let direct = direct_command(sandbox, number).await;
        let trip = round_trip_after(direct, client);
        nothings.push(hot(client, RPC, &nothing).0);
        let (rpc, ran) = hot(client, RPC, &line);
        assert_eq!(result(&ran)["exit_code"], 0, "{}", ran.text());
        let (bare, ran) = hot_of(&portal.client, "/livez", RPC, &line);
        assert_eq!(result(&ran)["exit_code"], 0, "{}", ran.text());
        portals.push(bare);
        let (native, ran) = hot(client, &format!("{BOX}/exec"), &native);
        assert_eq!(ran.json()["exit_code"], 0, "{}", ran.text());
        if number >= FIRST_CALLS {
            times.push(trip, direct, rpc, native);
        }
    }
    let floor = median(floors);
    let Medians { trip, direct, rpc, native } = times.medians();
    println!("{:<52} {trip:>12.1?}", "one HTTP round trip (`GET /livez`)");
    println!("{:<52} {:>12.1?}", "  of a call of JSON-RPC for nothing", median(nothings));
    println!("{:<52} {direct:>12.1?}", "`true` by the agent's own socket, median");
    let which = if portal.is_boxed { "boxed" } else { "unboxed: no unshare here" };
    let portal = median(portals);
    report.ratio(
        &format!("`true` by JSON-RPC, reference server ({which})"),
        rpc,
        portal,
        Target::toward(1.0, 1.5),
    );
    report.ratio("`true` by JSON-RPC, floor + round trip", rpc, floor + trip, 2.0);
    report.ratio("`true` by the native API, floor + round trip", native, floor + trip, 2.0);
    let (rpc, native) = (rpc.saturating_sub(direct), native.saturating_sub(direct));
    report.ratio("what JSON-RPC adds to `true`", rpc, trip, Target::toward(1.0, 2.5));
    report.ratio("what the native API adds to `true`", native, trip, Target::toward(0.8, 2.0));
    floor
}

/// Warm `print(1)` by the same ways.
async fn code(report: &mut Report, client: &Client, sandbox: &Sandbox) {
    let open = contexts::open("python".parse().expect("a name"), "python");
    let body = json!({ "language": "python", "code": "print(1)" });
    let body = request("sandbox.repl.run", body).to_string();
    // Without its language, a run has to ask for the context's.
    let native = json!({ "language": "python", "code": "print(1)" }).to_string();
    let mut times = Times::default();
    for number in 0..FIRST_CALLS + CALLS {
        round_trip(client);
        let direct = direct_code(sandbox, &open).await;
        let trip = round_trip_after(direct, client);
        let (rpc, ran) = hot(client, RPC, &body);
        assert_eq!(result(&ran)["output"][0]["text"], "1", "{}", ran.text());
        let path = format!("{BOX}/contexts/python/run");
        let (native, ran) = hot(client, &path, &native);
        assert_eq!(ran.json()["stdout"], "1\n", "{}", ran.text());
        if number >= FIRST_CALLS {
            times.push(trip, direct, rpc, native);
        }
    }
    let Medians { trip, direct, rpc, native } = times.medians();
    println!("{:<52} {direct:>12.1?}", "warm `print(1)` by the agent's own socket, median");
    beside("the same by JSON-RPC, beside it", rpc, direct);
    let (rpc, native) = (rpc.saturating_sub(direct), native.saturating_sub(direct));
    report.ratio("what JSON-RPC adds to `print(1)`", rpc, trip, Target::toward(1.0, 1.5));
    report.ratio("what the native API adds to `print(1)`", native, trip, Target::toward(1.0, 1.5));
}

/// Sandboxes from nothing to their first command done, and to nothing again.
pub fn lives(report: &mut Report) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..LIVES {
        starts.push(timed(|| {
            super::make(&client, "box");
            let ran = client.post(&format!("{BOX}/exec"), &json!({ "argv": ["/bin/true"] }));
            assert_eq!(ran.expect(200).json()["exit_code"], 0);
        }));
        ends.push(timed(|| {
            let _ = client.send("POST", &format!("{BOX}/kill"), &[], &[]).expect(200);
            assert!(client.delete(BOX).status < 300);
        }));
    }
    let millis = |times| median(times).as_secs_f64() * 1e3;
    report.bound("a sandbox by HTTP to its first command done", millis(starts), "ms", 60.0);
    report.bound("its end and removal by HTTP", millis(ends), "ms", 60.0);
}

async fn direct_command(sandbox: &Sandbox, number: usize) -> Duration {
    let start = start(&format!("true-{number}"), &["/bin/true"]);
    let begun = Instant::now();
    let mut execution = Program::from(start.clone()).begin(&sandbox.guest).expect("asked for");
    let record = loop {
        match execution.next().await.expect("it runs") {
            Some(Event::Ended(ended)) => break ended.record,
            Some(_) => {}
            None => unreachable!("an execution tells its end"),
        }
    };
    let time = begun.elapsed();
    assert_eq!(record.cause, Cause::Exited { code: 0 });
    let done = Release { session: start.session, holder: None, kill_survivors: false };
    sandbox.guest.release(done).await.expect("released");
    time
}

async fn direct_code(sandbox: &Sandbox, open: &OpenContext) -> Duration {
    let ask = RunCode::new(open.clone(), "print(1)");
    let begun = Instant::now();
    let run = sandbox.guest.run_code_now(ask).expect("asked for");
    let ran = run.collect(SAID_BYTES_MAX).await.expect("it ends");
    let time = begun.elapsed();
    assert_eq!((ran.finished.end.clone(), ran.stdout()), (RunEnd::Ok {}, b"1\n".to_vec()));
    time
}

/// A round trip of HTTP between two processes that slept as long as the work takes. The caller sleeps, too,
/// and waking up is most of a round trip.
fn round_trip_after(work: Duration, client: &Client) -> Duration {
    // As long as the work would take.
    sleep(work);
    round_trip(client)
}

fn round_trip(client: &Client) -> Duration {
    timed(|| assert_eq!(client.get("/livez").status, 200))
}

/// A call whose body is made already, right after another one, and how long it takes until the answer
/// is there.
fn hot(client: &Client, path: &str, body: &str) -> (Duration, Answer) {
    hot_of(client, "/livez", path, body)
}

/// For a server whose cheapest answer is another one.
fn hot_of(client: &Client, cheapest: &str, path: &str, body: &str) -> (Duration, Answer) {
    let headers = [("content-type", "application/json")];
    assert_eq!(client.get(cheapest).status, 200);
    let begun = Instant::now();
    let answer = client.send("POST", path, &headers, body.as_bytes());
    (begun.elapsed(), answer)
}

struct Medians {
    trip: Duration,
    direct: Duration,
    rpc: Duration,
    native: Duration,
}

impl Times {
    fn push(&mut self, trip: Duration, direct: Duration, rpc: Duration, native: Duration) {
        self.trips.push(trip);
        self.direct.push(direct);
        self.rpc.push(rpc);
        self.native.push(native);
    }

    fn medians(self) -> Medians {
        let Self { trips, direct, rpc, native } = self;
        Medians {
            trip: median(trips),
            direct: median(direct),
            rpc: median(rpc),
            native: median(native),
        }
    }
}
