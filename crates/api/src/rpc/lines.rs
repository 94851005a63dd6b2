//! Output as JSON-RPC's clients read it: a list with an entry for each line, in the order in which
//! the lines were finished, and for commands the whole text of each stream besides. Pure.
//!
//! It is written as JSON at once, so that what is kept is what will be sent, and is bounded as such.

#[cfg(test)]
mod tests;

use std::io::BufRead;

use crate::budget::Share;
use agent_client::program::whole_characters;

/// The stream of some output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The output of one run or command while it is under way.
#[derive(Debug)]
pub struct Lines {
    /// The beginning of a list: the entries, each with a comma.
    entries: Vec<u8>,
    /// By stream.
    sides: [Side; 2],
    /// Whether each text is wanted whole as well.
    wholes: bool,
    bytes_max: usize,
    room: usize,
    /// What all calls share, where it is counted.
    memory: Option<Share>,
    /// There was no room for all, so nothing more is kept.
    full: Option<Full>,
    /// Some was lost on the way here.
    is_lossy: bool,
}

/// What had no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// This answer.
    Answer,
    /// The memory of all calls.
    Memory,
}

/// What is known of one stream.
#[derive(Debug)]
struct Side {
    /// A line whose end has not come.
    begun: Vec<u8>,
    /// All text, as the beginning of a JSON string.
    whole: Vec<u8>,
}

impl Side {
    fn new() -> Self {
        Self { begun: Vec::new(), whole: vec![b'"'] }
    }
}

/// All output, as JSON.
#[derive(Debug)]
pub struct Collected {
    /// A list.
    pub output: Vec<u8>,
    /// Strings.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Some of it was left out, which an entry in its place says, or the last one.
    pub is_truncated: bool,
}

/// What an entry takes beside its text.
const ENTRY_BYTES: usize = br#"{"stream":"stdout","text":""},"#.len();
/// A line's end in a JSON string.
const NEWLINE: &[u8] = br"\n";
/// What a byte of output takes at most: `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;

impl Lines {
    /// Keeps at most `bytes_max` of JSON.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            entries: vec![b'['],
            sides: [Side::new(), Side::new()],
            wholes: false,
            bytes_max,
            room: bytes_max,
            memory: None,
            full: None,
            is_lossy: false,
        }
    }

    /// The same, of which the whole texts are wanted as well.
    pub fn with_wholes(bytes_max: usize) -> Self {
        Self { wholes: true, ..Self::new(bytes_max) }
    }

    /// Counts what is kept, and keeps nothing more when there is no memory for it.
    #[must_use]
    pub fn counted(self, memory: Share) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Takes the next bytes of a stream. An unfinished line waits for its end.
    pub fn say(&mut self, stream: Stream, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let mut after = rest;
            let taken = after.skip_until(b'\n').expect("memory is read without fail");
            let Some(line) = rest[..taken].strip_suffix(b"\n") else { break };
            rest = after;
            if self.sides[stream as usize].begun.is_empty() {
                self.enter(stream, line, true);
            } else {
                self.begin(stream, line);
                self.end_line(stream, true);
            }
            if self.full.is_some() {
                return;
            }
        }
        self.begin(stream, rest);
    }

    /// Says something on lines of its own.
    pub fn tell(&mut self, stream: Stream, text: &str) {
        self.break_line(stream);
        self.say(stream, text.as_bytes());
        self.break_line(stream);
    }

    /// Ends a line whose end has not come.
    pub fn break_line(&mut self, stream: Stream) {
        if !self.sides[stream as usize].begun.is_empty() {
            self.end_line(stream, true);
        }
    }

    /// Records that so many bytes of a stream were lost on the way here. What comes after them is no part
    /// of the line before.
    pub fn lose(&mut self, stream: Stream, bytes: u64) {
        self.is_lossy = true;
        self.break_line(stream);
        let name = stream.name();
        self.tell(Stream::Stderr, &format!("[{bytes} bytes of {name} were lost here]"));
    }

    pub fn finish(mut self) -> Collected {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.sides[stream as usize].begun.is_empty() {
                self.end_line(stream, false);
            }
        }
        if let Some(full) = self.full {
            let why = match full {
                Full::Answer => {
                    format!("an answer holds at most {} MiB", self.bytes_max / (1024 * 1024))
                }
                Full::Memory => "the server has no memory for more".to_owned(),
            };
            let note = format!("[the output is cut short: {why}]");
            self.write(Stream::Stderr, &note, true);
        }
        let mut output = self.entries;
        // The comma after the last entry.
        output.pop_if(|last| *last == b',');
        output.push(b']');
        let [stdout, stderr] = self.sides.map(|mut side| {
            side.whole.push(b'"');
            side.whole
        });
        Collected { output, stdout, stderr, is_truncated: self.full.is_some() || self.is_lossy }
    }

    /// Goes on with a line. There is no use in keeping more of it than there is room for.
    fn begin(&mut self, stream: Stream, bytes: &[u8]) {
        if self.full.is_some() {
            return;
        }
        let left = self.room.saturating_sub(self.sides[stream as usize].begun.len());
        let head = &bytes[..bytes.len().min(left)];
        if !self.grow(head.len()) {
            return;
        }
        self.sides[stream as usize].begun.extend_from_slice(head);
        if bytes.len() > left {
            self.end_line(stream, false);
            self.full = Some(Full::Answer);
        }
    }

    fn end_line(&mut self, stream: Stream, has_newline: bool) {
        let mut line = std::mem::take(&mut self.sides[stream as usize].begun);
        self.enter(stream, &line, has_newline);
        if let Some(memory) = &self.memory {
            memory.shrink(line.len());
        }
        // Its room is good for the next one, unless it was an uncommonly long line.
        if line.capacity() <= KEPT_BYTES_MAX {
            line.clear();
            self.sides[stream as usize].begun = line;
        }
    }

    /// Makes an entry of a line, as far as there is room for it.
    fn enter(&mut self, stream: Stream, line: &[u8], has_newline: bool) {
        if self.full.is_some() {
            return;
        }
        let copies = if self.wholes { 2 } else { 1 };
        let fixed = ENTRY_BYTES + NEWLINE.len();
        let worst = fixed + copies * ESCAPED_BYTES_MAX * line.len();
        let piece = if worst <= self.room {
            line
        } else {
            let left = self.room.saturating_sub(fixed) / copies;
            let piece = fitting(line, left);
            if piece.len() < line.len() || self.room < fixed {
                self.full = Some(Full::Answer);
                if piece.is_empty() {
                    return;
                }
            }
            piece
        };
        let is_cut = piece.len() < line.len();
        self.write(stream, &String::from_utf8_lossy(piece), has_newline && !is_cut);
    }

    fn write(&mut self, stream: Stream, text: &str, has_newline: bool) {
        let before = self.entries.len();
        let head: &[u8] = match stream {
            Stream::Stdout => br#"{"stream":"stdout","text":"#,
            Stream::Stderr => br#"{"stream":"stderr","text":"#,
        };
        self.entries.extend_from_slice(head);
        let from = self.entries.len();
        write_string(&mut self.entries, text);
        let to = self.entries.len();
        self.entries.extend_from_slice(b"},");
        let mut taken = self.entries.len() - before;
        if self.wholes {
            let whole = &mut self.sides[stream as usize].whole;
            let written = whole.len();
            whole.extend_from_slice(&self.entries[from + 1..to - 1]);
            if has_newline {
                whole.extend_from_slice(NEWLINE);
            }
            taken += whole.len() - written;
        }
        self.room = self.room.saturating_sub(taken);
        self.grow(taken);
    }

    /// Takes what is kept from the memory of all calls; when there is none, it is the last that is.
    fn grow(&mut self, bytes: usize) -> bool {
        let has_grown = self.memory.as_ref().is_none_or(|memory| memory.grow(bytes).is_ok());
        if !has_grown {
            self.full.get_or_insert(Full::Memory);
        }
        has_grown
    }
}

/// A line's room that is kept for the next.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// As much of a line as takes at most `left` bytes in JSON, cut between characters.
fn fitting(line: &[u8], mut left: usize) -> &[u8] {
    let cost = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => ESCAPED_BYTES_MAX,
        0x20..0x80 => 1,
        // It may be no character, and U+FFFD has three.
        0x80.. => 3,
    };
    let fits = |byte| {
        left = left.checked_sub(cost(byte))?;
        Some(())
    };
    let end = line.iter().copied().map_while(fits).count();
    if end < line.len() { &line[..whole_characters(&line[..end])] } else { line }
}

/// Writes a JSON string. Most lines have nothing that must be escaped, which is found several bytes at a time.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches the compiler takes many bytes at once"
)]
fn write_string(to: &mut Vec<u8>, text: &str) {
    let escapes = |found, byte| found | (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if text.bytes().fold(false, escapes) {
        serde_json::to_writer(to, text).expect("memory takes any text");
    } else {
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        to.push(b'"');
    }
}
