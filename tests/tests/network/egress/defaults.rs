//! What a sandbox may reach by default, at whatever door it is asked for; and machines that
//! were ready before anybody knew whose they would be.

use serde_json::{Value, json};
use tests::eventually;
use tests::internet::Internet;
use tests::mcp::{VERSION, Web};

use super::{NAME, Scene};

const DEFAULT: [&str; 2] = ["--set", "defaults.egress=example.org,*.example.net"];
const RULES: [&str; 2] = ["example.org", "*.example.net"];

fn scene_or_skip(options: &[&str]) -> Option<Scene> {
    let internet = Internet::or_skip()?;
    Some(Scene { server: internet.bridge(&[&DEFAULT, options].concat()), internet })
}

impl Scene {
    /// The rules that a sandbox has.
    fn rules_of(&self, name: &str) -> Value {
        self.client().get(&format!("/v1/sandboxes/default/{name}")).expect(200).json()["egress"]
            .clone()
    }

    fn reaches(&self, name: &str, host: &str) -> bool {
        let fetch = format!("curl -sS -m 20 http://{host}/hello");
        self.run_in(name, &fetch, &[]).stdout == format!("hello from {host}\n")
    }

    /// Makes a sandbox by JSON-RPC.
    fn rpc(&self, name: &str, config: &Value) -> Value {
        let params = json!({ "sandbox": name, "namespace": "default", "config": config });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start", "params": params });
        self.client().post("/api/v1/rpc", &body).json()
    }
}

#[test]
fn the_default_rules_apply_at_every_door() {
    let Some(scene) = scene_or_skip(&[]) else { return };
    let mut tools = Web::open(scene.client(), VERSION);
    let ok = |message: Value| assert!(message.get("error").is_none(), "{message}");

    scene.client().post("/v1/sandboxes", &json!({ "name": "api" })).expect(201);
    ok(scene.rpc("rpc", &json!({})));
    assert_eq!(tools.call("sandbox_create", &json!({ "name": "mcp" }))["isError"], false);
    scene.server.ok(&["start", "--name", "cli"]);
    for name in ["api", "rpc", "mcp", "cli"] {
        assert_eq!(scene.rules_of(name), json!(RULES), "{name}");
        assert!(scene.reaches(name, "example.org"), "{name}");
        assert!(!scene.reaches(name, "example.com"), "{name}");
    }

    // What is named takes its place, and is not added to it.
    let other = json!(["example.com"]);
    scene.client().post("/v1/sandboxes", &json!({ "name": "api2", "egress": other })).expect(201);
    ok(scene.rpc("rpc2", &json!({ "egress": other })));
    let body = json!({ "name": "mcp2", "egress": other });
    assert_eq!(tools.call("sandbox_create", &body)["isError"], false);
    scene.server.ok(&["start", "--name", "cli2", "--egress", "example.com"]);
    for name in ["api2", "rpc2", "mcp2", "cli2"] {
        assert_eq!(scene.rules_of(name), other, "{name}");
        assert!(scene.reaches(name, "example.com"), "{name}");
        assert!(!scene.reaches(name, "example.org"), "{name}");
    }

    // And so does nothing.
    let nothing = json!([]);
    scene.client().post("/v1/sandboxes", &json!({ "name": "api3", "egress": nothing })).expect(201);
    ok(scene.rpc("rpc3", &json!({ "egress": nothing })));
    let body = json!({ "name": "mcp3", "egress": ["none"] });
    assert_eq!(tools.call("sandbox_create", &body)["isError"], false);
    scene.server.ok(&["start", "--name", "cli3", "--egress", "none"]);
    for name in ["api3", "rpc3", "mcp3", "cli3"] {
        assert_eq!(scene.rules_of(name), nothing, "{name}");
        assert!(!scene.reaches(name, "example.org"), "{name}");
        let listens = "awk '$4 == \"0A\"' /proc/net/tcp";
        assert_eq!(scene.run_in(name, listens, &[]).stdout, "", "{name}");
    }
    let among = json!({ "name": "api4", "egress": ["none", "example.org"] });
    let refused = scene.client().post("/v1/sandboxes", &among).expect(400);
    assert!(refused.text().contains("cannot be combined"), "{}", refused.text());
}

#[test]
fn a_namespace_may_have_a_default_of_its_own() {
    let Some(internet) = Internet::or_skip() else { return };
    let config = internet.served().with_file_name("namespaces.toml");
    let text = "[namespaces.ci]\negress = [\"example.com\"]\n[namespaces.shut]\negress = []\n";
    std::fs::write(&config, text).unwrap();
    let options = [&DEFAULT[..], &["--config", config.to_str().unwrap()]].concat();
    let scene = Scene { server: internet.bridge(&options), internet };
    for (namespace, expected) in
        [("default", json!(RULES)), ("ci", json!(["example.com"])), ("shut", json!([]))]
    {
        let body = json!({ "name": NAME, "namespace": namespace });
        let made = scene.client().post("/v1/sandboxes", &body).expect(201).json();
        assert_eq!(made["egress"], expected, "{namespace}");
    }
    let body = json!({ "name": "open", "namespace": "shut", "egress": ["example.org"] });
    let made = scene.client().post("/v1/sandboxes", &body).expect(201).json();
    assert_eq!(made["egress"], json!(["example.org"]));
}

#[test]
fn a_run_of_ones_own_has_no_default() {
    let Some(scene) = scene_or_skip(&[]) else { return };
    let config = scene.internet.served().with_file_name("burrow.toml");
    std::fs::write(&config, "[defaults]\negress = [\"example.org\"]\n").unwrap();
    let run = |more: &[&str]| {
        let fetch = ["--", "curl", "-sS", "-m", "20", "http://example.org/hello"];
        let words = [&["run"], more, &fetch].concat();
        let mut command = scene.server.command(&words);
        command.env("BURROW_CONFIG", &config);
        super::Ran::from(command.output().unwrap())
    };
    run(&[]).fails();
    run(&["--egress", "none"]).fails();
}

#[test]
fn invalid_default_rules_are_refused() {
    let burrow = tests::Burrow::new();
    for (rules, why) in [
        ("10.0.0.0/8", "is a URL or an address range"),
        ("a.*.org", "star in the wrong place"),
        ("none,example.org", "cannot be combined"),
    ] {
        let set = format!("defaults.egress={rules}");
        let output = burrow.run(&["serve", "--dev", "--set", &set]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(why), "{rules}: {text}");
    }
}

#[test]
fn a_machine_that_was_ready_before_reaches_what_its_owner_names_and_no_more() {
    let Some(scene) = scene_or_skip(&["--set", "pool.entries=python=2"]) else { return };
    let shelf = || -> Value {
        let shelves: Value = serde_json::from_str(&scene.server.ok(&["pool", "--json"])).unwrap();
        shelves[0].clone()
    };
    let cases: [(Value, &[&str], &[&str]); 4] = [
        (json!({}), &["example.org", "www.example.net"], &["example.com"]),
        (json!({ "egress": ["example.com"] }), &["example.com"], &["example.org"]),
        (json!({ "egress": [] }), &[], &["example.org", "example.com"]),
        (json!({ "egress": ["none"] }), &[], &["example.org", "example.com"]),
    ];
    for (count, (mut body, reached, refused)) in cases.into_iter().enumerate() {
        eventually("the pool has one", || shelf()["ready"] != 0);
        body["name"] = json!(NAME);
        body["image"] = json!("python");
        scene.client().post("/v1/sandboxes", &body).expect(201);
        assert_eq!(shelf()["claimed"], count + 1, "it came from the pool: {}", shelf());
        assert!(reached.iter().all(|host| scene.reaches(NAME, host)), "{body}");
        assert!(!refused.iter().any(|host| scene.reaches(NAME, host)), "{body}");
        let path = format!("/v1/sandboxes/default/{NAME}?force=true");
        scene.client().delete(&path).expect(200);
    }
}
