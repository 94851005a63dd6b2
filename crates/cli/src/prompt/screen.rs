//! Writes program output unchanged, and messages of the prompt on lines of their own.
//!
//! Only [`Screen::settle`] waits for a slow terminal, so ctrl-c works while the terminal is
//! blocked.

mod line;

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IsTerminal, stderr, stdout};
use std::pin::Pin;

use protocol::message::Channel;

use super::super::output::{self, Sink};
use line::Line;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

type Writing = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// See the module's description.
pub(super) struct Screen {
    out: Sink,
    err: Sink,
    waiting: VecDeque<(Channel, Vec<u8>)>,
    writing: Option<Writing>,
    /// The position of the cursor, derived from what was written.
    line: Line,
    colours: bool,
}

impl Screen {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            out: Sink::stdout()?,
            err: Sink::stderr()?,
            waiting: VecDeque::new(),
            writing: None,
            line: Line::default(),
            colours: output::stdout_has_colours() && stderr().is_terminal(),
        })
    }

    /// Whether a program's output there appears on the screen that the person edits on.
    pub(super) fn shows(channel: Channel) -> bool {
        match channel {
            Channel::Stderr => stderr().is_terminal(),
            Channel::Stdout | Channel::Terminal => stdout().is_terminal(),
        }
    }

    /// Writes output of a program unchanged.
    pub(super) fn write(&mut self, channel: Channel, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        if Self::shows(channel) {
            self.line.feed(&bytes);
        }
        self.waiting.push_back((channel, bytes));
    }

    /// Writes whole lines of a program.
    pub(super) fn write_lines(&mut self, channel: Channel, text: &[u8]) {
        let mut bytes = text.to_vec();
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        if Self::shows(channel) {
            self.end_line();
        }
        self.write(channel, bytes);
    }

    /// Writes a message. Text in it that comes from a guest must be printable.
    pub(super) fn say(&mut self, text: &str) {
        self.end_line();
        let line = self.worded(text);
        self.write(Channel::Stderr, line.into_bytes());
    }

    /// A message as it is written.
    pub(super) fn worded(&self, text: &str) -> String {
        if self.colours { format!("{DIM}{text}{PLAIN}\n") } else { format!("{text}\n") }
    }

    /// Ends the current line, so that what follows begins at the left edge.
    pub(super) fn end_line(&mut self) {
        if !self.line.is_fresh() {
            let channel = if stdout().is_terminal() { Channel::Stdout } else { Channel::Stderr };
            self.write(channel, b"\n".to_vec());
            self.line = Line::default();
        }
    }

    /// The line that a program has begun, printable, if it is short enough to become the beginning
    /// of a prompt; otherwise that line is ended.
    pub(super) fn take_begun_line(&mut self, columns: usize) -> String {
        let text = self.line.text(columns);
        if text.is_none() {
            self.end_line();
        }
        self.line = Line::default();
        text.unwrap_or_default()
    }

    /// The editor has left the cursor at the left edge.
    pub(super) fn start_line(&mut self) {
        self.line = Line::default();
    }

    /// The terminal has shown the ctrl-c that was pressed.
    pub(super) fn echoed(&mut self) {
        self.line.feed(b"^C");
    }

    pub(super) fn is_settled(&self) -> bool {
        self.writing.is_none() && self.waiting.is_empty()
    }

    /// Returns when everything is written. Cancel safe; `BrokenPipe` means that the reader is gone.
    pub(super) async fn settle(&mut self) -> io::Result<()> {
        loop {
            if let Some(writing) = &mut self.writing {
                let written = writing.await;
                self.writing = None;
                written?;
            }
            let Some((channel, bytes)) = self.waiting.pop_front() else { return Ok(()) };
            let sink = if channel == Channel::Stderr { &self.err } else { &self.out }.clone();
            self.writing = Some(Box::pin(async move { sink.write(bytes).await }));
        }
    }
}
