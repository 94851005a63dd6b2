//! Backtraces of panics in the released agent: there are none.
//!
//! The agent is stripped, so a backtrace could show only bare addresses. The standard library still
//! brings a reader of debugging information, some 200 kilobytes, which its panic hook reaches through
//! one function of the unwinder: `_Unwind_Backtrace`, which calls back for each frame. The version
//! here calls back for none, so the compiler drops the reader. A panic still prints its message and
//! its place.
//!
//! The unwinder's library keeps that function in one object together with three others that a panic
//! does need. All four are here, so that the object is not linked a second time. Everything else
//! about panics is the library's: docs/decisions/0018-the-agents-size.md.

use std::ffi::{c_int, c_void};

/// A frame of the stack, as the unwinder knows it.
#[repr(C)]
struct Context {
    opaque: [u8; 0],
}

unsafe extern "C" {
    /// The address at which the frame continues.
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

/// `_URC_END_OF_STACK`.
const END_OF_STACK: c_int = 5;

/// Visits no frame.
// SAFETY: the C function of this name has these arguments, and may call its first one any number of
// times, or never.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_visit: *const c_void, _argument: *mut c_void) -> c_int {
    END_OF_STACK
}

/// The address at which a frame continues. It always follows a call, because no signal handler of the
/// agent unwinds.
// SAFETY: the C function of this name has these arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Unwind_GetIPInfo(context: *mut Context, is_before: *mut c_int) -> usize {
    // SAFETY: the caller passes a place for the answer.
    unsafe { is_before.write(0) };
    // SAFETY: the caller passes the frame that the unwinder has lent it.
    unsafe { _Unwind_GetIP(context) }
}

/// Rust's tables are relative to no section.
// SAFETY: the C function of this name has this argument.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_GetTextRelBase(_: *mut Context) -> usize {
    0
}

/// Rust's tables are relative to no section.
// SAFETY: the C function of this name has this argument.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_GetDataRelBase(_: *mut Context) -> usize {
    0
}
