//! The test agent's state and behaviour: requests, made-up sessions, patterns. No sockets.

use std::collections::HashMap;

use protocol::calls::{Admission, Answers};
use protocol::codec::{decode_body, encode_message};
use protocol::exit::{Cause, ExitRecord, OutputTotal, Usage};
use protocol::frame::{Frame, Kind};
use protocol::hello::{AgentInfo, Hello, Resume, Welcome};
use protocol::message::{
    Adopted, Answer, Change, Channel, Entries, FileInfo, FileKind, InputOpened, Reply, Request,
    RequestBody, SessionList, Started, Subscribed, WatchEvent,
};
use protocol::mux::{Direction, Fetched, Incoming, Mux, Side, Source};
use protocol::repl::{self, Event, Finished, Happening, RunEnd, encode_record};
use protocol::requests::{Origin, Program, Release, Signal, Subscribe};
use protocol::{AgentId, Fault, FaultCode, RequestId, SessionId, StreamId, Text, Token};

/// The byte at `offset` of every pattern.
pub fn pattern(offset: u64) -> u8 {
    (offset ^ (offset >> 8).wrapping_mul(31) ^ (offset >> 16).wrapping_mul(17)) as u8
}

/// What the test may inspect and set.
pub struct World {
    pub mux: Mux,
    answers: Answers,
    token: u8,
    /// The adoption whose answer contains the token.
    adopted: Option<RequestId>,
    pub outlets: HashMap<StreamId, Outlet>,
    pub inlets: HashMap<StreamId, Inlet>,
    pub sessions: HashMap<SessionId, Session>,
    /// Waits that are not due.
    waits: Vec<(RequestId, SessionId)>,
    /// Each link is cut after so many bytes to the host.
    pub link_bytes_max: Option<usize>,
    /// No link is taken up again.
    pub forgetful: bool,
    pub links: u32,
    /// Requests that were carried out.
    pub carried_out: Vec<&'static str>,
    pub signals: Vec<Signal>,
    pub releases: Vec<Release>,
    pub resets: u32,
    pub received: Vec<u8>,
    /// Whether arriving bytes are kept in `received`.
    pub keeps: bool,
    /// Acknowledge arriving bytes only on request.
    pub reads: bool,
    /// Where subscriptions begin; their earlier bytes are gone.
    pub oldest: u64,
}

pub struct Outlet {
    pattern_end: Option<u64>,
    /// Zeros instead of the pattern, which takes time to make.
    zeros: bool,
    /// Bytes that are echoed instead of the pattern.
    echo: Option<Vec<u8>>,
    closed: bool,
}

pub struct Inlet {
    pub at: u64,
    /// Answered with what has arrived, at the end.
    upload: Option<RequestId>,
    /// Answered with the run of what has arrived, at the end.
    run: Option<RequestId>,
    echo: bool,
}

#[derive(Clone)]
pub struct Session {
    stdout: u64,
    stderr: u64,
    pub exit: Option<i32>,
    /// Survivors hold the pipes: the outputs never end.
    survivors: bool,
}

pub fn welcome(token: u8) -> Welcome {
    Welcome {
        version: 1,
        agent: AgentId([token; 16]),
        token: Token([token; 16]),
        resumed: false,
        streams: Vec::new(),
        taken: Vec::new(),
        info: AgentInfo { release: "test".to_owned(), ..AgentInfo::default() },
    }
}

impl World {
    pub fn new() -> Self {
        Self {
            mux: Mux::new(Side::Agent),
            answers: Answers::default(),
            token: 1,
            adopted: None,
            outlets: HashMap::new(),
            inlets: HashMap::new(),
            sessions: HashMap::new(),
            waits: Vec::new(),
            link_bytes_max: None,
            forgetful: false,
            links: 0,
            carried_out: Vec::new(),
            signals: Vec::new(),
            releases: Vec::new(),
            resets: 0,
            received: Vec::new(),
            keeps: true,
            reads: true,
            oldest: 0,
        }
    }

    pub fn greet(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) {
        assert_eq!(frame.kind, Kind::Hello);
        let hello: Hello = decode_body(Kind::Hello, frame.body).unwrap();
        assert!(hello.dial >= u64::from(self.links), "hellos are counted");
        self.links += 1;
        let known = hello.resume.filter(|resume| !self.forgetful && self.accepts(resume));
        let mut answer = welcome(self.token);
        if let Some(resume) = known {
            answer.resumed = true;
            answer.streams = self.mux.positions();
            self.answers.retain(&resume.unanswered);
            for (stream, _) in self.mux.resume(&resume.streams, &self.answers.unopened()) {
                self.outlets.remove(&stream);
                self.inlets.remove(&stream);
            }
            self.answers.resend(&mut self.mux);
            answer.taken = self.answers.taken();
        } else {
            self.mux = Mux::new(Side::Agent);
            self.answers = Answers::default();
            self.outlets.clear();
            self.inlets.clear();
            self.waits.clear();
            self.token += 1;
            answer = welcome(self.token);
        }
        encode_message(Kind::Welcome, 0, &answer, out);
    }

    /// The former token stays valid for a client that may lack the answer with the new one.
    fn accepts(&self, resume: &Resume) -> bool {
        let lacks = |id| resume.unanswered.contains(&id) && self.answers.is_taken(id);
        resume.token == Token([self.token; 16])
            || (resume.token == Token([self.token - 1; 16]) && self.adopted.is_some_and(lacks))
    }

    pub fn accept(&mut self, frame: Frame<'_>) {
        match self.mux.accept(frame).unwrap() {
            Incoming::Nothing
            | Incoming::Reply { .. }
            | Incoming::Acked { .. }
            | Incoming::Goodbye(_) => {}
            Incoming::Request { id, body } => {
                let body: RequestBody = decode_body(Kind::Request, body).unwrap();
                match self.answers.admit(id, &body.done, &mut self.mux) {
                    Admission::New => self.carry_out(id, body.request),
                    Admission::Repeated => {}
                    Admission::Refused => panic!("the host keeps the limit of requests"),
                }
            }
            Incoming::Data { stream, offset, bytes } => {
                let reads = self.reads;
                let Some(inlet) = self.inlets.get_mut(&stream) else { return };
                assert_eq!(offset, inlet.at, "bytes arrive once and in order");
                inlet.at += bytes.len() as u64;
                let (at, echo) = (inlet.at, inlet.echo);
                if echo {
                    let outlet = self.outlets.get_mut(&stream).unwrap();
                    outlet.echo.get_or_insert_default().extend_from_slice(bytes);
                    self.mux.wake(stream);
                } else if self.keeps {
                    self.received.extend_from_slice(bytes);
                }
                if reads {
                    self.mux.consumed(stream, at);
                }
            }
            Incoming::Fin { stream } => {
                let Some(inlet) = self.inlets.get(&stream) else { return };
                if let Some(outlet) = self.outlets.get_mut(&stream) {
                    outlet.closed = true;
                    self.mux.wake(stream);
                }
                if let Some(request) = inlet.run {
                    let code = std::mem::take(&mut self.received);
                    self.run(request, stream, &code);
                    return;
                }
                if let Some(request) = inlet.upload {
                    let reply = Reply::Written { bytes: inlet.at, entries: 1 };
                    self.answer(request, &Answer::Ok(reply));
                }
            }
            Incoming::Gap { .. } => panic!("the host never sends gaps"),
            Incoming::Reset { stream, .. } => {
                self.resets += 1;
                self.outlets.remove(&stream);
                self.inlets.remove(&stream);
            }
        }
        self.mux.take_completed();
    }

    fn answer(&mut self, id: RequestId, answer: &Answer) {
        assert!(self.answers.answer(id, answer, &mut self.mux));
    }

    pub fn answer_waits(&mut self) {
        let waits = std::mem::take(&mut self.waits);
        for (request, id) in waits {
            let session = &self.sessions[&id];
            match session.exit {
                None => self.waits.push((request, id)),
                Some(code) => {
                    let record = record(session, code);
                    self.answer(request, &Answer::Ok(Reply::Exited(record)));
                }
            }
        }
    }

    fn carry_out(&mut self, id: RequestId, request: Request) {
        self.carried_out.push(request.name());
        let answer = match request {
            Request::Info {} => Ok(Reply::Info(AgentInfo::default())),
            Request::Start(ask) => self.start(&ask.session, &ask.program),
            Request::Sessions { .. } => Ok(Reply::Sessions(SessionList::default())),
            Request::Wait { session } if !self.sessions.contains_key(&session) => {
                Err(Fault::new(FaultCode::NotFound, "there is no such session"))
            }
            Request::Wait { session } => {
                self.waits.push((id, session));
                self.answer_waits();
                return;
            }
            Request::Subscribe(ask) => self.subscribe(id, &ask),
            Request::Input(ask) => {
                self.mux.open(ask.stream, Direction::In, 1000).unwrap();
                self.answers.opened(id, ask.stream);
                let inlet = Inlet { at: 1000, upload: None, run: None, echo: false };
                self.inlets.insert(ask.stream, inlet);
                Ok(Reply::Input(InputOpened { at: 1000 }))
            }
            Request::WriteFile(ask) => {
                if ask.path == Text::from("/denied") {
                    Err(Fault::new(FaultCode::Denied, "not there"))
                } else {
                    self.mux.open(ask.stream, Direction::In, 0).unwrap();
                    self.answers.opened(id, ask.stream);
                    let inlet = Inlet { at: 0, upload: Some(id), run: None, echo: false };
                    self.inlets.insert(ask.stream, inlet);
                    return;
                }
            }
            Request::ReadFile(ask) => {
                self.mux.open(ask.stream, Direction::Out, ask.offset).unwrap();
                self.answers.opened(id, ask.stream);
                let end = ask.length.map(|length| ask.offset + length);
                let zeros = ask.path == Text::from("/zeros");
                self.outlets.insert(ask.stream, Outlet { zeros, ..Outlet::pattern(end) });
                Ok(Reply::Reading { bytes: ask.length, info: file("file") })
            }
            Request::Forward(ask) => {
                self.mux.open(ask.stream, Direction::Both, 0).unwrap();
                self.answers.opened(id, ask.stream);
                let echo = Some(Vec::new());
                let outlet = Outlet { echo, closed: false, ..Outlet::pattern(None) };
                self.outlets.insert(ask.stream, outlet);
                self.inlets
                    .insert(ask.stream, Inlet { at: 0, upload: None, run: None, echo: true });
                Ok(Reply::Done {})
            }
            Request::Run(ask) => {
                self.mux.open(ask.stream, Direction::Both, 0).unwrap();
                self.answers.opened(id, ask.stream);
                let outlet = Outlet { echo: Some(Vec::new()), ..Outlet::pattern(None) };
                self.outlets.insert(ask.stream, Outlet { closed: false, ..outlet });
                let run = ask.code.is_none().then_some(id);
                let inlet = Inlet { at: 0, upload: None, run, echo: false };
                self.inlets.insert(ask.stream, inlet);
                if let Some(code) = ask.code {
                    self.run(id, ask.stream, code.as_bytes());
                }
                return;
            }
            Request::Watch(ask) => {
                self.mux.open(ask.stream, Direction::Out, 0).unwrap();
                self.answers.opened(id, ask.stream);
                let mut records = Vec::new();
                for number in 0..3 {
                    let event = WatchEvent {
                        change: Change::Created,
                        path: format!("file {number}").into(),
                        from: None,
                    };
                    protocol::watch::encode_record(&event, &mut records);
                }
                self.outlets
                    .insert(ask.stream, Outlet { echo: Some(records), ..Outlet::pattern(None) });
                Ok(Reply::Done {})
            }
            Request::List(ask) => {
                let first =
                    ask.after.map_or(0, |name| name.to_string().parse::<u32>().unwrap() + 1);
                let entries = (first..first + 2).map(|number| file(&number.to_string())).collect();
                Ok(Reply::Entries(Entries { entries, more: first < 6 }))
            }
            Request::Adopt(_) => {
                self.token += 1;
                self.adopted = Some(id);
                Ok(Reply::Adopted(Adopted {
                    drift_us: -1,
                    stepped: true,
                    agent: AgentId([self.token; 16]),
                    token: Token([self.token; 16]),
                    frozen_ms: 0,
                    warnings: Vec::new(),
                }))
            }
            Request::Freeze { watchdog_ms } => {
                Ok(Reply::Frozen { groups: 2, took_us: watchdog_ms })
            }
            Request::Thaw { .. } => Ok(Reply::Thawed { frozen_ms: 7, drift_us: None }),
            Request::Signal(signal) => {
                self.signals.push(signal);
                Ok(Reply::Done {})
            }
            Request::Release(release) => {
                self.releases.push(release);
                Ok(Reply::Done {})
            }
            Request::Stat { path, .. } => Ok(Reply::Stat(file(&path.to_string()))),
            _ => Ok(Reply::Done {}),
        };
        let answer = match answer {
            Ok(reply) => Answer::Ok(reply),
            Err(fault) => Answer::Fault(fault),
        };
        self.answer(id, &answer);
    }

    /// A run that prints its code.
    fn run(&mut self, id: RequestId, stream: StreamId, code: &[u8]) {
        self.answer(id, &Answer::Ok(Reply::Queued { run: 1, ahead: 0 }));
        let outlet = self.outlets.get_mut(&stream).unwrap();
        let records = outlet.echo.get_or_insert_default();
        let event = |what| Event { run: 1, at_us: 0, what };
        encode_record(&event(Happening::Started(repl::Started { count: 1, lost: None })), records);
        for piece in code.chunks(10_000) {
            let bytes = Text::from(piece.to_vec());
            encode_record(&event(Happening::Stdout { bytes }), records);
        }
        let finished = Finished {
            end: RunEnd::Ok {},
            duration_us: 0,
            cpu_us: None,
            memory_bytes_peak: None,
            state_kept: true,
            rung: None,
            stdout_bytes: code.len() as u64,
            stderr_bytes: 0,
            cached: None,
        };
        encode_record(&event(Happening::Finished(finished)), records);
        outlet.closed = true;
        self.mux.wake(stream);
    }

    /// `stdout <bytes> stderr <bytes> exit <code>|run [survivors]`, all as separate arguments.
    fn start(&mut self, id: &SessionId, program: &Program) -> Result<Reply, Fault> {
        let Program::Argv { argv } = program else { panic!("tests start argument vectors") };
        let words: Vec<String> = argv.iter().map(Text::to_string).collect();
        if words[0] == "missing" {
            return Err(Fault::new(FaultCode::SpawnFailed, "there is no such program"));
        }
        let number = |at: usize| words[at].parse().unwrap();
        let session = Session {
            stdout: number(1),
            stderr: number(3),
            exit: (words[4] == "exit").then(|| words[5].parse().unwrap()),
            survivors: words.last().is_some_and(|word| word == "survivors"),
        };
        let repeated = self.sessions.insert(id.clone(), session).is_some();
        Ok(Reply::Started(Started { pid: 7, repeated, warnings: Vec::new() }))
    }

    fn subscribe(&mut self, id: RequestId, ask: &Subscribe) -> Result<Reply, Fault> {
        let Some(session) = self.sessions.get(&ask.session) else {
            return Err(Fault::new(FaultCode::NotFound, "there is no such session"));
        };
        let end = match ask.channel {
            Channel::Stderr => session.stderr,
            Channel::Stdout | Channel::Terminal => session.stdout,
        };
        let from = match ask.from {
            Origin::Oldest {} => self.oldest,
            Origin::Tail { bytes } => end.saturating_sub(bytes),
            Origin::Offset { offset } => offset,
        };
        let survivors = session.survivors;
        self.mux.open(ask.stream, Direction::Out, from).unwrap();
        self.answers.opened(id, ask.stream);
        let outlet = Outlet { closed: !survivors, ..Outlet::pattern(Some(end)) };
        self.outlets.insert(ask.stream, outlet);
        Ok(Reply::Subscribed(Subscribed { from, oldest: self.oldest, end }))
    }
}

impl Outlet {
    fn pattern(end: Option<u64>) -> Self {
        Self { pattern_end: end, zeros: false, echo: None, closed: true }
    }
}

/// The bytes that the agent sends.
pub struct Outlets<'a>(pub &'a HashMap<StreamId, Outlet>);

impl Source for Outlets<'_> {
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        let Some(outlet) = self.0.get(&stream) else { return Fetched::Nothing };
        let end = match &outlet.echo {
            Some(echo) => echo.len() as u64,
            None => outlet.pattern_end.unwrap_or(u64::MAX),
        };
        let count = (end.saturating_sub(from)).min(max as u64) as usize;
        match &outlet.echo {
            Some(echo) => out.extend_from_slice(&echo[from as usize..][..count]),
            None if outlet.zeros => out.resize(out.len() + count, 0),
            None => out.extend((from..from + count as u64).map(pattern)),
        }
        match count {
            0 if from >= end && outlet.closed => Fetched::End,
            0 => Fetched::Nothing,
            count => Fetched::Bytes(count),
        }
    }
}

fn record(session: &Session, code: i32) -> ExitRecord {
    let total = |channel, written| OutputTotal {
        channel,
        written,
        dropped: 0,
        digested: None,
        sha256: None,
    };
    ExitRecord {
        cause: Cause::Exited { code },
        started_at_ms: 0,
        ended_at_ms: 0,
        duration_us: 0,
        usage: Usage::default(),
        outputs: vec![
            total(Channel::Stdout, session.stdout),
            total(Channel::Stderr, session.stderr),
        ],
        left_behind: Vec::new(),
        left_behind_count: u32::from(session.survivors),
    }
}

fn file(name: &str) -> FileInfo {
    FileInfo {
        name: name.into(),
        kind: FileKind::File,
        bytes: 0,
        permissions: 0o644,
        uid: 0,
        gid: 0,
        modified_ms: 0,
        target: None,
    }
}
