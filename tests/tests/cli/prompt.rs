//! `attach --repl`, the interactive prompt: what a person at a terminal sees of a living
//! interpreter, and that the terminal and the state outlive it.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use tests::tmux::Tmux;
use tests::{Burrow, agent_path, eventually, have, skip};

/// A sandbox `work`, and a terminal with a prompt for its Python.
struct Stage {
    burrow: Burrow,
    tmux: Tmux,
    /// The terminal's mode before there was a prompt.
    mode: String,
}

impl Stage {
    fn open() -> Option<Self> {
        Self::of_width(80)
    }

    fn of_width(columns: u16) -> Option<Self> {
        if !have("python3") {
            skip("python3 is not installed");
            return None;
        }
        let burrow = Burrow::serving();
        burrow.ok(&["start", "--name", "work"]);
        let tmux = Tmux::of_size(&burrow, columns, 24)?;
        let mode = tmux.mode();
        let stage = Self { burrow, tmux, mode };
        stage.attach();
        Some(stage)
    }

    fn attach(&self) {
        // Pictures go where the test's own directory is.
        let scratch = self.burrow.scratch().display();
        self.tmux
            .line(&format!("clear; TMPDIR={scratch} hb attach --repl python work; echo code=$?"));
        self.is_asked();
    }

    /// The prompt waits for a line.
    fn is_asked(&self) {
        self.tmux.wait_until("a prompt", |screen| screen.trim_end().ends_with("\n>>>"));
    }

    /// Types a line, and waits until what it says is there, and the next prompt.
    fn says(&self, line: &str, answer: &str) {
        self.tmux.line(line);
        self.tmux.wait_until(answer, |screen| {
            let screen = screen.trim_end();
            screen.contains(answer) && screen.ends_with("\n>>>")
        });
    }

    fn leaves_with(&self, code: i32) {
        self.tmux.wait_for(&format!("code={code}\n"));
        self.tmux.wait_for_mode(&self.mode);
    }

    /// What a program that uses the same context finds there.
    fn beside(&self, code: &str) -> String {
        self.burrow.ok(&["repl", "work", "-c", code])
    }

    fn history(&self) -> PathBuf {
        self.burrow.state().join("history/python")
    }
}

#[test]
fn the_state_is_shared_and_outlives_the_prompt() {
    let Some(stage) = Stage::open() else { return };
    stage.tmux.wait_for("in context python of work");
    stage.says("x = 6 * 7", "x = 6 * 7\n");
    stage.says("x", "\n42\n");
    assert_eq!(stage.beside("print(x + 1); y = 'from ' + 'beside'"), "43\n");
    stage.says("y", "\n'from beside'\n");
    stage.tmux.wait_for("another client ran code here");
    stage.tmux.keys(&["C-d"]);
    stage.leaves_with(0);
    stage.tmux.wait_for("return with: host-bridge attach --repl python work");
    assert_eq!(stage.beside("print(x)"), "42\n");
}

#[test]
fn attaching_during_a_run_explains_it_and_gives_a_prompt() {
    let Some(stage) = Stage::open() else { return };
    stage.tmux.keys(&["C-d"]);
    stage.leaves_with(0);
    let gate = "import os, time\nopen('/tmp/running', 'w')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\nx = 7";
    let mut beside = stage.burrow.command(&["repl", "work", "-c", gate]);
    let mut beside = beside.stdin(Stdio::null()).spawn().expect("starts");
    eventually("the code runs", || {
        stage.burrow.run(&["exec", "work", "--", "test", "-e", "/tmp/running"]).status.success()
    });
    stage.attach();
    stage.tmux.wait_for("of another client is running");
    // Input meanwhile waits for its turn, and the prompt says so.
    stage.tmux.line("x * 6");
    stage.tmux.wait_for("waiting for run");
    stage.burrow.ok(&["exec", "work", "--", "touch", "/tmp/go"]);
    stage.tmux.wait_for("\n42\n");
    assert!(beside.wait().expect("it is ours").success());
}

#[test]
fn typed_input_is_in_the_history() {
    let Some(stage) = Stage::open() else { return };
    stage.says("'first' + '!'", "\n'first!'\n");
    stage.says("'second' + '!'", "\n'second!'\n");
    stage.says(" 'never' + '!'", "IndentationError");
    stage.tmux.keys(&["C-d"]);
    stage.leaves_with(0);
    let metadata = std::fs::metadata(stage.history()).expect("a history");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(stage.history()).expect("read");
    assert!(!text.contains("never"), "a line that begins with a blank was kept: {text}");
    stage.attach();
    stage.tmux.keys(&["Up", "Up", "Enter"]);
    stage.tmux.wait_for("\n'first!'\n");
    stage.is_asked();
    stage.tmux.keys(&["C-r"]);
    stage.tmux.text("seco");
    stage.tmux.wait_for("`seco'");
    stage.tmux.keys(&["Enter"]);
    stage.tmux.wait_for("\n'second!'\n");
}

#[test]
fn several_lines_are_one_input() {
    let Some(stage) = Stage::open() else { return };
    stage.tmux.line("def f(n):");
    stage.tmux.wait_for("\n...");
    // The indentation is written for us.
    stage.tmux.line("if n:");
    stage.tmux.wait_for("...     if n:\n...");
    stage.tmux.line("return 'yes'");
    stage.tmux.wait_for("...         return 'yes'\n...");
    stage.tmux.keys(&["Enter"]);
    stage.is_asked();
    stage.says("f(1)", "\n'yes'\n");
    // With ctrl-c it is as if it had not been begun.
    stage.tmux.line("def f(n):");
    stage.tmux.wait_until("...", |screen| screen.trim_end().ends_with("..."));
    stage.tmux.keys(&["C-c"]);
    stage.is_asked();
    stage.says("'still ' + f(1)", "\n'still yes'\n");
}

#[test]
fn a_paste_is_one_input() {
    let Some(stage) = Stage::open() else { return };
    let code = "def g():\n    a = 1\n\n    return a + 7\n\ng() * 2\n";
    stage.tmux.paste(&format!("\x1b[200~{code}\x1b[201~"));
    stage.tmux.wait_for("g() * 2");
    stage.tmux.keys(&["Enter"]);
    stage.tmux.wait_for("\n16\n");
    stage.is_asked();
    // The same without a terminal that says what is pasted: an empty line ends a block.
    stage.tmux.text("def h():\r    return 'h' * 3\r\rh()\r");
    stage.tmux.wait_for("\n'hhh'\n");
}

#[test]
fn tab_completes_what_lives() {
    let Some(stage) = Stage::open() else { return };
    stage.says("burrow_answer = 6 * 7", "6 * 7\n");
    stage.tmux.text("burrow_an");
    stage.tmux.keys(&["Tab"]);
    stage
        .tmux
        .wait_until("it is completed", |screen| screen.trim_end().ends_with(">>> burrow_answer"));
    stage.says(" + 1", "\n43\n");
    // In the further lines of an input, too.
    stage.tmux.line("if burrow_answer:");
    stage.tmux.wait_until("...", |screen| screen.trim_end().ends_with("..."));
    stage.tmux.text("burrow_an");
    stage.tmux.keys(&["Tab"]);
    stage.tmux.wait_for("...     burrow_answer");
    stage.tmux.keys(&["C-c"]);
    stage.is_asked();
}

#[test]
fn a_tab_never_waits_for_a_busy_interpreter() {
    let Some(stage) = Stage::open() else { return };
    stage.says("x = 1", "x = 1\n");
    let code = "import time; print('on', flush=True); time.sleep(4)";
    let mut other = stage.burrow.command(&["repl", "work", "-c", code]);
    let mut other = other.stdout(Stdio::piped()).spawn().expect("started");
    let mut bytes = [0; 2];
    other.stdout.as_mut().expect("piped").read_exact(&mut bytes).expect("it runs");
    stage.tmux.text("y");
    stage.tmux.keys(&["Tab"]);
    stage.tmux.text("es");
    stage.tmux.wait_for(">>> yes");
    stage.tmux.keys(&["C-c"]);
    stage.is_asked();
    stage.tmux.line("x + 1");
    stage.tmux.wait_for("waiting for run ");
    other.wait().expect("it was ours");
    stage.tmux.wait_for("\n2\n");
}

#[test]
fn ctrl_c_ends_what_runs_and_the_state_stays() {
    let Some(stage) = Stage::open() else { return };
    stage.says("x = 'kept' + '!'", "x =");
    stage.tmux.line("print('it', 'runs'); exec('while True: pass')");
    stage.tmux.wait_for("\nit runs\n");
    stage.tmux.keys(&["C-c"]);
    stage.tmux.wait_for("KeyboardInterrupt");
    stage.is_asked();
    stage.says("x", "\n'kept!'\n");
}

#[test]
fn code_that_swallows_ctrl_c_is_ended_by_force() {
    let Some(stage) = Stage::open() else { return };
    stage.says("x = 'kept' + '!'", "x =");
    let code = "import time\ndef deaf():\n    print('it', 'runs')\n    while True:\n        try:\n\
                \x20           while True: time.sleep(0.01)\n\
                \x20       except BaseException: print('no', 'way')\n\ndeaf()\n";
    stage.tmux.paste(&format!("\x1b[200~{code}\x1b[201~"));
    stage.tmux.wait_for("deaf()\n");
    stage.tmux.keys(&["Enter"]);
    stage.tmux.wait_for("\nit runs\n");
    stage.tmux.keys(&["C-c"]);
    stage.tmux.wait_for("no way");
    stage.tmux.wait_for("ctrl-c again");
    stage.tmux.keys(&["C-c"]);
    stage.is_asked();
    stage.says("x", "\n'kept!'\n");
}

#[test]
fn ctrl_c_clears_the_line_that_is_edited() {
    let Some(stage) = Stage::open() else { return };
    stage.tmux.text("1 / 0");
    stage.tmux.wait_for(">>> 1 / 0");
    stage.tmux.keys(&["C-c"]);
    stage.is_asked();
    stage.says("'no ' + 'error'", "\n'no error'\n");
    assert!(!stage.tmux.screen().contains("ZeroDivisionError"));
}

#[test]
fn an_image_is_announced_and_lies_in_a_private_file() {
    let Some(stage) = Stage::open() else { return };
    let code = "import struct, zlib\n\
                def chunk(kind, data):\n\
                \x20   crc = struct.pack('>I', zlib.crc32(kind + data))\n\
                \x20   return struct.pack('>I', len(data)) + kind + data + crc\n\
                class Picture:\n\
                \x20   def _repr_png_(self):\n\
                \x20       head = struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)\n\
                \x20       body = zlib.compress(b'\\0\\xff\\0\\0')\n\
                \x20       parts = chunk(b'IHDR', head) + chunk(b'IDAT', body)\n\
                \x20       return b'\\x89PNG\\r\\n\\x1a\\n' + parts + chunk(b'IEND', b'')\n\
                \x20   def __repr__(self): return 'a ' + 'picture'\n\n";
    stage.tmux.paste(&format!("\x1b[200~{code}\x1b[201~"));
    stage.tmux.keys(&["Enter"]);
    stage.is_asked();
    stage.says("Picture()", "\na picture\n");
    let path = stage.burrow.scratch().join("burrow-work-python/01.png");
    let screen = stage.tmux.screen().replace('\n', "");
    assert!(screen.contains(&format!("[image/png 69 B: {}]", path.display())), "{screen}");
    let picture = std::fs::read(&path).expect("a file");
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() == 69);
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("has one"))), (0o600, 0o700));
}

#[test]
fn code_that_asks_is_answered_at_the_terminal() {
    let Some(stage) = Stage::open() else { return };
    stage.tmux.line("print('Your ', end=''); name = input('name: ')");
    stage.tmux.wait_for("\nYour name:");
    stage.tmux.line("Ada");
    stage.is_asked();
    stage.says("'<' + name + '>'", "\n'<Ada>'\n");
    stage.tmux.line("import getpass; word = getpass.getpass()");
    stage.tmux.wait_for("\nPassword:");
    stage.tmux.line("hunter2");
    stage.is_asked();
    assert!(!stage.tmux.screen().contains("hunter2"), "{}", stage.tmux.screen());
    stage.says("len(word)", "\n7\n");
    stage.tmux.line("input('more? ')");
    stage.tmux.wait_for("\nmore?");
    stage.tmux.keys(&["C-d"]);
    stage.tmux.wait_for("EOFError");
    stage.is_asked();
    stage.tmux.line("input('again? ')");
    stage.tmux.wait_for("\nagain?");
    stage.tmux.keys(&["C-c"]);
    stage.tmux.wait_for("KeyboardInterrupt");
    stage.is_asked();
    let history = std::fs::read_to_string(stage.history()).expect("read");
    assert!(!history.contains("hunter2") && !history.contains("Ada\""), "{history}");
}

#[test]
fn an_exit_ends_the_prompt_and_not_the_context() {
    let Some(stage) = Stage::open() else { return };
    stage.says("x = 'kept' + '!'", "x =");
    stage.tmux.line("exit(3)");
    stage.leaves_with(3);
    assert_eq!(stage.beside("print(x)"), "kept!\n");
}

#[test]
fn a_lost_interpreter_is_reported_and_replaced() {
    let Some(stage) = Stage::open() else { return };
    stage.says("x = 1", "x = 1\n");
    stage.says("import os; os.kill(os.getpid(), 11)", "its state is lost");
    stage.says("x", "NameError");
    // Between two lines, it is shown before the next prompt.
    let kill = "import os, threading; threading.Timer(0.5, os._exit, [7]).start()";
    stage.says(kill, "start()\n");
    eventually("it is told", || {
        stage.tmux.keys(&["Enter"]);
        stage.tmux.screen().replace('\n', " ").contains("the interpreter and its state were lost")
    });
    stage.says("'anew ' + '!'", "\n'anew !'\n");
    let screen = stage.tmux.screen().replace('\n', " ");
    assert_eq!(screen.matches("the interpreter and its state were lost").count(), 1, "{screen}");
}

#[test]
fn late_output_does_not_land_in_the_line_that_is_edited() {
    let Some(stage) = Stage::open() else { return };
    let late = "import threading; threading.Timer(0.5, print, ['so', 'late']).start()";
    stage.says(late, "start()\n");
    stage.tmux.text("'some' + ");
    let timers = "[t.join() for t in threading.enumerate() if isinstance(t, threading.Timer)]";
    assert_eq!(stage.beside(&format!("import threading; {timers}")), "");
    stage.says("'thing'", "\n'something'\n");
    stage.tmux.wait_for("\nso late\n");
}

#[test]
fn output_comes_as_it_is_made_and_the_prompt_begins_a_line() {
    let Some(stage) = Stage::open() else { return };
    let code = "import time; print('one', 'two'); time.sleep(3); print('thr' + 'ee', end='')";
    stage.tmux.line(code);
    stage.tmux.wait_for("\none two\n");
    assert!(!stage.tmux.screen().contains("three"));
    stage.tmux.wait_for("\nthree\n>>>");
}

#[test]
fn a_narrow_window_breaks_no_line() {
    let Some(stage) = Stage::of_width(20) else { return };
    stage.says("len('0123456789' * 3 + 'abcdefghij')", "\n40\n");
    stage.tmux.text("len('0123456789' * 3 + 'abcdefghij'");
    stage.tmux.resize(60, 24);
    stage.says(" * 2)", "\n50\n");
}

#[test]
fn the_terminal_is_restored_when_the_prompt_is_killed() {
    let Some(stage) = Stage::open() else { return };
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        stage.tmux.text("half a line");
        stage.tmux.wait_for(">>> half a line");
        assert_ne!(stage.tmux.mode(), stage.mode, "no raw mode while a line is edited");
        kill(stage.tmux.program(), signal).expect("it is ours");
        stage.leaves_with(128 + signal as i32);
        stage.attach();
    }
    stage.tmux.line("import getpass; getpass.getpass()");
    stage.tmux.wait_for("\nPassword:");
    kill(stage.tmux.program(), Signal::SIGKILL).expect("it is ours");
    stage.leaves_with(137);
}

#[test]
fn a_window_that_is_closed_leaves_nobody_behind() {
    let Some(stage) = Stage::open() else { return };
    stage.says("x = 'kept' + '!'", "x =");
    stage.tmux.text("half a line");
    stage.tmux.wait_for(">>> half a line");
    let prompt = stage.tmux.program();
    let Stage { burrow, tmux, .. } = stage;
    tmux.close();
    eventually("the prompt is gone", || kill(prompt, None).is_err());
    assert_eq!(burrow.ok(&["repl", "work", "-c", "print(x)"]), "kept!\n");
}

#[test]
fn the_end_of_the_sandbox_ends_the_prompt_with_a_word() {
    let Some(stage) = Stage::open() else { return };
    stage.says("'typed ' + 'before'", "\n'typed before'\n");
    stage.tmux.text("half a line");
    stage.tmux.wait_for(">>> half a line");
    stage.burrow.ok(&["rm", "--force", "work"]);
    stage.leaves_with(125);
    stage.tmux.wait_for("lost the connection to work");
    let history = std::fs::read_to_string(stage.history()).expect("read");
    assert!(history.contains("'typed '"), "{history}");
}

#[test]
fn without_a_terminal_there_is_no_prompt() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let output = burrow.run(&["attach", "--repl", "python", "work"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a terminal"));
}

/// An agent as an ordinary process, which ends with its test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_plain_socket_is_a_door_that_needs_no_daemon() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    let burrow = Burrow::new();
    let socket = burrow.scratch().join("agent.sock");
    let mut serve = Command::new(agent_path());
    serve.args(["serve", "--listen"]).arg(&socket).stdin(Stdio::null());
    let _agent = Agent(serve.spawn().expect("the agent starts"));
    eventually("the agent listens", || UnixStream::connect(&socket).is_ok());
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let door = socket.display();
    tmux.line(&format!("hb attach --uds {door} --repl python --context mine; echo code=$?"));
    tmux.wait_for("in context mine of");
    tmux.line("6 * 7");
    tmux.wait_for("\n42\n");
    tmux.keys(&["C-d"]);
    tmux.wait_for("code=0\n");
    let screen = tmux.screen().replace('\n', "");
    assert!(screen.contains("attach --repl python --context mine --uds"), "{screen}");
}
