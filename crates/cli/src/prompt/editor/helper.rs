//! Answers the line editor's requests for completions. It does not colour anything.

use std::cell::RefCell;
use std::sync::mpsc as threads;
use std::time::Duration;

use rustyline::Context;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use tokio::sync::mpsc;

use super::{EditorEvent, Question};

/// How long a completion may take. An idle interpreter answers in milliseconds.
const COMPLETION_PATIENCE: Duration = Duration::from_millis(700);
/// Matches that are shown: some screens.
const MATCHES_MAX: usize = 500;
/// A longer match is no name.
const MATCH_BYTES_MAX: usize = 256;

/// The position of the line in the code.
pub(super) struct LineContext {
    /// The lines above, each with its line break.
    pub before: String,
}

/// Completions that could replace the code from `start` to the cursor.
#[derive(Debug, Default)]
pub(in super::super) struct Found {
    pub start: usize,
    pub matches: Vec<String>,
}

/// See the module's description.
pub(super) struct Helper {
    tab: &'static str,
    ask: mpsc::Sender<EditorEvent>,
    /// `None` if the line is not code.
    scene: RefCell<Option<LineContext>>,
}

impl Helper {
    pub(super) fn new(tab: &'static str, ask: mpsc::Sender<EditorEvent>) -> Self {
        Self { tab, ask, scene: RefCell::new(None) }
    }

    pub(super) fn set(&mut self, scene: Option<LineContext>) {
        *self.scene.get_mut() = scene;
    }

    fn find(&self, before: &str, line: &str, cursor: usize) -> Option<(usize, Vec<String>)> {
        let (answer, answered) = threads::sync_channel(1);
        let question =
            Question { code: format!("{before}{line}"), cursor: before.len() + cursor, answer };
        self.ask.try_send(EditorEvent::Complete(question)).ok()?;
        let found = answered.recv_timeout(COMPLETION_PATIENCE).ok()?;
        fitting(found, before.len(), line, cursor)
    }
}

/// The completions that can be used on this line. The guest chose them, so they are filtered.
fn fitting(found: Found, before: usize, line: &str, cursor: usize) -> Option<(usize, Vec<String>)> {
    let start = found.start.checked_sub(before)?;
    if start > cursor || !line.is_char_boundary(start) {
        return None;
    }
    let can_be_drawn = |name: &String| {
        !name.is_empty() && name.len() <= MATCH_BYTES_MAX && !name.chars().any(char::is_control)
    };
    let matches = found.matches.into_iter().filter(can_be_drawn).take(MATCHES_MAX).collect();
    Some((start, matches))
}

impl Completer for Helper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let scene = self.scene.borrow();
        let Some(scene) = scene.as_ref() else { return Ok((cursor, Vec::new())) };
        let begun = line[..cursor].rsplit('\n').next().unwrap_or_default();
        if begun.trim().is_empty() {
            return Ok((cursor, vec![self.tab.to_owned()]));
        }
        Ok(self.find(&scene.before, line, cursor).unwrap_or((cursor, Vec::new())))
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl Validator for Helper {}

impl rustyline::Helper for Helper {}

#[cfg(test)]
mod tests;
