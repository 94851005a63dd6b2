//! Forks of process sandboxes: what they have of their original, what they have not, and that they are made
//! all or none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::{Burrow, agent_path, bridge_path, eventually, have_or_skip, skip};

/// Changes a root in all ways that a layer can record.
const CHANGES: &str = r#"
import os, stat
os.makedirs("/opt/made/deep/er")
for name in ["a", "b b", "ü"]:
    open("/opt/made/deep/" + name, "w").write(name * 1000)
os.link("/opt/made/deep/a", "/opt/made/deep/er/hard")
os.symlink("../a", "/opt/made/deep/er/soft")
os.symlink("/nowhere", "/opt/made/dangling")
os.mkfifo("/opt/made/deep/fifo")
os.chmod("/opt/made/deep/a", 0o640)
os.chmod("/opt/made/deep/er", 0o2775)
try: os.chown("/opt/made/deep/er", 5, 6)
except OSError: pass
with open("/opt/made/sparse", "wb") as file:
    file.seek(8 << 20); file.write(b"end")
try: os.setxattr("/opt/made/deep/a", "user.note", b"kept")
except OSError: pass
os.utime("/opt/made/deep/a", (1, 987654321.5))
open("/tmp/t", "w").write("tmp"); open("/dev/shm/s", "w").write("shm"); open("/run/r", "w").write("run")
open("/etc/added", "w").write("etc")
victims = [p for p in ["/usr/share/doc", "/usr/share/man", "/usr/share/info"] if os.path.isdir(p)]
def gone(path):
    for top, directories, files in os.walk(path, topdown=False):
        for name in files: os.unlink(top + "/" + name)
        for name in directories:
            inner = top + "/" + name
            os.unlink(inner) if os.path.islink(inner) else os.rmdir(inner)
    os.rmdir(path)
for victim in victims: gone(victim)
if victims:
    os.mkdir(victims[0]); open(victims[0] + "/only", "w").write("this")
for file in ["/etc/issue", "/etc/os-release", "/etc/debian_version"]:
    if os.path.lexists(file): os.unlink(file); break
"#;

/// All that can be seen of what was changed.
const LISTING: &str = r#"
import hashlib, os
places = ["/opt/made", "/tmp", "/dev/shm", "/run", "/etc", "/usr/share/doc", "/usr/share/man", "/usr/share/info"]
own = {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/ssl/burrow-authorities.pem"}
numbers = {}
def show(path):
    s = os.lstat(path)
    line = [path, oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink]
    if path.startswith("/opt/made"): line.append(s.st_mtime_ns)
    if os.path.islink(path): line.append(os.readlink(path))
    elif os.path.isfile(path):
        line.append(s.st_size)
        line.append(s.st_blocks * 512 < 1 << 20)
        line.append(numbers.setdefault(s.st_ino, len(numbers)) if s.st_nlink > 1 and path.startswith("/opt/made") else 0)
        try: line.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
        except OSError as error: line.append(str(error))
        try: line.append([(n, os.getxattr(path, n)) for n in os.listxattr(path)])
        except OSError: pass
    print(line)
for place in places:
    if not os.path.isdir(place): print(place, "is gone"); continue
    for top, directories, files in os.walk(place):
        directories.sort()
        for name in sorted(directories) + sorted(files):
            if top + "/" + name not in own: show(top + "/" + name)
"#;

fn python(burrow: &Burrow, name: &str, code: &str) -> String {
    burrow.ok(&["exec", name, "--", "python3", "-c", code])
}

fn forked(burrow: &Burrow, arguments: &[&str]) -> Value {
    let all = [&["fork", "--json"], arguments].concat();
    serde_json::from_str(&burrow.ok(&all)).unwrap()
}

fn names(forked: &Value) -> Vec<&str> {
    let forks = forked["forks"].as_array().unwrap();
    forks.iter().map(|fork| fork["name"].as_str().unwrap()).collect()
}

fn assert_same_files(burrow: &Burrow) {
    python(burrow, "work", CHANGES);
    let original = python(burrow, "work", LISTING);
    assert!(
        original.contains("/opt/made/sparse") && original.contains("'/opt/made/deep/er/hard'"),
        "{original}"
    );
    let forked = forked(burrow, &["work", "--count", "2"]);
    assert_eq!(names(&forked), ["work-1", "work-2"]);
    assert_eq!(forked["report"]["memory"], false);
    assert!(forked["report"]["bytes"].as_u64().unwrap() > 8 << 20, "{forked}");
    for name in names(&forked) {
        let copy = python(burrow, name, LISTING);
        for (one, other) in original.lines().zip(copy.lines()) {
            assert_eq!(one, other);
        }
        assert_eq!(original.lines().count(), copy.lines().count());
    }
    // They part from here on, and a fork of a fork has what its parent has.
    burrow.ok(&[
        "exec",
        "work-1",
        "--",
        "sh",
        "-c",
        "echo mine >/opt/made/mine; rm -r /opt/made/deep",
    ]);
    assert_eq!(burrow.ok(&["fork", "work-1"]), "work-1-1\n");
    let shown = burrow.ok(&[
        "exec",
        "work-1-1",
        "--",
        "sh",
        "-c",
        "cat /opt/made/mine; hostname; ls /opt/made",
    ]);
    assert_eq!(shown, "mine\nwork-1-1\ndangling\nmine\nsparse\n");
    assert_eq!(python(burrow, "work", LISTING), original);
}

#[test]
fn a_fork_has_the_files_of_its_original_in_memory() {
    if !have_or_skip("python3") {
        return;
    }
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    assert_same_files(&burrow);
    let shown: Value =
        serde_json::from_str(&burrow.ok(&["inspect", "--json", "work-1-1"])).unwrap();
    let ancestors: Vec<_> =
        shown["ancestors"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(ancestors, ["work-1", "work"]);
    let shown = burrow.ok(&["inspect", "work"]);
    let mut words = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert!(words.any(|words| words == ["forks", "work-1", "work-1-1", "work-2"]), "{shown}");
    let events = burrow.ok(&["events", "--json"]);
    assert!(
        events.contains(r#""kind":"forked""#) && events.contains(r#""forks":["work-1","work-2"]"#)
    );
    burrow.end_daemon();
}

#[test]
fn a_fork_has_the_files_of_its_original_with_limits_and_its_environment() {
    if !have_or_skip("python3") {
        return;
    }
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work", "--memory", "256M", "--env", "COLOUR=blue and green"]);
    assert_same_files(&burrow);
    let colour = burrow.ok(&["exec", "work-2", "--", "sh", "-c", "echo $COLOUR"]);
    assert_eq!(colour, "blue and green\n");
    let record: Value = serde_json::from_str(&burrow.ok(&["inspect", "--json", "work-2"])).unwrap();
    assert_eq!((&record["memory_mib"], &record["hostname"]), (&json!(256), &json!("work-2")));
    burrow.end_daemon();
}

#[test]
fn forks_of_a_notebook_diverge() {
    if !have_or_skip("python3") {
        return;
    }
    let server = Server::dev();
    let client = Client::new(server.url());
    server.ok(&["start", "--name", "work"]);
    let opened = json!({ "name": "count", "sandbox": "work" });
    client.post("/v1/notebooks", &opened).expect(200);
    let run = |notebook: &str, code: &str| {
        let path = format!("/v1/notebooks/default/{notebook}/run");
        let answer = client.post(&path, &json!({ "code": code })).expect(200).json();
        answer["stdout"].as_str().unwrap().trim().to_owned()
    };
    run("count", "n = 40\nlist = [1, 2]\nlist.append(list)");
    server.ok(&["exec", "work", "--", "sh", "-c", "nohup sleep 600 >/dev/null 2>&1 &"]);
    let asked = json!({ "names": ["left", "right"] });
    let forked = client.post("/v1/sandboxes/default/work/fork", &asked).expect(201).json();
    let carried = &forked["report"]["notebooks"];
    assert_eq!(carried[0], json!({ "from": "count", "notebook": "count-left", "sandbox": "left" }));
    assert_eq!(carried.as_array().unwrap().len(), 2, "{forked}");
    assert_eq!(forked["report"]["left"].get("contexts"), None, "{forked}");
    assert_eq!(run("count", "n += 1; print(n)"), "41");
    assert_eq!(run("count-left", "n += 2; print(n, list[2] is list)"), "42 True");
    assert_eq!(run("count-right", "n += 3; print(n)"), "43");
    assert_eq!(run("count-left", "n += 2; print(n)"), "44");
    assert_eq!(run("count", "n += 1; print(n)"), "42");
}

#[test]
fn what_is_not_carried_is_named() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "-d", "work", "--", "sleep", "654"]);
    let forked = forked(&burrow, &["work"]);
    let sessions = forked["report"]["left"]["sessions"].as_array().unwrap();
    assert!(sessions.iter().any(|one| one.as_str().unwrap().contains("sleep 654")), "{forked}");
    let listed =
        burrow.ok(&["exec", "work-1", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]);
    assert!(!listed.contains("sleep 654"), "{listed}");
    burrow.end_daemon();
}

/// How many numbers each fork draws.
const DRAWN: usize = 100;

#[test]
fn fifty_forks_at_once_have_nothing_random_in_common() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&[
        "exec",
        "work",
        "--",
        "sh",
        "-c",
        "dd if=/dev/urandom of=/opt/m bs=1M count=1 status=none",
    ]);
    let began = Instant::now();
    let forked = forked(&burrow, &["work", "--count", "50"]);
    let took = began.elapsed();
    assert!(took < tests::slowed(Duration::from_secs(20)), "{took:?}");
    let names = names(&forked);
    assert_eq!(names.len(), 50);
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for (name, fork) in names.iter().zip(forked["forks"].as_array().unwrap()) {
        let script = format!(
            "hostname; for n in $(seq {DRAWN}); do cat /proc/sys/kernel/random/uuid; done; \
             od -An -N 800 -t x8 -w8 /dev/urandom; cat /opt/m | sha256sum >/dev/null"
        );
        let drawn = burrow.ok(&["exec", name, "--", "sh", "-c", &script]);
        let own = [fork["id"].to_string(), fork["address"].to_string(), fork["pid"].to_string()];
        let all: Vec<_> = drawn.lines().map(str::to_owned).chain(own).collect();
        assert_eq!(all.len(), 2 * DRAWN + 4);
        count += all.len();
        seen.extend(all);
    }
    assert_eq!(seen.len(), count, "{} of {count} were drawn twice", count - seen.len());
    // A fork beside a cold start, each five times.
    let mean = |arguments: &dyn Fn(usize) -> Vec<String>| {
        let began = Instant::now();
        for number in 0..5 {
            let arguments = arguments(number);
            burrow.ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        }
        began.elapsed() / 5
    };
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    let cold = mean(&|number| words(format!("start --name cold-{number}")));
    let fork = mean(&|number| words(format!("fork work warm-{number}")));
    eprintln!("50 forks: {took:?}; one fork: {fork:?}; a start: {cold:?}");
    burrow.end_daemon();
}

#[test]
fn a_fork_under_a_flood_loses_no_byte_on_either_side() {
    if !have_or_skip("python3") {
        return;
    }
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script = "import sys\nfor n in range(1000000):\n  for f in (sys.stdout, log): print(n, file=f, flush=True)";
    let code = format!("log = open('/var/tmp/log', 'w')\n{script}");
    let mut flood = burrow.command(&["exec", "work", "--", "python3", "-c", &code]);
    let flood = flood.stdout(std::process::Stdio::piped()).spawn().unwrap();
    eventually("it writes", || {
        burrow
            .run(&["exec", "work", "--", "sh", "-c", "test $(wc -l </var/tmp/log) -gt 1000"])
            .status
            .success()
    });
    let reading = std::thread::spawn(move || flood.wait_with_output().unwrap());
    let forked = forked(&burrow, &["work", "--count", "3"]);
    let output = reading.join().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.lines().enumerate().all(|(n, line)| line == n.to_string()));
    assert_eq!(lines.lines().count(), 1_000_000);
    if forked["report"]["frozen"] == false {
        return skip("nothing can be frozen here");
    }
    let logs: Vec<_> = names(&forked)
        .into_iter()
        .map(|name| burrow.ok(&["exec", name, "--", "cat", "/var/tmp/log"]))
        .collect();
    assert!(logs.iter().all(|log| *log == logs[0]), "they parted at one moment");
    assert!(lines.starts_with(&logs[0]) && logs[0].len() > 1000);
    assert!(logs[0].len() < lines.len(), "the original has gone on");
    burrow.end_daemon();
}

#[test]
fn forks_are_made_all_or_none() {
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    fs::write(&config, "[caps.per_namespace]\nsandboxes = 4\n").unwrap();
    let server = Server::start_in(burrow, &["--config", config.to_str().unwrap(), "--dev"]);
    let client = Client::new(server.url());
    for name in ["work", "other"] {
        client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
    }
    let path = "/v1/sandboxes/default/work/fork";
    let listed = || server.ok(&["ps", "--all", "--quiet"]).lines().count();
    assert_eq!(client.post(path, &json!({ "count": 3 })).expect(429).code(), "cap_exceeded");
    assert_eq!(listed(), 2);
    client.post(path, &json!({ "names": ["free", "other"] })).expect(409);
    assert_eq!(listed(), 2);
    assert_eq!(client.post(path, &json!({ "count": 0 })).expect(400).code(), "invalid");
    client.post(path, &json!({ "count": 101 })).expect(400);
    client.post(path, &json!({ "count": 2 })).expect(201);
    client.post(path, &json!({})).expect(429);
    // One that was paused by hand stays so.
    client.post("/v1/sandboxes/default/work-1/kill", &json!({})).expect(200);
    if client.post("/v1/sandboxes/default/work/pause", &json!({})).status == 200 {
        client.post(path, &json!({})).expect(409);
    }
    client.post("/v1/sandboxes/default/work-1/fork", &json!({})).expect(409);
    client.post("/v1/sandboxes/default/none/fork", &json!({})).expect(404);
}

#[test]
fn a_key_of_another_namespace_cannot_fork_and_a_repeated_call_forks_once() {
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    fs::write(&config, "[process]\nroot = \"/\"\n").unwrap();
    let server = Server::start_in(burrow, &["--config", config.to_str().unwrap()]);
    let client = |arguments: &[&str]| {
        let made = server.ok(&[&["keygen", "--json"], arguments].concat());
        let made: Value = serde_json::from_str(&made).unwrap();
        Client::new(server.url()).key(made["key"].as_str().unwrap())
    };
    let own = client(&["--namespace", "team"]);
    own.post("/v1/sandboxes", &json!({ "namespace": "team", "name": "work" })).expect(201);
    let path = "/v1/sandboxes/team/work/fork";
    client(&["--namespace", "other"]).post(path, &json!({})).expect(403);
    client(&["--namespace", "team", "--scope", "read"]).post(path, &json!({})).expect(403);
    let fork = || {
        let headers = [("content-type", "application/json"), ("idempotency-key", "once")];
        own.send("POST", path, &headers, b"{}").expect(201)
    };
    let first = fork();
    assert_eq!(first.json()["forks"][0]["namespace"], "team");
    let again = fork();
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body, first.body);
    assert_eq!(server.ok(&["ps", "--all", "--quiet"]).lines().count(), 2);
    let log = server.ok(&["audit", "--json", "-n", "1000"]);
    assert!(
        log.lines().any(|line| line.contains("fork_sandbox") && line.contains("team")),
        "{log}"
    );
}

#[test]
fn a_sandbox_that_sleeps_is_woken_for_its_fork() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let body = json!({ "name": "work", "idle_ttl_ms": 500, "on_idle": "pause" });
    if client.post("/v1/sandboxes", &body).status != 201 {
        return skip("nothing can be paused here");
    }
    let one = "/v1/sandboxes/default/work";
    eventually("it sleeps", || client.get(one).expect(200).json()["asleep"] == true);
    let forked =
        client.post(&format!("{one}/fork"), &json!({ "names": ["copy"] })).expect(201).json();
    assert_eq!((names(&forked), &forked["forks"][0]["on_idle"]), (vec!["copy"], &json!("pause")));
}

#[test]
fn try_shows_what_a_command_changes_and_changes_nothing() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let prepare =
        "mkdir -p /opt/made; cd /opt/made; echo 1 >old; echo 1 >same; echo 1 >gone; echo 1 >mode";
    burrow.ok(&["exec", "work", "--", "sh", "-c", prepare]);
    let script = "cd /opt/made; echo 2 >old; echo 2 >new; rm gone; chmod 600 mode; touch same; mkdir d; \
                  echo x >/etc/added; echo x >>/etc/passwd; rm /etc/shells; echo seen; exit 7";
    let run = burrow.run(&["try", "work", "--", "sh", "-c", script]);
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(7), "{stderr}");
    let expected = "seen\nA /etc/added\nM /etc/passwd\nD /etc/shells\nA /opt/made/d\nD /opt/made/gone\n\
                    M /opt/made/mode\nA /opt/made/new\nM /opt/made/old\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), expected, "{stderr}");
    assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "work\n");
    assert_eq!(
        burrow.ok(&["exec", "work", "--", "cat", "/opt/made/old", "/opt/made/gone"]),
        "1\n1\n"
    );
    // What can be refused is refused before a fork is made.
    let run = burrow.run(&["try", "work", "--sesion", "one"]);
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(stderr.contains("unknown option --sesion"), "{stderr}");
    let forks = burrow.ok(&["events", "--json", "--kind", "forked"]);
    assert_eq!(forks.lines().count(), 1, "no fork was made for it: {forks}");
    // Nothing is left of a fork whose command cannot be started.
    let run = burrow.run(&["try", "work", "--", "/nowhere"]);
    assert_eq!(run.status.code(), Some(127));
    assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "work\n");
    let shown = burrow.ok(&["try", "--keep", "--json", "work", "--", "rm", "/opt/made/old"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["changes"], json!([{ "path": "/opt/made/old", "change": "D" }]));
    assert_eq!(shown["fork"], "work-1");
    assert!(!burrow.run(&["exec", "work-1", "--", "test", "-e", "/opt/made/old"]).status.success());
    burrow.end_daemon();
}

/// An ordinary user, who need not exist.
const USER: u32 = 1000;

#[test]
fn an_ordinary_users_sandbox_is_forked_too() {
    if !geteuid().is_root() || !have_or_skip("python3") {
        return skip("the other tests run as an ordinary user already");
    }
    let place = tempfile::TempDir::new().unwrap();
    for name in ["run", "state", "cache", "home"] {
        fs::create_dir(place.path().join(name)).unwrap();
        nix::unistd::chown(&place.path().join(name), Some(USER.into()), Some(USER.into())).unwrap();
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(bridge_path());
        command.args(arguments).uid(USER).gid(USER).current_dir("/").env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("BURROW_AGENT", agent_path());
        command.env("HOME", place.path().join("home"));
        command.env("BURROW_RUNTIME_DIR", place.path().join("run"));
        command.env("BURROW_STATE_DIR", place.path().join("state"));
        command.env("BURROW_CACHE_DIR", place.path().join("cache"));
        command.output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let started = run(&["start", "--name", "work"]);
    if !started.status.success() {
        return skip(&format!("ordinary users have no sandboxes here: {}", text(&started.stderr)));
    }
    let script = "mkdir -p /sandbox/deep /top; echo one >/sandbox/deep/f; echo two >/tmp/t; echo three >/top/t; \
                  ln /sandbox/deep/f /sandbox/g";
    let wrote = run(&["exec", "work", "--", "sh", "-c", script]);
    assert!(wrote.status.success(), "{}", text(&wrote.stderr));
    let forked = run(&["fork", "work"]);
    assert!(forked.status.success(), "{}", text(&forked.stderr));
    let shown = run(&[
        "exec",
        "work-1",
        "--",
        "sh",
        "-c",
        "cat /sandbox/deep/f /tmp/t /top/t; stat -c %h /sandbox/g",
    ]);
    assert_eq!(text(&shown.stdout), "one\ntwo\nthree\n2\n", "{}", text(&shown.stderr));
    for name in ["work", "work-1"] {
        run(&["rm", "--force", name]);
    }
    run(&["daemon", "stop"]);
}
