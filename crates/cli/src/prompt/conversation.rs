//! A conversation: the person writes, the interpreter answers, again and again.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use protocol::message::Channel;
use protocol::repl::{CodeState, Complete, ContextInfo, OpenContext};

use super::block::{self, Block};
use super::editor::{Editor, Found, Heard, Kind, Line, Question};
use super::gallery::Gallery;
use super::history::History;
use super::screen::Screen;
use super::watching::{News, Watching};
use super::{Left, Prompt, words};
use crate::exit::Exit;
use crate::terminal::{Notice, Notices};
use agent_client::guest::contexts::language::{Judge, Language};
use agent_client::guest::{Guest, GuestError};
use host::paths::Paths;

/// How long an interpreter may take to say whether some code is complete, before we judge by its
/// looks: somebody has pressed Enter and waits.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

/// What waits for the end of the line that is being edited.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// See the module's description.
pub(super) struct Conversation<'a> {
    pub(super) guest: &'a Guest,
    pub(super) context: OpenContext,
    pub(super) screen: Screen,
    pub(super) editor: Editor,
    pub(super) gallery: Gallery,
    pub(super) watching: Watching,
    pub(super) language: Language,
    history: Option<History>,
    way_back: Option<String>,
    /// What came while code was edited, which must not be written into.
    held: Vec<u8>,
}

/// What the person wants.
enum Wanted {
    Run(String),
    Leave(Left),
}

/// What came of asking for one line.
enum Answer {
    Line(Line),
    Left(Left),
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
        screen.say(&words::banner(&language, opened, &prompt.place));
        if let Some(reason) = &opened.lost {
            screen.say(&words::lost(reason));
        }
        // Without its history a prompt is still a prompt.
        let (history, entries) = match History::open(paths, &opened.language) {
            Ok((history, entries)) => (Some(history), entries),
            Err(error) => {
                screen.say(&format!("what is typed here is not kept: {error}"));
                (None, Vec::new())
            }
        };
        let mut watching = Watching::begin(guest, opened).await;
        if opened.lost.is_some() {
            watching.loss_was_told();
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

    /// Until the person leaves.
    pub(super) async fn hold(&mut self, notices: &mut Notices) -> Result<Left> {
        loop {
            match self.read(notices).await? {
                Wanted::Leave(left) => return Ok(left),
                Wanted::Run(code) => {
                    if let Some(left) = self.turn(code, notices).await? {
                        return Ok(left);
                    }
                }
            }
        }
    }

    /// Whether the terminal is in the editor's hands.
    pub(super) fn is_editing(&self) -> bool {
        self.editor.editing().is_some()
    }

    /// The last words.
    pub(super) async fn part(&mut self) {
        if let Some(way_back) = &self.way_back {
            self.screen.start_line();
            self.screen.say(&format!("the context lives on; come back with: {way_back}"));
        }
        // Nowhere to say it is no error.
        let _ = self.screen.settle().await;
    }

    /// Reads lines until they are something to run.
    async fn read(&mut self, notices: &mut Notices) -> Result<Wanted> {
        loop {
            if let Some(left) = self.wait_for_stale_line(notices).await? {
                return Ok(Wanted::Leave(left));
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
                    return Ok(Wanted::Leave(Left::Unread));
                }
                self.editor.ask_code(prompt, block.indent(), block.before());
                match self.answer(notices).await? {
                    Answer::Left(left) => return Ok(Wanted::Leave(left)),
                    Answer::Line(Line::Failed(error)) => {
                        return unreadable(error).map(Wanted::Leave);
                    }
                    Answer::Line(Line::End) if block.is_fresh() => {
                        return Ok(Wanted::Leave(Left::Person(Exit::SUCCESS)));
                    }
                    Answer::Line(Line::Interrupted | Line::End) => break,
                    Answer::Line(Line::Typed(line)) => block.push(&line),
                }
                if block.is_blank() {
                    break;
                }
                match self.wants_more(&block).await? {
                    Some(indent) => block.grow(&indent),
                    None => return Ok(Wanted::Run(self.take(&block))),
                }
            }
        }
    }

    /// Remembers an input that goes to the interpreter.
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

    /// The next line's indentation, if there is to be one.
    async fn wants_more(&mut self, block: &Block) -> Result<Option<String>> {
        if self.language.prompt.judge == Judge::Shell {
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

    /// A line that was asked for by code which has ended since is still being edited.
    async fn wait_for_stale_line(&mut self, notices: &mut Notices) -> Result<Option<Left>> {
        while self.is_editing() {
            if let Answer::Left(left) = self.answer(notices).await? {
                return Ok(Some(left));
            }
        }
        Ok(None)
    }

    /// Waits for the line that was asked for.
    async fn answer(&mut self, notices: &mut Notices) -> Result<Answer> {
        loop {
            tokio::select! {
                heard = self.editor.hear() => match heard {
                    Heard::Complete(question) => self.complete(question),
                    Heard::Line(line) => {
                        self.line_is_done();
                        return Ok(Answer::Line(line));
                    }
                },
                news = self.watching.next() => {
                    self.tell(news);
                    if self.screen.settle().await.is_err() {
                        return Ok(Answer::Left(Left::Unread));
                    }
                }
                notice = notices.next() => match notice {
                    // It was not typed, and there is nothing to interrupt.
                    Notice::End(nix::libc::SIGINT) | Notice::Resized | Notice::Continued => {}
                    Notice::End(signal) => return Ok(Answer::Left(Left::Signalled(signal))),
                },
                error = self.guest.lost() => return Err(error.into()),
            }
        }
    }

    /// The cursor is at the left edge again, and there is room for what was held back.
    pub(super) fn line_is_done(&mut self) {
        self.screen.start_line();
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.screen.write_lines(Channel::Stdout, &held);
        }
    }

    /// Answers a Tab, without holding anything up.
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

    /// Shows what happened beside our own runs.
    pub(super) fn tell(&mut self, news: News) {
        match news {
            News::Output(channel, bytes) => self.show(channel, bytes),
            News::Line(line) => self.say(&line),
        }
    }

    /// Shows output of a program, unless that would be written into a line of code. What code says
    /// beside a question of its own is not held back: it may be a part of the question.
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

    /// Says a line of ours.
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
            let lost = format!("[{excess} bytes were skipped, because they were too many]\n");
            self.held.splice(..excess, lost.into_bytes());
        }
    }
}

/// Why the conversation is over when the terminal cannot be read: it was closed, or we are at fault.
pub(super) fn unreadable(error: io::Error) -> Result<Left> {
    match error.raw_os_error() {
        Some(nix::libc::EIO) => Ok(Left::Signalled(nix::libc::SIGHUP)),
        _ => Err(error).context("the terminal cannot be read"),
    }
}
