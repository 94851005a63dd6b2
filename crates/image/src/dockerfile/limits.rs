//! Limits of a Dockerfile, which may be untrusted.

/// The file itself. The longest that people publish have some hundred kilobytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Instructions of all stages together.
pub const STEPS_MAX: usize = 2048;
/// The longest word after its variables are expanded.
pub const WORD_BYTES_MAX: usize = 64 << 10;
/// The longest here-document after its variables are expanded.
pub const TEXT_BYTES_MAX: usize = 4 << 20;
/// How much of a word an error shows.
pub const CHARS_SHOWN_MAX: usize = 32;
/// The deepest nesting of `${a:-${b:-…}}`.
pub const DEPTH_MAX: usize = 8;
/// Rules of a `.dockerignore`, and of the `--exclude` flags of one instruction.
pub const RULES_MAX: usize = 4096;
/// Components of one such rule; a path of an image has no more either.
pub const RULE_COMPONENTS_MAX: usize = 128;
