//! Decides whether shell input is complete by looking at quotes, brackets, here-documents and
//! keywords. Pure.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::str::Chars;

/// Words that open a compound command.
const OPENING: [&str; 7] = ["if", "while", "until", "for", "select", "case", "{"];
const CLOSING: [&str; 4] = ["fi", "done", "esac", "}"];
/// Words after which a command begins.
const LEADING: [&str; 9] = ["if", "while", "until", "then", "do", "else", "elif", "{", "!"];

/// Whether more lines are needed.
pub(in super::super) fn is_open(code: &str) -> bool {
    let mut scan = Scan { rest: code.chars().peekable(), ..Scan::new() };
    scan.run() || scan.wants_more
}

struct Scan<'a> {
    rest: Peekable<Chars<'a>>,
    /// Whether the next word is the name of a command.
    at_command: bool,
    word: String,
    keywords: i32,
    cases: i32,
    brackets: i32,
    /// The last thing was an operator that wants a right side, or an escaped end of a line.
    wants_more: bool,
    documents: VecDeque<Document>,
}

/// A here-document whose lines are still missing.
struct Document {
    end: String,
    tabs: bool,
}

impl Scan<'_> {
    fn new() -> Self {
        Self {
            rest: "".chars().peekable(),
            at_command: true,
            word: String::new(),
            keywords: 0,
            cases: 0,
            brackets: 0,
            wants_more: false,
            documents: VecDeque::new(),
        }
    }

    /// Reads to the end; true when that lies within quotes, brackets, a document or a compound.
    fn run(&mut self) -> bool {
        while let Some(c) = self.rest.next() {
            let blank = c.is_whitespace();
            if !blank {
                self.wants_more = false;
            }
            match c {
                '\\' => match self.rest.next() {
                    Some('\n') => {}
                    Some(c) => self.word.push(c),
                    None => self.wants_more = true,
                },
                '\'' | '"' | '`' => {
                    self.word.push(c);
                    if !self.skip_quoted(c) {
                        return true;
                    }
                }
                '#' if self.word.is_empty() => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '<' if self.rest.peek() == Some(&'<') => self.open_document(),
                '\n' => {
                    self.end_command();
                    if !self.skip_documents() {
                        return true;
                    }
                }
                ';' | '&' | '|' => {
                    self.end_command();
                    let twice = self.rest.next_if_eq(&c).is_some();
                    self.wants_more = c == '|' || (c == '&' && twice);
                }
                '(' if self.word.ends_with('$') || self.word.is_empty() => {
                    if self.rest.peek() == Some(&'(') && !self.skip_arithmetic() {
                        return true;
                    }
                    self.open_bracket();
                }
                '(' => self.open_bracket(),
                ')' => {
                    self.end_command();
                    // In a `case`, one without its other half ends a pattern.
                    if self.brackets > 0 || self.cases == 0 {
                        self.brackets -= 1;
                    }
                }
                _ if blank => self.end_word(),
                _ => self.word.push(c),
            }
        }
        self.end_word();
        self.keywords > 0 || self.brackets > 0 || !self.documents.is_empty()
    }

    fn open_bracket(&mut self) {
        self.word.clear();
        self.at_command = true;
        self.brackets += 1;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.at_command = true;
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        let leads = self.at_command && LEADING.contains(&word.as_str());
        if self.at_command && OPENING.contains(&word.as_str()) {
            self.keywords += 1;
            self.cases += i32::from(word == "case");
        } else if self.at_command && CLOSING.contains(&word.as_str()) {
            self.keywords -= 1;
            self.cases -= i32::from(word == "esac");
        }
        self.at_command = leads;
    }

    /// Skips a quoted text; false if the closing quote is missing.
    fn skip_quoted(&mut self, quote: char) -> bool {
        while let Some(c) = self.rest.next() {
            if c == quote {
                return true;
            }
            if c == '\\' && quote != '\'' {
                self.rest.next();
            }
        }
        false
    }

    /// After the first of two opening brackets, in which `<<` is a shift; false when it is open.
    fn skip_arithmetic(&mut self) -> bool {
        let mut depth = 1;
        for c in self.rest.by_ref() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                // The bracket that the caller counts closes it.
                self.brackets -= 1;
                return true;
            }
        }
        false
    }

    /// Reads `<<`, `<<-` or `<<<` after its first character.
    fn open_document(&mut self) {
        self.end_word();
        self.rest.next();
        if self.rest.next_if_eq(&'<').is_some() {
            return;
        }
        let tabs = self.rest.next_if_eq(&'-').is_some();
        while self.rest.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
        let mut end = String::new();
        while let Some(c) = self.rest.next_if(|c| !c.is_whitespace() && !";&|()<>".contains(*c)) {
            if !"'\"\\".contains(c) {
                end.push(c);
            }
        }
        self.documents.push_back(Document { end, tabs });
    }

    /// At the start of a line; false when a document's end is still to come.
    fn skip_documents(&mut self) -> bool {
        while let Some(document) = self.documents.front() {
            if self.rest.peek().is_none() {
                return false;
            }
            let mut line = String::new();
            while let Some(c) = self.rest.next_if(|c| *c != '\n') {
                line.push(c);
            }
            self.rest.next();
            let line = if document.tabs { line.trim_start_matches('\t') } else { line.as_str() };
            if line == document.end {
                self.documents.pop_front();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
