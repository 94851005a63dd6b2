//! Virtual machines that sleep when they are idle, in memory and on disk: what is right when they go on, and what a
//! bridge leaves that dies meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::door::BOX;
use tests::http::{Answer, Client};
use tests::machines::{machines_or_skip, process_of};
use tests::server::Server;
use tests::{PATIENCE, eventually};

/// The program that is a machine.
const MONITOR: &str = "qemu-system-x86_64";
const WOKE: &str = "burrow-woke-ms";

/// How far off a clock may be that was just set, including the time to ask.
const CLOCK_SECONDS_OFF_MAX: u64 = 3;

/// How long a machine that was paused may take to answer, beside [`AWAKE_BOOTS`]: the bridge waits for its link first.
const AWAKE_MAX: Duration = Duration::from_secs(5);
/// How many times as long as its boot took. Its link may have to be made again, which is a small part of a boot; a
/// host that is busier by then has room.
const AWAKE_BOOTS: u32 = 2;
/// How long an answer may take on a busy host: from a machine that is restored first, or to the last of many.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Pauses in the middle of something.
const PAUSES: usize = 5;
/// Writes as long as somebody reads.
const CHATTER: &str = "while :; do echo chatter; sleep 0.01; done";

/// Counts, in a program whose session has ended.
const COUNT: &str = "setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count.new; mv /tmp/count.new /tmp/count; \
                     sleep 0.2; done' > /dev/null 2>&1 < /dev/null & until [ -s /tmp/count ]; do sleep 0.05; done";
/// Sends back what it is sent, likewise.
const ECHO: &str = "import socket\nserver = socket.create_server(('127.0.0.1', 8123))\nwhile True:\n peer = server.accept()[0]\n while data := peer.recv(65536): peer.sendall(data)\n peer.close()\n";

struct Scene {
    server: Server,
    /// How long the machine took to boot.
    boot: Duration,
}

impl Scene {
    fn or_skip(on_idle: &str) -> Option<Self> {
        if !machines_or_skip() {
            return None;
        }
        let server = Server::dev();
        let client = Client::new(server.url());
        let spec = json!({
            "name": "box", "machine": "qemu", "image": "python", "memory_mib": 256,
            "idle_ttl_ms": 1500, "on_idle": on_idle,
        });
        let booting = Instant::now();
        client.post("/v1/sandboxes", &spec).expect(201);
        Some(Self { server, boot: booting.elapsed() })
    }

    /// The bridge that there is now.
    fn client(&self) -> Client {
        Client::new(self.server.url())
    }

    fn record(&self) -> Value {
        self.client().get(BOX).expect(200).json()
    }

    fn until_asleep(&self) {
        eventually("it sleeps", || self.record()["asleep"] == true);
    }

    /// Runs a script, and says whether that woke it.
    fn shell(&self, script: &str) -> (String, bool) {
        let ran = posted(&self.client(), "shell", &json!({ "script": script }));
        let woke = ran.header(WOKE).is_some();
        let ended = ran.json();
        assert_eq!(ended["exit_code"], 0, "{ended}");
        (ended["stdout"].as_str().expect("text").trim_end().to_owned(), woke)
    }

    fn run(&self, code: &str) -> String {
        let ran = posted(&self.client(), "run", &json!({ "code": code }));
        ran.json()["stdout"].as_str().expect("text").trim_end().to_owned()
    }

    fn inspect(&self) -> Value {
        serde_json::from_str(&self.server.ok(&["inspect", "--json", "box"])).expect("JSON")
    }

    fn monitor(&self) -> Pid {
        let record = self.inspect();
        let record = if record["record"].is_object() { &record["record"] } else { &record };
        process_of(record["pid"].as_u64().expect("a process") as u32, MONITOR)
    }

    /// Its memory on disk.
    fn memory(&self) -> PathBuf {
        let id = self.record()["id"].as_str().expect("an id").to_owned();
        self.server.state().join("boxes").join(id).join("asleep")
    }

    fn assert_clock_is_right(&self) {
        let there: u64 = self.shell("date +%s").0.parse().expect("seconds");
        let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(here.abs_diff(there) <= CLOCK_SECONDS_OFF_MAX, "{there} is not {here}");
    }
}

/// The answer to a request; `None` if there is none.
fn answered(client: &Client, verb: &str, body: &Value) -> Option<Answer> {
    let (path, body) = (format!("{BOX}/{verb}"), body.to_string());
    let headers = [("content-type", "application/json")];
    client.try_send("POST", &path, &headers, body.as_bytes(), ANSWER_MAX)
}

fn posted(client: &Client, verb: &str, body: &Value) -> Answer {
    let answer = answered(client, verb, body);
    answer.unwrap_or_else(|| panic!("{verb}: no answer within {ANSWER_MAX:?}")).expect(200)
}

fn lives(process: Pid) -> bool {
    PathBuf::from(format!("/proc/{process}")).exists()
}

/// What both ways to sleep have in common.
fn sleeps_and_goes_on(scene: &Scene, while_asleep: impl Fn()) {
    assert_eq!(scene.run("x = 41"), "");
    scene.shell("echo kept > /root/kept");
    scene.shell(COUNT);
    let forwarded =
        scene.client().post(&format!("{BOX}/ports"), &json!({ "port": 8123 })).expect(201).json();
    let port = forwarded["host_port"].as_u64().expect("a port") as u16;
    scene.shell(&format!("setsid python3 -c \"{ECHO}\" >/dev/null 2>&1 < /dev/null &"));
    scene.until_asleep();
    while_asleep();
    let (first, woke) = scene.shell("cat /tmp/count");
    assert!(woke, "it does not say that it slept");
    scene.assert_clock_is_right();
    eventually("the program goes on", || scene.shell("cat /tmp/count").0 != first);
    assert_eq!(scene.run("print(x + 1)"), "42");
    assert_eq!(scene.shell("cat /root/kept").0, "kept");
    // A connection from the host wakes it, and reaches the program that listens since before.
    scene.until_asleep();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(b"over a sleep").expect("taken");
    let mut heard = [0; 12];
    stream.read_exact(&mut heard).expect("it is sent back");
    assert_eq!(&heard, b"over a sleep");
    drop(stream);
    // Many at once wake it once, and each is carried out once.
    scene.until_asleep();
    let clients = (0..100).map(|number| {
        let client = scene.client();
        thread::spawn(move || {
            let script = format!("echo {number} >> /tmp/seen; echo {number}");
            let ran = posted(&client, "shell", &json!({ "script": script }));
            assert_eq!(ran.json()["stdout"], format!("{number}\n"));
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().expect("it was answered");
    }
    assert_eq!(scene.shell("sort -n /tmp/seen | uniq | wc -l; wc -l < /tmp/seen").0, "100\n100");
    let events = scene.client().get("/v1/events?kind=resumed").expect(200).json();
    let reasons: Vec<_> = events["events"].as_array().expect("a list").iter().collect();
    assert_eq!(reasons.len(), 3, "{events}");
    assert!(reasons.iter().all(|event| event["reason"] == "request"), "{events}");
}

/// However often it is paused, and whatever it sends meanwhile.
fn answers_soon_after_a_pause(scene: &Scene) {
    let chatter = ["exec", "box", "--", "sh", "-c", CHATTER];
    let mut reader =
        scene.server.command(&chatter).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(reader.stdout.take().expect("piped")).lines();
    let mut longest = Duration::ZERO;
    for _ in 0..PAUSES {
        assert_eq!(lines.next().expect("it goes on").expect("text"), "chatter");
        scene.server.ok(&["pause", "box"]);
        let resumed = Instant::now();
        scene.server.ok(&["resume", "box"]);
        assert_eq!(scene.shell("echo here").0, "here");
        longest = longest.max(resumed.elapsed());
    }
    reader.kill().expect("it is ours");
    reader.wait().expect("it is ours");
    let limit = AWAKE_MAX + scene.boot * AWAKE_BOOTS;
    assert!(
        longest < limit,
        "the slowest of {PAUSES} answered after {longest:?}, and not in {limit:?}"
    );
}

#[test]
fn a_machine_that_sleeps_in_memory_goes_on_where_it_was_within_seconds() {
    let Some(scene) = Scene::or_skip("pause") else { return };
    let monitor = scene.monitor();
    sleeps_and_goes_on(&scene, || assert!(lives(monitor), "its memory is gone"));
    answers_soon_after_a_pause(&scene);
    assert_eq!(scene.monitor(), monitor);
}

#[test]
fn a_machine_that_sleeps_on_disk_frees_its_memory_and_goes_on_where_it_was() {
    let Some(mut scene) = Scene::or_skip("snapshot") else { return };
    let monitor = scene.monitor();
    sleeps_and_goes_on(&scene, || {
        eventually("its monitor has ended", || !lives(monitor));
        assert_eq!(scene.record()["on_disk"], true);
        assert!(scene.memory().join("memory").is_file());
        assert!(scene.server.ok(&["ps"]).contains("idle, on disk"));
    });
    assert!(!scene.memory().exists(), "its memory is still on disk");
    let events = scene.client().get("/v1/events?kind=paused").expect(200).json();
    let paused = events["events"].as_array().expect("a list");
    assert!(paused.iter().all(|event| event["on_disk"] == true), "{events}");
    a_bridge_that_dies_leaves_one_that_the_next_restores(&mut scene);
}

/// One in which `x` is 41.
fn a_bridge_that_dies_leaves_one_that_the_next_restores(scene: &mut Scene) {
    // Asleep.
    scene.until_asleep();
    scene.server.kill_and_serve_again();
    assert_eq!(scene.record()["asleep"], true);
    assert_eq!(scene.run("print(x + 1)"), "42");
    // While it is written: the machine continues, and what was written is gone.
    let (monitor, memory) = (scene.monitor(), scene.memory());
    eventually("it is being written", || memory.join("memory").exists());
    scene.server.kill_and_serve_again();
    let is_away = scene.record()["asleep"] == true;
    assert!(is_away || lives(monitor), "it is neither here nor on disk");
    assert_eq!(scene.run("print(x + 2)"), "43");
    // While it is restored.
    scene.until_asleep();
    let client = scene.client();
    // The bridge dies, and gives no answer.
    let waking = thread::spawn(move || {
        answered(&client, "shell", &json!({ "script": "echo x >> /tmp/twice" }))
    });
    let runtime = scene
        .server
        .runtime()
        .join("boxes")
        .join(scene.record()["id"].as_str().unwrap_or_default());
    eventually("its processes are there again", || runtime.join("orders").exists());
    scene.server.kill_and_serve_again();
    let _ = waking.join();
    assert_eq!(scene.run("print(x + 3)"), "44");
    assert_eq!(scene.shell("cat /root/kept").0, "kept");
    let twice = scene.shell("cat /tmp/twice 2>/dev/null | wc -l").0;
    assert!(["0", "1"].contains(&twice.as_str()), "a request was carried out {twice} times");
    let supervisors = scene.monitor();
    assert!(lives(supervisors));
    scene.server.ok(&["rm", "--force", "box"]);
    eventually("nothing of it is left", || !lives(supervisors) && !memory.exists());
}
