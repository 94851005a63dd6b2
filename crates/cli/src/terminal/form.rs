//! How raw mode changes a terminal, and how its screen is restored.

use rustix::termios::Termios;

/// Puts a screen in order that a program was torn away from. The alternate screen is entered before it is left:
/// the switch back also restores the cursor of the last switch there, which may be long ago. In a terminal that
/// is in the alternate screen already, entering it changes nothing of the main screen.
///
/// save cursor · scroll region whole · restore cursor · enter and leave the alternate screen · show the cursor ·
/// plain text · mouse reports off · focus reports off · bracketed paste off · cursor keys and keypad as usual ·
/// a line of its own for what follows
pub const SCREEN_IN_ORDER: &[u8] = b"\x1b7\x1b[r\x1b8\x1b[?1049h\x1b[?1049l\x1b[?25h\x1b[0m\
    \x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\r\n";

/// The raw form of a mode; the guardian compares with it to see whether we were the last to set it.
pub(super) fn raw_form(mode: &Termios) -> Termios {
    let mut raw = mode.clone();
    raw.make_raw();
    raw
}
