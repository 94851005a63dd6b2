//! Bounds of the typed client that are not the link's, each with its reason.

use protocol::limits::{CODE_INLINE_BYTES_MAX, ENTRIES_PAGE_MAX, EVENT_BYTES_MAX, FRAME_BYTES_MAX};

/// Entries of one directory that are joined from its pages. Larger directories exist, but should be
/// walked inside the sandbox; a hostile guest's has no end.
pub const LIST_ENTRIES_MAX: usize = 256 * 1024;

/// How much of a request with code a context's description may take; with a larger one the code is
/// sent on the stream.
pub const INLINE_CONTEXT_BYTES_MAX: usize = 256 * 1024;
/// A line that answers a run's request for input: what fits in a frame, with room for the rest of
/// it.
pub const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - 4 * 1024;
/// Forms of one display that are kept. Jupyter's richest objects offer seven.
pub const DISPLAY_FORMS_MAX: usize = 64;
/// Forms of displays that the record of a run lists with their digests.
pub const RUN_DISPLAYS_MAX: usize = 64;
/// Of the name of a program whose cost is reported; file names of people are shorter.
pub const PROGRAM_NAME_CHARS_MAX: usize = 64;
/// Frames of one traceback that are kept: the depth at which Python gives a recursion up.
pub const TRACE_FRAMES_MAX: usize = 1024;
/// CPUs that a guest can credibly have: Linux's own limit is of that order.
pub const CPUS_MAX: u32 = 8192;
/// Warnings of one context that are kept; an agent of ours has one.
pub const WARNINGS_MAX: usize = 16;
/// Random bytes of an adoption: twice what the agent's id and token take, the rest for its kernel.
pub const ADOPTION_ENTROPY_BYTES: usize = 64;
/// Completions that are kept: nobody reads more.
pub const MATCHES_MAX: usize = 4096;
/// The overhead of an event besides its bytes, when events are collected.
pub const EVENT_COST_BYTES: usize = 256;

const _: () =
    assert!(CODE_INLINE_BYTES_MAX + INLINE_CONTEXT_BYTES_MAX < FRAME_BYTES_MAX, "a run fits");
const _: () = assert!(EVENT_COST_BYTES < EVENT_BYTES_MAX);
const _: () = assert!(LIST_ENTRIES_MAX >= ENTRIES_PAGE_MAX, "a page fits a list");
