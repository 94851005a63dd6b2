//! The examples of help are run as they stand, each in a place that has what it names: what a person pastes
//! must work. Those that cannot run here are listed with the reason, and a row that matches none is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::unistd::Uid;
use serde_json::json;
use tests::http::Client;
use tests::server::Server;
use tests::{Burrow, bridge_path, have, have_or_skip, images, slowed};

/// How long one example may take.
const EXAMPLE_MAX: Duration = Duration::from_secs(30);

/// The examples run in so many tests.
const PARTS: usize = 4;

/// What cannot run here: a part of the example, and why.
const NOT_RUN: &[(&str, &str)] = &[
    (" -it ", "it needs a terminal"),
    ("host-bridge attach", "it needs a terminal"),
    ("host-bridge top   ", "it needs a terminal"),
    ("host-bridge top --sort", "it needs a terminal"),
    ("host-bridge repl                 ", "it needs a terminal"),
    ("host-bridge repl work           ", "it needs a terminal"),
    ("| less", "it needs a terminal"),
    ("docker", "it needs docker"),
    ("ssh other", "it needs another host"),
    ("--all-nodes", "it needs a fleet"),
    ("--node-label", "it needs a fleet"),
    ("claude", "it needs an MCP client"),
    ("npx", "it needs an MCP client"),
    ("--machine qemu", "it needs a virtual machine"),
    ("image pull", "it needs a registry"),
    ("image build", "the tests of images build some"),
    ("cargo test", "the program is the reader's own"),
    ("run --image team/app:2", "the image is the reader's own"),
    ("run --image team/ready:1", "the image is the reader's own"),
    ("--name shop", "the app is the reader's own"),
    ("work shop", "the app is the reader's own"),
    ("--pip ", "it needs a registry"),
    ("pip install ./package", "the package is the reader's own"),
    ("0123456789ab", "the id is the reader's own"),
    ("1f0c8a2b77de", "the id is the reader's own"),
    ("3f2a90c1b7de", "the id is the reader's own"),
    ("host-bridge preview work", "it needs a server"),
    ("--secret", "the secret is the reader's own"),
    (">> ~/.ssh/config", "the configuration is the reader's own"),
    ("serve --set", "it goes on in the background"),
    ("study.ipynb", "the notebook is the reader's own"),
    ("vsock:", "it needs a virtual machine"),
    ("snapshot work base", "it needs a virtual machine"),
    ("--snapshot base", "it needs a virtual machine"),
    ("snapshot rm", "it needs a virtual machine"),
    ("snapshot export", "it needs a virtual machine"),
    ("snapshot import", "it needs a virtual machine"),
    ("python3.9", "the interpreter is the reader's own"),
    ("a:/data", "the sandboxes are the reader's own"),
    ("host-bridge pause", "not every process machine can pause"),
    ("host-bridge node ", "it needs a fleet"),
    ("fleet dev", "it does not end"),
    ("host-bridge sync", "it needs a workspace"),
    ("generate |", "the program is the reader's own"),
];

/// How many examples may be among those. It is lowered with each that learns to run.
const NOT_RUN_MAX: usize = 105;

/// What does not end: it still runs after [`ENDLESS_SECONDS`], and ends when it is interrupted. Each has a network of
/// its own, so that no port is taken.
const ENDLESS: &[&str] = &[
    "--follow",
    "logs -f",
    "events -f",
    "port-forward",
    "serve --dev",
    "serve --listen",
    "serve --ssh",
];

/// How long that is: what is refused is refused sooner.
const ENDLESS_SECONDS: &str = "4";

/// The notebooks whose runs examples show.
const NOTEBOOKS: [(&str, &str); 2] = [("default", "analysis"), ("team", "analysis")];

/// Makes what examples name. Each one gets it again, because some remove it.
const SCENE: &str = r#"
running=$(host-bridge ps -q)
for name in work ci/job-7 ci/job-8; do
    grep -qx $name <<<"$running" && continue
    host-bridge rm -f $name >/dev/null 2>&1
    host-bridge start --name $name >/dev/null || exit 99
done
case $EXAMPLE in
*"start --name work "*) host-bridge rm -f work >/dev/null ;;
*"rm work "* | *"wait work " | *"wait --timeout "*) host-bridge stop work ci/job-7 >/dev/null ;;
*"keys ls -q"*) host-bridge keygen >/dev/null 2>&1 ;;
*"store repair"*) host-bridge daemon stop >/dev/null ;;
*"serve --"*) host-bridge daemon stop >/dev/null ;;
*"template "*)
    host-bridge template create shop --start 'exec sleep 600' >/dev/null || exit 96 ;;
*"receipt "*)
    rm -f build.receipt
    host-bridge exec -d --session build work -- true >/dev/null 2>&1
    host-bridge repl work --context main --lang python -c 1 >/dev/null 2>&1
    until host-bridge receipt work build > build.receipt; do sleep 0.1; done 2>/dev/null ;;
*"context "*) host-bridge context open work python >/dev/null 2>&1 ;;
*"exec -d "*) ;;
*build*) host-bridge exec -d --session build work -- sh -c 'trap "exit 0" INT HUP; sleep 1 & wait' >/dev/null 2>&1 ;;
esac
case $EXAMPLE in
*make*) host-bridge exec work -- sh -c 'printf "test:\n\ttrue\n" > Makefile' || exit 98 ;;
*:/build*) host-bridge exec work -- mkdir -p /build || exit 97 ;;
esac
case $EXAMPLE in
*"image "*)
    for name in team/app:2 team/app:4 team/db:1 python:3.12-slim; do
        host-bridge image inspect $name >/dev/null 2>&1 && continue
        host-bridge image import ./rootfs --name $name >/dev/null || exit 95
    done
    rm -rf saved.tar layout oci-layout rootfs.tar.gz && mkdir layout oci-layout
    host-bridge image save team/app:2 -o saved.tar || exit 94
    tar xf saved.tar -C layout && tar xf saved.tar -C oci-layout
    tar czf rootfs.tar.gz -C rootfs . ;;
esac
case $EXAMPLE in
*"image commit "*)
    host-bridge rm -f work >/dev/null
    host-bridge start --name work --image team/app:2 >/dev/null || exit 93 ;;
*"start --name ci/job-7 "*) host-bridge rm -f ci/job-7 >/dev/null ;;
esac
set -o pipefail
"#;

/// Runs what does not end for a while.
const FOR_A_WHILE: &str = r#"
timeout --signal=INT $SECONDS_MAX bash -c "$COMMAND"
test $? = 124
"#;

/// The lines of an example's block that are commands, without what they are for.
fn commands(help: &str) -> Vec<String> {
    let after = help.split("\nExamples:\n").nth(1).or_else(|| help.split("\nTry it:\n").nth(1));
    let lines = after.unwrap_or_default().lines();
    let lines =
        lines.take_while(|line| line.is_empty() || line.starts_with(' ') || line.ends_with(':'));
    // A backslash at its end makes a line go on.
    let mut whole: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        let (text, next) = match line.strip_suffix(" \\") {
            Some(text) => (text, true),
            None => (line, false),
        };
        match whole.last_mut().filter(|_| goes_on) {
            Some(last) => last.extend([" ", text.trim_start()]),
            None => whole.push(text.trim_start().to_owned()),
        }
        goes_on = next;
    }
    let whole = whole.into_iter().filter(|line| line.contains("host-bridge"));
    whole.map(|line| format!("{line} ")).collect()
}

/// A command without the words behind it that say what it is for.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut spaces = 0;
    for (at, letter) in line.char_indices() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            _ => {}
        }
        spaces = if letter == ' ' && quote.is_none() { spaces + 1 } else { 0 };
        if spaces == 2 {
            return line[..at].trim_end();
        }
    }
    line.trim_end()
}

/// The verbs of the page of commands: `image build`, …
fn verbs() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let page = fs::read_to_string(root.join("docs/reference/cli.md")).expect("the page");
    let headings = page.lines().filter_map(|line| {
        line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")).map(str::to_owned)
    });
    headings.collect()
}

/// The reason why an example cannot run here.
fn not_run(line: &str) -> Option<&'static str> {
    NOT_RUN.iter().find(|(part, _)| line.contains(part)).map(|(part, _)| *part)
}

/// All examples, with their verbs.
fn examples() -> Vec<(String, String)> {
    let burrow = Burrow::new();
    let of_verb = |verb: String| {
        let mut words: Vec<&str> = verb.split(' ').collect();
        words.push("--help");
        let lines = commands(&burrow.ok(&words));
        lines.into_iter().map(move |line| (verb.clone(), line)).collect::<Vec<_>>()
    };
    verbs().into_iter().flat_map(of_verb).collect()
}

#[test]
fn every_reason_is_that_of_an_example() {
    let examples = examples();
    let is_used = |part: &&str| {
        examples.iter().any(|(_, line)| not_run(line).is_some_and(|own| own == *part))
    };
    let unused: Vec<&str> =
        NOT_RUN.iter().map(|(part, _)| *part).filter(|part| !is_used(part)).collect();
    assert!(unused.is_empty(), "rows that match no example: {unused:?}");
    let not: Vec<&str> = examples
        .iter()
        .filter(|(_, line)| not_run(line).is_some())
        .map(|(_, line)| line.as_str())
        .collect();
    assert!(not.len() <= NOT_RUN_MAX, "{} are not run:\n{}", not.len(), not.join("\n"));
    let is_example = |part: &&&str| examples.iter().any(|(_, line)| line.contains(**part));
    assert_eq!(ENDLESS.iter().filter(is_example).count(), ENDLESS.len(), "one matches no example");
}

#[test]
fn the_examples_of_help_work_as_they_are_pasted_1() {
    run_part(0);
}

#[test]
fn the_examples_of_help_work_as_they_are_pasted_2() {
    run_part(1);
}

#[test]
fn the_examples_of_help_work_as_they_are_pasted_3() {
    run_part(2);
}

#[test]
fn the_examples_of_help_work_as_they_are_pasted_4() {
    run_part(3);
}

/// A bridge for each kind of example, so that none finds what another has left.
struct Places {
    /// Its daemon starts by itself, as for a person.
    plain: Burrow,
    images: Burrow,
    endless: Burrow,
    /// It has runs of notebooks, which no verb makes.
    notebooks: Server,
}

impl Places {
    fn new() -> Self {
        let notebooks = Server::dev();
        let client = Client::new(notebooks.url());
        for (namespace, name) in NOTEBOOKS {
            let ask = json!({ "namespace": namespace, "name": name, "language": "python" });
            client.post("/v1/notebooks", &ask).expect(200);
            let run = format!("/v1/notebooks/{namespace}/{name}/run");
            client.post(&run, &json!({ "code": "1" })).expect(200);
        }
        Self { plain: Burrow::new(), images: Burrow::new(), endless: Burrow::new(), notebooks }
    }

    fn of(&self, line: &str) -> &Burrow {
        match line {
            line if ENDLESS.iter().any(|part| line.contains(part)) => &self.endless,
            line if line.contains("image ") => &self.images,
            line if line.contains("history ") => &self.notebooks,
            _ => &self.plain,
        }
    }
}

/// A directory with the files that examples name.
fn prepare(scratch: &Path, busybox: Option<&Path>) -> PathBuf {
    let (place, home) = (scratch.join("place"), scratch.join("home"));
    for dir in [".zfunc", ".config/fish/completions"] {
        fs::create_dir_all(home.join(dir)).expect("a directory");
    }
    for dir in ["src", "project"] {
        fs::create_dir_all(place.join(dir)).expect("a directory");
    }
    for (name, text) in [
        ("data.csv", "1\n"),
        ("data", "1\n"),
        ("Makefile", "all:\n\ttrue\n"),
        ("src/Makefile", "all:\n\ttrue\n"),
        ("train.py", "print(1)\n"),
        ("script.py", "print(1)\n"),
        ("burrow.toml", ""),
    ] {
        fs::write(place.join(name), text).expect("a file");
    }
    if let Some(busybox) = busybox {
        images::write_root(&place.join("rootfs"), busybox, &["sh", "cat", "sleep", "true"]);
    }
    place
}

/// Runs every fourth example, so that the parts run at once.
fn run_part(part: usize) {
    if !["bash", "jq", "make", "python3", "node", "zstd"].into_iter().all(have_or_skip) {
        return;
    }
    let busybox = images::busybox();
    let places = Places::new();
    let place = prepare(places.plain.scratch(), busybox.as_deref());
    let home = places.plain.scratch().join("home");
    let bin = bridge_path();
    let bin = bin.parent().expect("a directory").display().to_string();
    let search = format!("{bin}:{}", std::env::var("PATH").expect("a path"));
    let seconds = slowed(EXAMPLE_MAX).as_secs().to_string();
    // Only root makes a network without becoming somebody else.
    let has_networks = Uid::effective().is_root() && have_or_skip("ip");
    let mut failed = Vec::new();
    let own: Vec<String> = verbs().into_iter().skip(part).step_by(PARTS).collect();
    let here = examples().into_iter().filter(|(verb, line)| {
        let is_endless = ENDLESS.iter().any(|part| line.contains(part));
        own.contains(verb)
            && not_run(line).is_none()
            && (!line.contains("&& man ") || have("man"))
            && (!is_endless || has_networks)
            && (!line.contains("image ") || busybox.is_some())
    });
    for (verb, line) in here {
        let example = without_comment(&line);
        let mut bash = Command::new("timeout");
        let is_endless = ENDLESS.iter().any(|part| line.contains(part));
        let script = if is_endless { FOR_A_WHILE } else { example };
        bash.args(["--kill-after=5", &seconds]);
        if is_endless {
            bash.args(["unshare", "--net"]);
        }
        let loopback = if is_endless { "ip link set lo up || exit 92" } else { "" };
        bash.args(["bash", "-c", &format!("{loopback}\n{SCENE}\n{script}")]);
        bash.env("COMMAND", example).env("SECONDS_MAX", ENDLESS_SECONDS);
        for (name, value) in places.of(&line).command(&[]).get_envs() {
            if let Some(value) = value {
                bash.env(name, value);
            }
        }
        bash.env_remove("BURROW_NO_DAEMON").env("EXAMPLE", &line);
        bash.env("PATH", &search).env("HOME", &home).current_dir(&place);
        let output = bash.stdin(std::process::Stdio::null()).output().expect("bash runs");
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            failed.push(format!("{verb}: {example}: {}: {stderr}", output.status));
        }
    }
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n"));
}
