//! Programs against the test agent, and what is kept of their output.

use std::time::Duration;

use proptest::prelude::*;
use protocol::FaultCode;
use protocol::exit::{Cause, ExitRecord, Usage};
use protocol::message::Channel;
use protocol::requests::{Stdio, Target};

use super::*;
use crate::link::tests::agent::{Agent, pattern};
use crate::link::tests::{id, quick, soon, start, until};

async fn guest() -> (Agent, Guest) {
    let (agent, theirs) = Agent::pair();
    let guest = soon(Guest::over(theirs, None, quick())).await.unwrap();
    (agent, guest)
}

/// A program that says ten bytes and runs on, and has been started.
async fn silent(guest: &Guest, on_drop: OnDrop) -> Running {
    let program = Program { on_drop, ..Program::from(start("run", "stdout 10 stderr 0 run")) };
    let mut running = program.begin(guest).unwrap();
    assert!(!soon(running.started()).await.unwrap().repeated);
    running
}

/// How many signals and releases the agent received.
fn count_requests(agent: &Agent) -> (usize, usize) {
    let world = agent.world();
    (world.signals.len(), world.releases.len())
}

fn record(cause: Cause) -> ExitRecord {
    ExitRecord {
        cause,
        started_at_ms: 0,
        ended_at_ms: 0,
        duration_us: 0,
        usage: Usage::default(),
        outputs: Vec::new(),
        left_behind: Vec::new(),
        left_behind_count: 0,
    }
}

#[tokio::test]
async fn a_run_delivers_all_output_and_then_the_record() {
    let (agent, guest) = guest().await;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let run = start("run", "stdout 300000 stderr 1000 exit 7");
    let finished = soon(collect(
        &guest,
        &run,
        b"",
        |bytes| out.extend_from_slice(bytes),
        |bytes| err.extend_from_slice(bytes),
    ))
    .await
    .unwrap();
    assert_eq!(finished.record.cause, Cause::Exited { code: 7 });
    assert_eq!(finished.missing_bytes, 0);
    assert!(out == (0..300_000).map(pattern).collect::<Vec<_>>());
    assert!(err == (0..1000).map(pattern).collect::<Vec<_>>());
    until(|| agent.world().carried_out.last() == Some(&"release")).await;
}

#[tokio::test]
async fn a_run_does_not_wait_for_pipes_that_survivors_hold() {
    let (_agent, guest) = guest().await;
    let run = start("run", "stdout 100000 stderr 0 exit 0 survivors");
    let mut count = 0;
    let finished = soon(collect(&guest, &run, b"", |bytes| count += bytes.len(), |_| ())).await;
    assert_eq!(finished.unwrap().record.left_behind_count, 1);
    assert_eq!(count, 100_000);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_the_first_news() {
    let (_agent, guest) = guest().await;
    let error = soon(collect(&guest, &start("run", "missing"), b"", |_| (), |_| ())).await;
    assert_eq!(error.unwrap_err().fault_code(), Some(FaultCode::SpawnFailed));
}

#[tokio::test]
async fn events_of_a_run_come_in_order_and_end_with_none() {
    let (agent, guest) = guest().await;
    let run = start("run", "stdout 10 stderr 0 run");
    let mut running = Program::from(run).begin(&guest).unwrap();
    assert!(running.take_input().is_none(), "the program has no input");
    assert!(matches!(soon(running.next()).await.unwrap(), Some(Event::Started(_))));
    assert!(matches!(
        soon(running.next()).await.unwrap(),
        Some(Event::Output { channel: Channel::Stdout, offset: 0, bytes }) if bytes.len() == 10
    ));
    let nothing = tokio::time::timeout(Duration::from_millis(20), running.next()).await;
    assert!(nothing.is_err(), "the program runs on in silence");
    agent.exit("run", 0);
    assert!(matches!(soon(running.next()).await.unwrap(), Some(Event::Ended(_))));
    assert!(soon(running.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn input_is_fed_and_its_beginning_is_the_agents() {
    let (agent, guest) = guest().await;
    let mut run = start("run", "stdout 1 stderr 0 run");
    run.stdio = Stdio::Pipes { stdin: true };
    let mut running = Program::from(run).begin(&guest).unwrap();
    let mut writer = running.take_input().unwrap();
    writer.write(b"typed").await.unwrap();
    assert_eq!(soon(writer.finish()).await.unwrap(), 1005);
    assert_eq!(agent.world().received, b"typed");
}

#[tokio::test]
async fn the_end_counts_what_came_and_what_was_lost() {
    let (agent, guest) = guest().await;
    let mut outputs = Outputs::new(100, Unlimited);
    let program = Program::from(start("run", "stdout 300000 stderr 1000 exit 0"));
    let ended = soon(program.begin(&guest).unwrap().collect(b"", &mut outputs)).await.unwrap();
    assert!(ended.is_success() && ended.shell_code() == 0);
    assert_eq!((ended.stdout_bytes, ended.stderr_bytes, ended.missing_bytes), (300_000, 1000, 0));
    assert_eq!(outputs.stdout.total_bytes(), 300_000);
    assert!(outputs.is_cut());
    assert!(outputs.stdout.bytes() == (0..100).map(pattern).collect::<Vec<_>>());
    assert!(agent.world().releases.is_empty(), "this start's session has other holders");
}

#[tokio::test]
async fn a_program_that_is_dropped_is_killed_and_its_session_released() {
    let (agent, guest) = guest().await;
    drop(silent(&guest, OnDrop::Kill).await);
    until(|| agent.world().releases.len() == 1).await;
    let world = agent.world();
    assert_eq!((world.signals.len(), world.signals[0].signal), (1, 9));
    assert!(matches!(world.signals[0].target, Target::Tree));
    assert!(world.releases[0].kill_survivors && world.releases[0].holder.is_none());
}

#[tokio::test]
async fn a_program_that_is_dropped_before_its_start_is_answered_is_killed_too() {
    let (agent, guest) = guest().await;
    let run = start("run", "stdout 0 stderr 0 run");
    drop(Program { on_drop: OnDrop::Kill, ..Program::from(run) }.begin(&guest).unwrap());
    until(|| agent.world().releases.len() == 1).await;
    assert_eq!(agent.world().signals.len(), 1);
}

#[tokio::test]
async fn a_recorded_program_that_is_dropped_is_killed_and_its_recorder_keeps_the_session() {
    let (agent, guest) = guest().await;
    drop(silent(&guest, OnDrop::KillRecorded).await);
    soon(guest.stat("/f", false)).await.unwrap();
    assert_eq!(count_requests(&agent), (1, 0));
}

#[tokio::test]
async fn a_program_that_is_left_or_has_not_ended_outlives_its_starter() {
    for on_drop in [OnDrop::Leave, OnDrop::Release] {
        let (agent, guest) = guest().await;
        drop(silent(&guest, on_drop).await);
        soon(guest.stat("/f", false)).await.unwrap();
        assert_eq!(count_requests(&agent), (0, 0));
    }
}

#[tokio::test]
async fn leftovers_of_a_program_that_ended_by_itself_live_on() {
    for on_drop in [OnDrop::Kill, OnDrop::Release] {
        let (agent, guest) = guest().await;
        let mut running = silent(&guest, on_drop).await;
        agent.exit("run", 3);
        let ended = soon(running.collect(b"", &mut (|_: &[u8]| (), |_: &[u8]| ()))).await.unwrap();
        assert_eq!(ended.shell_code(), 3);
        drop(running);
        until(|| agent.world().releases.len() == 1).await;
        assert!(!agent.world().releases[0].kill_survivors);
        assert!(agent.world().signals.is_empty());
    }
}

#[tokio::test]
async fn leftovers_of_a_program_that_timed_out_are_killed() {
    let (agent, guest) = guest().await;
    let mut leash = Leash::new(guest.clone(), id("run"), OnDrop::Kill);
    leash.ended_with(&record(Cause::TimedOut { limit_ms: 1 }));
    drop(leash);
    until(|| agent.world().releases.len() == 1).await;
    assert!(agent.world().releases[0].kill_survivors);
    assert_eq!(agent.world().signals.len(), 1);
}

#[tokio::test]
async fn a_session_that_was_there_before_is_not_ended() {
    let (agent, guest) = guest().await;
    let first = silent(&guest, OnDrop::Leave).await;
    let again = Program::from(start("run", "stdout 10 stderr 0 run"));
    let mut again = Program { on_drop: OnDrop::Kill, ..again }.begin(&guest).unwrap();
    assert!(soon(again.started()).await.unwrap().repeated);
    drop((first, again));
    soon(guest.stat("/f", false)).await.unwrap();
    assert_eq!(count_requests(&agent), (0, 0));
}

#[test]
fn drawn_names_differ() {
    assert_ne!(draw_session().unwrap(), draw_session().unwrap());
}

/// Memory for so many bytes.
struct Room(std::cell::Cell<usize>);

impl Memory for Room {
    fn try_keep(&self, bytes: &[u8]) -> bool {
        let left = self.0.get().checked_sub(bytes.len());
        left.map(|left| self.0.set(left)).is_some()
    }
}

proptest! {
    #[test]
    fn a_head_is_the_beginning_and_counts_the_whole(
        bytes_max in 0usize..20,
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
    ) {
        let (whole, mut head) = (pieces.concat(), Head::new(bytes_max));
        for piece in &pieces {
            head.add(piece, &Unlimited);
        }
        prop_assert_eq!(head.bytes(), &whole[..whole.len().min(bytes_max)]);
        prop_assert_eq!(head.total_bytes(), whole.len() as u64);
        prop_assert_eq!(head.is_cut(), whole.len() > bytes_max);
    }

    #[test]
    fn without_memory_a_head_is_still_the_beginning(
        room in 0usize..20,
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
    ) {
        let (whole, mut head) = (pieces.concat(), Head::new(usize::MAX));
        let memory = Room(room.into());
        for piece in &pieces {
            head.add(piece, &memory);
        }
        prop_assert!(head.bytes().len() <= room && whole.starts_with(head.bytes()));
        prop_assert_eq!(head.is_cut(), head.bytes().len() < whole.len());
        prop_assert_eq!(head.total_bytes(), whole.len() as u64);
    }

    #[test]
    fn a_tail_is_the_end(
        bytes_max in 0usize..20,
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
    ) {
        let (whole, mut tail) = (pieces.concat(), Tail::new(bytes_max));
        for piece in &pieces {
            tail.add(piece);
        }
        prop_assert_eq!(tail.bytes(), &whole[whole.len().saturating_sub(bytes_max)..]);
        prop_assert_eq!(tail.is_cut(), whole.len() > bytes_max);
    }

    #[test]
    fn text_cut_anywhere_stays_text(
        text in "\\PC{0,40}",
        cuts in prop::collection::vec(0usize..160, 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut characters = Characters::default();
        let mut joined = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            let whole = characters.take(text.as_bytes()[from..cut].to_vec());
            prop_assert!(std::str::from_utf8(&whole).is_ok());
            joined.extend(whole);
            from = cut;
        }
        prop_assert_eq!(characters.held(), 0);
        prop_assert_eq!(joined, text.into_bytes());
    }

    #[test]
    fn no_byte_is_kept_for_good(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
    ) {
        let mut characters = Characters::default();
        let mut joined = Vec::new();
        for piece in &pieces {
            joined.extend(characters.take(piece.clone()));
            prop_assert!(characters.held() <= 3);
        }
        joined.extend(characters.finish());
        prop_assert_eq!(joined, pieces.concat());
    }

    #[test]
    fn a_head_of_text_that_is_cut_within_a_character_is_text(
        text in "\\PC{0,40}",
        bytes_max in 0usize..160,
    ) {
        let mut head = Head::new(bytes_max);
        head.add(text.as_bytes(), &Unlimited);
        let characters = head.into_characters();
        prop_assert!(std::str::from_utf8(&characters).is_ok());
        prop_assert!(characters.len() + 3 >= bytes_max.min(text.len()));
    }
}

#[test]
fn nothing_is_kept_behind_what_was_lost() {
    let mut head = Head::new(10);
    head.add(b"ab", &Unlimited);
    head.lose(3);
    head.add(b"c", &Unlimited);
    assert_eq!((head.bytes(), head.total_bytes(), head.is_cut()), (b"ab".as_slice(), 6, true));
}

#[test]
fn bytes_that_are_no_text_are_cut_anywhere() {
    assert_eq!(whole_characters(&[0x80; 10]), 10);
    assert_eq!(whole_characters(b"a\xff"), 2);
    assert_eq!(whole_characters("a€".as_bytes()), 4);
    assert_eq!(whole_characters(&"a€".as_bytes()[..3]), 1);
}
