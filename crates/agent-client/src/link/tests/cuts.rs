//! What happens to requests and streams when the link is cut.

use std::time::Duration;

use protocol::message::Channel;
use protocol::requests::{Origin, Role};

use super::agent::{Agent, pattern};
use super::{id, quick, soon, start, until};
use crate::guest::{Adoption, FileTarget, Guest, GuestError, Output, Piece, RunCode, contexts};
use crate::link::{LinkError, Options};

/// Reads an output to its end and checks every byte.
pub(super) async fn read_pattern(output: &mut Output, mut at: u64) -> u64 {
    loop {
        match soon(output.next()).await {
            Piece::Bytes { offset, bytes } => {
                assert_eq!(offset, at, "bytes come in order");
                for byte in bytes {
                    assert_eq!(byte, pattern(at), "byte {at}");
                    at += 1;
                }
            }
            Piece::End => return at,
            other => panic!("{other:?} at {at}"),
        }
    }
}

#[tokio::test]
async fn a_flow_goes_on_byte_for_byte_over_many_cuts() {
    let agent = Agent::listen();
    // Each link carries less than a chunk's frame or a little more, so that cuts fall everywhere.
    agent.world().link_bytes_max = Some(70_001);
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    let length = 3_000_000;
    let (mut output, _, bytes) = soon(guest.read_file("/f", 12_345, Some(length))).await.unwrap();
    assert_eq!(bytes, Some(length));
    assert_eq!(read_pattern(&mut output, 12_345).await, 12_345 + length);
    let links = agent.world().links;
    assert!(links > 40, "{links} links");
}

#[tokio::test]
async fn an_upload_goes_on_byte_for_byte_over_many_cuts() {
    let agent = Agent::listen();
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    let mut upload = guest.write_file(FileTarget::replace("/f")).unwrap();
    let content: Vec<u8> = (0..2_000_000).map(pattern).collect();
    let cutter = agent.clone();
    let cutting = async move {
        loop {
            tokio::time::sleep(Duration::from_millis(7)).await;
            cutter.cut();
        }
    };
    let uploading = async {
        for piece in content.chunks(10_000) {
            upload.write(piece).await.unwrap();
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
        upload.finish().await.unwrap()
    };
    let written = soon(async {
        tokio::select! {
            written = uploading => written,
            () = cutting => unreachable!("it cuts for ever"),
        }
    })
    .await;
    assert_eq!(written.bytes, content.len() as u64);
    let world = agent.world();
    assert!(world.received == content, "every byte arrived once");
    assert!(world.links > 3, "{} links", world.links);
}

#[tokio::test]
async fn a_run_is_whole_however_often_the_link_is_cut() {
    for (length, link_bytes_max) in [(100, 900), (200_000, 70_001), (2_000_000, 300_001)] {
        let agent = Agent::listen();
        let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
        agent.world().link_bytes_max = Some(link_bytes_max);
        let code: Vec<u8> = (0..length).map(pattern).collect();
        let context = contexts::open("python".parse().unwrap(), "python");
        let run = guest.run_code_now(RunCode::new(context, code.clone())).unwrap();
        let cutter = agent.clone();
        let cutting = async move {
            loop {
                tokio::time::sleep(Duration::from_millis(9)).await;
                cutter.cut();
            }
        };
        let ran = soon(async {
            tokio::select! {
                ran = run.collect(usize::MAX) => ran.unwrap(),
                () = cutting => unreachable!("it cuts for ever"),
            }
        })
        .await;
        assert!(ran.stdout() == code, "{length} bytes of code");
        let world = agent.world();
        let runs = world.carried_out.iter().filter(|request| **request == "run").count();
        assert_eq!(runs, 1, "{} links", world.links);
        assert!(length < 1000 || world.links > 2, "{} links", world.links);
    }
}

#[tokio::test]
async fn a_request_is_carried_out_once_whatever_is_cut() {
    // The welcome takes some 370 bytes; from there on every byte of the answers is a place to cut.
    for extra in 0..120 {
        let agent = Agent::listen();
        let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
        agent.world().link_bytes_max = Some(400 + extra);
        let first = guest.start_now(&start("one", "stdout 5 stderr 0 exit 3")).unwrap();
        let from = Origin::Offset { offset: 0 };
        let (mut output, subscribed) =
            guest.subscribe_now(&id("one"), Channel::Stdout, from, Role::Observer {}).unwrap();
        let exited = guest.wait_now(&id("one")).unwrap();
        // Enough for everything that is left, once the interesting cut was made.
        until(|| agent.world().links > 1 || agent.world().carried_out.len() == 3).await;
        agent.world().link_bytes_max = None;
        soon(first).await.unwrap();
        assert_eq!(soon(subscribed).await.unwrap().end, 5);
        assert_eq!(read_pattern(&mut output, 0).await, 5);
        assert_eq!(soon(exited).await.unwrap().cause.shell_code(), 3);
        assert_eq!(agent.world().carried_out, ["start", "subscribe", "wait"], "cut at {extra}");
    }
}

#[tokio::test]
async fn a_subscription_begins_where_the_agent_says_even_if_its_answer_was_cut() {
    let agent = Agent::listen();
    agent.world().oldest = 400_000;
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    soon(guest.start(&start("one", "stdout 900000 stderr 0 exit 0"))).await.unwrap();
    agent.world().link_bytes_max = Some(0);
    let (mut output, subscribed) = guest
        .subscribe_now(&id("one"), Channel::Stdout, Origin::Oldest {}, Role::Observer {})
        .unwrap();
    until(|| agent.world().links > 2).await;
    agent.world().link_bytes_max = None;
    assert_eq!(soon(subscribed).await.unwrap().from, 400_000);
    assert_eq!(read_pattern(&mut output, 400_000).await, 900_000);
}

#[tokio::test]
async fn requests_made_while_the_link_is_down_are_answered_after_it() {
    let agent = Agent::listen();
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    soon(guest.start(&start("one", "stdout 0 stderr 0 run"))).await.unwrap();
    agent.cut();
    // The agent's end is gone at once; this end learns of it while these are queued.
    let answers: Vec<_> = (0..20).map(|_| guest.wait_now(&id("one")).unwrap()).collect();
    until(|| agent.world().links == 2).await;
    until(|| agent.world().carried_out.len() == 21).await;
    agent.exit("one", 4);
    for answer in answers {
        assert_eq!(soon(answer).await.unwrap().cause.shell_code(), 4);
    }
}

#[tokio::test]
async fn streams_opened_while_the_link_is_down_begin_when_it_is_up() {
    let agent = Agent::listen();
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    // No welcome passes whole, so the link stays down.
    agent.world().link_bytes_max = Some(1);
    agent.cut();
    until(|| agent.world().links > 2).await;
    let mut upload = guest.write_file(FileTarget::replace("/f")).unwrap();
    soon(upload.write(b"written in the dark")).await.unwrap();
    let reading = async {
        let (mut output, _, _) = guest.read_file("/f", 500, Some(100_000)).await.unwrap();
        read_pattern(&mut output, 500).await
    };
    let light = async {
        until(|| agent.world().links > 4).await;
        agent.world().link_bytes_max = None;
    };
    let (read, ()) = tokio::join!(soon(reading), light);
    assert_eq!(read, 100_500);
    assert_eq!(soon(upload.finish()).await.unwrap().bytes, 19);
    assert_eq!(agent.world().received, b"written in the dark");
}

#[tokio::test]
async fn an_agent_that_forgot_us_fails_everything_and_is_usable_again() {
    let agent = Agent::listen();
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    let before = guest.agent_id();
    let (mut output, _, _) = soon(guest.read_file("/f", 0, None)).await.unwrap();
    soon(guest.start(&start("one", "stdout 0 stderr 0 run"))).await.unwrap();
    let exited = guest.wait_now(&id("one")).unwrap();
    let mut upload = guest.write_file(FileTarget::replace("/f")).unwrap();
    upload.write(b"half").await.unwrap();
    until(|| agent.world().received == b"half").await;
    agent.world().forgetful = true;
    agent.cut();
    let refused = |error: &GuestError| matches!(error, GuestError::Link(LinkError::ResumeRefused));
    assert!(refused(&soon(exited).await.unwrap_err()));
    let failed = loop {
        match soon(output.next()).await {
            Piece::Bytes { .. } => {}
            Piece::Failed(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&failed));
    assert!(refused(&soon(upload.finish()).await.unwrap_err()));
    agent.world().forgetful = false;
    soon(guest.stat("/again", false)).await.unwrap();
    assert_ne!(guest.agent_id(), before);
}

#[tokio::test]
async fn the_dial_after_an_adoption_takes_everything_up_with_the_new_token() {
    let agent = Agent::listen();
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    let before = guest.agent_id();
    let (mut output, _, _) = soon(guest.read_file("/f", 0, Some(1_000_000))).await.unwrap();
    let adopted = soon(guest.adopt(Adoption::default())).await.unwrap();
    assert_ne!(adopted.agent, before);
    assert_eq!(guest.agent_id(), adopted.agent, "no new link was needed to know it");
    agent.cut();
    assert_eq!(read_pattern(&mut output, 0).await, 1_000_000);
    assert_eq!(guest.agent_id(), adopted.agent);
    assert_eq!(agent.world().links, 2);
    // A request without a waiting caller still counts.
    drop(guest.adopt(Adoption::default()));
    let forgotten = guest.clone();
    let asking = tokio::spawn(async move { forgotten.adopt(Adoption::default()).await });
    until(|| agent.world().carried_out.iter().filter(|name| **name == "adopt").count() == 2).await;
    asking.abort();
    until(|| guest.agent_id() != adopted.agent).await;
    agent.cut();
    soon(guest.stat("/f", false)).await.unwrap();
}

#[tokio::test]
async fn a_flow_goes_on_over_cuts_that_take_the_answers_of_adoptions() {
    let agent = Agent::listen();
    agent.world().link_bytes_max = Some(70_001);
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    let length = 2_000_000;
    let (mut output, _, _) = soon(guest.read_file("/f", 0, Some(length))).await.unwrap();
    let adopting = async {
        let mut id = guest.agent_id();
        for _ in 0..30 {
            let adopted = guest.adopt(Adoption::default()).await.unwrap();
            assert_ne!(std::mem::replace(&mut id, adopted.agent), adopted.agent);
        }
    };
    let (read, ()) = tokio::join!(read_pattern(&mut output, 0), soon(adopting));
    assert_eq!(read, length);
    let links = agent.world().links;
    assert!(links > 25, "{links} links");
}

#[tokio::test]
async fn a_guest_without_an_address_is_lost_with_its_link() {
    let (agent, theirs) = Agent::pair();
    let guest = Guest::over(theirs, None, quick()).await.unwrap();
    let waiting = guest.wait_now(&id("none"));
    let (mut output, _, _) = soon(guest.read_file("/f", 0, None)).await.unwrap();
    agent.cut();
    assert!(matches!(soon(guest.lost()).await, LinkError::Closed | LinkError::Broken(_)));
    assert!(soon(waiting.unwrap()).await.is_err());
    // What had arrived is still there, and the failure follows it, repeatedly.
    while let Piece::Bytes { .. } = soon(output.next()).await {}
    assert!(matches!(soon(output.next()).await, Piece::Failed(GuestError::Link(_))));
    assert!(matches!(guest.start_now(&start("x", "a")), Err(GuestError::Link(_))));
}

#[tokio::test]
async fn dialling_again_ends_at_its_deadline() {
    let agent = Agent::listen();
    let options = Options { dial_deadline: Duration::from_millis(80), ..quick() };
    let guest = soon(Guest::connect(agent.address(), options)).await.unwrap();
    std::fs::remove_file(agent.address().path().unwrap()).unwrap();
    agent.cut();
    assert!(matches!(soon(guest.lost()).await, LinkError::Dial { .. }));
}

#[tokio::test]
async fn a_guest_that_is_given_up_while_the_link_is_down_ends_at_once() {
    let agent = Agent::listen();
    let guest = soon(Guest::connect(agent.address(), quick())).await.unwrap();
    std::fs::remove_file(agent.address().path().unwrap()).unwrap();
    agent.cut();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let lost = guest.lost();
    drop(guest);
    assert!(matches!(soon(lost).await, LinkError::Closed));
}

#[tokio::test]
async fn an_inherited_link_goes_on_at_the_address_it_was_given() {
    let agent = Agent::listen();
    let stream = std::os::unix::net::UnixStream::connect(agent.address().path().unwrap()).unwrap();
    let guest = soon(Guest::over(stream, Some(agent.address()), quick())).await.unwrap();
    agent.cut();
    soon(guest.stat("/f", false)).await.unwrap();
    assert_eq!(agent.world().links, 2);
}
