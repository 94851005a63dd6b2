//! What raw mode does to a terminal, and what puts its screen in order again.

use rustix::termios::Termios;

/// Puts a screen in order that a program was torn away from. The cursor is saved first, since a
/// terminal that is not in the alternate screen takes the switch back as "restore the cursor":
///
/// save cursor · scroll region whole · leave the alternate screen · show the cursor · plain text ·
/// mouse reports off · focus reports off · bracketed paste off · cursor keys and keypad as usual ·
/// a line of its own for what follows
pub const SCREEN_IN_ORDER: &[u8] = b"\x1b7\x1b[r\x1b8\x1b7\x1b[?1049l\x1b[?25h\x1b[0m\
    \x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\r\n";

/// The raw form of a mode; the guardian compares with it to see whether we were the last to set it.
pub(super) fn raw_form(mode: &Termios) -> Termios {
    let mut raw = mode.clone();
    raw.make_raw();
    raw
}
