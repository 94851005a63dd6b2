//! Secrets by name: each arrives in its sandbox, and its value is nowhere else.
//!
//! The canary: random values, one through each provider. A sandbox prints their digests, so that they
//! have arrived; then every file of the bridge, every word that it has printed or answered, and the
//! arguments and environments of all processes of the host are looked through for them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::{Burrow, eventually, sha256, written};

/// A larger file is not the bridge's.
const FILE_BYTES_MAX: usize = 256 << 20;

/// Words that nobody else says.
struct Canaries(Vec<String>);

impl Canaries {
    fn draw(count: usize) -> Self {
        let mut source = fs::File::open("/dev/urandom").unwrap();
        let mut draw = || {
            let mut bytes = [0; 18];
            source.read_exact(&mut bytes).unwrap();
            format!("canary{}", hex(&bytes))
        };
        Self((0..count).map(|_| draw()).collect())
    }

    /// Each in every form that it may have leaked in.
    fn forms(&self) -> Vec<String> {
        let forms = self.0.iter().flat_map(|value| {
            let bytes = value.as_bytes();
            // Of whatever stands around it, one of three is what it looks like in base64.
            let shifted = (0..3).map(|shift| {
                let padded = [vec![b' '; shift], bytes.to_vec()].concat();
                let text = base64(&padded);
                text[4..text.len() - 4].to_owned()
            });
            let reversed = value.chars().rev().collect();
            shifted.chain([value.clone(), hex(bytes), reversed]).collect::<Vec<_>>()
        });
        forms.collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let number = chunk.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - chunk.len()));
        let digit = |at: u32| DIGITS[(number >> (18 - 6 * at) & 63) as usize] as char;
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn holds(bytes: &[u8], forms: &[String]) -> Option<usize> {
    forms.iter().position(|form| {
        let form = form.as_bytes();
        bytes.windows(form.len()).any(|window| window == form)
    })
}

fn files_below(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_below(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

/// Looks through the files and the answers.
fn nowhere_on_disk(burrow: &Burrow, log: &Path, canaries: &Canaries) {
    let forms = canaries.forms();
    let stored =
        [burrow.state(), burrow.runtime()].iter().flat_map(|place| files_below(place)).collect();
    for path in [stored, vec![log.to_owned()]].concat() as Vec<PathBuf> {
        let Ok(mut bytes) = written(&path) else { continue };
        bytes.truncate(FILE_BYTES_MAX);
        let found = holds(&bytes, &forms);
        assert_eq!(found, None, "{} holds {}", path.display(), forms[found.unwrap_or(0)]);
    }
}

/// The parent of each process, and all that came of `roots`.
fn descendants(roots: &[i32]) -> HashSet<i32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        parents.extend(parent.map(|parent: i32| (pid, parent)));
    }
    let mut found: HashSet<i32> = roots.iter().copied().collect();
    loop {
        let new: Vec<_> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}

/// The processes of the host whose arguments or environment have a value, by their ids.
fn holders(canaries: &Canaries) -> Vec<i32> {
    let forms = canaries.forms();
    let mut holders = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |name| fs::read(entry.path().join(name)).unwrap_or_default();
        if ["cmdline", "environ"].iter().any(|name| holds(&read(name), &forms).is_some()) {
            holders.push(pid);
        }
    }
    holders
}

/// A bridge that knows a secret through each of the providers.
struct Scene {
    server: Server,
    canaries: Canaries,
    answers: Vec<Answer>,
}

const NAMES: [&str; 4] = ["from-env", "from-file", "from-credential", "from-command"];
const VARIABLES: [&str; 4] = ["FROM_ENV", "FROM_FILE", "NAMED_OTHERWISE", "FROM_COMMAND"];

impl Scene {
    fn new() -> Self {
        let canaries = Canaries::draw(4);
        let burrow = Burrow::new();
        let place = burrow.scratch().to_owned();
        let [_, file, credential, command] = &canaries.0[..] else { unreachable!() };
        fs::create_dir(place.join("credentials")).unwrap();
        fs::write(place.join("value"), format!("{file}\n")).unwrap();
        fs::write(place.join("credentials/c"), credential).unwrap();
        fs::write(place.join("printed"), command).unwrap();
        let config = place.join("burrow.toml");
        let text = format!(
            "[secrets.from-env]\nenv = \"BURROW_CANARY\"\nnamespaces = \"*\"\n\
             [secrets.from-file]\nfile = \"{0}/value\"\nnamespaces = [\"default\", \"team\"]\n\
             [secrets.from-credential]\ncredential = \"c\"\nas = \"NAMED_OTHERWISE\"\n\
             namespaces = [\"default\"]\n\
             [secrets.from-command]\ncommand = [\"/bin/cat\", \"{0}/printed\"]\nnamespaces = \"*\"\n\
             [secrets.broken]\ncommand = [\"/bin/sh\", \"-c\", \"cat {0}/printed; cat {0}/printed >&2; exit 3\"]\n\
             namespaces = \"*\"\n\
             [secrets.absent]\nfile = \"{0}/no-such\"\nnamespaces = \"*\"\n",
            place.display()
        );
        fs::write(&config, text).unwrap();
        let burrow = burrow
            .variable("BURROW_CANARY", &canaries.0[0])
            .variable("CREDENTIALS_DIRECTORY", place.join("credentials").to_str().unwrap());
        let options = ["--dev", "--set", "log.level=trace", "--config", config.to_str().unwrap()];
        Self { server: Server::start_in(burrow, &options), canaries, answers: Vec::new() }
    }

    fn client(&self) -> Client {
        Client::new(self.server.url())
    }

    fn ask(&mut self, method: &str, path: &str, value: &Value) -> Answer {
        let client = self.client();
        let answer = match method {
            "GET" | "DELETE" => client.send(method, path, &[], &[]),
            _ => client.send_json(method, path, value),
        };
        self.answers.push(answer.clone());
        answer
    }

    fn create(&mut self, body: &Value) -> Answer {
        self.ask("POST", "/v1/sandboxes", body)
    }

    fn bash(&mut self, which: &str, code: &str) -> String {
        let path = format!("/v1/sandboxes/{which}/run");
        let ran = self.ask("POST", &path, &json!({ "language": "bash", "code": code }));
        ran.expect(200).json()["stdout"].as_str().unwrap().to_owned()
    }

    /// Nothing has leaked, as far as can be seen from outside of sandboxes.
    fn look_everywhere(&self) {
        nowhere_on_disk(&self.server, &self.server.log(), &self.canaries);
        let forms = self.canaries.forms();
        for answer in &self.answers {
            assert_eq!(holds(&answer.body, &forms), None, "{}", answer.text());
        }
        let listed = self.server.ok(&["ps", "--all", "--quiet"]);
        for name in listed.lines() {
            for verb in [&["inspect", "--json", name][..], &["inspect", name], &["logs", name]] {
                let output = self.server.run(verb);
                let output = [output.stdout, output.stderr].concat();
                assert_eq!(holds(&output, &forms), None, "{verb:?}");
            }
        }
        // The sandbox itself may contain what it was given. The operator has given one to the daemon.
        let daemon = self.server.daemon_pid().as_raw();
        let within = self.in_boxes();
        let strangers: Vec<_> = holders(&self.canaries)
            .into_iter()
            .filter(|pid| *pid != daemon && !within.contains(pid))
            .collect();
        assert!(strangers.is_empty(), "{strangers:?} hold values");
    }

    /// Whatever runs in a sandbox, but for the two processes of its agent.
    fn in_boxes(&self) -> HashSet<i32> {
        let supervisors: Vec<_> = self
            .server
            .ok(&["ps", "--all", "--quiet"])
            .lines()
            .filter_map(|name| {
                let shown: Value =
                    serde_json::from_str(&self.server.ok(&["inspect", "--json", name])).unwrap();
                Some(shown["pid"].as_i64()? as i32)
            })
            .collect();
        let mut within = descendants(&supervisors);
        for supervisor in supervisors {
            within.remove(&supervisor);
            for init in tests::children(nix::unistd::Pid::from_raw(supervisor)) {
                within.remove(&init.as_raw());
            }
        }
        within
    }
}

/// Prints the digests of variables, one a line.
fn digests() -> String {
    let each = VARIABLES.map(|name| format!("printf %s \"${name}\" | sha256sum | cut -d ' ' -f 1"));
    each.join("; ")
}

#[test]
fn every_provider_reaches_the_sandbox_and_nobody_else() {
    let mut scene = Scene::new();
    let body = json!({ "name": "a", "secrets": NAMES, "env": { "PLAIN": "1" } });
    let made = scene.create(&body).expect(201).json();
    assert_eq!(made["secrets"], json!(NAMES));
    let env_names = made["env_names"].as_array().unwrap().clone();
    assert!(VARIABLES.iter().all(|name| env_names.contains(&json!(name))), "{made}");
    let expected: Vec<_> = scene.canaries.0.iter().map(|value| sha256(value)).collect();
    let printed = scene.bash("default/a", &digests());
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    // A program that is not a context has them too, and one that runs on is where they may be seen.
    let exec = json!({ "argv": ["sh", "-c", "printf %s $FROM_FILE | sha256sum"] });
    let ran = scene.ask("POST", "/v1/sandboxes/default/a/exec", &exec).expect(200).json();
    assert!(ran["stdout"].as_str().unwrap().starts_with(&expected[1]), "{ran}");
    scene.bash("default/a", "sleep 1000 & echo started");
    eventually("a program of the sandbox has its environment", || {
        let within = scene.in_boxes();
        holders(&scene.canaries).iter().any(|pid| within.contains(pid))
    });
    for path in
        ["/v1/sandboxes", "/v1/sandboxes/default/a", "/metrics", "/v1/sandboxes/default/a/logs"]
    {
        scene.ask("GET", path, &Value::Null);
    }
    scene.look_everywhere();
    // The next bridge knows the sandbox by what this one recorded.
    scene.server.kill_and_serve_again();
    let again = scene.ask("GET", "/v1/sandboxes/default/a", &Value::Null).expect(200).json();
    assert_eq!(again["secrets"], json!(NAMES));
    assert_eq!(scene.bash("default/a", &digests()).lines().collect::<Vec<_>>(), expected);
    scene.look_everywhere();
    scene.ask("DELETE", "/v1/sandboxes/default/a?force=true", &Value::Null).expect(200);
    scene.look_everywhere();
}

#[test]
fn unknown_and_foreign_secrets_are_refused_alike() {
    let mut scene = Scene::new();
    let other = json!({ "name": "a", "namespace": "other", "secrets": ["from-file"] });
    let foreign = scene.create(&other).expect(422);
    let none = json!({ "name": "a", "namespace": "other", "secrets": ["no-such"] });
    let unknown = scene.create(&none).expect(422);
    assert_eq!(
        (foreign.code(), unknown.code()),
        ("unknown_secret".into(), "unknown_secret".into())
    );
    assert_eq!(foreign.text().replace("from-file", "no-such"), unknown.text());
    for (secrets, env) in [
        (json!(["from-file", "from-file"]), json!({})),
        (json!(["from-file"]), json!({ "FROM_FILE": "plain" })),
        (json!(vec!["from-file"; 33]), json!({})),
    ] {
        let body = json!({ "name": "a", "secrets": secrets, "env": env });
        assert_eq!(scene.create(&body).expect(400).code(), "invalid");
    }
    // Nothing is left of any of them.
    assert_eq!(scene.ask("GET", "/v1/sandboxes", &Value::Null).json()["sandboxes"], json!([]));
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start", "params": {
        "namespace": "other", "sandbox": "a", "config": { "secrets": ["from-file"] } } });
    let refused = scene.ask("POST", "/api/v1/rpc", &rpc).json();
    assert_eq!(refused["error"]["data"]["reason"], "unknown_secret", "{refused}");
    let refused = scene.server.run(&["start", "--name", "other/a", "--secret", "from-file"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && stderr.contains("there is no secret"), "{stderr}");
    let elsewhere = ["start", "--secret", "from-file", "--address", "unix:/nowhere"];
    let stderr = String::from_utf8(scene.server.run(&elsewhere).stderr).unwrap();
    assert!(stderr.contains("the operator of an external machine"), "{stderr}");
}

#[test]
fn a_provider_that_fails_fails_the_creation_without_a_word_of_its_own() {
    let mut scene = Scene::new();
    for name in ["broken", "absent"] {
        // The values before it were read already, and go nowhere.
        let request =
            json!({ "name": "a", "secrets": ["from-env", "from-file", "from-command", name] });
        let refused = scene.create(&request).expect(502);
        assert_eq!(refused.code(), "secret_failed");
        assert_eq!(refused.json()["details"]["secret"], name);
        assert!(!refused.text().contains("no-such") && !refused.text().contains("/bin"));
    }
    for answer in [
        "the secret \"broken\" could not be read: \"/bin/sh\" ended with",
        "no-such\": No such file",
    ] {
        eventually("the operator is told what was wrong", || {
            fs::read_to_string(scene.server.log()).unwrap().contains(answer)
        });
    }
    assert_eq!(scene.ask("GET", "/v1/sandboxes", &Value::Null).json()["sandboxes"], json!([]));
    // Creations that fail behind the provider, and those whose bridge dies.
    let request = json!({ "name": "b", "secrets": NAMES, "image": "/no/such/root" });
    scene.create(&request);
    let request = json!({ "name": "c", "secrets": NAMES, "workdir": "/no/such" });
    scene.create(&request);
    for pause_ms in [0, 3, 10, 30] {
        // Connected first: whichever thread comes first then, the bridge has a caller to die under.
        let mut stream = scene.client().raw();
        std::thread::scope(|scope| {
            let request = json!({ "name": format!("d{pause_ms}"), "secrets": NAMES });
            let asking = scope.spawn(move || {
                let body = request.to_string();
                let head = format!(
                    "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n\
                     content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).ok();
                // The bridge is killed under it.
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).ok();
            });
            // The time differs so that the bridge dies in different places; whichever it is, what is
            // looked at afterwards must hold.
            std::thread::sleep(Duration::from_millis(pause_ms));
            scene.server.kill_and_serve_again();
            asking.join().unwrap();
        });
        scene.look_everywhere();
    }
}

#[test]
fn the_daemon_leaves_no_core() {
    let scene = Scene::new();
    let limits = fs::read_to_string(format!("/proc/{}/limits", scene.server.daemon_pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(line.split_whitespace().nth(4), Some("0"), "{line}");
}

#[test]
fn a_command_in_a_sandbox_of_its_own_has_them_without_a_daemon() {
    let scene = Scene::new();
    let config = scene.server.scratch().join("burrow.toml");
    let line =
        ["run", "--secret", "from-file", "--", "sh", "-c", "printf %s $FROM_FILE | sha256sum"];
    let ran = scene.server.command(&line).env("BURROW_CONFIG", config).output().unwrap();
    let stdout = String::from_utf8(ran.stdout).unwrap();
    assert!(stdout.starts_with(&sha256(&scene.canaries.0[1])), "{stdout}");
    scene.look_everywhere();
}
