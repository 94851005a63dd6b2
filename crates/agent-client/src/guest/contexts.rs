//! Contexts of a guest: interpreters that live on between runs of code.
//!
//! A run is one request, and its events come on a separate stream, which may begin before the request is
//! answered: [`Guest::run_code_now`] is one round trip from the code to its output. The guest's events are
//! checked against a run's life ([`life`]), and oversized texts are cut ([`clip`]).

mod clip;
mod events;
pub mod language;
mod life;
mod ran;
mod run;

use std::time::Duration;

use protocol::limits::{
    CODE_BYTES_MAX, CODE_INLINE_BYTES_MAX, CONTEXTS_MAX, PATH_BYTES_MAX, TEXT_BYTES_MAX,
};
use protocol::message::{Reply, Request};
use protocol::mux::Direction;
use protocol::repl::{
    self, AnswerInput, Complete, Completeness, Completions, ContextInfo, Grace, Interrupt,
    OpenContext,
};
use protocol::requests::GroupLimits;
use protocol::{ContextName, Text};

pub use events::Events;
pub use ran::Ran;
pub use run::{Queued, Run};

use super::fit::{check, check_context};
use super::limits::{ANSWER_BYTES_MAX, INLINE_CONTEXT_BYTES_MAX};
use super::requests::pick;
use super::{Guest, GuestError, Pending};
use crate::link::Begins;

/// A context of which nothing is asked but its name and its language.
pub fn open(context: ContextName, language: impl Into<String>) -> OpenContext {
    OpenContext {
        context,
        language: language.into(),
        program: None,
        cwd: None,
        env: Vec::new(),
        user: None,
        limits: GroupLimits::default(),
    }
}

/// Code to run. See [`repl::Run`].
#[derive(Clone, Debug)]
pub struct RunCode {
    /// Created if it does not exist.
    pub context: OpenContext,
    pub code: Text,
    pub name: Option<String>,
    pub deadline: Option<Duration>,
    /// The deadline that its end reports, when `deadline` is a little earlier so that the caller can still
    /// answer.
    pub reported_deadline: Option<Duration>,
    pub grace: Grace,
    /// Whether requests for input will be answered.
    pub input: bool,
    /// Whether giving the run up interrupts it.
    pub tied: bool,
    /// Whether it is the host's own: it runs beside the context's namespace, and nobody else sees
    /// it.
    pub aside: bool,
}

impl RunCode {
    /// Without a deadline or input, and ending with its caller.
    pub fn new(context: OpenContext, code: impl Into<Text>) -> Self {
        Self {
            context,
            code: code.into(),
            name: None,
            deadline: None,
            reported_deadline: None,
            grace: Grace::default(),
            input: false,
            tied: true,
            aside: false,
        }
    }
}

impl Guest {
    /// Sets the default user and directory of a context. An open context keeps its own.
    pub async fn settle(&self, ask: &mut OpenContext) -> Result<(), GuestError> {
        let user = self.usual_user.as_deref().filter(|_| ask.user.is_none());
        let directory = self.usual_directory.as_deref().filter(|_| ask.cwd.is_none());
        if user.is_none() && directory.is_none() {
            return Ok(());
        }
        let contexts = self.contexts().await?;
        if contexts.iter().all(|info| info.context != ask.context) {
            ask.user = ask.user.take().or_else(|| user.map(str::to_owned));
            ask.cwd = ask.cwd.take().or_else(|| directory.map(Into::into));
        }
        Ok(())
    }

    /// Creates a context and starts its interpreter, or finds the one with that name.
    pub async fn open_context(&self, ask: &OpenContext) -> Result<ContextInfo, GuestError> {
        self.allow_context()?;
        let mut ask = ask.clone();
        check_context(&ask)?;
        self.settle(&mut ask).await?;
        self.context_asked(Request::OpenContext(ask))?.await
    }

    pub async fn contexts(&self) -> Result<Vec<ContextInfo>, GuestError> {
        let pick = pick!(Reply::Contexts { contexts } => contexts);
        let contexts = self.ask(Request::Contexts {}, "contexts", pick)?.await?;
        if contexts.len() > CONTEXTS_MAX {
            return Err(GuestError::Malformed { what: "more contexts than there may be" });
        }
        Ok(contexts.into_iter().map(clip::context).collect())
    }

    /// Runs code, and waits until the run has its number and its place.
    pub async fn run_code(&self, mut ask: RunCode) -> Result<Run, GuestError> {
        self.settle(&mut ask.context).await?;
        let mut run = self.run_code_now(ask)?;
        run.queued().await?;
        Ok(run)
    }

    /// Creates a run without waiting, with exactly the request's user. A refusal is the run's first event
    /// then.
    pub fn run_code_now(&self, ask: RunCode) -> Result<Run, GuestError> {
        let span = self.run_span(&ask);
        let RunCode { context, code, name, deadline, reported_deadline, grace, input, tied, aside } =
            ask;
        self.allow_context()?;
        let context_bytes = check_context(&context)?;
        check("the bytes of the code", code.as_bytes().len(), CODE_BYTES_MAX)?;
        check(
            "the bytes of the code's name",
            name.as_ref().map_or(0, String::len),
            PATH_BYTES_MAX,
        )?;
        let account = (!aside)
            .then(|| self.provenance().run(&context.context, &context.language, code.as_bytes()));
        let inline = code.as_bytes().len() <= CODE_INLINE_BYTES_MAX
            && context_bytes <= INLINE_CONTEXT_BYTES_MAX;
        let (inside, behind) =
            if inline { (Some(code), Vec::new()) } else { (None, code.into_bytes()) };
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let deadline_ms = deadline.map(millis);
        let which = context.context.clone();
        let make = |stream| {
            let code = inside;
            Request::Run(repl::Run {
                context,
                stream,
                code,
                name,
                deadline_ms,
                grace,
                input,
                tied,
                aside,
            })
        };
        let pick = pick!(Reply::Queued { run, ahead } => Queued { run, ahead });
        let (stream, queued) = self.open(Direction::Both, Begins::Now, make, "queued", pick)?;
        let mut run =
            Run::new(self, which, queued, self.output(stream), self.writer(stream), behind);
        run.reported_deadline_ms = reported_deadline.map(millis);
        run.span = span;
        run.is_aside = aside;
        run.account = account.flatten();
        Ok(run)
    }

    /// Ends a run by the ladder, or takes it out of the queue, and says which; `None` when there was
    /// nothing to end. Answered at once: the run's own end says how it went.
    pub async fn interrupt(&self, ask: Interrupt) -> Result<Option<u64>, GuestError> {
        let pick = pick!(Reply::Interrupting { run } => run);
        self.ask(Request::Interrupt(ask), "interrupting", pick)?.await
    }

    /// Replaces a context's interpreter, and kills what runs in it.
    pub async fn restart_context(&self, context: &ContextName) -> Result<ContextInfo, GuestError> {
        self.context_asked(Request::RestartContext { context: context.clone() })?.await
    }

    pub async fn close_context(&self, context: &ContextName) -> Result<(), GuestError> {
        self.order(Request::CloseContext { context: context.clone() })?.await
    }

    /// Gives a run the line, or the end of the input, that it asked for.
    pub async fn answer_input(&self, ask: AnswerInput) -> Result<(), GuestError> {
        let bytes = ask.line.as_ref().map_or(0, |line| line.as_bytes().len());
        check("the bytes of the line", bytes, ANSWER_BYTES_MAX)?;
        self.order(Request::AnswerInput(ask))?.await
    }

    /// Completions for a position in some code. The bytes that a match replaces are whole
    /// characters of that code.
    pub async fn complete(&self, ask: Complete) -> Result<Completions, GuestError> {
        check("the bytes of the code", ask.code.len(), CODE_INLINE_BYTES_MAX)?;
        let code = ask.code.clone();
        let pick = pick!(Reply::Completions(completions) => completions);
        let completions = self.ask(Request::Complete(ask), "completions", pick)?.await?;
        clip::completions(completions, &code)
    }

    /// Whether some code is all there.
    pub async fn check_code(
        &self,
        context: &ContextName,
        code: impl Into<String>,
    ) -> Result<Completeness, GuestError> {
        let code = code.into();
        check("the bytes of the code", code.len(), CODE_INLINE_BYTES_MAX)?;
        let request = Request::CheckCode { context: context.clone(), code };
        let pick = pick!(Reply::Completeness(completeness) => completeness);
        let mut answer = self.ask(request, "completeness", pick)?.await?;
        answer.indent = protocol::fault::clip_to(answer.indent, TEXT_BYTES_MAX);
        Ok(answer)
    }

    /// Opens a stream of everything that happens in a context. It never delays anybody.
    pub async fn watch_context(&self, context: &ContextName) -> Result<Events, GuestError> {
        let context = context.clone();
        let make = |stream| Request::WatchContext { context, stream };
        Ok(Events::new(self.download(make).await?))
    }

    fn context_asked(&self, request: Request) -> Result<Pending<ContextInfo>, GuestError> {
        self.ask(request, "context", pick!(Reply::Context(info) => clip::context(info)))
    }
}

#[cfg(test)]
mod tests;
