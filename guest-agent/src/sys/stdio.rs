//! Replaces the printing of C code in the agent by nothing.
//!
//! The only such code is the unwinder that Rust links, which formats complaints about damaged
//! tables. They would add musl's printing functions and floating-point arithmetic, ten kilobytes
//! for messages that nobody reads. The agent itself prints with [`std::io`] only.

use std::ffi::{c_char, c_int, c_void};

/// In the place of the C library's, on which `fprintf` and `snprintf` rest. Says that it has
/// written nothing, and looks at none of its arguments.
// SAFETY: a C function of this name has these arguments, the last being a `va_list`, which is
// passed as a pointer; a caller may get any number of bytes as the result.
#[unsafe(no_mangle)]
extern "C" fn vfprintf(_: *mut libc::FILE, _: *const c_char, _: *mut c_void) -> c_int {
    0
}
