//! Where what runs in a sandbox comes from, and its results, as this client has seen them: the files that it has put in,
//! the input that it has sent to sessions, the programs whose ends it has learned, the runs of contexts whose events it
//! has read. Lengths, digests and costs, no content.
//!
//! The owner of a sandbox sets who keeps it, before anybody uses the guest. Every door passes here, since all of them use
//! the guest. Without a keeper nothing is digested. What the bridge itself writes is nobody's input and is left out.

use std::fmt;
use std::sync::{Arc, OnceLock};

use host::hex;
use host::instant::now_ms;
use protocol::exit::{Cause, ExitRecord};
use protocol::repl::{Display, Event, Finished, Happening};
use protocol::requests::{Program, WriteMode};
use protocol::{ContextName, SessionId, Text};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::limits::{PROGRAM_NAME_CHARS_MAX, RUN_DISPLAYS_MAX};

/// What the kernel counts blocks of a process in (`getrusage`), whatever the device has.
pub const BLOCK_BYTES: u64 = 512;
/// What runs scripts that name no shell.
const SHELL: &str = "sh";

/// One thing that a client has seen from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    File(ReceivedFile),
    /// A writer has begun to send input.
    InputBegun(BegunInput),
    Input(SentInput),
    Run(Box<RunRecord>),
    Program(ProgramEnd),
    /// A client of another node was given a way to the agent; what it did there is not recorded.
    Unseen {},
}

impl Provenance {
    /// Whether it is the end of a program or a run.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Run(_) | Self::Program(_) => true,
            Self::File(_) | Self::InputBegun(_) | Self::Input(_) | Self::Unseen {} => false,
        }
    }
}

/// How much there was of something, and its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub bytes: u64,
    pub sha256: String,
}

/// A file or an archive that is in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedFile {
    /// The file, or the directory of the archive.
    pub path: String,
    pub place: FilePlace,
    pub content: Content,
}

/// Where what was sent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePlace {
    Whole,
    Append,
    /// From this byte of the file on.
    Offset(u64),
    /// Below the directory.
    Archive,
}

impl FilePlace {
    /// As receipts and the audit log have it; nothing of an archive.
    pub fn name(self) -> Option<String> {
        match self {
            Self::Whole => Some("whole".to_owned()),
            Self::Append => Some("append".to_owned()),
            Self::Offset(offset) => Some(offset.to_string()),
            Self::Archive => None,
        }
    }
}

/// A writer whose end is recorded as [`SentInput`] with the same time, unless its process is killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunInput {
    pub session: SessionId,
    pub opened_at_ms: u64,
}

/// What one writer has sent to the input of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentInput {
    pub session: SessionId,
    pub opened_at_ms: u64,
    /// Where it begins in the input, if the agent has reported that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    pub content: Content,
    /// Whether it was closed after that.
    pub closed: bool,
}

/// A run of a context, up to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    pub context: ContextName,
    pub run: u64,
    pub language: String,
    pub code: Content,
    /// Which run of its interpreter it was; absent of one that never began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// By the guest's clock.
    pub started_at_ms: u64,
    pub ended_at_ms: u64,
    pub finished: Finished,
    pub stdout: Content,
    pub stderr: Content,
    /// The first forms of its displays.
    pub displays: Vec<DisplayedForm>,
    pub has_more_displays: bool,
    /// The kind of the exception that nothing caught.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a program has cost up to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnd {
    pub session: SessionId,
    /// Names of sessions come again. By the guest's clock.
    pub started_at_ms: u64,
    /// The last part of the program's path.
    pub program: String,
    pub duration_us: u64,
    pub cpu_us: u64,
    /// The most that it has had: all its processes where a control group counts them, else the largest one.
    #[serde(default)]
    pub memory_bytes_peak: u64,
    /// From and to block devices.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl ProgramEnd {
    /// `command` is the argument vector as one line, or its first word. Nothing of a program that never ran.
    pub fn of(session: &SessionId, command: &str, record: &ExitRecord) -> Option<Self> {
        if matches!(record.cause, Cause::SpawnFailed { .. }) {
            return None;
        }
        let usage = record.usage;
        Some(Self {
            session: session.clone(),
            started_at_ms: record.started_at_ms,
            program: program_name(command),
            duration_us: record.duration_us,
            cpu_us: usage.user_us.saturating_add(usage.system_us),
            memory_bytes_peak: usage.memory_bytes_peak.unwrap_or(usage.resident_bytes_max),
            read_bytes: usage.block_reads.saturating_mul(BLOCK_BYTES),
            written_bytes: usage.block_writes.saturating_mul(BLOCK_BYTES),
        })
    }
}

fn name_of(program: &Program) -> String {
    let path = match program {
        Program::Argv { argv } => argv.first().map(Text::to_string_lossy),
        Program::Script { shell, .. } => shell.as_ref().map(Text::to_string_lossy),
        Program::LoginShell {} => None,
    };
    program_name(path.as_deref().unwrap_or(SHELL))
}

fn program_name(command: &str) -> String {
    let path = command.split_whitespace().next().unwrap_or_default();
    // A login shell's name begins with a dash.
    let name = path.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    let shown = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    name.chars().take(PROGRAM_NAME_CHARS_MAX).map(shown).collect()
}

/// One form of a display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisplayedForm {
    pub mime: String,
    pub content: Content,
}

/// It must not wait for anybody.
type Keep = Box<dyn Fn(Provenance) + Send + Sync>;

/// A place for a keeper. Clones share it.
#[derive(Clone, Default)]
pub struct ProvenanceKeeper(Arc<OnceLock<Keep>>);

impl ProvenanceKeeper {
    /// Sets the keeper. Only the first one counts.
    pub fn set(&self, keep: Keep) {
        let _ = self.0.set(keep);
    }

    fn keep(&self, what: Provenance) {
        if let Some(keep) = self.0.get() {
            keep(what);
        }
    }

    fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn file(&self, path: &Text, mode: WriteMode) -> Option<FileAccount> {
        let place = match mode {
            WriteMode::Replace {} | WriteMode::Create {} => FilePlace::Whole,
            WriteMode::Append {} => FilePlace::Append,
            WriteMode::At { offset } => FilePlace::Offset(offset),
        };
        self.received(path, place)
    }

    pub(super) fn archive(&self, directory: &Text) -> Option<FileAccount> {
        self.received(directory, FilePlace::Archive)
    }

    fn received(&self, path: &Text, place: FilePlace) -> Option<FileAccount> {
        let account = || {
            let (keeper, path) = (self.clone(), path.to_string());
            FileAccount { keeper, path, place, sum: Sum::default() }
        };
        self.is_set().then(account)
    }

    pub(super) fn input(&self, session: &SessionId) -> Option<InputAccount> {
        let account = || {
            let (keeper, session, opened_at_ms) = (self.clone(), session.clone(), now_ms());
            InputAccount { keeper, session, opened_at_ms, sum: Sum::default() }
        };
        self.is_set().then(account)
    }

    /// For a program that nobody else reports the end of.
    pub(crate) fn program(&self, program: &Program) -> Option<ProgramAccount> {
        let account = || ProgramAccount { keeper: self.clone(), program: name_of(program) };
        self.is_set().then(account)
    }

    pub(super) fn run(
        &self,
        context: &ContextName,
        language: &str,
        code: &[u8],
    ) -> Option<Box<RunAccount>> {
        let account = || {
            let mut sum = Sum::default();
            sum.add(code);
            Box::new(RunAccount {
                keeper: self.clone(),
                context: context.clone(),
                language: language.to_owned(),
                code: sum.content(),
                started: None,
                outputs: [Sum::default(), Sum::default()],
                displays: Vec::new(),
                has_more_displays: false,
                error: None,
            })
        };
        self.is_set().then(account)
    }
}

impl fmt::Debug for ProvenanceKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProvenanceKeeper").field(&self.is_set()).finish()
    }
}

/// The length and the digest of what has passed by now.
struct Sum {
    bytes: u64,
    digest: Context,
}

impl Default for Sum {
    fn default() -> Self {
        Self { bytes: 0, digest: Context::new(&SHA256) }
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.digest.update(bytes);
    }

    fn content(self) -> Content {
        Content { bytes: self.bytes, sha256: hex::digits(self.digest.finish().as_ref()) }
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sum").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A file or an archive on its way.
#[derive(Debug)]
pub(super) struct FileAccount {
    keeper: ProvenanceKeeper,
    path: String,
    place: FilePlace,
    sum: Sum,
}

impl FileAccount {
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum.add(bytes);
    }

    /// All of it is in the sandbox.
    pub fn arrived(self) -> ReceivedFile {
        let Self { keeper, path, place, sum } = self;
        let file = ReceivedFile { path, place, content: sum.content() };
        keeper.keep(Provenance::File(file.clone()));
        file
    }
}

/// A program that goes on.
#[derive(Debug)]
pub(crate) struct ProgramAccount {
    keeper: ProvenanceKeeper,
    program: String,
}

impl ProgramAccount {
    pub fn ended(self, session: &SessionId, record: &ExitRecord) {
        if let Some(end) = ProgramEnd::of(session, &self.program, record) {
            self.keeper.keep(Provenance::Program(end));
        }
    }
}

/// What one writer sends to a session.
#[derive(Debug)]
pub(super) struct InputAccount {
    keeper: ProvenanceKeeper,
    session: SessionId,
    opened_at_ms: u64,
    sum: Sum,
}

impl InputAccount {
    pub fn add(&mut self, bytes: &[u8]) {
        if self.sum.bytes == 0 && !bytes.is_empty() {
            let (session, opened_at_ms) = (self.session.clone(), self.opened_at_ms);
            self.keeper.keep(Provenance::InputBegun(BegunInput { session, opened_at_ms }));
        }
        self.sum.add(bytes);
    }

    /// Nothing more comes; `end` is the offset after it. A writer that has done nothing is not worth a record.
    pub fn ended(self, end: Option<u64>, closed: bool) {
        let Self { keeper, session, opened_at_ms, sum } = self;
        if sum.bytes == 0 && !closed {
            return;
        }
        let content = sum.content();
        let offset = end.and_then(|end| end.checked_sub(content.bytes));
        keeper.keep(Provenance::Input(SentInput {
            session,
            opened_at_ms,
            offset,
            content,
            closed,
        }));
    }
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct RunAccount {
    keeper: ProvenanceKeeper,
    context: ContextName,
    language: String,
    code: Content,
    /// Its place in the interpreter, and when it began.
    started: Option<(u64, u64)>,
    /// Stdout and stderr.
    outputs: [Sum; 2],
    displays: Vec<DisplayedForm>,
    has_more_displays: bool,
    error: Option<String>,
}

impl RunAccount {
    /// Takes in an event of the run. The last one ends the account.
    pub fn add(mut self: Box<Self>, event: &Event) -> Option<Box<Self>> {
        let [stdout, stderr] = &mut self.outputs;
        match &event.what {
            Happening::Started(started) => self.started = Some((started.count, event.at_us)),
            Happening::Stdout { bytes } => stdout.add(bytes.as_bytes()),
            Happening::Stderr { bytes } => stderr.add(bytes.as_bytes()),
            Happening::Display(display) => self.shown(display),
            Happening::Error(report) => self.error = Some(report.kind.clone()),
            Happening::Finished(finished) => {
                self.ended(event.run, event.at_us, finished);
                return None;
            }
            Happening::Late(_)
            | Happening::Artifact(_)
            | Happening::InputRequest { .. }
            | Happening::Lost { .. }
            | Happening::Gap { .. } => {}
        }
        Some(self)
    }

    fn shown(&mut self, display: &Display) {
        for form in &display.data {
            if self.displays.len() == RUN_DISPLAYS_MAX {
                self.has_more_displays = true;
                return;
            }
            let mut sum = Sum::default();
            sum.add(form.data.as_bytes());
            self.displays.push(DisplayedForm { mime: form.mime.clone(), content: sum.content() });
        }
    }

    fn ended(self, run: u64, at_us: u64, finished: &Finished) {
        let [stdout, stderr] = self.outputs.map(Sum::content);
        self.keeper.keep(Provenance::Run(Box::new(RunRecord {
            context: self.context,
            run,
            language: self.language,
            code: self.code,
            count: self.started.map(|(count, _)| count),
            started_at_ms: self.started.map_or(at_us, |(_, at_us)| at_us) / 1000,
            ended_at_ms: at_us / 1000,
            finished: finished.clone(),
            stdout,
            stderr,
            displays: self.displays,
            has_more_displays: self.has_more_displays,
            error: self.error,
        })));
    }
}
