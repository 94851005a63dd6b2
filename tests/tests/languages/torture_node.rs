//! Difficult code in Node contexts: tables of rows, and what takes more than a row to say.

mod ends;
mod hostile;
mod plain;
mod versions;

use std::time::{Duration, Instant};

use agent_client::guest::{Guest, Ran, RunCode};
use protocol::repl::{AnswerInput, DisplayRole as Role, Grace, Happening, OpenContext, RunEnd};
use tests::contexts::{context, late, ran, run, stderr, stdout, value};
use tests::sandbox::Sandbox;
use tests::torture::{Case, Tongue, run_table};

fn tongue(context: &'static str) -> Tongue {
    Tongue {
        context,
        set: |number| format!("let kept = {number}"),
        get: "if (typeof kept === 'number') process.stdout.write(kept + '\\n'); undefined",
    }
}

/// All rows hold, one after the other, in a context that is opened like this and has run `before`.
async fn hold(open: impl FnOnce(&mut OpenContext), before: &str, cases: &[Case]) {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let wrong = wrong(&sandbox.guest, open, before, cases).await;
    sandbox.end().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn wrong(
    guest: &Guest,
    open: impl FnOnce(&mut OpenContext),
    before: &str,
    cases: &[Case],
) -> Vec<String> {
    let mut ask = context("node");
    open(&mut ask);
    guest.open_context(&ask).await.expect("a context");
    let prepared = run(guest, "node", before).await;
    assert_eq!(prepared.finished.end, RunEnd::Ok {}, "{:?}", prepared.error());
    run_table(guest, &tongue("node"), cases).await
}

#[tokio::test]
async fn values_and_names() {
    hold(|_| {}, "", &plain::values()).await;
}

#[tokio::test]
async fn source_texts() {
    hold(|_| {}, "", &plain::sources()).await;
}

#[tokio::test]
async fn output_of_every_size() {
    hold(|_| {}, "", &plain::output()).await;
}

#[tokio::test]
async fn modules_of_the_working_directory() {
    hold(|_| {}, plain::PROJECT, &plain::modules()).await;
}

#[tokio::test]
async fn children_and_workers() {
    hold(|_| {}, "", &plain::children()).await;
}

#[tokio::test]
async fn errors() {
    hold(|_| {}, "", &ends::errors()).await;
}

#[tokio::test]
async fn exits() {
    hold(|_| {}, "", &ends::exits()).await;
}

#[tokio::test]
async fn endless_code() {
    hold(|_| {}, "", &ends::endless()).await;
}

#[tokio::test]
async fn code_that_nothing_can_interrupt() {
    hold(|_| {}, "", &ends::stuck()).await;
}

#[tokio::test]
async fn crashes() {
    let heap = |ask: &mut OpenContext| {
        ask.env = vec![("NODE_OPTIONS".into(), "--max-old-space-size=64".into())];
    };
    hold(heap, "", &ends::crashes()).await;
}

#[tokio::test]
async fn a_ruined_interpreter_goes_on() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let mut all = Vec::new();
    let only = std::env::var("BURROW_TORTURE_RUIN").ok();
    for (number, (name, code)) in hostile::RUINS.iter().enumerate() {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let context: &'static str = format!("ruin{number}:node").leak();
        let mut cases = vec![hostile::ruin(code)];
        cases.extend(hostile::still());
        let tongue = tongue(context);
        let table = run_table(&sandbox.guest, &tongue, &cases);
        let wrong = match tokio::time::timeout(Duration::from_secs(40), table).await {
            Ok(wrong) => wrong,
            Err(_) => vec!["it hangs".to_owned()],
        };
        all.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
        let context = format!("ruin{number}").parse().expect("a name");
        sandbox.guest.close_context(&context).await.expect("closed");
    }
    sandbox.end().await;
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test]
async fn a_crash_of_node_costs_only_the_interpreter() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let soon = |code: &str| {
        let mut ask = RunCode::new(context("node"), code);
        ask.deadline = Some(Duration::from_millis(500));
        ask.grace = Grace { polite_ms: Some(200), firm_ms: Some(200) };
        ask
    };
    for (name, code) in hostile::FATAL {
        // The run itself, or the one after it, may have to be killed.
        let ruined = ran(guest, soon(&format!("{code}; undefined"))).await;
        let after = ran(guest, soon("1 + 1")).await;
        let is_lost = !ruined.finished.state_kept || !after.finished.state_kept;
        assert!(is_lost || value(&after).as_deref() == Some("2"), "{name}: {after:?}");
        guest.restart_context(&"node".parse().expect("a name")).await.expect("restarted");
        assert_eq!(stdout(&run(guest, "node", "console.log(1)").await), "1\n", "{name}");
    }
    sandbox.end().await;
}

/// Code, the kind and the message of its error, and what its traceback says.
type Traced = (&'static str, &'static str, &'static str, &'static [&'static str]);

const TRACED: &[Traced] = &[
    (
        "function ga() { return gb() }\nfunction gb() { nope }\nga()",
        "ReferenceError",
        "nope is not defined",
        &["at gb (<run ", ":2:17", "at ga (<run ", ":1:24", "at <run "],
    ),
    (
        "const slow = () => new Promise(done => setTimeout(done, 5));\n\
         async function ge() { await slow(); throw new RangeError('late') }\nawait ge()",
        "RangeError",
        "late",
        &["RangeError: late", "at ge (<run ", ":2:43"],
    ),
    ("x = = 1", "SyntaxError", "Unexpected token '='", &["x = = 1\n    ^\n", ":1\n"]),
    ("\n\n let 1x", "SyntaxError", "Invalid or unexpected token", &[":3\n let 1x\n"]),
    (
        "throw new Error('a', { cause: new TypeError('b') })",
        "Error",
        "a",
        &["Error: a", "[cause]: TypeError: b"],
    ),
    ("throw new AggregateError([new Error('one')], 'm')", "AggregateError", "m", &["Error: one"]),
    ("throw 42", "number", "42", &["Uncaught 42"]),
    ("throw { a: 1 }", "Object", "{ a: 1 }", &["Uncaught { a: 1 }"]),
    ("import fs3 from 'fs'; /*\n*/ nope", "ReferenceError", "nope is not defined", &[":2:4"]),
    ("fs.readFileSync('/nope')", "Error", "ENOENT", &["code: 'ENOENT'", "at <run "]),
    (
        "setTimeout(function later() { null.x }, 1); await new Promise(() => {})",
        "TypeError",
        "Cannot read properties of null",
        &["at Timeout.later", "<run "],
    ),
    (
        "eval('null.x')",
        "TypeError",
        "Cannot read properties of null",
        &["at eval (eval at ", "<run "],
    ),
    ("new Function('null.x')()", "TypeError", "Cannot read properties of null", &["<run "]),
];

#[tokio::test]
async fn stacks_have_the_runs_own_lines_and_none_of_the_drivers() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    for (code, kind, message, parts) in TRACED {
        let failed = run(&sandbox.guest, "node", code).await;
        assert_eq!(failed.finished.end, RunEnd::Error {}, "{code}");
        let error = failed.error().expect("an error");
        assert_eq!(error.kind, *kind, "{code}");
        assert!(error.message.contains(message), "{code}: {}", error.message);
        let traceback = error.traceback.clone();
        for part in *parts {
            assert!(traceback.contains(part), "{code}: {part:?} is not in\n{traceback}");
        }
        for foreign in ["burrow", "node:inspector", "evalmachine"] {
            assert!(!traceback.contains(foreign), "{code}: {foreign} is in\n{traceback}");
        }
    }
    let failed = run(&sandbox.guest, "node", TRACED[0].0).await;
    let frames = &failed.error().expect("an error").frames;
    let seen: Vec<_> = frames.iter().map(|frame| (frame.line, frame.source.clone())).collect();
    let line = |number, text: &str| (number, text.to_owned());
    let expected = [
        line(3, "ga()"),
        line(1, "function ga() { return gb() }"),
        line(2, "function gb() { nope }"),
    ];
    assert_eq!(seen, expected, "{frames:?}");
    // A run's name is its file's.
    let mut named = RunCode::new(context("node"), "\nnull.x");
    named.name = Some("my work.js".into());
    let failed = ran(&sandbox.guest, named).await;
    let traceback = failed.error().expect("an error").traceback.clone();
    assert!(traceback.contains("at my work.js:2:6"), "{traceback}");
    sandbox.end().await;
}

/// Waits until a repeated run gets `expected` as late output.
async fn reported_late(guest: &Guest, expected: &[&str]) -> String {
    let deadline = Instant::now() + tests::PATIENCE;
    let mut text = String::new();
    while !expected.iter().all(|part| text.contains(part)) {
        assert!(Instant::now() < deadline, "{text:?} instead of {expected:?}");
        let next =
            run(guest, "node", "await new Promise(done => setTimeout(done, 20)); 'own'").await;
        assert_eq!(
            (next.finished.end.clone(), value(&next).as_deref()),
            (RunEnd::Ok {}, Some("'own'"))
        );
        assert_eq!((stdout(&next), stderr(&next)), (String::new(), String::new()));
        text += &late(&next);
    }
    text
}

#[tokio::test]
async fn survivors_of_a_run_print_late_output_and_harm_no_other_run() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (code, expected) in [
        ("setTimeout(() => console.log('timer'), 60)", "timer\n"),
        ("setTimeout(() => console.error('timer e'), 60)", "timer e\n"),
        ("setTimeout(() => { throw new RangeError('late throw') }, 60)", "RangeError: late throw"),
        ("setTimeout(() => Promise.reject(new TypeError('late no')), 60)", "TypeError: late no"),
        ("setTimeout(() => setTimeout(() => console.log('nested'), 30), 30)", "nested\n"),
        (
            "(async () => { await new Promise(done => setTimeout(done, 60)); console.log('awaited') })()",
            "awaited\n",
        ),
        ("setTimeout(() => fs.writeSync(1, 'by descriptor\\n'), 60)", "by descriptor\n"),
        (
            "require('child_process').spawn('sh', ['-c', 'sleep 0.1; echo child'], { stdio: 'inherit' })",
            "child\n",
        ),
        (
            "new (require('worker_threads').Worker)('setTimeout(() => console.log(`worker`), 60)', { eval: true })",
            "worker\n",
        ),
        (
            "setTimeout(() => { console.log('leaves'); process.exit(4); console.log('never') }, 60)",
            "leaves\n",
        ),
        (
            "setTimeout(() => display('shown late'), 60); setTimeout(() => console.log('after'), 90)",
            "after\n",
        ),
    ] {
        let early = run(guest, "node", &format!("{code}; 0")).await;
        assert_eq!(
            (early.finished.end.clone(), stdout(&early).as_str()),
            (RunEnd::Ok {}, ""),
            "{code}"
        );
        let answer = reported_late(guest, &[expected]).await;
        assert!(!answer.contains("never"), "{answer}");
    }
    // An interval goes on through runs of its own right, errors and interrupts included.
    run(guest, "node", "globalThis.beat = setInterval(() => console.log('beat'), 5); 0").await;
    for _ in 0..5 {
        reported_late(guest, &["beat\n"]).await;
        let failed =
            run(guest, "node", "await new Promise(done => setTimeout(done, 9)); null.x").await;
        assert_eq!((failed.finished.end.clone(), stdout(&failed).as_str()), (RunEnd::Error {}, ""));
    }
    run(guest, "node", "clearInterval(beat)").await;
    sandbox.end().await;
}

#[tokio::test]
async fn a_busy_leftover_is_interrupted_with_the_next_run() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    run(guest, "node", "globalThis.x = 7; setTimeout(() => { for (;;); }, 100); 0").await;
    assert_held_up(guest, "await new Promise(() => {})").await;
    assert_eq!(value(&run(guest, "node", "x").await).as_deref(), Some("7"));
    sandbox.end().await;
}

/// Runs what cannot end in time because of a leftover, and whose end costs the context nothing.
async fn assert_held_up(guest: &Guest, code: &str) {
    let mut ask = RunCode::new(context("node"), code);
    ask.deadline = Some(Duration::from_millis(400));
    let held = ran(guest, ask).await;
    assert_eq!(held.finished.end, RunEnd::TimedOut { limit_ms: 400 });
    assert!(held.finished.state_kept);
}

/// What keeps the next run from beginning is cut off for its sake, and the state is kept.
#[tokio::test]
async fn a_leftover_that_was_busy_before_the_next_run_is_interrupted_for_it() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let leave = "globalThis.x = 7;
        setTimeout(() => { require('fs').writeFileSync('/tmp/busy', ''); for (;;); }, 50); 0";
    run(guest, "node", leave).await;
    run(guest, "bash", "until [ -e /tmp/busy ]; do sleep 0.02; done").await;
    assert_held_up(guest, "globalThis.x = 8").await;
    assert_eq!(value(&run(guest, "node", "globalThis.x > 6").await).as_deref(), Some("true"));
    sandbox.end().await;
}

/// Runs code that asks for input, and answers with these lines; the end of the input follows.
async fn answered(guest: &Guest, code: &str, lines: &[&str]) -> (Ran, Vec<(String, bool)>) {
    let mut ask = RunCode::new(context("node"), code);
    ask.input = true;
    ask.deadline = Some(Duration::from_secs(20));
    let mut run = guest.run_code(ask).await.expect("a run");
    let mut prompts = Vec::new();
    let mut events = Vec::new();
    let mut finished = None;
    while let Some(event) = run.next().await.expect("an event") {
        match &event.what {
            Happening::InputRequest { request, prompt, secret } => {
                let line = lines.get(prompts.len()).map(|line| (*line).into());
                prompts.push((prompt.clone(), *secret));
                let context = "node".parse().expect("a name");
                let answer = AnswerInput { context, run: event.run, request: *request, line };
                // A run need not wait for what it has asked.
                guest.answer_input(answer).await.ok();
            }
            Happening::Finished(end) => finished = Some(end.clone()),
            _ => events.push(event),
        }
    }
    let finished = finished.expect("the last event");
    let ran = Ran { run: 0, events, started: None, finished, dropped_bytes: 0, dropped_events: 0 };
    (ran, prompts)
}

#[tokio::test]
async fn input_is_asked_for_or_at_its_end() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let reads = "const read = []; for await (const line of require('readline')\
                 .createInterface({ input: process.stdin })) read.push(line); read";
    let asks = "const rl = require('readline/promises')\
                .createInterface({ input: process.stdin, output: process.stdout });\n\
                const name = await rl.question('name? '); rl.close(); name";
    // Without anyone to answer, it is at its end.
    for (code, expected) in [
        (reads, Some("[]")),
        ("let all = ''; for await (const part of process.stdin) all += part; all", Some("''")),
        ("fs.readFileSync(0, 'utf8')", Some("''")),
        ("fs.readSync(0, Buffer.alloc(9))", Some("0")),
        ("await burrow.input('name? ')", Some("null")),
        (
            "process.stdin.on('data', () => console.log('data')); \
          await new Promise(done => process.stdin.once('end', () => done('end')))",
            Some("'end'"),
        ),
    ] {
        let ended = run(guest, "node", code).await;
        assert_eq!(value(&ended).as_deref(), expected, "{code}: {:?}", ended.error());
    }
    let (read, prompts) = answered(guest, reads, &["a", "b\n", "ü"]).await;
    assert_eq!(value(&read).as_deref(), Some("[ 'a', 'b', 'ü' ]"), "{:?}", read.error());
    assert_eq!(prompts.len(), 4);
    let (questions, prompts) = answered(guest, asks, &["bob", "too much"]).await;
    assert_eq!(
        (value(&questions).as_deref(), stdout(&questions).as_str()),
        (Some("'bob'"), "name? ")
    );
    assert_eq!(prompts.len(), 1);
    let both = "[await burrow.input('who? '), await burrow.input('word? ', { secret: true }), await burrow.input()]";
    let (questions, prompts) = answered(guest, both, &["al", "b\n"]).await;
    assert_eq!(value(&questions).as_deref(), Some("[ 'al', 'b', null ]"));
    let expected =
        [("who? ".to_owned(), false), ("word? ".to_owned(), true), (String::new(), false)];
    assert_eq!(prompts, expected);
    // A run that ends while it waits leaves the next one's input alone.
    let (left, _) = answered(guest, "burrow.input('unused'); 1", &[]).await;
    assert_eq!(value(&left).as_deref(), Some("1"));
    let (read, _) = answered(
        guest,
        &reads.replace("read =", "again =").replace("read.", "again.").replace("; read", "; again"),
        &["c"],
    )
    .await;
    assert_eq!(value(&read).as_deref(), Some("[ 'c' ]"), "{:?}", read.error());
    sandbox.end().await;
}

/// Roles, ids and forms of what was shown.
fn displays(ran: &Ran) -> Vec<(Role, Vec<(String, String)>)> {
    let shown = ran.events.iter().filter_map(|event| match &event.what {
        Happening::Display(display) => {
            let forms = display.data.iter();
            let forms = forms.map(|datum| (datum.mime.clone(), datum.data.to_string())).collect();
            Some((display.role, forms))
        }
        _ => None,
    });
    shown.collect()
}

#[tokio::test]
async fn displays_stand_in_their_place_and_hostile_ones_are_errors() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "console.log('a'); const shown = display({ 'text/html': '<b>', 'application/json': { a: 1 } });\n\
                console.log('b'); shown.update('again'); ({ [Symbol.for('burrow.display')]() { return { 'text/html': '<i>' } } })";
    let ran = run(guest, "node", code).await;
    let form = |mime: &str, data: &str| (mime.to_owned(), data.to_owned());
    let shown = displays(&ran);
    assert_eq!(
        shown[0],
        (Role::Shown, vec![form("text/html", "<b>"), form("application/json", "{\"a\":1}")])
    );
    assert_eq!(shown[1], (Role::Update, vec![form("text/plain", "'again'")]));
    assert_eq!((shown[2].0, &shown[2].1[0]), (Role::Value, &form("text/html", "<i>")));
    let order: Vec<String> = ran
        .events
        .iter()
        .map(|event| match &event.what {
            Happening::Stdout { bytes } => bytes.to_string(),
            Happening::Display(_) => "display".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(order, ["a\n", "display", "b\n", "display", "display"]);
    for (code, kind) in [
        ("({ [Symbol.for('burrow.display')]() { throw new RangeError('no') } })", "RangeError"),
        ("({ get [Symbol.for('burrow.display')]() { throw new RangeError('no') } })", "RangeError"),
        ("({ [Symbol.for('burrow.display')]() { return null } })", "TypeError"),
        ("const c = {}; c.c = c; display({ 'application/json': c })", "TypeError"),
        ("display({ 'text/plain': 'x'.repeat(20e6) })", "RangeError"),
        ("burrow.artifact('/no/such/file')", "Error"),
    ] {
        let failed = run(guest, "node", code).await;
        assert_eq!(failed.error().map(|error| error.kind.as_str()), Some(kind), "{code}");
        assert_eq!(value(&run(guest, "node", "1").await).as_deref(), Some("1"));
    }
    let long = run(guest, "node", "'v'.repeat(5e6)").await;
    assert!(value(&long).expect("a value").len() < 5_000_000);
    sandbox.end().await;
}

#[tokio::test]
async fn the_end_of_a_context_is_the_end_of_a_script() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "setTimeout(() => { console.log('timer'); setImmediate(() => console.log('immediate')) }, 300);\n\
                process.on('beforeExit', () => console.log('before'));\n\
                process.on('exit', code => console.log('exit', code)); process.exitCode = 3; 0";
    run(guest, "node", code).await;
    let name = "node".parse().expect("a name");
    let mut watch = guest.watch_context(&name).await.expect("a watch");
    guest.close_context(&name).await.expect("closed");
    let mut text = String::new();
    while let Some(event) = watch.next().await.expect("an event") {
        if let Happening::Late(late) = event.what {
            text.push_str(&late.bytes.to_string());
        }
    }
    assert_eq!(text, "timer\nimmediate\nbefore\nexit 3\n");
    // What never ends is ended.
    run(guest, "node", "setInterval(() => {}, 10); 0").await;
    let began = Instant::now();
    guest.close_context(&name).await.expect("closed");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    sandbox.end().await;
}

/// Without its descriptors Node aborts by itself or is ended by its driver; garbage in them may end it
/// or not. Either way that is a crash like another.
#[tokio::test]
async fn descriptors_closed_or_filled_with_garbage_cost_no_more_than_the_interpreter() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let closes = "for (let fd = 0; fd < 1000; fd++) try { fs.closeSync(fd) } catch {}";
    let closed = run(guest, "node", closes).await;
    assert!(matches!(closed.finished.end, RunEnd::Died { .. }), "{:?}", closed.finished);
    for text in ["garbage", "garbage!", &"garbage! ".repeat(500)] {
        let code = format!(
            "for (let fd = 3; fd < 200; fd++) try {{ fs.writeSync(fd, {text:?}) }} catch {{}}\nconsole.log('done')"
        );
        let mut ask = RunCode::new(context("node"), code);
        ask.deadline = Some(Duration::from_secs(5));
        let abused = ran(guest, ask).await;
        let fine = matches!(
            abused.finished.end,
            RunEnd::Ok {} | RunEnd::Died { .. } | RunEnd::TimedOut { .. }
        );
        assert!(fine, "{:?}", abused.finished);
        let next = run(guest, "node", "console.log('next')").await;
        assert_eq!(
            (next.finished.end.clone(), stdout(&next).as_str()),
            (RunEnd::Ok {}, "next\n"),
            "{text:.20}"
        );
    }
    sandbox.end().await;
}
