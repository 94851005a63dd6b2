//! What is measured of one build, from outside alone: its API and its commands. So every revision that has
//! these can be the base.

use std::io::Read;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::Burrow;
use tests::http::Client;
use tests::server::Server;

const BOX: &str = "/v1/sandboxes/default/box";
/// Calls of which a row has the median, and those before them.
const CALLS: usize = 60;
const FIRST_CALLS: usize = 10;
/// The clients of the crowd, and the commands of each.
const CLIENTS: usize = 16;
const COMMANDS: usize = 12;
const FLOOD_BYTES: usize = 16 * 1024 * 1024;
/// Sandboxes that are started, and scrapes beside them.
const LIVES: usize = 8;
const SCRAPES: usize = 9;

pub struct Row {
    pub name: &'static str,
    measure: fn(&Bench) -> Duration,
}

/// Most of its time is the bridge's own code. Without optimisation, chance decides which of that is compiled with what others
/// wrote, and so is a little optimised: the same source was three times as quick in another build.
pub const FLOOD: &str = "16 MiB of output by NDJSON";

/// Each row prints one number, in this order.
pub const ROWS: [Row; 8] = [
    Row { name: "`true` by JSON-RPC", measure: |bench| calls(|| bench.command()) },
    Row { name: "`true` by the native API", measure: |bench| calls(|| bench.exec()) },
    Row { name: "warm `print(1)` by the native API", measure: |bench| calls(|| bench.run()) },
    Row { name: "16 clients, 12 commands each", measure: Bench::crowd },
    Row { name: FLOOD, measure: |bench| few(3, || bench.flood()) },
    Row { name: "a sandbox by the API, to its first command", measure: Bench::lives },
    Row { name: "`/metrics`", measure: |bench| few(SCRAPES, || bench.scrape()) },
    Row { name: "`run -- true`, to its end", measure: |bench| few(5, || bench.one_shot()) },
];

/// Prints the milliseconds of each row.
pub fn measure() {
    let bench = Bench::start();
    for row in &ROWS {
        println!("{}", (row.measure)(&bench).as_secs_f64() * 1e3);
    }
}

struct Bench {
    server: Server,
    client: Client,
    /// Without a daemon.
    alone: Burrow,
}

impl Bench {
    fn start() -> Self {
        let server = Server::dev();
        let client = Client::new(server.url());
        let _ = client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
        Self { server, client, alone: Burrow::new() }
    }

    fn command(&self) {
        command(&self.client);
    }

    fn exec(&self) {
        let path = format!("{BOX}/exec");
        let ran = self.client.post(&path, &json!({ "argv": ["/bin/true"] })).expect(200).json();
        assert_eq!(ran["exit_code"], 0, "{ran}");
    }

    fn run(&self) {
        let path = format!("{BOX}/contexts/python/run");
        let code = json!({ "language": "python", "code": "print(1)" });
        let ran = self.client.post(&path, &code).expect(200).json();
        assert_eq!(ran["stdout"], "1\n", "{ran}");
    }

    /// What it takes until each client has had its share.
    fn crowd(&self) -> Duration {
        let ready = Barrier::new(CLIENTS + 1);
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let client = Client::new(self.server.url());
                    // The first opens the connection.
                    command(&client);
                    ready.wait();
                    (0..COMMANDS).for_each(|_| command(&client));
                    ready.wait();
                });
            }
            ready.wait();
            let begun = Instant::now();
            ready.wait();
            begun.elapsed()
        })
    }

    fn flood(&self) {
        let script = format!("yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c {FLOOD_BYTES}");
        let headers = [("accept", "application/x-ndjson"), ("content-type", "application/json")];
        let body = json!({ "argv": ["sh", "-c", script] }).to_string();
        let path = format!("{BOX}/exec");
        let mut incoming = self.client.open("POST", &path, &headers, body.as_bytes());
        assert_eq!(incoming.status, 200);
        let mut buffer = vec![0; 128 * 1024];
        let mut taken = 0;
        loop {
            match incoming.read(&mut buffer).expect("it goes on") {
                0 => break,
                count => taken += count,
            }
        }
        assert!(taken > FLOOD_BYTES);
    }

    fn lives(&self) -> Duration {
        let one = |number: usize| {
            let name = format!("life-{number}");
            let path = format!("/v1/sandboxes/default/{name}");
            let begun = Instant::now();
            let _ = self.client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
            let argv = json!({ "argv": ["/bin/true"] });
            let _ = self.client.post(&format!("{path}/exec"), &argv).expect(200);
            let taken = begun.elapsed();
            let _ = self.client.delete(&format!("{path}?force=true")).expect(200);
            taken
        };
        median((0..LIVES).map(one).collect())
    }

    fn scrape(&self) {
        let _ = self.client.get("/metrics").expect(200);
    }

    fn one_shot(&self) {
        self.alone.ok(&["run", "--", "true"]);
    }
}

fn command(client: &Client) {
    let body = json!({ "jsonrpc": "2.0", "id": "1", "method": "sandbox.command.run", "params": {
        "namespace": "default", "sandbox": "box", "command": "/bin/true", "args": [] } });
    let ran: Value = client.post("/api/v1/rpc", &body).expect(200).json();
    assert_eq!(ran["result"]["exit_code"], 0, "{ran}");
}

/// The median of many short calls, once they are warm.
fn calls(call: impl Fn()) -> Duration {
    (0..FIRST_CALLS).for_each(|_| call());
    few(CALLS, call)
}

fn few(count: usize, call: impl Fn()) -> Duration {
    let timed = |_| {
        let begun = Instant::now();
        call();
        begun.elapsed()
    };
    median((0..count).map(timed).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
