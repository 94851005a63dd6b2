//! Contexts: their state, their order, their ends, and the events of each run. What the languages
//! do with difficult code is in the torture suites.

use std::time::{Duration, Instant};

use agent_client::guest::contexts::open;
use agent_client::guest::{GuestError, Run, RunCode};
use protocol::exit::Cause;
use protocol::message::Channel;
use protocol::repl::{
    AnswerInput, Complete, ContextState, Grace, Happening, Interrupt, RunEnd, Rung,
};
use protocol::{ContextName, FaultCode};
use tests::contexts::{context, late, ran, run, run_within, stderr, stdout, value};
use tests::sandbox::Sandbox;
use tests::slowed;

fn name(text: &str) -> ContextName {
    text.parse().expect("a name")
}

fn error_kind(ran: &agent_client::guest::Ran) -> &str {
    ran.error().map_or("", |error| &error.kind)
}

#[tokio::test]
async fn state_is_kept_from_run_to_run_and_not_shared() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let first = run(guest, "python", "x = 41\nprint('hello')").await;
    assert_eq!((stdout(&first).as_str(), stderr(&first).as_str()), ("hello\n", ""));
    assert_eq!(first.finished.end, RunEnd::Ok {});
    assert_eq!(first.started.expect("it began").count, 1);
    assert_eq!(value(&run(guest, "python", "x + 1").await).as_deref(), Some("42"));
    let other = run(guest, "other:python", "x").await;
    assert_eq!(error_kind(&other), "NameError");
    assert_eq!(other.finished.end, RunEnd::Error {});
    sandbox.end().await;
}

#[tokio::test]
async fn runs_of_one_context_take_turns_and_contexts_run_side_by_side() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    run(guest, "python", "seen = []\nimport time").await;
    let mut waiting = Vec::new();
    for number in 0..150 {
        let code = format!("time.sleep(0.001); seen.append({number}); print({number})");
        waiting.push(guest.run_code_now(RunCode::new(context("python"), code)).expect("queued"));
    }
    // Another context is not held up by a queue of 150.
    let began = Instant::now();
    assert_eq!(stdout(&run(guest, "bash", "echo aside").await), "aside\n");
    assert!(began.elapsed() < Duration::from_secs(5));
    for (number, run) in waiting.into_iter().enumerate() {
        let ran = run.collect(1 << 20).await.expect("its events");
        assert_eq!(stdout(&ran), format!("{number}\n"));
    }
    let order = run(guest, "python", "seen == list(range(150))").await;
    assert_eq!(value(&order).as_deref(), Some("True"));
    sandbox.end().await;
}

#[tokio::test]
async fn a_contexts_settings_take_effect() {
    let sandbox = Sandbox::start().await;
    let mut ask = context("python");
    ask.cwd = Some("/tmp".into());
    ask.env = vec![("GREETING".into(), "hello".into())];
    let code = "import os\nprint(os.getcwd(), os.environ['GREETING'])";
    let made = ran(&sandbox.guest, RunCode::new(ask.clone(), code)).await;
    assert_eq!(stdout(&made), "/tmp hello\n");
    // A request for less means the same one; a request for another is refused.
    assert_eq!(stdout(&run(&sandbox.guest, "python", "print(1)").await), "1\n");
    ask.cwd = Some("/".into());
    let refused = sandbox.guest.open_context(&ask).await.expect_err("it is elsewhere");
    let GuestError::Fault(fault) = refused else { panic!("{refused}") };
    assert_eq!(fault.code, FaultCode::Conflict);
    assert!(fault.message.contains("working directory"), "{}", fault.message);
    sandbox.end().await;
}

#[tokio::test]
async fn contexts_are_listed_restarted_and_closed() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let info = guest.open_context(&context("work:python")).await.expect("a context");
    assert_eq!(info.state, ContextState::Idle);
    assert!(info.interpreter.expect("it lives").version.starts_with("3."));
    run(guest, "work:python", "x = 1").await;
    let listed = guest.contexts().await.expect("a list");
    assert_eq!((listed.len(), listed[0].runs, listed[0].interpreters), (1, 1, 1));

    let again = guest.restart_context(&name("work")).await.expect("a new interpreter");
    assert_eq!((again.state, again.interpreters), (ContextState::Idle, 2));
    let fresh = run(guest, "work:python", "x").await;
    assert_eq!(error_kind(&fresh), "NameError");
    let lost = fresh.started.expect("it began").lost.expect("the state is gone");
    assert!(lost.contains("restarted"), "{lost}");
    assert!(run(guest, "work:python", "1").await.started.expect("began").lost.is_none());

    guest.close_context(&name("work")).await.expect("closed");
    assert!(guest.contexts().await.expect("a list").is_empty());
    let gone = guest.restart_context(&name("work")).await.expect_err("it is gone");
    assert!(matches!(gone, GuestError::Fault(fault) if fault.code == FaultCode::NotFound));
    sandbox.end().await;
}

#[tokio::test]
async fn an_interrupt_is_polite_first_and_keeps_the_state() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (language, set, spin, get) in [
        ("python", "x = 7", "while True: pass", "print(x)"),
        ("node", "var x = 7", "for (;;) {}", "console.log(x)"),
        ("bash", "x=7", "while :; do :; done", "echo $x"),
    ] {
        run(guest, language, set).await;
        let began = Instant::now();
        let limit = slowed(Duration::from_millis(200));
        let spun = run_within(guest, language, spin, limit).await;
        let limit_ms = limit.as_millis() as u64;
        assert_eq!(spun.finished.end, RunEnd::TimedOut { limit_ms }, "{language}");
        assert_eq!(spun.finished.rung, Some(Rung::Polite), "{language}");
        assert!(spun.finished.state_kept, "{language}");
        let within = slowed(Duration::from_millis(1500));
        assert!(began.elapsed() < within, "{language}: {:?}", began.elapsed());
        assert_eq!(stdout(&run(guest, language, get).await), "7\n", "{language}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn code_that_swallows_interrupts_is_ended_firmly_and_keeps_its_state() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    run(guest, "python", "x = 7").await;
    let code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n \
                try:\n  pass\n except BaseException:\n  pass";
    let mut ask = RunCode::new(context("python"), code);
    ask.deadline = Some(Duration::from_millis(100));
    ask.grace = Grace { polite_ms: Some(200), firm_ms: Some(5000) };
    let ended = ran(guest, ask).await;
    assert_eq!(ended.finished.end, RunEnd::TimedOut { limit_ms: 100 });
    assert_eq!((ended.finished.rung, ended.finished.state_kept), (Some(Rung::Firm), true));
    assert_eq!(stdout(&run(guest, "python", "print(x)").await), "7\n");
    sandbox.end().await;
}

#[tokio::test]
async fn uninterruptible_code_is_killed_with_its_children() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    // The child blocks what can be blocked, and the parent waits in C where no signal is handled.
    let code = "import ctypes, subprocess, signal\n\
                child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n\
                print(child.pid, flush=True)\n\
                signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n\
                ctypes.CDLL(None).sleep(1000)";
    let mut ask = RunCode::new(context("python"), code);
    let limit = slowed(Duration::from_millis(300));
    ask.deadline = Some(limit);
    ask.grace = Grace { polite_ms: Some(100), firm_ms: Some(100) };
    let ended = ran(guest, ask).await;
    let limit_ms = limit.as_millis() as u64;
    assert_eq!(ended.finished.end, RunEnd::TimedOut { limit_ms }, "{ended:?}");
    assert_eq!((ended.finished.rung, ended.finished.state_kept), (Some(Rung::Killed), false));
    let child = stdout(&ended).trim().to_owned();
    let next =
        run(guest, "python", &format!("import os\nprint(os.path.exists('/proc/{child}'))")).await;
    assert_eq!(stdout(&next), "False\n");
    assert!(next.started.expect("it began").lost.is_some());
    sandbox.end().await;
}

/// Reads a run's events until its output has this text.
async fn until_stdout_has(run: &mut Run, text: &str) {
    let mut stdout = Vec::new();
    while !String::from_utf8_lossy(&stdout).contains(text) {
        let event = run.next().await.expect("an event").expect("the run goes on");
        match event.what {
            Happening::Stdout { bytes } => stdout.extend_from_slice(bytes.as_bytes()),
            Happening::Finished(end) => panic!("the run ended before {text:?} came: {end:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_client_interrupts_and_a_second_time_in_earnest() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let slow = "import time\ntry:\n print('begun', flush=True)\n time.sleep(1000)\n\
                except KeyboardInterrupt:\n print('caught', flush=True)\n time.sleep(1000)";
    let mut run_ = guest.run_code(RunCode::new(context("python"), slow)).await.expect("a run");
    let started = run_.next().await.expect("an event").expect("a first one");
    assert!(matches!(started.what, Happening::Started(_)));
    until_stdout_has(&mut run_, "begun").await;
    assert_eq!(run_.interrupt(Grace::default()).await.expect("told"), Some(1));
    until_stdout_has(&mut run_, "caught").await;
    let began = Instant::now();
    let now = Grace { polite_ms: Some(0), firm_ms: None };
    run_.interrupt(now).await.expect("told");
    let mut finished = None;
    while let Some(event) = run_.next().await.expect("an event") {
        if let Happening::Finished(end) = event.what {
            finished = Some(end);
        }
    }
    let finished = finished.expect("the last event");
    assert!(matches!(finished.end, RunEnd::Interrupted { .. }), "{finished:?}");
    assert_eq!((finished.rung, finished.state_kept), (Some(Rung::Firm), true));
    assert!(began.elapsed() < Duration::from_secs(1));
    sandbox.end().await;
}

/// Python notices a signal between its steps; here it comes in the middle of the last one before a wait.
#[tokio::test]
async fn an_interrupt_that_comes_just_before_a_wait_is_not_lost() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "import time\ndef nested():\n t = tuple([1])\n for _ in range(23): t = (t, t)\n return t\n\
                one, two = nested(), nested()\nif True:\n print('begun', flush=True)\n\
                \x20same = one == two\n time.sleep(1000)";
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut run_ = guest.run_code(RunCode::new(context("python"), code)).await.expect("a run");
        until_stdout_has(&mut run_, "begun").await;
        let patient = Grace { polite_ms: Some(60_000), firm_ms: None };
        assert!(run_.interrupt(patient).await.expect("told").is_some());
        let finished = run_.collect(1 << 20).await.expect("its end").finished;
        assert!(matches!(finished.end, RunEnd::Interrupted { .. }), "{finished:?}");
        assert_eq!((finished.rung, finished.state_kept), (Some(Rung::Polite), true));
        // One that comes before the comparison is no proof; then it is tried again.
        let compared = run(guest, "python", "print(globals().pop('same', None))").await;
        if stdout(&compared) == "True\n" {
            break;
        }
        assert!(Instant::now() < deadline, "no interrupt came during the comparison");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_run_that_waits_can_be_taken_out_of_the_queue() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let long = RunCode::new(context("python"), "import time; time.sleep(30)");
    let mut long = guest.run_code(long).await.expect("a run");
    long.next().await.expect("it has begun");
    let waits = guest.run_code(RunCode::new(context("python"), "print(2)")).await.expect("queued");
    let number = waits.number().expect("it has a number");
    assert_eq!(waits.interrupt(Grace::default()).await.expect("told"), Some(number));
    let cancelled = waits.collect(1 << 20).await.expect("its end");
    assert!(matches!(cancelled.finished.end, RunEnd::Cancelled { .. }));
    assert!(cancelled.started.is_none());
    let interrupt = Interrupt { context: name("python"), run: None, grace: Grace::default() };
    assert_eq!(guest.interrupt(interrupt).await.expect("told"), long.number());
    let ended = long.collect(1 << 20).await.expect("its end");
    assert!(matches!(ended.finished.end, RunEnd::Interrupted { .. }));
    sandbox.end().await;
}

#[tokio::test]
async fn a_crash_is_a_result_with_its_cause_and_the_next_run_reports_it() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (code, expected) in [
        ("print('before'); import os; os._exit(3)", Cause::Exited { code: 3 }),
        (
            "print('before'); import os; os.kill(os.getpid(), 9)",
            Cause::Signaled { signal: 9, core_dumped: false },
        ),
        (
            "print('before'); import os; os.kill(os.getpid(), 11)",
            Cause::Signaled { signal: 11, core_dumped: false },
        ),
    ] {
        run(guest, "python", "x = 1").await;
        let died = run(guest, "python", code).await;
        let RunEnd::Died { cause } = died.finished.end.clone() else { panic!("{died:?}") };
        let cause = match cause {
            Cause::Signaled { signal, .. } => Cause::Signaled { signal, core_dumped: false },
            other => other,
        };
        assert_eq!((cause, stdout(&died).as_str()), (expected, "before\n"), "{code}");
        assert!(!died.finished.state_kept);
        let next = run(guest, "python", "x").await;
        assert_eq!(error_kind(&next), "NameError");
        let started = next.started.clone().expect("it began");
        assert_eq!(started.count, 1);
        assert!(started.lost.is_some_and(|lost| lost.contains("interpreter")));
    }
    sandbox.end().await;
}

#[tokio::test]
async fn an_interpreter_that_dies_between_runs_is_missed_by_the_next() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "import os, threading\nthreading.Timer(0.1, os._exit, [9]).start()";
    run(guest, "python", code).await;
    let deadline = Instant::now() + tests::PATIENCE;
    while guest.contexts().await.expect("a list")[0].state != ContextState::Cold {
        assert!(Instant::now() < deadline, "it never ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let next = run(guest, "python", "print('again')").await;
    assert_eq!(stdout(&next), "again\n");
    let lost = next.started.expect("it began").lost.expect("told");
    assert!(lost.contains("exited with code 9"), "{lost}");
    sandbox.end().await;
}

#[tokio::test]
async fn late_output_is_never_the_next_runs_own() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let times = |code: &str| {
        let seconds = |ms| slowed(Duration::from_millis(ms)).as_secs_f64().to_string();
        code.replace("SOON", &seconds(300)).replace("LATER", &seconds(800))
    };
    for (language, first, second) in [
        (
            "python",
            "import subprocess; p = subprocess.Popen('sleep SOON; echo late', shell=True)",
            "import time; time.sleep(LATER); print('own')",
        ),
        (
            "node",
            "require('child_process').spawn('sh', ['-c', 'sleep SOON; echo late'], {stdio: 'inherit'}); 0",
            "await new Promise(done => setTimeout(done, LATER * 1000)); console.log('own')",
        ),
        ("bash", "(sleep SOON; echo late) &", "sleep LATER; echo own"),
    ] {
        let (first, second) = (&times(first), &times(second));
        let began = Instant::now();
        let early = run(guest, language, first).await;
        assert!(began.elapsed() < slowed(Duration::from_secs(5)), "{language}");
        assert_eq!(stdout(&early), "", "{language}");
        let next = run(guest, language, second).await;
        assert_eq!(stdout(&next), "own\n", "{language}");
        assert_eq!(late(&next), "late\n", "{language}");
        let events_of_kind = next.events.iter().find_map(|event| match &event.what {
            Happening::Late(late) => Some((late.of, late.channel)),
            _ => None,
        });
        assert_eq!(events_of_kind, Some((1, Channel::Stdout)), "{language}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn threads_and_timers_of_an_earlier_run_speak_late() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let thread = "import threading, time\ndef speak():\n time.sleep(0.3)\n print('late')\n\
                  threading.Thread(target=speak).start()";
    run(guest, "python", thread).await;
    let next = run(guest, "python", "time.sleep(0.8); print('own')").await;
    assert_eq!((stdout(&next).as_str(), late(&next).as_str()), ("own\n", "late\n"));
    run(guest, "node", "setTimeout(() => console.log('late'), 300); 0").await;
    let wait = "await new Promise(done => setTimeout(done, 800)); console.log('own')";
    let next = run(guest, "node", wait).await;
    assert_eq!((stdout(&next).as_str(), late(&next).as_str()), ("own\n", "late\n"));
    sandbox.end().await;
}

#[tokio::test]
async fn a_daemon_thread_that_prints_forever_costs_the_next_runs_nothing() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let flood = "import threading\ndef flood():\n while True: print('x' * 1000)\n\
                 threading.Thread(target=flood, daemon=True).start()";
    run(guest, "python", flood).await;
    for number in 0..20 {
        let next = run(guest, "python", &format!("print({number})")).await;
        assert_eq!(stdout(&next), format!("{number}\n"));
        assert!(late(&next).chars().all(|c| c == 'x' || c == '\n'));
    }
    sandbox.end().await;
}

#[tokio::test]
async fn input_is_answered_by_the_caller_or_is_at_its_end() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let ended = run(guest, "python", "input('name? ')").await;
    assert_eq!(error_kind(&ended), "EOFError");
    let code = "a = input('name? ')\nimport getpass\nb = getpass.getpass('word? ')\nprint(a, b)";
    let mut prompts_seen = RunCode::new(context("python"), code);
    prompts_seen.input = true;
    let mut run_ = guest.run_code(prompts_seen).await.expect("a run");
    let (mut prompts, mut out) = (Vec::new(), String::new());
    while let Some(event) = run_.next().await.expect("an event") {
        match event.what {
            Happening::InputRequest { request, prompt, secret } => {
                prompts.push((prompt, secret));
                let line = Some(format!("answer{}", prompts.len()).into());
                let answer = AnswerInput { context: name("python"), run: event.run, request, line };
                guest.answer_input(answer.clone()).await.expect("taken");
                let twice = guest.answer_input(answer).await.expect_err("it has its answer");
                assert!(matches!(twice, GuestError::Fault(fault) if fault.code == FaultCode::Gone));
            }
            Happening::Stdout { bytes } => out.push_str(&bytes.to_string()),
            _ => {}
        }
    }
    assert_eq!(prompts, [("name? ".to_owned(), false), ("word? ".to_owned(), true)]);
    assert_eq!(out, "answer1 answer2\n");
    sandbox.end().await;
}

#[tokio::test]
async fn a_missing_interpreter_says_what_was_looked_for_and_where() {
    let sandbox = Sandbox::start().await;
    let mut ask = context("python");
    ask.env = vec![("PATH".into(), "/nowhere:/else".into())];
    let refused = sandbox.guest.open_context(&ask).await.expect_err("there is none");
    let message = refused.to_string();
    assert!(message.contains("python3 and python in /nowhere:/else"), "{message}");
    let mut ask = context("python");
    ask.program = Some("/opt/no/python".into());
    let message = sandbox.guest.open_context(&ask).await.expect_err("none").to_string();
    assert!(message.contains("/opt/no/python"), "{message}");
    let unknown = open(name("x"), "cobol");
    let message = sandbox.guest.open_context(&unknown).await.expect_err("unknown").to_string();
    assert!(message.contains("python, node, bash"), "{message}");
    sandbox.end().await;
}

#[tokio::test]
async fn a_program_that_is_no_interpreter_is_found_out() {
    let sandbox = Sandbox::start().await;
    for (program, expected) in [("/bin/true", "exited with code 0"), ("/bin/ls", "exited")] {
        let mut ask = context("odd:python");
        ask.program = Some(program.into());
        let ended = ran(&sandbox.guest, RunCode::new(ask, "print(1)")).await;
        let RunEnd::Cancelled { reason } = &ended.finished.end else { panic!("{ended:?}") };
        assert!(reason.contains(expected), "{reason}");
        sandbox.guest.close_context(&name("odd")).await.expect("closed");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_closed_or_abused_control_channel_ends_the_interpreter_and_nothing_else() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let garbage = "import os\nfor fd in range(3, 2000):\n try: os.write(fd, b'garbage' * 100)\n \
                   except OSError: pass\nprint('done')";
    let abused = run(guest, "python", garbage).await;
    assert_eq!((stdout(&abused).as_str(), abused.finished.end), ("done\n", RunEnd::Ok {}));
    assert_eq!(stdout(&run(guest, "python", "print('still')").await), "still\n");
    let close = "import os\nprint('before')\nos.closerange(0, 70000)\nwhile True: pass";
    let closed = run_within(guest, "python", close, Duration::from_secs(20)).await;
    assert_eq!(stdout(&closed), "before\n");
    assert!(matches!(closed.finished.end, RunEnd::Died { .. }), "{:?}", closed.finished);
    assert_eq!(stdout(&run(guest, "python", "print('again')").await), "again\n");
    sandbox.end().await;
}

#[tokio::test]
async fn a_reader_that_stops_holds_up_its_own_run_alone() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let flood = "while True: print('x' * 10000)";
    let mut ask = RunCode::new(context("python"), flood);
    ask.deadline = Some(Duration::from_secs(1));
    let stuck = guest.run_code(ask).await.expect("a run");
    let began = Instant::now();
    // Nobody reads the first run, and the second still gets its turn.
    assert_eq!(stdout(&run(guest, "python", "print('next')").await), "next\n");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let event = stuck.collect(1 << 30).await.expect("its events");
    assert_eq!(event.finished.end, RunEnd::TimedOut { limit_ms: 1000 });
    assert!(event.finished.state_kept);
    assert_eq!(event.stdout().len() as u64, event.finished.stdout_bytes);
    sandbox.end().await;
}

#[tokio::test]
async fn of_many_readers_that_stop_the_oldest_is_ended_and_informed() {
    // An agent holds no more for all of them than a part of its machine's memory.
    let sandbox = Sandbox::start_as(|spec| spec.memory_mib = Some(1024)).await;
    let guest = &sandbox.guest;
    let mut stuck = Vec::new();
    // Each says more than is kept for it, in one breath.
    for _ in 0..36 {
        let mut ask = RunCode::new(context("python"), "while True: print('x' * 1000000)");
        ask.deadline = Some(slowed(Duration::from_millis(100)));
        stuck.push(guest.run_code(ask).await.expect("a run"));
    }
    assert_eq!(stdout(&run(guest, "python", "print('next')").await), "next\n");
    let mut answer = Vec::new();
    for run in stuck {
        answer.push(match run.collect(1 << 30).await {
            Ok(ran) => {
                assert_eq!(ran.stdout().len() as u64, ran.finished.stdout_bytes);
                true
            }
            Err(GuestError::Fault(fault)) => {
                assert_eq!(fault.code, FaultCode::Limit, "{fault}");
                false
            }
            Err(other) => panic!("{other}"),
        });
    }
    let given_up = answer.iter().filter(|whole| !**whole).count();
    assert_eq!(given_up, 4, "{answer:?}");
    assert!(answer[4..].iter().all(|whole| *whole), "the oldest go first: {answer:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn a_tied_run_ends_when_its_caller_leaves() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    run(guest, "python", "x = 5").await;
    let run_ = guest.run_code(RunCode::new(context("python"), "while True: pass")).await;
    drop(run_.expect("a run"));
    assert_eq!(stdout(&run(guest, "python", "print(x)").await), "5\n");
    sandbox.end().await;
}

#[tokio::test]
async fn long_code_travels_over_the_stream() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for language in ["python", "node"] {
        let (comment, say) =
            if language == "python" { ("#", "print('end')") } else { ("//", "console.log('end')") };
        let line = format!("{comment}{}\n", "y".repeat(98));
        let code = line.repeat(100_000) + say;
        let ran = run(guest, language, &code).await;
        assert_eq!(
            (stdout(&ran).as_str(), &ran.finished.end),
            ("end\n", &RunEnd::Ok {}),
            "{language}"
        );
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_watch_sees_what_others_run() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    guest.open_context(&context("python")).await.expect("a context");
    let mut watch = guest.watch_context(&name("python")).await.expect("a watch");
    run(guest, "python", "print('seen')\n1 + 1").await;
    let mut seen = Vec::new();
    loop {
        let event = watch.next().await.expect("an event").expect("it goes on");
        let over = matches!(event.what, Happening::Finished(_));
        seen.push(event.what);
        if over {
            break;
        }
    }
    assert!(matches!(seen[0], Happening::Started(_)), "{seen:?}");
    let output = seen.iter().filter_map(|what| match what {
        Happening::Stdout { bytes } => Some(bytes.to_string()),
        _ => None,
    });
    assert_eq!(output.collect::<String>(), "seen\n", "{seen:?}");
    assert!(seen.iter().any(|what| matches!(what, Happening::Display(_))), "{seen:?}");
    guest.close_context(&name("python")).await.expect("closed");
    assert!(watch.next().await.expect("the end").is_none());
    sandbox.end().await;
}

#[tokio::test]
async fn a_watch_that_stops_reading_delays_nobody_and_learns_what_it_missed() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    guest.open_context(&context("python")).await.expect("a context");
    let mut watch = guest.watch_context(&name("python")).await.expect("a watch");
    let flood = "for _ in range(3000): print('x' * 10_000)";
    let result = run(guest, "python", flood).await;
    assert_eq!(result.finished.stdout_bytes, 3000 * 10_001);
    guest.close_context(&name("python")).await.expect("closed");
    let (mut output, mut missed, mut gaps) = (0, 0, 0);
    while let Some(event) = watch.next().await.expect("an event") {
        match event.what {
            Happening::Stdout { bytes } => output += bytes.as_bytes().len() as u64,
            Happening::Gap { bytes, .. } => {
                missed += bytes;
                gaps += 1;
            }
            _ => {}
        }
    }
    assert!(gaps > 0 && output < result.finished.stdout_bytes, "{output} bytes, {gaps} gaps");
    // The gaps count records, which are a little longer than the output in them.
    assert!(output + missed > result.finished.stdout_bytes, "{output} and {missed} bytes");
    sandbox.end().await;
}

#[tokio::test]
async fn completions_come_from_the_living_interpreter() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    run(guest, "python", "some_long_name = {}").await;
    let ask = |code: &str| Complete {
        context: name("python"),
        code: code.to_owned(),
        cursor: code.len() as u64,
    };
    let found = guest.complete(ask("x = some_lo")).await.expect("an answer");
    assert_eq!((found.start, found.end), (4, 11));
    assert_eq!(found.matches, ["some_long_name"]);
    let busy = guest.run_code(RunCode::new(context("python"), "import time; time.sleep(60)")).await;
    let refused = guest.complete(ask("so")).await.expect_err("it is busy");
    assert!(matches!(refused, GuestError::Fault(fault) if fault.code == FaultCode::Conflict));
    drop(busy);
    sandbox.end().await;
}
