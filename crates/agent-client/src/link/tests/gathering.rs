//! What waits for something to go out with: the release of a session that has ended, the end of a stream,
//! an acknowledgement that only the smallest spool needs.

use protocol::codec::decode_body;
use protocol::frame::Kind;
use protocol::limits::{CHUNK_BYTES_MAX, CREDIT_BYTES_INITIAL};
use protocol::message::Request;
use protocol::stream::{Ack, Fin};
use tokio::task::yield_now;

use super::hostile::subscribed;
use super::raw::{Raw, data};
use super::{id, soon};
use crate::guest::{Output, Piece};

/// The driver has had its turns by then, and no timer has: tasks that are ready go before time.
const TURNS: usize = 20;

async fn take_turns() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}

/// The next acknowledgement that the host sends.
async fn next_ack(raw: &mut Raw) -> Ack {
    let (kind, _, body) = soon(raw.next()).await;
    assert_eq!(kind, Kind::Ack);
    decode_body(kind, &body).unwrap()
}

/// Reads so many bytes, and asks for more.
async fn read(output: &mut Output, mut count: usize) {
    while count > 0 {
        let Piece::Bytes { bytes, .. } = soon(output.next()).await else { panic!("no bytes") };
        count -= bytes.len();
    }
    let next = output.next();
    tokio::select! {
        biased;
        piece = next => panic!("{piece:?}"),
        () = yield_now() => {}
    }
}

/// A program that ends at once is forgotten when its recorder has read it: its other readers must have asked
/// by then.
#[tokio::test(start_paused = true)]
async fn the_requests_of_a_batch_go_out_together() {
    let (mut raw, guest) = Raw::meet().await;
    let (one, other) = (guest.batch(), guest.batch());
    let wait = guest.wait_now(&id("s")).unwrap();
    take_turns().await;
    drop(one);
    take_turns().await;
    assert!(raw.receives_nothing(), "one batch is not complete");
    let second = guest.wait_now(&id("t")).unwrap();
    drop(other);
    take_turns().await;
    for session in ["s", "t"] {
        let (_, sent) = raw.next_request().await;
        assert!(matches!(sent.request, Request::Wait { session: it } if it == id(session)));
    }
    drop((wait, second));
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_the_next_request_and_keeps_its_place() {
    let (mut raw, guest) = Raw::meet().await;
    guest.release_later(id("s")).unwrap();
    take_turns().await;
    assert!(raw.receives_nothing(), "it waits");
    let answer = guest.refresh_info();
    let first = async {
        let (_, first) = raw.next_request().await;
        let (_, second) = raw.next_request().await;
        (first.request, second.request)
    };
    tokio::select! {
        _ = answer => panic!("nobody has answered"),
        (first, second) = first => {
            assert!(matches!(first, Request::Release(release) if release.session == id("s")));
            assert!(matches!(second, Request::Info {}));
        }
    }
}

#[tokio::test]
async fn a_release_that_nothing_follows_goes_out_by_itself() {
    let (mut raw, guest) = Raw::meet().await;
    guest.release_later(id("s")).unwrap();
    let (_, body) = soon(raw.next_request()).await;
    assert!(matches!(body.request, Request::Release(_)));
    // And again, when the timer has been used once.
    guest.release_later(id("t")).unwrap();
    let (_, body) = soon(raw.next_request()).await;
    assert!(matches!(body.request, Request::Release(release) if release.session == id("t")));
}

#[tokio::test]
async fn a_release_goes_out_with_a_link_that_is_closed() {
    let (mut raw, guest) = Raw::meet().await;
    guest.release_later(id("s")).unwrap();
    drop(guest);
    let (_, body) = soon(raw.next_request()).await;
    assert!(matches!(body.request, Request::Release(_)));
    soon(raw.next_goodbye()).await;
}

#[tokio::test]
async fn the_end_of_a_stream_that_was_read_is_acknowledged_by_itself() {
    let (mut raw, _guest, mut output) = subscribed().await;
    raw.send(Kind::Fin, 0, &Fin { offset: 0 }).await;
    assert!(matches!(soon(output.next()).await, Piece::End));
    let ack = next_ack(&mut raw).await;
    assert!(ack.finished && ack.consumed == 0, "{ack:?}");
}

/// Nothing else comes here that the acknowledgement could go out with, and the window is far from used: a
/// sender with a spool of one chunk would wait forever.
#[tokio::test]
async fn a_sender_with_the_smallest_spool_learns_of_its_room() {
    let (mut raw, _guest, mut output) = subscribed().await;
    for number in 0..3 {
        let at = number * CHUNK_BYTES_MAX as u64;
        raw.send_bytes(&data(0, at, &vec![0; CHUNK_BYTES_MAX])).await;
        read(&mut output, CHUNK_BYTES_MAX).await;
        let ack = next_ack(&mut raw).await;
        assert_eq!(ack.consumed, at + CHUNK_BYTES_MAX as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_acknowledged_once_for_half_of_its_window() {
    let (mut raw, _guest, mut output) = subscribed().await;
    let half = CREDIT_BYTES_INITIAL as usize / 2;
    for at in (0..half).step_by(CHUNK_BYTES_MAX) {
        raw.send_bytes(&data(0, at as u64, &vec![0; CHUNK_BYTES_MAX])).await;
    }
    read(&mut output, half).await;
    let ack = next_ack(&mut raw).await;
    assert_eq!((ack.consumed, ack.up_to), (half as u64, half as u64 + CREDIT_BYTES_INITIAL));
    take_turns().await;
    assert!(raw.receives_nothing(), "nothing more is owed");
}
