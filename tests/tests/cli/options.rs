//! The options of a new sandbox: every verb that makes one honours them or refuses them, the configuration's
//! defaults reach it, and words that mean something else are answered with what to write.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tests::machines::{kit, machines_or_skip};
use tests::{Burrow, have, skip};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// With a configuration, for verbs and for the daemon.
fn configured(content: &str) -> (Burrow, PathBuf) {
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    fs::write(&config, content).expect("a configuration");
    (burrow, config)
}

fn run(burrow: &Burrow, variable: (&str, &str), arguments: &[&str]) -> Output {
    let mut command = burrow.command(arguments);
    command.env(variable.0, variable.1).output().expect("the bridge runs")
}

/// Runs one that must fail as a refusal does, and returns what it says.
fn refused(output: &Output) -> String {
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), String::new()));
    text(&output.stderr)
}

#[test]
fn repl_honours_the_machine_or_refuses_it() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    let burrow = Burrow::new();
    // No agent is at an address that nobody gives: it must not run anywhere else.
    for machine in ["external", "vax"] {
        let code = ["repl", "-c", "print('ran')"];
        refused(&run(&burrow, ("BURROW_MACHINE", machine), &code));
    }
    if !machines_or_skip() {
        return;
    }
    let code = "import os; print(os.uname().release)";
    let output = run(&burrow, ("BURROW_MACHINE", "qemu"), &["repl", "--image", "full", "-c", code]);
    let own = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel has one");
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!stdout.is_empty() && stdout.trim() != own.trim(), "{stdout:?} in {}", kit().display());
}

#[test]
fn repl_has_the_options_of_a_new_sandbox() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    let burrow = Burrow::new();
    let code = "import os, shutil; print(os.uname().nodename, shutil.disk_usage('/').total >> 20)";
    let arguments = ["repl", "--hostname", "own", "--scratch", "64M", "-c", code];
    assert_eq!(burrow.ok(&arguments), "own 64\n");
    let code = "import socket\ntry: socket.getaddrinfo('evil.example', 443)\nexcept OSError: pass";
    let output = burrow.run(&["repl", "--egress", "good.example", "-c", code]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("egress to evil.example was refused"), "{stderr}");
    let output = burrow.run(&["repl", "--image", "alpine:3", "-c", "print('ran')"]);
    assert!(refused(&output).contains("alpine:3"));
    let output = burrow.run(&["repl", "--memory", "1", "-c", "print('ran')"]);
    assert!(refused(&output).contains("--memory"), "the refusal names the flag");
}

#[test]
fn a_sandbox_begins_where_its_programs_can_write() {
    let burrow = Burrow::serving();
    let output = |arguments: &[&str]| burrow.ok(arguments);
    let script = ["--", "sh", "-c", "pwd; touch made && stat -c %U made"];
    let one_shot = |options: &[&str]| output(&[&["run"], options, &script].concat());
    assert_eq!(one_shot(&[]), "/sandbox\nroot\n");
    assert_eq!(one_shot(&["--user", "nobody"]), "/sandbox\nnobody\n");
    let project = burrow.scratch().join("project");
    fs::create_dir(&project).expect("a directory");
    let project = project.to_str().expect("text");
    assert_eq!(one_shot(&["--workspace", project]), "/workspace\nroot\n");
    assert!(fs::exists(format!("{project}/made")).expect("it can be looked for"));
    assert_eq!(one_shot(&["--cwd", "/tmp"]), "/tmp\nroot\n");
    output(&["start", "--name", "work", "--user", "nobody"]);
    assert_eq!(output(&[&["exec", "work"][..], &script].concat()), "/sandbox\nnobody\n");
    output(&["start", "--name", "project", "--workspace", project]);
    assert_eq!(output(&[&["exec", "project"][..], &script].concat()), "/workspace\nroot\n");
    if have("python3") {
        let code = "import os; print(os.getcwd()); open('own', 'w').close()";
        assert_eq!(output(&["repl", "work", "-c", code]), "/sandbox\n");
        assert_eq!(output(&["repl", "project", "-c", code]), "/workspace\n");
        assert_eq!(output(&["repl", "-c", code]), "/sandbox\n");
    }
}

#[test]
fn options_of_a_new_sandbox_are_refused_for_one_that_exists() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let output = burrow.run(&["repl", "work", "--memory", "64M", "--egress", "a.org", "-c", "1"]);
    let message = refused(&output);
    assert!(message.contains("--memory, --egress are for a new sandbox"), "{message}");
}

#[test]
fn defaults_of_the_configuration_reach_every_verb() {
    let defaults = "[defaults]\nmemory_mib = 96\nidle_ttl = \"7m\"\negress = [\"good.example\"]\n";
    let (mut burrow, config) = configured(defaults);
    let config = config.to_str().expect("text").to_owned();
    let variable = ("BURROW_CONFIG", config.as_str());
    if have("python3") {
        let code =
            "import socket\ntry: socket.getaddrinfo('evil.example', 443)\nexcept OSError: pass";
        for verb in [&["run", "--", "python3"][..], &["repl"]] {
            let output = run(&burrow, variable, &[verb, &["-c", code]].concat());
            let stderr = text(&output.stderr);
            assert!(stderr.contains("egress to evil.example was refused"), "{verb:?}: {stderr}");
        }
    }
    burrow.serve_with(&["--config", &config]);
    burrow.ok(&["start", "--name", "usual"]);
    let arguments =
        ["start", "--name", "own", "--memory", "64M", "--idle", "1m", "--egress", "none"];
    burrow.ok(&arguments);
    let shown = |name: &str| {
        let shown = burrow.ok(&["inspect", name, "--json"]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let record = shown.get("sandbox").unwrap_or(&shown).clone();
        (record["memory_mib"].as_u64(), record["idle_ttl_ms"].as_u64(), record["egress"].clone())
    };
    let (memory, idle, egress) = shown("usual");
    assert_eq!((memory, idle), (Some(96), Some(420_000)));
    assert_eq!(egress, serde_json::json!(["good.example"]));
    let (memory, idle, egress) = shown("own");
    assert_eq!((memory, idle), (Some(64), Some(60_000)));
    assert!(egress.is_null() || egress == serde_json::json!([]), "{egress}");
}

#[test]
fn built_in_limits_are_not_for_a_persons_own_sandboxes() {
    let burrow = Burrow::serving();
    let record: Value =
        serde_json::from_str(&burrow.ok(&["start", "--json"])).expect("a record as JSON");
    assert!(record["memory_mib"].is_null() && record["cpu_millis"].is_null(), "{record}");
}

#[test]
fn the_default_machine_reaches_every_verb() {
    // It cannot be started like this, which is how it is seen that it is asked for.
    let (mut burrow, config) = configured("[defaults]\nmachine = \"firecracker\"\n");
    let config = config.to_str().expect("text").to_owned();
    for verb in [
        &["run", "--image", "nowhere", "--", "true"][..],
        &["repl", "--image", "nowhere", "-c", "1"],
    ] {
        let message = refused(&run(&burrow, ("BURROW_CONFIG", &config), verb));
        assert!(!message.contains("there is no image \"nowhere\" in the store"), "{message}");
    }
    burrow.serve_with(&["--config", &config]);
    let output = burrow.run(&["start", "--json", "--image", "nowhere"]);
    let process = burrow.run(&["start", "--json", "--machine", "process", "--image", "nowhere"]);
    let (message, of_process) = (refused(&output), refused(&process));
    assert_ne!(message, of_process, "the default machine says something else of an image");
}

#[test]
fn a_cap_is_refused_with_the_flag_that_sets_the_limit() {
    let caps = "[caps.per_namespace]\nmemory_mib = 500\n";
    let (mut burrow, config) = configured(caps);
    burrow.serve_with(&["--config", config.to_str().expect("text")]);
    let message = refused(&burrow.run(&["start"]));
    assert!(
        message.contains("has a cap on memory_mib") && message.contains("--memory"),
        "{message}"
    );
    let message = refused(&burrow.run(&["start", "--memory", "600"]));
    assert!(message.contains("--memory"), "{message}");
    burrow.ok(&["start", "--memory", "100"]);
    burrow.end_daemon();
    let (mut burrow, config) = configured(&format!("{caps}[defaults]\nmemory_mib = 100\n"));
    burrow.serve_with(&["--config", config.to_str().expect("text")]);
    burrow.ok(&["start"]);
}

#[test]
fn an_unknown_option_before_the_command_is_no_program() {
    let burrow = Burrow::new();
    for (arguments, message) in [
        (
            &["run", "--timout", "5s", "--", "true"][..],
            "unknown option --timout; did you mean --timeout?",
        ),
        (
            &["exec", "--timout", "5s", "work", "true"],
            "unknown option --timout; did you mean --timeout?",
        ),
        (&["ps", "--al"], "unknown option --al; did you mean --all?"),
    ] {
        let found = refused(&burrow.run(arguments));
        assert_eq!(found, format!("host-bridge: {message}\n"), "{arguments:?}");
    }
    let output = burrow.run(&["run", "--", "--timout"]);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
}

#[test]
fn words_of_docker_mean_what_its_users_mean_or_are_refused_by_name() {
    let burrow = Burrow::new();
    assert_eq!(burrow.ok(&["run", "--rm", "--", "echo", "hello"]), "hello\n");
    for (arguments, words) in [
        (
            &["run", "-v", ".:/work", "--", "true"][..],
            &["-v .:/work", "--workspace .", "--mount"][..],
        ),
        (&["start", "-v", "./src:/src"], &["-v ./src:/src", "--workspace ./src"]),
        (&["run", "-p", "8080:80", "--", "true"], &["-p 8080:80", "port-forward NAME 8080:80"]),
        (&["run", "-d", "--", "true"], &["-d", "host-bridge start", "exec -d NAME"]),
        (&["start", "alpine", "sh", "-c", "true"], &["--image alpine", "exec NAME -- sh -c true"]),
    ] {
        let message = refused(&burrow.run(arguments));
        for word in words {
            assert!(message.contains(word), "{arguments:?}: {message}");
        }
    }
    // What is removed as soon as it stops, and started in the background as ever.
    let burrow = Burrow::serving();
    burrow.ok(&["start", "-d", "--rm", "--name", "gone"]);
    burrow.ok(&["stop", "gone"]);
    tests::eventually("it is removed", || !burrow.run(&["inspect", "gone"]).status.success());
}
