//! The examples of help are run as they stand, each in a place that has what it names: what a person pastes
//! must work. Those that cannot run here are listed with the reason, and a row that matches none is wrong.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::{Burrow, bridge_path, have, have_or_skip, slowed};

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
    ("host-bridge mcp", "it speaks with an MCP client"),
    ("image pull", "it needs a registry"),
    ("image build", "the tests of images build some"),
    ("image import", "the tests of images import some"),
    ("image save", "the tests of images save some"),
    ("image commit", "the tests of images commit some"),
    ("image rm", "the tests of images remove some"),
    ("image inspect", "the tests of images look at some"),
    ("--image ", "the image is the reader's own"),
    ("--pip ", "it needs a registry"),
    ("pip install ./package", "the package is the reader's own"),
    ("0123456789ab", "the id is the reader's own"),
    ("1f0c8a2b77de", "the id is the reader's own"),
    ("3f2a90c1b7de", "the id is the reader's own"),
    ("host-bridge preview work", "it needs a server"),
    ("--secret", "the secret is the reader's own"),
    ("--follow", "it does not end"),
    ("logs -f", "it does not end"),
    ("events -f", "it does not end"),
    ("port-forward", "it does not end"),
    ("serve --dev", "it does not end"),
    ("serve --listen", "it does not end"),
    ("serve --ssh", "it does not end"),
    (">> ~/.ssh/config", "the configuration is the reader's own"),
    ("serve --set", "it does not end"),
    ("study.ipynb", "the notebook is the reader's own"),
    ("store repair", "it needs a store that no bridge has open"),
    ("vsock:", "it needs a virtual machine"),
    ("snapshot", "it needs a virtual machine"),
    ("template shop", "the template is the reader's own"),
    ("template create", "the program of the template is the reader's own"),
    ("template show", "the template is the reader's own"),
    ("template rm", "the template is the reader's own"),
    ("shop", "the app is the reader's own"),
    ("python3.9", "the interpreter is the reader's own"),
    ("a:/data", "the sandboxes are the reader's own"),
    ("host-bridge pause", "not every process machine can pause"),
    ("host-bridge node ", "it needs a fleet"),
    ("fleet dev", "it does not end"),
    ("host-bridge sync", "it needs a workspace"),
    ("generate |", "the program is the reader's own"),
    ("receipt work build", "the session is the reader's own and has ended"),
    ("receipt verify build.receipt", "the receipt is the reader's own"),
    ("history analysis", "the notebook is the reader's own"),
    ("history --json team", "the notebook is the reader's own"),
];

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
*"context "*) host-bridge context open work python >/dev/null 2>&1 ;;
*"exec -d "*) ;;
*build*) host-bridge exec -d --session build work -- sh -c 'trap "exit 0" INT HUP; sleep 1 & wait' >/dev/null 2>&1 ;;
esac
case $EXAMPLE in
*make*) host-bridge exec work -- sh -c 'printf "test:\n\ttrue\n" > Makefile' || exit 98 ;;
*:/build*) host-bridge exec work -- mkdir -p /build || exit 97 ;;
esac
set -o pipefail
"#;

/// The lines of an example's block that are commands, without what they are for.
fn commands(help: &str) -> Vec<String> {
    let after = help.split("\nExamples:\n").nth(1).or_else(|| help.split("\nTry it:\n").nth(1));
    let lines = after.unwrap_or_default().lines();
    let lines =
        lines.take_while(|line| line.is_empty() || line.starts_with(' ') || line.ends_with(':'));
    let lines = lines.filter(|line| line.contains("host-bridge"));
    lines.map(|line| format!("{} ", line.trim_start())).collect()
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
    let run = examples.iter().filter(|(_, line)| not_run(line).is_none()).count();
    assert!(run > 100, "only {run} are run");
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

/// Runs every fourth example, so that the parts run at once.
fn run_part(part: usize) {
    if !["bash", "jq", "make", "python3", "node", "zstd"].into_iter().all(have_or_skip) {
        return;
    }
    // The daemon starts by itself, as for a person.
    let burrow = Burrow::new();
    let (place, home) = (burrow.scratch().join("place"), burrow.scratch().join("home"));
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
    let bin = bridge_path();
    let bin = bin.parent().expect("a directory").display().to_string();
    let search = format!("{bin}:{}", std::env::var("PATH").expect("a path"));
    let seconds = slowed(EXAMPLE_MAX).as_secs().to_string();
    let mut failed = Vec::new();
    let own: Vec<String> = verbs().into_iter().skip(part).step_by(PARTS).collect();
    let here = examples().into_iter().filter(|(verb, line)| {
        own.contains(verb) && not_run(line).is_none() && (!line.contains("&& man ") || have("man"))
    });
    for (verb, line) in here {
        let example = without_comment(&line);
        let mut bash = Command::new("timeout");
        bash.args(["--kill-after=5", &seconds, "bash", "-c", &format!("{SCENE}\n{example}")]);
        for (name, value) in burrow.command(&[]).get_envs() {
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
