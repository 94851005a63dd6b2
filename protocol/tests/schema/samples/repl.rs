//! Samples of requests about contexts and of their events.

use protocol::message::Channel;
use protocol::repl::{
    AnswerInput, Artifact, CodeState, Complete, Completeness, Completions, ContextInfo,
    ContextState, Datum, Display, DisplayRole, ErrorReport, Event, Finished, Grace, Happening,
    Interpreter, Interrupt, Late, OpenContext, Run, RunEnd, Rung, Started, TraceFrame,
};
use protocol::{Cause, ContextName};

use super::{group_limits, raw, spawn_failure, stream, text};

pub fn context() -> ContextName {
    "sample".parse().expect("a name of a context")
}

fn grace() -> Grace {
    Grace { polite_ms: Some(u64::MAX), firm_ms: Some(u64::MAX) }
}

pub fn open_context() -> OpenContext {
    OpenContext {
        context: context(),
        language: text(),
        program: Some(raw()),
        cwd: Some(raw()),
        env: vec![(raw(), raw())],
        user: Some(text()),
        limits: group_limits(),
    }
}

pub fn run() -> Run {
    Run {
        context: open_context(),
        stream: stream(),
        code: Some(raw()),
        name: Some(text()),
        deadline_ms: Some(u64::MAX),
        grace: grace(),
        input: true,
        tied: true,
        aside: true,
    }
}

pub fn interrupt() -> Interrupt {
    Interrupt { context: context(), run: Some(u64::MAX), grace: grace() }
}

pub fn answer_input() -> AnswerInput {
    AnswerInput { context: context(), run: u64::MAX, request: u64::MAX, line: Some(raw()) }
}

pub fn complete() -> Complete {
    Complete { context: context(), code: text(), cursor: u64::MAX }
}

pub fn context_info() -> ContextInfo {
    ContextInfo {
        context: context(),
        language: text(),
        state: ContextState::Interrupting,
        interpreter: Some(Interpreter { pid: u32::MAX, program: text(), version: text() }),
        interpreters: u64::MAX,
        runs: u64::MAX,
        running: Some(u64::MAX),
        queued: u32::MAX,
        opened_at_ms: u64::MAX,
        cwd: Some(raw()),
        lost: Some(text()),
        warnings: vec![text()],
    }
}

pub fn completions() -> Completions {
    Completions { start: u64::MAX, end: u64::MAX, matches: vec![text()] }
}

pub fn completeness() -> Completeness {
    Completeness { state: CodeState::Incomplete, indent: text() }
}

/// The one with the deepest content.
pub fn event() -> Event {
    Event { run: u64::MAX, at_us: u64::MAX, what: Happening::Finished(finished()) }
}

fn finished() -> Finished {
    Finished {
        end: RunEnd::Died { cause: Cause::SpawnFailed { failure: spawn_failure() } },
        duration_us: u64::MAX,
        cpu_us: Some(u64::MAX),
        memory_bytes_peak: Some(u64::MAX),
        state_kept: true,
        rung: Some(Rung::Killed),
        stdout_bytes: u64::MAX,
        stderr_bytes: u64::MAX,
        cached: Some(true),
    }
}

fn error_report() -> ErrorReport {
    ErrorReport {
        kind: text(),
        message: text(),
        traceback: text(),
        frames: vec![TraceFrame { file: text(), line: u32::MAX, function: text(), source: text() }],
    }
}

pub fn happenings() -> Vec<Happening> {
    variants!(Happening {
        Happening::Started(_) => Happening::Started(Started {
            count: u64::MAX,
            lost: Some(text()),
        }),
        Happening::Stdout { .. } => Happening::Stdout { bytes: raw() },
        Happening::Stderr { .. } => Happening::Stderr { bytes: raw() },
        Happening::Late(_) => Happening::Late(Late {
            of: u64::MAX,
            channel: Channel::Stderr,
            bytes: raw(),
            dropped: u64::MAX,
        }),
        Happening::Display(_) => Happening::Display(Display {
            role: DisplayRole::Update,
            id: Some(text()),
            data: vec![Datum { mime: text(), data: raw() }],
            metadata: Some(text()),
        }),
        Happening::Artifact(_) => Happening::Artifact(Artifact {
            path: raw(),
            name: text(),
            mime: text(),
            bytes: u64::MAX,
        }),
        Happening::Error(_) => Happening::Error(error_report()),
        Happening::InputRequest { .. } => Happening::InputRequest {
            request: u64::MAX,
            prompt: text(),
            secret: true,
        },
        Happening::Lost { .. } => Happening::Lost { reason: text() },
        Happening::Gap { .. } => Happening::Gap { events: u64::MAX, bytes: u64::MAX },
        Happening::Finished(_) => Happening::Finished(finished()),
    })
}

pub fn run_ends() -> Vec<RunEnd> {
    variants!(RunEnd {
        RunEnd::Ok {} => RunEnd::Ok {},
        RunEnd::Error {} => RunEnd::Error {},
        RunEnd::Exited { .. } => RunEnd::Exited { code: i32::MIN },
        RunEnd::Interrupted { .. } => RunEnd::Interrupted { by: text() },
        RunEnd::TimedOut { .. } => RunEnd::TimedOut { limit_ms: u64::MAX },
        RunEnd::Died { .. } => RunEnd::Died {
            cause: Cause::SpawnFailed { failure: spawn_failure() },
        },
        RunEnd::Cancelled { .. } => RunEnd::Cancelled { reason: text() },
    })
}

pub fn rungs() -> Vec<Rung> {
    variants!(Rung {
        Rung::Polite => Rung::Polite,
        Rung::Firm => Rung::Firm,
        Rung::Killed => Rung::Killed,
    })
}

pub fn display_roles() -> Vec<DisplayRole> {
    variants!(DisplayRole {
        DisplayRole::Value => DisplayRole::Value,
        DisplayRole::Shown => DisplayRole::Shown,
        DisplayRole::Update => DisplayRole::Update,
    })
}

pub fn context_states() -> Vec<ContextState> {
    variants!(ContextState {
        ContextState::Cold => ContextState::Cold,
        ContextState::Starting => ContextState::Starting,
        ContextState::Idle => ContextState::Idle,
        ContextState::Running => ContextState::Running,
        ContextState::Interrupting => ContextState::Interrupting,
    })
}

pub fn code_states() -> Vec<CodeState> {
    variants!(CodeState {
        CodeState::Complete => CodeState::Complete,
        CodeState::Incomplete => CodeState::Incomplete,
        CodeState::Invalid => CodeState::Invalid,
    })
}
