//! Drives one run from its code to an exit code: prints events, answers questions, and passes
//! ctrl-c on as an interrupt of increasing force.

use std::collections::VecDeque;

use anyhow::{Context as _, Result};
use protocol::repl::{AnswerInput, Finished, Grace, Happening, Interrupt};
use protocol::{ContextName, FaultCode, Text};

use super::super::exit::Exit;
use super::super::output;
use super::lines::{Awaited, EchoOff, Lines};
use super::printer::{OutputFormat, Printer, SandboxLifetime, StdoutState};
use super::{ending, late_output};
use crate::missing::explain_missing;
use crate::terminal::{Notice, Notices};
use agent_client::guest::{Guest, GuestError, Run, RunCode};

/// The message for a link that broke during a run.
const CUT: &str = "the connection to the sandbox was lost, so the result of the code is unknown";

/// How following a run ended.
enum RunResult {
    Finished(Finished),
    /// Our stdout is closed.
    Unread,
}

/// How a wait ended.
enum Outcome<T> {
    Done(T),
    /// We must end because of a signal.
    Signalled(i32),
}

/// Runs code to its end.
pub async fn perform(
    guest: &Guest,
    ask: RunCode,
    lifetime: SandboxLifetime,
    telling: OutputFormat,
) -> Result<Exit> {
    // Before the run, so that every signal has a handler.
    let mut notices = Notices::watch()?;
    let mut printer = Printer::new(lifetime, &telling)?;
    let open = ask.context.clone();
    let input = ask.input;
    let mut run = tokio::select! {
        run = guest.run_code(ask) => run.map_err(explain_missing)?,
        signal = next_end(&mut notices) => return Ok(Exit::signalled(signal)),
    };
    let mut ladder =
        Interrupter { guest, context: open.context.clone(), run: run.number(), rungs: 0 };
    let shown = {
        let pump = pump(guest, &mut run, &mut printer, input);
        tokio::pin!(pump);
        loop {
            tokio::select! {
                shown = &mut pump => break Outcome::Done(shown),
                signal = next_end(&mut notices) => {
                    if !ladder.climb(signal) {
                        break Outcome::Signalled(signal);
                    }
                }
            }
        }
    };
    let shown = match shown {
        Outcome::Done(shown) => shown.map_err(explain_cut)?,
        // Our leaving interrupts the run, which is tied to us.
        Outcome::Signalled(signal) => return Ok(Exit::signalled(signal)),
    };
    let RunResult::Finished(finished) = shown else { return Ok(Exit::UNREAD) };
    if lifetime == SandboxLifetime::Temporary && finished.state_kept {
        let late = late_output::print_late_output(guest, &open, &mut printer);
        let shown = tokio::select! {
            shown = late => shown?,
            _ = next_end(&mut notices) => StdoutState::Open,
        };
        if shown == StdoutState::Closed {
            return Ok(Exit::UNREAD);
        }
    }
    let by_us = ladder.rungs > 0;
    if let Some(line) = ending::explain(&finished, lifetime, by_us) {
        output::note(&line);
    }
    printer.part();
    Ok(ending::exit(&finished.end, printer.error(), by_us))
}

/// Sends interrupts of increasing force for one run.
struct Interrupter<'a> {
    guest: &'a Guest,
    context: ContextName,
    run: Option<u64>,
    rungs: u32,
}

impl Interrupter<'_> {
    /// Handles a signal by interrupting with more force; false if we must end at once.
    fn climb(&mut self, signal: i32) -> bool {
        let none = Some(0);
        let grace = match self.rungs {
            _ if signal != nix::libc::SIGINT => return false,
            // The first is for the code to deal with, as ctrl-c is for any program.
            0 => Grace::default(),
            // The second says that it did not, and the third that it does not matter how.
            1 => Grace { polite_ms: none, firm_ms: None },
            2 => Grace { polite_ms: none, firm_ms: none },
            _ => return false,
        };
        self.rungs += 1;
        let ask = Interrupt { context: self.context.clone(), run: self.run, grace };
        let guest = self.guest.clone();
        // Its answer is not awaited: the run's end is.
        tokio::spawn(async move { guest.interrupt(ask).await });
        true
    }
}

/// Prints all events until the last one, and answers questions with lines of stdin.
async fn pump(
    guest: &Guest,
    run: &mut Run,
    printer: &mut Printer,
    input: bool,
) -> Result<RunResult> {
    let mut questions = Questions::default();
    let lines = input.then(Lines::new);
    loop {
        if let Some(lines) = &lines
            && questions.next(lines, printer).await? == StdoutState::Closed
        {
            return Ok(RunResult::Unread);
        }
        let event = tokio::select! {
            biased;
            event = run.next() => event.map_err(explain_missing)?,
            line = questions.line() => {
                questions.answer(guest, run, line?).await?;
                continue;
            }
        };
        let Some(event) = event else {
            return Err(GuestError::Malformed { what: "a run without an end" }.into());
        };
        if printer.print(&event).await? == StdoutState::Closed {
            return Ok(RunResult::Unread);
        }
        match event.what {
            Happening::InputRequest { request, prompt, secret } => {
                questions.push(Question { request, prompt, secret });
            }
            Happening::Finished(finished) => return Ok(RunResult::Finished(finished)),
            _ => {}
        }
    }
}

/// The open questions of the code, one at a time: stdin has one line at a time.
#[derive(Default)]
struct Questions {
    waiting: VecDeque<Question>,
    open: Option<(Question, Awaited, Option<EchoOff>)>,
}

struct Question {
    request: u64,
    prompt: String,
    secret: bool,
}

/// Questions that wait: a guest may ask more than anybody answers. One of many threads.
const QUESTIONS_MAX: usize = 1024;

impl Questions {
    fn push(&mut self, question: Question) {
        if self.waiting.len() < QUESTIONS_MAX {
            self.waiting.push_back(question);
        }
    }

    /// Prints the next question, if none is open.
    async fn next(&mut self, lines: &Lines, printer: &mut Printer) -> Result<StdoutState> {
        if self.open.is_some() {
            return Ok(StdoutState::Open);
        }
        let Some(question) = self.waiting.pop_front() else { return Ok(StdoutState::Open) };
        // An answer that is typed at once must not be echoed.
        let silence = if question.secret { EchoOff::keep()? } else { None };
        let shown = printer.ask(&question.prompt, question.secret).await?;
        self.open = Some((question, lines.ask(), silence));
        Ok(shown)
    }

    /// The line that answers the open question. Never returns if there is none.
    async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        match &mut self.open {
            // A reader that is gone has reached the end.
            Some((_, awaited, _)) => match awaited.await {
                Ok(line) => line.context("cannot read stdin"),
                Err(_) => Ok(None),
            },
            None => std::future::pending().await,
        }
    }

    async fn answer(&mut self, guest: &Guest, run: &Run, line: Option<Vec<u8>>) -> Result<()> {
        let Some((question, ..)) = self.open.take() else { return Ok(()) };
        let Some(number) = run.number() else { return Ok(()) };
        let answer = AnswerInput {
            context: run.context().clone(),
            run: number,
            request: question.request,
            line: line.map(Text::from),
        };
        match guest.answer_input(answer).await {
            // The code has given up waiting.
            Err(error) if error.fault_code() == Some(FaultCode::Gone) => Ok(()),
            answered => Ok(answered?),
        }
    }
}

/// Waits for the next signal that ends the process.
async fn next_end(notices: &mut Notices) -> i32 {
    loop {
        if let Notice::End(signal) = notices.next().await {
            return signal;
        }
    }
}

fn explain_cut(error: anyhow::Error) -> anyhow::Error {
    let is_cut = matches!(error.downcast_ref(), Some(GuestError::Link(_)));
    if is_cut { error.context(CUT) } else { error }
}
