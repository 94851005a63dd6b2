//! Limits of a Dockerfile, which may be untrusted.

/// The file itself. The longest that people publish have some hundred kilobytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Instructions of all stages together.
pub const STEPS_MAX: usize = 2048;
/// What one word may become when its variables are filled in.
pub const WORD_BYTES_MAX: usize = 64 << 10;
/// What the lines of one file may become when theirs are.
pub const TEXT_BYTES_MAX: usize = 4 << 20;
/// What an error shows of a word.
pub const CHARS_SHOWN_MAX: usize = 32;
/// How deep `${a:-${b:-…}}` may go.
pub const DEPTH_MAX: usize = 8;
/// Rules of a `.dockerignore`.
pub const RULES_MAX: usize = 4096;
/// Components of one such rule; a path of an image has no more either.
pub const RULE_COMPONENTS_MAX: usize = 128;
