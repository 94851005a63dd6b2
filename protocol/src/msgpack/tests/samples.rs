//! Messages of every type, generated from a list of numbers: each number makes one choice, and an
//! exhausted list continues with zeros, so that proptest shrinks towards the simplest message.

mod metrics;
mod repl;

use proptest::prelude::*;

pub use self::repl::HAPPENINGS;
use crate::boot::{BootConfig, IdRanges};
use crate::exit::{Cause, ExitRecord, OutputTotal, SpawnFailure, SpawnStage, Survivor, Usage};
use crate::fault::{Fault, FaultCode};
use crate::hello::{
    AgentInfo, BootStep, Goodbye, GoodbyeReason, Hello, Resume, StreamPosition, Welcome,
};
use crate::ids::{AgentId, ClientId, RequestId, SessionId, StreamId, Token};
use crate::message::{
    Adopted, Answer, Change, Channel, Entries, FileInfo, FileKind, InputOpened, Reply, Request,
    RequestBody, SessionInfo, SessionList, Started, Subscribed, WatchEvent,
};
use crate::requests as ask;
use crate::stream::{Ack, Fin, Gap};
use crate::text::Text;

pub struct Draw<'a>(pub &'a [u64]);

pub const REQUESTS: u64 = 38;
pub const REPLIES: u64 = 23;

/// Numbers with every width of integer, plain ones most often.
pub fn numbers() -> impl Strategy<Value = Vec<u64>> {
    let number = (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift);
    prop::collection::vec(prop_oneof![3 => 0..8_u64, 1 => number], 0..400)
}

impl Draw<'_> {
    fn number(&mut self) -> u64 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.yes() { Some(make(self)) } else { None }
    }

    fn some<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        // Above 15 the length has a byte of its own.
        let count = [0, 1, 2, 3, 17][self.below(5) as usize];
        (0..count).map(|_| make(self)).collect()
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    fn signed(&mut self) -> i64 {
        let value = self.number() as i64;
        let shift = self.below(64);
        value >> shift
    }

    fn string(&mut self) -> String {
        let length = self.one_of(&[0, 1, 31, 32, 255, 256, 70_000]);
        let letter = self.one_of(&['a', 'ß', '😀']);
        std::iter::repeat_n(letter, length / letter.len_utf8()).collect()
    }

    fn text(&mut self) -> Text {
        let mut bytes = self.string().into_bytes();
        if self.yes() {
            bytes.push(0xff);
        }
        bytes.into()
    }

    fn session(&mut self) -> SessionId {
        format!("s{}", self.number()).parse().expect("a session id")
    }

    fn stream(&mut self) -> StreamId {
        StreamId(self.number())
    }

    fn random(&mut self) -> [u8; 16] {
        std::array::from_fn(|_| self.number() as u8)
    }

    fn size(&mut self) -> ask::TerminalSize {
        ask::TerminalSize { rows: self.number() as u16, columns: self.number() as u16 }
    }

    fn channel(&mut self) -> Channel {
        self.one_of(&[Channel::Stdout, Channel::Stderr, Channel::Terminal])
    }

    pub fn hello(&mut self) -> Hello {
        Hello {
            version_min: self.small(),
            version_max: self.small(),
            client: ClientId(self.random()),
            name: self.string(),
            dial: self.number(),
            resume: self.maybe(|draw| Resume {
                token: Token(draw.random()),
                streams: draw.some(Self::position),
                unanswered: draw.some(|draw| RequestId(draw.number())),
            }),
            resume_window_ms: self.number(),
        }
    }

    fn position(&mut self) -> StreamPosition {
        StreamPosition {
            stream: self.stream(),
            next: self.number(),
            up_to: self.number(),
            finished: self.yes(),
            gone: self.maybe(Self::fault),
        }
    }

    pub fn welcome(&mut self) -> Welcome {
        Welcome {
            version: self.small(),
            agent: AgentId(self.random()),
            token: Token(self.random()),
            resumed: self.yes(),
            streams: self.some(Self::position),
            taken: self.some(|draw| RequestId(draw.number())),
            info: self.info(),
        }
    }

    fn info(&mut self) -> AgentInfo {
        AgentInfo {
            release: self.string(),
            pid: self.small(),
            init: self.yes(),
            hostname: self.string(),
            time_ms: self.number(),
            uptime_ms: self.number(),
            ready_cpu_us: self.number(),
            ready_us: self.number(),
            memory_bytes: self.number(),
            cpus: self.small(),
            cgroup_missing: self.maybe(Self::string),
            controllers: self.some(Self::string),
            processes_reaped: self.number(),
            boot: self.some(|draw| BootStep {
                name: draw.string(),
                micros: draw.number(),
                problem: draw.maybe(Self::string),
            }),
            machine: self.yes(),
            kernel_us: self.maybe(Self::number),
        }
    }

    pub fn goodbye(&mut self) -> Goodbye {
        use GoodbyeReason as R;
        let reasons = [
            R::Finished,
            R::Stopping,
            R::Version,
            R::Protocol,
            R::Limit,
            R::Replaced,
            R::BootFailed,
        ];
        Goodbye { reason: self.one_of(&reasons), message: self.string() }
    }

    pub fn fault(&mut self) -> Fault {
        Fault {
            code: self.one_of(&FaultCode::ALL),
            message: self.string(),
            errno: self.maybe(|draw| draw.signed() as i32),
            spawn: self.maybe(Self::failure),
        }
    }

    fn failure(&mut self) -> SpawnFailure {
        use SpawnStage as S;
        let stages = [
            S::User,
            S::Stdio,
            S::Cgroup,
            S::Fork,
            S::Terminal,
            S::Identity,
            S::WorkingDirectory,
            S::Exec,
        ];
        SpawnFailure {
            stage: self.one_of(&stages),
            errno: self.signed() as i32,
            subject: self.string(),
        }
    }

    fn cause(&mut self) -> Cause {
        match self.below(7) {
            0 => Cause::Exited { code: self.signed() as i32 },
            1 => Cause::Signaled { signal: self.signed() as i32, core_dumped: self.yes() },
            2 => Cause::Killed { signal: self.signed() as i32, by: self.string() },
            3 => Cause::TimedOut { limit_ms: self.number() },
            4 => Cause::OutOfMemory { limit_bytes: self.maybe(Self::number) },
            5 => Cause::AgentStopping,
            _ => Cause::SpawnFailed { failure: self.failure() },
        }
    }

    pub fn exit(&mut self) -> ExitRecord {
        ExitRecord {
            cause: self.cause(),
            started_at_ms: self.number(),
            ended_at_ms: self.number(),
            duration_us: self.number(),
            usage: Usage {
                user_us: self.number(),
                system_us: self.number(),
                resident_bytes_max: self.number(),
                memory_bytes_peak: self.maybe(Self::number),
                block_reads: self.number(),
                block_writes: self.number(),
                switches_voluntary: self.number(),
                switches_forced: self.number(),
            },
            outputs: self.some(|draw| OutputTotal {
                channel: draw.channel(),
                written: draw.number(),
                dropped: draw.number(),
                digested: draw.maybe(Self::number),
                sha256: draw.maybe(Self::string),
            }),
            left_behind: self.some(|draw| Survivor { pid: draw.small(), command: draw.string() }),
            left_behind_count: self.small(),
        }
    }

    pub fn session_info(&mut self) -> SessionInfo {
        SessionInfo {
            session: self.session(),
            pid: self.small(),
            command: self.string(),
            terminal: self.yes(),
            started_at_ms: self.number(),
            exit: self.maybe(Self::exit),
            holders: self.some(Self::string),
            viewers: self.small(),
            keyboard: self.maybe(Self::string),
            starting: self.yes(),
            size: self.maybe(Self::size),
        }
    }

    fn file(&mut self) -> FileInfo {
        use FileKind as K;
        let kinds =
            [K::File, K::Directory, K::Symlink, K::Fifo, K::Socket, K::BlockDevice, K::CharDevice];
        FileInfo {
            name: self.text(),
            kind: self.one_of(&kinds),
            bytes: self.number(),
            permissions: self.small(),
            uid: self.small(),
            gid: self.small(),
            modified_ms: self.signed(),
            target: self.maybe(Self::text),
        }
    }

    fn start(&mut self) -> ask::Start {
        ask::Start {
            session: self.session(),
            program: match self.below(3) {
                0 => ask::Program::LoginShell {},
                1 => ask::Program::Argv { argv: self.some(Self::text) },
                _ => ask::Program::Script { script: self.text(), shell: self.maybe(Self::text) },
            },
            cwd: self.maybe(Self::text),
            env: self.some(|draw| (draw.text(), draw.text())),
            user: self.maybe(Self::string),
            stdio: if self.yes() {
                ask::Stdio::Pty { size: self.size() }
            } else {
                ask::Stdio::Pipes { stdin: self.yes() }
            },
            deadline_ms: self.maybe(Self::number),
            spool: ask::SpoolSpec {
                bytes: self.maybe(Self::number),
                policy: self.one_of(&[ask::SpoolPolicy::Block, ask::SpoolPolicy::DropOldest]),
            },
            holders: self.some(Self::string),
            tied: self.yes(),
            limits: self.group_limits(),
        }
    }

    fn group_limits(&mut self) -> ask::GroupLimits {
        ask::GroupLimits {
            memory_bytes: self.maybe(Self::number),
            processes: self.maybe(Self::number),
            cpu_millis: self.maybe(Self::number),
        }
    }

    pub fn request(&mut self) -> RequestBody {
        let number = self.below(REQUESTS);
        RequestBody {
            done: self.some(|draw| RequestId(draw.number())),
            request: self.request_number(number),
        }
    }

    pub fn request_number(&mut self, number: u64) -> Request {
        match number {
            0 => Request::Info {},
            1 => Request::Start(self.start()),
            2 => Request::Sessions { since: self.number(), lasting: self.yes() },
            3 => Request::Wait { session: self.session() },
            4 => Request::Signal(ask::Signal {
                session: self.session(),
                signal: self.signed() as i32,
                target: self.one_of(&[ask::Target::Leader, ask::Target::Group, ask::Target::Tree]),
            }),
            5 => Request::Resize(ask::Resize {
                session: self.session(),
                size: self.size(),
                redraw: self.yes(),
            }),
            6 => Request::Subscribe(ask::Subscribe {
                session: self.session(),
                channel: self.channel(),
                stream: self.stream(),
                from: match self.below(3) {
                    0 => ask::Origin::Oldest {},
                    1 => ask::Origin::Tail { bytes: self.number() },
                    _ => ask::Origin::Offset { offset: self.number() },
                },
                role: if self.yes() {
                    ask::Role::Holder { name: self.string() }
                } else {
                    ask::Role::Observer {}
                },
            }),
            7 => Request::Input(ask::Input {
                session: self.session(),
                stream: self.stream(),
                from: self.maybe(Self::number),
                take: self.yes(),
            }),
            8 => Request::Release(ask::Release {
                session: self.session(),
                holder: self.maybe(Self::string),
                kill_survivors: self.yes(),
            }),
            9 => Request::ReadFile(ask::ReadFile {
                path: self.text(),
                stream: self.stream(),
                offset: self.number(),
                length: self.maybe(Self::number),
            }),
            10 => Request::WriteFile(ask::WriteFile {
                path: self.text(),
                stream: self.stream(),
                mode: match self.below(4) {
                    0 => ask::WriteMode::Replace {},
                    1 => ask::WriteMode::Create {},
                    2 => ask::WriteMode::At { offset: self.number() },
                    _ => ask::WriteMode::Append {},
                },
                permissions: self.maybe(Self::small),
                uid: self.maybe(Self::small),
                gid: self.maybe(Self::small),
                parents: self.yes(),
            }),
            11 => Request::Stat { path: self.text(), follow: self.yes() },
            12 => Request::List(ask::List { path: self.text(), after: self.maybe(Self::text) }),
            13 => Request::MakeDirectory(ask::MakeDirectory {
                path: self.text(),
                permissions: self.maybe(Self::small),
                parents: self.yes(),
            }),
            14 => {
                Request::Move(ask::Move { from: self.text(), to: self.text(), replace: self.yes() })
            }
            15 => Request::Remove(ask::Remove { path: self.text(), recursive: self.yes() }),
            16 => Request::TarGet(ask::TarGet {
                path: self.text(),
                stream: self.stream(),
                follow: self.yes(),
            }),
            17 => Request::TarPut(ask::TarPut {
                path: self.text(),
                stream: self.stream(),
                owners: self.yes(),
                parents: self.yes(),
            }),
            18 => Request::Watch(ask::Watch {
                path: self.text(),
                stream: self.stream(),
                recursive: self.yes(),
            }),
            19 => Request::Forward(ask::Forward {
                stream: self.stream(),
                address: self.maybe(Self::string),
                port: self.number() as u16,
                accept: self.maybe(|draw| {
                    if draw.yes() { ask::Arrival::Connection } else { ask::Arrival::Question }
                }),
            }),
            20..30 => self.context_request_number(number - 20),
            30 => Request::Metrics(self.ask_metrics()),
            31 => Request::Usage(self.ask_usage()),
            32 => Request::Shutdown(ask::Shutdown { grace_ms: self.maybe(Self::number) }),
            33 => Request::Freeze { watchdog_ms: self.number() },
            34 => Request::Thaw { time_us: self.maybe(Self::number) },
            35 => Request::LayerGet(ask::LayerGet { stream: self.stream() }),
            36 => Request::LayerPut(ask::LayerPut { stream: self.stream() }),
            _ => Request::Adopt(ask::Adopt {
                time_us: self.number(),
                entropy: self.text(),
                hostname: self.maybe(Self::string),
                env: self.some(|draw| (draw.text(), draw.text())),
                restored: self.yes(),
            }),
        }
    }

    pub fn answer(&mut self) -> Answer {
        match self.below(REPLIES + 1) {
            REPLIES => Answer::Fault(self.fault()),
            number => Answer::Ok(self.reply_number(number)),
        }
    }

    pub fn reply_number(&mut self, number: u64) -> Reply {
        match number {
            0 => Reply::Done {},
            1 => Reply::Info(self.info()),
            2 => Reply::Started(Started {
                pid: self.small(),
                repeated: self.yes(),
                warnings: self.some(Self::string),
            }),
            3 => Reply::Sessions(SessionList {
                version: self.number(),
                sessions: self.some(Self::session_info),
            }),
            4 => Reply::Exited(self.exit()),
            5 => Reply::Subscribed(Subscribed {
                from: self.number(),
                oldest: self.number(),
                end: self.number(),
            }),
            6 => Reply::Input(InputOpened { at: self.number() }),
            7 => Reply::Reading { bytes: self.maybe(Self::number), info: self.file() },
            8 => Reply::Written { bytes: self.number(), entries: self.number() },
            9 => Reply::Stat(self.file()),
            10 => Reply::Entries(Entries { entries: self.some(Self::file), more: self.yes() }),
            11 => Reply::Metrics(self.metrics_page()),
            12 => Reply::Usage(self.tree_usage()),
            13 => Reply::Frozen { groups: self.small(), took_us: self.number() },
            14 => Reply::Thawed {
                frozen_ms: self.number(),
                drift_us: self.maybe(|maker| maker.number() as i64),
            },
            15 => Reply::Adopted(Adopted {
                drift_us: self.signed(),
                stepped: self.yes(),
                agent: AgentId(self.random()),
                token: Token(self.random()),
                frozen_ms: self.number(),
                warnings: self.some(Self::string),
            }),
            16 => Reply::Layer { env: self.some(|draw| (draw.text(), draw.text())) },
            _ => self.context_reply_number(number - 17),
        }
    }

    pub fn ack(&mut self) -> Ack {
        Ack { consumed: self.number(), up_to: self.number(), finished: self.yes() }
    }

    pub fn fin(&mut self) -> Fin {
        Fin { offset: self.number() }
    }

    pub fn gap(&mut self) -> Gap {
        Gap { from: self.number(), to: self.number() }
    }

    pub fn boot(&mut self) -> BootConfig {
        BootConfig {
            sandbox: self.string(),
            hostname: self.string(),
            root: self.string(),
            scratch_bytes: self.number(),
            env: self.some(|draw| (draw.string(), draw.string())),
            hide: self.some(Self::string),
            door: self.yes(),
            time_us: self.number(),
            ids: self.maybe(Self::id_ranges),
            processes_max: self.number(),
            group: self.string(),
            scratch_mount: self.string(),
        }
    }

    fn id_ranges(&mut self) -> IdRanges {
        IdRanges { first: self.number() as u32, count: self.number() as u32, required: self.yes() }
    }

    pub fn watch_event(&mut self) -> WatchEvent {
        use Change as C;
        let changes = [C::Created, C::Modified, C::Attributes, C::Removed, C::Moved, C::Overflow];
        WatchEvent {
            change: self.one_of(&changes),
            path: self.text(),
            from: self.maybe(Self::text),
        }
    }
}
