//! The agent as a guest would run it: it carries out requests, keeps a client's streams and answers
//! over cuts, and lets a newer link replace an older one.

use std::collections::BTreeMap;
use std::rc::Rc;

use protocol::calls::{Admission, Answers};
use protocol::codec::{FrameBuffer, decode_body, encode_message};
use protocol::frame::{Frame, Kind};
use protocol::hello::{
    AgentInfo, Hello, Resume, VERSION_MAX, VERSION_MIN, Welcome, common_version,
};
use protocol::limits::SPOOL_BYTES_MIN;
use protocol::message::{
    Adopted, Answer, FileInfo, FileKind, InputOpened, Reply, Request, RequestBody, Started,
    Subscribed,
};
use protocol::mux::{Direction, Ended, Fetched, Incoming, Mux, Side, Source};
use protocol::requests::{Adopt, Origin, Role, SpoolPolicy, Subscribe};
use protocol::spool::Budget;
use protocol::text::Text;
use protocol::{AgentId, ClientId, Fault, FaultCode, RequestId, SessionId, StreamId, Token};

use crate::bytes::{Reader, Writer};
use crate::host::session_id;
use crate::link::Pipe;
use crate::plan::{HOLDER, Plan, TransferPlan};
use crate::random::Random;
use crate::world::Telling;

/// A link on which this end has accepted bytes.
#[derive(Default)]
struct Connection {
    link: usize,
    frames: FrameBuffer,
}

/// A program and those who read it.
struct Session {
    writer: Writer,
    policy: SpoolPolicy,
    /// What the holder that was named at the start has acknowledged.
    held: u64,
    viewers: BTreeMap<StreamId, Viewer>,
}

struct Viewer {
    role: Role,
    acked: u64,
}

/// What a stream is to the agent.
enum Flow {
    View(usize),
    Type(Transfer),
    Upload { request: RequestId, transfer: Transfer },
    Transfer(Transfer),
}

struct Transfer {
    writer: Option<Writer>,
    reader: Option<Reader>,
    length: u64,
    fails_at: Option<u64>,
}

#[derive(Default)]
struct Store {
    sessions: BTreeMap<usize, Session>,
    flows: BTreeMap<StreamId, Flow>,
}

pub struct Agent {
    plan: Rc<Plan>,
    telling: Telling,
    pub mux: Mux,
    pub answers: Answers,
    /// Known clients, from the first hello on.
    client: Option<ClientId>,
    pub id: AgentId,
    pub token: Token,
    /// Tokens of before an adoption, and the request that was.
    former: Vec<(RequestId, Token)>,
    /// Random numbers that were drawn: those of a clone continue from the snapshot's.
    drawn: u64,
    is_clone: bool,
    /// The only client that a clone serves, from its adoption on.
    pub adopted_by: Option<ClientId>,
    /// The number of the newest link.
    dial: u64,
    connections: Vec<Connection>,
    /// The link on which the client was greeted last.
    current: Option<usize>,
    store: Store,
    /// Work that takes a while.
    waiting: Vec<RequestId>,
    pub budget: Budget,
    pub carried_out: BTreeMap<RequestId, u32>,
    pub resumed: u64,
    pub bytes: u64,
}

impl Agent {
    pub fn new(plan: Rc<Plan>, telling: Telling) -> Self {
        let budget = Budget::new(plan.budget_bytes);
        Self {
            plan,
            telling,
            mux: Mux::new(Side::Agent),
            answers: Answers::default(),
            client: None,
            id: AgentId([9; 16]),
            token: Token([1; 16]),
            former: Vec::new(),
            drawn: 0,
            is_clone: false,
            adopted_by: None,
            dial: 0,
            connections: Vec::new(),
            current: None,
            store: Store::default(),
            waiting: Vec::new(),
            budget,
            carried_out: BTreeMap::new(),
            resumed: 0,
            bytes: 0,
        }
    }

    /// The resume window has passed: everything of the client goes.
    pub fn forget_client(&mut self) {
        self.telling.say(|| "agent: forgets its client".to_owned());
        self.drop_client();
        self.store = Store::default();
    }

    /// Everything of the client is removed, except what it has started.
    fn drop_client(&mut self) {
        self.client = None;
        self.current = None;
        self.token = Token(self.draw(&[]));
        self.former.clear();
        self.mux = Mux::new(Side::Agent);
        self.answers = Answers::default();
        self.store.flows.clear();
        for session in self.store.sessions.values_mut() {
            session.viewers.clear();
        }
        self.waiting.clear();
    }

    /// It wakes as a clone: its links lead nowhere, and it does not know that.
    pub fn wake_as_clone(&mut self) {
        self.is_clone = true;
        self.adopted_by = None;
        self.connections.clear();
        self.current = None;
        self.dial = 0;
    }

    /// The sessions, and how much the holder of each has received.
    pub fn sessions(&self) -> BTreeMap<usize, u64> {
        self.store.sessions.iter().map(|(index, session)| (*index, session.held)).collect()
    }

    /// The machine's generator, which is the same in every clone, and the bytes that only one was given.
    fn draw(&mut self, given: &[u8]) -> [u8; 16] {
        self.drawn += 1;
        let mut random = Random::new(self.drawn);
        let mut drawn = [0; 16].map(|_: u8| random.next() as u8);
        drawn.iter_mut().zip(given).for_each(|(byte, given)| *byte ^= given);
        drawn
    }

    fn adopt(&mut self, id: RequestId, ask: &Adopt) -> Adopted {
        self.adopted_by = self.client;
        self.former.push((id, self.token));
        let random = ask.entropy.as_bytes().to_owned();
        self.id = AgentId(self.draw(&random[..16]));
        self.token = Token(self.draw(&random[16..]));
        Adopted {
            drift_us: 0,
            stepped: true,
            agent: self.id,
            token: self.token,
            frozen_ms: 0,
            warnings: Vec::new(),
        }
    }

    fn accepts(&self, client: ClientId, resume: &Resume) -> bool {
        let may_lack =
            |id: &RequestId| resume.unanswered.contains(id) && self.answers.is_taken(*id);
        let mut former = self.former.iter().filter(|(_, token)| *token == resume.token);
        self.client == Some(client)
            && (resume.token == self.token || former.any(|(id, _)| may_lack(id)))
    }

    /// What arrived on `link`; empty at its end. `reply` is the way back.
    pub fn receive(&mut self, link: usize, bytes: &[u8], reply: &mut Pipe) {
        let at = self.connections.iter().position(|connection| connection.link == link);
        if bytes.is_empty() {
            if let Some(at) = at {
                self.connections.remove(at);
            }
            if self.current == Some(link) {
                self.telling.say(|| format!("agent: link {link} is gone"));
                self.current = None;
                self.mux.cut();
            }
            return;
        }
        let mut connection = match at {
            Some(at) => self.connections.remove(at),
            None => Connection { link, ..Connection::default() },
        };
        connection.frames.extend(bytes);
        while let Some(frame) = connection.frames.take().expect("the host sends frames") {
            if self.current == Some(link) {
                self.on_frame(frame);
            } else if frame.kind == Kind::Hello {
                let hello: Hello = decode_body(frame.kind, frame.body).expect("a true hello");
                self.on_hello(link, &hello, reply);
            }
            // Anything else is of a link that a newer one has replaced.
        }
        self.connections.push(connection);
    }

    pub fn transmit(&mut self, link: usize, pipe: &mut Pipe, target: usize) {
        if self.current == Some(link) && self.mux.has_work() && pipe.is_writable() {
            let mut out = Vec::new();
            self.mux.transmit(&mut self.store, &mut out, target);
            pipe.write(&out);
            self.let_go();
        }
    }

    fn on_hello(&mut self, link: usize, hello: &Hello, reply: &mut Pipe) {
        if self.is_clone && self.adopted_by.is_some_and(|client| client != hello.client) {
            // A client from before the snapshot: it gets a new, empty peer.
            return self.welcome(Token([0; 16]), false, reply);
        }
        if hello.dial < self.dial {
            self.telling.say(|| format!("agent: link {link} was given up before it was greeted"));
            return;
        }
        self.dial = hello.dial;
        let ours = (VERSION_MIN, VERSION_MAX);
        let version = common_version(ours, (hello.version_min, hello.version_max));
        assert_eq!(version, Some(VERSION_MAX), "the same code speaks the same version");
        let resume = hello.resume.as_ref().filter(|resume| self.accepts(hello.client, resume));
        match resume {
            Some(resume) => self.take_up(resume),
            None if self.is_clone => {
                self.drop_client();
                self.carried_out.clear();
            }
            None => self.forget_client(),
        }
        self.client = Some(hello.client);
        self.current = Some(link);
        self.resumed += u64::from(resume.is_some());
        self.welcome(self.token, resume.is_some(), reply);
    }

    fn welcome(&self, token: Token, resumed: bool, reply: &mut Pipe) {
        let (streams, taken) = if token == self.token {
            // After the streams were taken up: one that could not be is not in here.
            (self.mux.positions(), self.answers.taken())
        } else {
            (Vec::new(), Vec::new())
        };
        let welcome = Welcome {
            version: VERSION_MAX,
            agent: self.id,
            token,
            resumed,
            streams,
            taken,
            info: AgentInfo::default(),
        };
        let mut frame = Vec::new();
        encode_message(Kind::Welcome, 0, &welcome, &mut frame);
        reply.write(&frame);
    }

    fn take_up(&mut self, resume: &Resume) {
        self.telling.say(|| {
            let open: Vec<_> = resume.streams.iter().map(|at| at.stream.0).collect();
            format!("agent: the host resumes {open:?}, unanswered {:?}", resume.unanswered)
        });
        self.answers.retain(&resume.unanswered);
        for (stream, ended) in self.mux.resume(&resume.streams, &self.answers.unopened()) {
            self.telling.say(|| format!("agent: stream {} ended meanwhile: {ended:?}", stream.0));
            assert_ne!(ended, Ended::Lost, "the host forgets no stream without a word");
            self.drop_flow(stream);
        }
        self.answers.resend(&mut self.mux);
    }

    fn on_frame(&mut self, frame: Frame<'_>) {
        match self.mux.accept(frame).expect("the host keeps to the protocol") {
            Incoming::Nothing => {}
            Incoming::Request { id, body } => {
                let body: RequestBody = decode_body(Kind::Request, body).expect("a true request");
                self.on_request(id, body);
            }
            Incoming::Data { stream, offset, bytes } => {
                self.reader(stream, |reader| reader.on_data(offset, bytes));
            }
            Incoming::Fin { stream } => {
                self.reader(stream, Reader::on_fin);
                self.settle(stream);
            }
            Incoming::Acked { stream, offset, done } => self.on_acked(stream, offset, done),
            Incoming::Reset { stream, fault } => {
                self.telling.say(|| format!("agent: stream {} was reset: {fault}", stream.0));
                self.drop_flow(stream);
            }
            Incoming::Gap { .. } | Incoming::Reply { .. } | Incoming::Goodbye(_) => {
                panic!("not from this host")
            }
        }
        self.mux.check_peer_reads().expect("the host reads");
        self.let_go();
    }

    /// Streams that the link has finished are those that nothing waits for any more.
    fn let_go(&mut self) {
        for stream in self.mux.take_completed() {
            assert!(!self.store.flows.contains_key(&stream), "stream {} is complete", stream.0);
        }
    }

    fn reader(&mut self, stream: StreamId, act: impl FnOnce(&mut Reader)) {
        let flow = self.store.flows.get_mut(&stream).expect("the mux knows what is open");
        let transfer = flow.transfer().expect("the mux lets only readable streams through");
        act(transfer.reader.as_mut().expect("the mux lets only readable streams through"));
    }

    fn on_acked(&mut self, stream: StreamId, offset: u64, done: bool) {
        match self.store.flows.get_mut(&stream) {
            None => {}
            Some(Flow::View(session)) => {
                let session = self.store.sessions.get_mut(session).expect("a viewed session");
                session.acked(stream, offset);
                if done {
                    self.drop_flow(stream);
                }
            }
            Some(flow) => {
                let transfer = flow.transfer().expect("all but views are transfers");
                let writer = transfer.writer.as_mut().expect("only what is written is acked");
                writer.discard_below(offset);
                if done {
                    assert!(writer.is_at_end(), "an end is acknowledged after it was reached");
                    transfer.writer = None;
                    self.settle(stream);
                }
            }
        }
    }

    /// The programs and the transfers make progress, with or without a link.
    pub fn step(&mut self, random: &mut Random) {
        for session in self.store.sessions.values_mut() {
            let pin = session.pin();
            if random.once_in(3) && session.writer.write(random, pin) {
                session.viewers.keys().for_each(|stream| self.mux.wake(*stream));
            }
        }
        let streams: Vec<StreamId> = self.store.flows.keys().copied().collect();
        for stream in streams {
            self.step_flow(stream, random);
        }
        if !self.waiting.is_empty() && random.once_in(20) {
            let id = self.waiting.swap_remove(random.below(self.waiting.len() as u64) as usize);
            self.answer(id, Ok(Reply::Done {}));
        }
    }

    fn step_flow(&mut self, stream: StreamId, random: &mut Random) {
        let flow = self.store.flows.get_mut(&stream).expect("the key was just read");
        let Some(transfer) = flow.transfer() else { return };
        if let Some(writer) = &mut transfer.writer {
            let pin = Some(writer.spool().start());
            if random.once_in(3) && writer.write(random, pin) {
                self.mux.wake(stream);
            }
        }
        if let Some(reader) = &mut transfer.reader
            && let Some(to) = reader.consume(random)
        {
            self.mux.consumed(stream, to);
        }
        let written = transfer.writer.as_ref().map_or(0, |writer| writer.spool().end());
        let read = transfer.reader.as_ref().map_or(0, Reader::received);
        if transfer.fails_at.is_some_and(|at| read.max(written) >= at) {
            self.telling.say(|| format!("agent: gives up stream {}", stream.0));
            self.mux.reset(stream, Fault::io("the disk is full", 28));
            self.drop_flow(stream);
        } else {
            self.settle(stream);
        }
    }

    /// Closes a flow that has nothing left to do.
    fn settle(&mut self, stream: StreamId) {
        let Some(transfer) = self.store.flows.get_mut(&stream).and_then(Flow::transfer) else {
            return;
        };
        let is_read = transfer.reader.as_ref().is_none_or(Reader::has_taken_all);
        if !is_read || transfer.writer.is_some() {
            return;
        }
        if let Some(reader) = &transfer.reader {
            reader.assert_complete(transfer.length);
            self.bytes += reader.received();
        }
        let bytes = transfer.length;
        if let Some(Flow::Upload { request, .. }) = self.store.flows.remove(&stream) {
            self.answer(request, Ok(Reply::Written { bytes, entries: 1 }));
        }
    }

    /// The stream has ended, early or not.
    fn drop_flow(&mut self, stream: StreamId) {
        match self.store.flows.remove(&stream) {
            Some(Flow::Upload { request, .. }) => {
                let fault = Fault::new(FaultCode::Gone, "the upload was given up");
                self.answer(request, Err(fault));
            }
            Some(Flow::View(session)) => {
                let session = self.store.sessions.get_mut(&session);
                session.expect("a viewed session").viewers.remove(&stream);
            }
            Some(Flow::Type(_) | Flow::Transfer(_)) | None => {}
        }
    }

    fn on_request(&mut self, id: RequestId, body: RequestBody) {
        let admission = self.answers.admit(id, &body.done, &mut self.mux);
        self.telling.say(|| format!("agent: {} {} is {admission:?}", body.request.name(), id.0));
        if admission == Admission::New {
            *self.carried_out.entry(id).or_default() += 1;
            self.carry_out(id, body.request);
        }
        assert_ne!(admission, Admission::Refused, "the host keeps to the limit");
    }

    fn carry_out(&mut self, id: RequestId, request: Request) {
        let plan = self.plan.clone();
        let reply = match request {
            Request::Start(start) => self.start(session_index(&start.session)),
            Request::Subscribe(subscribe) => self.subscribe(id, subscribe),
            Request::Input(input) => {
                let session = &plan.sessions[session_index(&input.session)];
                let typed = session.input.as_ref().expect("only planned input");
                let transfer = Transfer::read(typed);
                self.open(id, input.stream, Direction::In, 0, Flow::Type(transfer));
                Reply::Input(InputOpened { at: 0 })
            }
            Request::WriteFile(write) => {
                let transfer = Transfer::read(&plan.uploads[index(&write.path)]);
                let flow = Flow::Upload { request: id, transfer };
                self.open(id, write.stream, Direction::In, 0, flow);
                return;
            }
            Request::ReadFile(read) => {
                let download = &plan.downloads[index(&read.path)];
                let transfer = Transfer::write(download, &self.budget);
                self.open(id, read.stream, Direction::Out, 0, Flow::Transfer(transfer));
                let info = file_info(&read.path);
                Reply::Reading { bytes: Some(download.length), info }
            }
            Request::Forward(forward) => {
                let planned = &plan.forwards[usize::from(forward.port)];
                let mut transfer = Transfer::write(&planned.down, &self.budget);
                let up = &planned.up;
                transfer.reader = Some(Reader::new(up.key, 0, up.patience, false));
                transfer.length = up.length;
                self.open(id, forward.stream, Direction::Both, 0, Flow::Transfer(transfer));
                self.waiting.push(id);
                return;
            }
            Request::Release(release) => self.release(session_index(&release.session)),
            Request::Stat { path, .. } => Reply::Stat(file_info(&path)),
            Request::Adopt(ask) => Reply::Adopted(self.adopt(id, &ask)),
            Request::Info {} => Reply::Info(AgentInfo::default()),
            Request::Wait { .. } => {
                self.waiting.push(id);
                return;
            }
            other => panic!("the plan has no {}", other.name()),
        };
        self.answer(id, Ok(reply));
    }

    fn start(&mut self, index: usize) -> Reply {
        let plan = &self.plan.sessions[index];
        let writer =
            Writer::new(plan.key, plan.length, plan.spool_bytes, plan.policy, &self.budget);
        let session = Session { writer, policy: plan.policy, held: 0, viewers: BTreeMap::new() };
        let before = self.store.sessions.insert(index, session);
        assert!(before.is_none(), "each session is started once");
        Reply::Started(Started { pid: 1, repeated: false, warnings: Vec::new() })
    }

    fn subscribe(&mut self, id: RequestId, request: Subscribe) -> Reply {
        let index = session_index(&request.session);
        let session = self.store.sessions.get_mut(&index).expect("a session that was started");
        let spool = session.writer.spool();
        let (oldest, end) = (spool.start(), spool.end());
        let from = match request.from {
            Origin::Oldest {} => oldest,
            Origin::Tail { bytes } => oldest.max(end.saturating_sub(bytes)),
            Origin::Offset { offset } => offset,
        };
        let viewer = Viewer { role: request.role, acked: from };
        session.viewers.insert(request.stream, viewer);
        self.open(id, request.stream, Direction::Out, from, Flow::View(index));
        Reply::Subscribed(Subscribed { from, oldest, end })
    }

    fn release(&mut self, index: usize) -> Reply {
        let session = self.store.sessions.get(&index).expect("a session is released once");
        let viewers: Vec<StreamId> = session.viewers.keys().copied().collect();
        for stream in viewers {
            self.mux.reset(stream, Fault::new(FaultCode::Gone, "the session was released"));
            self.drop_flow(stream);
        }
        self.store.sessions.remove(&index);
        Reply::Done {}
    }

    fn open(&mut self, id: RequestId, stream: StreamId, way: Direction, at: u64, flow: Flow) {
        self.mux.open(stream, way, at).expect("the plan is modest");
        self.answers.opened(id, stream);
        self.store.flows.insert(stream, flow);
    }

    fn answer(&mut self, id: RequestId, result: Result<Reply, Fault>) {
        let answer = result.map_or_else(Answer::Fault, Answer::Ok);
        assert!(self.answers.answer(id, &answer, &mut self.mux), "kept answers are bounded");
    }

    /// Nothing is left except what the last request could not acknowledge.
    pub fn assert_clean(&self) {
        assert!(self.store.flows.is_empty(), "flows end: {:?}", self.store.flows.keys());
        assert!(self.store.sessions.is_empty(), "sessions are released");
        assert!(self.waiting.is_empty(), "work is finished");
        assert!(self.answers.taken().len() <= 1, "answers are forgotten once they have arrived");
        assert_eq!(self.budget.used(), 0, "spools give back what they took");
    }

    /// Every spool stays within the budget, beyond the minimum that each may have.
    pub fn assert_bounded(&self) {
        let spools = self.store.sessions.len() + self.store.flows.len();
        let bound = self.plan.budget_bytes + spools * SPOOL_BYTES_MIN;
        assert!(self.budget.used() <= bound, "{} bytes of spools", self.budget.used());
    }
}

impl Session {
    /// The lowest offset that is still needed.
    fn pin(&self) -> Option<u64> {
        let passing = self.viewers.values().filter_map(|viewer| match &viewer.role {
            Role::Holder { name } if name != HOLDER => Some(viewer.acked),
            Role::Holder { .. } | Role::Observer {} => None,
        });
        passing.chain([self.held]).min()
    }

    fn acked(&mut self, stream: StreamId, offset: u64) {
        let Some(viewer) = self.viewers.get_mut(&stream) else { return };
        viewer.acked = offset;
        if matches!(&viewer.role, Role::Holder { name } if name == HOLDER) {
            self.held = offset;
        }
        if self.policy == SpoolPolicy::Block {
            let needed = self.pin().unwrap_or(0);
            assert!(self.writer.spool().end() >= needed, "nobody needs what was never written");
        }
    }
}

impl Flow {
    fn transfer(&mut self) -> Option<&mut Transfer> {
        match self {
            Self::View(_) => None,
            Self::Type(transfer) | Self::Upload { transfer, .. } | Self::Transfer(transfer) => {
                Some(transfer)
            }
        }
    }
}

impl Transfer {
    fn read(plan: &TransferPlan) -> Self {
        let reader = Some(Reader::new(plan.key, 0, plan.patience, false));
        Self { writer: None, reader, length: plan.length, fails_at: plan.fails_at }
    }

    fn write(plan: &TransferPlan, budget: &Budget) -> Self {
        let policy = SpoolPolicy::Block;
        let writer = Writer::new(plan.key, plan.length, SPOOL_BYTES_MIN, policy, budget);
        let (length, fails_at) = (plan.length, plan.fails_at);
        Self { writer: Some(writer), reader: None, length, fails_at }
    }
}

impl Source for Store {
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        let writer = match self.flows.get(&stream) {
            None => return Fetched::Nothing,
            Some(Flow::View(session)) => &self.sessions[session].writer,
            Some(
                Flow::Type(transfer) | Flow::Upload { transfer, .. } | Flow::Transfer(transfer),
            ) => match &transfer.writer {
                Some(writer) => writer,
                None => return Fetched::Nothing,
            },
        };
        writer.fetch(from, max, out)
    }
}

fn session_index(session: &SessionId) -> usize {
    let index = session.as_str()[1..].parse().expect("sessions are named by number");
    assert_eq!(*session, session_id(index));
    index
}

fn index(path: &Text) -> usize {
    path.to_string_lossy().parse().expect("files are named by number")
}

fn file_info(path: &Text) -> FileInfo {
    FileInfo {
        name: path.clone(),
        kind: FileKind::File,
        bytes: 0,
        permissions: 0o644,
        uid: 0,
        gid: 0,
        modified_ms: 0,
        target: None,
    }
}
