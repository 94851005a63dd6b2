//! What C code in the agent would print: nothing.
//!
//! The only such code is the unwinder that Rust links, which has a format for every complaint about
//! damaged tables. With them come musl's printing functions and their arithmetic of floats, ten
//! kilobytes for words that nobody reads. The agent itself prints by [`std::io`] alone.

use std::ffi::{c_char, c_int, c_void};

/// In the place of the C library's, on which `fprintf` and `snprintf` rest. Says that it has
/// written nothing, and looks at none of its arguments.
// SAFETY: a C function of this name has these arguments, the last being a `va_list`, which is
// passed as a pointer; whoever calls it may get any number of bytes as the result.
#[unsafe(no_mangle)]
extern "C" fn vfprintf(_: *mut libc::FILE, _: *const c_char, _: *mut c_void) -> c_int {
    0
}
