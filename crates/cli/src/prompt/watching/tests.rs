use protocol::repl::{Finished, RunEnd, Started};

use super::*;

fn event(run: u64, what: Happening) -> Event {
    Event { run, at_us: 0, what }
}

fn started(run: u64) -> Event {
    event(run, Happening::Started(Started { count: 1, lost: None }))
}

fn finished(run: u64) -> Event {
    let end = Finished {
        end: RunEnd::Ok {},
        duration_us: 0,
        cpu_us: None,
        memory_bytes_peak: None,
        state_kept: true,
        rung: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cached: None,
    };
    event(run, Happening::Finished(end))
}

fn late(text: &str, dropped: u64) -> Late {
    Late { of: 1, channel: Channel::Stdout, bytes: text.into(), dropped }
}

fn watching() -> ContextWatch {
    ContextWatch { events: None, tale: EventTracker::default() }
}

#[test]
fn runs_of_others_are_counted_and_ours_are_not() {
    let mut watching = watching();
    watching.own(2);
    for run in [1, 2, 3] {
        assert_eq!(watching.tale.take(started(run)), None);
        assert_eq!(watching.running(), (run != 2).then_some(run));
        assert_eq!(watching.tale.take(finished(run)), None);
    }
    assert_eq!((watching.running(), watching.take_others(), watching.take_others()), (None, 2, 0));
}

#[test]
fn other_clients_output_is_not_shown() {
    let mut watching = watching();
    let printed = Happening::Stdout { bytes: "x".into() };
    assert_eq!(watching.tale.take(event(1, printed)), None);
    let printed = Update::Output(Channel::Stdout, b"x".to_vec());
    assert_eq!(watching.tale.take(event(0, Happening::Late(late("x", 0)))), Some(printed));
}

#[test]
fn late_output_that_is_lost_is_counted() {
    let Some(Update::Output(_, bytes)) = watching().late_in_run(late("x", 7)) else {
        panic!("nobody watches, so the run's word counts");
    };
    assert_eq!(bytes, b"[7 bytes of late output were lost]\nx");
}

#[test]
fn a_lost_interpreter_is_reported_once() {
    let mut watching = watching();
    let lost = || event(0, Happening::Lost { reason: "killed".to_owned() });
    assert!(
        matches!(watching.tale.take(lost()), Some(Update::Line(line)) if line.contains("killed"))
    );
    assert_eq!(watching.loss("killed"), None, "the next run says it again");
    assert!(watching.loss("another").is_some());
    watching.loss_was_shown();
    assert_eq!(watching.loss("killed"), None);
}

#[test]
fn only_the_latest_runs_of_ours_are_remembered() {
    let mut watching = watching();
    for run in 1..=1000 {
        watching.own(run);
    }
    assert_eq!(watching.tale.own.len(), OWN_RUNS_MAX);
    watching.tale.take(finished(1000));
    assert_eq!(watching.take_others(), 0);
}
