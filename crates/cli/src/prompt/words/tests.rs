use protocol::repl::{ContextState, Interpreter};

use super::*;

fn info() -> ContextInfo {
    ContextInfo {
        context: "main".parse().expect("a name"),
        language: "python".to_owned(),
        state: ContextState::Idle,
        interpreter: Some(Interpreter {
            pid: 1,
            program: "/usr/bin/python3".to_owned(),
            version: "3.11.7\x1b[2J".to_owned(),
        }),
        interpreters: 1,
        runs: 0,
        running: None,
        queued: 0,
        opened_at_ms: 0,
        cwd: None,
        lost: None,
        warnings: Vec::new(),
    }
}

fn finished(end: RunEnd, rung: Option<Rung>, state_kept: bool) -> Finished {
    Finished {
        end,
        duration_us: 0,
        cpu_us: None,
        memory_bytes_peak: None,
        state_kept,
        rung,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cached: None,
    }
}

fn display(forms: &[(&str, &str)]) -> Display {
    let data =
        forms.iter().map(|(mime, data)| Datum { mime: (*mime).to_owned(), data: (*data).into() });
    Display { role: DisplayRole::Value, id: None, data: data.collect(), metadata: None }
}

#[test]
fn the_banner_says_what_it_is_and_draws_nothing() {
    let line = banner(&Language::of("python"), &info(), "work", true);
    assert!(line.starts_with("Python 3.11.7\\u{1b}[2J in context main of work\n"), "{line}");
    assert!(line.contains("shared") && line.contains("ctrl-d"), "{line}");
    let mut other = info();
    (other.language, other.interpreter) = ("ruby".to_owned(), None);
    let line = banner(&Language::of("ruby"), &other, "work", true);
    assert!(line.starts_with("ruby in context main"), "{line}");
    assert!(line.lines().all(|line| line.len() < 80), "{line}");
}

#[test]
fn the_banner_of_a_sandbox_that_ends_with_the_prompt_promises_nothing() {
    let line = banner(&Language::of("python"), &info(), "a new sandbox", false);
    assert!(line.contains("ctrl-d ends it, with its state"), "{line}");
    assert!(!line.contains("shared") && !line.contains("lives on"), "{line}");
    let line = line.replace("\\u{1b}[2J", "");
    assert!(line.lines().all(|line| line.len() < 80), "{line}");
}

#[test]
fn attaching_during_a_run_is_explained() {
    assert_eq!(busy(3, 0), "run 3 of another client is running; what you enter runs after that");
    assert!(busy(3, 1).contains("running and 1 more waits;"));
    assert!(busy(3, 2).contains("running and 2 more wait;"));
}

#[test]
fn an_end_that_speaks_for_itself_needs_no_words() {
    for how in [RunEnd::Ok {}, RunEnd::Error {}, RunEnd::Exited { code: 3 }] {
        assert_eq!(end(&finished(how, None, true), false, false), None);
    }
    let by = "me".to_owned();
    let ours = finished(RunEnd::Interrupted { by }, Some(Rung::Polite), true);
    assert_eq!(end(&ours, true, true), None, "the traceback says it");
    assert_eq!(end(&ours, true, false).as_deref(), Some("interrupted"));
    assert_eq!(end(&ours, false, true).as_deref(), Some("interrupted by me"));
}

#[test]
fn the_loss_of_state_is_always_said() {
    let by = "me".to_owned();
    let killed = finished(RunEnd::Interrupted { by }, Some(Rung::Killed), false);
    let line = end(&killed, true, true).expect("a line");
    assert!(line.starts_with("the interpreter was killed") && line.contains("state is lost"));
    let cause = Cause::Signaled { signal: 11, core_dumped: false };
    let line = end(&finished(RunEnd::Died { cause }, None, false), false, false);
    let line = line.expect("a line");
    assert!(line.contains("SIGSEGV") && line.contains("state is lost"), "{line}");
    let line = end(&finished(RunEnd::Exited { code: 0 }, None, false), false, false);
    assert!(line.expect("a line").contains("state is lost"));
    let reason = "closed".to_owned();
    let line = end(&finished(RunEnd::Cancelled { reason }, None, false), false, false);
    assert_eq!(line.as_deref(), Some("not run: closed"));
}

#[test]
fn a_queued_run_names_what_it_waits_for() {
    assert_eq!(waiting(Some(12), 1), "waiting for run 12 of another client");
    assert_eq!(waiting(Some(12), 3), "waiting for run 12 of another client, then 2 more");
    assert_eq!(waiting(None, 2), "waiting for 2 runs of other clients");
    assert_eq!(others(0), None);
    assert!(others(3).expect("a line").contains("3 times"));
}

#[test]
fn an_error_is_what_the_interpreter_would_print() {
    let mut error = ErrorReport {
        kind: "ValueError".to_owned(),
        message: "no".to_owned(),
        traceback: "Traceback (most recent call last):\nValueError: no\n".to_owned(),
        frames: vec![],
    };
    assert!(traceback(&error).expect("text").ends_with("ValueError: no"));
    error.traceback.clear();
    assert_eq!(traceback(&error).as_deref(), Some("ValueError: no"));
    assert_eq!(traceback(&ErrorReport::default()), None);
}

#[test]
fn showable_displays_are_shown_and_others_become_files() {
    let mut shown = display(&[("text/html", "<b>"), ("text/plain", "x"), ("image/png", "12345")]);
    assert_eq!(plain(&shown).as_deref(), Some(&b"x"[..]));
    assert_eq!(plain(&display(&[("text/plain", "")])), None);
    let rich: Vec<_> = rich(&shown).map(|form| form.mime.as_str()).collect();
    assert_eq!(rich, ["text/html", "image/png"]);
    let line = saved(DisplayRole::Value, &shown.data[2], Path::new("/tmp/x/01.png"));
    assert_eq!(line, "[image/png 5 B: /tmp/x/01.png]");
    let line = saved(DisplayRole::Update, &shown.data[2], Path::new("/tmp/x/01.png"));
    assert_eq!(line, "[update, image/png 5 B: /tmp/x/01.png]");
    shown.role = DisplayRole::Update;
    assert_eq!(plain(&shown).as_deref(), Some(&b"[update] x"[..]));
}

#[test]
fn guest_names_draw_nothing() {
    let hostile = display(&[("image/\x1b[2Jpng\n", "")]);
    let line = saved(DisplayRole::Shown, &hostile.data[0], Path::new("/tmp/01.bin"));
    assert_eq!(line, "[image/\\u{1b}[2Jpng\\n 0 B: /tmp/01.bin]");
    let file = Artifact {
        path: "/tmp/a\x1b]0;title\x07".into(),
        name: String::new(),
        mime: "x".repeat(1000),
        bytes: 2048,
    };
    let line = artifact(&file);
    assert!(line.ends_with(" 2.0 KiB, in the sandbox: /tmp/a\\u{1b}]0;title\\u{7}]"), "{line}");
    assert!(line.len() < 200, "{line}");
    assert_eq!(lost("a\nb"), "the interpreter and its state were lost: a\\nb");
}

#[test]
fn a_question_is_one_line_with_what_stands_before_it() {
    assert_eq!(question("", "Name: "), (None, "Name: ".to_owned()));
    assert_eq!(question("Hello. ", "Name: "), (None, "Hello. Name: ".to_owned()));
    let (before, last) = question("a", "b\nc\x1b[1m\nd\t? ");
    assert_eq!(before.as_deref(), Some("ab\nc\\u{1b}[1m"));
    assert_eq!(last, "d\\t? ");
}
