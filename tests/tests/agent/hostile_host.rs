//! What a broken or hostile host gets from an agent: the loss of its own link, with a reason, and
//! nothing of anybody else's.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use protocol::codec::{FrameBuffer, decode_body, encode_message};
use protocol::frame::{Kind, encode_frame};
use protocol::hello::{Goodbye, GoodbyeReason, Hello, Resume, Welcome};
use protocol::message::{Adopted, Answer, RequestBody};
use protocol::requests::Adopt;
use protocol::{ClientId, FaultCode, Reply, Request, RequestId, Token};
use tests::served::Served;
use tests::{eventually, resident_bytes};

struct Agent(Served);

impl Agent {
    fn start() -> Self {
        Self(Served::new())
    }

    fn connect(&self) -> Link {
        let socket = UnixStream::connect(&self.0.socket).expect("the agent listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        Link { socket, input: FrameBuffer::new(), token: Token([0; 16]) }
    }

    fn greeted(&self, client: u8) -> Link {
        let mut link = self.connect();
        assert!(!link.greet(&hello(client)).resumed);
        link
    }

    /// What a client gets that comes back with a token.
    fn resumed(&self, client: u8, dial: u64, token: Token, unanswered: Vec<RequestId>) -> Welcome {
        self.connect().greet(&hello_again(client, dial, token, unanswered))
    }

    /// Another client is answered as if nothing had happened.
    fn assert_serves_others(&self) {
        let mut link = self.greeted(200);
        link.send(Kind::Request, 0, &RequestBody { done: vec![], request: Request::Info {} });
        let answer: Answer = link.expect(Kind::Reply);
        assert!(matches!(answer, Answer::Ok(Reply::Info(_))), "{answer:?}");
    }
}

struct Link {
    socket: UnixStream,
    input: FrameBuffer,
    /// What the welcome gave.
    token: Token,
}

impl Link {
    fn greet(&mut self, hello: &Hello) -> Welcome {
        self.send(Kind::Hello, 0, hello);
        let welcome: Welcome = self.expect(Kind::Welcome);
        self.token = welcome.token;
        welcome
    }

    fn send<T: serde::Serialize>(&mut self, kind: Kind, id: u64, body: &T) {
        let mut frame = Vec::new();
        encode_message(kind, id, body, &mut frame);
        self.write(&frame);
    }

    fn send_raw(&mut self, kind: Kind, id: u64, body: &[u8]) {
        let mut frame = Vec::new();
        encode_frame(kind, id, body, &mut frame);
        self.write(&frame);
    }

    /// The agent may have closed already, which is what is tested.
    fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).ok();
    }

    /// The next frame's body, `None` at the end of the link.
    fn next(&mut self) -> Option<(Kind, Vec<u8>)> {
        loop {
            if let Some(frame) = self.input.take().expect("the agent speaks well") {
                return Some((frame.kind, frame.body.to_vec()));
            }
            let count = self.socket.read(self.input.space()).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.input.filled(count);
        }
    }

    fn expect<T: protocol::msgpack::Decode>(&mut self, kind: Kind) -> T {
        let (got, body) = self.next().expect("an answer");
        assert_eq!(got, kind);
        decode_body(kind, &body).expect("a valid body")
    }

    /// Reads to the end, which must come with a goodbye.
    fn expect_goodbye(&mut self) -> Goodbye {
        let mut last = None;
        while let Some((kind, body)) = self.next() {
            if kind == Kind::Goodbye {
                last = Some(decode_body(kind, &body).expect("a valid goodbye"));
            }
        }
        last.expect("the link ended without a goodbye")
    }
}

fn hello(client: u8) -> Hello {
    Hello {
        version_min: 1,
        version_max: 1,
        client: ClientId([client; 16]),
        name: "a test".to_owned(),
        dial: 0,
        resume: None,
        resume_window_ms: 60_000,
    }
}

fn hello_again(client: u8, dial: u64, token: Token, unanswered: Vec<RequestId>) -> Hello {
    let resume = Some(Resume { token, streams: Vec::new(), unanswered });
    Hello { dial, resume, ..hello(client) }
}

#[test]
fn broken_frames_cost_the_sender_its_link_with_a_reason() {
    let agent = Agent::start();
    let nested: Vec<u8> = std::iter::repeat_n(0x91, 200_000).collect();
    let mut unknown = vec![0, 0, 0, 9, 99];
    unknown.extend([0; 8]);
    let cases: [(&str, Vec<u8>); 4] = [
        ("a length of four gigabytes", vec![0xff; 64]),
        ("a length shorter than the header", vec![0, 0, 0, 3, 4, 0, 0, 0]),
        ("an unknown kind", unknown),
        ("a deeply nested body", {
            let mut frame = Vec::new();
            encode_frame(Kind::Request, 1, &nested, &mut frame);
            frame
        }),
    ];
    for (number, (name, bytes)) in cases.into_iter().enumerate() {
        let mut link = agent.greeted(number as u8);
        link.write(&bytes);
        let goodbye = link.expect_goodbye();
        assert_eq!(goodbye.reason, GoodbyeReason::Protocol, "{name}: {goodbye:?}");
        assert!(!goodbye.message.is_empty(), "{name}");
        agent.assert_serves_others();
    }
}

#[test]
fn frames_out_of_place_cost_the_link() {
    let agent = Agent::start();
    for (number, kind) in
        [Kind::Hello, Kind::Welcome, Kind::Reply, Kind::Boot].into_iter().enumerate()
    {
        let mut link = agent.greeted(number as u8);
        link.send_raw(kind, 0, &[0xc0]);
        assert_eq!(link.expect_goodbye().reason, GoodbyeReason::Protocol, "{kind:?}");
    }
    let mut link = agent.connect();
    link.send(Kind::Request, 0, &RequestBody { done: vec![], request: Request::Info {} });
    assert_eq!(link.expect_goodbye().reason, GoodbyeReason::Protocol, "no hello");
    agent.assert_serves_others();
}

#[test]
fn a_version_that_is_not_spoken_is_refused_with_both_ranges() {
    let agent = Agent::start();
    let mut link = agent.connect();
    link.send(Kind::Hello, 0, &Hello { version_min: 7, version_max: 9, ..hello(1) });
    let goodbye = link.expect_goodbye();
    assert_eq!(goodbye.reason, GoodbyeReason::Version);
    assert!(goodbye.message.contains("7 to 9"), "{}", goodbye.message);
}

#[test]
fn random_bytes_end_nothing_but_their_link() {
    let agent = Agent::start();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..64 {
            // xorshift: the same bytes in every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        // Half of them inside a frame that is well-formed outside.
        let mut link = if round % 2 == 0 { agent.connect() } else { agent.greeted(round as u8) };
        if round % 4 == 1 {
            link.send_raw(Kind::ALL[round % Kind::ALL.len()], state, &bytes);
        } else {
            link.write(&bytes);
        }
    }
    agent.assert_serves_others();
}

#[test]
fn a_client_that_asks_and_never_reads_is_cut_off_and_costs_bounded_memory() {
    let agent = Agent::start();
    let pid = nix::unistd::Pid::from_raw(agent.0.child.id() as i32);
    let mut link = agent.greeted(1);
    link.socket.set_write_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    let mut frame = Vec::new();
    for id in 0..100_000 {
        frame.clear();
        encode_message(
            Kind::Request,
            id,
            &RequestBody { done: vec![], request: Request::Sessions { since: 0, lasting: false } },
            &mut frame,
        );
        if link.socket.write_all(&frame).is_err() {
            break;
        }
    }
    let resident = resident_bytes(pid).expect("the agent lives");
    assert!(resident < 40 * 1024 * 1024, "{resident} bytes are resident");
    agent.assert_serves_others();
}

#[test]
fn thousands_of_silent_connections_keep_nobody_out_for_long() {
    let agent = Agent::start();
    for _ in 0..20 {
        let silent: Vec<_> =
            (0..100).filter_map(|_| UnixStream::connect(&agent.0.socket).ok()).collect();
        drop(silent);
    }
    eventually("the agent answers", || {
        let mut link = agent.connect();
        link.send(Kind::Hello, 0, &hello(9));
        matches!(link.next(), Some((Kind::Welcome, _)))
    });
}

#[test]
fn a_request_that_the_agent_does_not_know_is_refused_and_the_link_goes_on() {
    let agent = Agent::start();
    let mut link = agent.greeted(1);
    // As a host of the future would ask, with a stream that it opens, which is written to at once.
    let dream = b"\x81\xa7request\x81\xa5dream\x82\xa6stream\x02\xa4deep\x91\xc0";
    link.send_raw(Kind::Request, 0, dream);
    link.send_raw(Kind::Data, 2, b"\x92\x00\xc4\x05words");
    link.send_raw(Kind::Request, 1, b"\x81\xa7request\xa4wish");
    for name in ["dream", "wish"] {
        let answer: Answer = link.expect(Kind::Reply);
        let Answer::Fault(fault) = answer else { panic!("{answer:?}") };
        assert_eq!(fault.code, FaultCode::Unsupported);
        assert!(fault.message.contains(name), "{}", fault.message);
    }
    link.send(Kind::Request, 2, &RequestBody { done: vec![], request: Request::Info {} });
    let answer: Answer = link.expect(Kind::Reply);
    assert!(matches!(answer, Answer::Ok(Reply::Info(_))), "{answer:?}");
    // No stream was opened.
    let welcome = agent.resumed(1, 1, link.token, vec![]);
    assert!(welcome.resumed && welcome.streams.is_empty(), "{:?}", welcome.streams);
}

fn adopt() -> Request {
    let entropy = vec![7; 32].into();
    let env = Vec::new();
    Request::Adopt(Adopt { time_us: 1, entropy, hostname: None, env, restored: false })
}

#[test]
fn a_token_of_before_an_adoption_counts_until_the_answer_has_come_and_never_again() {
    let agent = Agent::start();
    let (mut link, other) = (agent.greeted(1), agent.greeted(2));
    let former = link.token;
    link.send(Kind::Request, 0, &RequestBody { done: vec![], request: adopt() });
    let answer: Answer = link.expect(Kind::Reply);
    let Answer::Ok(Reply::Adopted(Adopted { token, agent: id, drift_us, .. })) = answer else {
        panic!("{answer:?}")
    };
    assert!(token != former && drift_us > 0);
    // The other client has lost everything.
    assert!(!agent.resumed(2, 1, other.token, vec![RequestId(0)]).resumed);

    // The answer may have been lost with the link, so the client may not know better.
    let mut again = agent.connect();
    let welcome = again.greet(&hello_again(1, 1, former, vec![RequestId(0)]));
    assert!(welcome.resumed);
    assert_eq!((welcome.token, welcome.agent), (token, id));
    assert_eq!(welcome.taken, [RequestId(0)]);
    let answer: Answer = again.expect(Kind::Reply);
    assert!(matches!(answer, Answer::Ok(Reply::Adopted(_))), "it comes again: {answer:?}");

    // Once it has come, only the new token counts, whatever is claimed.
    assert!(agent.resumed(1, 2, token, vec![]).resumed);
    assert!(!agent.resumed(1, 3, former, vec![RequestId(0)]).resumed);
    agent.assert_serves_others();
}
