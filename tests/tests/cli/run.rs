//! `host-bridge run`: one command in a sandbox of its own, as a person at a terminal or a script sees
//! it.

use std::time::{Duration, Instant};

use tests::{Burrow, have, skip};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn stdout_and_stderr_stay_apart_and_the_code_is_the_commands_own() {
    let burrow = Burrow::new();
    let output = burrow.run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(text(&output.stderr), "err\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_program_that_leaves_a_child_behind_returns_at_once() {
    let burrow = Burrow::new();
    let before = Instant::now();
    let output = burrow.run(&["run", "--", "sh", "-c", "sleep 1000 & echo hi"]);
    assert!(before.elapsed() < Duration::from_secs(10), "waited for the child");
    assert_eq!(text(&output.stdout), "hi\n");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("left"), "says what was left: {:?}", output.stderr);
}

#[test]
fn failures_to_start_have_the_codes_of_a_shell_and_say_why() {
    let burrow = Burrow::new();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["run", "--", "no-such-program"], 127, "no-such-program"),
        (&["run", "--", "/etc/hostname"], 126, "/etc/hostname"),
        (&["run", "--cwd", "/nowhere", "--", "true"], 126, "/nowhere"),
        (&["run", "--user", "nobody-knows", "--", "true"], 125, "nobody-knows"),
    ];
    for (arguments, code, named) in cases {
        let output = burrow.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(named), "{arguments:?} does not name it: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_program_that_runs_out_of_memory_is_reported_with_the_limit() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    let burrow = Burrow::new();
    let hungry = "python3 -c \"x = bytearray(300 << 20); print('had it')\"";
    let run = |script: &str| {
        let output = burrow.run(&["run", "--memory", "96M", "--", "sh", "-c", script]);
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, shown) = run(&format!("exec {hungry}"));
    if shown.contains("is not enforced") {
        return skip("the control groups of this host cannot bound memory");
    }
    assert_eq!(code, Some(137), "{shown}");
    assert!(shown.contains("sh: out of memory, with a limit of 96.0 MiB"), "{shown}");
    // A shell survives its command, and returns what would be a silent number.
    let (code, shown) = run(&format!("{hungry}; exit $?"));
    assert_eq!(code, Some(137), "{shown}");
    assert!(shown.contains("sh: out of memory, with a limit of 96.0 MiB"), "{shown}");
    // A process that continues after it has not ended because of it, and neither has one that is
    // killed otherwise.
    assert_eq!(run(&format!("{hungry} 2>/dev/null; exit 3")).0, Some(3));
    let (code, shown) = run("kill -9 $$");
    assert_eq!((code, shown.contains("out of memory")), (Some(137), false), "{shown}");
}

#[test]
fn a_name_that_is_refused_is_reported_at_the_end_and_recorded() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    let burrow = Burrow::new();
    let code = "import socket\nfor name in ['evil.example'] * 3 + ['worse.example']:\n  \
                try: socket.getaddrinfo(name, 443)\n  except OSError: pass\nprint('went on')";
    let output = burrow.run(&["run", "--egress", "good.example", "--", "python3", "-c", code]);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "went on\n"), "{stderr}");
    for name in ["evil.example", "worse.example"] {
        let line = format!("host-bridge: egress to {name} was refused: no rule allows it\n");
        assert_eq!(stderr.matches(&line).count(), 1, "{stderr}");
    }
    let records = burrow.ok(&["audit", "--json", "-n", "1000"]);
    let records =
        records.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let refused = records.filter(|record| {
        record["operation"] == "egress.name"
            && record["outcome"] == "refused"
            && record["policy"] == "egress"
            && record["facts"]["host"] == "evil.example"
            && record["sandbox"].is_string()
    });
    assert!(refused.count() >= 1, "nothing is recorded");
}

#[test]
fn a_deadline_ends_the_whole_tree() {
    let burrow = Burrow::new();
    let before = Instant::now();
    let script = "setsid sleep 1000 & sleep 1000";
    let output = burrow.run(&["run", "--timeout", "1s", "--", "sh", "-c", script]);
    let took = before.elapsed();
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_signal_that_a_program_sends_itself_is_reported_as_its_own() {
    let burrow = Burrow::new();
    let output = burrow.run(&["run", "--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(output.status.code(), Some(128 + 11), "{}", text(&output.stderr));
}

#[test]
fn stdin_is_forwarded_on_request_and_empty_otherwise() {
    let burrow = Burrow::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let output = burrow.feed(&["run", "-i", "--", "cat"], &bytes);
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    let output = burrow.feed(&["run", "--", "cat"], b"unheard");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), ""));
}

#[test]
fn the_environment_the_directory_and_the_user_are_as_asked() {
    let burrow = Burrow::new();
    let arguments = ["run", "-e", "GREETING=hej", "--cwd", "/tmp", "--user", "1234:567", "--"];
    let script = "echo $GREETING $(pwd) $(id -u):$(id -g)";
    let output = burrow.ok(&[&arguments[..], &["sh", "-c", script]].concat());
    assert_eq!(output, "hej /tmp 1234:567\n");
}

#[test]
fn arguments_are_not_read_by_any_shell() {
    let burrow = Burrow::new();
    let output = burrow.ok(&["run", "--", "printf", "%s|", "$HOME", "a b", "*", "", "\"'"]);
    assert_eq!(output, "$HOME|a b|*||\"'|");
}

#[test]
fn files_written_inside_stay_inside() {
    let burrow = Burrow::new();
    let marker = format!("/etc/burrow-test-{}", std::process::id());
    let script = format!("echo x > {marker} && cat {marker}");
    assert_eq!(burrow.ok(&["run", "--", "sh", "-c", &script]), "x\n");
    assert!(!std::path::Path::new(&marker).exists(), "{marker} is on the host");
}

#[test]
fn the_sandbox_has_its_own_processes_network_and_host_name() {
    let burrow = Burrow::new();
    let script = "hostname; ls -d /proc/[0-9]* | wc -l; ls /sys/class/net; cat /proc/1/comm";
    let output = burrow.ok(&["run", "--name", "burrow-one", "--", "sh", "-c", script]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.first(), Some(&"burrow-one"));
    let processes: u32 = lines[1].trim().parse().expect("a number");
    assert!(processes < 8, "{processes} processes are seen");
    assert_eq!(lines[2], "lo");
    assert_eq!(lines[3], "guest-agent");
}

#[test]
fn a_sandbox_leaves_nothing_behind() {
    let burrow = Burrow::new();
    burrow.ok(&["run", "--", "sh", "-c", "sleep 1000 & setsid sleep 1000 & true"]);
    let left: Vec<_> = walk(&burrow.runtime());
    assert!(left.is_empty(), "left in the runtime directory: {left:?}");
    let mut boxes = walk(&burrow.state());
    // That it ran is recorded.
    boxes.retain(|path| !path.starts_with(burrow.state().join("audit")));
    assert!(boxes.is_empty(), "left in the state directory: {boxes:?}");
}

/// Files and sockets below `dir`, other than what a daemon would share.
fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn a_reader_that_goes_away_ends_an_endless_program() {
    let burrow = Burrow::new();
    let mut child = burrow
        .command(&["run", "--", "yes"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdout = child.stdout.take().expect("piped");
    let mut first = [0; 4];
    std::io::Read::read_exact(&mut stdout, &mut first).expect("some output");
    drop(stdout);
    assert_eq!(&first, b"y\ny\n");
    let mut ended = None;
    tests::eventually("the bridge ends", || {
        ended = child.try_wait().expect("it is ours");
        ended.is_some()
    });
}

#[test]
fn a_bridge_that_is_killed_takes_its_one_shot_sandbox_with_it() {
    let burrow = Burrow::new();
    let mut child = burrow.command(&["run", "--", "sleep", "1000"]).spawn().expect("starts");
    let bridge = nix::unistd::Pid::from_raw(child.id() as i32);
    let mut supervisors = Vec::new();
    tests::eventually("the sandbox runs", || {
        supervisors = tests::children(bridge);
        supervisors.iter().any(|supervisor| {
            tests::children(*supervisor).iter().any(|init| !tests::children(*init).is_empty())
        })
    });
    child.kill().expect("it is ours");
    child.wait().expect("it was ours");
    for supervisor in supervisors {
        tests::eventually("the sandbox is gone", || tests::resident_bytes(supervisor).is_none());
    }
}

#[test]
fn a_program_cannot_make_others_wait_for_a_file() {
    let burrow = Burrow::new();
    let code = "import fcntl\n\
         file = open('/var/file', 'w')\n\
         try:\n\
         \x20   fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
         except OSError as error:\n\
         \x20   print(error.strerror, fcntl.fcntl(file, fcntl.F_GETFD))";
    let ran = burrow.run(&["run", "--", "python3", "-c", code]);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "Invalid argument 1\n");
}

#[test]
fn programs_of_an_account_without_a_home_have_a_directory_of_their_own_as_home() {
    let burrow = Burrow::new();
    let of = |user: &str, more: &[&str], script: &str| {
        let words = [&["run", "--user", user], more, &["--", "sh", "-c", script]].concat();
        burrow.ok(&words)
    };
    let script = "echo $HOME; pwd; touch ~/kept && ls";
    for user in ["nobody", "4321", "4321:4321"] {
        assert_eq!(of(user, &[], script), "/sandbox\n/sandbox\nkept\n", "{user}");
    }
    // Wherever it begins, the directory is its own.
    assert_eq!(
        of("nobody", &["--cwd", "/tmp"], "echo $HOME; pwd; touch ~/kept"),
        "/sandbox\n/tmp\n"
    );
    assert_eq!(of("nobody", &["--env", "HOME=/tmp"], "echo $HOME"), "/tmp\n");
    // An account whose directory is there has it.
    assert_eq!(of("root", &[], "echo $HOME"), "/root\n");
    assert_eq!(of("daemon", &[], "echo $HOME"), "/usr/sbin\n");
}

#[test]
fn npm_and_pip_keep_caches_for_an_account_without_a_home() {
    if !have("npm") || !have("pip") {
        return skip("npm or pip is not installed");
    }
    let burrow = Burrow::new();
    let caches = "npm config get cache; pip cache dir; mkdir -p ~/.npm ~/.cache/pip && echo made";
    let made = burrow.ok(&["run", "--user", "nobody", "--", "sh", "-c", caches]);
    assert_eq!(made, "/sandbox/.npm\n/sandbox/.cache/pip\nmade\n");
}
