//! Runs as an honest guest reports them, and as a hostile one may.

use protocol::codec::{decode_body, encode_body};
use protocol::exit::Cause;
use protocol::frame::Kind;
use protocol::limits::{
    CHUNK_BYTES_MAX, CODE_BYTES_MAX, CREDIT_BYTES_INITIAL, EVENT_BYTES_MAX, TEXT_BYTES_MAX,
};
use protocol::message::{Answer, Channel, Reply, Request};
use protocol::repl::{
    AnswerInput, Complete, Completions, ContextInfo, ContextState, Datum, Display, DisplayRole,
    ErrorReport, Event, Finished, Grace, Happening, Interrupt, Late, RunEnd, Started, TraceFrame,
    encode_record,
};
use protocol::stream::{Ack, Fin};
use protocol::{ContextName, Fault, FaultCode, Text};

use super::{Ran, Run, RunCode, open};
use crate::guest::limits::{DISPLAY_FORMS_MAX, MATCHES_MAX, TRACE_FRAMES_MAX, WARNINGS_MAX};
use crate::guest::{Guest, GuestError};
use crate::link::tests::raw::{Raw, data, frame};
use crate::link::tests::soon;

const RUN: u64 = 7;

fn name() -> ContextName {
    "python".parse().unwrap()
}

fn ask(code: impl Into<Text>) -> RunCode {
    RunCode::new(open(name(), "python"), code)
}

fn event(what: Happening) -> Event {
    Event { run: RUN, at_us: 1, what }
}

fn started() -> Event {
    event(Happening::Started(Started { count: 1, lost: None }))
}

fn stdout(bytes: &str) -> Event {
    event(Happening::Stdout { bytes: bytes.into() })
}

fn stderr(bytes: &str) -> Event {
    event(Happening::Stderr { bytes: bytes.into() })
}

fn shown(role: DisplayRole, text: &str) -> Event {
    let data = vec![Datum { mime: "text/plain".to_owned(), data: text.into() }];
    event(Happening::Display(Display { role, id: None, data, metadata: None }))
}

fn finished(end: RunEnd, stdout_bytes: u64, stderr_bytes: u64) -> Event {
    event(Happening::Finished(Finished {
        cached: None,
        end,
        duration_us: 1,
        cpu_us: None,
        memory_bytes_peak: None,
        state_kept: true,
        rung: None,
        stdout_bytes,
        stderr_bytes,
    }))
}

fn records(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        encode_record(event, &mut bytes);
    }
    bytes
}

/// A guest that has queued a run, and the run.
async fn queued() -> (Raw, Run) {
    let (mut raw, guest) = Raw::meet().await;
    let run = guest.run_code_now(ask("1")).unwrap();
    let (request, _) = raw.next_request().await;
    raw.reply(request, Reply::Queued { run: RUN, ahead: 0 }).await;
    (raw, run)
}

/// Sends `bytes` on the run's stream as an agent does that honours its credit.
async fn tell(raw: &mut Raw, bytes: &[u8]) {
    let mut credit = CREDIT_BYTES_INITIAL as usize;
    for (at, chunk) in bytes.chunks(CHUNK_BYTES_MAX).enumerate() {
        let at = at * CHUNK_BYTES_MAX;
        while at + chunk.len() > credit {
            let (kind, _, body) = raw.next().await;
            if kind == Kind::Ack {
                let ack: Ack = decode_body(kind, &body).unwrap();
                credit = ack.up_to as usize;
            }
        }
        raw.send_bytes(&data(0, at as u64, chunk)).await;
    }
}

/// The host's reading of `bytes` followed by the end of the stream.
async fn read_events(bytes: &[u8]) -> Result<Vec<Event>, GuestError> {
    let (mut raw, mut run) = queued().await;
    let telling = async {
        tell(&mut raw, bytes).await;
        raw.send(Kind::Fin, 0, &Fin { offset: bytes.len() as u64 }).await;
        std::future::pending::<()>().await;
    };
    let hearing = async {
        let mut events = Vec::new();
        while let Some(event) = run.next().await? {
            events.push(event);
        }
        assert!(matches!(run.next().await, Ok(None)), "the end is repeated");
        Ok(events)
    };
    soon(async {
        tokio::select! {
            received = hearing => received,
            () = telling => unreachable!("it listens for ever"),
        }
    })
    .await
}

#[tokio::test]
async fn a_run_is_one_round_trip_and_its_events_come_in_order() {
    let events = [
        started(),
        stdout("a"),
        stderr("b"),
        stdout("c"),
        shown(DisplayRole::Value, "3"),
        finished(RunEnd::Ok {}, 2, 1),
    ];
    let (mut raw, guest) = Raw::meet().await;
    let mut run = guest.run_code_now(ask("print('a')")).unwrap();
    assert_eq!(run.number(), None);
    let (request, body) = raw.next_request().await;
    let Request::Run(ask_and_answer) = body.request else { panic!("{:?}", body.request) };
    assert_eq!(ask_and_answer.code, Some("print('a')".into()));
    assert!(ask_and_answer.tied && !ask_and_answer.input);
    // The host's half carries nothing, and ends at once.
    let (kind, stream, body) = soon(raw.next()).await;
    let fin: Fin = decode_body(kind, &body).unwrap();
    assert_eq!((kind, stream, fin.offset), (Kind::Fin, 0, 0));
    // All at once, in the order in which an agent writes it.
    let mut bytes = frame(
        Kind::Reply,
        request,
        &encode_body(&Answer::Ok(Reply::Queued { run: RUN, ahead: 2 })),
    );
    bytes.extend(data(0, 0, &records(&events)));
    raw.send_bytes(&bytes).await;
    for event in &events {
        assert_eq!(soon(run.next()).await.unwrap().as_ref(), Some(event));
    }
    assert_eq!(run.number(), Some(RUN));
    assert_eq!(soon(run.queued()).await.unwrap().ahead, 2);
    let end = records(&events).len() as u64;
    raw.send(Kind::Fin, 0, &Fin { offset: end }).await;
    assert_eq!(soon(run.next()).await.unwrap(), None);
}

#[tokio::test]
async fn events_may_be_cut_anywhere() {
    let events =
        vec![started(), stdout("some output"), finished(RunEnd::Exited { code: 3 }, 11, 0)];
    let bytes = records(&events);
    for at in 0..=bytes.len() {
        let (mut raw, mut run) = queued().await;
        raw.send_bytes(&data(0, 0, &bytes[..at])).await;
        raw.send_bytes(&data(0, at as u64, &bytes[at..])).await;
        for event in &events {
            assert_eq!(soon(run.next()).await.unwrap().as_ref(), Some(event), "cut at {at}");
        }
    }
}

#[tokio::test]
async fn long_code_takes_the_stream_and_is_answered_when_it_has_arrived() {
    let code = vec![b'#'; 1_000_000];
    let (mut raw, guest) = Raw::meet().await;
    let mut run = guest.run_code_now(ask(code.clone())).unwrap();
    let (request, body) = raw.next_request().await;
    assert!(matches!(body.request, Request::Run(ask_and_answer) if ask_and_answer.code.is_none()));
    let mut received = Vec::new();
    let serving = async {
        loop {
            let (kind, _, body) = raw.next().await;
            match kind {
                Kind::Data => {
                    received.extend_from_slice(protocol::data::parse_data(&body).unwrap().1);
                    let consumed = received.len() as u64;
                    let up_to = consumed + 256 * 1024;
                    let ack = Ack { consumed, up_to, finished: false };
                    raw.send(Kind::Ack, 0, &ack).await;
                }
                Kind::Fin => {
                    raw.reply(request, Reply::Queued { run: RUN, ahead: 0 }).await;
                    let end = records(&[started(), finished(RunEnd::Ok {}, 0, 0)]);
                    raw.send_bytes(&data(0, 0, &end)).await;
                }
                _ => {}
            }
        }
    };
    let ran = soon(async {
        tokio::select! {
            event = async { (run.next().await, run.next().await) } => event,
            () = serving => unreachable!("it serves for ever"),
        }
    })
    .await;
    assert!(matches!(ran, (Ok(Some(_)), Ok(Some(_)))), "{ran:?}");
    assert!(received == code);
}

#[tokio::test]
async fn oversized_runs_are_not_sent() {
    let (_raw, guest) = Raw::meet().await;
    let long = "x".repeat(1_000_000);
    let mut large = ask("");
    large.context.env = vec![("A".into(), long.clone().into())];
    let mut named = ask("");
    named.name = Some(long.clone());
    let mut strange = ask("");
    strange.context.language.clone_from(&long);
    for refused in [large, named, strange, ask(vec![0; CODE_BYTES_MAX + 1])] {
        assert!(matches!(guest.run_code_now(refused), Err(GuestError::TooLong { .. })));
    }
    let line = Some(Text::from("x".repeat(1 << 20)));
    let answer = AnswerInput { context: name(), run: 1, request: 1, line };
    let refused = soon(guest.answer_input(answer)).await;
    assert!(matches!(refused, Err(GuestError::TooLong { .. })));
    let refused = soon(guest.check_code(&name(), long)).await;
    assert!(matches!(refused, Err(GuestError::TooLong { .. })));
}

#[tokio::test]
async fn a_large_environment_leaves_the_code_no_room_in_the_request() {
    let (mut raw, guest) = Raw::meet().await;
    let mut large = ask("x".repeat(200_000));
    large.context.env =
        (0..50).map(|number| (format!("V{number}").into(), "x".repeat(15_000).into())).collect();
    let _run = guest.run_code_now(large).unwrap();
    let (_, body) = soon(raw.next_request()).await;
    assert!(matches!(body.request, Request::Run(run) if run.code.is_none()));
}

#[tokio::test]
async fn a_refusal_is_the_first_news_and_the_only() {
    let (mut raw, guest) = Raw::meet().await;
    let mut run = guest.run_code_now(ask("1")).unwrap();
    let (request, _) = raw.next_request().await;
    let fault = Fault::new(FaultCode::NotFound, "no python3 in /usr/bin");
    raw.send_bytes(&frame(Kind::Reply, request, &encode_body(&Answer::Fault(fault)))).await;
    let error = soon(run.next()).await.unwrap_err();
    assert_eq!(error.fault_code(), Some(FaultCode::NotFound));
    assert!(matches!(soon(run.next()).await, Ok(None)));
}

#[tokio::test]
async fn a_run_that_is_given_up_is_given_up_on_the_other_side() {
    let (mut raw, run) = queued().await;
    drop(run);
    while soon(raw.next()).await.0 != Kind::Reset {}
}

#[tokio::test]
async fn events_that_contradict_a_runs_life_are_errors() {
    let end = || finished(RunEnd::Ok {}, 0, 0);
    let of = |run, event: Event| Event { run, ..event };
    let lies: Vec<(&str, Vec<Event>)> = vec![
        ("nothing", vec![]),
        ("no end", vec![started()]),
        ("output before the start", vec![stdout("x"), started(), finished(RunEnd::Ok {}, 1, 0)]),
        ("two starts", vec![started(), started(), end()]),
        ("two ends", vec![started(), end(), end()]),
        ("output behind the end", vec![started(), end(), stdout("x")]),
        ("late output behind the end", vec![started(), end(), late(1)]),
        ("another's output", vec![started(), of(8, stdout("x")), end()]),
        ("another's start", vec![of(u64::MAX, started()), end()]),
        ("another's end", vec![started(), of(0, end())]),
        ("a gap", vec![started(), event(Happening::Gap { events: 1, bytes: 1 }), end()]),
        ("less output than it counts", vec![started(), finished(RunEnd::Ok {}, 5, 0)]),
        (
            "more output than it counts",
            vec![started(), stderr("xy"), finished(RunEnd::Ok {}, 2, 0)],
        ),
    ];
    for (what, events) in lies {
        let error = read_events(&records(&events)).await.expect_err(what);
        assert!(matches!(error, GuestError::Malformed { .. }), "{what}: {error}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_events_are_an_error() {
    let mut long = Vec::from((EVENT_BYTES_MAX as u32 + 1).to_be_bytes());
    long.extend([0; 100]);
    let whole = records(&[started()]);
    let lies: [(&str, &[u8]); 5] = [
        ("an event that is too long", &long),
        ("an event of all lengths", &[0xff; 64]),
        ("an empty event", &[0; 4]),
        ("deep nesting", &[0, 0, 16, 0]),
        ("half an event", &whole[..whole.len() - 1]),
    ];
    for (what, bytes) in lies {
        let mut bytes = bytes.to_vec();
        if what == "deep nesting" {
            bytes.extend([0x91; 4096]);
        }
        let error = read_events(&bytes).await.expect_err(what);
        assert!(matches!(error, GuestError::Run(_) | GuestError::Malformed { .. }), "{what}");
    }
}

fn late(of: u64) -> Event {
    let late = Late { of, channel: Channel::Stdout, bytes: "late".into(), dropped: 0 };
    Event { run: 0, at_us: 0, what: Happening::Late(late) }
}

#[tokio::test]
async fn events_of_other_runs_may_come_at_any_time() {
    let lost = Event { run: 0, at_us: 0, what: Happening::Lost { reason: "gone".to_owned() } };
    let events = vec![late(3), lost, started(), late(1), finished(RunEnd::Error {}, 0, 0)];
    assert_eq!(read_events(&records(&events)).await.unwrap(), events);
    let reason = "it was interrupted".to_owned();
    let cancelled = vec![finished(RunEnd::Cancelled { reason }, 0, 0)];
    assert_eq!(read_events(&records(&cancelled)).await.unwrap(), cancelled);
}

#[tokio::test]
async fn words_that_are_too_long_are_cut() {
    let long = "ü".repeat(100_000);
    let form = Datum { mime: "m".repeat(2000), data: long.clone().into() };
    let small = Datum { mime: String::new(), data: "".into() };
    let display = Display {
        role: DisplayRole::Shown,
        id: Some(long.clone()),
        data: [vec![form], vec![small; DISPLAY_FORMS_MAX]].concat(),
        metadata: None,
    };
    let report = ErrorReport {
        kind: long.clone(),
        traceback: long.clone(),
        frames: vec![TraceFrame::default(); TRACE_FRAMES_MAX + 1],
        ..ErrorReport::default()
    };
    let events = [
        started(),
        event(Happening::Display(display)),
        event(Happening::Error(report)),
        finished(RunEnd::Interrupted { by: long.clone() }, 0, 0),
    ];
    let read_events = read_events(&records(&events)).await.unwrap();
    let [_, display, report, end] = read_events.as_slice() else {
        panic!("{} events", read_events.len())
    };
    let Happening::Display(display) = &display.what else { panic!("no display") };
    assert_eq!(display.data.len(), DISPLAY_FORMS_MAX);
    assert!(display.data.iter().all(|form| form.mime.len() <= TEXT_BYTES_MAX));
    assert_eq!(display.data[0].data, long.clone().into(), "what is shown stays whole");
    assert!(display.id.as_ref().is_some_and(|id| id.len() <= TEXT_BYTES_MAX));
    let Happening::Error(report) = &report.what else { panic!("no error") };
    assert!(report.kind.len() <= TEXT_BYTES_MAX && report.frames.len() == TRACE_FRAMES_MAX);
    assert_eq!(report.traceback, long);
    let Happening::Finished(Finished { end: RunEnd::Interrupted { by }, .. }) = &end.what else {
        panic!("no end")
    };
    assert!(by.len() <= TEXT_BYTES_MAX);
}

#[tokio::test]
async fn the_largest_event_passes_through_a_small_credit() {
    let bytes = "x".repeat(EVENT_BYTES_MAX - 100);
    let events = vec![started(), stdout(&bytes), finished(RunEnd::Ok {}, bytes.len() as u64, 0)];
    let (mut raw, mut run) = queued().await;
    let encoded = records(&events);
    let telling = tell(&mut raw, &encoded);
    let hearing = async {
        for event in &events {
            assert!(run.next().await.unwrap().as_ref() == Some(event));
        }
    };
    soon(async { tokio::join!(telling, hearing) }).await;
}

async fn collected(events: &[Event], bytes_max: usize) -> Ran {
    let (mut raw, run) = queued().await;
    tell(&mut raw, &records(events)).await;
    soon(run.collect(bytes_max)).await.unwrap()
}

#[tokio::test]
async fn all_of_a_run_is_collected_and_neighbours_are_joined() {
    let events = [
        started(),
        stdout("a"),
        stdout("b"),
        stderr("c"),
        shown(DisplayRole::Shown, "table"),
        stdout("d"),
        shown(DisplayRole::Value, "5"),
        event(Happening::Error(ErrorReport { kind: "E".to_owned(), ..ErrorReport::default() })),
        finished(RunEnd::Error {}, 3, 1),
    ];
    let ran = collected(&events, 1 << 20).await;
    assert_eq!((ran.run, ran.started.as_ref().map(|started| started.count)), (RUN, Some(1)));
    assert_eq!((ran.stdout(), ran.stderr()), (b"abd".to_vec(), b"c".to_vec()));
    assert_eq!(ran.events.len(), 6);
    assert_eq!(ran.value().map(|value| value.data[0].data.clone()), Some("5".into()));
    assert_eq!(ran.error().map(|report| report.kind.as_str()), Some("E"));
    assert!(!ran.is_truncated());
}

#[tokio::test]
async fn output_without_room_is_counted() {
    let long = "x".repeat(1000);
    let mut events = vec![started()];
    events.extend((0..50).map(|_| stdout(&long)));
    events.extend((0..5).map(|_| shown(DisplayRole::Shown, &long)));
    events.push(stderr("small"));
    events.push(finished(RunEnd::Ok {}, 50_000, 5));
    let ran = collected(&events, 10_000).await;
    assert!(ran.is_truncated());
    assert!(ran.stdout().len() <= 10_000 && ran.stdout().len() > 9_000);
    let stored_bytes = (ran.stdout().len() + ran.stderr().len()) as u64;
    assert_eq!(stored_bytes + ran.dropped_bytes, 50_005, "kept or counted");
    assert_eq!(ran.dropped_events, 5);
    let crumbs: Vec<Event> = (0..1000).map(|_| shown(DisplayRole::Shown, "")).collect();
    let all = [vec![started()], crumbs, vec![finished(RunEnd::Ok {}, 0, 0)]].concat();
    let ran = collected(&all, 10_000).await;
    assert!(ran.events.len() < 40, "small events have their cost");
    assert_eq!(ran.events.len() as u64 + ran.dropped_events, 1000);
}

/// Asks the guest something and lets it answer.
async fn ask_and_answer<T>(
    ask: impl AsyncFnOnce(Guest) -> Result<T, GuestError>,
    reply: Reply,
) -> (Request, Result<T, GuestError>) {
    let (mut raw, guest) = Raw::meet().await;
    let answering = async {
        let (request, body) = raw.next_request().await;
        raw.reply(request, reply).await;
        body.request
    };
    let (answer, request) = soon(async { tokio::join!(ask(guest.clone()), answering) }).await;
    (request, answer)
}

fn info() -> ContextInfo {
    ContextInfo {
        context: name(),
        language: "python".to_owned(),
        state: ContextState::Idle,
        interpreter: None,
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

#[tokio::test]
async fn questions_about_contexts_have_their_answers() {
    let opened = open(name(), "python");
    let copy = opened.clone();
    let ask = async |guest: Guest| guest.open_context(&copy).await;
    let (request, answer) = ask_and_answer(ask, Reply::Context(info())).await;
    assert_eq!((request, answer.unwrap()), (Request::OpenContext(opened), info()));

    let ask = async |guest: Guest| guest.restart_context(&name()).await;
    let (request, answer) = ask_and_answer(ask, Reply::Context(info())).await;
    assert_eq!(request, Request::RestartContext { context: name() });
    assert_eq!(answer.unwrap(), info());

    let ask = async |guest: Guest| guest.close_context(&name()).await;
    let (request, answer) = ask_and_answer(ask, Reply::Done {}).await;
    assert_eq!((request, answer.unwrap()), (Request::CloseContext { context: name() }, ()));

    let interrupt = Interrupt { context: name(), run: None, grace: Grace::default() };
    let ask = async |guest: Guest| guest.interrupt(interrupt).await;
    let (_, answer) = ask_and_answer(ask, Reply::Interrupting { run: Some(4) }).await;
    assert_eq!(answer.unwrap(), Some(4));

    let ask = async |guest: Guest| guest.contexts().await;
    let (_, answer) = ask_and_answer(ask, Reply::Contexts { contexts: vec![info(); 3] }).await;
    assert_eq!(answer.unwrap().len(), 3);
}

#[tokio::test]
async fn lists_that_are_too_long_are_refused_or_cut() {
    let ask = async |guest: Guest| guest.contexts().await;
    let (_, answer) = ask_and_answer(ask, Reply::Contexts { contexts: vec![info(); 100] }).await;
    assert!(matches!(answer, Err(GuestError::Malformed { .. })));

    let warnings = vec!["x".repeat(2 * TEXT_BYTES_MAX); 100];
    let long = ContextInfo { lost: Some("x".repeat(100_000)), warnings, ..info() };
    let ask = async |guest: Guest| guest.contexts().await;
    let (_, answer) = ask_and_answer(ask, Reply::Contexts { contexts: vec![long] }).await;
    let cut = answer.unwrap().remove(0);
    assert_eq!(cut.lost.as_ref().map(String::len), Some(TEXT_BYTES_MAX));
    assert_eq!(cut.warnings, vec!["x".repeat(TEXT_BYTES_MAX); WARNINGS_MAX]);
}

#[tokio::test]
async fn completions_have_a_place_in_the_code() {
    let code = "für";
    let places = [(0, 4, true), (1, 3, true), (2, 3, false), (3, 1, false), (0, 5, false)];
    let more = [(0, u64::MAX, false), (u64::MAX, u64::MAX, false), (4, 4, true)];
    for (start, end, fine) in places.into_iter().chain(more) {
        let complete = Complete { context: name(), code: code.to_owned(), cursor: 4 };
        let ask = async |guest: Guest| guest.complete(complete).await;
        let matches = vec!["x".to_owned(); MATCHES_MAX + 1];
        let (_, answer) =
            ask_and_answer(ask, Reply::Completions(Completions { start, end, matches })).await;
        match answer {
            Ok(found) => assert!(fine && found.matches.len() == MATCHES_MAX, "{start}..{end}"),
            Err(error) => assert!(!fine, "{start}..{end}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_watch_tells_of_all_runs_and_of_gaps() {
    let (mut raw, guest) = Raw::meet().await;
    let gap = Event { run: 0, at_us: 0, what: Happening::Gap { events: 3, bytes: 9 } };
    let cause = Cause::Signaled { signal: 11, core_dumped: false };
    let events = [late(2), started(), gap, finished(RunEnd::Died { cause }, 100, 0), started()];
    let bytes = records(&events);
    let watching = async {
        let (request, body) = raw.next_request().await;
        assert!(matches!(body.request, Request::WatchContext { .. }));
        raw.reply(request, Reply::Done {}).await;
        raw.send_bytes(&data(0, 0, &bytes)).await;
        raw.send(Kind::Fin, 0, &Fin { offset: bytes.len() as u64 }).await;
    };
    let context = name();
    let (watch, ()) = soon(async { tokio::join!(guest.watch_context(&context), watching) }).await;
    let mut watch = watch.unwrap();
    for event in &events {
        assert_eq!(soon(watch.next()).await.unwrap().as_ref(), Some(event));
    }
    assert_eq!(soon(watch.next()).await.unwrap(), None);
}
