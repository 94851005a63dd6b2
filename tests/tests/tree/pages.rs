//! Checks that the documents' blocks do what they say: each page's, from its top to its end, in one shell.
//!
//! A `sh` block is run as it is written. A `toml` block is the configuration from there on: it must be
//! accepted, and the daemon ends, so that the next one has it. Neither happens where the line above says `<!-- not run: REASON -->`; these are counted. A `text` block after a
//! `sh` block is what it prints, with `…` for what differs each time.
//!
//! The first pages are run as anybody would. The others are run on a host of their own, where what they name
//! of the internet is there too: `tests::own_host`.

mod blocks;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::own_host::OwnHost;
use tests::own_port::OwnPort;
use tests::{Burrow, agent_path, bridge_path, have_or_skip};

use crate::documents::{pages, read, root};
use Place::{Fleet, Here, Images, Machines, Own};
use blocks::{Block, Kind, blocks, is_like};

/// The port and the directory of the configuration that the pages name; each run has others.
const WRITTEN_PORT: &str = "5555";
const WRITTEN_DIRECTORY: &str = "/etc/burrow";
/// How long all blocks of a page may take on a busy machine.
const PAGE_SECONDS_MAX: &str = "300";
/// What the shell prints before each block.
const MARK: &str = "@@ block ";
/// How many blocks are not run, of all pages: what is not run is not known to work.
const NOT_RUN_MAX: usize = 10;
/// Pages that bring the program onto the path themselves.
const FROM_A_CLONE: [&str; 2] = ["README.md", "docs/tutorial/first-figure.md"];

/// What a page finds before its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// This host, as the user who runs the test.
    Here,
    /// A host of its own, as root.
    Own,
    /// The same with an image in the registries.
    Images,
    /// The same as `Own`, with what virtual machines need.
    Machines,
    /// The same as `Here`, with a server of NATS.
    Fleet,
}

/// Makes a test of each page: its name, the page, where it is run, and what its reader has done before.
macro_rules! run {
    ($($name:ident: $page:literal, $place:expr, $before:literal;)*) => {
        $(#[test]
        fn $name() {
            run_page($page, $place, $before);
        })*

        const RUN: &[&str] = &[$($page),*];
    };
}

run! {
    the_readme: "README.md", Here, "";
    the_tutorial: "docs/tutorial/first-figure.md", Images, "";
    the_python_clients_readme: "clients/python/README.md", Here, "";
    the_typescript_clients_readme: "clients/typescript/README.md", Here, "";
    how_to_cap_tenants: "docs/howto/caps.md", Own, "";
    how_to_let_sandboxes_sleep: "docs/howto/sleep.md", Here, "";
    how_to_fork_a_sandbox: "docs/howto/fork.md", Here, "";
    how_to_replay: "docs/howto/replay.md", Own, "";
    how_to_make_sandboxes_of_a_template: "docs/howto/templates.md", Here, "";
    how_to_look_in_a_browser: "docs/howto/console.md", Own, "";
    how_to_see_what_sandboxes_use: "docs/howto/metrics.md", Here, "host-bridge serve --dev 2>serve.log & \
        curl -s --retry 9 --retry-connrefused http://localhost:5555/readyz";
    how_to_watch_bridges: "docs/howto/observe.md", Here, "";
    how_to_send_telemetry: "docs/howto/telemetry.md", Own, "echo 'Bearer abc' >/etc/burrow/otel-token";
    how_to_use_e2bs_sdk: "docs/howto/e2b.md", Own, "";
    how_to_use_daytonas_sdk: "docs/howto/daytona.md", Own, "";
    how_to_use_microsandboxs_sdk: "docs/howto/microsandbox.md", Own, "";
    how_to_follow_events: "docs/howto/events.md", Own, "";
    how_to_reach_hosts: "docs/howto/egress.md", Images, "";
    how_to_bring_images: "docs/howto/images.md", Images,
        "mkdir app && echo 'print(1)' >app/main.py && printf 'FROM python:3.12-slim\nRUN pip install six\nCMD [\"python3\", \"-c\", \"import six\"]\n' >Dockerfile";
    how_to_have_many_hosts: "docs/howto/fleet.md", Fleet, "";
    how_to_give_secrets: "docs/howto/secrets.md", Own,
        "echo abc >/etc/burrow/npm-token && echo def >/etc/burrow/github-token";
    how_to_serve: "docs/howto/serve.md", Own, "";
    how_to_run_machines: "docs/howto/virtual-machines.md", Machines, "";
    how_to_take_snapshots_elsewhere: "docs/howto/snapshots.md", Machines,
        "echo id >/etc/burrow/bucket-id && echo key >/etc/burrow/bucket-key";
    how_to_serve_web_apps: "docs/howto/web-apps.md", Here, "";
    how_to_show_a_port: "docs/howto/previews.md", Here, "";
    how_to_share_a_directory: "docs/howto/workspace.md", Own, "";
    the_reference_of_the_api: "docs/reference/api.md", Own, "head -c 5000 /dev/urandom >model.bin
        printf '[process]\nroot = \"/\"\n' >>$BURROW_CONFIG; host-bridge serve 2>serve.log & MSB_API_KEY=$(host-bridge keygen)
        curl -s --retry 9 --retry-connrefused http://localhost:5555/readyz";
    the_reference_of_caps: "docs/reference/caps.md", Own, "";
    the_reference_of_egress: "docs/reference/egress.md", Own, "";
    the_reference_of_images: "docs/reference/images.md", Own, "";
    the_reference_of_machines: "docs/reference/machines.md", Own, "";
    the_reference_of_notebooks: "docs/reference/notebooks.md", Here, "host-bridge serve --dev 2>serve.log & \
        curl -s --retry 9 --retry-connrefused http://localhost:5555/readyz";
    the_reference_of_registries: "docs/reference/registries.md", Own,
        "cp /etc/ssl/certs/ca-certificates.crt /etc/burrow/registry-ca.pem";
    the_reference_of_secrets: "docs/reference/secrets.md", Own,
        "echo abc >/etc/burrow/npm-token && echo def >/etc/burrow/github-token";
    the_reference_of_workspaces: "docs/reference/workspace.md", Own, "";
}

#[test]
fn every_page_with_blocks_is_run() {
    let mut with_blocks: Vec<_> =
        pages().into_iter().filter(|page| !blocks(&read(page)).is_empty()).collect();
    let mut run: Vec<_> = RUN.iter().map(Path::new).collect();
    with_blocks.sort();
    run.sort();
    assert_eq!(with_blocks, run);
}

#[test]
fn few_blocks_are_not_run() {
    let of_all = RUN.iter().flat_map(|page| {
        let not_run = blocks(&read(Path::new(page))).into_iter();
        not_run.filter_map(move |block| Some(format!("{page}:{}: {}", block.line, block.not_run?)))
    });
    let all: Vec<_> = of_all.collect();
    assert!(all.len() <= NOT_RUN_MAX, "{} blocks are not run:\n{}", all.len(), all.join("\n"));
}

#[test]
fn recipes_of_blocks_that_are_not_run_are_there() {
    let recipes = fs::read_to_string(root().join("justfile")).expect("recipes");
    let is_recipe = |name: &str| {
        let has_name =
            |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ':']));
        recipes.lines().any(has_name)
    };
    let mut found = 0;
    for page in RUN {
        let blocks = blocks(&read(Path::new(page)));
        for block in blocks.iter().filter(|block| block.not_run.is_some()) {
            let lines = block.text.lines().filter_map(|line| line.trim().strip_prefix("./do "));
            for name in lines.filter_map(|rest| rest.split_whitespace().next()) {
                assert!(is_recipe(name), "{page}:{}: no recipe is called {name}", block.line);
                found += 1;
            }
        }
    }
    assert!(found > 0, "no block names a recipe");
}

/// One shell that runs the blocks of a page as they would be pasted, and ends what it has left running.
fn script(before: &str, blocks: &[&Block]) -> String {
    let mut script =
        "set -eo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait; host-bridge daemon stop || true' EXIT\n"
            .to_owned();
    script.extend([before, "\n"]);
    for block in blocks {
        writeln!(script, "echo '{MARK}{}'", block.line).expect("a string");
        match block.kind {
            Kind::Commands => script.extend([&*block.text, "\n"]),
            Kind::Configuration => script.extend([
                "cat >\"$BURROW_CONFIG\" <<'END'\n",
                &*block.text,
                "\nEND\nhost-bridge serve --check-config\nhost-bridge daemon stop || true\n",
            ]),
        }
    }
    script + "exit 0\n"
}

/// What a page needs is not here; the skip says so.
struct Skipped;

/// The host of a page, if it has one of its own.
fn host_of(place: Place) -> Result<Option<OwnHost>, Skipped> {
    let programs: &[&str] = match place {
        Machines => &["bash", "curl", "qemu-system-x86_64", "vhost-device-vsock"],
        _ => &["bash", "curl", "python3"],
    };
    if !programs.iter().all(|program| have_or_skip(program)) {
        return Err(Skipped);
    }
    if place == Fleet && tests::fleet::nats_program().is_none() {
        return Err(Skipped);
    }
    if matches!(place, Here | Fleet) {
        return Ok(None);
    }
    if place == Machines && !root().join("target/images/full.erofs").exists() {
        tests::skip("no images: `./do images` builds them");
        return Err(Skipped);
    }
    let host = OwnHost::or_skip().ok_or(Skipped)?;
    if host.serve_registries(place == Images) { Ok(Some(host)) } else { Err(Skipped) }
}

/// Runs the blocks of a page in a directory that looks like a clone after `./do build`.
#[expect(clippy::print_stdout, reason = "the test's output lists what is not run, and why")]
fn run_page(page: &str, place: Place, before: &str) {
    let Ok(host) = host_of(place) else { return };
    let blocks = blocks(&read(Path::new(page)));
    for block in &blocks {
        if let Some(reason) = &block.not_run {
            println!("not run: {page}:{}: {reason}", block.line);
        }
    }
    let run: Vec<_> = blocks.iter().filter(|block| block.not_run.is_none()).collect();
    println!("{page}: {} blocks run, {} not", run.len(), blocks.len() - run.len());

    let burrow = Burrow::new();
    let port = OwnPort::claim();
    let (clone, home) = (burrow.scratch().join("clone"), burrow.scratch().join("home"));
    for dir in [&clone.join("target/release"), &home] {
        fs::create_dir_all(dir).expect("a directory");
    }
    symlink(bridge_path(), clone.join("target/release/host-bridge")).expect("a link");
    for part in ["examples", "clients"] {
        symlink(root().join(part), clone.join(part)).expect("a link");
    }
    // The first pages say how the program comes onto the path; the others assume it.
    let search = std::env::var("PATH").expect("a path");
    let search = if FROM_A_CLONE.contains(&page) {
        search
    } else {
        format!("{}:{search}", clone.join("target/release").display())
    };
    // A refusal is a failure.
    fs::write(home.join(".curlrc"), "fail-with-body\n").expect("a directory");
    let directory = burrow.scratch().join("etc");
    let config = directory.join("burrow.toml");
    fs::create_dir(&directory).expect("a directory");
    fs::write(&config, "").expect("a directory");
    let script = script(before, &run)
        .replace(WRITTEN_PORT, &port.number().to_string())
        .replace(WRITTEN_DIRECTORY, directory.to_str().expect("UTF-8"));
    let output = Command::new("timeout")
        .args(["--kill-after=10", PAGE_SECONDS_MAX, "bash", "-c", "exec 2>&1; eval \"$SCRIPT\""])
        .env("SCRIPT", script)
        .current_dir(&clone)
        .env("HOME", &home)
        .env("PATH", search)
        .env("BURROW_CONFIG", config)
        .env("BURROW_RUNTIME_DIR", burrow.runtime())
        .env("BURROW_STATE_DIR", burrow.state())
        .env("BURROW_IMAGES", root().join("target/images"))
        .env_remove("BURROW_NO_DAEMON")
        .env("BURROW_AGENT", agent_path())
        .env("BURROW_NATS_SERVER", root().join("target/nats/nats-server"))
        .env("BURROW_SERVER_LISTEN", format!("127.0.0.1:{}", port.number()))
        .env("BURROW_URL", format!("http://127.0.0.1:{}", port.number()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = fs::read_to_string(clone.join("serve.log")).unwrap_or_default();
    assert!(output.status.success(), "{page}: {}\n{stdout}\n{log}", output.status);
    for block in &run {
        let mark = format!("{MARK}{}\n", block.line);
        let own = stdout.split(&mark).nth(1).expect("the block began");
        let mut lines = own.split(MARK).next().unwrap_or_default().lines();
        for written in &block.printed {
            let found = lines.any(|line| is_like(line, written));
            assert!(found, "{page}:{}: {written:?} is not printed\n{stdout}", block.line);
        }
    }
    drop(host);
}
