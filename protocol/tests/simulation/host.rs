//! The host as a bridge would write it: it asks for everything in its plan, re-dials whenever the
//! link breaks, and checks all that comes back.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use protocol::calls::Calls;
use protocol::codec::{FrameBuffer, decode_body, encode_message};
use protocol::frame::Kind;
use protocol::hello::{Hello, Resume, VERSION_MAX, VERSION_MIN, Welcome};
use protocol::limits::SPOOL_BYTES_MIN;
use protocol::message::{Answer, Channel, Reply, Request};
use protocol::mux::{Direction, Ended, Fetched, Incoming, Mux, Side, Source};
use protocol::requests::{
    Adopt, Forward, Input, Program, ReadFile, Release, Role, SpoolPolicy, SpoolSpec, Start, Stdio,
    Subscribe, WriteFile, WriteMode,
};
use protocol::sorted::SortedSet;
use protocol::spool::Budget;
use protocol::{AgentId, ClientId, Fault, FaultCode, RequestId, SessionId, StreamId, Token};

use crate::bytes::{Reader, Writer};
use crate::link::Pipe;
use crate::plan::{HOLDER, HolderKind, Plan, SessionPlan, TransferPlan};
use crate::random::Random;
use crate::world::Telling;

/// The state of a host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is none; it will be dialled.
    Down,
    /// Hello has been sent, welcome has not come.
    Greeting,
    /// Everything else may be sent.
    Up,
}

/// Something that the host requests, in random order.
enum Wish {
    Start(usize),
    View {
        session: usize,
        viewer: usize,
    },
    Type {
        session: usize,
    },
    Upload(usize),
    Download(usize),
    Forward(usize),
    /// Answered at once.
    Stat(u64),
    /// Answered after a while.
    Wait(u64),
    Adopt,
}

/// The purpose of a request, until its answer arrives.
enum Purpose {
    Start(usize),
    View {
        session: usize,
        viewer: usize,
        stream: StreamId,
    },
    Type {
        session: usize,
        stream: StreamId,
    },
    Upload(usize),
    Download,
    Forward,
    Stat(u64),
    Wait,
    Adopt,
    Release,
    /// The last request, which takes the rest of the acknowledgements along.
    Farewell,
}

/// A stream that is open at this end.
struct Flow {
    writer: Option<Writer>,
    reader: Option<Reader>,
    /// How many bytes and gaps the reader should get.
    length: u64,
    /// How far the reader or writer goes before this end resets the stream.
    gives_up_at: Option<u64>,
    /// The agent may give it up.
    may_fail: bool,
}

#[derive(Default)]
struct Flows(BTreeMap<StreamId, Flow>);

pub struct Host {
    plan: Rc<Plan>,
    telling: Telling,
    client: ClientId,
    /// Sessions that the agent has from an earlier host, and how much of each that host has
    /// received.
    inherited: BTreeMap<usize, u64>,
    pub phase: Phase,
    pub mux: Mux,
    pub calls: Calls,
    pub token: Option<Token>,
    pub adoptions: u64,
    dials: u64,
    agent: Option<AgentId>,
    frames: FrameBuffer,
    flows: Flows,
    next_stream: u64,
    wishes: VecDeque<Wish>,
    pending: BTreeMap<RequestId, Purpose>,
    /// Viewers and writers that a session still waits for before it is released.
    users: BTreeMap<usize, usize>,
    /// The sessions that streams belong to.
    used: BTreeMap<StreamId, usize>,
    budget: Budget,
    pub answered: BTreeMap<RequestId, u32>,
    pub sent_farewell: bool,
    pub is_finished: bool,
    /// Bytes that were checked.
    pub bytes: u64,
    pub gaps: u64,
}

impl Host {
    pub fn new(plan: Rc<Plan>, telling: Telling, random: &mut Random) -> Self {
        let mut wishes: Vec<Wish> = Vec::new();
        wishes.extend((0..plan.sessions.len()).map(Wish::Start));
        wishes.extend((0..plan.uploads.len()).map(Wish::Upload));
        wishes.extend((0..plan.downloads.len()).map(Wish::Download));
        wishes.extend((0..plan.forwards.len()).map(Wish::Forward));
        wishes.extend((0..plan.calls).map(Wish::Stat));
        wishes.extend((0..plan.calls).map(Wish::Wait));
        wishes.extend((0..plan.adoptions).map(|_| Wish::Adopt));
        for last in (1..wishes.len()).rev() {
            wishes.swap(last, random.below(last as u64 + 1) as usize);
        }
        Self::with_wishes(plan, telling, ClientId([7; 16]), wishes)
    }

    /// The host of a clone that has these sessions.
    pub fn of_clone(
        plan: Rc<Plan>,
        telling: Telling,
        number: u8,
        inherited: BTreeMap<usize, u64>,
    ) -> Self {
        let client = ClientId([100 + number; 16]);
        Self { inherited, ..Self::with_wishes(plan, telling, client, vec![Wish::Adopt]) }
    }

    fn with_wishes(plan: Rc<Plan>, telling: Telling, client: ClientId, wishes: Vec<Wish>) -> Self {
        Self {
            plan,
            telling,
            client,
            inherited: BTreeMap::new(),
            phase: Phase::Down,
            mux: Mux::new(Side::Host),
            calls: Calls::default(),
            token: None,
            adoptions: 0,
            dials: 0,
            agent: None,
            frames: FrameBuffer::new(),
            flows: Flows::default(),
            next_stream: 0,
            wishes: wishes.into(),
            pending: BTreeMap::new(),
            users: BTreeMap::new(),
            used: BTreeMap::new(),
            budget: Budget::new(usize::MAX),
            answered: BTreeMap::new(),
            sent_farewell: false,
            is_finished: false,
            bytes: 0,
            gaps: 0,
        }
    }

    /// Begins a new link.
    pub fn dial(&mut self, pipe: &mut Pipe) {
        assert_eq!(self.phase, Phase::Down, "one link at a time");
        self.frames.clear();
        self.dials += 1;
        let resume = self.token.map(|token| Resume {
            token,
            streams: self.mux.positions(),
            unanswered: self.calls.unanswered(),
        });
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            client: self.client,
            name: "simulation".to_owned(),
            dial: self.dials,
            resume,
            resume_window_ms: 60_000,
        };
        let mut frame = Vec::new();
        encode_message(Kind::Hello, 0, &hello, &mut frame);
        pipe.write(&frame);
        self.phase = Phase::Greeting;
    }

    /// The link is gone, or is given up by this end.
    pub fn hang_up(&mut self) {
        self.telling.say(|| "host: hangs up".to_owned());
        self.mux.cut();
        self.phase = Phase::Down;
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        let mut frames = std::mem::take(&mut self.frames);
        frames.extend(bytes);
        while let Some(frame) = frames.take().expect("the agent sends frames") {
            if self.phase == Phase::Greeting {
                assert_eq!(frame.kind, Kind::Welcome, "a link begins with a welcome");
                self.on_welcome(&decode_body(frame.kind, frame.body).expect("a true welcome"));
                continue;
            }
            let incoming = self.mux.accept(frame).expect("the agent keeps to the protocol");
            self.on_incoming(incoming);
        }
        self.frames = frames;
        self.let_go();
    }

    pub fn transmit(&mut self, pipe: &mut Pipe, target: usize) {
        if self.phase == Phase::Up && self.mux.has_work() && pipe.is_writable() {
            let mut out = Vec::new();
            self.mux.transmit(&mut self.flows, &mut out, target);
            pipe.write(&out);
            self.let_go();
        }
    }

    /// Streams that the link has finished must be those that nothing waits for any more.
    fn let_go(&mut self) {
        for stream in self.mux.take_completed() {
            assert!(!self.mux.is_open(stream), "what is complete is closed");
            let flow = self.flows.0.get(&stream);
            let is_settled = flow.is_none_or(|flow| {
                flow.writer.is_none() && flow.reader.as_ref().is_none_or(Reader::has_taken_all)
            });
            assert!(is_settled, "stream {} is complete", stream.0);
        }
    }

    /// The application makes progress, with or without a link.
    pub fn step(&mut self, random: &mut Random) {
        if random.once_in(4) {
            self.ask_next(random);
        }
        let streams: Vec<StreamId> = self.flows.0.keys().copied().collect();
        for stream in streams {
            self.step_flow(stream, random);
        }
        let is_idle = self.wishes.is_empty() && self.pending.is_empty() && self.flows.0.is_empty();
        if is_idle && !self.sent_farewell {
            self.sent_farewell = true;
            self.ask(Request::Info {}, None, Purpose::Farewell);
        }
    }

    fn step_flow(&mut self, stream: StreamId, random: &mut Random) {
        let flow = self.flows.0.get_mut(&stream).expect("the key was just read");
        if let Some(writer) = &mut flow.writer {
            let pin = Some(writer.spool().start());
            if random.once_in(3) && writer.write(random, pin) {
                self.mux.wake(stream);
            }
        }
        if let Some(reader) = &mut flow.reader
            && let Some(to) = reader.consume(random)
        {
            self.mux.consumed(stream, to);
        }
        let read = flow.reader.as_ref().map_or(0, Reader::received);
        let written = flow.writer.as_ref().map_or(0, |writer| writer.spool().end());
        if flow.gives_up_at.is_some_and(|at| read.max(written) >= at) {
            self.telling.say(|| format!("host: gives up stream {}", stream.0));
            self.mux.reset(stream, Fault::new(FaultCode::Gone, "the host has lost interest"));
            self.end_flow(stream);
        } else {
            self.settle(stream);
        }
    }

    /// Closes a flow that has nothing left to do.
    fn settle(&mut self, stream: StreamId) {
        let Some(flow) = self.flows.0.get(&stream) else { return };
        let is_read = flow.reader.as_ref().is_none_or(Reader::has_taken_all);
        if is_read && flow.writer.is_none() {
            if let Some(reader) = &flow.reader {
                reader.assert_complete(flow.length);
                self.bytes += reader.received() - reader.missed;
                self.gaps += reader.missed;
            }
            self.end_flow(stream);
        }
    }

    fn end_flow(&mut self, stream: StreamId) {
        self.flows.0.remove(&stream).expect("a flow ends once");
        self.end_use(stream);
    }

    /// A session without users is released.
    fn end_use(&mut self, stream: StreamId) {
        let Some(session) = self.used.remove(&stream) else { return };
        let users = self.users.get_mut(&session).expect("a session with users is known");
        *users -= 1;
        if *users == 0 {
            self.users.remove(&session);
            let release =
                Release { session: session_id(session), holder: None, kill_survivors: true };
            self.ask(Request::Release(release), None, Purpose::Release);
        }
    }

    fn ask(&mut self, request: Request, opens: Option<StreamId>, pending: Purpose) {
        let name = request.name();
        let id = self.calls.send(request, opens, &mut self.mux).expect("the plan is modest");
        self.telling.say(|| format!("host: asks {name} {} opening {opens:?}", id.0));
        self.pending.insert(id, pending);
    }

    fn ask_next(&mut self, random: &mut Random) {
        let Some(wish) = self.wishes.pop_front() else { return };
        let plan = self.plan.clone();
        match wish {
            Wish::Start(session) => {
                let start = start_request(session, &plan);
                self.ask(Request::Start(start), None, Purpose::Start(session));
            }
            Wish::View { session, viewer } => {
                let stream = self.name_stream();
                self.used.insert(stream, session);
                let view = &plan.sessions[session].viewers[viewer];
                let role = match view.holder {
                    None => Role::Observer {},
                    Some(HolderKind::Named) => Role::Holder { name: HOLDER.to_owned() },
                    Some(HolderKind::Passing) => Role::Holder { name: format!("passing-{viewer}") },
                };
                let (session_name, from) = (session_id(session), view.origin);
                let channel = Channel::Stdout;
                let request = Subscribe { session: session_name, channel, stream, from, role };
                let pending = Purpose::View { session, viewer, stream };
                self.ask(Request::Subscribe(request), None, pending);
            }
            Wish::Type { session } => {
                let stream = self.name_stream();
                self.used.insert(stream, session);
                let input = Input { session: session_id(session), stream, from: None, take: false };
                self.ask(Request::Input(input), None, Purpose::Type { session, stream });
            }
            Wish::Upload(index) => {
                let transfer = &plan.uploads[index];
                let stream = self.name_stream();
                let writer = Some(self.writer(transfer));
                self.open(stream, Direction::Out, 0, Flow::new(transfer, writer, None));
                let request = WriteFile {
                    path: index.to_string().into(),
                    stream,
                    mode: WriteMode::Replace {},
                    permissions: None,
                    uid: None,
                    gid: None,
                    parents: false,
                };
                self.ask(Request::WriteFile(request), Some(stream), Purpose::Upload(index));
            }
            Wish::Download(index) => {
                let transfer = &plan.downloads[index];
                let stream = self.name_stream();
                let reader = Some(Reader::new(transfer.key, 0, transfer.patience, false));
                self.open(stream, Direction::In, 0, Flow::new(transfer, None, reader));
                let request =
                    ReadFile { path: index.to_string().into(), stream, offset: 0, length: None };
                self.ask(Request::ReadFile(request), Some(stream), Purpose::Download);
            }
            Wish::Forward(index) => {
                let forward = &plan.forwards[index];
                let stream = self.name_stream();
                let writer = Some(self.writer(&forward.up));
                let down = &forward.down;
                let reader = Some(Reader::new(down.key, 0, down.patience, false));
                self.open(stream, Direction::Both, 0, Flow::new(down, writer, reader));
                let request = Forward { stream, address: None, port: index as u16, accept: None };
                self.ask(Request::Forward(request), Some(stream), Purpose::Forward);
            }
            Wish::Stat(number) => {
                let request = Request::Stat { path: number.to_string().into(), follow: false };
                self.ask(request, None, Purpose::Stat(number));
            }
            Wish::Wait(number) => {
                let session = format!("w{number}").parse().expect("a session id");
                self.ask(Request::Wait { session }, None, Purpose::Wait);
            }
            Wish::Adopt => {
                let entropy: Vec<u8> = (0..32).map(|_| random.next() as u8).collect();
                let (entropy, env) = (entropy.into(), Vec::new());
                let adopt = Adopt { time_us: 0, entropy, hostname: None, env, restored: true };
                self.ask(Request::Adopt(adopt), None, Purpose::Adopt);
            }
        }
    }

    /// Even numbers are the host's.
    fn name_stream(&mut self) -> StreamId {
        self.next_stream += 2;
        StreamId(self.next_stream)
    }

    fn writer(&self, plan: &TransferPlan) -> Writer {
        Writer::new(plan.key, plan.length, SPOOL_BYTES_MIN, SpoolPolicy::Block, &self.budget)
    }

    fn open(&mut self, stream: StreamId, direction: Direction, at: u64, flow: Flow) {
        self.mux.open(stream, direction, at).expect("the plan is modest");
        self.flows.0.insert(stream, flow);
    }

    fn on_welcome(&mut self, welcome: &Welcome) {
        self.telling.say(|| {
            let open: Vec<_> = welcome.streams.iter().map(|at| at.stream.0).collect();
            let taken: Vec<_> = welcome.taken.iter().map(|id| id.0).collect();
            format!("host: welcome, resumed {}, streams {open:?}, taken {taken:?}", welcome.resumed)
        });
        assert_eq!(welcome.version, VERSION_MAX);
        self.phase = Phase::Up;
        let was_known = self.token.replace(welcome.token).is_some();
        let is_same = self.agent.replace(welcome.agent) == Some(welcome.agent);
        // The answer with the new id was lost with the last link, or it is another agent.
        let is_adopted = self.pending.values().any(|pending| matches!(pending, Purpose::Adopt));
        assert!(is_same || is_adopted || !welcome.resumed, "nobody else has adopted it");
        if was_known && !welcome.resumed {
            self.start_over();
            return;
        }
        let unopened = self.calls.unopened(&welcome.taken);
        for (stream, ended) in self.mux.resume(&welcome.streams, &unopened) {
            self.on_ended(stream, &ended);
        }
        self.calls.resend(&welcome.taken, &mut self.mux);
    }

    /// The agent has forgotten this client: everything in progress is lost, and must be reported as
    /// lost.
    fn start_over(&mut self) {
        for (stream, _) in self.mux.resume(&[], &SortedSet::new()) {
            self.telling.say(|| format!("host: stream {} is lost with its agent", stream.0));
        }
        self.calls.abandon();
        self.flows.0.clear();
        self.pending.clear();
        self.wishes.clear();
        self.users.clear();
        self.used.clear();
        self.sent_farewell = false;
    }

    fn on_ended(&mut self, stream: StreamId, ended: &Ended) {
        self.telling.say(|| format!("host: stream {} ended meanwhile: {ended:?}", stream.0));
        let Some(flow) = self.flows.0.get_mut(&stream) else { return };
        match ended {
            Ended::Complete => {
                flow.writer = None;
                let is_heard = flow.reader.as_ref().is_none_or(Reader::is_finished);
                assert!(is_heard, "a complete stream has ended");
                self.settle(stream);
            }
            Ended::Lost => panic!("stream {} was lost", stream.0),
            Ended::Reset(_) => {
                assert!(flow.may_fail, "the agent gives up what the plan says");
                self.end_flow(stream);
            }
        }
    }

    fn on_incoming(&mut self, incoming: Incoming<'_>) {
        match incoming {
            Incoming::Nothing => {}
            Incoming::Reply { id, body } => {
                let answer = decode_body(Kind::Reply, body).expect("a true answer");
                self.on_answer(id, answer);
            }
            Incoming::Data { stream, offset, bytes } => {
                self.reader(stream, |reader| reader.on_data(offset, bytes));
            }
            Incoming::Gap { stream, from, to } => {
                self.telling.say(|| format!("host: stream {} misses {from}..{to}", stream.0));
                self.reader(stream, |reader| reader.on_gap(from, to));
            }
            Incoming::Fin { stream } => {
                self.reader(stream, Reader::on_fin);
                self.settle(stream);
            }
            Incoming::Acked { stream, offset, done } => {
                let Some(flow) = self.flows.0.get_mut(&stream) else { return };
                let Some(writer) = &mut flow.writer else { return };
                writer.discard_below(offset);
                if done {
                    assert!(writer.is_at_end() && offset == writer.spool().end());
                    flow.writer = None;
                    self.settle(stream);
                }
            }
            Incoming::Reset { stream, fault } => {
                self.telling.say(|| format!("host: stream {} was reset: {fault}", stream.0));
                if let Some(flow) = self.flows.0.get(&stream) {
                    assert!(flow.may_fail, "the agent gives up what the plan says: {fault}");
                    self.end_flow(stream);
                }
            }
            Incoming::Request { .. } | Incoming::Goodbye(_) => panic!("not from this agent"),
        }
    }

    fn reader(&mut self, stream: StreamId, act: impl FnOnce(&mut Reader)) {
        let flow = self.flows.0.get_mut(&stream).expect("the mux lets only open streams through");
        act(flow.reader.as_mut().expect("the mux lets only readable streams through"));
    }

    fn on_answer(&mut self, id: RequestId, answer: Answer) {
        if !self.calls.answered(id) {
            return;
        }
        *self.answered.entry(id).or_default() += 1;
        let pending = self.pending.remove(&id).expect("what is pending was asked");
        self.telling.say(|| format!("host: answer to {}: {answer:?}", id.0));
        let plan = self.plan.clone();
        let reply = match answer {
            Answer::Ok(reply) => reply,
            Answer::Fault(fault) => {
                let may_fail = match pending {
                    Purpose::Upload(index) => plan.uploads[index].may_end_early(),
                    _ => false,
                };
                assert!(may_fail, "a fault that the plan does not have: {fault}");
                return;
            }
        };
        match (pending, reply) {
            (Purpose::Start(session), Reply::Started(started)) => {
                assert!(!started.repeated, "each session is started once");
                self.on_started(session);
            }
            (Purpose::View { session, viewer, stream }, Reply::Subscribed(subscribed)) => {
                let session_plan = &plan.sessions[session];
                let view = &session_plan.viewers[viewer];
                let reader = Reader::new(
                    session_plan.key,
                    subscribed.from,
                    view.patience,
                    view.may_miss(session_plan.policy),
                );
                let inherited = self.inherited.get(&session).copied();
                let reader = reader.lossless_from(inherited.unwrap_or(0));
                let is_kept = session_plan.policy == SpoolPolicy::Block;
                let from = subscribed.from;
                assert!(
                    !is_kept || inherited.is_none_or(|inherited| from <= inherited),
                    "nothing is passed over"
                );
                let flow = Flow {
                    writer: None,
                    reader: Some(reader),
                    length: session_plan.length,
                    gives_up_at: view.gives_up_at,
                    may_fail: false,
                };
                self.open(stream, Direction::In, subscribed.from, flow);
            }
            (Purpose::Type { session, stream }, Reply::Input(opened)) => {
                let input = plan.sessions[session].input.as_ref().expect("only planned input");
                let writer = Some(self.writer(input));
                self.open(stream, Direction::Out, opened.at, Flow::new(input, writer, None));
            }
            (Purpose::Upload(index), Reply::Written { bytes, .. }) => {
                assert_eq!(bytes, plan.uploads[index].length, "all of it was written");
                self.bytes += bytes;
            }
            (Purpose::Stat(number), Reply::Stat(info)) => {
                assert_eq!(info.name, number.to_string().into(), "the answer fits the request");
            }
            (Purpose::Adopt, Reply::Adopted(adopted)) => {
                self.adoptions += 1;
                self.agent = Some(adopted.agent);
                self.token = Some(adopted.token);
                for session in self.inherited.keys().copied() {
                    self.users.insert(session, 1);
                    // Its holder outlives every client: the next client continues to read for it.
                    self.wishes.push_back(Wish::View { session, viewer: 0 });
                }
            }
            (Purpose::Farewell, Reply::Info(_)) => self.is_finished = true,
            (Purpose::Download, Reply::Reading { .. })
            | (Purpose::Forward | Purpose::Wait | Purpose::Release, Reply::Done {}) => {}
            (_, reply) => panic!("{} answers nothing that was asked", reply.name()),
        }
    }

    fn on_started(&mut self, session: usize) {
        let plan = &self.plan.sessions[session];
        let viewers = plan.viewers.len();
        let views = (0..viewers).map(|viewer| Wish::View { session, viewer });
        self.wishes.extend(views);
        if plan.input.is_some() {
            self.wishes.push_back(Wish::Type { session });
        }
        self.users.insert(session, viewers + usize::from(plan.input.is_some()));
    }
}

impl Flow {
    fn new(plan: &TransferPlan, writer: Option<Writer>, reader: Option<Reader>) -> Self {
        Self {
            writer,
            reader,
            length: plan.length,
            gives_up_at: plan.gives_up_at,
            may_fail: plan.fails_at.is_some(),
        }
    }
}

impl Source for Flows {
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        match self.0.get(&stream).and_then(|flow| flow.writer.as_ref()) {
            Some(writer) => writer.fetch(from, max, out),
            None => Fetched::Nothing,
        }
    }
}

/// Names a session of the plan by its number.
pub fn session_id(session: usize) -> SessionId {
    format!("s{session}").parse().expect("a session id")
}

fn start_request(session: usize, plan: &Plan) -> Start {
    let SessionPlan { spool_bytes, policy, .. } = plan.sessions[session];
    Start {
        session: session_id(session),
        program: Program::LoginShell {},
        cwd: None,
        env: Vec::new(),
        user: None,
        stdio: Stdio::Pipes { stdin: true },
        deadline_ms: None,
        spool: SpoolSpec { bytes: Some(spool_bytes as u64), policy },
        holders: vec![HOLDER.to_owned()],
        tied: false,
        limits: protocol::requests::GroupLimits::default(),
    }
}
