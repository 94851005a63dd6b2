//! Difficult Python: tables of code, each row judged by its output, how it ended, what is left, and
//! what the next run says; and what no row can say, of tracebacks, order and forgery. The tables run
//! with the system's Python, and what is quick of them with every other one that is found.

mod company;
mod ends;
mod hostile;
mod plain;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agent_client::guest::{Guest, Ran, RunCode};
use protocol::repl::{DisplayRole, Grace, Happening, RunEnd, Rung};
use tests::contexts::{context, ran, run, run_within, stderr, stdout, value};
use tests::sandbox::Sandbox;
use tests::torture::{Case, Tongue, case, run_table};
use tokio::task::JoinSet;

/// The variable is printed by what no row can have redefined for longer than its own run.
const fn tongue(context: &'static str) -> Tongue {
    Tongue {
        context,
        set: |number| format!("torture = {number}"),
        get: "import sys; sys.stdout.write('%d\\n' % torture) and None",
    }
}

/// A row whose code is indented as its place in these files is.
fn row(name: &'static str, code: &str) -> Case {
    let margin = |line: &str| line.len() - line.trim_start().len();
    let lines = || code.lines().filter(|line| !line.trim().is_empty());
    let least = lines().map(margin).min().unwrap_or(0);
    let cut: Vec<_> = code.lines().map(|line| line.get(least..).unwrap_or("")).collect();
    case(name, cut.join("\n").trim_matches('\n').to_owned())
}

/// What is wrong in some rows of a context.
type Judged = JoinSet<Vec<String>>;

/// Names of contexts: tables run side by side, each in one of its own.
const CONTEXTS: [&str; 12] = [
    "a:python", "b:python", "c:python", "d:python", "e:python", "f:python", "g:python", "h:python",
    "i:python", "j:python", "k:python", "l:python",
];

/// # Panics
/// When a row went wrong.
async fn judge(tables: Vec<Vec<Case>>) {
    let sandbox = Sandbox::start().await;
    let mut judged = Judged::new();
    for (table, context) in tables.into_iter().zip(CONTEXTS) {
        let guest = sandbox.guest.clone();
        judged.spawn(async move { run_table(&guest, &tongue(context), &table).await });
    }
    verdict(judged).await;
    sandbox.end().await;
}

/// # Panics
/// When a row went wrong.
async fn verdict(judged: Judged) {
    let wrong = judged.join_all().await.concat();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What takes little time.
fn quick() -> Vec<Vec<Case>> {
    vec![
        plain::values(),
        plain::sources(),
        plain::output(),
        plain::input(),
        plain::warned(),
        company::threads(),
        company::loops(),
        ends::errors(),
        ends::exits(),
    ]
}

#[tokio::test]
async fn code_that_means_no_harm() {
    let tables = quick().into_iter().chain([plain::newer_sources()]);
    judge(tables.collect()).await;
}

#[tokio::test]
async fn code_in_company() {
    judge(vec![company::children(), company::pools()]).await;
}

#[tokio::test]
async fn code_that_ends_badly() {
    judge(vec![ends::crashes(), ends::signals(), ends::memory()]).await;
}

#[tokio::test]
async fn code_that_does_not_end() {
    let mut tables = vec![ends::waits()];
    // Each of these waits for a second and more, so that a few of them wait together.
    let modules = || case("modules", "import asyncio, contextlib, signal, time");
    let few = |rows: &[Case]| [vec![modules()], rows.to_vec()].concat();
    tables.extend(ends::stubborn().chunks(4).map(few));
    tables.extend(ends::killed().chunks(1).map(<[Case]>::to_vec));
    judge(tables).await;
}

#[tokio::test]
async fn code_and_output_of_many_megabytes() {
    judge(vec![[plain::large_sources(), plain::large_output()].concat()]).await;
}

#[tokio::test]
async fn ruins_of_an_interpreter_still_answer() {
    let sandbox = Sandbox::start().await;
    let mut judged = Judged::new();
    let each = hostile::RUINS.len().div_ceil(4);
    for (ruins, context) in hostile::RUINS.chunks(each).zip(CONTEXTS) {
        let guest = sandbox.guest.clone();
        judged.spawn(async move { ruin(&guest, context, ruins).await });
    }
    verdict(judged).await;
    sandbox.end().await;
}

/// Ruins one interpreter after another, and says what does not hold afterwards.
async fn ruin(
    guest: &Guest,
    context: &'static str,
    ruins: &[(&'static str, &'static str)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let only = std::env::var("BURROW_RUIN").ok();
    let bare = context.trim_end_matches(":python").parse().expect("a name");
    for (name, code) in ruins {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let began = run_within(guest, context, code, Duration::from_secs(10)).await;
        if !began.finished.state_kept || began.finished.rung.is_some() {
            wrong.push(format!("{name}: {:?}", began.finished));
        }
        let after = run_table(guest, &tongue(context), &hostile::still()).await;
        wrong.extend(after.into_iter().map(|problem| format!("{name}: {problem}")));
        guest.restart_context(&bare).await.expect("restarted");
        run(guest, context, "None").await;
    }
    wrong
}

#[tokio::test]
async fn the_death_of_an_interpreter_ends_nothing_else() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (name, code) in hostile::FATAL {
        run(guest, "python", "x = 1").await;
        let ended = run_within(guest, "python", code, Duration::from_secs(20)).await;
        assert_eq!(stdout(&ended), "before\n", "{name}");
        // It dies in the run, or when the next begins, which gets an event then.
        let next = run(guest, "python", "print('next')").await;
        let died = |ran: &Ran| matches!(ran.finished.end, RunEnd::Died { .. });
        let next = if died(&next) { run(guest, "python", "print('next')").await } else { next };
        assert_eq!(stdout(&next), "next\n", "{name}: {:?} {:?}", ended.finished, next.finished);
        assert_eq!(next.finished.end, RunEnd::Ok {}, "{name}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn interrupts_go_as_far_as_they_must() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (code, rung) in [
        ("while True: pass", Rung::Polite),
        ("import time; time.sleep(1000)", Rung::Polite),
        ("import re; re.match('(a+)+$', 'a' * 40 + 'b')", Rung::Polite),
        ("import asyncio; await asyncio.sleep(1000)", Rung::Polite),
        ("while True:\n    try: time.sleep(9)\n    except BaseException: pass", Rung::Firm),
        ("import signal; signal.signal(2, signal.SIG_IGN)\nwhile True: pass", Rung::Firm),
        ("import itertools; sum(itertools.repeat(0))", Rung::Killed),
    ] {
        run(guest, "python", "import time\nx = 7").await;
        let mut ask = RunCode::new(context("python"), code);
        ask.deadline = Some(Duration::from_millis(100));
        ask.grace = Grace { polite_ms: Some(700), firm_ms: Some(1500) };
        let began = Instant::now();
        let ended = ran(guest, ask).await;
        assert_eq!(ended.finished.end, RunEnd::TimedOut { limit_ms: 100 }, "{code}");
        assert_eq!(ended.finished.rung, Some(rung), "{code}");
        assert_eq!(ended.finished.state_kept, rung != Rung::Killed, "{code}");
        assert!(began.elapsed() < Duration::from_secs(4), "{code}: {:?}", began.elapsed());
        let next = run(guest, "python", "x").await;
        let expected = (rung != Rung::Killed).then_some("7");
        assert_eq!(value(&next).as_deref(), expected, "{code}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn an_overrun_leaves_nothing_in_the_next_runs() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for number in 0..10 {
        let flood =
            "import subprocess\nwhile True: print('old' * 1000); subprocess.run(['echo', 'old'])";
        let ended = run_within(guest, "python", flood, Duration::from_millis(60)).await;
        assert!(matches!(ended.finished.end, RunEnd::TimedOut { .. }), "{:?}", ended.finished);
        assert_eq!(ended.stdout().len() as u64, ended.finished.stdout_bytes);
        let next = run(guest, "python", &format!("print({number})")).await;
        assert_eq!(stdout(&next), format!("{number}\n"));
        assert_eq!(stderr(&next), "");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_program_that_stays_holds_nobody_up() {
    let sandbox = Sandbox::start().await;
    let began = Instant::now();
    let ended = run(&sandbox.guest, "python", "import os; os.system('sleep 5 & echo hi')").await;
    assert_eq!(stdout(&ended), "hi\n");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    sandbox.end().await;
}

#[tokio::test]
async fn tracebacks_show_the_lines_of_the_run_that_they_come_from() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let named = |code: &str, name: &str| {
        let name = Some(name.to_owned());
        ran(guest, RunCode { name, ..RunCode::new(context("python"), code) })
    };
    named("def inner(x):\n    return 1 / x   # here\n\ndef outer():\n    inner(0)\n", "<first>")
        .await;
    let failed = named("y = 2\nouter()", "<second>").await;
    let error = failed.error().expect("an error");
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("ZeroDivisionError", "division by zero")
    );
    let begin = "Traceback (most recent call last):\n  File \"<second>\", line 2, in <module>\n    outer()\n";
    assert!(error.traceback.starts_with(begin), "{}", error.traceback);
    assert!(
        error.traceback.ends_with("ZeroDivisionError: division by zero\n"),
        "{}",
        error.traceback
    );
    assert!(!error.traceback.contains("burrow"), "{}", error.traceback);
    let frames: Vec<_> = error
        .frames
        .iter()
        .map(|frame| {
            (frame.file.as_str(), frame.line, frame.function.as_str(), frame.source.as_str())
        })
        .collect();
    let expected = [
        ("<second>", 2, "<module>", "outer()"),
        ("<first>", 5, "outer", "inner(0)"),
        ("<first>", 2, "inner", "return 1 / x   # here"),
    ];
    assert_eq!(frames, expected);
    // What was an error is not on stderr as well.
    assert_eq!(stderr(&failed), "");

    let source =
        run(guest, "python", "import inspect\nprint(inspect.getsource(inner), end='')").await;
    assert_eq!(stdout(&source), "def inner(x):\n    return 1 / x   # here\n");
    let caught = "import traceback\ntry: outer()\nexcept Exception: print(traceback.format_exc())";
    assert!(stdout(&run(guest, "python", caught).await).contains("    return 1 / x   # here\n"));
    let last = run(guest, "python", "import sys; sys.last_value").await;
    assert_eq!(value(&last).as_deref(), Some("ZeroDivisionError('division by zero')"));

    let wrong = named("a = 1\nx = = 1\n", "<third>").await;
    let text = &wrong.error().expect("an error").traceback;
    assert!(text.contains("  File \"<third>\", line 2\n    x = = 1\n"), "{text}");
    let chained =
        named("try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e", "<c>").await;
    let text = &chained.error().expect("an error").traceback;
    assert!(
        text.contains("    1/0\n")
            && text.contains("direct cause")
            && text.contains("KeyError: 'k'")
    );
    let deep = named("def f(): f()\nf()", "<deep>").await;
    let text = &deep.error().expect("an error").traceback;
    assert!(text.contains("[Previous line repeated ") && text.len() < 10_000, "{text}");
    let long = named("raise ValueError('m' * 10**7)", "<long>").await;
    assert!(long.error().expect("an error").traceback.contains("ValueError: mmm"));
    sandbox.end().await;
}

#[tokio::test]
async fn runs_without_a_name_are_distinguished_in_tracebacks() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    run(guest, "python", "def first():\n    raise ValueError('from the first')").await;
    run(guest, "python", "def second():\n    first()   # the second").await;
    let failed = run(guest, "python", "second()   # the third").await;
    let error = failed.error().expect("an error");
    for line in [
        "    raise ValueError('from the first')\n",
        "    first()   # the second\n",
        "    second()   # the third\n",
    ] {
        assert!(error.traceback.contains(line), "{}", error.traceback);
    }
    let mut files: Vec<_> = error.frames.iter().map(|frame| &frame.file).collect();
    files.dedup();
    assert_eq!(files.len(), 3, "{files:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn outputs_displays_and_artifacts_come_in_the_order_of_the_code() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "import os, subprocess\nfrom burrow import artifact\nprint('1')\ndisplay('two')\n\
                subprocess.run(['echo', '3'])\nopen('/tmp/four.txt', 'w').write('4444')\n\
                artifact('/tmp/four.txt', mime='text/plain')\nos.write(1, b'5\\n')\ndisplay('six')\nprint('7')\n8";
    let result = run(guest, "python", code).await;
    let mut order = Vec::new();
    for event in &result.events {
        match &event.what {
            Happening::Stdout { bytes } => order.push(bytes.to_string()),
            Happening::Display(shown) => {
                order.push(format!("{:?} {}", shown.role, shown.data[0].data));
            }
            Happening::Artifact(file) => {
                order.push(format!("{} {} {}", file.name, file.mime, file.bytes));
            }
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        "1\n",
        "Shown 'two'",
        "3\n",
        "four.txt text/plain 4",
        "5\n",
        "Shown 'six'",
        "7\n",
        "Value 8",
    ];
    assert_eq!(order, expected);
    sandbox.end().await;
}

#[tokio::test]
async fn nobody_else_can_say_that_a_run_is_over() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    // The messages that end a run, show a value and offer a file, with every token but the right one.
    let code = r"
import os, socket
def text(s): return bytes([0xa0 | len(s)]) + s.encode()
def entries(*pairs): return bytes([0x80 | len(pairs)]) + b''.join(text(k) + v for k, v in pairs)
run = b'\xcd' + os.environ.get('N', '\0\2').encode('latin-1')
said = [
    entries(('done', entries(('run', b'\2'), ('status', text('ok'))))),
    entries(('display', entries(('run', b'\2'), ('role', text('value')), ('data', b'\x90')))),
    entries(('artifact', entries(('run', b'\2'), ('path', text('/etc/passwd'))))),
    entries(('error', entries(('run', b'\2'), ('kind', text('Forged'))))),
]
count = 0
for fd in range(3, 2000):
    for message in said:
        for prefix in (b'', b'\0', b'\0' * 17, b'\xff' * 16 + b'\0', os.urandom(16) + b'\0', os.urandom(16) + b'\1'):
            try:
                os.write(fd, prefix + message)
                count += 1
            except OSError: pass
print('still here', count > 0)
";
    run(guest, "python", "x = 1").await;
    let forged = run(guest, "python", code).await;
    assert_eq!(stdout(&forged), "still here True\n");
    assert_eq!(forged.finished.end, RunEnd::Ok {});
    let other = |event: &protocol::repl::Event| !matches!(event.what, Happening::Stdout { .. });
    assert!(!forged.events.iter().any(other), "{:?}", forged.events);
    assert_eq!(stdout(&run(guest, "python", "print(x)").await), "1\n");
    sandbox.end().await;
}

#[tokio::test]
async fn a_fresh_interpreter_has_no_names_but_its_own() {
    let sandbox = Sandbox::start().await;
    let names = run(&sandbox.guest, "python", "print(sorted(n for n in globals()))").await;
    let own = [
        "__annotations__",
        "__builtins__",
        "__doc__",
        "__loader__",
        "__name__",
        "__package__",
        "__spec__",
    ];
    let output = stdout(&names);
    let rest: Vec<_> = output
        .trim_matches(['[', ']', '\n'])
        .split(", ")
        .map(|name| name.trim_matches('\''))
        .filter(|name| !own.contains(name))
        .collect();
    assert!(rest.is_empty(), "{rest:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn a_run_reports_its_usage() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let worked =
        run(guest, "python", "x = bytearray(200 << 20); sum(range(3 * 10**6)); del x").await;
    let finished = &worked.finished;
    assert!(finished.cpu_us.is_some_and(|us| us > 10_000), "{finished:?}");
    assert!(finished.memory_bytes_peak.is_some_and(|bytes| bytes > 200 << 20), "{finished:?}");
    let idle = run(guest, "python", "1").await.finished;
    assert!(idle.cpu_us.is_some_and(|us| us < 50_000), "{idle:?}");
    let child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'sum(range(10**7))']) and None";
    let waited = run(guest, "python", child).await.finished;
    assert!(waited.cpu_us.is_some_and(|us| us > 50_000), "{waited:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn only_the_last_expression_is_the_value() {
    let sandbox = Sandbox::start().await;
    let result = run(&sandbox.guest, "python", "1\n2\nfor i in range(2): i\n3").await;
    let shown: Vec<_> = result
        .events
        .iter()
        .filter_map(|event| match &event.what {
            Happening::Display(shown) => Some((shown.role, shown.data[0].data.to_string())),
            _ => None,
        })
        .collect();
    assert_eq!(shown, [(DisplayRole::Value, "3".to_owned())]);
    sandbox.end().await;
}

/// Every other Python from 3.8 on: its version and where it is.
fn pythons() -> Vec<(String, PathBuf)> {
    let mut programs: Vec<PathBuf> = Vec::new();
    for name in (8..=30).map(|minor| format!("python3.{minor}")) {
        programs.push(Path::new("/usr/bin").join(name));
    }
    let pyenv = Command::new("pyenv").arg("root").output().ok().filter(|it| it.status.success());
    let root = pyenv.map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".pyenv"),
        |it| PathBuf::from(String::from_utf8_lossy(&it.stdout).trim()),
    );
    let versions = std::fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
    programs.extend(versions.map(|version| version.path().join("bin/python3")));
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for program in programs {
        let ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.version_info >= (3, 8))";
        let Ok(output) = Command::new(&program).args(["-c", ask]).output() else { continue };
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let Some(version) = stdout.trim().strip_suffix(" True") else { continue };
        if !found.iter().any(|(known, _)| known == version) {
            found.push((version.to_owned(), program));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn every_other_python_that_is_found() {
    let found = pythons();
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let system = guest.open_context(&context("system:python")).await.expect("the system's");
    let system = system.interpreter.expect("it lives").version;
    let mut judged = Judged::new();
    let others = found.into_iter().filter(|(it, _)| !system.starts_with(&format!("{it}.")));
    for ((version, program), name) in others.zip(CONTEXTS) {
        let mut ask = context(name);
        ask.program = Some(program.to_string_lossy().as_ref().into());
        guest.open_context(&ask).await.expect("a context");
        let guest = guest.clone();
        judged.spawn(async move {
            let mut wrong = Vec::new();
            let stubborn = ends::stubborn().into_iter().take(2).collect();
            for table in quick().into_iter().chain([stubborn, hostile::still()]) {
                let bare = name.trim_end_matches(":python").parse().expect("a name");
                guest.restart_context(&bare).await.expect("restarted");
                let problems = run_table(&guest, &tongue(name), &table).await;
                wrong.extend(problems.into_iter().map(|problem| format!("{version}: {problem}")));
            }
            wrong
        });
    }
    if judged.is_empty() {
        tests::skip("no other Python from 3.8 on was found");
    }
    verdict(judged).await;
    sandbox.end().await;
}
