//! Bounds of the typed client that are not the link's, each with its reason.

use protocol::limits::{CODE_INLINE_BYTES_MAX, ENTRIES_PAGE_MAX, EVENT_BYTES_MAX, FRAME_BYTES_MAX};

/// Entries of one directory that are joined from its pages. Larger directories exist, and whoever
/// has one wants to walk it inside the sandbox; a hostile guest's has no end.
pub const LIST_ENTRIES_MAX: usize = 256 * 1024;

/// What a context's description may take of a request that carries code too; with a larger one the
/// code takes the stream.
pub const INLINE_CONTEXT_BYTES_MAX: usize = 256 * 1024;
/// A line that answers a run's request for input: what a frame holds, and room for the rest of it.
pub const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - 4 * 1024;
/// Forms of one display that are kept. Jupyter's richest objects offer seven.
pub const DISPLAY_FORMS_MAX: usize = 64;
/// Frames of one traceback that are kept: the depth at which Python gives a recursion up.
pub const TRACE_FRAMES_MAX: usize = 1024;
/// CPUs that a guest is believed to have: Linux's own bound is of that order.
pub const CPUS_MAX: u32 = 8192;
/// Warnings of one context that are kept; an agent of ours has one.
pub const WARNINGS_MAX: usize = 16;
/// Random bytes of an adoption: twice what the agent's id and token take, the rest for its kernel.
pub const ADOPTION_ENTROPY_BYTES: usize = 64;
/// Completions that are kept: nobody looks through more.
pub const MATCHES_MAX: usize = 4096;
/// What an event costs beside the bytes in it, when events are collected.
pub const EVENT_COST_BYTES: usize = 256;

const _: () =
    assert!(CODE_INLINE_BYTES_MAX + INLINE_CONTEXT_BYTES_MAX < FRAME_BYTES_MAX, "a run fits");
const _: () = assert!(EVENT_COST_BYTES < EVENT_BYTES_MAX);
const _: () = assert!(LIST_ENTRIES_MAX >= ENTRIES_PAGE_MAX, "a page fits a list");
