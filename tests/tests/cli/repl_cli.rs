//! `repl` and `context` as people and scripts use them: held against the languages' own
//! interpreters wherever those say what is right.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::contexts::notebook;
use tests::http::Client;
use tests::server::Server;
use tests::tmux::Tmux;
use tests::{Burrow, have, skip};

/// What a program says and how it ends, when it reads `input`.
fn fed(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program need not read its input.
    child.stdin.take().expect("piped").write_all(input.as_bytes()).ok();
    child.wait_with_output().expect("the program runs")
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rfind(|line| !line.starts_with("host-bridge:")).unwrap_or("").into()
}

/// The beginning of a program's output, for an error.
fn text_of(output: &Output) -> String {
    format!("{output:?}").chars().take(600).collect()
}

/// Runs `code` in the interpreter itself and in ours, which must not differ.
fn check_same(interpreter: &[&str], language: &str, codes: &[(&str, &str)]) {
    let burrow = Burrow::new();
    let mut wrong = Vec::new();
    for (code, input) in codes {
        let mut own = Command::new(interpreter[0]);
        own.args(&interpreter[1..]).arg(code);
        let own = fed(own, input);
        let ours = fed(burrow.command(&["repl", "--lang", language, "-c", code]), input);
        let code_of_signal = std::os::unix::process::ExitStatusExt::signal(&own.status);
        let exit = own.status.code().or(code_of_signal.map(|signal| 128 + signal));
        let same = own.stdout == ours.stdout
            && exit == ours.status.code()
            && last_line(&own.stderr) == last_line(&ours.stderr);
        if !same {
            let (own, ours) = (text_of(&own), text_of(&ours));
            wrong.push(format!("{code:?}\n  own:  {exit:?} {own}\n  ours: {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn python_code_ends_as_in_python() {
    check_same(
        &["/usr/bin/python3", "-c"],
        "python",
        &[
            ("print('out')\n1 + 1", ""),
            ("print('x', end='')", ""),
            ("import sys; print('err', file=sys.stderr)", ""),
            ("1/0", ""),
            ("x = = 1", ""),
            ("print('''unclosed", ""),
            ("def f():\n    x = 1\n\n    return x\n\nprint(f())", ""),
            ("raise SystemExit", ""),
            ("import sys; sys.exit(3)", ""),
            ("import sys; sys.exit(-1)", ""),
            ("import sys; sys.exit('words')", ""),
            ("exit(300)", ""),
            ("quit()", ""),
            ("import os; os._exit(5)", ""),
            ("import os; os.kill(os.getpid(), 9)", ""),
            ("import os; os.kill(os.getpid(), 11)", ""),
            ("import os; print('before', flush=True); os.abort()", ""),
            ("import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xfe')", ""),
            ("import subprocess; subprocess.run(['echo', 'child'])", ""),
            ("import os; os.system('echo child; echo err >&2')", ""),
            ("print(input('name? ') + '!')", "line\nmore\n"),
            ("print([input(), input()])", "one\ntwo"),
            ("input()", ""),
            ("import sys; print(sys.stdin.read())", "a\nb\n"),
            ("import sys; print([line for line in sys.stdin])", "a\nb\n"),
            ("print(__name__)", ""),
            ("for i in range(20000): print(i)", ""),
            ("print('\u{fc}\u{20ac}\u{1f600}')", ""),
            ("import atexit; atexit.register(print, 'bye')", ""),
            (
                "import threading, time\n\
                 t = threading.Thread(target=lambda: (time.sleep(.3), print('late')))\n\
                 t.start(); print('soon')",
                "",
            ),
            ("raise KeyboardInterrupt", ""),
        ],
    );
}

#[test]
fn shell_code_ends_as_in_bash() {
    check_same(
        &["bash", "-c"],
        "bash",
        &[
            ("echo out; echo err >&2", ""),
            ("printf x", ""),
            ("exit 7", ""),
            ("true", ""),
            ("f() {\n  echo $1\n}\nf a; f b", ""),
            ("seq 1 20000", ""),
            ("printf '\\377\\0'", ""),
            ("cd /tmp && pwd", ""),
            ("kill -9 $$", ""),
        ],
    );
}

#[test]
fn javascript_ends_as_in_node() {
    if !have("node") {
        return skip("no node here");
    }
    check_same(
        &["node", "-e"],
        "node",
        &[
            ("console.log('out'); 1 + 1", ""),
            ("process.stdout.write('x')", ""),
            ("console.error('err')", ""),
            ("process.exit(4)", ""),
            ("const x = 1; console.log(require('path').basename('/a/b'), x)", ""),
            ("for (let i = 0; i < 20000; i++) console.log(i)", ""),
            ("process.stdout.write(Buffer.from([255, 0, 254]))", ""),
            ("process.kill(process.pid, 'SIGKILL')", ""),
        ],
    );
    let burrow = Burrow::new();
    let failed = burrow.run(&["repl", "--lang", "js", "-c", "throw new TypeError('no')"]);
    assert_eq!(failed.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(stderr.contains("TypeError: no") && stderr.contains("[eval]:1"), "{stderr}");
}

#[test]
fn a_file_is_run_by_its_ending_and_named_in_tracebacks() {
    let burrow = Burrow::new();
    let write = |name: &str, code: &str| {
        let path = burrow.scratch().join(name);
        std::fs::write(&path, code).expect("a file");
        path.display().to_string()
    };
    let script = write("fails.py", "def f():\n    raise ValueError('deep')\n\nf()\n");
    let failed = burrow.run(&["repl", &script]);
    assert_eq!(failed.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(stderr.contains(&format!("File \"{script}\", line 2, in f")), "{stderr}");
    assert!(stderr.ends_with("ValueError: deep\n"), "{stderr}");
    assert_eq!(burrow.ok(&["repl", &write("a.sh", "echo shell $((1 + 1))")]), "shell 2\n");
    if have("node") {
        assert_eq!(burrow.ok(&["repl", &write("a.js", "console.log('js')")]), "js\n");
    }
    let none = burrow.run(&["repl", "./missing.py"]);
    assert_eq!(none.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&none.stderr).contains("./missing.py"));
}

#[test]
fn stdin_is_the_code_where_no_person_sits() {
    let burrow = Burrow::new();
    for arguments in [&["repl"][..], &["repl", "-"]] {
        let ran = burrow.feed(arguments, b"x = 2\nprint(x + 1)\n");
        assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), &b"3\n"[..]));
    }
    let failed = burrow.feed(&["repl"], b"print(1)\nprint(y)\n");
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(stderr.contains("File \"<stdin>\", line 2"), "{stderr}");
    assert_eq!(failed.status.code(), Some(1));
    // Its input is its code, which it has read.
    let empty = burrow.feed(&["repl"], b"print(input())");
    assert!(String::from_utf8_lossy(&empty.stderr).contains("EOFError"));
}

#[test]
fn code_of_megabytes_is_run() {
    let burrow = Burrow::new();
    let mut code = "x = 1\n".repeat(500_000);
    code.push_str("print(x)\n");
    let ran = burrow.feed(&["repl", "-"], code.as_bytes());
    assert_eq!(ran.stdout, b"1\n", "{}", String::from_utf8_lossy(&ran.stderr));
    let large = vec![b'#'; 17 * 1024 * 1024];
    let refused = burrow.feed(&["repl", "-"], &large);
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("larger than the limit of"));
}

#[test]
fn a_time_limit_ends_whatever_runs() {
    let burrow = Burrow::new();
    let swallows =
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass";
    for (code, language) in [
        ("print('begun', flush=True)\nwhile True: pass", "python"),
        (swallows, "python"),
        ("import time; time.sleep(1000)", "python"),
        ("echo begun; sleep 1000", "bash"),
    ] {
        let begun = Instant::now();
        let ran = burrow.run(&["repl", "--lang", language, "--timeout", "500ms", "-c", code]);
        assert_eq!(ran.status.code(), Some(124), "{code}: {ran:?}");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(stderr.contains("after its time limit of 500ms"), "{stderr}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{code}");
        if code.contains("begun") {
            assert_eq!(ran.stdout, b"begun\n");
        }
    }
}

/// A run that has printed its first line.
fn begun(burrow: &Burrow, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = burrow
        .command(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the bridge starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "begun\n");
    (child, stdout)
}

fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    (child.wait().expect("it was ours").code(), stderr)
}

fn press_ctrl_c(child: &Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it is ours");
}

#[test]
fn ctrl_c_interrupts_as_it_does_in_the_interpreter() {
    let burrow = Burrow::new();
    let code = "print('begun', flush=True)\nimport time\ntime.sleep(1000)";
    let (child, _) = begun(&burrow, &["repl", "-c", code]);
    press_ctrl_c(&child);
    let (exit, stderr) = ended(child);
    assert_eq!(exit, Some(130), "{stderr}");
    assert!(stderr.ends_with("KeyboardInterrupt\n"), "{stderr}");
    // Code may deal with it, and still was interrupted.
    let code = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(1000)\n\
                except KeyboardInterrupt:\n    print('tidied up')";
    let (child, mut stdout) = begun(&burrow, &["repl", "-c", code]);
    press_ctrl_c(&child);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "tidied up\n");
    assert_eq!(ended(child).0, Some(130));
}

#[test]
fn ctrl_c_again_leaves_no_choice() {
    let burrow = Burrow::new();
    let code = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n\
                print('begun', flush=True)\ntime.sleep(1000)";
    let pressed = Instant::now();
    let (child, _) = begun(&burrow, &["repl", "-c", code]);
    for _ in 0..3 {
        press_ctrl_c(&child);
        // Signals that come together are one: the next press must be another.
        std::thread::sleep(Duration::from_millis(200));
    }
    let (exit, stderr) = ended(child);
    assert_eq!(exit, Some(130), "{stderr}");
    assert!(stderr.contains("the interpreter was killed: it did not react to ctrl-c"), "{stderr}");
    assert!(pressed.elapsed() < Duration::from_secs(4), "no grace was waited for");
}

#[test]
fn a_closed_output_ends_the_code() {
    let burrow = Burrow::new();
    let code = "print('begun', flush=True)\nwhile True: print('x' * 1000)";
    let (child, stdout) = begun(&burrow, &["repl", "-c", code]);
    drop(stdout);
    assert_eq!(ended(child).0, Some(141));
}

#[test]
fn a_context_of_a_sandbox_keeps_what_runs_leave() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let python = |code: &str| burrow.run(&["repl", "work", "-c", code]);
    assert!(python("x = 41").status.success());
    assert_eq!(python("print(x + 1)").stdout, b"42\n");
    assert_eq!(burrow.ok(&["repl", "work", "--lang", "bash", "-c", "cd /tmp; y=1"]), "");
    assert_eq!(burrow.ok(&["repl", "work", "--lang", "sh", "-c", "echo $PWD $y"]), "/tmp 1\n");
    let other = burrow.run(&["repl", "work", "--context", "other", "-c", "print(x)"]);
    assert_eq!(other.status.code(), Some(1), "another context has another x");

    let table = burrow.ok(&["context", "ls", "work"]);
    let mut names: Vec<&str> =
        table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["bash", "other", "python"], "{table}");
    let listed: serde_json::Value =
        serde_json::from_str(&burrow.ok(&["context", "ls", "--json", "work"])).expect("JSON");
    let python_is = |info: &&serde_json::Value| info["context"] == "python";
    let info = listed.as_array().expect("a list").iter().find(python_is).expect("python");
    assert_eq!((&info["language"], &info["state"]), (&"python".into(), &"idle".into()));
    assert_eq!(info["runs"], 2);

    let several = burrow.run(&["context", "restart", "work"]);
    assert!(String::from_utf8_lossy(&several.stderr).contains("several contexts"));
    assert_eq!(burrow.ok(&["context", "restart", "work", "python"]), "python\n");
    let after = python("print(x)");
    let stderr = String::from_utf8_lossy(&after.stderr);
    assert!(stderr.contains("has a new interpreter") && stderr.contains("NameError"), "{stderr}");

    // The end of one is reported, and the next one learns of it.
    let died = python("import os; os.kill(os.getpid(), 11)");
    let stderr = String::from_utf8_lossy(&died.stderr);
    assert_eq!(died.status.code(), Some(139));
    assert!(stderr.contains("SIGSEGV; the state of the context is lost"), "{stderr}");
    let stderr = python("1").stderr;
    assert!(String::from_utf8_lossy(&stderr).contains("has a new interpreter"));

    for name in names {
        burrow.ok(&["context", "close", "work", name]);
    }
    let none = burrow.run(&["context", "interrupt", "work"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("has no contexts"));
    assert_eq!(
        burrow.ok(&["context", "open", "work", "node-like", "--lang", "bash"]),
        "node-like\n"
    );
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn a_run_of_somebody_else_is_interrupted_by_name() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let code = "print('begun', flush=True)\nimport time\nwhile True: time.sleep(1)";
    let (child, _) = begun(&burrow, &["repl", "work", "-c", code]);
    let table = burrow.ok(&["context", "ls", "work"]);
    assert!(table.contains("running 1"), "{table}");
    let result = burrow.run(&["context", "interrupt", "work"]);
    assert!(String::from_utf8_lossy(&result.stderr).contains("interrupting run 1 of python"));
    let (exit, stderr) = ended(child);
    assert_eq!(exit, Some(130));
    assert!(stderr.contains("the code was interrupted by burrow"), "{stderr}");
    // One that hangs up takes its run along, and its context stays.
    let (mut child, _) = begun(&burrow, &["repl", "work", "-c", code]);
    child.kill().expect("it is ours");
    child.wait().expect("it was ours");
    tests::eventually("the run ends", || burrow.ok(&["context", "ls", "work"]).contains("idle"));
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn every_event_is_available_as_json() {
    let burrow = Burrow::new();
    let code = "import sys, time\nprint('\u{fc}', flush=True)\ntime.sleep(.1)\n\
                sys.stdout.buffer.write(b'\\xff'); sys.stdout.flush()\n{'a': 1}";
    let text = burrow.ok(&["repl", "--json", "-c", code]);
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"started"));
    assert_eq!(kinds.last(), Some(&"finished"));
    let of = |kind: &'static str| events.iter().filter(move |event| event["event"] == kind);
    let stdout: String = of("stdout").filter_map(|event| event["text"].as_str()).collect();
    assert!(stdout.starts_with("\u{fc}"), "{text}");
    assert!(of("stdout").any(|event| event["base64"].is_string()), "{text}");
    let value = of("display").next().expect("a value");
    assert_eq!((&value["role"], &value["data"][0]["text"]), (&"value".into(), &"{'a': 1}".into()));
    let end = of("finished").next().expect("an end");
    assert_eq!((&end["cause"], &end["state_kept"]), (&"ok".into(), &true.into()));

    let failed = burrow.run(&["repl", "--json", "-c", "1/0"]);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8(failed.stdout).expect("UTF-8");
    assert!(text.contains("\"kind\":\"ZeroDivisionError\""), "{text}");
    assert!(failed.stderr.is_empty());
}

#[test]
fn displays_become_files() {
    let burrow = Burrow::new();
    let code = "class Picture:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n\\xff'\n    \
                def __repr__(self): return 'a picture'\ndisplay(Picture())";
    let result = burrow.run(&["repl", "-c", code]);
    let stderr = String::from_utf8_lossy(&result.stderr);
    assert_eq!(result.stdout, b"a picture\n", "{stderr}");
    assert!(stderr.contains("image/png; --save-displays DIR"), "{stderr}");
    let dir = burrow.scratch().join("shown");
    let dir = dir.to_str().expect("UTF-8");
    let result = burrow.run(&["repl", "--save-displays", dir, "-c", code]);
    let stderr = String::from_utf8_lossy(&result.stderr);
    assert!(stderr.contains(&format!("displayed: {dir}/001.png")), "{stderr}");
    let png = std::fs::read(format!("{dir}/001.png")).expect("a file");
    assert_eq!(png, b"\x89PNG\r\n\x1a\n\xff");
}

#[test]
fn a_slip_is_met_with_what_to_do() {
    let burrow = Burrow::serving();
    let stderr = |arguments: &[&str]| {
        let output = burrow.run(arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (exit, message) = stderr(&["repl", "nobox", "-c", "1"]);
    assert!(exit == Some(125) && message.contains("there is no sandbox nobox"), "{message}");
    let (exit, message) = stderr(&["repl", "no box"]);
    assert!(exit == Some(125) && message.contains("./no box"), "{message}");
    let (exit, message) = stderr(&["repl", "a.py", "-c", "1"]);
    assert!(exit == Some(125) && message.contains("by -c and by a.py"), "{message}");
    let (exit, message) = stderr(&["repl", "--program", "/no/python", "-c", "1"]);
    assert!(
        exit == Some(127) && message.contains("/no/python") && message.contains("--program"),
        "{message}"
    );
    let (exit, message) = stderr(&["repl", "--lang", "cobol", "-c", "1"]);
    assert!(exit == Some(125) && message.contains("python, node, bash"), "{message}");
    // A file that reads like a sandbox.
    let mut command = burrow.command(&["repl", "script"]);
    std::fs::write(burrow.scratch().join("script"), "print(1)").expect("a file");
    let output = command.current_dir(burrow.scratch()).output().expect("the bridge runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("./script"), "{message}");
    burrow.ok(&["start", "--name", "work"]);
    let (_, message) = stderr(&["repl", "work", "--scratch", "64M", "-c", "1"]);
    assert!(message.contains("exists already"), "{message}");
    burrow.ok(&["repl", "work", "-c", "1"]);
    let (exit, message) = stderr(&["repl", "work", "-e", "A=1", "-c", "1"]);
    assert!(exit == Some(125) && message.contains("another environment"), "{message}");
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn without_code_a_person_gets_a_prompt() {
    let burrow = Burrow::new();
    let Some(terminal) = Tmux::open(&burrow) else { return };
    let mode = terminal.mode();
    terminal.line("hb repl; echo left with $?");
    terminal.wait_for(">>>");
    let screen = terminal.screen();
    assert!(screen.contains("in a new sandbox: ctrl-d ends it"), "{screen}");
    assert!(!screen.contains("lives on"), "{screen}");
    terminal.line("6 * 7");
    terminal.wait_for("42");
    terminal.keys(&["C-d"]);
    terminal.wait_for("left with 0");
    terminal.wait_for_mode(&mode);
}

#[test]
fn a_secret_is_not_shown_while_it_is_typed() {
    let burrow = Burrow::new();
    let Some(terminal) = Tmux::open(&burrow) else { return };
    let mode = terminal.mode();
    let code = "import getpass; s = getpass.getpass('secret? '); print('length', len(s))";
    std::fs::write(burrow.scratch().join("ask.py"), code).expect("a file");
    terminal.line(&format!("hb repl {}/ask.py", burrow.scratch().display()));
    terminal.wait_for("secret?");
    terminal.line("hunter2");
    terminal.wait_for("length 7");
    assert!(!terminal.screen().contains("hunter2"), "{}", terminal.screen());
    terminal.wait_for_mode(&mode);
    // ctrl-c at the question leaves the terminal as it was, too.
    terminal.clear();
    terminal.line(&format!("hb repl {}/ask.py", burrow.scratch().display()));
    terminal.wait_for("secret?");
    terminal.keys(&["C-c"]);
    terminal.wait_for("KeyboardInterrupt");
    terminal.wait_for_mode(&mode);
}

#[test]
fn a_context_has_the_python_of_a_virtual_environment() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "work", "--", "python3", "-m", "venv", "--without-pip", "/sandbox/own"]);
    let prefix = ["-c", "import sys; print(sys.prefix)"];
    let line = [&["repl", "work", "--context", "one", "--venv", "/sandbox/own/"], &prefix[..]];
    assert_eq!(burrow.ok(&line.concat()), "/sandbox/own\n");
    burrow.ok(&["context", "open", "work", "two", "--lang", "python", "--venv", "/sandbox/own"]);
    let line = [&["repl", "work", "--context", "two"], &prefix[..]].concat();
    assert_eq!(burrow.ok(&line), "/sandbox/own\n");
    let both = burrow.run(&["repl", "--venv", "/sandbox/own", "--program", "python3", "-c", "1"]);
    assert!(text_of(&both).contains("--program"), "{}", text_of(&both));
}

#[test]
fn the_command_line_has_the_options_of_a_context_that_the_api_has() {
    let server = Server::dev();
    let document = Client::new(server.url()).get("/openapi.json").expect(200).json();
    let fields = document["components"]["schemas"]["OpenRequest"]["properties"].clone();
    let limits = document["components"]["schemas"]["ContextLimits"]["properties"].clone();
    let help = server.ok(&["context", "open", "--help"]);
    let fields = fields.as_object().expect("fields").keys();
    for field in fields.chain(limits.as_object().expect("fields").keys()) {
        let flag = match field.as_str() {
            "context" => "<NAME>",
            "language" => "--lang ",
            "limits" => continue,
            "memory_bytes" => "--memory ",
            "cpu_millis" => "--cpus ",
            field => &format!("--{field} "),
        };
        assert!(help.contains(flag), "no {flag} in {help}");
    }
}

/// A limit that this host cannot enforce is named in a warning.
#[test]
fn a_program_and_a_context_have_limits_of_their_own() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let said = |line: &[&str]| {
        let output = burrow.run(line);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_open, warned) = said(&["context", "open", "work", "small", "--processes", "20"]);
    assert!(is_open, "{warned}");
    let is_without_groups = warned.contains("has no control group");
    let forks = "for i in $(seq 40); do sleep 1 & done; wait";
    let (_, stderr) = said(&["exec", "--processes", "20", "work", "--", "sh", "-c", forks]);
    let word = if is_without_groups { "has no control group" } else { "fork" };
    assert!(stderr.contains(word), "{stderr}");
    let code = "import threading, time\n\
                for _ in range(40): threading.Thread(target=time.sleep, args=[1]).start()";
    let (is_done, stderr) = said(&["repl", "work", "--context", "small", "-c", code]);
    let is_limited = stderr.contains("can't start new thread");
    assert!(is_limited || (is_done && is_without_groups), "{stderr}");
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn a_file_of_a_notebook_runs_cell_by_cell() {
    let burrow = Burrow::new();
    let file = burrow.scratch().join("study.ipynb");
    std::fs::write(&file, notebook()).expect("a directory");
    let output = burrow.ok(&["repl", file.to_str().expect("UTF-8")]);
    assert!(output.starts_with("first\n"), "{output}");
}

#[test]
fn programs_and_interpreters_begin_where_their_sandbox_says() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let body = serde_json::json!({ "name": "work", "workdir": "/usr" });
    client.post("/v1/sandboxes", &body).expect(201);
    let code = "import os; print(os.getcwd())";
    assert_eq!(server.ok(&["exec", "work", "--", "pwd"]), "/usr\n");
    assert_eq!(server.ok(&["repl", "work", "-c", code]), "/usr\n");
    // Who names another directory gets it, and a context that is open stays where it is.
    assert_eq!(server.ok(&["exec", "-w", "/etc", "work", "--", "pwd"]), "/etc\n");
    assert_eq!(
        server.ok(&["repl", "--context", "two", "-w", "/etc", "work", "-c", code]),
        "/etc\n"
    );
    assert_eq!(server.ok(&["repl", "--context", "two", "work", "-c", code]), "/etc\n");
}
