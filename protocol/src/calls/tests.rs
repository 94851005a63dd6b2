//! Requests over links that are cut at the worst moments.

use super::*;
use crate::codec::{FrameBuffer, decode_body};
use crate::hello::common_version;
use crate::limits::TEXT_BYTES_MAX;
use crate::message::{FileInfo, FileKind, Reply};
use crate::mux::{Direction, Fetched, Incoming, Side, Source};
use crate::text::Text;

struct NoBytes;

impl Source for NoBytes {
    fn fetch(&mut self, _: StreamId, _: u64, _: usize, _: &mut Vec<u8>) -> Fetched {
        Fetched::Nothing
    }
}

/// Both ends and what they have received.
struct Ends {
    host: Mux,
    calls: Calls,
    agent: Mux,
    answers: Answers,
    /// Requests that were carried out, and answers that were taken.
    carried_out: Vec<u64>,
    answered: Vec<u64>,
    /// Streams whose resets reached the agent.
    reset: Vec<u64>,
}

impl Ends {
    fn new() -> Self {
        Self {
            host: Mux::new(Side::Host),
            calls: Calls::default(),
            agent: Mux::new(Side::Agent),
            answers: Answers::default(),
            carried_out: Vec::new(),
            answered: Vec::new(),
            reset: Vec::new(),
        }
    }

    fn ask(&mut self) -> RequestId {
        self.calls.send(Request::Info {}, None, &mut self.host).expect("below the limit")
    }

    fn answer(&mut self, id: RequestId) {
        let answer = Answer::Ok(Reply::Done {});
        assert!(self.answers.answer(id, &answer, &mut self.agent));
    }

    /// Everything that the host has queued arrives.
    fn reach_agent(&mut self) -> Vec<Admission> {
        let mut frames = sent(&mut self.host);
        let mut admissions = Vec::new();
        while let Some(frame) = frames.take().expect("frames") {
            match self.agent.accept(frame).expect("an honest host") {
                Incoming::Request { id, body } => {
                    let body: RequestBody = decode_body(Kind::Request, body).expect("a request");
                    let admission = self.answers.admit(id, &body.done, &mut self.agent);
                    if admission == Admission::New {
                        self.carried_out.push(id.0);
                    }
                    admissions.push(admission);
                }
                Incoming::Reset { stream, .. } => self.reset.push(stream.0),
                _ => {}
            }
        }
        admissions
    }

    /// Everything that the agent has queued arrives.
    fn reach_host(&mut self) {
        let mut frames = sent(&mut self.agent);
        while let Some(frame) = frames.take().expect("frames") {
            if let Incoming::Reply { id, .. } = self.host.accept(frame).expect("an honest agent")
                && self.calls.answered(id)
            {
                self.answered.push(id.0);
            }
        }
    }

    /// What is in transit is lost, and a new link begins.
    fn relink(&mut self) {
        let (positions, unanswered) = (self.host.positions(), self.calls.unanswered());
        self.answers.retain(&unanswered);
        self.agent.resume(&positions, &self.answers.unopened());
        let (positions, taken) = (self.agent.positions(), self.answers.taken());
        self.answers.resend(&mut self.agent);
        self.host.resume(&positions, &self.calls.unopened(&taken));
        self.calls.resend(&taken, &mut self.host);
    }
}

fn sent(mux: &mut Mux) -> FrameBuffer {
    let mut out = Vec::new();
    mux.transmit(&mut NoBytes, &mut out, usize::MAX);
    let mut frames = FrameBuffer::new();
    frames.extend(&out);
    frames
}

#[test]
fn a_request_that_was_lost_is_sent_again_and_carried_out_once() {
    let mut ends = Ends::new();
    let id = ends.ask();
    sent(&mut ends.host);
    ends.relink();
    assert_eq!(ends.reach_agent(), [Admission::New]);
    ends.answer(id);
    ends.reach_host();
    assert_eq!((ends.carried_out, ends.answered), (vec![0], vec![0]));
}

#[test]
fn an_answer_that_was_lost_is_sent_again_and_nothing_is_carried_out_twice() {
    let mut ends = Ends::new();
    let id = ends.ask();
    ends.reach_agent();
    ends.answer(id);
    sent(&mut ends.agent);
    ends.relink();
    assert!(ends.reach_agent().is_empty(), "a request that was taken on is not sent again");
    ends.reach_host();
    assert_eq!((ends.carried_out, ends.answered), (vec![0], vec![0]));
}

#[test]
fn work_goes_on_without_a_link_and_its_answer_waits_for_the_next() {
    let mut ends = Ends::new();
    let id = ends.ask();
    ends.reach_agent();
    ends.agent.cut();
    ends.answer(id);
    ends.relink();
    ends.reach_host();
    assert_eq!((ends.carried_out, ends.answered), (vec![0], vec![0]));
}

#[test]
fn an_answer_that_comes_twice_is_taken_once() {
    let mut ends = Ends::new();
    let id = ends.ask();
    ends.reach_agent();
    ends.answer(id);
    let admission = ends.answers.admit(id, &[], &mut ends.agent);
    assert_eq!(admission, Admission::Repeated, "a known answer is queued again");
    ends.reach_host();
    assert_eq!(ends.answered, [0]);
    assert!(!ends.calls.answered(RequestId(99)), "nobody asked");
}

#[test]
fn answers_are_forgotten_with_the_next_request_or_the_next_link() {
    let mut ends = Ends::new();
    for id in [ends.ask(), ends.ask()] {
        ends.reach_agent();
        ends.answer(id);
    }
    ends.reach_host();
    assert_eq!(ends.answers.taken(), [RequestId(0), RequestId(1)]);
    let third = ends.ask();
    ends.reach_agent();
    assert_eq!(ends.answers.taken(), [third]);
    ends.answer(third);
    ends.reach_host();
    ends.relink();
    assert!(ends.answers.taken().is_empty());
    assert_eq!(ends.answers.kept_bytes, 0);
}

#[test]
fn requests_that_wait_are_bounded_at_both_ends() {
    let mut ends = Ends::new();
    for _ in 0..REQUESTS_PENDING_MAX {
        ends.ask();
    }
    let refused = ends.calls.send(Request::Info {}, None, &mut ends.host);
    assert_eq!(refused, Err(TooManyRequests));
    assert_eq!(ends.reach_agent(), vec![Admission::New; REQUESTS_PENDING_MAX]);
    let one_more = RequestId(REQUESTS_PENDING_MAX as u64);
    assert_eq!(ends.answers.admit(one_more, &[], &mut ends.agent), Admission::Refused);
    let done = [RequestId(0)];
    assert_eq!(ends.answers.admit(one_more, &done, &mut ends.agent), Admission::New);
}

/// A regression: acknowledgements that waited for a request to travel with kept every further
/// request from being sent.
#[test]
fn a_burst_of_answers_does_not_keep_the_host_from_asking_again() {
    let mut ends = Ends::new();
    for _ in 0..3 {
        let ids: Vec<_> = (0..REQUESTS_PENDING_MAX).map(|_| ends.ask()).collect();
        assert!(ends.reach_agent().iter().all(|admission| *admission == Admission::New));
        for id in ids {
            ends.answer(id);
        }
        ends.reach_host();
    }
    assert_eq!(ends.answered.len(), 3 * REQUESTS_PENDING_MAX);
}

fn listing(bytes: usize) -> Answer {
    let name = Text::from(vec![b'n'; bytes]);
    Answer::Ok(Reply::Stat(FileInfo {
        name,
        kind: FileKind::File,
        bytes: 0,
        permissions: 0,
        uid: 0,
        gid: 0,
        modified_ms: 0,
        target: None,
    }))
}

#[test]
fn a_host_that_acknowledges_nothing_loses_its_link_before_it_costs_much() {
    let mut ends = Ends::new();
    let size = FRAME_BYTES_MAX - 1000;
    let fits = CONTROL_BYTES_MAX / size;
    for count in 0..=fits {
        let id = ends.ask();
        ends.reach_agent();
        let is_bounded = ends.answers.answer(id, &listing(size), &mut ends.agent);
        assert_eq!(is_bounded, count < fits);
    }
}

/// A regression: an answer that no frame can carry would have cost the link, on every new link
/// again.
#[test]
fn an_answer_that_is_too_large_for_a_frame_becomes_a_fault() {
    let mut ends = Ends::new();
    let id = ends.ask();
    ends.reach_agent();
    assert!(ends.answers.answer(id, &listing(FRAME_BYTES_MAX), &mut ends.agent));
    let mut frames = sent(&mut ends.agent);
    let frame = frames.take().expect("a frame").expect("a whole one");
    let Ok(Answer::Fault(fault)) = decode_body(Kind::Reply, frame.body) else {
        panic!("a fault is the answer");
    };
    assert_eq!(fault.code, FaultCode::Limit);
    assert!(fault.message.len() <= TEXT_BYTES_MAX);
}

#[test]
fn only_streams_of_requests_that_never_arrived_begin_again() {
    let mut ends = Ends::new();
    for stream in [2, 4] {
        let stream = StreamId(stream);
        ends.host.open(stream, Direction::Out, 0).expect("few streams");
        ends.calls.send(Request::Info {}, Some(stream), &mut ends.host).expect("few requests");
    }
    assert_eq!(ends.calls.unopened(&[]), SortedSet::from_iter([StreamId(2), StreamId(4)]));
    assert_eq!(ends.calls.unopened(&[RequestId(0)]), SortedSet::from_iter([StreamId(4)]));
}

#[test]
fn a_stream_opened_for_an_answer_that_was_lost_outlives_the_cut() {
    let mut ends = Ends::new();
    let id = ends.ask();
    ends.reach_agent();
    ends.agent.open(StreamId(2), Direction::Out, 500).expect("few streams");
    ends.answers.opened(id, StreamId(2));
    ends.answer(id);
    sent(&mut ends.agent);
    ends.relink();
    assert!(ends.agent.is_open(StreamId(2)), "the host will open it when it has the answer");
    ends.reach_host();
    ends.relink();
    assert!(!ends.agent.is_open(StreamId(2)), "the host had the answer and does not have it");
}

/// A regression: the host's reset of a stream arrived before the request that opens it, and the
/// agent kept the stream forever.
#[test]
fn a_stream_given_up_before_its_request_arrived_is_given_up_again_behind_it() {
    let mut ends = Ends::new();
    let stream = StreamId(2);
    ends.host.open(stream, Direction::In, 0).expect("few streams");
    ends.calls.send(Request::Info {}, Some(stream), &mut ends.host).expect("few requests");
    sent(&mut ends.host);
    ends.host.reset(stream, Fault::new(FaultCode::Gone, "no more interest"));
    ends.relink();
    ends.agent.open(stream, Direction::Out, 0).expect("few streams");
    ends.reach_agent();
    assert_eq!(ends.reset, [2]);
}

#[test]
fn an_abandoned_agent_leaves_no_request_behind() {
    let mut ends = Ends::new();
    let ids = [ends.ask(), ends.ask()];
    assert_eq!(ends.calls.abandon(), ids);
    assert!(ends.calls.unanswered().is_empty());
}

#[test]
fn the_highest_version_that_both_speak_is_spoken() {
    let versions = [
        ((1, 1), (1, 1), Some(1)),
        ((1, 3), (2, 5), Some(3)),
        ((2, 5), (1, 3), Some(3)),
        ((1, 9), (4, 5), Some(5)),
        ((1, 2), (3, 4), None),
        ((3, 4), (1, 2), None),
        ((5, 4), (1, 9), None),
        ((1, 9), (5, 4), None),
        ((0, u32::MAX), (0, u32::MAX), Some(u32::MAX)),
    ];
    for (ours, theirs, common) in versions {
        assert_eq!(common_version(ours, theirs), common, "{ours:?} {theirs:?}");
    }
}
