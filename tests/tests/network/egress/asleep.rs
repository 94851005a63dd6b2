//! Connections, timers and clocks of a sandbox over a sleep: what docs/howto/sleep.md says of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tests::http::Client;
use tests::internet::Internet;
use tests::machines::machines_or_skip;
use tests::{PATIENCE, eventually};

use super::{NAME, Scene};

const BOX: &str = "/v1/sandboxes/default/a";
/// How long nothing is at work in one that sleeps soon.
const IDLE_MS: u64 = 1000;
const NOT_SOON_MS: u64 = 600_000;
/// How long it sleeps at least.
const ASLEEP_MIN: Duration = Duration::from_secs(5);
/// When the timer in the sandbox is due, in seconds: a sleep that begins at once is longer.
const TIMER_S: f64 = 4.0;
/// How far off a measured time may be: the host is busy, and clocks are read some time after they are set.
const SLACK_S: f64 = 3.0;

/// A program whose session has ended. It has a connection from before the sleep, says after it what became of that,
/// and connects again; and it says when its timer went off, by both of its clocks.
const HOLDS: &str = r#"
import os, socket, threading, time
def say(*words):
    with open("/tmp/said", "a") as said: said.write(" ".join(map(str, words)) + "\n")
def meet():
    peer = socket.create_connection(("db.example.com", 5432), 60)
    assert peer.recv(100) == b"who are you?\n"
    return peer
def ask(peer, name):
    peer.sendall(name)
    return peer.recv(100)
peer = meet()
begun, wall = time.monotonic(), time.time()
threading.Timer(4.0, lambda: say("timer", time.monotonic() - begun, time.time() - wall)).start()
say("met")
while not os.path.exists("/tmp/go"): time.sleep(0.05)
try: say("held", ask(peer, b"back"))
except OSError as error: say("held", type(error).__name__)
say("again", ask(meet(), b"again"))
say("clock", time.time())
"#;

/// A sandbox that sleeps when nothing is at work in it.
fn sleeper_or_skip(machine: &str, on_idle: &str, idle_ttl_ms: u64) -> Option<Scene> {
    if machine != "process" && !machines_or_skip() {
        return None;
    }
    let internet = Internet::or_skip()?;
    let scene = Scene { server: internet.bridge(&[]), internet };
    let mut body = json!({
        "name": NAME, "egress": ["db.example.com:5432"], "machine": machine,
        "idle_ttl_ms": idle_ttl_ms, "on_idle": on_idle,
    });
    if machine != "process" {
        (body["image"], body["memory_mib"]) = (json!("python"), json!(256));
    }
    let made = scene.client().post("/v1/sandboxes", &body);
    if made.status != 201 {
        tests::skip(&made.text());
        return None;
    }
    Some(scene)
}

/// Starts that program, and waits until it has its connection.
fn hold(scene: &Scene) {
    let script = "rm -f /tmp/said /tmp/go; cat > /tmp/holds.py; \
                  (setsid python3 /tmp/holds.py >/tmp/failed 2>&1 </dev/null &); \
                  until grep -qs met /tmp/said; do cat /tmp/failed >&2; sleep 0.05; done";
    let keep = ["exec", "-i", NAME, "--", "sh", "-c", script];
    let started = scene.server.feed(&keep, HOLDS.as_bytes());
    assert!(started.status.success(), "{started:?}");
}

/// A process sandbox that sleeps soon, with that program.
fn holding_or_skip() -> Option<Scene> {
    let scene = sleeper_or_skip("process", "pause", IDLE_MS)?;
    hold(&scene);
    Some(scene)
}

fn record(client: &Client) -> Value {
    client.get(BOX).expect(200).json()
}

/// Waits until it sleeps, and then for [`ASLEEP_MIN`].
fn sleep(scene: &Scene, on_disk: bool) -> Instant {
    let client = scene.client();
    eventually("it sleeps", || record(&client)["asleep"] == true);
    let since = Instant::now();
    assert_eq!(record(&client)["on_disk"] == true, on_disk, "{}", record(&client));
    eventually("it has slept for a while", || since.elapsed() > ASLEEP_MIN);
    assert_eq!(record(&client)["asleep"], true, "something woke it");
    since
}

/// Wakes it, and returns for how long it slept.
fn wake(scene: &Scene, since: Instant) -> f64 {
    let slept = since.elapsed().as_secs_f64();
    go(scene);
    slept
}

/// Has the program go on.
fn go(scene: &Scene) {
    scene.run("touch /tmp/go").ok();
}

/// The words after this one in the program's report.
fn said(scene: &Scene, what: &str) -> String {
    let mut found = String::new();
    eventually(&format!("it says what it has {what}"), || {
        let all = scene.run("cat /tmp/said").ok();
        let line = all.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_default().trim().clone_into(&mut found);
        !found.is_empty()
    });
    found
}

/// When its timer went off, in seconds by its clock that only goes on and by the wall clock.
fn timer(scene: &Scene) -> (f64, f64) {
    let said = said(scene, "timer");
    let (monotonic, wall) = said.split_once(' ').unwrap();
    (monotonic.parse().unwrap(), wall.parse().unwrap())
}

/// The timer of a machine counted what its processors ran, a moment with its programs frozen included, and its wall
/// clock has what it slept besides.
fn assert_timer_went_on(scene: &Scene, slept: f64) {
    let (monotonic, wall) = timer(scene);
    assert!(monotonic >= TIMER_S, "its timer went off after {monotonic} s");
    let besides = wall - monotonic;
    assert!(besides >= slept - SLACK_S, "it slept {slept} s, and its clocks differ by {besides} s");
}

fn assert_goes_on_well(scene: &Scene) {
    assert_eq!(said(scene, "again"), "b'you are again'");
    let there: f64 = said(scene, "clock").parse().unwrap();
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((here - there).abs() < PATIENCE.as_secs_f64(), "its clock says {there} at {here}");
    scene.only_the_internet_was_reached();
}

#[test]
fn a_frozen_process_sandbox_keeps_its_connections_and_timers_that_were_due_fire_at_once() {
    let Some(scene) = holding_or_skip() else { return };
    let since = sleep(&scene, false);
    let slept = wake(&scene, since);
    assert_eq!(said(&scene, "held"), "b'you are back'", "its connection did not stay open");
    let (monotonic, wall) = timer(&scene);
    assert!(monotonic >= slept && (monotonic - slept) < SLACK_S + TIMER_S, "{monotonic}, {slept}");
    assert!((monotonic - wall).abs() < 0.5, "its clocks differ: {monotonic}, {wall}");
    assert_goes_on_well(&scene);
}

#[test]
fn a_machine_keeps_its_connections_when_it_is_paused_and_connects_again_when_it_was_on_disk() {
    let Some(scene) = sleeper_or_skip("qemu", "snapshot", NOT_SOON_MS) else { return };
    hold(&scene);
    scene.server.ok(&["pause", NAME]);
    let since = Instant::now();
    eventually("it was paused for a while", || since.elapsed() > ASLEEP_MIN);
    let slept = since.elapsed().as_secs_f64();
    scene.server.ok(&["resume", NAME]);
    go(&scene);
    assert_eq!(said(&scene, "held"), "b'you are back'", "its connection did not stay open");
    assert_timer_went_on(&scene, slept);
    assert_goes_on_well(&scene);
    hold(&scene);
    let soon = json!({ "idle_ttl_ms": IDLE_MS });
    scene.client().send_json("PATCH", BOX, &soon).expect(200);
    let since = sleep(&scene, true);
    let slept = wake(&scene, since);
    let held = said(&scene, "held");
    assert!(held.ends_with("Error"), "its connection ended with {held}");
    assert_timer_went_on(&scene, slept);
    assert_goes_on_well(&scene);
}

#[test]
fn a_bridge_that_dies_meanwhile_resets_what_it_carried_and_the_next_one_carries() {
    let Some(mut scene) = holding_or_skip() else { return };
    let since = sleep(&scene, false);
    scene.server.kill_and_serve_again();
    assert_eq!(record(&scene.client())["asleep"], true);
    wake(&scene, since);
    let held = said(&scene, "held");
    assert!(held.ends_with("Error"), "its connection ended with {held}");
    assert_goes_on_well(&scene);
}

#[test]
fn what_is_sent_into_a_paused_sandbox_arrives_once_when_it_goes_on() {
    let Some(scene) = holding_or_skip() else { return };
    let echo = "import socket\nserver = socket.create_server(('127.0.0.1', 8124))\nprint('on', flush=True)\n\
                peer = server.accept()[0]\nwhile data := peer.recv(65536): peer.sendall(data)\n";
    let script = "cat > /tmp/echo.py; (setsid python3 /tmp/echo.py >/tmp/echo 2>&1 </dev/null &); \
                  until grep -qs on /tmp/echo; do sleep 0.05; done";
    let started =
        scene.server.feed(&["exec", "-i", NAME, "--", "sh", "-c", script], echo.as_bytes());
    assert!(started.status.success(), "{started:?}");
    let client = scene.client();
    let forwarded =
        client.post(&format!("{BOX}/ports"), &json!({ "port": 8124 })).expect(201).json();
    let port = u16::try_from(forwarded["host_port"].as_u64().unwrap()).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut heard = [0; 6];
    let exchange = |stream: &mut TcpStream, heard: &mut [u8; 6]| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(heard).unwrap();
    };
    stream.write_all(b"before").unwrap();
    exchange(&mut stream, &mut heard);
    assert_eq!(&heard, b"before");
    scene.server.ok(&["pause", NAME]);
    stream.write_all(b"during").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert!(stream.read(&mut heard).is_err(), "a paused sandbox answers");
    scene.server.ok(&["resume", NAME]);
    exchange(&mut stream, &mut heard);
    assert_eq!(&heard, b"during");
    stream.write_all(b"after!").unwrap();
    exchange(&mut stream, &mut heard);
    assert_eq!(&heard, b"after!", "something arrived twice");
    go(&scene);
    assert_eq!(said(&scene, "held"), "b'you are back'");
}
