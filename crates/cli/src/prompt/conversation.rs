//! The main loop of the prompt: read an input, run it, show the result.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use protocol::message::Channel;
use protocol::repl::{CodeState, Complete, ContextInfo, OpenContext};

use super::block::{self, Block};
use super::editor::{Editor, EditorEvent, Found, Kind, Line, Question};
use super::gallery::Gallery;
use super::history::History;
use super::screen::Screen;
use super::watching::{ContextWatch, Update};
use super::{Prompt, PromptExit, words};
use crate::exit::Exit;
use crate::terminal::{Notice, Notices};
use agent_client::guest::contexts::language::{CompletenessCheck, Language};
use agent_client::guest::{Guest, GuestError};
use host::paths::Paths;

/// How long an interpreter may take to check whether code is complete, before we guess from its
/// form: a person has pressed Enter and waits.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

/// The maximum size of output held back while a line is edited.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// See the module's description.
pub(super) struct Conversation<'a> {
    pub(super) guest: &'a Guest,
    pub(super) context: OpenContext,
    pub(super) screen: Screen,
    pub(super) editor: Editor,
    pub(super) gallery: Gallery,
    pub(super) watching: ContextWatch,
    pub(super) language: Language,
    history: Option<History>,
    way_back: Option<String>,
    /// Output that arrived while code was edited.
    held: Vec<u8>,
}

/// The next action of the person.
enum NextStep {
    Run(String),
    Leave(PromptExit),
}

/// The result of asking for one line.
enum Answer {
    Line(Line),
    PromptExit(PromptExit),
}

impl<'a> Conversation<'a> {
    pub(super) async fn begin(
        guest: &'a Guest,
        paths: &Paths,
        prompt: &Prompt,
        opened: &ContextInfo,
    ) -> Result<Self> {
        let language = Language::of(&opened.language);
        let mut screen = Screen::new()?;
        let is_kept = prompt.way_back.is_some();
        screen.say(&words::banner(&language, opened, &prompt.place, is_kept));
        if let Some(run) = opened.running {
            screen.say(&words::busy(run, opened.queued));
        }
        if let Some(reason) = &opened.lost {
            screen.say(&words::lost(reason));
        }
        // A prompt works without its history.
        let (history, entries) = match History::open(paths, &opened.language) {
            Ok((history, entries)) => (Some(history), entries),
            Err(error) => {
                screen.say(&format!("no history is saved: {error}"));
                (None, Vec::new())
            }
        };
        let mut watching = ContextWatch::begin(guest, opened).await;
        if opened.lost.is_some() {
            watching.loss_was_shown();
        }
        Ok(Self {
            guest,
            context: prompt.context.clone(),
            screen,
            editor: Editor::start(&entries, language.prompt.tab)?,
            gallery: Gallery::new(&prompt.place, opened.context.as_str()),
            watching,
            language,
            history,
            way_back: prompt.way_back.clone(),
            held: Vec::new(),
        })
    }

    /// Runs the loop until the person leaves.
    pub(super) async fn hold(&mut self, notices: &mut Notices) -> Result<PromptExit> {
        loop {
            match self.read(notices).await? {
                NextStep::Leave(left) => return Ok(left),
                NextStep::Run(code) => {
                    if let Some(left) = self.turn(code, notices).await? {
                        return Ok(left);
                    }
                }
            }
        }
    }

    /// Whether the editor is reading a line.
    pub(super) fn is_editing(&self) -> bool {
        self.editor.editing().is_some()
    }

    /// Prints the last message.
    pub(super) async fn part(&mut self) {
        if let Some(way_back) = &self.way_back {
            self.screen.start_line();
            self.screen.say(&format!("the context keeps running; return with: {way_back}"));
        }
        // Nowhere to say it is no error.
        let _ = self.screen.settle().await;
    }

    /// Reads lines until the input is complete.
    async fn read(&mut self, notices: &mut Notices) -> Result<NextStep> {
        loop {
            if let Some(left) = self.wait_for_stale_line(notices).await? {
                return Ok(NextStep::Leave(left));
            }
            if let Some(news) = words::others(self.watching.take_others()) {
                self.screen.say(&news);
            }
            let mut block = Block::default();
            loop {
                let prompt = if block.is_fresh() {
                    self.language.prompt.first
                } else {
                    self.language.prompt.more
                };
                self.screen.end_line();
                if self.screen.settle().await.is_err() {
                    return Ok(NextStep::Leave(PromptExit::Unread));
                }
                self.editor.ask_code(prompt, block.indent(), block.before());
                match self.answer(notices).await? {
                    Answer::PromptExit(left) => return Ok(NextStep::Leave(left)),
                    Answer::Line(Line::Failed(error)) => {
                        return unreadable(error).map(NextStep::Leave);
                    }
                    Answer::Line(Line::End) if block.is_fresh() => {
                        return Ok(NextStep::Leave(PromptExit::Person(Exit::SUCCESS)));
                    }
                    Answer::Line(Line::Interrupted | Line::End) => break,
                    Answer::Line(Line::Typed(line)) => block.push(&line),
                }
                if block.is_blank() {
                    break;
                }
                match self.wants_more(&block).await? {
                    Some(indent) => block.grow(&indent),
                    None => return Ok(NextStep::Run(self.take(&block))),
                }
            }
        }
    }

    /// Adds an input to the history.
    fn take(&mut self, block: &Block) -> String {
        let code = block.text().to_owned();
        let entry = code.trim_end();
        // A full disk costs the entry, not the conversation.
        let is_kept =
            self.history.as_mut().is_none_or(|history| history.add(entry).unwrap_or(true));
        if is_kept {
            self.editor.remember(entry);
        }
        code
    }

    /// The next line's indentation, if the input is incomplete.
    async fn wants_more(&mut self, block: &Block) -> Result<Option<String>> {
        if self.language.prompt.judge == CompletenessCheck::Shell {
            return Ok(block::is_open_shell(block.text()).then(String::new));
        }
        let checked = self.guest.check_code(&self.context.context, block.text());
        match tokio::time::timeout(CHECK_PATIENCE, checked).await {
            Ok(Ok(checked)) => {
                Ok((checked.state == CodeState::Incomplete).then_some(checked.indent))
            }
            Ok(Err(error @ GuestError::Link(_))) => Err(error.into()),
            // It is busy with a run, or there is none, or the code is larger than is asked about.
            Ok(Err(_)) | Err(_) => Ok(block.looks_open().then(String::new)),
        }
    }

    /// Waits until a line is finished that ended code had asked for.
    async fn wait_for_stale_line(&mut self, notices: &mut Notices) -> Result<Option<PromptExit>> {
        while self.is_editing() {
            if let Answer::PromptExit(left) = self.answer(notices).await? {
                return Ok(Some(left));
            }
        }
        Ok(None)
    }

    /// Waits for the line that was asked for.
    async fn answer(&mut self, notices: &mut Notices) -> Result<Answer> {
        loop {
            tokio::select! {
                event = self.editor.next_event() => match event {
                    EditorEvent::Complete(question) => self.complete(question),
                    EditorEvent::Line(line) => {
                        self.line_is_done();
                        return Ok(Answer::Line(line));
                    }
                },
                news = self.watching.next() => {
                    self.show_update(news);
                    if self.screen.settle().await.is_err() {
                        return Ok(Answer::PromptExit(PromptExit::Unread));
                    }
                }
                notice = notices.next() => match notice {
                    // It was not typed, and there is nothing to interrupt.
                    Notice::End(nix::libc::SIGINT) | Notice::Resized | Notice::Continued => {}
                    Notice::End(signal) => return Ok(Answer::PromptExit(PromptExit::Signalled(signal))),
                },
                error = self.guest.lost() => return Err(error.into()),
            }
        }
    }

    /// Records that the cursor is at the left edge, and writes what was held back.
    pub(super) fn line_is_done(&mut self) {
        self.screen.start_line();
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.screen.write_lines(Channel::Stdout, &held);
        }
    }

    /// Answers a completion request in the background.
    pub(super) fn complete(&self, question: Question) {
        let Question { code, cursor, .. } = &question;
        let context = self.context.context.clone();
        let ask = Complete { context, code: code.clone(), cursor: *cursor as u64 };
        let guest = self.guest.clone();
        tokio::spawn(async move {
            if let Ok(found) = guest.complete(ask).await {
                let start = usize::try_from(found.start).unwrap_or(usize::MAX);
                question.answer(Found { start, matches: found.matches });
            }
        });
    }

    /// Shows an event that is not from our own runs.
    pub(super) fn show_update(&mut self, news: Update) {
        match news {
            Update::Output(channel, bytes) => self.show(channel, bytes),
            Update::Line(line) => self.say(&line),
        }
    }

    /// Shows output of a program, unless it would be written into a line of code. Output beside the
    /// code's own question is not held back: it may be part of the question.
    pub(super) fn show(&mut self, channel: Channel, bytes: Vec<u8>) {
        if self.holds_back(channel) {
            self.hold_back(&bytes);
        } else {
            self.screen.write(channel, bytes);
        }
    }

    /// Shows whole lines of a program.
    pub(super) fn show_lines(&mut self, channel: Channel, text: &[u8]) {
        if self.holds_back(channel) {
            self.hold_back(text);
            self.hold_back(b"\n");
        } else {
            self.screen.write_lines(channel, text);
        }
    }

    /// Prints a message.
    pub(super) fn say(&mut self, line: &str) {
        if !self.holds_back(Channel::Stderr) {
            return self.screen.say(line);
        }
        if !self.held.is_empty() && !self.held.ends_with(b"\n") {
            self.hold_back(b"\n");
        }
        let line = self.screen.worded(line);
        self.hold_back(line.as_bytes());
    }

    fn holds_back(&self, channel: Channel) -> bool {
        self.editor.editing() == Some(Kind::Code) && Screen::shows(channel)
    }

    fn hold_back(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        if self.held.len() > HELD_BYTES_MAX {
            let excess = self.held.len() - HELD_BYTES_MAX / 2;
            let lost = format!("[skipped {excess} bytes: the buffer was full]\n");
            self.held.splice(..excess, lost.into_bytes());
        }
    }
}

/// Why the prompt ends when the terminal cannot be read: it was closed, or an error occurred.
pub(super) fn unreadable(error: io::Error) -> Result<PromptExit> {
    match error.raw_os_error() {
        Some(nix::libc::EIO) => Ok(PromptExit::Signalled(nix::libc::SIGHUP)),
        _ => Err(error).context("cannot read the terminal"),
    }
}
