//! What `top` shows: rows, their order and filter, the selected one, and what each key means. Pure.

mod entered;
mod row;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use clap::ValueEnum;
use protocol::SessionId;

use super::keys::Key;
use super::news::{Listing, News, Part};
use control::UnansweredNode;
use sandbox::SandboxRef;

pub use entered::Entered;
pub use row::{HEAD, Row};

/// A page of the keys for it.
const PAGE: usize = 10;

/// The column by which rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Name,
    Cpu,
    Memory,
    Disk,
    Processes,
    Age,
}

/// What the person wants of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Leave,
    Kill {
        which: SandboxRef,
        session: Option<SessionId>,
    },
    /// Another verb gets the terminal, with these arguments.
    Verb(Vec<String>),
}

pub struct Model {
    all: BTreeMap<SandboxRef, Row>,
    sort: Sort,
    is_reversed: bool,
    filter: String,
    is_typing: bool,
    selected: Option<SandboxRef>,
    entered: Option<Entered>,
    /// A kill that waits for a yes.
    asked: Option<Action>,
    message: Option<String>,
    /// The nodes whose sandboxes are missing.
    unanswered: Vec<UnansweredNode>,
}

impl Model {
    pub fn new(sort: Sort) -> Self {
        Self {
            all: BTreeMap::new(),
            sort,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            selected: None,
            entered: None,
            asked: None,
            message: None,
            unanswered: Vec::new(),
        }
    }

    /// The rows that are shown, in their order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        let mut rows: Vec<&Row> =
            self.all.values().filter(|row| row.sandbox.contains(&self.filter)).collect();
        // They are in the order of their names, which equal ones keep.
        rows.sort_by(|a, b| row::compare(a, b, self.sort));
        if self.is_reversed {
            rows.reverse();
        }
        rows.into_iter()
    }

    /// Every sandbox, shown or not.
    pub fn all(&self) -> impl Iterator<Item = &Row> {
        self.all.values()
    }

    /// The nodes whose sandboxes are missing.
    pub fn unanswered(&self) -> &[UnansweredNode] {
        &self.unanswered
    }

    pub fn sort(&self) -> Sort {
        self.sort
    }

    /// The sandbox whose sessions are shown.
    pub fn entered(&self) -> Option<&SandboxRef> {
        self.entered.as_ref().map(|entered| &entered.which)
    }

    /// What is shown instead of the list.
    pub fn inside(&self) -> Option<&Entered> {
        self.entered.as_ref()
    }

    /// The place of the selected row among those that are shown.
    pub fn selected(&self) -> Option<usize> {
        self.rows().position(|row| Some(&row.which) == self.selected.as_ref())
    }

    /// The last line: a question, what is typed, a message, or the keys.
    pub fn last_line(&self) -> String {
        if let Some(Action::Kill { which, session }) = &self.asked {
            return match session {
                Some(session) => format!("kill session {session} of {which}? y or n"),
                None => format!("kill sandbox {which}? y or n"),
            };
        }
        if self.is_typing {
            return format!("/{}", self.filter);
        }
        if let Some(message) = &self.message {
            return message.clone();
        }
        let enter = if self.entered.is_some() { "esc back" } else { "enter sessions" };
        let filter = if self.filter.is_empty() { "/ filter" } else { "/ filter (on)" };
        format!("{enter}  k kill  a attach  l logs  s sort  r reverse  {filter}  q quit")
    }

    /// Whether the last line wants the person's attention.
    pub fn asks(&self) -> bool {
        self.asked.is_some() || self.is_typing || self.message.is_some()
    }

    pub fn tell(&mut self, message: Option<String>) {
        self.message = message;
    }

    pub fn take_all(&mut self, news: impl IntoIterator<Item = News>) {
        news.into_iter().for_each(|news| self.take(news));
    }

    fn take(&mut self, news: News) {
        match news {
            News::Listed(Listing { records, mut nodes, unanswered }) => {
                self.unanswered = unanswered;
                let mut left = std::mem::take(&mut self.all);
                for record in records {
                    let mut row = left.remove(&record.which()).unwrap_or_else(|| Row::new(&record));
                    row.describe(&record);
                    row.node = nodes.remove(&record.which());
                    self.all.insert(record.which(), row);
                }
                if self.selected.as_ref().is_none_or(|which| !self.all.contains_key(which)) {
                    self.select(0);
                }
                let entered = self.entered.as_ref();
                if entered.is_some_and(|entered| !self.all.contains_key(&entered.which)) {
                    self.entered = None;
                }
            }
            News::Sampled { which, sample } => {
                if let Some(row) = self.all.get_mut(&which) {
                    row.sample(&sample);
                }
            }
            News::Inside { which, parts, at_ms } => {
                let entered = self.entered.as_mut().filter(|entered| entered.which == which);
                if let Some(entered) = entered {
                    entered.update(parts, at_ms);
                }
            }
            News::Trouble(message) => self.message = Some(message),
        }
    }

    /// Takes a key.
    pub fn press(&mut self, key: Key) -> Option<Action> {
        self.message = None;
        if key == Key::Interrupt {
            return Some(Action::Leave);
        }
        if let Some(action) = self.asked.take() {
            return matches!(key, Key::Char('y')).then_some(action);
        }
        if self.is_typing {
            self.type_filter(key);
            return None;
        }
        match key {
            Key::Char('q') => return Some(Action::Leave),
            Key::Escape if self.entered.is_some() => self.entered = None,
            Key::Escape => self.filter.clear(),
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('k') => self.asked = self.kill(),
            Key::Char('a') => return self.verb("attach"),
            Key::Char('l') => return self.verb("logs"),
            Key::Enter => self.enter(),
            Key::Up => self.step(-1),
            Key::Down => self.step(1),
            Key::PageUp => self.step(-(PAGE.cast_signed())),
            Key::PageDown => self.step(PAGE.cast_signed()),
            Key::Home => self.step(isize::MIN),
            Key::End => self.step(isize::MAX),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(character) => self.filter.push(character),
            Key::Erase => {
                self.filter.pop();
            }
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        if self.selected().is_none() {
            self.select(0);
        }
    }

    fn enter(&mut self) {
        if self.entered.is_none() {
            self.entered = self.selected.clone().map(Entered::new);
        }
    }

    fn step(&mut self, by: isize) {
        if let Some(entered) = &mut self.entered {
            entered.step(by);
            return;
        }
        let count = self.rows().count();
        let place = moved(self.selected().unwrap_or_default(), by, count);
        self.select(place);
    }

    fn select(&mut self, place: usize) {
        let which = self.rows().nth(place).map(|row| row.which.clone());
        self.selected = which;
    }

    fn kill(&self) -> Option<Action> {
        let Some(entered) = &self.entered else {
            let which = self.selected.clone()?;
            return Some(Action::Kill { which, session: None });
        };
        let session = Some(entered.selected()?.session()?.clone());
        Some(Action::Kill { which: entered.which.clone(), session })
    }

    /// A verb for what is selected.
    fn verb(&self, verb: &str) -> Option<Action> {
        let of =
            |words: &[&str]| Some(Action::Verb(words.iter().map(ToString::to_string).collect()));
        let Some(entered) = &self.entered else {
            let which = self.selected.as_ref()?.to_string();
            return if verb == "logs" { of(&[verb, "-f", &which]) } else { of(&[verb, &which]) };
        };
        let which = entered.which.to_string();
        match entered.selected()? {
            Part { context: Some(language), name, .. } if verb == "attach" => {
                of(&[verb, "--repl", language, "--context", name, &which])
            }
            part => {
                let session = part.session()?;
                let follow = if verb == "logs" { &["-f"][..] } else { &[] };
                of(&[&[verb], follow, &["--session", session.as_str(), &which]].concat())
            }
        }
    }
}

impl Sort {
    /// The next column.
    fn next(self) -> Self {
        let all = Self::value_variants();
        let place = all.iter().position(|sort| *sort == self).unwrap_or_default();
        all[(place + 1) % all.len()]
    }
}

/// A place among so many, moved within them.
fn moved(place: usize, by: isize, count: usize) -> usize {
    place.saturating_add_signed(by).min(count.saturating_sub(1))
}
