//! Requests about contexts, and their events.

use super::Draw;
use crate::ids::ContextName;
use crate::message::{Reply, Request};
use crate::repl::{
    AnswerInput, Artifact, CodeState, Complete, Completeness, Completions, ContextInfo,
    ContextState, Datum, Display, DisplayRole, ErrorReport, Event, Finished, Grace, Happening,
    Interpreter, Interrupt, Late, OpenContext, Run, RunEnd, Rung, Started, TraceFrame,
};

pub const HAPPENINGS: u64 = 11;

impl Draw<'_> {
    pub(super) fn context(&mut self) -> ContextName {
        format!("c{}", self.number()).parse().expect("a name of a context")
    }

    fn grace(&mut self) -> Grace {
        Grace { polite_ms: self.maybe(Self::number), firm_ms: self.maybe(Self::number) }
    }

    fn open_context(&mut self) -> OpenContext {
        OpenContext {
            context: self.context(),
            language: self.string(),
            program: self.maybe(Self::text),
            cwd: self.maybe(Self::text),
            env: self.some(|draw| (draw.text(), draw.text())),
            user: self.maybe(Self::string),
            limits: self.group_limits(),
        }
    }

    pub(super) fn context_request_number(&mut self, number: u64) -> Request {
        match number {
            0 => Request::OpenContext(self.open_context()),
            1 => Request::Contexts {},
            2 => Request::Run(Run {
                context: self.open_context(),
                stream: self.stream(),
                code: self.maybe(Self::text),
                name: self.maybe(Self::string),
                deadline_ms: self.maybe(Self::number),
                grace: self.grace(),
                input: self.yes(),
                tied: self.yes(),
                aside: self.yes(),
            }),
            3 => Request::Interrupt(Interrupt {
                context: self.context(),
                run: self.maybe(Self::number),
                grace: self.grace(),
            }),
            4 => Request::AnswerInput(AnswerInput {
                context: self.context(),
                run: self.number(),
                request: self.number(),
                line: self.maybe(Self::text),
            }),
            5 => Request::Complete(Complete {
                context: self.context(),
                code: self.string(),
                cursor: self.number(),
            }),
            6 => Request::CheckCode { context: self.context(), code: self.string() },
            7 => Request::WatchContext { context: self.context(), stream: self.stream() },
            8 => Request::RestartContext { context: self.context() },
            _ => Request::CloseContext { context: self.context() },
        }
    }

    pub(super) fn context_reply_number(&mut self, number: u64) -> Reply {
        match number {
            0 => Reply::Context(self.context_info()),
            1 => Reply::Contexts { contexts: self.some(Self::context_info) },
            2 => Reply::Queued { run: self.number(), ahead: self.small() },
            3 => Reply::Interrupting { run: self.maybe(Self::number) },
            4 => Reply::Completions(Completions {
                start: self.number(),
                end: self.number(),
                matches: self.some(Self::string),
            }),
            _ => Reply::Completeness(Completeness {
                state: self.one_of(&[
                    CodeState::Complete,
                    CodeState::Incomplete,
                    CodeState::Invalid,
                ]),
                indent: self.string(),
            }),
        }
    }

    fn context_info(&mut self) -> ContextInfo {
        use ContextState as S;
        ContextInfo {
            context: self.context(),
            language: self.string(),
            state: self.one_of(&[S::Cold, S::Starting, S::Idle, S::Running, S::Interrupting]),
            interpreter: self.maybe(|draw| Interpreter {
                pid: draw.small(),
                program: draw.string(),
                version: draw.string(),
            }),
            interpreters: self.number(),
            runs: self.number(),
            running: self.maybe(Self::number),
            queued: self.small(),
            opened_at_ms: self.number(),
            cwd: self.maybe(Self::text),
            lost: self.maybe(Self::string),
            warnings: self.some(Self::string),
        }
    }

    pub fn event(&mut self) -> Event {
        let number = self.below(HAPPENINGS);
        Event { run: self.number(), at_us: self.number(), what: self.happening_number(number) }
    }

    pub fn happening_number(&mut self, number: u64) -> Happening {
        match number {
            0 => Happening::Lost { reason: self.string() },
            1 => {
                Happening::Started(Started { count: self.number(), lost: self.maybe(Self::string) })
            }
            2 => Happening::Stdout { bytes: self.text() },
            3 => Happening::Stderr { bytes: self.text() },
            4 => Happening::Late(Late {
                of: self.number(),
                channel: self.channel(),
                bytes: self.text(),
                dropped: self.number(),
            }),
            5 => Happening::Display(Display {
                role: self.one_of(&[DisplayRole::Value, DisplayRole::Shown, DisplayRole::Update]),
                id: self.maybe(Self::string),
                data: self.some(|draw| Datum { mime: draw.string(), data: draw.text() }),
                metadata: self.maybe(Self::string),
            }),
            6 => Happening::Artifact(Artifact {
                path: self.text(),
                name: self.string(),
                mime: self.string(),
                bytes: self.number(),
            }),
            7 => Happening::Error(ErrorReport {
                kind: self.string(),
                message: self.string(),
                traceback: self.string(),
                frames: self.some(|draw| TraceFrame {
                    file: draw.string(),
                    line: draw.small(),
                    function: draw.string(),
                    source: draw.string(),
                }),
            }),
            8 => Happening::InputRequest {
                request: self.number(),
                prompt: self.string(),
                secret: self.yes(),
            },
            9 => Happening::Gap { events: self.number(), bytes: self.number() },
            _ => Happening::Finished(Finished {
                end: self.run_end(),
                duration_us: self.number(),
                cpu_us: self.maybe(Self::number),
                memory_bytes_peak: self.maybe(Self::number),
                state_kept: self.yes(),
                rung: self.maybe(|draw| draw.one_of(&[Rung::Polite, Rung::Firm, Rung::Killed])),
                stdout_bytes: self.number(),
                stderr_bytes: self.number(),
                cached: self.maybe(Self::yes),
            }),
        }
    }

    fn run_end(&mut self) -> RunEnd {
        match self.below(7) {
            0 => RunEnd::Ok {},
            1 => RunEnd::Error {},
            2 => RunEnd::Exited { code: self.signed() as i32 },
            3 => RunEnd::Interrupted { by: self.string() },
            4 => RunEnd::TimedOut { limit_ms: self.number() },
            5 => RunEnd::Died { cause: self.cause() },
            _ => RunEnd::Cancelled { reason: self.string() },
        }
    }
}
