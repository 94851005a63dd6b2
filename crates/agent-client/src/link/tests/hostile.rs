//! A guest that lies. It loses its link with a typed error, or its lie means nothing; the host never
//! panics, hangs or grows.

use std::time::Duration;

use protocol::codec::{encode_body, encode_message};
use protocol::frame::Kind;
use protocol::hello::{Goodbye, GoodbyeReason};
use protocol::limits::{CHUNK_BYTES_MAX, CREDIT_BYTES_INITIAL};
use protocol::message::{Channel, InputOpened, Reply, Subscribed};
use protocol::requests::{Origin, Role};
use protocol::stream::{Ack, Fin, Gap};
use protocol::{Fault, FaultCode};

use super::agent::Agent;
use super::raw::{Raw, data, frame};
use super::{id, quick, soon};
use crate::guest::{Guest, GuestError, Output, Piece};
use crate::link::limits::GOODBYE_HEARD_MAX;
use crate::link::{LinkError, Options, Timing};

/// A guest with one subscription at offset 0 on stream 0.
pub(super) async fn subscribed() -> (Raw, Guest, Output) {
    let (mut raw, guest) = Raw::meet().await;
    let (output, answer) = guest
        .subscribe_now(&id("s"), Channel::Stdout, Origin::Oldest {}, Role::Observer {})
        .unwrap();
    let (request, _) = raw.next_request().await;
    raw.reply(request, Reply::Subscribed(Subscribed { from: 0, oldest: 0, end: 0 })).await;
    soon(answer).await.unwrap();
    (raw, guest, output)
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_guest_with_a_goodbye() {
    let many = CREDIT_BYTES_INITIAL as usize;
    let mut beyond_credit = Vec::new();
    for at in (0..=many).step_by(CHUNK_BYTES_MAX) {
        beyond_credit.extend(data(0, at as u64, &vec![0; CHUNK_BYTES_MAX]));
    }
    let ack = Ack { consumed: 9, up_to: 9, finished: true };
    let lies: Vec<(&str, Vec<u8>)> = vec![
        ("an oversized frame", vec![0xff; 64]),
        ("a frame without a header", vec![0, 0, 0, 3, 1, 2, 3]),
        ("an unknown kind", vec![0, 0, 0, 9, 99, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("a request", frame(Kind::Request, 0, &[0x80])),
        ("a hello", frame(Kind::Hello, 0, &[0x80])),
        ("a second welcome", frame(Kind::Welcome, 0, &[0x80])),
        ("a reply that is no message", frame(Kind::Data, 0, b"\xc1")),
        ("an ack of a stream that only comes in", frame(Kind::Ack, 0, &encode_body(&ack))),
        ("data beyond its credit", beyond_credit),
        ("data with a hole", data(0, 5, b"hole")),
        ("data at the end of all offsets", data(0, u64::MAX, b"x")),
        ("a chunk that is too large", data(0, 0, &vec![0; CHUNK_BYTES_MAX + 1])),
        ("a gap that goes back", frame(Kind::Gap, 0, &encode_body(&Gap { from: 4, to: 2 }))),
        ("a gap to the end of all offsets", {
            frame(Kind::Gap, 0, &encode_body(&Gap { from: 0, to: u64::MAX }))
        }),
        ("an end before the end", frame(Kind::Fin, 0, &encode_body(&Fin { offset: 7 }))),
        ("deep nesting", frame(Kind::Fin, 0, &[0x91; 4096])),
    ];
    for (what, bytes) in lies {
        let (mut raw, guest, mut output) = subscribed().await;
        raw.send_bytes(&bytes).await;
        let lost = soon(guest.lost()).await;
        assert!(matches!(lost, LinkError::Protocol(_)), "{what}: {lost}");
        while let Piece::Bytes { .. } = soon(output.next()).await {}
        let failed = soon(output.next()).await;
        assert!(matches!(failed, Piece::Failed(GuestError::Link(_))), "{what}: {failed:?}");
        assert_eq!(soon(raw.next_goodbye()).await.reason, GoodbyeReason::Protocol, "{what}");
    }
}

#[tokio::test]
async fn a_link_is_closed_when_the_agent_has_hung_up() {
    let (mut raw, guest) = Raw::meet().await;
    let mut closing = tokio::spawn(guest.close());
    assert_eq!(soon(raw.next_goodbye()).await.reason, GoodbyeReason::Finished);
    // Its remaining output is read, and is not yet the end.
    raw.send_bytes(&vec![0xff; 64 << 10]).await;
    let early = tokio::time::timeout(GOODBYE_HEARD_MAX / 5, &mut closing).await;
    assert!(early.is_err(), "the agent has not hung up");
    drop(raw);
    soon(closing).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_never_hangs_up_holds_nobody_up() {
    let (raw, guest) = Raw::meet().await;
    let began = tokio::time::Instant::now();
    soon(guest.close()).await;
    assert!(began.elapsed() >= GOODBYE_HEARD_MAX, "{:?}", began.elapsed());
    drop(raw);
}

#[tokio::test]
async fn an_answer_to_another_question_ends_the_guest() {
    let (mut raw, guest) = Raw::meet().await;
    let stat = guest.stat("/f", false);
    let lie = async {
        let (request, _) = raw.next_request().await;
        raw.reply(request, Reply::Input(InputOpened { at: 0 })).await;
    };
    let (answer, ()) = tokio::join!(soon(stat), lie);
    let error = answer.unwrap_err();
    let wrong = LinkError::WrongReply { request: "stat", reply: "input" };
    assert_eq!(error.to_string(), wrong.to_string());
}

#[tokio::test]
async fn a_stream_that_begins_at_the_end_of_all_offsets_ends_the_guest() {
    let (mut raw, guest) = Raw::meet().await;
    let (mut writer, opened) = guest.input_now(&id("s"), None, false).unwrap();
    writer.write(b"early").await.unwrap();
    let (request, _) = raw.next_request().await;
    raw.reply(request, Reply::Input(InputOpened { at: u64::MAX - 2 })).await;
    assert!(soon(opened).await.is_err());
    assert!(matches!(soon(guest.lost()).await, LinkError::Protocol(_)));
}

#[tokio::test]
async fn frames_about_nothing_mean_nothing() {
    let (mut raw, guest, mut output) = subscribed().await;
    let fault = Fault::new(FaultCode::Gone, "x".repeat(100_000));
    for number in 0..2000_u64 {
        // Odd ids, future ids, unknown ids.
        for stream in [1, 2, 7_000_000, u64::MAX - 1] {
            raw.send(Kind::Reset, stream + (number % 2), &Fault::new(FaultCode::Io, "no")).await;
            raw.send_bytes(&data(stream, number, b"nobody asked")).await;
            raw.send(Kind::Fin, stream, &Fin { offset: number }).await;
        }
        raw.reply(1_000_000 + number, Reply::Done {}).await;
        raw.send_bytes(&frame(Kind::Pong, number, &[])).await;
    }
    raw.send_bytes(&data(0, 0, b"asked")).await;
    raw.send(Kind::Reset, 0, &fault).await;
    assert!(matches!(soon(output.next()).await, Piece::Bytes { bytes, .. } if bytes == b"asked"));
    match soon(output.next()).await {
        Piece::Failed(GuestError::Fault(fault)) => {
            assert!(fault.message.len() <= protocol::limits::TEXT_BYTES_MAX, "texts are cut");
        }
        other => panic!("{other:?}"),
    }
    let sessions = guest.sessions(0);
    let answering = async {
        let (request, _) = raw.next_request().await;
        raw.reply(request, Reply::Sessions(protocol::message::SessionList::default())).await;
    };
    let (list, ()) = tokio::join!(soon(sessions), answering);
    list.unwrap();
}

#[tokio::test]
async fn a_flood_of_pings_from_a_guest_that_does_not_read_ends_it() {
    let (mut raw, guest) = Raw::meet().await;
    let pings = frame(Kind::Ping, 1, &[]).repeat(10_000);
    let flood = async {
        loop {
            raw.send_bytes(&pings).await;
            tokio::task::yield_now().await;
        }
    };
    let lost = soon(async {
        tokio::select! {
            lost = guest.lost() => lost,
            () = flood => unreachable!("it floods for ever"),
        }
    })
    .await;
    assert!(
        matches!(lost, LinkError::Protocol(protocol::mux::ProtocolError::NotReading { .. })),
        "{lost}"
    );
}

#[tokio::test]
async fn crumbs_are_joined_and_crumbs_between_gaps_are_bounded() {
    let (mut raw, guest, mut output) = subscribed().await;
    let crumbs: Vec<u8> = (0..5000_u64).flat_map(|at| data(0, at, b"c")).collect();
    raw.send_bytes(&crumbs).await;
    raw.reply(77, Reply::Done {}).await;
    let mut pieces = 0;
    let mut bytes_in_all = 0;
    while bytes_in_all < 5000 {
        match soon(output.next()).await {
            Piece::Bytes { bytes, .. } => bytes_in_all += bytes.len(),
            other => panic!("{other:?}"),
        }
        pieces += 1;
    }
    assert!(pieces < 50, "{pieces} pieces");
    for at in 0..5000_u64 {
        let at = 5000 + 2 * at;
        raw.send(Kind::Gap, 0, &Gap { from: at, to: at + 1 }).await;
        raw.send_bytes(&data(0, at + 1, b"c")).await;
    }
    assert!(matches!(soon(guest.lost()).await, LinkError::TooManyPieces { stream: 0, .. }));
}

#[tokio::test]
async fn a_flood_of_gaps_is_one_gap() {
    let (mut raw, _guest, mut output) = subscribed().await;
    for at in 0..5000_u64 {
        raw.send(Kind::Gap, 0, &Gap { from: at, to: at + 1 }).await;
    }
    raw.send_bytes(&data(0, 5000, b"after")).await;
    let (mut gaps, mut at) = (0, 0);
    loop {
        match soon(output.next()).await {
            Piece::Gap { from, to } => {
                assert_eq!(from, at, "gaps have no gaps");
                at = to;
                gaps += 1;
            }
            Piece::Bytes { bytes, .. } => break assert_eq!(bytes, b"after"),
            other => panic!("{other:?}"),
        }
    }
    assert!(gaps < 1000, "{gaps} gaps");
}

#[tokio::test]
async fn a_silent_guest_is_pinged_and_then_given_up() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let timing = Timing {
        heartbeat: Duration::from_millis(20),
        silence_max: Duration::from_millis(150),
        ..quick().timing
    };
    let options = Options { timing, ..quick() };
    let mut silent = tokio::net::UnixStream::from_std(ours).unwrap();
    let mut bytes = Vec::new();
    encode_message(Kind::Welcome, 0, &super::agent::welcome(1), &mut bytes);
    tokio::io::AsyncWriteExt::write_all(&mut silent, &bytes).await.unwrap();
    let guest = soon(Guest::over(theirs, None, options)).await.unwrap();
    let lost = soon(guest.lost()).await;
    assert!(matches!(lost, LinkError::Silent { silence } if silence >= timing.silence_max));
    let mut received = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut received).await.unwrap();
    let ping = frame(Kind::Ping, 1, &[]);
    let pings = received.windows(5).filter(|window| *window == &ping[..5]).count();
    assert!((2..=8).contains(&pings), "{pings} pings");
}

#[tokio::test]
async fn a_goodbye_is_noticed_even_when_the_link_breaks_under_a_write() {
    let (mut raw, guest) = Raw::meet().await;
    let goodbye = Goodbye { reason: GoodbyeReason::Stopping, message: "off".to_owned() };
    raw.send(Kind::Goodbye, 0, &goodbye).await;
    drop(raw);
    // Queued before the driver gets its turn, so that it writes first.
    let answer = guest.stat("/f", false);
    assert!(soon(answer).await.is_err());
    let lost = soon(guest.lost()).await;
    assert!(matches!(lost, LinkError::Refused { reason: GoodbyeReason::Stopping, .. }), "{lost}");
}

#[tokio::test]
async fn a_guest_that_hangs_up_after_every_welcome_is_not_dialled_in_a_frenzy() {
    let agent = Agent::listen();
    let timing = Timing { steady_after: Duration::from_secs(1), ..quick().timing };
    let guest = soon(Guest::connect(agent.address(), Options { timing, ..quick() })).await.unwrap();
    let mut welcome = Vec::new();
    encode_message(Kind::Welcome, 0, &super::agent::welcome(1), &mut welcome);
    agent.world().link_bytes_max = Some(welcome.len());
    agent.cut();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let links = agent.world().links;
    assert!((3..12).contains(&links), "{links} links in 300 ms");
    drop(guest);
}

#[tokio::test]
async fn an_acknowledgement_of_what_was_never_sent_ends_the_guest() {
    let (mut raw, guest) = Raw::meet().await;
    let (mut writer, opened) = guest.input_now(&id("s"), None, false).unwrap();
    let (request, _) = raw.next_request().await;
    raw.reply(request, Reply::Input(InputOpened { at: 10 })).await;
    soon(opened).await.unwrap();
    writer.write(b"abc").await.unwrap();
    assert_eq!(writer.offset(), Some(13));
    assert_eq!(soon(raw.next()).await.0, Kind::Data);
    raw.send(Kind::Ack, 0, &Ack { consumed: 14, up_to: u64::MAX, finished: false }).await;
    assert!(matches!(soon(guest.lost()).await, LinkError::Protocol(_)));
    assert!(soon(writer.write(b"more")).await.is_err());
}
