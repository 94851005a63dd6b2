//! Two ends, frame by frame. What they do over a link that breaks is `tests/simulation`.

use std::collections::BTreeMap;

use super::*;
use crate::codec::FrameBuffer;
use crate::hello::GoodbyeReason;
use crate::limits::{CREDIT_BYTES_INITIAL, SPOOL_BYTES_MIN};

const STREAM: StreamId = StreamId(2);

/// Streams of zeros with an end.
#[derive(Default)]
struct Zeros(BTreeMap<StreamId, Range>);

#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    ended: bool,
}

impl Zeros {
    fn with(stream: StreamId, end: u64, ended: bool) -> Self {
        let mut zeros = Self::default();
        zeros.set(stream, Range { start: 0, end, ended });
        zeros
    }

    fn set(&mut self, stream: StreamId, range: Range) {
        self.0.insert(stream, range);
    }
}

impl Source for Zeros {
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        let Some(range) = self.0.get(&stream) else { return Fetched::Nothing };
        if from < range.start {
            return Fetched::Gap { to: range.start };
        }
        if from == range.end {
            return if range.ended { Fetched::End } else { Fetched::Nothing };
        }
        let count = ((range.end - from) as usize).min(max);
        out.resize(out.len() + count, 0);
        Fetched::Bytes(count)
    }
}

/// The frames that one end sends, as kinds, ids and lengths of bodies.
type Sent = Vec<(Kind, u64, Vec<u8>)>;

fn transmit(mux: &mut Mux, source: &mut Zeros) -> Sent {
    let mut out = Vec::new();
    mux.transmit(source, &mut out, usize::MAX);
    frames(&out)
}

fn frames(bytes: &[u8]) -> Sent {
    let mut buffer = FrameBuffer::new();
    buffer.extend(bytes);
    let mut sent = Vec::new();
    while let Some(frame) = buffer.take().expect("frames") {
        sent.push((frame.kind, frame.id, frame.body.to_vec()));
    }
    assert!(buffer.is_empty(), "whole frames are sent");
    sent
}

fn kinds(sent: &Sent) -> Vec<Kind> {
    sent.iter().map(|(kind, _, _)| *kind).collect()
}

/// Passes frames on; returns their meaning, as text that is easy to compare.
fn deliver(to: &mut Mux, sent: &Sent) -> Vec<String> {
    let mut meanings = Vec::new();
    for (kind, id, body) in sent {
        let meaning = accept(to, *kind, *id, body).expect("an honest peer");
        meanings.push(meaning);
    }
    meanings
}

fn accept(mux: &mut Mux, kind: Kind, id: u64, body: &[u8]) -> Result<String, ProtocolError> {
    Ok(match mux.accept(Frame { kind, id, body })? {
        Incoming::Data { stream, offset, bytes } => {
            format!("data {} {offset}+{}", stream.0, bytes.len())
        }
        Incoming::Gap { stream, from, to } => format!("gap {} {from}..{to}", stream.0),
        Incoming::Fin { stream } => format!("fin {}", stream.0),
        Incoming::Acked { stream, offset, done } => format!("acked {} {offset} {done}", stream.0),
        Incoming::Reset { stream, fault } => format!("reset {} {fault}", stream.0),
        Incoming::Request { id, .. } => format!("request {}", id.0),
        Incoming::Reply { id, .. } => format!("reply {}", id.0),
        Incoming::Goodbye(goodbye) => format!("goodbye {}", goodbye.message),
        Incoming::Nothing => "nothing".to_owned(),
    })
}

fn data(offset: u64, length: usize) -> Vec<u8> {
    let mut body = Vec::new();
    data::encode_prefix(offset, length as u32, &mut body);
    body.resize(body.len() + length, 0);
    body
}

fn body<T: serde::Serialize>(message: &T) -> Vec<u8> {
    crate::codec::encode_body(message)
}

fn ack(consumed: u64, up_to: u64, finished: bool) -> Vec<u8> {
    body(&Ack { consumed, up_to, finished })
}

/// An end with one open stream.
fn end(side: Side, direction: Direction) -> Mux {
    let mut mux = Mux::new(side);
    mux.open(STREAM, direction, 0).expect("the first stream");
    mux
}

fn pair() -> (Mux, Mux) {
    (end(Side::Agent, Direction::Out), end(Side::Host, Direction::In))
}

#[test]
fn a_sender_stops_at_its_credit_and_goes_on_with_the_acknowledgement() {
    let (mut agent, mut host) = pair();
    let mut source = Zeros::with(STREAM, 10 * CREDIT_BYTES_INITIAL, false);
    let first = transmit(&mut agent, &mut source);
    let chunks = CREDIT_BYTES_INITIAL as usize / CHUNK_BYTES_MAX;
    assert_eq!(kinds(&first), vec![Kind::Data; chunks]);
    assert!(transmit(&mut agent, &mut source).is_empty());
    deliver(&mut host, &first);
    assert!(transmit(&mut host, &mut Zeros::default()).is_empty(), "nothing was taken yet");
    assert!(host.consumed(STREAM, 40_000));
    let positions = transmit(&mut host, &mut Zeros::default());
    assert_eq!(deliver(&mut agent, &positions), ["acked 2 40000 false"]);
    let second = transmit(&mut agent, &mut source);
    assert_eq!(deliver(&mut host, &second), [format!("data 2 {CREDIT_BYTES_INITIAL}+40000")]);
}

#[test]
fn small_pieces_are_acknowledged_together() {
    let (_, mut host) = pair();
    let step = SPOOL_BYTES_MIN as u64 / 2;
    deliver(&mut host, &vec![(Kind::Data, 2, data(0, 40_000))]);
    assert!(!host.consumed(STREAM, step - 1));
    assert!(!host.has_work());
    assert!(host.consumed(STREAM, step));
    assert!(!host.consumed(STREAM, step + 1), "it waits already");
    assert_eq!(kinds(&transmit(&mut host, &mut Zeros::default())), [Kind::Ack]);
}

#[test]
fn the_end_is_sent_acknowledged_and_then_forgotten_by_both() {
    let (mut agent, mut host) = pair();
    let mut source = Zeros::with(STREAM, 5, true);
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(deliver(&mut host, &sent), ["data 2 0+5", "fin 2"]);
    assert!(!host.has_work(), "the bytes before the end have not been taken");
    assert!(host.consumed(STREAM, 5));
    let positions = transmit(&mut host, &mut Zeros::default());
    assert_eq!((host.is_open(STREAM), host.take_completed()), (false, vec![STREAM]));
    assert_eq!(deliver(&mut agent, &positions), ["acked 2 5 true"]);
    assert_eq!((agent.is_open(STREAM), agent.take_completed()), (false, vec![STREAM]));
    assert!(!agent.has_work() || transmit(&mut agent, &mut source).is_empty());
}

#[test]
fn an_end_that_comes_after_all_was_taken_is_acknowledged_at_once() {
    let (mut agent, mut host) = pair();
    let mut source = Zeros::with(STREAM, 5, false);
    let sent = transmit(&mut agent, &mut source);
    deliver(&mut host, &sent);
    host.consumed(STREAM, 5);
    source.set(STREAM, Range { start: 0, end: 5, ended: true });
    agent.wake(STREAM);
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(deliver(&mut host, &sent), ["fin 2"]);
    let positions = transmit(&mut host, &mut Zeros::default());
    assert_eq!(deliver(&mut agent, &positions), ["acked 2 5 true"]);
}

#[test]
fn an_empty_stream_is_nothing_but_its_end() {
    let (mut agent, mut host) = pair();
    let sent = transmit(&mut agent, &mut Zeros::with(STREAM, 0, true));
    assert_eq!(deliver(&mut host, &sent), ["fin 2"]);
    let positions = transmit(&mut host, &mut Zeros::default());
    assert_eq!(deliver(&mut agent, &positions), ["acked 2 0 true"]);
}

#[test]
fn bytes_that_are_gone_come_as_a_gap_which_needs_no_credit_of_its_own() {
    let (mut agent, mut host) = pair();
    let far = 10 * CREDIT_BYTES_INITIAL;
    let mut source = Zeros::default();
    source.set(STREAM, Range { start: far, end: far + 10, ended: true });
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(deliver(&mut host, &sent), [format!("gap 2 0..{far}")]);
    assert!(host.consumed(STREAM, far), "a gap is taken like bytes");
    let positions = transmit(&mut host, &mut Zeros::default());
    deliver(&mut agent, &positions);
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(deliver(&mut host, &sent), [format!("data 2 {far}+10"), "fin 2".to_owned()]);
}

/// A regression: each write of a fast program cost a gap frame for a stalled viewer.
#[test]
fn a_viewer_that_stops_reading_gets_one_gap_when_it_goes_on() {
    let (mut agent, mut host) = pair();
    let mut source = Zeros::with(STREAM, CREDIT_BYTES_INITIAL, false);
    let sent = transmit(&mut agent, &mut source);
    deliver(&mut host, &sent);
    for start in CREDIT_BYTES_INITIAL + 1..CREDIT_BYTES_INITIAL + 100 {
        source.set(STREAM, Range { start, end: start + 10, ended: false });
        agent.wake(STREAM);
        assert!(transmit(&mut agent, &mut source).is_empty());
    }
    host.consumed(STREAM, CREDIT_BYTES_INITIAL);
    let positions = transmit(&mut host, &mut Zeros::default());
    deliver(&mut agent, &positions);
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(kinds(&sent), [Kind::Gap, Kind::Data]);
}

#[test]
fn control_goes_before_acknowledgements_and_those_before_data() {
    let mut mux = end(Side::Agent, Direction::Both);
    let mut source = Zeros::with(STREAM, 10, false);
    deliver(&mut mux, &vec![(Kind::Data, 2, data(0, 50_000))]);
    mux.consumed(STREAM, 50_000);
    mux.ping();
    let sent = transmit(&mut mux, &mut source);
    assert_eq!(kinds(&sent), [Kind::Ping, Kind::Ack, Kind::Data]);
}

#[test]
fn a_flood_delays_another_stream_by_no_more_than_a_chunk_of_each() {
    let mut mux = Mux::new(Side::Agent);
    let mut source = Zeros::default();
    let floods = 5;
    for id in 0..floods {
        mux.open(StreamId(id), Direction::Out, 0).expect("few streams");
        let end = 100 * CREDIT_BYTES_INITIAL;
        source.set(StreamId(id), Range { start: 0, end, ended: false });
    }
    let mut out = Vec::new();
    mux.transmit(&mut source, &mut out, 3 * CHUNK_BYTES_MAX);
    mux.open(STREAM_OF_A_TYPIST, Direction::Out, 0).expect("few streams");
    source.set(STREAM_OF_A_TYPIST, Range { start: 0, end: 1, ended: false });
    let sent = transmit(&mut mux, &mut source);
    let before = sent.iter().take_while(|(_, id, _)| *id != STREAM_OF_A_TYPIST.0);
    let mut chunks = BTreeMap::new();
    before.for_each(|(_, id, _)| *chunks.entry(*id).or_insert(0) += 1);
    assert!(chunks.values().all(|count| *count <= 1), "{chunks:?}");
}

const STREAM_OF_A_TYPIST: StreamId = StreamId(100);

#[test]
fn transmit_stops_at_its_target_with_whole_frames() {
    let mut mux = end(Side::Agent, Direction::Out);
    for _ in 0..10 {
        mux.ping();
    }
    let mut source = Zeros::with(STREAM, CREDIT_BYTES_INITIAL, false);
    let mut total = 0;
    while mux.has_work() {
        let mut out = Vec::new();
        mux.transmit(&mut source, &mut out, 20);
        assert!(out.len() < 20 + CHUNK_BYTES_MAX + 2 * HEADER_BYTES + data::DATA_PREFIX_BYTES);
        total += frames(&out).len();
    }
    assert_eq!(total, 10 + 4);
}

#[test]
fn bytes_that_came_before_are_skipped() {
    let (_, mut host) = pair();
    let sent = vec![
        (Kind::Data, 2, data(0, 10)),
        (Kind::Data, 2, data(0, 10)),
        (Kind::Data, 2, data(5, 10)),
        (Kind::Data, 2, data(3, 2)),
        (Kind::Fin, 2, body(&Fin { offset: 15 })),
        (Kind::Fin, 2, body(&Fin { offset: 15 })),
        (Kind::Gap, 2, body(&Gap { from: 0, to: 15 })),
        (Kind::Data, 2, data(14, 1)),
    ];
    let meanings = deliver(&mut host, &sent);
    let expected = ["data 2 0+10", "nothing", "data 2 10+5", "nothing", "fin 2"];
    assert_eq!(meanings[..5], expected);
    assert!(meanings[5..].iter().all(|meaning| meaning == "nothing"));
}

fn refusal(mux: &mut Mux, kind: Kind, body: &[u8]) -> ProtocolError {
    accept(mux, kind, STREAM.0, body).expect_err("against the protocol")
}

#[test]
fn a_receiver_refuses_what_its_sender_must_not_send() {
    let stream = STREAM.0;
    let granted = CREDIT_BYTES_INITIAL;
    let receiver = || {
        let (_, mut host) = pair();
        deliver(&mut host, &vec![(Kind::Data, 2, data(0, 10))]);
        host
    };
    let refused = |kind, body: &[u8]| refusal(&mut receiver(), kind, body);
    assert_eq!(
        refused(Kind::Data, &data(11, 1)),
        StreamError::Hole { stream, offset: 11, next: 10 }.into()
    );
    assert_eq!(
        refused(Kind::Data, &data(u64::MAX, 1)),
        StreamError::Overflow { stream, offset: u64::MAX }.into()
    );
    assert_eq!(
        refused(Kind::Fin, &body(&Fin { offset: 9 })),
        StreamError::WrongEnd { stream, end: 9, next: 10 }.into()
    );
    assert_eq!(
        refused(Kind::Fin, &body(&Fin { offset: 11 })),
        StreamError::WrongEnd { stream, end: 11, next: 10 }.into()
    );
    for (from, to) in [(9, 12), (11, 12), (12, 5), (10, 9)] {
        assert_eq!(
            refused(Kind::Gap, &body(&Gap { from, to })),
            StreamError::WrongGap { stream, from, to, next: 10 }.into()
        );
    }
    let to = u64::MAX;
    assert_eq!(
        refused(Kind::Gap, &body(&Gap { from: 10, to })),
        StreamError::Overflow { stream, offset: to }.into()
    );
    let mut host = receiver();
    for offset in (10..granted).step_by(1000) {
        let length = (granted - offset).min(1000) as usize;
        deliver(&mut host, &vec![(Kind::Data, 2, data(offset, length))]);
    }
    assert_eq!(
        refusal(&mut host, Kind::Data, &data(granted, 1)),
        StreamError::BeyondCredit { stream, end: granted + 1, granted }.into()
    );
    let mut host = receiver();
    deliver(&mut host, &vec![(Kind::Fin, 2, body(&Fin { offset: 10 }))]);
    assert_eq!(
        refusal(&mut host, Kind::Data, &data(10, 1)),
        StreamError::AfterEnd { stream, end: 10 }.into()
    );
    assert_eq!(
        refusal(&mut host, Kind::Gap, &body(&Gap { from: 10, to: 11 })),
        StreamError::WrongGap { stream, from: 10, to: 11, next: 10 }.into()
    );
}

#[test]
fn a_chunk_that_is_too_large_and_a_body_that_is_no_data_are_refused() {
    let (_, mut host) = pair();
    for wrong in [data(0, CHUNK_BYTES_MAX + 1), b"\xc0".to_vec()] {
        let error = refusal(&mut host, Kind::Data, &wrong);
        assert!(matches!(error, ProtocolError::Body(BodyError { kind: "data", .. })), "{error}");
    }
}

#[test]
fn a_sender_refuses_acknowledgements_of_what_it_never_sent() {
    let (mut agent, _) = pair();
    transmit(&mut agent, &mut Zeros::with(STREAM, 10, false));
    assert_eq!(
        refusal(&mut agent, Kind::Ack, &ack(11, 0, false)),
        StreamError::AckBeyondSent { stream: 2, acked: 11, next: 10 }.into()
    );
    // An end that was not sent is not acknowledged by saying so.
    assert_eq!(accept(&mut agent, Kind::Ack, 2, &ack(10, 20, true)), Ok("acked 2 10 false".into()));
    assert!(agent.is_open(STREAM));
}

#[test]
fn an_older_acknowledgement_takes_nothing_back() {
    let (mut agent, _) = pair();
    let mut source = Zeros::with(STREAM, 2 * CREDIT_BYTES_INITIAL, false);
    transmit(&mut agent, &mut source);
    let granted = CREDIT_BYTES_INITIAL + 50;
    let newer = ack(100, granted, false);
    assert_eq!(accept(&mut agent, Kind::Ack, 2, &newer), Ok("acked 2 100 false".into()));
    assert_eq!(accept(&mut agent, Kind::Ack, 2, &ack(40, 0, false)), Ok("nothing".into()));
    assert_eq!(accept(&mut agent, Kind::Ack, 2, &newer), Ok("nothing".into()));
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(sent, [(Kind::Data, 2, data(CREDIT_BYTES_INITIAL, 50))]);
}

#[test]
fn frames_against_the_direction_of_a_stream_are_refused() {
    let mut sender = end(Side::Host, Direction::Out);
    let fin = body(&Fin { offset: 0 });
    let gap = body(&Gap { from: 0, to: 1 });
    for (kind, body) in [(Kind::Data, data(0, 1)), (Kind::Fin, fin), (Kind::Gap, gap)] {
        let expected = StreamError::Direction { stream: 2, kind: kind.name() };
        assert_eq!(refusal(&mut sender, kind, &body), expected.into());
    }
    let mut receiver = end(Side::Host, Direction::In);
    let expected = StreamError::Direction { stream: 2, kind: "ack" };
    assert_eq!(refusal(&mut receiver, Kind::Ack, &ack(0, 0, false)), expected.into());
}

#[test]
fn frames_that_are_not_for_this_side_are_refused() {
    let wrong = [
        (Side::Host, vec![Kind::Hello, Kind::Welcome, Kind::Boot, Kind::Request]),
        (Side::Agent, vec![Kind::Hello, Kind::Welcome, Kind::Boot, Kind::Reply]),
    ];
    for (side, kinds) in wrong {
        for kind in kinds {
            let error = accept(&mut Mux::new(side), kind, 0, b"").expect_err("not for this side");
            assert_eq!(error, ProtocolError::Unexpected { kind: kind.name() });
            assert_eq!(error.goodbye().reason, GoodbyeReason::Protocol);
        }
    }
}

#[test]
fn frames_of_closed_streams_mean_nothing() {
    let mut mux = Mux::new(Side::Host);
    let fault = body(&Fault::new(FaultCode::Gone, "gone"));
    let late = [
        (Kind::Data, data(7, 1)),
        (Kind::Ack, ack(9, 9, true)),
        (Kind::Fin, body(&Fin { offset: 3 })),
        (Kind::Gap, body(&Gap { from: 3, to: 4 })),
        (Kind::Reset, fault),
    ];
    for (kind, body) in late {
        assert_eq!(accept(&mut mux, kind, 9, &body), Ok("nothing".into()));
    }
    assert!(!mux.has_work());
}

#[test]
fn a_reset_closes_the_stream_at_both_ends_and_tells_why() {
    let (mut agent, mut host) = pair();
    agent.reset(STREAM, Fault::new(FaultCode::Io, "the disk broke"));
    assert!(!agent.is_open(STREAM));
    let sent = transmit(&mut agent, &mut Zeros::with(STREAM, 10, false));
    assert_eq!(deliver(&mut host, &sent), ["reset 2 the disk broke"]);
    assert!(!host.is_open(STREAM));
    agent.reset(STREAM, Fault::new(FaultCode::Io, "again"));
    assert!(transmit(&mut agent, &mut Zeros::default()).is_empty(), "once is enough");
}

#[test]
fn a_reset_says_first_what_was_consumed() {
    let (mut agent, mut host) = pair();
    let sent = transmit(&mut agent, &mut Zeros::with(STREAM, 10, false));
    deliver(&mut host, &sent);
    assert!(!host.consumed(STREAM, 7), "so little is not acknowledged by itself");
    host.reset(STREAM, Fault::new(FaultCode::Gone, "nobody reads on"));
    let sent = transmit(&mut host, &mut Zeros::default());
    assert_eq!(deliver(&mut agent, &sent), ["acked 2 7 false", "reset 2 nobody reads on"]);
}

#[test]
fn a_reset_that_was_lost_with_the_link_is_repeated_on_the_next() {
    let (mut agent, mut host) = pair();
    agent.reset(STREAM, Fault::new(FaultCode::Io, "the disk broke"));
    let none = SortedSet::new();
    assert!(agent.resume(&host.positions(), &none).is_empty());
    let ended = host.resume(&agent.positions(), &none);
    let fault = Fault::new(FaultCode::Io, "the disk broke");
    assert_eq!(ended, [(STREAM, Ended::Reset(fault))]);
    // The host no longer counts on it, and shows that by leaving it out.
    agent.resume(&host.positions(), &none);
    assert!(agent.positions().is_empty(), "a fault that was heard is forgotten");
}

/// A regression: the fault was forgotten as soon as it had been written into a welcome.
#[test]
fn a_reset_is_repeated_when_the_welcome_with_it_was_lost() {
    let (mut agent, mut host) = pair();
    agent.reset(STREAM, Fault::new(FaultCode::Io, "the disk broke"));
    let none = SortedSet::new();
    let positions = host.positions();
    agent.resume(&positions, &none);
    agent.cut();
    agent.resume(&positions, &none);
    assert!(matches!(&host.resume(&agent.positions(), &none)[..], [(STREAM, Ended::Reset(_))]));
}

/// A regression: a stream given up between hello and welcome lived on at the agent.
#[test]
fn a_stream_given_up_during_the_handshake_is_reset_behind_it() {
    let (mut agent, mut host) = pair();
    let none = SortedSet::new();
    let hello = host.positions();
    host.reset(STREAM, Fault::new(FaultCode::Gone, "no more interest"));
    agent.resume(&hello, &none);
    host.resume(&agent.positions(), &none);
    let sent = transmit(&mut host, &mut Zeros::default());
    assert_eq!(deliver(&mut agent, &sent), ["reset 2 no more interest"]);
}

#[test]
fn remembered_faults_are_bounded() {
    let mut mux = Mux::new(Side::Agent);
    for id in 0..3 * TOMBSTONES_MAX as u64 {
        mux.open(StreamId(id), Direction::Out, 0).expect("one at a time");
        mux.reset(StreamId(id), Fault::new(FaultCode::Gone, "gone"));
    }
    let remembered: Vec<u64> = mux.positions().iter().map(|position| position.stream.0).collect();
    let newest = 2 * TOMBSTONES_MAX as u64..3 * TOMBSTONES_MAX as u64;
    assert!(remembered.into_iter().eq(newest), "the newest are kept");
}

#[test]
fn streams_are_bounded_and_their_names_are_taken_once() {
    let mut mux = Mux::new(Side::Host);
    for id in 0..STREAMS_MAX as u64 {
        mux.open(StreamId(id), Direction::Both, 0).expect("below the limit");
    }
    assert_eq!(mux.open(StreamId(0), Direction::In, 0), Err(OpenError::Taken(0)));
    let next = StreamId(STREAMS_MAX as u64);
    assert_eq!(mux.open(next, Direction::In, 0), Err(OpenError::TooMany));
    assert_eq!(Fault::from(OpenError::TooMany).code, FaultCode::Limit);
    mux.forget(StreamId(0));
    assert_eq!(mux.open(next, Direction::In, 0), Ok(()));
}

#[test]
fn pings_are_answered_until_the_peer_does_not_read_the_answers() {
    let mut mux = Mux::new(Side::Agent);
    let mut pings = 0_usize;
    let error = loop {
        match accept(&mut mux, Kind::Ping, 77, b"") {
            Ok(_) => pings += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(pings, CONTROL_BYTES_MAX / HEADER_BYTES);
    assert!(matches!(error, ProtocolError::NotReading { bytes } if bytes > CONTROL_BYTES_MAX));
    assert_eq!(error.goodbye().reason, GoodbyeReason::Limit);
    let mut out = Vec::new();
    mux.transmit(&mut Zeros::default(), &mut out, 1);
    assert_eq!(frames(&out), [(Kind::Pong, 77, Vec::new())]);
}

#[test]
fn a_new_link_goes_on_where_the_receiver_stands() {
    let (mut agent, mut host) = pair();
    let mut source = Zeros::with(STREAM, 100, true);
    let sent = transmit(&mut agent, &mut source);
    // Of data and fin only the data arrived.
    deliver(&mut host, &sent[..1].to_vec());
    host.consumed(STREAM, 100);
    let none = SortedSet::new();
    assert!(agent.resume(&host.positions(), &none).is_empty());
    assert!(host.resume(&agent.positions(), &none).is_empty());
    let positions = transmit(&mut host, &mut Zeros::default());
    assert_eq!(deliver(&mut agent, &positions), ["acked 2 100 false"]);
    let sent = transmit(&mut agent, &mut source);
    assert_eq!(deliver(&mut host, &sent), ["fin 2"]);
}

/// A regression: the agent counted an acknowledgement as delivered that was lost with the old link,
/// closed the stream when the host was done, and left the host waiting.
#[test]
fn the_end_is_acknowledged_on_the_new_link_before_the_stream_is_forgotten() {
    let mut agent = end(Side::Agent, Direction::Both);
    let mut host = end(Side::Host, Direction::Both);
    let mut source = Zeros::with(STREAM, 0, true);
    let (to_host, to_agent) = (transmit(&mut agent, &mut source), transmit(&mut host, &mut source));
    deliver(&mut host, &to_host);
    deliver(&mut agent, &to_agent);
    // Both acknowledge the other's end, and both acknowledgements are lost.
    transmit(&mut agent, &mut source);
    transmit(&mut host, &mut source);
    let none = SortedSet::new();
    let hello = host.positions();
    assert!(agent.resume(&hello, &none).is_empty());
    assert!(host.resume(&agent.positions(), &none).is_empty());
    let to_agent = transmit(&mut host, &mut source);
    deliver(&mut agent, &to_agent);
    let to_host = transmit(&mut agent, &mut source);
    deliver(&mut host, &to_host);
    assert_eq!((agent.is_open(STREAM), host.is_open(STREAM)), (false, false));
}

#[test]
fn streams_that_only_one_end_still_has_end_honestly() {
    let none = SortedSet::new();
    let (mut agent, _) = pair();
    transmit(&mut agent, &mut Zeros::with(STREAM, 10, false));
    assert_eq!(agent.resume(&[], &none), [(STREAM, Ended::Lost)], "its end was never sent");
    let (mut agent, _) = pair();
    transmit(&mut agent, &mut Zeros::with(STREAM, 10, true));
    assert_eq!(agent.resume(&[], &none), [(STREAM, Ended::Complete)], "the peer was done with it");
    let (_, mut host) = pair();
    assert_eq!(host.resume(&[], &none), [(STREAM, Ended::Lost)], "its end never came");
}

#[test]
fn a_position_that_cannot_be_true_ends_the_stream() {
    let position = |next, finished| StreamPosition {
        stream: STREAM,
        next,
        up_to: CREDIT_BYTES_INITIAL,
        finished,
        gone: None,
    };
    for (next, finished) in [(101, false), (19, false), (50, true)] {
        let (mut agent, _) = pair();
        transmit(&mut agent, &mut Zeros::with(STREAM, 100, true));
        accept(&mut agent, Kind::Ack, 2, &ack(20, 0, false)).expect("twenty were taken");
        let ended = agent.resume(&[position(next, finished)], &SortedSet::new());
        assert_eq!(ended, [(STREAM, Ended::Lost)], "{next} {finished}");
    }
}

#[test]
fn a_stream_whose_request_was_lost_begins_again() {
    let mut host = end(Side::Host, Direction::Out);
    let mut source = Zeros::with(STREAM, 100, true);
    transmit(&mut host, &mut source);
    assert!(host.resume(&[], &SortedSet::from_iter([STREAM])).is_empty());
    let sent = transmit(&mut host, &mut source);
    assert_eq!(deliver(&mut end(Side::Agent, Direction::In), &sent), ["data 2 0+100", "fin 2"]);
}

#[test]
fn a_stream_that_the_peer_has_mentioned_does_not_begin_again() {
    let mut agent = end(Side::Agent, Direction::Both);
    let mut source = Zeros::with(STREAM, 0, true);
    transmit(&mut agent, &mut source);
    deliver(&mut agent, &vec![(Kind::Fin, 2, body(&Fin { offset: 0 }))]);
    let ended = agent.resume(&[], &SortedSet::from_iter([STREAM]));
    assert_eq!(ended, [(STREAM, Ended::Complete)], "the host was done before its answer came");
}
