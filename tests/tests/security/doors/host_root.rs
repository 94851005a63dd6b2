//! The host's root is given by the operator's word alone, and shows nothing that is the operator's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::Uid;
use serde_json::json;
use tempfile::TempDir;
use tests::http::Client;
use tests::mcp::{VERSION, Web, text};
use tests::server::Server;
use tests::{Burrow, agent_path, bridge_path, have_or_skip, skip};

use crate::ordinary;

/// What the private files hold.
const CANARY: &str = "canary-of-the-operator";
/// What everybody may read there.
const PUBLIC: &str = "nobodys-secret";
/// An ordinary user.
const NOBODY: u32 = 65534;

fn client(server: &Server, options: &[&str]) -> Client {
    Client::new(server.url()).key(server.ok(&[&["keygen"], options].concat()).trim())
}

/// A server that asks for keys and whose operator has not configured the root.
fn unspoken() -> Server {
    Server::start_in(Burrow::new().variable("BURROW_PROCESS_ROOT", ""), &[])
}

#[test]
fn keys_get_the_hosts_root_only_where_the_operator_has_set_it() {
    let server = unspoken();
    for options in [&["--scope", "run"][..], &["--scope", "admin", "--namespace", "*"]] {
        let client = client(&server, options);
        for image in [None, Some("/"), Some("/usr/.."), Some("/proc/self/root")] {
            let mut body = json!({ "name": "x" });
            if let Some(image) = image {
                body["image"] = image.into();
            }
            let refused = client.post("/v1/sandboxes", &body).expect(403);
            let message = refused.text();
            assert!(
                message.contains("image") || message.contains("directory"),
                "{image:?}: {message}"
            );
            if image.is_none() {
                assert!(message.contains("[process]"), "both ways out are named: {message}");
            }
        }
        let started = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start",
            "params": { "sandbox": "x", "namespace": "default", "config": {} } });
        let message = client.post("/api/v1/rpc", &started).text();
        assert!(message.contains("error") && message.contains("[process]"), "{message}");
        let made = client.post("/a2a/v1/sandboxes", &json!({ "name": "y" })).text();
        assert!(!made.contains("running"), "{made}");
        assert!(client.get("/v1/sandboxes").json()["sandboxes"].as_array().unwrap().is_empty());
    }
    // The operator's own socket is the operator's word.
    server.ok(&["start", "--name", "own"]);
    assert!(server.ok(&["inspect", "own"]).contains('/'));
}

#[test]
fn the_operators_word_gives_a_root_and_the_answer_says_which() {
    let server = Server::with_keys();
    let run = client(&server, &["--scope", "run"]);
    let made = run.post("/v1/sandboxes", &json!({ "name": "x" })).expect(201).json();
    assert_eq!(made["image"], "/", "{made}");
    let usr = Server::start_in(Burrow::new().variable("BURROW_PROCESS_ROOT", "/usr"), &[]);
    let admin = client(&usr, &["--scope", "admin"]);
    let output =
        admin.post("/v1/sandboxes", &json!({ "name": "x", "image": "/" })).expect(403).text();
    assert!(output.contains("[process]"), "{output}");
}

#[test]
fn one_person_on_their_own_machine_needs_no_word() {
    let server = Server::start_in(Burrow::new().variable("BURROW_PROCESS_ROOT", ""), &["--dev"]);
    let made = Client::new(server.url()).post("/v1/sandboxes", &json!({ "name": "x" }));
    assert_eq!(made.expect(201).json()["image"], "/");
    let burrow = Burrow::new();
    let mut run = burrow.command(&["run", "--", "true"]);
    assert!(run.env_remove("BURROW_PROCESS_ROOT").status().unwrap().success());
}

#[test]
fn the_name_of_an_image_is_never_the_hosts_root_by_itself() {
    let start = |options: &[&str]| {
        let burrow = Burrow::new().variable("BURROW_PROCESS_ROOT", "");
        Server::start_in(burrow, &[&["--dev"], options].concat())
    };
    let server = start(&[]);
    let client = Client::new(server.url());
    for image in ["python", "python:3.11-slim", "microsandbox/python", "node:20-slim", "alpine:3"] {
        let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start",
            "params": { "sandbox": "x", "namespace": "default", "config": { "image": image } } });
        for (path, body) in [
            ("/v1/sandboxes", json!({ "name": "x", "image": image })),
            ("/a2a/v1/sandboxes", json!({ "name": "x", "image": image })),
            ("/api/v1/rpc", rpc),
        ] {
            let message = client.post(path, &body).text();
            let refusal = "this server has no image";
            assert!(
                message.contains(refusal) && message.contains("image pull"),
                "{path} {image}: {message}"
            );
        }
        let mut web = Web::open(Client::new(server.url()), VERSION);
        let message = web.call("sandbox_create", &json!({ "name": "x", "image": image }));
        assert_eq!(message["isError"], true, "{image}: {message}");
        assert!(text(&message).contains("this server has no image"), "{image}: {message}");
        let notebook = json!({ "name": "x", "spec": { "image": image } });
        let message = client.post("/v1/notebooks", &notebook).text();
        assert!(message.contains("this server has no image"), "{image}: {message}");
        for verb in [&["run", "--image", image, "--", "true"][..], &["start", "--image", image]] {
            let refused = server.run(verb);
            let message = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && message.contains(image), "{verb:?}: {message}");
        }
    }
    assert!(client.get("/v1/sandboxes").json()["sandboxes"].as_array().unwrap().is_empty());
    // The operator's explicit word, which the answer and `inspect` show.
    let server = start(&["--set", "images.python:3.11-slim=/"]);
    let request = json!({ "name": "x", "image": "python:3.11-slim" });
    let made = Client::new(server.url()).post("/v1/sandboxes", &request).expect(201).json();
    assert_eq!(made["image"], "/", "{made}");
    let shown = server.ok(&["inspect", "x"]);
    assert!(shown.contains("/ (the host's own root)"), "{shown}");
}

/// What the Python client sends by itself, and where an image is named.
const OF_THE_CLIENT: &str = "
from burrow.errors import BurrowError
from burrow.sync import SandboxClient, SandboxSpec
with SandboxClient() as client:
    for make in (
        lambda: client.create('x'),
        lambda: client.create(SandboxSpec('x', image='python:3.12-slim')),
        lambda: client.run_python('1'),
        lambda: client.run_shell('true'),
    ):
        try:
            print('made', make())
        except BurrowError as refused:
            print('refused', refused)
";

#[test]
fn the_python_client_gets_no_root_that_nobody_has_given() {
    if !have_or_skip("python3") {
        return;
    }
    let server = unspoken();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", OF_THE_CLIENT]).env("PYTHONPATH", root.join("clients/python/src"));
    python.env("PYTHONDONTWRITEBYTECODE", "1").env("BURROW_URL", server.url());
    let output = python.env("BURROW_API_KEY", server.ok(&["keygen"]).trim()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = stdout.lines().filter(|line| line.starts_with("refused")).count();
    assert_eq!((refused, stdout.lines().count()), (4, 4), "{stdout}{error}");
    assert_eq!(server.ok(&["ps", "--all", "--quiet"]), "");
}

/// Files of an operator, where a sandbox over the host's root would see them.
struct Operator {
    place: TempDir,
}

impl Operator {
    fn new() -> Self {
        // A sandbox has a `/tmp` of its own.
        let place = tempfile::Builder::new().prefix("burrow-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = Self { place };
        for name in ["secret", "key.pem", "certificate.pem", "led-to", "workspace/file"] {
            let path = own.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, CANARY).unwrap();
        }
        symlink(own.path("led-to"), own.path("link")).unwrap();
        symlink(own.path("link"), own.path("link-to-link")).unwrap();
        let config = format!(
            "# {CANARY}\n[secrets.a]\nfile = \"{0}/secret\"\nnamespaces = [\"other\"]\n\
             [secrets.b]\nfile = \"{0}/link-to-link\"\nnamespaces = [\"other\"]\n\
             [workspaces.theirs]\npath = \"{0}/workspace\"\nnamespaces = [\"other\"]\n",
            own.place.path().display()
        );
        fs::write(own.path("burrow.toml"), config).unwrap();
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn owned_by(self, user: u32) -> Self {
        let mut chown = Command::new("chown");
        chown.arg("-hR").arg(user.to_string()).arg(self.place.path());
        assert!(chown.status().unwrap().success());
        self
    }

    /// All that must not be read, by every way that leads there.
    fn private(&self) -> Vec<PathBuf> {
        let names = ["secret", "led-to", "link", "link-to-link", "workspace/file", "burrow.toml"];
        names.map(|name| self.path(name)).to_vec()
    }
}

/// Reads all of these that the user may read, and one that everybody may read.
fn reading(operator: &Operator, paths: &[PathBuf]) -> String {
    fs::write(operator.path("public"), PUBLIC).unwrap();
    let all = [paths, &[operator.path("public")]].concat();
    let texts: Vec<_> = all.iter().map(|path| path.to_str().unwrap()).collect();
    format!("cat {} 2>/dev/null; true", texts.join(" "))
}

#[test]
fn configured_files_are_hidden_from_sandboxes_over_the_hosts_root() {
    let operator = Operator::new();
    let config = operator.path("burrow.toml");
    let other = second_bridge(&operator);
    let server = Server::start_in(Burrow::new(), &["--config", config.to_str().unwrap()]);
    let run = client(&server, &["--scope", "run"]);
    run.post("/v1/sandboxes", &json!({ "name": "x" })).expect(201);
    let state = other.state();
    let mut paths = operator.private();
    paths.extend(["keys/secret", "notebooks.key", "burrow.db"].map(|name| state.join(name)));
    // A sandbox of an ordinary user's bridge has one user.
    let users: &[&str] = if Uid::effective().is_root() { &["root", "65534"] } else { &["root"] };
    for user in users {
        let exec = json!({ "argv": ["/bin/sh", "-c", reading(&operator, &paths)], "user": user });
        let text = run.post("/v1/sandboxes/default/x/exec", &exec).expect(200).text();
        assert!(text.contains(PUBLIC) && !text.contains(CANARY), "{user}: {text}");
        let list =
            json!({ "argv": ["/bin/ls", "-A", state, operator.path("workspace")], "user": user });
        let text = run.post("/v1/sandboxes/default/x/exec", &list).expect(200).json();
        for name in ["keys", "serve.pid", "file"] {
            assert!(!text["stdout"].as_str().unwrap().contains(name), "{user}: {text}");
        }
    }
    for path in &paths {
        let place = format!("/v1/sandboxes/default/x/files/content?path={}", path.display());
        let text = run.get(&place).text();
        assert!(!text.contains(CANARY), "{path:?}");
    }
}

#[test]
fn certificates_and_keys_of_tls_are_hidden() {
    // They need not be good ones where nothing listens.
    let operator = Operator::new();
    let text = format!(
        "# {CANARY}\n[server]\ntls_certificate = \"{0}/certificate.pem\"\ntls_key = \"{0}/key.pem\"\n",
        operator.place.path().display()
    );
    fs::write(operator.path("burrow.toml"), text).unwrap();
    let burrow = Burrow::new();
    let paths = ["certificate.pem", "key.pem", "burrow.toml"].map(|name| operator.path(name));
    let mut command = burrow.command(&["run", "--", "/bin/sh", "-c", &reading(&operator, &paths)]);
    let output = command.env("BURROW_CONFIG", operator.path("burrow.toml")).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains(PUBLIC) && !stdout.contains(CANARY), "{stdout}");
}

/// A bridge whose state is at a place of its own, and that runs.
struct Other {
    _burrow: Burrow,
    daemon: std::process::Child,
    state: PathBuf,
}

impl Other {
    fn state(&self) -> PathBuf {
        self.state.clone()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.daemon.kill().ok();
        self.daemon.wait().ok();
    }
}

fn second_bridge(operator: &Operator) -> Other {
    let (burrow, state) = (Burrow::new(), operator.path("state-of-another"));
    let mut command = burrow.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("BURROW_STATE_DIR", &state).stdout(Stdio::null()).stderr(Stdio::null());
    let daemon = command.spawn().unwrap();
    tests::eventually("the second bridge serves", || state.join("keys").is_dir());
    fs::write(state.join("notebooks.key"), CANARY).unwrap();
    fs::write(state.join("burrow.db"), CANARY).ok();
    Other { _burrow: burrow, daemon, state }
}

#[test]
fn an_ordinary_users_sandbox_hides_the_users_own_configuration() {
    if !nix::unistd::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    if !ordinary::namespaces_are_here() {
        skip("an ordinary user can start no sandbox here");
        return;
    }
    let operator = Operator::new().owned_by(NOBODY);
    let paths = operator.private();
    let script = reading(&operator, &paths);
    let mut command = Command::new(bridge_path());
    command.args(["run", "--", "/bin/sh", "-c", &script]).uid(NOBODY).gid(NOBODY);
    command.env("HOME", operator.place.path()).env("BURROW_AGENT", agent_path());
    command.env("BURROW_CONFIG", operator.path("burrow.toml"));
    command.env("BURROW_STATE_DIR", operator.path("state"));
    command.env("BURROW_RUNTIME_DIR", operator.path("run"));
    let output = command.current_dir("/").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stdout.contains(PUBLIC), "{stdout}{error}");
    assert!(!stdout.contains(CANARY), "{stdout}");
}
