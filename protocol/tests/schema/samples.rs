//! One fully populated sample of every message and of every word, with the largest number of each
//! type. A new field or variant does not compile without its sample.

use protocol::boot::{BootConfig, IdRanges};
use protocol::codec::{decode_body, encode_body};
use protocol::exit::{OutputTotal, SpawnFailure, SpawnStage, Survivor, Usage};
use protocol::frame::Kind;
use protocol::hello::{
    AgentInfo, BootStep, Goodbye, GoodbyeReason, Hello, Resume, StreamPosition, Welcome,
};
use protocol::message::{
    Adopted, Answer, Change, Channel, Entries, FileInfo, FileKind, InputOpened, RequestBody,
    SessionInfo, SessionList, Started, Subscribed, WatchEvent,
};
use protocol::msgpack::Decode;
use protocol::requests as ask;
use protocol::requests::{Origin, Program, Role, SpoolPolicy, Stdio, Target, WriteMode};
use protocol::stream::{Ack, Fin, Gap};
use protocol::{
    AgentId, Cause, ClientId, ExitRecord, Fault, FaultCode, Reply, Request, RequestId, SessionId,
    StreamId, Text, Token,
};
use serde::Serialize;

/// A message as bytes, and its type as a function.
pub struct Sample {
    pub group: &'static str,
    pub name: String,
    pub body: Vec<u8>,
    /// Decodes a body and encodes it again.
    pub recode: fn(&[u8]) -> Result<Vec<u8>, String>,
}

/// The name in the error is not looked at.
const ANY_KIND: Kind = Kind::Request;

fn sample<T>(group: &'static str, name: impl Into<String>, message: &T) -> Sample
where
    T: Serialize + Decode + PartialEq + std::fmt::Debug,
{
    let body = encode_body(message);
    let decoded: T = decode_body(ANY_KIND, &body).expect("a message decodes");
    assert_eq!(decoded, *message, "a message is what it was");
    let recode = |body: &[u8]| {
        let message: T = decode_body(ANY_KIND, body).map_err(|error| error.to_string())?;
        Ok(encode_body(&message))
    };
    Sample { group, name: name.into(), body, recode }
}

/// Lists a sample of every variant; the match makes sure that it is every variant.
macro_rules! variants {
    ($type:ty { $($pattern:pat => $sample:expr),+ $(,)? }) => {{
        let all: Vec<$type> = vec![$($sample),+];
        for one in &all {
            match one {
                $($pattern => {})+
            }
        }
        all
    }};
}

mod metrics;
mod repl;

/// The variants of an enum under its name, each called by its word on the wire.
macro_rules! words {
    ($out:ident, $group:literal, $all:expr) => {
        for word in $all {
            let value = rmpv::decode::read_value(&mut &encode_body(&word)[..]).expect("a word");
            let name = match &value {
                rmpv::Value::Map(tag) => tag[0].0.as_str().expect("a tag").to_owned(),
                value => value.as_str().expect("a word").to_owned(),
            };
            $out.push(sample($group, name, &word));
        }
    };
}

pub fn all_samples() -> Vec<Sample> {
    let mut all = vec![
        sample("bodies", "hello", &hello()),
        sample("bodies", "welcome", &welcome()),
        sample("bodies", "goodbye", &Goodbye { reason: GoodbyeReason::Finished, message: text() }),
        sample("bodies", "boot", &boot()),
        sample("bodies", "ack", &Ack { consumed: u64::MAX, up_to: u64::MAX, finished: true }),
        sample("bodies", "fin", &Fin { offset: u64::MAX }),
        sample("bodies", "gap", &Gap { from: u64::MAX, to: u64::MAX }),
        sample("bodies", "reset", &fault()),
        sample("bodies", "request", &request_body()),
        sample("records", "exit_record", &exit_record()),
        sample("records", "file_info", &file_info()),
        sample("records", "watch_event", &watch_event()),
        sample("records", "event", &repl::event()),
    ];
    words!(all, "answers", answers());
    words!(all, "requests", requests());
    words!(all, "replies", replies());
    words!(all, "causes", causes());
    words!(all, "fault_codes", fault_codes());
    words!(all, "goodbye_reasons", goodbye_reasons());
    words!(all, "spawn_stages", spawn_stages());
    words!(all, "channels", channels());
    words!(all, "file_kinds", file_kinds());
    words!(all, "changes", changes());
    words!(all, "programs", programs());
    words!(all, "stdio", stdio());
    words!(all, "spool_policies", spool_policies());
    words!(all, "targets", targets());
    words!(all, "origins", origins());
    words!(all, "roles", roles());
    words!(all, "write_modes", write_modes());
    words!(all, "happenings", repl::happenings());
    words!(all, "run_ends", repl::run_ends());
    words!(all, "rungs", repl::rungs());
    words!(all, "display_roles", repl::display_roles());
    words!(all, "context_states", repl::context_states());
    words!(all, "code_states", repl::code_states());
    words!(all, "scopes", metrics::scopes());
    all
}

fn text() -> String {
    "sample".to_owned()
}

/// Not UTF-8, so that it shows that binaries are allowed.
fn raw() -> Text {
    Text::from(vec![0xff])
}

fn session() -> SessionId {
    "sample".parse().expect("a session id")
}

fn stream() -> StreamId {
    StreamId(u64::MAX)
}

fn size() -> ask::TerminalSize {
    ask::TerminalSize { rows: u16::MAX, columns: u16::MAX }
}

fn hello() -> Hello {
    Hello {
        version_min: u32::MAX,
        version_max: u32::MAX,
        client: ClientId([0xff; 16]),
        name: text(),
        dial: u64::MAX,
        resume: Some(Resume {
            token: Token([0xff; 16]),
            streams: vec![position()],
            unanswered: vec![RequestId(u64::MAX)],
        }),
        resume_window_ms: u64::MAX,
    }
}

fn position() -> StreamPosition {
    StreamPosition {
        stream: stream(),
        next: u64::MAX,
        up_to: u64::MAX,
        finished: true,
        gone: Some(fault()),
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: u32::MAX,
        agent: AgentId([0xff; 16]),
        token: Token([0xff; 16]),
        resumed: true,
        streams: vec![position()],
        taken: vec![RequestId(u64::MAX)],
        info: agent_info(),
    }
}

fn agent_info() -> AgentInfo {
    AgentInfo {
        release: text(),
        pid: u32::MAX,
        init: true,
        hostname: text(),
        time_ms: u64::MAX,
        uptime_ms: u64::MAX,
        ready_cpu_us: u64::MAX,
        ready_us: u64::MAX,
        memory_bytes: u64::MAX,
        cpus: u32::MAX,
        cgroup_missing: Some(text()),
        controllers: vec![text()],
        processes_reaped: u64::MAX,
        boot: vec![BootStep { name: text(), micros: u64::MAX, problem: Some(text()) }],
        machine: true,
        kernel_us: Some(u64::MAX),
    }
}

fn boot() -> BootConfig {
    BootConfig {
        sandbox: text(),
        hostname: text(),
        root: text(),
        scratch_bytes: u64::MAX,
        env: vec![(text(), text())],
        hide: vec![text()],
        door: true,
        time_us: u64::MAX,
        ids: Some(IdRanges { first: u32::MAX, count: u32::MAX, required: true }),
        processes_max: u64::MAX,
        group: text(),
        scratch_mount: text(),
    }
}

fn fault() -> Fault {
    Fault {
        code: FaultCode::SpawnFailed,
        message: text(),
        errno: Some(i32::MIN),
        spawn: Some(spawn_failure()),
    }
}

fn spawn_failure() -> SpawnFailure {
    SpawnFailure { stage: SpawnStage::Exec, errno: i32::MIN, subject: text() }
}

fn request_body() -> RequestBody {
    RequestBody { done: vec![RequestId(u64::MAX)], request: Request::Info {} }
}

fn answers() -> Vec<Answer> {
    variants!(Answer {
        Answer::Ok(_) => Answer::Ok(Reply::Done {}),
        Answer::Fault(_) => Answer::Fault(fault()),
    })
}

pub fn requests() -> Vec<Request> {
    variants!(Request {
        Request::Info {} => Request::Info {},
        Request::Start(_) => Request::Start(start()),
        Request::Sessions { .. } => Request::Sessions { since: u64::MAX, lasting: true },
        Request::Wait { .. } => Request::Wait { session: session() },
        Request::Signal(_) => Request::Signal(ask::Signal {
            session: session(),
            signal: i32::MIN,
            target: Target::Tree,
        }),
        Request::Resize(_) => Request::Resize(ask::Resize {
            session: session(),
            size: size(),
            redraw: true,
        }),
        Request::Subscribe(_) => Request::Subscribe(ask::Subscribe {
            session: session(),
            channel: Channel::Stdout,
            stream: stream(),
            from: Origin::Oldest {},
            role: Role::Observer {},
        }),
        Request::Input(_) => Request::Input(ask::Input {
            session: session(),
            stream: stream(),
            from: Some(u64::MAX),
            take: true,
        }),
        Request::Release(_) => Request::Release(ask::Release {
            session: session(),
            holder: Some(text()),
            kill_survivors: true,
        }),
        Request::ReadFile(_) => Request::ReadFile(ask::ReadFile {
            path: raw(),
            stream: stream(),
            offset: u64::MAX,
            length: Some(u64::MAX),
        }),
        Request::WriteFile(_) => Request::WriteFile(ask::WriteFile {
            path: raw(),
            stream: stream(),
            mode: WriteMode::Append {},
            permissions: Some(u32::MAX),
            uid: Some(u32::MAX),
            gid: Some(u32::MAX),
            parents: true,
        }),
        Request::Stat { .. } => Request::Stat { path: raw(), follow: true },
        Request::List(_) => Request::List(ask::List { path: raw(), after: Some(raw()) }),
        Request::MakeDirectory(_) => Request::MakeDirectory(ask::MakeDirectory {
            path: raw(),
            permissions: Some(u32::MAX),
            parents: true,
        }),
        Request::Move(_) => Request::Move(ask::Move { from: raw(), to: raw(), replace: true }),
        Request::Remove(_) => Request::Remove(ask::Remove { path: raw(), recursive: true }),
        Request::TarGet(_) => Request::TarGet(ask::TarGet {
            path: raw(),
            stream: stream(),
            follow: true,
        }),
        Request::TarPut(_) => Request::TarPut(ask::TarPut {
            path: raw(),
            stream: stream(),
            owners: true,
            parents: true,
        }),
        Request::LayerGet(_) => Request::LayerGet(ask::LayerGet { stream: stream() }),
        Request::LayerPut(_) => Request::LayerPut(ask::LayerPut { stream: stream() }),
        Request::Watch(_) => Request::Watch(ask::Watch {
            path: raw(),
            stream: stream(),
            recursive: true,
        }),
        Request::Forward(_) => Request::Forward(ask::Forward {
            stream: stream(),
            address: Some(text()),
            port: u16::MAX,
            accept: Some(ask::Arrival::Connection),
        }),
        Request::OpenContext(_) => Request::OpenContext(repl::open_context()),
        Request::Contexts {} => Request::Contexts {},
        Request::Run(_) => Request::Run(repl::run()),
        Request::Interrupt(_) => Request::Interrupt(repl::interrupt()),
        Request::AnswerInput(_) => Request::AnswerInput(repl::answer_input()),
        Request::Complete(_) => Request::Complete(repl::complete()),
        Request::CheckCode { .. } => Request::CheckCode {
            context: repl::context(),
            code: text(),
        },
        Request::WatchContext { .. } => Request::WatchContext {
            context: repl::context(),
            stream: stream(),
        },
        Request::RestartContext { .. } => Request::RestartContext { context: repl::context() },
        Request::CloseContext { .. } => Request::CloseContext { context: repl::context() },
        Request::Metrics(_) => Request::Metrics(metrics::ask_metrics()),
        Request::Usage(_) => Request::Usage(metrics::ask_usage()),
        // An unknown variant is never written.
        Request::Shutdown(_) | Request::Unknown { .. } => {
            Request::Shutdown(ask::Shutdown { grace_ms: Some(u64::MAX) })
        },
        Request::Freeze { .. } => Request::Freeze { watchdog_ms: u64::MAX },
        Request::Thaw { .. } => Request::Thaw { time_us: Some(u64::MAX) },
        Request::Adopt(_) => Request::Adopt(ask::Adopt {
            time_us: u64::MAX,
            entropy: raw(),
            hostname: Some(text()),
            env: vec![(raw(), raw())],
            restored: true,
        }),
    })
}

fn start() -> ask::Start {
    ask::Start {
        session: session(),
        program: Program::LoginShell {},
        cwd: Some(raw()),
        env: vec![(raw(), raw())],
        user: Some(text()),
        stdio: Stdio::Pty { size: size() },
        deadline_ms: Some(u64::MAX),
        spool: ask::SpoolSpec { bytes: Some(u64::MAX), policy: SpoolPolicy::Block },
        holders: vec![text()],
        tied: true,
        limits: group_limits(),
    }
}

fn group_limits() -> ask::GroupLimits {
    ask::GroupLimits {
        memory_bytes: Some(u64::MAX),
        processes: Some(u64::MAX),
        cpu_millis: Some(u64::MAX),
    }
}

pub fn replies() -> Vec<Reply> {
    variants!(Reply {
        Reply::Done {} => Reply::Done {},
        Reply::Info(_) => Reply::Info(agent_info()),
        Reply::Started(_) => Reply::Started(Started {
            pid: u32::MAX,
            repeated: true,
            warnings: vec![text()],
        }),
        Reply::Sessions(_) => Reply::Sessions(SessionList {
            version: u64::MAX,
            sessions: vec![session_info()],
        }),
        Reply::Exited(_) => Reply::Exited(exit_record()),
        Reply::Subscribed(_) => Reply::Subscribed(Subscribed {
            from: u64::MAX,
            oldest: u64::MAX,
            end: u64::MAX,
        }),
        Reply::Input(_) => Reply::Input(InputOpened { at: u64::MAX }),
        Reply::Reading { .. } => Reply::Reading { bytes: Some(u64::MAX), info: file_info() },
        Reply::Written { .. } => Reply::Written { bytes: u64::MAX, entries: u64::MAX },
        Reply::Layer { .. } => Reply::Layer { env: vec![(raw(), raw())] },
        Reply::Stat(_) => Reply::Stat(file_info()),
        Reply::Entries(_) => Reply::Entries(Entries { entries: vec![file_info()], more: true }),
        Reply::Context(_) => Reply::Context(repl::context_info()),
        Reply::Contexts { .. } => Reply::Contexts { contexts: vec![repl::context_info()] },
        Reply::Queued { .. } => Reply::Queued { run: u64::MAX, ahead: u32::MAX },
        Reply::Interrupting { .. } => Reply::Interrupting { run: Some(u64::MAX) },
        Reply::Completions(_) => Reply::Completions(repl::completions()),
        Reply::Completeness(_) => Reply::Completeness(repl::completeness()),
        Reply::Metrics(_) => Reply::Metrics(metrics::metrics_page()),
        Reply::Usage(_) => Reply::Usage(metrics::tree_usage()),
        Reply::Frozen { .. } => Reply::Frozen { groups: u32::MAX, took_us: u64::MAX },
        Reply::Thawed { .. } => Reply::Thawed { frozen_ms: u64::MAX, drift_us: Some(i64::MIN) },
        Reply::Adopted(_) => Reply::Adopted(Adopted {
            drift_us: i64::MIN,
            stepped: true,
            agent: AgentId([0xff; 16]),
            token: Token([0xff; 16]),
            frozen_ms: u64::MAX,
            warnings: vec![text()],
        }),
    })
}

fn session_info() -> SessionInfo {
    SessionInfo {
        session: session(),
        pid: u32::MAX,
        command: text(),
        terminal: true,
        started_at_ms: u64::MAX,
        exit: Some(exit_record()),
        holders: vec![text()],
        viewers: u32::MAX,
        keyboard: Some(text()),
        starting: true,
        size: Some(size()),
    }
}

fn exit_record() -> ExitRecord {
    ExitRecord {
        cause: Cause::SpawnFailed { failure: spawn_failure() },
        started_at_ms: u64::MAX,
        ended_at_ms: u64::MAX,
        duration_us: u64::MAX,
        usage: Usage {
            user_us: u64::MAX,
            system_us: u64::MAX,
            resident_bytes_max: u64::MAX,
            memory_bytes_peak: Some(u64::MAX),
            block_reads: u64::MAX,
            block_writes: u64::MAX,
            switches_voluntary: u64::MAX,
            switches_forced: u64::MAX,
        },
        outputs: vec![OutputTotal {
            channel: Channel::Stdout,
            written: u64::MAX,
            dropped: u64::MAX,
            digested: Some(u64::MAX),
            sha256: Some(text()),
        }],
        left_behind: vec![Survivor { pid: u32::MAX, command: text() }],
        left_behind_count: u32::MAX,
    }
}

fn file_info() -> FileInfo {
    FileInfo {
        name: raw(),
        kind: FileKind::Symlink,
        bytes: u64::MAX,
        permissions: u32::MAX,
        uid: u32::MAX,
        gid: u32::MAX,
        modified_ms: i64::MIN,
        target: Some(raw()),
    }
}

fn watch_event() -> WatchEvent {
    WatchEvent { change: Change::Moved, path: raw(), from: Some(raw()) }
}

pub fn causes() -> Vec<Cause> {
    variants!(Cause {
        Cause::Exited { .. } => Cause::Exited { code: i32::MIN },
        Cause::Signaled { .. } => Cause::Signaled { signal: i32::MIN, core_dumped: true },
        Cause::Killed { .. } => Cause::Killed { signal: i32::MIN, by: text() },
        Cause::TimedOut { .. } => Cause::TimedOut { limit_ms: u64::MAX },
        Cause::OutOfMemory { .. } => Cause::OutOfMemory { limit_bytes: Some(u64::MAX) },
        Cause::AgentStopping => Cause::AgentStopping,
        Cause::SpawnFailed { .. } => Cause::SpawnFailed { failure: spawn_failure() },
    })
}

pub fn fault_codes() -> Vec<FaultCode> {
    let all = variants!(FaultCode {
        FaultCode::Invalid => FaultCode::Invalid,
        FaultCode::NotFound => FaultCode::NotFound,
        FaultCode::Exists => FaultCode::Exists,
        FaultCode::Conflict => FaultCode::Conflict,
        FaultCode::Limit => FaultCode::Limit,
        FaultCode::SpawnFailed => FaultCode::SpawnFailed,
        FaultCode::Io => FaultCode::Io,
        FaultCode::Gone => FaultCode::Gone,
        FaultCode::Unsupported => FaultCode::Unsupported,
        FaultCode::Denied => FaultCode::Denied,
        FaultCode::Stopping => FaultCode::Stopping,
    });
    assert_eq!(all, FaultCode::ALL);
    all
}

fn goodbye_reasons() -> Vec<GoodbyeReason> {
    variants!(GoodbyeReason {
        GoodbyeReason::Finished => GoodbyeReason::Finished,
        GoodbyeReason::Stopping => GoodbyeReason::Stopping,
        GoodbyeReason::Version => GoodbyeReason::Version,
        GoodbyeReason::Protocol => GoodbyeReason::Protocol,
        GoodbyeReason::Limit => GoodbyeReason::Limit,
        GoodbyeReason::Replaced => GoodbyeReason::Replaced,
        GoodbyeReason::BootFailed => GoodbyeReason::BootFailed,
    })
}

fn spawn_stages() -> Vec<SpawnStage> {
    variants!(SpawnStage {
        SpawnStage::User => SpawnStage::User,
        SpawnStage::Stdio => SpawnStage::Stdio,
        SpawnStage::Cgroup => SpawnStage::Cgroup,
        SpawnStage::Fork => SpawnStage::Fork,
        SpawnStage::Terminal => SpawnStage::Terminal,
        SpawnStage::Identity => SpawnStage::Identity,
        SpawnStage::WorkingDirectory => SpawnStage::WorkingDirectory,
        SpawnStage::Exec => SpawnStage::Exec,
    })
}

fn channels() -> Vec<Channel> {
    variants!(Channel {
        Channel::Stdout => Channel::Stdout,
        Channel::Stderr => Channel::Stderr,
        Channel::Terminal => Channel::Terminal,
    })
}

fn file_kinds() -> Vec<FileKind> {
    variants!(FileKind {
        FileKind::File => FileKind::File,
        FileKind::Directory => FileKind::Directory,
        FileKind::Symlink => FileKind::Symlink,
        FileKind::Fifo => FileKind::Fifo,
        FileKind::Socket => FileKind::Socket,
        FileKind::BlockDevice => FileKind::BlockDevice,
        FileKind::CharDevice => FileKind::CharDevice,
    })
}

fn changes() -> Vec<Change> {
    variants!(Change {
        Change::Created => Change::Created,
        Change::Modified => Change::Modified,
        Change::Attributes => Change::Attributes,
        Change::Removed => Change::Removed,
        Change::Moved => Change::Moved,
        Change::Overflow => Change::Overflow,
    })
}

fn programs() -> Vec<Program> {
    variants!(Program {
        Program::Argv { .. } => Program::Argv { argv: vec![raw()] },
        Program::Script { .. } => Program::Script { script: raw(), shell: Some(raw()) },
        Program::LoginShell {} => Program::LoginShell {},
    })
}

fn stdio() -> Vec<Stdio> {
    variants!(Stdio {
        Stdio::Pipes { .. } => Stdio::Pipes { stdin: true },
        Stdio::Pty { .. } => Stdio::Pty { size: size() },
    })
}

fn spool_policies() -> Vec<SpoolPolicy> {
    variants!(SpoolPolicy {
        SpoolPolicy::Block => SpoolPolicy::Block,
        SpoolPolicy::DropOldest => SpoolPolicy::DropOldest,
    })
}

fn targets() -> Vec<Target> {
    variants!(Target {
        Target::Leader => Target::Leader,
        Target::Group => Target::Group,
        Target::Tree => Target::Tree,
    })
}

fn origins() -> Vec<Origin> {
    variants!(Origin {
        Origin::Oldest {} => Origin::Oldest {},
        Origin::Tail { .. } => Origin::Tail { bytes: u64::MAX },
        Origin::Offset { .. } => Origin::Offset { offset: u64::MAX },
    })
}

fn roles() -> Vec<Role> {
    variants!(Role {
        Role::Holder { .. } => Role::Holder { name: text() },
        Role::Observer {} => Role::Observer {},
    })
}

fn write_modes() -> Vec<WriteMode> {
    variants!(WriteMode {
        WriteMode::Replace {} => WriteMode::Replace {},
        WriteMode::Create {} => WriteMode::Create {},
        WriteMode::At { .. } => WriteMode::At { offset: u64::MAX },
        WriteMode::Append {} => WriteMode::Append {},
    })
}
