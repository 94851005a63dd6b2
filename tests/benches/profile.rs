//! Where the time of one kind of call goes: `just profile exec|run|flood|claim`.
//!
//! The calls are made twice for each look, against a bridge of their own: under `strace`, which counts the
//! system calls of the bridge and of the agents, and under `perf`, whose samples become a flame graph in
//! `target/profile`. What is not installed is left out and listed.

#![expect(clippy::print_stdout, reason = "the counts are what it is for")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tests::http::Client;
use tests::server::Server;

const RPC: &str = "/api/v1/rpc";
const BOX: &str = "/v1/sandboxes/default/box";
/// Calls under `strace`, and those before them.
const CALLS: u32 = 300;
const FIRST_CALLS: u32 = 20;
/// Those of a call that moves megabytes.
const FLOODS: u32 = 10;
/// How long `perf` samples, and how often per second.
const SAMPLED: Duration = Duration::from_secs(10);
const SAMPLES_PER_S: &str = "999";
/// By unwind tables: the bridge has no frame pointers. So much of a stack is kept.
const STACKS: &str = "dwarf,8192";
/// A tracer is at work after this.
const ATTACHING: Duration = Duration::from_secs(1);
/// The lines of a table that are shown.
const ROWS: usize = 24;
/// Between two claims: the pool is full again.
const REFILL: Duration = Duration::from_millis(150);

/// What is profiled.
struct Load {
    name: &'static str,
    calls: u32,
    call: fn(&Client, u32),
}

const LOADS: [Load; 4] = [
    Load { name: "exec", calls: CALLS, call: exec },
    Load { name: "run", calls: CALLS, call: run },
    Load { name: "flood", calls: FLOODS, call: flood },
    Load { name: "claim", calls: CALLS / 10, call: claim },
];

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let load = LOADS.iter().find(|load| wanted.as_deref() == Some(load.name));
    let Some(load) = load else {
        let names = LOADS.map(|load| load.name).join(", ");
        println!("profile: name one of {names}: just profile exec");
        return;
    };
    let options = ["--dev", "--set", "pool.entries=/=2"];
    let server = Server::start(if load.name == "claim" { &options } else { &options[..1] });
    let client = Client::new(server.url());
    let _ = client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    (0..FIRST_CALLS.min(load.calls)).for_each(|number| (load.call)(&client, number));
    let bridge = server.daemon_pid();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/profile");
    fs::create_dir_all(&place).expect("a directory");
    count(load, &client, &place, "bridge", &[bridge]);
    count(load, &client, &place, "agents", &descendants(bridge));
    sample(load, &client, &place, bridge);
}

fn exec(client: &Client, _: u32) {
    let params = json!({ "namespace": "default", "sandbox": "box", "command": "/bin/true" });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": params });
    let answer = client.post(RPC, &body).expect(200).json();
    assert_eq!(answer["result"]["exit_code"], 0, "{answer}");
}

fn run(client: &Client, _: u32) {
    let body = json!({ "language": "python", "code": "print(1)" });
    let ran = client.post(&format!("{BOX}/contexts/python/run"), &body).expect(200).json();
    assert_eq!(ran["stdout"], "1\n", "{ran}");
}

fn flood(client: &Client, _: u32) {
    let body = json!({ "argv": ["head", "-c", "10000000", "/dev/zero"] });
    let ran = client.post(&format!("{BOX}/exec"), &body).expect(200).json();
    assert_eq!(ran["exit_code"], 0, "{ran}");
}

fn claim(client: &Client, number: u32) {
    let name = format!("claim-{}-{number}", Instant::now().elapsed().as_nanos());
    let _ = client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
    let path = format!("/v1/sandboxes/default/{name}");
    let ran = client.post(&format!("{path}/exec"), &json!({ "argv": ["/bin/true"] }));
    assert_eq!(ran.expect(200).json()["exit_code"], 0);
    assert!(client.delete(&format!("{path}?force=true")).status < 300);
    // Claims are measured, and not starts.
    sleep(REFILL);
}

/// Counts the system calls of these processes during that many calls.
fn count(load: &Load, client: &Client, place: &Path, whose: &str, pids: &[Pid]) {
    let table = place.join(format!("{}-{whose}.strace", load.name));
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-q", "-S", "calls", "-o"]).arg(&table);
    for pid in pids {
        command.arg("-p").arg(pid.to_string());
    }
    let Some(tracer) = begin(command, "strace") else { return };
    (0..load.calls).for_each(|number| (load.call)(client, number));
    end(tracer);
    println!(
        "\n{} x {}: system calls of the {whose}, each divided by {}",
        load.name, load.calls, load.calls
    );
    let text = fs::read_to_string(&table).unwrap_or_default();
    for row in text.lines().skip(2).take(ROWS) {
        let mut words = row.split_whitespace().skip(3);
        let count = words.next().and_then(|count| count.parse::<f64>().ok());
        let (Some(count), Some(name)) = (count, row.split_whitespace().last()) else { continue };
        println!("{:>10.2}  {name}", count / f64::from(load.calls));
    }
}

/// Samples the bridge and its agents during calls, and draws a flame graph.
fn sample(load: &Load, client: &Client, place: &Path, bridge: Pid) {
    let data = place.join(format!("{}.perf", load.name));
    let mut command = Command::new("perf");
    let pids = [vec![bridge], descendants(bridge)].concat();
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    command.args(["record", "-q", "--call-graph", STACKS, "-F", SAMPLES_PER_S, "-o"]).arg(&data);
    command.args(["-p", &pids.join(",")]);
    let Some(tracer) = begin(command, "perf") else { return };
    let begun = Instant::now();
    let mut number = load.calls;
    while begun.elapsed() < SAMPLED {
        (load.call)(client, number);
        number += 1;
    }
    end(tracer);
    let folded = place.join(format!("{}.folded", load.name));
    let graph = place.join(format!("{}.svg", load.name));
    let drawn = format!(
        "perf script -i '{}' | inferno-collapse-perf >'{}' && inferno-flamegraph '{}' >'{}'",
        data.display(),
        folded.display(),
        folded.display(),
        graph.display()
    );
    match Command::new("sh").args(["-c", &drawn]).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => println!("\nflame graph: {}", graph.display()),
        _ => println!("\nno flame graph: `cargo install inferno` draws it from {}", data.display()),
    }
}

/// Starts a tracer; says why there is none.
fn begin(mut command: Command, name: &str) -> Option<Child> {
    let log = File::create(std::env::temp_dir().join(format!("burrow-profile-{name}.log")));
    let started = command.stderr(log.expect("a file")).stdout(Stdio::null()).spawn();
    // It says nothing when it is ready.
    sleep(ATTACHING);
    match started.map(|mut child| (child.try_wait(), child)) {
        Ok((Ok(None), child)) => Some(child),
        Ok(_) => {
            println!("\nno {name}: it may not trace here");
            None
        }
        Err(error) => {
            println!("\nno {name}: {error}");
            None
        }
    }
}

fn end(mut tracer: Child) {
    kill(Pid::from_raw(tracer.id() as i32), Signal::SIGINT).ok();
    tracer.wait().ok();
}

/// All descendants of a process.
fn descendants(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let listed = lists.collect::<Vec<_>>().join(" ");
    let own = listed.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    own.flat_map(|pid| [vec![pid], descendants(pid)].concat()).collect()
}
