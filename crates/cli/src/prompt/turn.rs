//! One run: sends the code and shows its output until it ends.

use std::time::Duration;

use anyhow::Result;
use protocol::message::Channel;
use protocol::repl::{
    AnswerInput, Display, DisplayRole, Event, Finished, Grace, Happening, Interrupt,
};
use tokio::time::{Instant, sleep_until};

use super::conversation::{Conversation, unreadable};
use super::editor::{EditorEvent, Line};
use super::language::farewell;
use super::{PromptExit, words};
use crate::exit::Exit;
use crate::terminal::{Notice, Notices, Size};
use agent_client::guest::{GuestError, RunCode};

/// How long a run is queued before the person learns why.
const TURN_PATIENCE: Duration = Duration::from_millis(300);
/// How long an interrupted run may continue before the person learns about force.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);
/// The grace of one ctrl-c: code may take its time. Only another ctrl-c adds force.
const POLITE_GRACE: Duration = Duration::from_secs(3600);
/// The maximum number of open questions of one run.
const QUESTIONS_MAX: usize = 64;

/// A run that is running or queued.
struct PendingRun {
    run: u64,
    ahead: u32,
    began: bool,
    /// How often the person pressed ctrl-c.
    presses: u32,
    /// Whether an error was shown.
    error_shown: bool,
    /// When to print a note about the time that it takes.
    tell_at: Option<Instant>,
    /// The open question.
    open_question: Option<u64>,
    questions: std::collections::VecDeque<Request>,
}

/// A line that the code wants.
struct Request {
    number: u64,
    prompt: String,
    secret: bool,
}

impl Conversation<'_> {
    /// Runs an input. Returns why the prompt ends, if it does.
    pub(super) async fn turn(
        &mut self,
        code: String,
        notices: &mut Notices,
    ) -> Result<Option<PromptExit>> {
        let mut ask = RunCode::new(self.context.clone(), code.clone());
        ask.input = true;
        let begun = match self.guest.run_code_now(ask) {
            Ok(mut run) => run.queued().await.map(|queued| (run, queued)),
            Err(error) => Err(error),
        };
        let (mut run, queued) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.refused(error).map(|()| None),
        };
        self.watching.own(queued.run);
        self.watching.renew(self.guest, &self.context.context).await;
        let mut turn = PendingRun::new(queued.run, queued.ahead);
        loop {
            tokio::select! {
                written = self.screen.settle(), if !self.screen.is_settled() => {
                    if written.is_err() {
                        return Ok(Some(PromptExit::Unread));
                    }
                }
                event = run.next(), if self.screen.is_settled() => match event {
                    Ok(Some(Event { what: Happening::Finished(finished), .. })) => {
                        return self.finished(&turn, &code, &finished).await;
                    }
                    Ok(Some(event)) => self.happened(&mut turn, event),
                    Ok(None) => return self.refused(GuestError::Malformed {
                        what: "a run without an end",
                    }).map(|()| None),
                    Err(error) => return self.refused(error).map(|()| None),
                },
                event = self.editor.next_event(), if self.editor.editing().is_some() => match event {
                    EditorEvent::Complete(question) => self.complete(question),
                    EditorEvent::Line(line) => {
                        self.line_is_done();
                        if let Line::Failed(error) = line {
                            return unreadable(error).map(Some);
                        }
                        self.answered(&mut turn, line);
                    }
                },
                news = self.watching.next() => self.show_update(news),
                notice = notices.next() => match notice {
                    Notice::End(nix::libc::SIGINT) => {
                        self.screen.echoed();
                        self.press(&mut turn);
                    }
                    Notice::End(signal) => return Ok(Some(PromptExit::Signalled(signal))),
                    Notice::Resized | Notice::Continued => {}
                },
                () = until(turn.tell_at) => self.tell_patience(&mut turn),
            }
        }
    }

    /// A refusal or failure costs an input and not the conversation, unless the link has ended.
    fn refused(&mut self, error: GuestError) -> Result<()> {
        if let GuestError::Link(_) = error {
            return Err(error.into());
        }
        self.say(&crate::output::printable(&error.to_string()));
        Ok(())
    }

    fn happened(&mut self, turn: &mut PendingRun, event: Event) {
        if !matches!(event.what, Happening::Started(_) | Happening::Late(_)) {
            self.watching.late_is_past();
        }
        match event.what {
            Happening::Started(started) => {
                (turn.began, turn.tell_at) = (true, None);
                if let Some(line) = started.lost.and_then(|lost| self.watching.loss(&lost)) {
                    self.say(&line);
                }
            }
            Happening::Stdout { bytes } => self.show(Channel::Stdout, bytes.into_bytes()),
            Happening::Stderr { bytes } => self.show(Channel::Stderr, bytes.into_bytes()),
            Happening::Late(late) => {
                if let Some(news) = self.watching.late_in_run(late) {
                    self.show_update(news);
                }
            }
            Happening::Display(display) => self.display(&display),
            Happening::Artifact(artifact) => self.say(&words::artifact(&artifact)),
            Happening::Error(error) => {
                turn.error_shown = true;
                if let Some(text) = words::traceback(&error) {
                    self.show_lines(Channel::Stderr, text.as_bytes());
                }
            }
            Happening::InputRequest { request: number, prompt, secret } => {
                if turn.questions.len() < QUESTIONS_MAX {
                    turn.questions.push_back(Request { number, prompt, secret });
                }
                self.ask_next(turn);
            }
            // A watch reports the first; the others are not events of a run.
            Happening::Lost { .. } | Happening::Gap { .. } | Happening::Finished(_) => {}
        }
    }

    fn display(&mut self, display: &Display) {
        if let Some(text) = words::plain(display) {
            self.show_lines(Channel::Stdout, &text);
        }
        for form in words::rich(display) {
            let data = form.data.as_bytes();
            let place = match (display.role, &display.id) {
                (DisplayRole::Update, Some(id)) => self.gallery.update(id, &form.mime, data),
                (_, id) => self.gallery.keep(id.as_deref(), &form.mime, data),
            };
            let line = match place {
                Ok(path) => words::saved(display.role, form, &path),
                Err(error) => words::not_saved(form, &error),
            };
            self.say(&line);
        }
    }

    /// Asks the person for the next line that the code wants.
    fn ask_next(&mut self, turn: &mut PendingRun) {
        if self.is_editing() || turn.open_question.is_some() {
            return;
        }
        let Some(request) = turn.questions.pop_front() else { return };
        turn.open_question = Some(request.number);
        let columns = Size::read().unwrap_or(Size::DEFAULT).columns;
        let begun = self.screen.take_begun_line(columns.into());
        let (before, prompt) = words::question(&begun, &request.prompt);
        if let Some(before) = before {
            // It goes over the line that was begun, which is the beginning of it.
            let _ = crate::output::print(&format!("\r{before}\n"));
        }
        if request.secret {
            self.editor.ask_secret(format!("\r{prompt}"));
        } else {
            self.editor.ask_input(prompt);
        }
    }

    fn answered(&mut self, turn: &mut PendingRun, line: Line) {
        let request = turn.open_question.take();
        let line = match line {
            Line::Typed(line) => Some(line),
            Line::End | Line::Failed(_) => None,
            Line::Interrupted => return self.press(turn),
        };
        if let Some(request) = request {
            let (context, run) = (self.context.context.clone(), turn.run);
            let line = line.map(Into::into);
            let ask = AnswerInput { context, run, request, line };
            let guest = self.guest.clone();
            // A question that has lapsed meanwhile is no failure.
            tokio::spawn(async move { guest.answer_input(ask).await.ok() });
        }
        self.ask_next(turn);
    }

    /// The person wants to end this: first politely, then by force. However often ctrl-c is
    /// pressed, each step gets its time: only code that resists it loses its state.
    fn press(&mut self, turn: &mut PendingRun) {
        turn.presses += 1;
        let given = if turn.presses == 1 { POLITE_GRACE } else { Duration::ZERO };
        let grace = Grace { polite_ms: Some(given.as_millis() as u64), firm_ms: None };
        let (context, run) = (self.context.context.clone(), Some(turn.run));
        let (guest, ask) = (self.guest.clone(), Interrupt { context, run, grace });
        tokio::spawn(async move { guest.interrupt(ask).await.ok() });
        turn.tell_at = (turn.presses == 1).then(|| Instant::now() + INTERRUPT_PATIENCE);
    }

    fn tell_patience(&mut self, turn: &mut PendingRun) {
        turn.tell_at = None;
        if turn.presses > 0 {
            self.say(
                "still running: ctrl-c again forces it to end, and kills the interpreter if that fails",
            );
        } else if !turn.began && turn.ahead > 0 {
            let line = words::waiting(self.watching.running(), turn.ahead);
            self.say(&line);
        }
    }

    async fn finished(
        &mut self,
        turn: &PendingRun,
        code: &str,
        finished: &Finished,
    ) -> Result<Option<PromptExit>> {
        if let Some(line) = words::end(finished, turn.presses > 0, turn.error_shown) {
            self.say(&line);
        }
        if !finished.state_kept && turn.began {
            self.watching.loss_was_shown();
        }
        if self.is_editing() {
            self.say("the code no longer waits for this line; press enter");
        } else {
            self.screen.end_line();
        }
        if self.screen.settle().await.is_err() {
            return Ok(Some(PromptExit::Unread));
        }
        // Eight bits of an exit code are kept, as by a kernel.
        let farewell = farewell(&self.language, code, &finished.end);
        Ok(farewell.map(|code| PromptExit::Person(Exit(code as u8))))
    }
}

impl PendingRun {
    fn new(run: u64, ahead: u32) -> Self {
        Self {
            run,
            ahead,
            began: false,
            presses: 0,
            error_shown: false,
            tell_at: Some(Instant::now() + TURN_PATIENCE),
            open_question: None,
            questions: std::collections::VecDeque::new(),
        }
    }
}

/// Never returns without a time.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
