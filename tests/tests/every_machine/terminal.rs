//! Programs on a terminal: every byte both ways through the library, and what a person at a keyboard
//! sees of `run -it` and `exec -it`.

use std::io::Read;
use std::process::Stdio as HostStdio;
use std::time::Duration;

use agent_client::guest::Writer;
use agent_client::program::{Event, Program, Running};
use nix::sys::signal::{Signal, kill};
use protocol::Cause;
use protocol::requests::{Stdio, TerminalSize};
use tests::sandbox::Sandbox;
use tests::tmux::Tmux;
use tests::{Burrow, eventually, have, skip, slowed, slowness};
use tokio::runtime::Builder;

/// How long a test of the library may take: some carry a lot.
const DEADLINE: Duration = Duration::from_secs(120);

fn within_deadline(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let deadline = slowed(DEADLINE);
    let in_time = runtime.block_on(async { tokio::time::timeout(deadline, test).await });
    assert!(in_time.is_ok(), "not within {deadline:?}");
}

/// What a program's terminal must say before it may be typed into: its mode is set.
const READY: &[u8] = b"ready";

/// A script on a raw terminal that has reported that it is ready.
struct Raw {
    execution: Running,
    keyboard: Writer,
    shown: Vec<u8>,
}

impl Raw {
    async fn begin(sandbox: &mut Sandbox, script: &str) -> Self {
        let script = format!("stty raw -echo; printf ready; {script}");
        let mut start = sandbox.command(&["sh", "-c", &script]);
        start.stdio = Stdio::Pty { size: TerminalSize { rows: 24, columns: 80 } };
        let mut execution = Program::from(start.clone()).begin(&sandbox.guest).expect("queued");
        let keyboard = execution.take_input().expect("a terminal has a keyboard");
        let mut raw = Self { execution, keyboard, shown: Vec::new() };
        while raw.shown.len() < READY.len() {
            assert!(raw.step().await.is_none(), "it ended before it was ready");
        }
        assert_eq!(&raw.shown[..READY.len()], READY);
        raw.shown.drain(..READY.len());
        raw
    }

    /// Takes the next event; returns the cause once the script has ended.
    async fn step(&mut self) -> Option<Cause> {
        match self.execution.next().await.expect("the link holds") {
            Some(Event::Started(_)) => None,
            Some(Event::Output { bytes, .. }) => {
                self.shown.extend_from_slice(&bytes);
                None
            }
            Some(Event::Gap { from, to, .. }) => panic!("{} bytes were lost", to - from),
            Some(Event::Ended(ended)) => Some(ended.record.cause),
            None => panic!("no exit record"),
        }
    }

    /// Types `input` while everything that is shown is taken, to the end of the script.
    async fn type_and_finish(mut self, input: &[u8]) -> (Vec<u8>, Cause) {
        let mut typed = 0;
        loop {
            let rest = &input[typed..];
            let cause = tokio::select! {
                count = std::future::poll_fn(|cx| self.keyboard.poll_write(rest, cx)),
                    if !rest.is_empty() =>
                {
                    typed += count.expect("the keyboard is ours");
                    continue;
                }
                event = self.execution.next() => match event.expect("the link holds") {
                    Some(Event::Output { bytes, .. }) => {
                        self.shown.extend_from_slice(&bytes);
                        continue;
                    }
                    Some(Event::Ended(ended)) => ended.record.cause,
                    other => panic!("{other:?}"),
                },
            };
            assert_eq!(typed, input.len(), "it ended before all was typed");
            return (self.shown, cause);
        }
    }
}

/// Bytes in which a loss, a repetition or a swap shows.
fn pattern(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn a_raw_terminal_carries_every_byte_both_ways() {
    within_deadline(async {
        let mut sandbox = Sandbox::start().await;
        for byte in 0..=255 {
            // Each alone: what a line discipline does to one it may do only to that one.
            let raw = Raw::begin(&mut sandbox, "exec head -c 3").await;
            let (shown, cause) = raw.type_and_finish(&[b'<', byte, b'>']).await;
            assert_eq!(shown, [b'<', byte, b'>'], "byte {byte}");
            assert_eq!(cause, Cause::Exited { code: 0 });
        }
        let all: Vec<u8> = (0..=255).cycle().take(256 * 256).collect();
        let raw = Raw::begin(&mut sandbox, "exec head -c 65536").await;
        let (shown, _) = raw.type_and_finish(&all).await;
        assert!(shown == all, "{} bytes came back", shown.len());
        sandbox.end().await;
    });
}

#[test]
fn a_hundred_megabytes_through_a_raw_terminal_arrive_unharmed() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    within_deadline(async {
        let mut sandbox = Sandbox::start().await;
        // As much as goes through it within the same time.
        let mebibytes = 100 / slowness() as usize;
        let python = format!(
            "import sys; b = bytes(range(256)) * 4096\n\
             for _ in range({mebibytes}): sys.stdout.buffer.write(b)"
        );
        let raw = Raw::begin(&mut sandbox, &format!("exec python3 -c '{python}'")).await;
        let (shown, cause) = raw.type_and_finish(&[]).await;
        assert_eq!(cause, Cause::Exited { code: 0 });
        assert_eq!(shown.len(), mebibytes * 1024 * 1024);
        let whole = shown.iter().enumerate().all(|(at, byte)| *byte == (at % 256) as u8);
        assert!(whole, "the bytes differ");
        sandbox.end().await;
    });
}

#[test]
fn megabytes_typed_to_a_program_that_does_not_read_yet_arrive_and_stall_nobody_else() {
    within_deadline(async {
        let mut sandbox = Sandbox::start().await;
        let input = pattern(5_000_000);
        let script = "until [ -e /tmp/read-now ]; do sleep 0.1; done; \
            head -c 1000000; sleep 1; exec head -c 4000000";
        let mut raw = Raw::begin(&mut sandbox, script).await;
        // As much as goes in while nobody reads: the agent's credit and our own buffer.
        let mut typed = 0;
        while let Ok(count) = tokio::time::timeout(
            Duration::from_millis(500),
            std::future::poll_fn(|cx| raw.keyboard.poll_write(&input[typed..], cx)),
        )
        .await
        {
            typed += count.expect("the keyboard is ours");
        }
        assert!(typed < input.len(), "all {typed} bytes were taken from a writer nobody reads");
        let other = sandbox.run(&["touch", "/tmp/read-now"]).await;
        assert_eq!(other.finished.record.cause, Cause::Exited { code: 0 });
        let (shown, cause) = raw.type_and_finish(&input[typed..]).await;
        assert_eq!(cause, Cause::Exited { code: 0 });
        assert_eq!(shown.len(), input.len());
        assert!(shown == input, "the bytes differ");
        sandbox.end().await;
    });
}

#[test]
fn the_last_output_on_a_terminal_is_not_lost() {
    within_deadline(async {
        let mut sandbox = Sandbox::start().await;
        for run in 0..200 {
            let raw = Raw::begin(&mut sandbox, "seq 1 1000; exit 9").await;
            let (shown, cause) = raw.type_and_finish(&[]).await;
            assert_eq!(cause, Cause::Exited { code: 9 });
            assert!(shown.ends_with(b"\n1000\n"), "run {run}: {} bytes", shown.len());
        }
        sandbox.end().await;
    });
}

/// A terminal with a shell of a sandbox in it, begun with `run -it`.
fn in_a_sandbox(burrow: &Burrow) -> Option<Tmux> {
    let tmux = Tmux::open(burrow)?;
    tmux.line("hb run -it -e PS1='in> ' -e ENV= -- sh; echo code=$?");
    tmux.wait_for("\nin>");
    Some(tmux)
}

/// Waits until that shell waits for a command.
fn wait_for_prompt(tmux: &Tmux) {
    tmux.wait_until("a prompt at the end", |screen| screen.trim_end().ends_with("\nin>"));
}

/// Leaves that shell with a code of its own, which must arrive.
fn leave(tmux: &Tmux) {
    tmux.line("exit 3");
    tmux.wait_for("code=3");
}

#[test]
fn ctrl_c_reaches_the_program_and_leaves_its_shell_alone() {
    let burrow = Burrow::new();
    let Some(tmux) = in_a_sandbox(&burrow) else { return };
    // `exec` leaves one program that has the terminal when ctrl-c comes.
    tmux.line("sh -c 'echo sleeping=$((1+1)); exec sleep 1000'");
    tmux.wait_for("sleeping=2");
    tmux.keys(&["C-c"]);
    tmux.line("echo interrupted=$?");
    tmux.wait_for("interrupted=130");
    leave(&tmux);
}

#[test]
fn ctrl_z_stops_a_program_and_fg_lets_it_go_on() {
    let burrow = Burrow::new();
    let Some(tmux) = in_a_sandbox(&burrow) else { return };
    tmux.line("cat");
    tmux.line("alpha");
    // Once from the terminal's echo and once from the program.
    let twice = |word: &'static str| move |screen: &str| screen.matches(word).count() == 2;
    tmux.wait_until("alpha twice", twice("\nalpha"));
    tmux.keys(&["C-z"]);
    tmux.wait_for("Stopped");
    tmux.line("fg");
    tmux.line("beta");
    tmux.wait_until("beta twice", twice("\nbeta"));
    tmux.keys(&["C-d"]);
    tmux.line("echo ended=$?");
    tmux.wait_for("ended=0");
    leave(&tmux);
}

#[test]
fn the_window_size_is_the_programs_and_its_changes_reach_it() {
    let burrow = Burrow::new();
    let Some(tmux) = in_a_sandbox(&burrow) else { return };
    tmux.line("stty size");
    tmux.wait_for("\n24 80");
    // A program hears of a change by the signal for it.
    tmux.line("trap 'echo window is $(stty size)' WINCH; echo armed=$((1+1))");
    tmux.wait_for("armed=2");
    for (columns, rows) in [(100, 30), (60, 10), (81, 25)] {
        tmux.resize(columns, rows);
        let line = format!("window is {rows} {columns}");
        // A shell runs its traps between commands.
        tmux.wait_until(&line, |screen| {
            tmux.keys(&["Enter"]);
            screen.contains(&line)
        });
    }
    leave(&tmux);
}

#[test]
fn a_terminal_is_as_before_when_the_program_has_ended() {
    let burrow = Burrow::new();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    tmux.line(
        "hb run -it -- sh -c 'stty raw -echo; printf raw=$((1+1)); read x; exit 3'; echo code=$?",
    );
    tmux.wait_for("raw=2");
    assert_ne!(tmux.mode(), mode, "not raw while a program has the keyboard");
    tmux.keys(&["C-j"]);
    tmux.wait_for("code=3");
    tmux.wait_for_mode(&mode);
}

#[test]
fn vim_writes_a_file_in_a_sandbox() {
    if !have("vim") {
        return skip("vim is not installed");
    }
    let burrow = Burrow::new();
    let Some(tmux) = in_a_sandbox(&burrow) else { return };
    tmux.line("vim -u NONE -N -i NONE /tmp/note");
    tmux.wait_for("~\n~\n~");
    tmux.keys(&["i"]);
    tmux.wait_for("-- INSERT --");
    tmux.text("written in a box");
    tmux.keys(&["Escape"]);
    tmux.wait_until("normal mode", |screen| {
        screen.contains("written in a box") && !screen.contains("INSERT")
    });
    tmux.resize(100, 30);
    tmux.wait_until("vim fills the larger window", |screen| screen.matches("\n~").count() == 28);
    tmux.line(":wq");
    wait_for_prompt(&tmux);
    tmux.line("cat -A /tmp/note");
    tmux.wait_for("written in a box$");
    leave(&tmux);
}

#[test]
fn less_pages_searches_and_quits() {
    if !have("less") {
        return skip("less is not installed");
    }
    let burrow = Burrow::new();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    tmux.line("hb run -it -- sh -c 'seq 1 500 | less; exit 3'; echo code=$?");
    tmux.wait_until("the first page", |screen| {
        screen.starts_with("1\n") && screen.contains("\n23\n:")
    });
    tmux.keys(&["Space"]);
    tmux.wait_until("the second page", |screen| screen.starts_with("24\n"));
    tmux.line("/^300");
    tmux.wait_until("line 300", |screen| screen.starts_with("300\n"));
    tmux.keys(&["G"]);
    tmux.wait_for("\n500\n");
    tmux.keys(&["q"]);
    tmux.wait_for("code=3");
    tmux.wait_for_mode(&mode);
}

#[test]
fn top_draws_and_quits() {
    if !have("top") {
        return skip("top is not installed");
    }
    let burrow = Burrow::new();
    let Some(tmux) = in_a_sandbox(&burrow) else { return };
    tmux.line("top -d 1");
    tmux.wait_until("top's table", |screen| {
        screen.contains("load average") && screen.contains("PID") && screen.contains(" top\n")
    });
    tmux.resize(120, 30);
    tmux.wait_for("load average");
    tmux.keys(&["q"]);
    // It discards what is typed before it is gone.
    wait_for_prompt(&tmux);
    tmux.line("echo top=$?");
    tmux.wait_for("top=0");
    leave(&tmux);
}

#[test]
fn exec_on_a_terminal_ends_with_the_code_of_its_command() {
    let burrow = Burrow::serving();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    burrow.ok(&["start", "--name", "work"]);
    for (command, code) in [
        ("true", 0),
        ("sh -c 'exit 42'", 42),
        ("sh -c 'kill -TERM $$'", 143),
        ("no-such-program", 127),
        ("/etc/hostname", 126),
    ] {
        tmux.line(&format!("hb exec -it work -- {command}; echo code=$?"));
        tmux.wait_for(&format!("code={code}\n"));
        tmux.wait_for_mode(&mode);
        tmux.clear();
    }
    // The keyboard is the program's own.
    tmux.line("hb exec -it work -- sh -c 'read word; echo heard-$word'; echo code=$?");
    tmux.line("hello");
    tmux.wait_for("heard-hello");
    tmux.wait_for("code=0");
    assert_eq!(living_sessions(&burrow), 0);
}

fn living_sessions(burrow: &Burrow) -> usize {
    let inspected: serde_json::Value =
        serde_json::from_str(&burrow.ok(&["inspect", "--json", "work"])).expect("JSON");
    let sessions = inspected["sessions"].as_array().expect("a list");
    sessions.iter().filter(|session| session["exit"].is_null()).count()
}

#[test]
fn a_keyboard_that_is_no_terminal_is_refused_with_a_hint() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    for arguments in
        [&["run", "-it", "--", "sh"][..], &["exec", "-it", "work", "--", "sh"], &["attach", "work"]]
    {
        let output = burrow.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {stderr}");
        assert!(stderr.contains("terminal"), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_terminal_without_a_keyboard_shows_what_the_program_writes() {
    let burrow = Burrow::new();
    let output = burrow.run(&["run", "-t", "--", "sh", "-c", "tty && stty size; exit 4"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/dev/pts/0\r\n24 80\r\n");
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_reader_that_goes_away_ends_a_program_on_a_terminal() {
    let burrow = Burrow::new();
    let mut child = burrow
        .command(&["run", "-t", "--", "yes"])
        .stdout(HostStdio::piped())
        .spawn()
        .expect("starts");
    let mut stdout = child.stdout.take().expect("piped");
    let mut first = [0; 3];
    stdout.read_exact(&mut first).expect("some output");
    drop(stdout);
    let mut ended = None;
    eventually("the bridge ends", || {
        ended = child.try_wait().expect("it is ours");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(141));
}

#[test]
fn every_byte_of_a_raw_terminal_reaches_our_stdout() {
    if !have("python3") {
        return skip("python3 is not installed");
    }
    let burrow = Burrow::new();
    let script = "stty raw; exec python3 -c \
        'import sys; [sys.stdout.buffer.write(bytes(range(256)) * 4096) for _ in range(16)]'";
    let output = burrow.run(&["run", "-t", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.len(), 16 * 1024 * 1024);
    let whole = output.stdout.iter().enumerate().all(|(at, byte)| *byte == (at % 256) as u8);
    assert!(whole, "the bytes differ");
}

#[test]
fn a_long_paste_arrives_whole() {
    let burrow = Burrow::new();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let words: Vec<_> = (0..30_000).map(|number| format!("{number:06}")).collect();
    let text = words.join(" ");
    let script = format!("stty raw -echo; echo ready=$((1+1)); head -c {} | cksum", text.len());
    tmux.line(&format!("hb run -it -- sh -c '{script}'; echo code=$?"));
    tmux.wait_for("ready=2");
    tmux.paste(&text);
    tmux.wait_for("code=0");
    let sums = burrow.feed(&["run", "-i", "--", "cksum"], text.as_bytes());
    let sum = String::from_utf8(sums.stdout).expect("UTF-8");
    tmux.wait_for(sum.trim());
}

#[test]
fn a_bridge_that_is_killed_gives_the_terminal_back_and_takes_its_sandbox_with_it() {
    let burrow = Burrow::new();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    tmux.line("hb run -it -- sh -c 'echo up=$((1+1)); exec sleep 1000'; echo code=$?");
    tmux.wait_for("up=2");
    eventually("raw mode", || tmux.mode() != mode);
    let bridge = tmux.program();
    let children = tests::children(bridge);
    assert!(children.len() >= 2, "a supervisor and a guardian: {children:?}");
    kill(bridge, Signal::SIGKILL).expect("it is ours");
    tmux.wait_for("code=137");
    tmux.wait_for_mode(&mode);
    for child in children {
        eventually("nothing is left", || tests::resident_bytes(child).is_none());
    }
}

#[test]
fn a_pipeline_that_stops_reading_gives_the_terminal_back() {
    let burrow = Burrow::new();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    tmux.line("(hb run -it -- yes; echo code=$? >&2) | head -n 1");
    tmux.wait_for("code=141");
    tmux.wait_for_mode(&mode);
    tmux.line("echo alive=$((1+1))");
    tmux.wait_for("alive=2");
}

#[test]
fn a_window_that_is_closed_takes_the_command_with_it() {
    let burrow = Burrow::serving();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    burrow.ok(&["start", "--name", "work"]);
    tmux.line("hb exec -it work -- sh -c 'echo up=$((1+1)); exec sleep 1000'");
    tmux.wait_for("up=2");
    let bridge = tmux.program();
    tmux.close();
    eventually("the bridge leaves", || tests::resident_bytes(bridge).is_none());
    eventually("its command is gone", || living_sessions(&burrow) == 0);
}
