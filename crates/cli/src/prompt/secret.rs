//! Reads a line that must not be shown, for `getpass` and similar calls.
//!
//! The line is read byte by byte without echo, outside the line editor, which would show and
//! remember it.

use std::io::{self, IsTerminal, Write, stdin, stdout};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// A longer secret is cut off: no person types so much.
const SECRET_BYTES_MAX: usize = 64 * 1024;

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CTRL_U: u8 = 0x15;
const CTRL_W: u8 = 0x17;
const DELETE: u8 = 0x7f;

/// The result of asking for a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Secret {
    Line(String),
    /// ctrl-c.
    Interrupted,
    /// ctrl-d on an empty line, or a terminal that is gone.
    End,
}

/// Asks for a secret at the terminal of stdin.
pub(super) fn ask(prompt: &str) -> io::Result<Secret> {
    let mode = tcgetattr(stdin())?;
    let mut quiet = mode.clone();
    // The guardian knows the raw form of the input's modes. Output stays as it is, so that lines
    // which another client writes meanwhile begin at the left.
    quiet.make_raw();
    quiet.output_modes = mode.output_modes;
    tcsetattr(stdin(), OptionalActions::Drain, &quiet)?;
    let shown = show(prompt);
    let secret = shown.and_then(|()| read());
    tcsetattr(stdin(), OptionalActions::Drain, &mode)?;
    show("\n")?;
    secret
}

/// The terminal on which the editor shows its prompts.
fn show(text: &str) -> io::Result<()> {
    if stdout().is_terminal() {
        let mut stdout = stdout().lock();
        return stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
    std::fs::OpenOptions::new().write(true).open("/dev/tty")?.write_all(text.as_bytes())
}

fn read() -> io::Result<Secret> {
    let mut typing = Typing::default();
    let mut byte = [0];
    loop {
        // One byte at a time: what is typed after the line is for the next reader.
        match rustix::io::read(stdin(), &mut byte) {
            Ok(0) => return Ok(Secret::End),
            Ok(_) => {
                if let Some(secret) = typing.feed(byte[0]) {
                    return Ok(secret);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The line so far. Pure.
#[derive(Default)]
struct Typing {
    bytes: Vec<u8>,
}

impl Typing {
    fn feed(&mut self, byte: u8) -> Option<Secret> {
        match byte {
            b'\r' | b'\n' => {
                let line = std::mem::take(&mut self.bytes);
                return Some(Secret::Line(String::from_utf8_lossy(&line).into_owned()));
            }
            CTRL_C => return Some(Secret::Interrupted),
            CTRL_D if self.bytes.is_empty() => return Some(Secret::End),
            CTRL_D => {}
            BACKSPACE | DELETE => self.erase(),
            CTRL_U | CTRL_W => self.bytes.clear(),
            _ if self.bytes.len() < SECRET_BYTES_MAX => self.bytes.push(byte),
            _ => {}
        }
        None
    }

    /// Removes a character, which may have several bytes.
    fn erase(&mut self) {
        while let Some(byte) = self.bytes.pop() {
            if !(0x80..0xc0).contains(&byte) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
