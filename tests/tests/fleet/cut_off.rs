//! A host that nothing reaches any more. Each host has a NATS server and a bridge on a network of its own, where packets
//! get lost and no connection is closed.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::cluster::{SERVERS, configuration};
use tests::fleet::nats_program;
use tests::http::{Answer, Client};
use tests::wired::Wired;
use tests::{Burrow, PATIENCE, eventually, slowed};

use super::safety::{lives, processes};

const GRACE: Duration = Duration::from_secs(16);
/// A lease counts from its last renewal, which is at most so much older than a cut.
const RENEWAL: Duration = Duration::from_millis(1_500);
/// How late a busy host may be.
const LATE: Duration = Duration::from_secs(2);
const LOST: &str = "/v1/sandboxes/default/lost";
/// Of NATS for clients and for its other servers, and of the bridge.
const PORTS: [u16; 3] = [4222, 6222, 7777];

fn at(host: usize, port: usize) -> SocketAddr {
    (Wired::address(host), PORTS[port]).into()
}

/// Of a bridge.
fn url(host: usize) -> String {
    format!("http://{}", at(host, 2))
}

struct NatsServer(Child);

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it was ours");
    }
}

/// A server of NATS for each host, with all their files in a directory.
fn start_nats(wired: &Wired, program: &Path, directory: &Path) -> Vec<NatsServer> {
    let routes = [0, 1, 2].map(|host| at(host, 1));
    let start = |host: usize| {
        let path = |kind: &str| directory.join(format!("s{host}.{kind}"));
        let text = configuration(host, &path("store"), at(host, 0), &routes);
        fs::write(path("conf"), text).expect("a configuration");
        let log = File::create(path("log")).expect("a log");
        let mut command = Command::new(program);
        command.arg("-c").arg(path("conf")).stdout(Stdio::null()).stderr(log);
        wired.inside(host, || NatsServer(command.spawn().expect("nats-server starts")))
    };
    (0..SERVERS).map(start).collect()
}

struct Host {
    name: String,
    burrow: Burrow,
    client: Client,
}

impl Host {
    /// With a workspace that all its sandboxes may write to.
    fn start(wired: &Wired, host: usize, shared: &Path) -> Self {
        let mut burrow = Burrow::new();
        let (name, address) = (format!("n{}", host + 1), at(host, 2).to_string());
        let workspace = format!(
            "[workspaces.shared]\npath = \"{}\"\nnamespaces = \"*\"\nmount = true\n",
            shared.display()
        );
        let config = burrow.scratch().join("burrow.toml");
        fs::write(&config, workspace).expect("a configuration");
        let set = [
            format!("fleet.servers=nats://{}", at(host, 0)),
            format!("fleet.node={name}"),
            format!("fleet.address={}", url(host)),
            format!("fleet.replicas={SERVERS}"),
            format!("fleet.grace={}s", GRACE.as_secs()),
        ];
        let mut options = vec!["--config", config.to_str().expect("UTF-8"), "--listen", &address];
        options.extend(set.iter().flat_map(|option| ["--set", option]));
        wired.inside(host, || burrow.serve_with(&options));
        let key = burrow.ok(&["keygen", "--scope", "run"]);
        let client = Client::new(&url(host)).key(key.trim());
        Self { name, burrow, client }
    }

    /// Whether it is in the fleet, with all others.
    fn has_joined(&self) -> bool {
        let listed = self.burrow.ok(&["node", "ls", "--json"]);
        let nodes: Vec<Value> = serde_json::from_str(&listed).expect("a list of nodes");
        let is_in = |node: &Value| node["here"] == true && node["trouble"].is_null();
        nodes.len() == SERVERS && nodes.iter().any(is_in)
    }

    /// Makes a sandbox here, and returns its id.
    fn make(&self, name: &str) -> String {
        let label = format!("node={}", self.name);
        self.burrow.ok(&["start", "--node-label", &label, "--name", name]);
        id(&self.client.get(&format!("/v1/sandboxes/default/{name}")))
    }

    /// One that may hang for as long as a host is out of reach.
    fn try_call(&self, method: &str, path: &str, body: &Value) -> Option<Answer> {
        let headers = [("content-type", "application/json"), ("idempotency-key", "once")];
        let headers = if method == "POST" { &headers[..] } else { &[] };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.client.try_send(method, path, headers, body.as_bytes(), Duration::from_secs(4))
    }
}

fn id(answer: &Answer) -> String {
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// A host whose server of NATS leads nothing that the others write to: they go on at once without it.
fn follower(hosts: &[Host]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let leaders = runtime.expect("a runtime").block_on(async {
        let client = async_nats::connect(format!("nats://{}", at(0, 0))).await.expect("NATS");
        let jetstream = async_nats::jetstream::new(client);
        let mut leaders = Vec::new();
        for bucket in ["KV_burrow-nodes", "KV_burrow-sandboxes"] {
            let stream = jetstream.get_stream(bucket).await.expect("all have joined");
            let cluster = stream.cached_info().cluster.as_ref().expect("it is of a cluster");
            leaders.extend(cluster.leader.clone());
        }
        leaders
    });
    let follows = |host: &usize| !leaders.contains(&format!("s{host}"));
    (0..hosts.len()).find(follows).expect("two lead at most")
}

/// When something was written to a file for the last time, and when the processes ended that did.
fn watch(file: &Path, processes: &[u64]) -> (Instant, Instant) {
    let bytes = || fs::metadata(file).map_or(0, |file| file.len());
    let (mut known, mut last, deadline) = (0, Instant::now(), Instant::now() + PATIENCE);
    while processes.iter().any(|pid| lives(*pid)) {
        let now = Instant::now();
        assert!(now < deadline, "{processes:?} run on");
        let found = bytes();
        if std::mem::replace(&mut known, found) != found {
            last = now;
        }
        thread::yield_now();
    }
    (last, Instant::now())
}

/// Repeats a call until it gets this status, and none before that it should not; then nothing of these lives.
fn until(
    status: u16,
    before: &[u16],
    processes: &[u64],
    call: impl Fn() -> Option<Answer>,
) -> (Instant, Answer) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = call();
        let living: Vec<_> = processes.iter().filter(|pid| lives(**pid)).collect();
        match answer {
            Some(answer) if answer.status == status => {
                assert!(living.is_empty(), "{} while {living:?} run", answer.text());
                return (Instant::now(), answer);
            }
            Some(answer) => assert!(before.contains(&answer.status), "{}", answer.text()),
            None => {}
        }
        assert!(Instant::now() < deadline, "no {status}");
        // Polled until the deadline.
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_host_that_is_cut_off_ends_what_it_had_before_others_say_that_it_is_lost() {
    let Some(program) = nats_program() else { return };
    let Some(wired) = Wired::or_skip(3) else { return };
    let directory = TempDir::with_prefix("burrow-cut-").expect("a directory");
    let shared = TempDir::with_prefix("burrow-shared-").expect("a directory");
    // The user of a sandbox is another one on the host.
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let _nats = start_nats(&wired, &program, directory.path());
    let hosts: Vec<_> = (0..SERVERS).map(|at| Host::start(&wired, at, shared.path())).collect();
    eventually("all are in the fleet", || hosts.iter().all(Host::has_joined));

    let cut = follower(&hosts);
    let [gone, one, other] = [cut, (cut + 1) % SERVERS, (cut + 2) % SERVERS].map(|at| &hosts[at]);
    let mut kept = vec![("kept1", one.make("kept1")), ("kept2", other.make("kept2"))];
    gone.make("taken");
    let made = json!({ "name": "lost", "workspace": "shared" });
    gone.client.post("/v1/sandboxes", &made).expect(201);
    let line = "while :; do echo . >>/workspace/ticks; sleep 0.05; done";
    let program = json!({ "session": "ticks", "argv": ["sh", "-c", line] });
    gone.client.post(&format!("{LOST}/sessions"), &program).expect(201);
    let processes = ["lost", "taken"].map(|name| processes(&gone.burrow, name)).concat();
    let ticks = shared.path().join("ticks");
    eventually("it runs", || ticks.exists());

    let cut_at = Instant::now();
    wired.cut(cut);
    let again = json!({ "name": "taken" });
    let (last_tick, ended, lost, (taken, answer)) = thread::scope(|scope| {
        let watched = scope.spawn(|| watch(&ticks, &processes));
        let lost = scope.spawn(|| {
            until(410, &[503], &processes, || other.try_call("GET", LOST, &Value::Null)).0
        });
        let taken = scope.spawn(|| {
            let take = || one.try_call("POST", "/v1/sandboxes", &again);
            until(201, &[409, 503], &processes, take)
        });
        // The others go on, and what they make is made.
        let body = json!({ "name": "during" });
        let call = || other.try_call("POST", "/v1/sandboxes", &body);
        kept.push(("during", id(&until(201, &[503], &[], call).1)));
        eventually("it is paused", || {
            let shown = gone.burrow.ok(&["inspect", "--json", "lost"]);
            serde_json::from_str::<Value>(&shown).expect("a record")["by_lease"] == true
        });
        // At the host itself, over a connection that does not come from outside.
        let client = Client::new(&url(cut)).key(gone.client.sent_key());
        let create = || client.post("/v1/sandboxes", &json!({ "name": "never" }));
        assert_eq!(wired.inside(cut, create).status, 503);
        let (last_tick, ended) = watched.join().expect("it ends");
        (last_tick, ended, lost.join().expect("it is lost"), taken.join().expect("it is taken"))
    });
    let after = |moment: Instant| moment - cut_at;
    let within = |moment, time: Duration| {
        let is_so = after(moment) + RENEWAL > time && after(moment) < time + slowed(LATE);
        assert!(is_so, "{:?} after the cut, and not {time:?}", after(moment));
    };
    within(last_tick, GRACE / 2);
    within(ended, GRACE);
    assert!(
        ended < lost && ended < taken,
        "{:?} {:?} {:?}",
        after(ended),
        after(lost),
        after(taken)
    );

    wired.heal(cut);
    eventually("it is in the fleet again", || hosts.iter().all(Host::has_joined));
    kept.push(("taken", id(&answer)));
    for (name, id_before) in &kept {
        for host in &hosts {
            let path = format!("/v1/sandboxes/default/{name}");
            // The servers of NATS choose leaders again.
            eventually("it is found", || host.client.get(&path).status != 503);
            assert_eq!(
                id(&host.client.get(&path).expect(200)),
                *id_before,
                "{name} at {}",
                host.name
            );
            host.client.post(&format!("{path}/exec"), &json!({ "argv": ["true"] })).expect(200);
        }
    }
    for host in &hosts {
        host.client.get(LOST).expect(410);
    }
    let here = |host: &Host| host.burrow.ok(&["ps", "--all", "--quiet"]).lines().count();
    assert_eq!(hosts.iter().map(here).sum::<usize>(), kept.len());
}
