//! The typed client against the test agent, and how it handles false answers.

use std::time::Duration;

use protocol::limits::{ARGUMENTS_BYTES_MAX, REQUESTS_PENDING_MAX};
use protocol::message::{Channel, Entries, FileInfo, FileKind, Reply};
use protocol::requests::{Origin, Role};
use protocol::{FaultCode, Text};

use super::{FileTarget, Guest, GuestError, Piece};
use crate::link::tests::agent::Agent;
use crate::link::tests::raw::Raw;
use crate::link::tests::{id, quick, soon, start, until};

async fn guest() -> (Agent, Guest) {
    let (agent, theirs) = Agent::pair();
    let guest = soon(Guest::over(theirs, None, quick())).await.unwrap();
    (agent, guest)
}

#[tokio::test]
async fn a_writer_waits_for_room_and_goes_on_when_there_is_some() {
    let (agent, guest) = guest().await;
    agent.world().reads = false;
    let (mut writer, _) = soon(guest.input(&id("s"), None, false)).await.unwrap();
    let much = vec![7; 1_000_000];
    let stuck = tokio::time::timeout(Duration::from_millis(50), writer.write(&much)).await;
    assert!(stuck.is_err(), "nobody reads");
    // Another request is accepted.
    soon(guest.stat("/f", false)).await.unwrap();
    agent.read_on();
    soon(writer.write(b"more")).await.unwrap();
    soon(writer.finish()).await.unwrap();
}

#[tokio::test]
async fn uploads_and_downloads_are_distinguished_from_refusals() {
    let (agent, guest) = guest().await;
    let mut upload = guest.write_file(FileTarget::replace("/f")).unwrap();
    upload.write(b"content").await.unwrap();
    assert_eq!(soon(upload.finish()).await.unwrap().bytes, 7);
    assert_eq!(agent.world().received, b"content");

    let mut denied = guest.write_file(FileTarget::replace("/denied")).unwrap();
    let error = soon(async {
        loop {
            if let Err(error) = denied.write(&[0; 4096]).await {
                break error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(error.fault_code(), Some(FaultCode::Denied));
    assert_eq!(soon(denied.finish()).await.unwrap_err().fault_code(), Some(FaultCode::Denied));
}

#[tokio::test]
async fn a_dropped_output_is_given_up_and_a_finished_one_is_not() {
    let (agent, guest) = guest().await;
    let (output, _, _) = soon(guest.read_file("/f", 0, None)).await.unwrap();
    drop(output);
    until(|| agent.world().resets == 1).await;
    let (mut output, _, _) = soon(guest.read_file("/f", 0, Some(10))).await.unwrap();
    while !matches!(soon(output.next()).await, Piece::End) {}
    drop(output);
    soon(guest.stat("/f", false)).await.unwrap();
    assert_eq!(agent.world().resets, 1);
    // One that was given up before the agent opened it is closed as soon as it is open.
    soon(guest.start(&start("s", "stdout 9 stderr 0 run"))).await.unwrap();
    let early =
        guest.subscribe_now(&id("s"), Channel::Stdout, Origin::Oldest {}, Role::Observer {});
    drop(early.unwrap());
    until(|| agent.world().resets == 2).await;
}

#[tokio::test]
async fn an_output_in_manual_mode_stops_at_its_credit_until_it_gets_more() {
    let (_agent, guest) = guest().await;
    let (output, _, _) = soon(guest.read_file("/f", 0, None)).await.unwrap();
    let mut output = output.manual();
    let mut read = 0;
    while read < 256 * 1024 {
        match soon(output.next()).await {
            Piece::Bytes { bytes, .. } => read += bytes.len() as u64,
            other => panic!("{other:?}"),
        }
    }
    assert!(tokio::time::timeout(Duration::from_millis(20), output.next()).await.is_err());
    output.consumed(read);
    assert!(matches!(soon(output.next()).await, Piece::Bytes { .. }));
}

#[tokio::test]
async fn a_forwarded_connection_goes_both_ways_and_ends_in_halves() {
    let (_agent, guest) = guest().await;
    let (mut writer, mut output) = soon(guest.forward(None, 80)).await.unwrap();
    writer.write(b"ping").await.unwrap();
    assert!(matches!(soon(output.next()).await, Piece::Bytes { bytes, .. } if bytes == b"ping"));
    soon(writer.finish()).await.unwrap();
    assert!(matches!(soon(output.next()).await, Piece::End));
}

#[tokio::test]
async fn watch_records_are_read_one_by_one() {
    let (_agent, guest) = guest().await;
    let mut watcher = soon(guest.watch("/d", true)).await.unwrap();
    for number in 0..3 {
        let event = soon(watcher.next()).await.unwrap().unwrap();
        assert_eq!(event.path, Text::from(format!("file {number}")));
    }
    assert!(soon(watcher.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn pages_of_a_directory_are_joined() {
    let (_agent, guest) = guest().await;
    let names: Vec<_> =
        soon(guest.list("/d")).await.unwrap().iter().map(|info| info.name.to_string()).collect();
    assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test]
async fn a_directory_that_repeats_itself_is_not_listed_forever() {
    let (mut raw, guest) = Raw::meet().await;
    let info = FileInfo {
        name: "same".into(),
        kind: FileKind::File,
        bytes: 0,
        permissions: 0,
        uid: 0,
        gid: 0,
        modified_ms: 0,
        target: None,
    };
    let pages = async {
        for _ in 0..2 {
            let (request, _) = raw.next_request().await;
            let page = Entries { entries: vec![info.clone()], more: true };
            raw.reply(request, Reply::Entries(page)).await;
        }
    };
    let (listed, ()) = tokio::join!(soon(guest.list("/d")), pages);
    assert!(matches!(listed, Err(GuestError::Malformed { .. })));
}

#[tokio::test]
async fn a_freeze_and_a_thaw_are_answered_with_their_times() {
    let (agent, guest) = guest().await;
    let frozen = soon(guest.freeze(Duration::from_secs(9))).await.unwrap();
    assert_eq!((frozen.groups, frozen.took), (2, Duration::from_millis(9)));
    assert_eq!(soon(guest.thaw()).await.unwrap(), Duration::from_millis(7));
    assert_eq!(agent.world().carried_out, ["freeze", "thaw"]);
}

#[tokio::test]
async fn oversized_requests_are_not_sent() {
    let (agent, guest) = guest().await;
    let mut large = start("s", "stdout 0 stderr 0 run");
    large.env = vec![("A".into(), "x".repeat(ARGUMENTS_BYTES_MAX).into())];
    assert!(matches!(guest.start_now(&large), Err(GuestError::TooLong { .. })));
    assert!(matches!(
        soon(guest.stat("x".repeat(5000), false)).await,
        Err(GuestError::TooLong { .. })
    ));
    assert!(agent.world().carried_out.is_empty());
}

#[tokio::test]
async fn as_many_requests_as_may_be_are_under_way_and_then_as_many_again() {
    let (agent, guest) = guest().await;
    soon(guest.start(&start("s", "stdout 0 stderr 0 run"))).await.unwrap();
    for round in 0..2 {
        let waits: Vec<_> =
            (0..REQUESTS_PENDING_MAX).map(|_| guest.wait_now(&id("s")).unwrap()).collect();
        let refused = guest.wait_now(&id("s"));
        assert!(matches!(refused, Err(GuestError::TooManyRequests(_))), "round {round}");
        agent.exit("s", 0);
        for wait in waits {
            soon(wait).await.unwrap();
        }
    }
}

#[tokio::test]
async fn close_says_goodbye_and_ends_all_clones() {
    let (_agent, guest) = guest().await;
    let clone = guest.clone();
    soon(guest.close()).await;
    assert!(matches!(soon(clone.stat("/f", false)).await, Err(GuestError::Link(_))));
}
