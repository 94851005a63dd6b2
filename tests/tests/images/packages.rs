//! Packages on top of an image: installed once, found again, and refused where there is nothing to put
//! them on. A script stands for the package managers, which would need their registries.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};
use tests::http::Client;
use tests::machines::machines_or_skip;
use tests::mcp::{Lines, text};
use tests::server::Server;
use tests::{Burrow, eventually, have, skip};

/// What is called as a package manager is: it notes what it is asked for.
const MANAGER: &str = "#!/bin/sh
[ \"$1\" = -m ] && shift 2
shift
for word; do
    case $word in
    -*) ;;
    broken)
        printf 'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n' | nc 198.18.0.1 3128 >&2
        echo 'no such package' >&2
        exit 9
        ;;
    *) echo \"$word\" >>/packages ;;
    esac
done
";

/// A bridge whose store has the image `base`.
fn place() -> Option<Burrow> {
    let found = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let Some(busybox) = found.into_iter().find(|path| path.exists()) else {
        skip("there is no static busybox here");
        return None;
    };
    let burrow = Burrow::new();
    let bin = burrow.scratch().join("base/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(busybox, bin.join("busybox")).unwrap();
    for tool in ["sh", "cat", "env", "nc"] {
        symlink("busybox", bin.join(tool)).unwrap();
    }
    for manager in ["python3", "npm"] {
        fs::write(bin.join(manager), MANAGER).unwrap();
        fs::set_permissions(bin.join(manager), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let root = burrow.scratch().join("base");
    burrow.ok(&["image", "import", root.to_str().unwrap(), "--name", "base"]);
    Some(burrow)
}

fn words(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The hosts that the audit log says were refused.
fn unreached(burrow: &Burrow) -> Vec<String> {
    let asked = ["audit", "--operation", "egress.connection", "--outcome", "refused", "--json"];
    let log = burrow.ok(&asked);
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.map(|record| record["facts"]["host"].as_str().unwrap_or_default().to_owned()).collect()
}

fn run(burrow: &Burrow, options: &[&str]) -> Output {
    burrow.run(&[&["run"], options, &["--", "cat", "/packages"]].concat())
}

#[test]
fn packages_are_installed_once_for_the_same_image() {
    let Some(burrow) = place() else { return };
    let first = run(&burrow, &["--image", "base", "--pip", "pandas,numpy", "--npm", "express"]);
    assert_eq!(words(&first.stdout), "numpy\npandas\nexpress\n", "{}", words(&first.stderr));
    assert!(!words(&first.stderr).contains("cached"), "{}", words(&first.stderr));
    let again = ["--image", "base", "--pip", "numpy", "--pip", "pandas", "--npm", "express"];
    let again = run(&burrow, &again);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(words(&again.stderr).matches("cached").count(), 2, "{}", words(&again.stderr));
}

#[test]
fn packages_that_cannot_be_installed_are_refused_with_the_reason() {
    let Some(burrow) = place() else { return };
    for (options, expected) in [
        (&["--image", "/usr", "--pip", "pandas"][..], "packages need an image from the store"),
        (&["--image", "base", "--pip=--index-url=x"], "is not the name of a package"),
        (&["--image", "base", "--pip", "broken"], "no such package"),
    ] {
        let refused = run(&burrow, options);
        assert_eq!(refused.status.code(), Some(125), "{options:?}: {}", words(&refused.stderr));
        assert!(words(&refused.stderr).contains(expected), "{}", words(&refused.stderr));
    }
    assert_eq!(unreached(&burrow), ["evil.example"]);
}

#[test]
fn a_model_asks_for_packages_with_its_sandbox() {
    let Some(mut burrow) = place() else { return };
    burrow.serve();
    let mut lines = Lines::open(&burrow, &[]);
    let packages = json!({ "pip": ["pandas"], "npm": ["express"] });
    let body = json!({ "name": "work", "image": "base", "packages": packages });
    lines.ok("sandbox_create", &body);
    let read = json!({ "command": "cat /packages", "sandbox": "work" });
    assert_eq!(lines.ok("shell_execute", &read)["stdout"], "pandas\nexpress\n");
    let broken = json!({ "name": "no", "image": "base", "packages": { "pip": ["broken"] } });
    let refused = lines.call("sandbox_create", &broken);
    assert!(text(&refused).contains("no such package"), "{refused}");
    eventually("it is recorded", || unreached(&burrow) == ["evil.example"]);
    let other = json!({ "image": "other", "packages": { "pip": ["pandas"] } });
    assert!(
        text(&lines.call("sandbox_create", &other)).contains("other"),
        "it is not in the store"
    );
}

#[test]
fn packages_come_on_no_image_that_the_operator_does_not_allow() {
    let Some(mut burrow) = place() else { return };
    let other = burrow.scratch().join("base");
    fs::write(other.join("other"), "").unwrap();
    burrow.ok(&["image", "import", other.to_str().unwrap(), "--name", "other"]);
    burrow = burrow.variable("BURROW_IMAGE_POLICY_ALLOW", "docker.io/library/base");
    burrow.serve();
    let mut lines = Lines::open(&burrow, &[]);
    let body = |name: &str, image: &str| json!({ "name": name, "image": image, "packages": { "pip": ["pandas"] } });
    let refused = lines.call("sandbox_create", &body("no", "other"));
    assert!(text(&refused).contains("image_policy.allow"), "{refused}");
    // What was made of an image that is allowed is allowed.
    lines.ok("sandbox_create", &body("work", "base"));
    burrow.ok(&["start", "--name", "two", "--image", "base", "--pip", "pandas"]);
    let output = burrow.run(&["start", "--name", "three", "--image", "other", "--pip", "pandas"]);
    assert!(words(&output.stderr).contains("image_policy.allow"), "{}", words(&output.stderr));
    // The rule that holds at a restart is that of the daemon then.
    assert_eq!(burrow.ok(&["restart", "two"]), "two\n");
    assert_eq!(burrow.ok(&["exec", "two", "--", "cat", "/packages"]), "pandas\n");
    burrow.end_daemon();
    burrow = burrow.variable("BURROW_IMAGE_POLICY_ALLOW", "docker.io/library/other");
    burrow.serve();
    let output = burrow.run(&["restart", "two"]);
    assert!(words(&output.stderr).contains("image_policy.allow"), "{}", words(&output.stderr));
    assert_eq!(
        burrow.ok(&["exec", "two", "--", "cat", "/packages"]),
        "pandas\n",
        "it was not stopped"
    );
}

/// The verbs at which commands of recipes run: those of packages, and of an image.
fn verbs(burrow: &Burrow) -> [Vec<String>; 4] {
    let context = burrow.scratch().join("context");
    fs::create_dir_all(&context).unwrap();
    fs::write(context.join("Dockerfile"), "FROM base\nRUN echo ran > /ran\n").unwrap();
    let packages = ["--image", "base", "--pip", "pandas"];
    let context = context.to_str().unwrap().to_owned();
    let line = |words: &[&[&str]]| words.concat().into_iter().map(str::to_owned).collect();
    [
        line(&[&["image", "build"], &[&context]]),
        line(&[&["run"], &packages, &["--", "cat", "/packages"]]),
        line(&[&["start"], &packages]),
        line(&[&["repl"], &packages, &["-c", "1"]]),
    ]
}

/// The answer of each door that is asked for packages, or for an image by a recipe, where the
/// environment has this variable. Nothing is made at any.
fn refusals(variable: &str, value: &str) -> Option<Vec<String>> {
    let mut burrow = place()?.variable(variable, value);
    let mut bytes = Vec::new();
    for line in verbs(&burrow) {
        let line: Vec<_> = line.iter().map(String::as_str).collect();
        let output = burrow.command(&line).env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{line:?}: {}", words(&output.stderr));
        bytes.push(words(&output.stderr).to_owned());
    }
    let body = json!({ "name": "a", "image": "base", "packages": { "pip": ["pandas"] } });
    // Without a daemon, then with one.
    let mut command = burrow.command(&["mcp"]);
    command.env(variable, value);
    bytes.push(text(&Lines::begin(command).call("sandbox_create", &body)));
    burrow.serve();
    let mut command = burrow.command(&["mcp"]);
    command.env(variable, value);
    bytes.push(text(&Lines::begin(command).call("sandbox_create", &body)));
    assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "");
    Some(bytes)
}

#[test]
fn commands_of_recipes_run_on_no_machine_but_the_one_of_the_environment() {
    let Some(message) = refusals("BURROW_MACHINE", "external") else { return };
    for message in message {
        assert!(message.contains("external machines"), "{message}");
    }
}

#[test]
fn commands_of_recipes_run_on_no_machine_but_the_default() {
    if have("firecracker") {
        return skip("there is firecracker here, so that it is not refused");
    }
    let Some(message) = refusals("BURROW_DEFAULTS_MACHINE", "firecracker") else { return };
    for message in message {
        assert!(message.contains("firecracker"), "{message}");
    }
    let burrow = place().unwrap().variable("BURROW_DEFAULTS_MACHINE", "firecracker");
    let server = Server::start_in(burrow, &["--dev"]);
    let body = json!({ "name": "a", "image": "base", "packages": { "pip": ["pandas"] } });
    let answer = Client::new(server.url()).post("/v1/sandboxes", &body);
    assert!(answer.status >= 400, "{}", answer.text());
    assert!(answer.text().contains("firecracker"), "{}", answer.text());
}

#[test]
fn commands_of_recipes_run_in_a_virtual_machine_that_is_asked_for() {
    let Some(burrow) = place() else { return };
    if !machines_or_skip() {
        return;
    }
    let context = burrow.scratch().join("context");
    fs::create_dir_all(&context).unwrap();
    let recipe = "FROM base\nRUN cat /proc/sys/kernel/osrelease > /kernel\n";
    fs::write(context.join("Dockerfile"), recipe).unwrap();
    let line = ["image", "build", "-t", "made", context.to_str().unwrap()];
    let output = burrow.command(&line).env("BURROW_MACHINE", "qemu").output().unwrap();
    assert!(output.status.success(), "{}", words(&output.stderr));
    let kernel = burrow.ok(&["run", "--image", "made", "--", "cat", "/kernel"]);
    let own = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(!kernel.is_empty() && kernel != own, "{kernel} is the host's own");
}
