//! Filters a program's output so that a terminal that shows it types no answers. Pure.
//!
//! A terminal answers some sequences by typing: where the cursor is, which colours it has, who it is. An
//! answer is for the program that asks now, and comes from the one terminal that has the keyboard. A terminal
//! that shows earlier output, or only watches, must not type. [`QueryFilter`] therefore passes what
//! [`is_shown`] lists, which no terminal answers, and blanks every other sequence: each of its bytes becomes
//! a NUL, which a terminal ignores (ECMA-48, 8.3.88), so that offsets stay true.
//!
//! ```text
//!          ESC              [               final byte
//!   Text ───────▶ Escape ───────▶ Control ────────────▶ Text     held until it is decided,
//!                   │ ] P X ^ _ k                       ▲        then shown or blanked
//!                   └──────────▶ String ── ST or BEL ───┘
//! ```
//!
//! Text is UTF-8; a byte from 0x80 to 0x9f that is no part of a character is the control character that
//! 8-bit terminals take it for.

/// How many bytes of one sequence are held before it is decided. Longer ones are blanked: links and titles,
/// the longest that are shown, are far shorter.
const HELD_BYTES_MAX: usize = 4096;

const NUL: u8 = 0;
/// Asks for the answerback message.
const ENQ: u8 = 0x05;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;

/// Private modes that may be set and reset. Not among them are those that make a terminal report at once
/// (focus 1004, colours 2031, size 2048) and those that turn it into another (VT52 2, Tektronix 38).
const PRIVATE_MODES: [u16; 35] = [
    1, 3, 4, 5, 6, 7, 8, 9, 12, 25, 40, 45, 47, 66, 67, 69, 80, 1000, 1002, 1003, 1005, 1006, 1007,
    1015, 1016, 1034, 1036, 1039, 1042, 1045, 1047, 1048, 1049, 2004, 2026,
];
/// Insert mode, and the effect of a line feed.
const MODES: [u16; 2] = [4, 20];

/// The output of one session on its way to one terminal.
#[derive(Clone, Debug)]
pub struct QueryFilter {
    state: State,
    /// Output before this offset is a replay.
    live_from: u64,
    /// The current sequence is passed, whatever it is.
    is_open: bool,
    /// The current sequence is blanked, whatever it is.
    is_blank: bool,
    /// The undecided bytes of the current sequence.
    held: Vec<u8>,
}

/// The current offset in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// Within a character: `left` bytes follow, the next from `low` to `high`.
    Character {
        left: u8,
        low: u8,
        high: u8,
    },
    /// After 0xC2, with which the control characters above ASCII begin.
    Latin,
    /// After ESC.
    Escape,
    /// After ESC and intermediate bytes.
    Intermediate,
    /// In a control sequence.
    Control,
    /// In a string. A bell ends only some of them.
    String {
        ends_at_bell: bool,
    },
    /// In a string, after an ESC that may begin its end.
    StringEscape {
        ends_at_bell: bool,
    },
}

/// A byte was consumed, or has ended the current state and must be examined again.
#[derive(PartialEq, Eq)]
enum Step {
    Taken,
    Again,
}

impl QueryFilter {
    /// For a viewer to whom all output before `live_from` is a replay.
    pub fn new(live_from: u64) -> Self {
        let (is_open, is_blank, held) = (false, false, Vec::new());
        Self { state: State::Text, live_from, is_open, is_blank, held }
    }

    /// The bytes that the terminal is shown for `bytes`, which begin at `offset`. The terminal with the
    /// keyboard is shown all live output, queries included. A sequence is live if its beginning was.
    pub fn show(&mut self, offset: u64, bytes: &[u8], has_keyboard: bool) -> Vec<u8> {
        let mut shown = Vec::with_capacity(self.held.len() + bytes.len());
        let replayed = usize::try_from(self.live_from.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (replayed, live) = bytes.split_at(replayed.min(bytes.len()));
        for (bytes, is_answered) in [(replayed, false), (live, has_keyboard)] {
            for &byte in bytes {
                while self.take(byte, is_answered, &mut shown) == Step::Again {}
            }
        }
        shown
    }

    /// Abandons the current sequence, because its rest is missing.
    pub fn cut(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        if let State::StringEscape { .. } = self.state {
            self.put(ESC, &mut shown);
        }
        self.decide(false, &mut shown);
        shown
    }

    fn take(&mut self, byte: u8, is_answered: bool, shown: &mut Vec<u8>) -> Step {
        match self.state {
            State::Text => self.text(byte, is_answered, shown),
            State::Character { left, low, high } => {
                if !(low..=high).contains(&byte) {
                    self.state = State::Text;
                    return Step::Again;
                }
                shown.push(byte);
                self.state = match left {
                    1 => State::Text,
                    _ => State::Character { left: left - 1, low: 0x80, high: 0xbf },
                };
            }
            State::Latin => match byte {
                0x80..=0x9f => self.control_character(byte, shown),
                0xa0..=0xbf => {
                    self.put(byte, shown);
                    self.decide(true, shown);
                }
                _ => {
                    self.decide(true, shown);
                    return Step::Again;
                }
            },
            State::Escape | State::Intermediate => return self.escape(byte, shown),
            State::Control => return self.control(byte, shown),
            State::String { ends_at_bell } => return self.string(byte, ends_at_bell, shown),
            State::StringEscape { ends_at_bell: _ } if byte == b'\\' => {
                let is_shown = is_shown_string(behind_introducer(&self.held));
                self.put(ESC, shown);
                self.put(byte, shown);
                self.decide(is_shown, shown);
            }
            State::StringEscape { .. } => {
                // It has begun another sequence. Terminals disagree on that, so none is shown a string
                // without its end.
                self.decide(false, shown);
                self.text(ESC, is_answered, shown);
                return Step::Again;
            }
        }
        Step::Taken
    }

    fn text(&mut self, byte: u8, is_answered: bool, shown: &mut Vec<u8>) {
        let character = |left, low, high| State::Character { left, low, high };
        self.is_open = is_answered;
        self.state = match byte {
            ESC => State::Escape,
            0xc2 => State::Latin,
            0x80..=0x9f => return self.control_character(byte, shown),
            0xc3..=0xdf => character(1, 0x80, 0xbf),
            0xe0 => character(2, 0xa0, 0xbf),
            0xed => character(2, 0x80, 0x9f),
            0xe1..=0xef => character(2, 0x80, 0xbf),
            0xf0 => character(3, 0x90, 0xbf),
            0xf1..=0xf3 => character(3, 0x80, 0xbf),
            0xf4 => character(3, 0x80, 0x8f),
            _ => State::Text,
        };
        match byte {
            ESC | 0xc2 => self.put(byte, shown),
            ENQ if !is_answered => shown.push(NUL),
            _ => shown.push(byte),
        }
    }

    /// A control character above ASCII, which stands for ESC and another byte.
    fn control_character(&mut self, byte: u8, shown: &mut Vec<u8>) {
        self.put(byte, shown);
        match byte {
            0x9b => self.state = State::Control,
            0x9d => self.state = State::String { ends_at_bell: true },
            0x90 | 0x98 | 0x9e | 0x9f => self.begin_blank_string(shown),
            // Down a line, to the next line, set a tab, up a line.
            _ => self.decide(matches!(byte, 0x84 | 0x85 | 0x88 | 0x8d), shown),
        }
    }

    fn escape(&mut self, byte: u8, shown: &mut Vec<u8>) -> Step {
        let is_first = self.state == State::Escape;
        match byte {
            b' '..=b'/' => {
                self.put(byte, shown);
                self.state = State::Intermediate;
            }
            b'0'..=b'~' => {
                self.put(byte, shown);
                match byte {
                    b'[' if is_first => self.state = State::Control,
                    b']' if is_first => self.state = State::String { ends_at_bell: true },
                    b'P' | b'X' | b'^' | b'_' | b'k' if is_first => self.begin_blank_string(shown),
                    _ => self.decide(is_shown_escape(&self.held), shown),
                }
            }
            _ => return self.give_up(shown),
        }
        Step::Taken
    }

    fn control(&mut self, byte: u8, shown: &mut Vec<u8>) -> Step {
        match byte {
            b'@'..=b'~' => {
                let is_shown = is_shown_control(behind_introducer(&self.held), byte);
                self.put(byte, shown);
                self.decide(is_shown, shown);
            }
            ESC | CAN | SUB | 0x80.. => return self.give_up(shown),
            _ => self.put(byte, shown),
        }
        Step::Taken
    }

    fn string(&mut self, byte: u8, ends_at_bell: bool, shown: &mut Vec<u8>) -> Step {
        match byte {
            ESC => self.state = State::StringEscape { ends_at_bell },
            BEL if ends_at_bell => {
                let is_shown = is_shown_string(behind_introducer(&self.held));
                self.put(byte, shown);
                self.decide(is_shown, shown);
            }
            CAN | SUB => return self.give_up(shown),
            _ => self.put(byte, shown),
        }
        Step::Taken
    }

    /// A string that is never shown: those of devices and applications contain queries, and some terminals
    /// pass their content on.
    fn begin_blank_string(&mut self, shown: &mut Vec<u8>) {
        self.state = State::String { ends_at_bell: false };
        self.blank(shown);
    }

    /// Ends a sequence before its end; the byte that does is looked at again.
    fn give_up(&mut self, shown: &mut Vec<u8>) -> Step {
        self.decide(false, shown);
        Step::Again
    }

    /// Takes a byte of the sequence that is being read.
    fn put(&mut self, byte: u8, shown: &mut Vec<u8>) {
        if self.is_open {
            return shown.push(byte);
        }
        self.held.push(byte);
        if self.is_blank || self.held.len() > HELD_BYTES_MAX {
            self.blank(shown);
        }
    }

    /// From here on nothing of the sequence is shown.
    fn blank(&mut self, shown: &mut Vec<u8>) {
        self.is_blank = true;
        shown.extend(self.held.drain(..).map(|_| NUL));
    }

    /// The sequence has ended.
    fn decide(&mut self, is_shown: bool, shown: &mut Vec<u8>) {
        if is_shown {
            shown.append(&mut self.held);
        } else {
            self.blank(shown);
        }
        (self.is_blank, self.is_open) = (false, false);
        self.state = State::Text;
    }
}

/// A sequence after its introducer, which has one byte or two.
fn behind_introducer(held: &[u8]) -> &[u8] {
    let introducer = if matches!(held, [ESC | 0xc2, ..]) { 2 } else { 1 };
    held.get(introducer..).unwrap_or_default()
}

/// Whether an escape sequence may be shown: positions and tabs, the keypad, a bell to see, character
/// sets, the size of lines, and a reset. No identification (`ESC Z`), nothing that changes how the
/// terminal reads or writes.
fn is_shown_escape(sequence: &[u8]) -> bool {
    match sequence {
        [ESC, last] => b"6789=>DEHMNOcglmno|}~\\".contains(last),
        [ESC, b'#', last] => b"34568".contains(last),
        [ESC, first, .., _] => b"()*+-./".contains(first) && sequence.len() <= 4,
        _ => false,
    }
}

/// Whether a control sequence of these bytes may be shown.
#[expect(clippy::unnested_or_patterns, reason = "each line is a kind, below what it is for")]
fn is_shown_control(bytes: &[u8], last: u8) -> bool {
    let (private, bytes) = match bytes {
        [private @ b'<'..=b'?', rest @ ..] => (Some(*private), rest),
        _ => (None, bytes),
    };
    let parameters = bytes.iter().take_while(|byte| matches!(byte, b'0'..=b';')).count();
    let (parameters, intermediates) = bytes.split_at(parameters);
    let modes = |known: &[u16]| {
        parameters.split(|byte| *byte == b';').all(|mode| {
            let mode = std::str::from_utf8(mode).ok().and_then(|mode| mode.parse().ok());
            mode.is_some_and(|mode| known.contains(&mode))
        })
    };
    match (private, intermediates, last) {
        (None, b"", b'h' | b'l') => modes(&MODES),
        (Some(b'?'), b"", b'h' | b'l') => modes(&PRIVATE_MODES),
        // Positions, erasing, inserting, deleting, scrolling, tabs, repeating, colours, margins.
        (None, b"", b'@'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a' | b'b')
        | (None, b"", b'd'..=b'g' | b'm' | b'r' | b's' | b'u')
        | (Some(b'?'), b"", b'J' | b'K')
        // How keys are reported, which only matters with the keyboard.
        | (Some(b'>'), b"", b'm' | b'u')
        | (Some(b'<' | b'='), b"", b'u')
        // The cursor's form, scrolling sideways, protection, soft reset, columns, rectangles, the stack
        // of colours.
        | (None, b" ", b'q' | b'@' | b'A')
        | (None, b"\"", b'q')
        | (None, b"!", b'p')
        | (None, b"'", b'}' | b'~')
        | (None, b"$", b'r' | b'v' | b'x' | b'z' | b'{')
        | (None, b"#", b'{' | b'}' | b'p' | b'q')
        | (None, b"*", b'x') => true,
        _ => false,
    }
}

/// Whether a string for the terminal itself may be shown: titles, the directory, links, prompts, and
/// colours that are set. No question, no clipboard, no file, no notification.
fn is_shown_string(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    if text.chars().any(char::is_control) {
        return false;
    }
    let (number, content) = text.split_once(';').unwrap_or((text, ""));
    match number {
        "0" | "1" | "2" | "7" | "8" | "133" | "104" | "105" => true,
        "4" | "5" => !content.contains('?'),
        _ => match number.parse::<u8>() {
            Ok(10..=19) => number.len() == 2 && !content.contains('?'),
            Ok(110..=119) => number.len() == 3,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests;
