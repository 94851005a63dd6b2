//! What becomes of names and connections when their sandbox, its bridge or a neighbour comes and goes,
//! and what is reported of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use nix::mount::{MsFlags, mount};
use serde_json::json;
use tests::eventually;
use tests::own_host::OwnHost;

use super::{NAME, Scene};

/// A program in the sandbox that has a connection: prints its address, then all that it receives over it,
/// and how it ended. It asks again with each line of its input.
const KEEPS: &str = r#"
import socket, sys
address = socket.gethostbyname(sys.argv[1])
print(address, flush=True)
for line in sys.stdin:
    peer = socket.socket(); peer.settimeout(60)
    try:
        peer.connect((address, 5432))
        while received := peer.recv(100): print(received, flush=True)
        print("ended", flush=True)
    except OSError as error: print(type(error).__name__, flush=True)
"#;

pub(super) struct Keeper(Child, BufReader<std::process::ChildStdout>);

impl Keeper {
    pub(super) fn start(scene: &Scene, host: &str) -> Self {
        let arguments = ["exec", "-i", NAME, "--", "python3", "-c", KEEPS, host];
        let mut command = scene.server.command(&arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self(child, stdout)
    }

    pub(super) fn again(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(super) fn end(mut self) {
        drop(self.0.stdin.take());
        self.1.read_to_string(&mut String::new()).unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn names_keep_their_addresses_over_restarts_of_the_bridge() {
    let Some(mut scene) = Scene::or_skip(&["*.example.com:5432", "example.org"]) else { return };
    let names: Vec<_> = (0..20).map(|number| format!("h{number}.example.com")).collect();
    let ask = format!("getent ahostsv4 {} | awk '{{print $1}}' | uniq", names.join(" "));
    let addresses = scene.run(&ask).ok();
    assert_eq!(addresses.lines().count(), 20, "{addresses}");
    let mut keeper = Keeper::start(&scene, "db.example.com");
    let address = keeper.line();
    assert!(address.starts_with("198.18.") && !addresses.contains(&format!("{address}\n")));
    for orderly in [false, true] {
        if orderly {
            scene.server.end_and_serve_again();
        } else {
            scene.server.kill_and_serve_again();
        }
        eventually("the sandbox reaches its names again", || {
            scene.run("curl -sS -m 20 http://example.org/hello").code == Some(0)
        });
        assert_eq!(scene.run(&ask).ok(), addresses);
        // A program that knows its address from before is led to the same name.
        let code = format!(
            "import socket; print(socket.create_connection(('{address}', 5432), 20).recv(100))"
        );
        assert_eq!(scene.python(&code).ok(), "b'who are you?\\n'\n");
    }
    keeper.0.kill().unwrap();
    keeper.0.wait().unwrap();
}

/// A program that goes on while there is no bridge, writes into a file of its sandbox, and has asked once.
fn keeps_in_the_sandbox(scene: &Scene) {
    let script = "cat > /var/keeps.py; mkfifo /var/asks; \
         (python3 /var/keeps.py db.example.com < /var/asks > /var/said 2>&1 &); echo started";
    let started =
        scene.server.feed(&["exec", "-i", NAME, "--", "sh", "-c", script], KEEPS.as_bytes());
    assert!(started.status.success(), "{started:?}");
    let asks = "exec 3<>/var/asks; sleep infinity";
    scene.run(&format!("setsid sh -c '{asks}' >/dev/null 2>&1 & echo >> /var/asks")).ok();
}

#[test]
fn a_connection_of_a_bridge_that_ends_is_reset_and_the_next_one_is_carried() {
    let Some(mut scene) = Scene::or_skip(&["db.example.com:5432"]) else { return };
    keeps_in_the_sandbox(&scene);
    let stdout = |scene: &Scene| scene.run("cat /var/said").stdout;
    eventually("it is connected", || stdout(&scene).contains("who are you"));
    scene.server.end_and_serve_again();
    eventually("its connection broke off, and not in order", || stdout(&scene).contains("Error"));
    assert!(!stdout(&scene).contains("ended"), "{}", stdout(&scene));
    scene.run("echo >> /var/asks").ok();
    eventually("it is connected again", || stdout(&scene).matches("who are you").count() == 2);
}

#[test]
fn a_connection_of_a_bridge_that_was_killed_is_reset_when_another_has_come() {
    let Some(mut scene) = Scene::or_skip(&["db.example.com:5432"]) else { return };
    keeps_in_the_sandbox(&scene);
    let stdout = |scene: &Scene| scene.run("cat /var/said").stdout;
    eventually("it is connected", || stdout(&scene).contains("who are you"));
    // Twice, because what follows a bridge is followed in its turn.
    for count in 1..=2 {
        scene.server.kill_and_serve_again();
        // The agent alone would give the dead one a minute, which is more than is waited here.
        eventually("its connection broke off", || stdout(&scene).matches("Error").count() == count);
        assert!(!stdout(&scene).contains("ended"), "{}", stdout(&scene));
        scene.run("echo >> /var/asks").ok();
        eventually("it is connected again", || {
            stdout(&scene).matches("who are you").count() == count + 1
        });
    }
}

#[test]
fn each_sandbox_has_its_own_rules_and_ends_by_itself() {
    let Some(scene) = Scene::or_skip(&["example.org", "db.example.com:5432"]) else { return };
    scene.create("b", &["example.net"]);
    let of = |name: &str, host: &str| {
        scene.run_in(name, &format!("curl -sS -m 20 https://{host}/hello"), &[])
    };
    of("a", "example.org").ok();
    of("b", "example.net").ok();
    of("a", "example.net").fails();
    of("b", "example.org").fails();
    let mut keeper = Keeper::start(&scene, "db.example.com");
    let address = keeper.line();
    keeper.again();
    assert_eq!(keeper.line(), "b'who are you?\\n'");
    // An address of one is nothing in another.
    let code = format!("import socket; socket.create_connection(('{address}', 5432), 20)");
    scene.python_in("b", &code).fails();
    scene.client().delete("/v1/sandboxes/default/a?force=true").expect(200);
    keeper.end();
    scene.is_audited("the connection of the sandbox that is gone", |record| {
        record["operation"] == "egress.connection" && record["facts"]["host"] == "db.example.com"
    });
    of("b", "example.net").ok();
    // One of the same name begins with nothing.
    scene.create("a", &[]);
    of("a", "example.org").fails();
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", scene.server.daemon_pid())).unwrap();
    let open = descriptors.flatten().filter(|one| {
        std::fs::read_link(one.path()).is_ok_and(|to| to.to_string_lossy().contains("socket:"))
    });
    assert!(open.count() < 40);
}

#[test]
fn each_decision_is_in_the_audit_log_and_in_the_journal() {
    let Some(scene) = Scene::or_skip(&["*.example.org"]) else { return };
    scene.run("curl -sS -m 20 https://www.example.org/hello").ok();
    scene.run("curl -sS -m 20 https://example.net/hello").fails();
    scene.run("curl -sS -m 20 -H 'Host: example.net' http://www.example.org/hello").ok();
    scene.is_audited("the end", |record| record["operation"] == "egress.ended");
    scene.is_refused("www.example.org", "it is for the host");
    let audited = scene.audited();
    for (operation, outcome, facts) in [
        ("egress.name", "ok", json!({ "host": "www.example.org", "rule": "*.example.org" })),
        (
            "egress.connection",
            "ok",
            json!({ "host": "www.example.org", "port": 443, "rule": "*.example.org", "address": "93.184.216.34:443" }),
        ),
        ("egress.name", "refused", json!({ "host": "example.net", "why": "no rule allows it" })),
    ] {
        let found = audited.iter().find(|record| {
            record["operation"] == operation
                && record["outcome"] == outcome
                && record["facts"] == facts
        });
        let found = found.unwrap_or_else(|| panic!("no {operation} with {facts}: {audited:#?}"));
        assert_eq!(found["sandbox"], NAME);
        assert_eq!(found["namespace"], "default");
        assert_eq!(found["policy"], "egress");
        assert_eq!(found["who"]["kind"], "bridge");
    }
    let page = scene.client().get("/v1/audit?operation=egress.ended").expect(200).json();
    let ended = &page["records"][0]["facts"];
    assert!(ended["received_bytes"].as_u64().unwrap() > 100, "{page}");
    let journal = std::fs::read_to_string(scene.server.log()).unwrap();
    for words in [
        "egress: the name www.example.org is allowed by \"*.example.org\"",
        "egress: the name example.net is refused: no rule allows it",
        "egress: a connection to www.example.org:443 is allowed",
        "egress: a connection to www.example.org:443 is over",
    ] {
        assert!(journal.contains(words), "{words}: {journal}");
    }
}

#[test]
fn a_sandbox_has_files_of_its_own_in_etc_where_that_is_a_mount_of_the_host() {
    let Some(host) = OwnHost::or_skip() else { return };
    let (none, itself) = (None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC);
    mount(Some("/etc"), "/etc", none, itself, none).unwrap();
    let bare = host.internet().bridge(&[]);
    let changed = "echo own > /etc/own && cat /etc/own && head -n 1 /etc/resolv.conf";
    let said = bare.ok(&["run", "--", "sh", "-c", changed]);
    assert!(said.starts_with("own\n") && said.contains("no name server"), "{said}");
    assert!(!Path::new("/etc/own").exists(), "it is the host's");
    bare.ok(&["start", "--name", NAME, "--egress", "example.com"]);
    let said = bare.ok(&["exec", NAME, "--", "curl", "-s", "http://example.com/hello"]);
    assert_eq!(said, "hello from example.com\n");
}

#[test]
fn a_sandbox_has_name_servers_of_its_own_where_the_hosts_are_a_mount() {
    // As in containers, where the host's own file is one.
    let Some(host) = OwnHost::or_skip() else { return };
    let bare = host.internet().bridge(&[]);
    let file = bare.ok(&["run", "--", "cat", "/etc/resolv.conf"]);
    assert!(file.contains("no name server"), "{file}");
    bare.ok(&["start", "--name", NAME, "--egress", "example.com"]);
    let output = bare.ok(&["exec", NAME, "--", "curl", "-s", "http://example.com/hello"]);
    assert_eq!(output, "hello from example.com\n");
}
