//! Runs the line editor on its own thread: reading the terminal cannot be interrupted, so a thread
//! that waits for a key is left behind at exit.
//!
//! It does not know the guest. Completion requests go to the conversation with a short timeout, so
//! a busy interpreter or a slow link never blocks the keyboard.

mod helper;

use std::io::{self, IsTerminal, stdout};
use std::sync::mpsc as threads;

use rustyline::config::{Behavior, BellStyle};
use rustyline::error::ReadlineError;
use rustyline::history::{History as _, MemHistory};
use rustyline::{CompletionType, Config};
use tokio::sync::mpsc;

use super::history::ENTRIES_MAX;
use super::secret::{self, Secret};
use super::terminal_mode;
pub(super) use helper::Found;
use helper::{Helper, LineContext};

/// Commands queued for the thread: one to remember a line, one to read the next.
const ORDERS_WAITING_MAX: usize = 4;
/// Events queued by the thread: the end of a line, or a completion request.
const WORDS_WAITING_MAX: usize = 4;

/// A command for the thread.
enum EditorCommand {
    Line { prompt: String, initial: String, scene: Option<LineContext> },
    Secret { prompt: String },
    Remember(String),
}

/// The result of reading a line.
#[derive(Debug)]
pub(super) enum Line {
    Typed(String),
    /// ctrl-c.
    Interrupted,
    /// ctrl-d on an empty line.
    End,
    /// The terminal cannot be read.
    Failed(io::Error),
}

/// An event of the thread.
pub(super) enum EditorEvent {
    Line(Line),
    /// A Tab was pressed.
    Complete(Question),
}

/// A completion request: the code before the cursor, and where the answer goes.
pub(super) struct Question {
    pub code: String,
    pub cursor: usize,
    answer: threads::SyncSender<Found>,
}

impl Question {
    /// Sends the answer; a late answer is dropped.
    pub(super) fn answer(self, found: Found) {
        let _ = self.answer.try_send(found);
    }
}

/// The purpose of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Code to run.
    Code,
    /// Input for code that asks for it.
    Input,
}

/// The conversation's handle of the editor.
pub(super) struct Editor {
    orders: threads::SyncSender<EditorCommand>,
    events: mpsc::Receiver<EditorEvent>,
    editing: Option<Kind>,
}

impl Editor {
    /// With the history of earlier conversations. `tab` is what Tab inserts at a line's beginning.
    pub(super) fn start(entries: &[String], tab: &'static str) -> io::Result<Self> {
        let (orders, todo) = threads::sync_channel(ORDERS_WAITING_MAX);
        let (say, events) = mpsc::channel(WORDS_WAITING_MAX);
        let mut lines = open(Helper::new(tab, say.clone()), entries).map_err(into_io)?;
        std::thread::Builder::new()
            .name("editor".to_owned())
            .spawn(move || attend(&mut lines, &todo, &say))?;
        Ok(Self { orders, events, editing: None })
    }

    /// The purpose of the requested line, if one is open.
    pub(super) fn editing(&self) -> Option<Kind> {
        self.editing
    }

    /// Asks for a line of code, which begins with `initial` and has the lines `before` above it. Not
    /// while a line is being edited, as all that asks for one.
    pub(super) fn ask_code(&mut self, prompt: &str, initial: &str, before: String) {
        let (prompt, initial) = (prompt.to_owned(), initial.to_owned());
        self.order(
            Kind::Code,
            EditorCommand::Line { prompt, initial, scene: Some(LineContext { before }) },
        );
    }

    /// Asks for a line of input for the code.
    pub(super) fn ask_input(&mut self, prompt: String) {
        self.order(
            Kind::Input,
            EditorCommand::Line { prompt, initial: String::new(), scene: None },
        );
    }

    /// The same for a secret.
    pub(super) fn ask_secret(&mut self, prompt: String) {
        self.order(Kind::Input, EditorCommand::Secret { prompt });
    }

    /// Adds an input to the history of the arrow keys.
    pub(super) fn remember(&mut self, entry: &str) {
        let _ = self.orders.try_send(EditorCommand::Remember(entry.to_owned()));
    }

    fn order(&mut self, kind: Kind, order: EditorCommand) {
        // There is one order at a time, so there is room; a thread that has ended does not answer.
        self.editing = Some(kind);
        let _ = self.orders.try_send(order);
    }

    /// The next event of the editor. Safe to cancel.
    pub(super) async fn next_event(&mut self) -> EditorEvent {
        let gone = || EditorEvent::Line(Line::Failed(io::Error::other("the line editor failed")));
        let event = self.events.recv().await.unwrap_or_else(gone);
        if matches!(event, EditorEvent::Line(_)) {
            self.editing = None;
        }
        event
    }
}

type Lines = rustyline::Editor<Helper, MemHistory>;

fn open(helper: Helper, entries: &[String]) -> rustyline::Result<Lines> {
    let behavior =
        // The prompt is for the person, not for a program that reads our output.
        if stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
    let config = Config::builder()
        .behavior(behavior)
        .completion_type(CompletionType::List)
        .bell_style(BellStyle::None)
        .max_history_size(ENTRIES_MAX)?
        .auto_add_history(false)
        .build();
    let history = MemHistory::with_config(&config);
    let mut lines = Lines::with_history(config, history)?;
    for entry in entries {
        lines.add_history_entry(entry)?;
    }
    lines.set_helper(Some(helper));
    Ok(lines)
}

/// The thread. It alone takes the signal that the window has changed: the signal must interrupt the
/// editor where it waits for a key.
fn attend(
    lines: &mut Lines,
    todo: &threads::Receiver<EditorCommand>,
    say: &mpsc::Sender<EditorEvent>,
) {
    // Without it, lines are wrapped at the old width of the window.
    let _ = terminal_mode::window_signal().thread_unblock();
    while let Ok(order) = todo.recv() {
        let line = match order {
            EditorCommand::Line { prompt, initial, scene } => {
                if let Some(helper) = lines.helper_mut() {
                    helper.set(scene);
                }
                read(lines, &prompt, &initial)
            }
            EditorCommand::Secret { prompt } => match secret::ask(&prompt) {
                Ok(Secret::Line(line)) => Line::Typed(line),
                Ok(Secret::Interrupted) => Line::Interrupted,
                Ok(Secret::End) => Line::End,
                Err(error) => Line::Failed(error),
            },
            EditorCommand::Remember(entry) => {
                // A history in memory refuses nothing.
                let _ = lines.history_mut().add(&entry);
                continue;
            }
        };
        if say.blocking_send(EditorEvent::Line(line)).is_err() {
            return;
        }
    }
}

fn read(lines: &mut Lines, prompt: &str, initial: &str) -> Line {
    match lines.readline_with_initial(prompt, (initial, "")) {
        Ok(text) => Line::Typed(text),
        // Keys that are no text in any encoding we know; the line is begun again.
        Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Line::Interrupted
        }
        Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => Line::Interrupted,
        Err(ReadlineError::Eof) => Line::End,
        Err(error) => Line::Failed(into_io(error)),
    }
}

fn into_io(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        ReadlineError::Errno(errno) => io::Error::from_raw_os_error(errno as i32),
        other => io::Error::other(other),
    }
}
