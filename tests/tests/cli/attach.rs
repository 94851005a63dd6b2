//! `attach`, the debugging door: what people at their terminals see of one session, and that each
//! of them gets the terminal back, whatever happens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::tmux::Tmux;
use tests::{Burrow, agent_path, eventually, have, skip};

/// A sandbox `work` with a session `demo` on a terminal, in front of which nobody sits yet.
struct Stage {
    burrow: Burrow,
}

impl Stage {
    fn with(script: &str) -> Self {
        let burrow = Burrow::serving();
        burrow.ok(&["start", "--name", "work"]);
        let start = ["exec", "-d", "-t", "--session", "demo", "work", "--", "sh", "-c", script];
        assert_eq!(burrow.ok(&start), "demo\n");
        Self { burrow }
    }

    /// With a program that shows every line that it is given, in other words.
    fn with_echo() -> Self {
        Self::with("stty -echo; echo early-bird; while read word; do echo \"<$word>\"; done")
    }

    /// A terminal in front of the session.
    fn attach(&self, options: &str) -> Option<Viewer> {
        self.attach_sized(options, 80, 24)
    }

    fn attach_sized(&self, options: &str, columns: u16, rows: u16) -> Option<Viewer> {
        let tmux = Tmux::of_size(&self.burrow, columns, rows)?;
        let mode = tmux.mode();
        tmux.line(&format!("hb attach work --session demo {options}; echo code=$?"));
        Some(Viewer { tmux, mode })
    }

    fn session(&self) -> serde_json::Value {
        let inspected = self.burrow.ok(&["inspect", "--json", "work"]);
        let inspected: serde_json::Value = serde_json::from_str(&inspected).expect("JSON");
        let sessions = inspected["sessions"].as_array().expect("a list");
        let demo = sessions.iter().find(|session| session["session"] == "demo");
        demo.expect("the session is known").clone()
    }

    fn is_running(&self) -> bool {
        self.session()["exit"].is_null()
    }
}

/// A terminal that is attached, and the mode that it had before.
struct Viewer {
    tmux: Tmux,
    mode: String,
}

impl Viewer {
    /// Waits for a text of the session, which is shown in raw mode.
    fn sees(&self, text: &str) {
        self.tmux.wait_for(text);
    }

    /// Types a line, which the echoing program shows to all.
    fn types(&self, text: &str) {
        self.tmux.line(text);
    }

    fn detaches(&self) {
        self.tmux.keys(&["C-p", "C-q"]);
        self.is_out_with(0);
    }

    /// The verb has ended with this code, and the terminal is as it was before.
    fn is_out_with(&self, code: i32) {
        self.tmux.wait_for(&format!("code={code}\n"));
        self.tmux.wait_for_mode(&self.mode);
    }
}

#[test]
fn earlier_output_is_shown_before_live_output() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    assert_ne!(viewer.tmux.mode(), viewer.mode, "not raw while attached");
    viewer.types("one");
    viewer.sees("early-bird\n<one>");
    viewer.detaches();
    let Some(later) = stage.attach("") else { return };
    later.sees("early-bird\n<one>");
}

/// What a program asks its terminal, as a word of a shell's printf: where the cursor is, what it is, which
/// colours it has, in which modes it is.
const QUERIES: &str = r"\033[6n\033[c\033[>c\033[5n\033[?2026$p\033]11;?\007\033[18t\033[>q\005";

#[test]
fn attach_replay_never_types_into_the_session() {
    // Whatever is typed is shown.
    let script = format!("stty raw -echo; printf 'early-bird {QUERIES}asked\\r\\n'; exec cat -v");
    let stage = Stage::with(&script);
    for round in 1..=3 {
        let Some(viewer) = stage.attach("") else { return };
        viewer.sees("early-bird asked");
        viewer.tmux.text("typed");
        // An answer would have come before it.
        let typed = "typed".repeat(round);
        viewer.sees(&format!("early-bird asked\n{typed}\n"));
        viewer.detaches();
    }
}

#[test]
fn re_attaching_after_vim_leaves_the_prompt_clean() {
    if !have("vim") {
        return skip("vim is not installed");
    }
    let stage = Stage::with("PS1='inside> ' exec sh -i");
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("inside>");
    viewer.types("vim -u NONE -N -i NONE /tmp/note");
    viewer.sees("~\n~");
    viewer.types(":q");
    viewer.sees("/tmp/note\ninside>");
    viewer.types("echo after=$((1+1))");
    viewer.sees("\nafter=2\ninside>");
    viewer.detaches();
    // The message at the end covers no line of the session.
    viewer.sees("\nafter=2\ninside>\nhost-bridge: detached");
    for _ in 0..3 {
        let Some(viewer) = stage.attach("") else { return };
        viewer.sees("inside>");
        viewer.types("echo clean=$((40+2))");
        let screen = viewer.tmux.wait_until("the line", |screen| screen.contains("\nclean=42\n"));
        for prompt in screen.lines().filter(|line| line.starts_with("inside> ")) {
            let typed = &prompt["inside> ".len()..];
            let known = ["vim -u", "echo after", "echo clean"];
            assert!(known.iter().any(|line| typed.starts_with(line)), "{screen}");
        }
        assert!(!screen.contains("not found"), "an answer was run as a command: {screen}");
        viewer.tmux.line("clear");
        viewer.detaches();
    }
}

#[test]
fn only_the_terminal_with_the_keyboard_answers_what_the_program_asks() {
    let script = "stty raw -echo; while true; do printf 'ready\\r\\n'; \
                  key=$(dd bs=1 count=1 2>/dev/null); printf '\\033[5n'; \
                  printf 'answer '; dd bs=1 count=4 2>/dev/null | cat -v; printf '\\r\\n'; done";
    let stage = Stage::with(script);
    let Some(typist) = stage.attach("") else { return };
    let Some(looking) = stage.attach("--read-only") else { return };
    let Some(waiting) = stage.attach("") else { return };
    for viewer in [&typist, &looking, &waiting] {
        viewer.sees("ready");
    }
    waiting.sees("has the keyboard");
    for count in 1..=3 {
        typist.tmux.text("x");
        // Were there a second answer, it would be the next round's key.
        let answers = "ready\nanswer ^[[0n\n".repeat(count);
        typist.sees(&format!("{answers}ready\n"));
    }
    looking.detaches();
    // What the others' terminals would have answered would stand at their shell's prompt by now.
    looking.types("echo usable=$((1+1))");
    looking.sees("usable=2");
    let screen = looking.tmux.screen();
    assert!(screen.contains("\nready> echo usable"), "{screen}");
}

#[test]
fn logs_on_a_terminal_types_nothing_into_the_shell() {
    let stage = Stage::with(&format!("printf 'early-bird {QUERIES}asked\\r\\n'; read word"));
    let Some(tmux) = Tmux::open(&stage.burrow) else { return };
    eventually("it is recorded", || stage.burrow.ok(&["logs", "work"]).contains("asked"));
    tmux.line("hb logs work");
    tmux.wait_for("early-bird asked\n");
    tmux.line("echo clean=$((40+2))");
    let screen = tmux.wait_until("the line", |screen| screen.contains("\nclean=42\n"));
    assert!(screen.contains("\nready> echo clean"), "{screen}");
    // Who is not a terminal gets the bytes.
    assert!(stage.burrow.ok(&["logs", "work"]).contains("\u{1b}[6n"));
}

#[test]
fn logs_names_sessions_as_attach_does() {
    let stage = Stage::with_echo();
    let start = ["exec", "-d", "--session", "build-1", "work", "--", "echo", "built"];
    stage.burrow.ok(&start);
    eventually("a prefix is enough", || {
        stage.burrow.run(&["logs", "--session", "build", "work"]).stdout == b"built\n"
    });
    for verb in [
        &["logs", "--session", "nope", "work"][..],
        &["attach", "--session", "nope", "work"],
        &["kill", "work", "nope"],
    ] {
        let output = stage.burrow.run(verb);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{verb:?}: {stderr}");
        assert!(
            stderr.contains("\"nope\" matches no session of the sandbox"),
            "{verb:?}: {stderr}"
        );
        assert!(stderr.contains("demo"), "{verb:?} does not say which there are: {stderr}");
    }
    for verb in [&["attach", "--session", "build-1", "work"][..], &["kill", "work", "build-1"]] {
        // The agent has it for a moment after its end.
        eventually("its end is told", || {
            let stderr = stage.burrow.run(verb).stderr;
            let stderr = String::from_utf8_lossy(&stderr).into_owned();
            stderr.contains("session build-1 has ended: exit code 0; ")
                && stderr.contains("host-bridge logs work --session build-1")
        });
    }
    stage.burrow.ok(&["exec", "-d", "--session", "build-2", "work", "--", "true"]);
    eventually("several", || {
        let output = stage.burrow.run(&["logs", "--session", "build", "work"]);
        String::from_utf8_lossy(&output.stderr).contains("matches several sessions")
    });
    stage.burrow.ok(&["stop", "work"]);
    assert_eq!(stage.burrow.ok(&["logs", "--session", "build-1", "work"]), "built\n");
}

#[test]
fn detaching_says_the_way_back_and_leaves_the_session_running() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    viewer.detaches();
    viewer.sees("return with: host-bridge attach work --session demo");
    assert!(stage.is_running());
    // The very terminal can be used again, for a shell and for attaching.
    viewer.tmux.clear();
    viewer.tmux.line("hb attach work --session demo; echo code=$?");
    viewer.types("again");
    viewer.sees("<again>");
    viewer.detaches();
}

#[test]
fn keys_typed_right_before_detaching_arrive() {
    let stage = Stage::with_echo();
    for word in ["one", "two", "three", "four", "five"] {
        let Some(viewer) = stage.attach("") else { return };
        viewer.sees("early-bird");
        eventually("raw mode", || viewer.tmux.mode() != viewer.mode);
        // In one go, as from a paste or over a slow line.
        viewer.tmux.paste(&format!("{word}\r\u{10}\u{11}"));
        viewer.is_out_with(0);
    }
    let Some(later) = stage.attach("") else { return };
    later.sees("early-bird\n<one>\n<two>\n<three>\n<four>\n<five>");
}

#[test]
fn a_program_that_does_not_read_keeps_nobody_from_detaching() {
    let stage = Stage::with("stty raw -echo; echo early-bird; exec sleep 1000");
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    viewer.tmux.paste(&"x".repeat(100_000));
    viewer.detaches();
    assert!(stage.is_running());
}

#[test]
fn other_keys_detach_on_request_and_a_lone_prefix_is_the_programs() {
    let script = "stty -echo -icanon -ixon; echo early-bird; exec cat -v";
    let stage = Stage::with(script);
    let Some(viewer) = stage.attach("--detach-keys ctrl-x,x") else { return };
    viewer.sees("early-bird");
    viewer.tmux.keys(&["C-p", "C-q"]);
    viewer.sees("^P^Q");
    // Nothing follows, so it cannot have been meant for us.
    viewer.tmux.keys(&["C-x"]);
    viewer.sees("^P^Q^X");
    viewer.tmux.keys(&["C-x", "y"]);
    viewer.sees("^P^Q^X^Xy");
    viewer.tmux.keys(&["C-x", "x"]);
    viewer.is_out_with(0);
    assert!(stage.is_running());
}

/// How long what follows a key may take, and how often it is tried: a busy machine is late now and then, and
/// what waits for a time is late always.
const PROMPT: Duration = Duration::from_millis(300);
const TRIES: usize = 5;

#[test]
fn a_lone_prefix_reaches_the_program_within_three_tenths_of_a_second() {
    let stage = Stage::with("stty -echo -icanon -ixon; echo early-bird; exec cat -v");
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    let mut shown = String::new();
    let tries = (0..TRIES).map(|_| {
        shown.push_str("^P");
        let began = Instant::now();
        viewer.tmux.keys(&["C-p"]);
        viewer.sees(&shown);
        began.elapsed()
    });
    let quickest = tries.min().expect("some");
    assert!(quickest < PROMPT, "{quickest:?}");
    viewer.detaches();
}

#[test]
fn detaching_waits_for_nothing_after_its_second_key() {
    let stage = Stage::with_echo();
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let Some(viewer) = stage.attach("") else { return };
        viewer.sees("early-bird");
        let began = Instant::now();
        viewer.detaches();
        tries.push(began.elapsed());
    }
    let quickest = tries.into_iter().min().expect("some");
    assert!(quickest < PROMPT, "{quickest:?}");
}

#[test]
fn the_sessions_exit_code_arrives_at_everybody() {
    let stage = Stage::with("stty -echo; echo early-bird; read word; exit 42");
    let (Some(first), Some(second)) = (stage.attach(""), stage.attach("--read-only")) else {
        return;
    };
    first.sees("early-bird");
    second.sees("early-bird");
    first.types("go");
    first.is_out_with(42);
    second.is_out_with(42);
}

#[test]
fn several_viewers_see_the_same() {
    let stage = Stage::with_echo();
    let Some(first) = stage.attach("") else { return };
    first.sees("early-bird");
    let Some(second) = stage.attach("--read-only") else { return };
    let Some(third) = stage.attach("--read-only") else { return };
    for viewer in [&second, &third] {
        viewer.sees("early-bird");
    }
    for word in ["one", "two", "three"] {
        first.types(word);
    }
    for viewer in [&first, &second, &third] {
        viewer.sees("early-bird\n<one>\n<two>\n<three>");
    }
    second.detaches();
    first.types("four");
    third.sees("<four>");
}

#[test]
fn a_read_only_viewer_cannot_type_and_cannot_take_the_keyboard() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("--read-only") else { return };
    viewer.sees("early-bird");
    viewer.types("never");
    viewer.tmux.keys(&["C-p", "C-t"]);
    viewer.types("nor-this");
    let Some(typist) = stage.attach("") else { return };
    typist.sees("early-bird");
    typist.types("yes");
    viewer.sees("early-bird\n<yes>");
    typist.sees("early-bird\n<yes>");
    viewer.detaches();
    // Where nothing can be typed, ctrl-c has no other meaning.
    let Some(viewer) = stage.attach("--read-only") else { return };
    viewer.sees("<yes>");
    viewer.tmux.keys(&["C-c"]);
    viewer.is_out_with(0);
    assert!(stage.is_running());
}

#[test]
fn the_keyboard_has_one_owner_and_its_taking_over_is_announced() {
    let stage = Stage::with_echo();
    let Some(first) = stage.attach("") else { return };
    first.sees("early-bird");
    let Some(second) = stage.attach("") else { return };
    second.sees("has the keyboard; ctrl-p ctrl-t takes it");
    second.types("ignored");
    first.types("one");
    second.sees("<one>");

    second.tmux.keys(&["C-p", "C-t"]);
    second.sees("you have the keyboard");
    first.sees("took the keyboard; ctrl-p ctrl-t takes it");
    second.types("two");
    first.types("ignored-too");
    first.sees("<two>");
    second.sees("<two>");

    let Some(third) = stage.attach("--take") else { return };
    second.sees("took the keyboard");
    third.types("three");
    for viewer in [&first, &second, &third] {
        viewer.sees("<three>");
        assert!(!viewer.tmux.screen().contains("ignored"), "{}", viewer.tmux.screen());
    }
    // Leaving releases the keyboard.
    third.detaches();
    let Some(fourth) = stage.attach("") else { return };
    fourth.types("four");
    first.sees("<four>");
}

#[test]
fn the_smallest_window_of_those_who_type_decides_the_size() {
    let script = "stty -echo; echo early-bird; while read word; do echo \"[$(stty size)]\"; done";
    let stage = Stage::with(script);
    let Some(large) = stage.attach_sized("", 100, 30) else { return };
    large.sees("early-bird");
    let is_told = |size: &str| {
        large.tmux.wait_until(size, |screen| {
            large.types("how-large");
            screen.lines().rfind(|line| !line.is_empty()) == Some(size)
        });
    };
    is_told("[30 100]");
    let Some(small) = stage.attach_sized("", 60, 40) else { return };
    small.sees("has the keyboard");
    is_told("[30 60]");
    small.tmux.resize(90, 20);
    is_told("[20 90]");
    small.detaches();
    is_told("[30 100]");
    let Some(killed) = stage.attach_sized("", 50, 10) else { return };
    is_told("[10 50]");
    kill(killed.tmux.program(), Signal::SIGKILL).expect("it is ours");
    is_told("[30 100]");
    // Who only looks is in nobody's way.
    let Some(looking) = stage.attach_sized("--read-only", 40, 10) else { return };
    looking.sees("[30 100]");
    is_told("[30 100]");
    large.tmux.resize(70, 15);
    is_told("[15 70]");
}

#[test]
fn a_full_screen_program_is_redrawn_for_a_client_that_comes_back() {
    if !have("vim") {
        return skip("vim is not installed");
    }
    let stage = Stage::with("exec vim -u NONE -N -i NONE /tmp/note");
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("~\n~");
    viewer.tmux.keys(&["i"]);
    viewer.sees("-- INSERT --");
    viewer.tmux.text("kept while away");
    viewer.sees("kept while away");
    viewer.detaches();
    // In a window of another size, where only a redraw can be right.
    let Some(back) = stage.attach_sized("", 100, 40) else { return };
    back.tmux.wait_until("vim fills the window", |screen| {
        screen.starts_with("kept while away\n~") && screen.matches("\n~").count() == 38
    });
    let Some(looking) = stage.attach_sized("--read-only", 100, 40) else { return };
    looking.tmux.wait_until("vim is drawn for who only looks", |screen| {
        screen.starts_with("kept while away\n~") && screen.matches("\n~").count() == 38
    });
    back.tmux.keys(&["Escape"]);
    back.types(":wq");
    back.is_out_with(0);
    looking.is_out_with(0);
    assert_eq!(stage.burrow.ok(&["exec", "work", "--", "cat", "/tmp/note"]), "kept while away\n");
}

#[test]
fn a_fresh_shell_survives_detaching_and_its_code_arrives() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    tmux.line("hb attach work; echo code=$?");
    tmux.line("kept=$((40+2)); echo kept-$kept");
    tmux.wait_for("kept-42");
    detach_and_return(&tmux, &mode);
    tmux.wait_for("kept-42");
    tmux.line("echo still-$((kept+1))");
    tmux.wait_for("still-43");
    tmux.line("exit 7");
    tmux.wait_for("code=7");
    tmux.wait_for_mode(&mode);
}

#[test]
fn signals_that_end_the_viewer_give_the_terminal_back_and_leave_the_session() {
    let stage = Stage::with_echo();
    // The last is one that nobody can handle: the guardian restores.
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGINT, 130),
        (Signal::SIGQUIT, 131),
        (Signal::SIGKILL, 137),
    ] {
        let Some(viewer) = stage.attach("--take") else { return };
        viewer.sees("early-bird");
        eventually("raw mode", || viewer.tmux.mode() != viewer.mode);
        kill(viewer.tmux.program(), signal).expect("it is ours");
        viewer.is_out_with(code);
        assert!(stage.is_running(), "{signal} ended the session");
        // What is typed goes to the shell again, line by line and echoed.
        viewer.types("echo usable=$((1+1))");
        viewer.sees("usable=2");
    }
    // A viewer that was killed has released the keyboard.
    eventually("nobody has the keyboard", || stage.session()["keyboard"].is_null());
}

#[test]
fn a_screen_that_a_program_had_taken_is_given_back_when_the_viewer_is_killed() {
    let stage = Stage::with("stty -echo; printf '\\033[?1049h\\033[?25lfull-screen'; read word");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let Some(viewer) = stage.attach("--take") else { return };
        viewer.sees("full-screen");
        kill(viewer.tmux.program(), signal).expect("it is ours");
        // The shell's output before the guardian acts goes to the full screen.
        viewer.tmux.wait_until("the shell's own screen", |screen| {
            screen.starts_with("ready> hb attach") && !screen.contains("full-screen")
        });
        viewer.tmux.wait_for_mode(&viewer.mode);
        viewer.types("echo usable=$((1+1))");
        viewer.sees("usable=2");
    }
}

#[test]
fn a_stopped_viewer_goes_on_in_raw_mode() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    eventually("raw mode", || viewer.tmux.mode() != viewer.mode);
    kill(viewer.tmux.program(), Signal::SIGSTOP).expect("it is ours");
    viewer.sees("Stopped");
    // The terminal is as it was left, so return must be typed as the byte itself.
    viewer.tmux.text("stty sane; echo sane=$((1+1))");
    viewer.tmux.keys(&["C-j"]);
    viewer.sees("sane=2");
    let sane = viewer.tmux.mode();
    viewer.types("fg");
    eventually("raw mode again", || viewer.tmux.mode() != sane);
    viewer.types("again");
    viewer.sees("<again>");
    viewer.tmux.keys(&["C-p", "C-q"]);
    viewer.sees("detached");
    viewer.tmux.wait_for_mode(&viewer.mode);
}

#[test]
fn a_sandbox_that_is_killed_gives_the_terminal_back_and_says_so() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    stage.burrow.ok(&["kill", "work"]);
    viewer.is_out_with(125);
    viewer.sees("host-bridge: ");
    viewer.sees("`host-bridge logs work` shows its output");
}

#[test]
fn a_sandbox_that_is_stopped_ends_the_session_and_gives_the_terminal_back() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    stage.burrow.ok(&["stop", "work"]);
    let is_over = |screen: &str| screen.lines().any(|line| line.starts_with("code="));
    let screen = viewer.tmux.wait_until("the end", is_over);
    viewer.tmux.wait_for_mode(&viewer.mode);
    assert!(screen.contains("because the sandbox was stopped"), "no word about it: {screen}");
}

#[test]
fn a_daemon_that_is_killed_takes_nothing_from_who_is_attached() {
    let mut stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    stage.burrow.kill_daemon();
    viewer.types("on");
    // Whatever is seen, the daemon is back before it is judged: it is what removes the sandbox.
    let went_on = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| viewer.sees("<on>")));
    stage.burrow.serve();
    went_on.expect("attach goes on without the daemon");
    viewer.types("and-on");
    viewer.sees("<and-on>");
    viewer.detaches();
    let Some(later) = stage.attach("") else { return };
    later.sees("early-bird\n<on>\n<and-on>");
}

#[test]
fn a_window_that_is_closed_leaves_the_session_and_the_keyboard() {
    let stage = Stage::with_echo();
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("early-bird");
    let bridge = viewer.tmux.program();
    let guardians = tests::children(bridge);
    assert_eq!(guardians.len(), 1, "who restores the terminal of a bridge that is killed");
    viewer.tmux.close();
    for gone in [&[bridge], &guardians[..]].concat() {
        eventually("the bridge and its guardian leave", || tests::resident_bytes(gone).is_none());
    }
    eventually("the keyboard is free", || stage.session()["keyboard"].is_null());
    assert!(stage.is_running());
    let Some(next) = stage.attach("") else { return };
    next.types("mine");
    next.sees("<mine>");
}

#[test]
fn a_viewer_that_stops_reading_delays_nobody_and_learns_what_it_missed() {
    let script =
        "stty -echo; echo early-bird; read word; seq 1 1000000; echo flood-is-over; read word";
    let stage = Stage::with(script);
    let notes = stage.burrow.scratch().join("notes");
    let quietly = format!("--read-only 2> {}", notes.display());
    let (Some(first), Some(second)) = (stage.attach(""), stage.attach(&quietly)) else {
        return;
    };
    first.sees("early-bird");
    second.sees("early-bird");
    kill(second.tmux.program(), Signal::SIGSTOP).expect("it is ours");
    second.sees("Stopped");
    first.types("go");
    first.sees("1000000\nflood-is-over");
    // Return is a plain byte in the mode that the stopped viewer has left behind.
    second.tmux.text("fg");
    second.tmux.keys(&["C-j"]);
    second.sees("1000000\nflood-is-over");
    let notes_hold =
        |text: &str| std::fs::read_to_string(&notes).is_ok_and(|all| all.contains(text));
    eventually("the gap is announced", || {
        notes_hold("skipped ") && notes_hold(" bytes, because the terminal was too slow")
    });
    second.tmux.keys(&["C-p", "C-q"]);
    eventually("it is detached", || notes_hold("detached"));
}

#[test]
fn a_session_on_pipes_is_followed_and_ctrl_c_leaves_it_running() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script =
        "echo out; echo err >&2; until [ -e /tmp/go ]; do sleep 0.1; done; echo more; exit 6";
    burrow.ok(&["exec", "-d", "--session", "demo", "work", "--", "sh", "-c", script]);
    let stage = Stage { burrow };
    let Some(viewer) = stage.attach("") else { return };
    viewer.sees("\nout\n");
    viewer.sees("\nerr\n");
    viewer.tmux.keys(&["C-c"]);
    viewer.is_out_with(0);
    assert!(stage.is_running());
    let Some(viewer) = stage.attach("2>/dev/null") else { return };
    viewer.sees("\nout\n");
    stage.burrow.ok(&["exec", "work", "--", "touch", "/tmp/go"]);
    viewer.sees("\nout\nmore\ncode=6\n");
}

#[test]
fn a_session_is_followed_without_any_terminal() {
    let stage = Stage::with("stty -echo; echo early-bird; read word; echo \"<$word>\"; exit 5");
    let Some(viewer) = stage.attach("") else { return };
    let mut follower = stage
        .burrow
        .command(&["attach", "work", "--session", "demo"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdout = BufReader::new(follower.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("UTF-8");
    assert_eq!(line, "early-bird\r\n");
    viewer.types("go");
    viewer.is_out_with(5);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, "<go>\r\n");
    assert_eq!(follower.wait().expect("it is ours").code(), Some(5));
}

#[test]
fn a_closed_reader_leaves_the_session_running() {
    let stage = Stage::with("while :; do echo flood; done");
    let mut follower = stage
        .burrow
        .command(&["attach", "work", "--session", "demo"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdout = follower.stdout.take().expect("piped");
    stdout.read_exact(&mut [0; 5]).expect("some output");
    drop(stdout);
    let mut ended = None;
    eventually("the bridge leaves", || {
        ended = follower.try_wait().expect("it is ours");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(141));
    assert!(stage.is_running());
}

#[test]
fn unknown_sandboxes_sessions_and_sockets_are_named_with_a_hint() {
    let stage = Stage::with_echo();
    let socket = stage.burrow.scratch().join("nobody.sock");
    let socket = socket.to_str().expect("UTF-8");
    for (arguments, named) in [
        (&["attach", "wrok", "--session", "demo"][..], "work"),
        (&["attach", "work", "--session", "other"], "demo"),
        (&["attach", "--uds", socket, "--session", "demo"], socket),
    ] {
        let output = stage.burrow.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {stderr}");
        assert!(stderr.contains(named), "{arguments:?} does not name {named}: {stderr}");
    }
}

/// An agent that serves on a Unix socket as an ordinary process, with no bridge before it.
struct Agent {
    process: Child,
    socket: PathBuf,
}

impl Agent {
    fn serve(burrow: &Burrow) -> Self {
        let socket = burrow.scratch().join("agent.sock");
        let process = Command::new(agent_path())
            .args(["serve", "--listen"])
            .arg(&socket)
            .stdin(Stdio::null())
            .spawn()
            .expect("the agent starts");
        let agent = Self { process, socket };
        eventually("the agent listens", || UnixStream::connect(&agent.socket).is_ok());
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM).ok();
        self.process.wait().ok();
    }
}

/// Detaches, and attaches again with the command that detaching printed.
fn detach_and_return(tmux: &Tmux, mode: &str) {
    tmux.keys(&["C-p", "C-q"]);
    tmux.wait_for("code=0");
    tmux.wait_for_mode(mode);
    let screen = tmux.screen();
    let way_back = screen.split("return with: host-bridge ").nth(1).expect("the way back");
    let way_back = way_back.lines().next().expect("a line").to_owned();
    tmux.clear();
    tmux.line(&format!("hb {way_back}; echo code=$?"));
}

/// A shell through a door that needs no daemon: typed into, left, come back to, ended.
fn uses_a_door_without_daemon(burrow: &Burrow, door: &str) {
    let Some(tmux) = Tmux::of_size(burrow, 160, 24) else { return };
    let mode = tmux.mode();
    tmux.line(&format!("hb attach {door}; echo code=$?"));
    tmux.line("kept=$((40+2)); echo kept-$kept on $(stty size)");
    tmux.wait_for("kept-42 on 24 160");
    detach_and_return(&tmux, &mode);
    tmux.wait_for("kept-42");
    tmux.line("echo still-$((kept+1)); exit 9");
    tmux.wait_for("still-43");
    tmux.wait_for("code=9");
    tmux.wait_for_mode(&mode);
}

#[test]
fn a_plain_socket_is_a_door_that_needs_no_daemon() {
    let burrow = Burrow::new();
    let agent = Agent::serve(&burrow);
    uses_a_door_without_daemon(&burrow, &format!("--uds {}", agent.socket.display()));
}

#[test]
fn a_shell_that_nobody_looks_at_goes_on_without_a_daemon() {
    let burrow = Burrow::new();
    let agent = Agent::serve(&burrow);
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let (door, over) = (agent.socket.display(), burrow.scratch().join("over"));
    tmux.line(&format!("hb attach --uds {door}; echo code=$?"));
    tmux.line(&format!("echo begun=$((1+1)); read go; seq 1 1000000; touch {}", over.display()));
    tmux.wait_for("begun=2");
    tmux.keys(&["Enter", "C-p", "C-q"]);
    tmux.wait_for("detached");
    // Far more than is kept for a client that comes back; an absent one must not be awaited.
    eventually("the shell goes on", || over.exists());
}

#[test]
fn a_hybrid_vsock_socket_is_a_door_that_needs_no_daemon() {
    const PORT: u32 = 1024;
    let burrow = Burrow::new();
    let agent = Agent::serve(&burrow);
    let hybrid = burrow.scratch().join("v.sock");
    relay(&hybrid, PORT, agent.socket.clone());
    uses_a_door_without_daemon(&burrow, &format!("--hybrid {} --port {PORT}", hybrid.display()));
    let path = hybrid.to_str().expect("UTF-8");
    let output = burrow.run(&["attach", "--hybrid", path, "--port", "7", "--session", "demo"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains(path));
}

/// A machine monitor as far as a host can see it: behind `CONNECT port` and `OK` is the agent; for
/// any other port the connection is closed. It ends with the test.
fn relay(hybrid: &Path, port: u32, agent: PathBuf) {
    let listener = UnixListener::bind(hybrid).expect("a socket");
    std::thread::spawn(move || {
        for host in listener.incoming().flatten() {
            let agent = agent.clone();
            std::thread::spawn(move || relay_one(host, port, &agent));
        }
    });
}

fn relay_one(mut host: UnixStream, port: u32, agent: &Path) -> std::io::Result<()> {
    let mut answers = Vec::new();
    let mut byte = [0];
    while answers.last() != Some(&b'\n') && host.read(&mut byte)? == 1 {
        answers.extend_from_slice(&byte);
    }
    if answers != format!("CONNECT {port}\n").as_bytes() {
        return Ok(());
    }
    let mut agent = UnixStream::connect(agent)?;
    // The number is the host's own port, which means nothing to anybody.
    host.write_all(b"OK 1073741824\n")?;
    let (mut from_agent, mut to_host) = (agent.try_clone()?, host.try_clone()?);
    std::thread::spawn(move || {
        std::io::copy(&mut from_agent, &mut to_host).ok();
        to_host.shutdown(Shutdown::Both).ok();
    });
    std::io::copy(&mut host, &mut agent)?;
    agent.shutdown(Shutdown::Both)
}
