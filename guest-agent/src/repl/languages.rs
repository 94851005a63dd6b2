//! The table of languages.
//!
//! To add one: a driver file, a file with its row, an entry in [`ALL`]. docs/reference/drivers.md says what a
//! driver must do.

use super::language::Language;
use super::{bash, node, python};

pub const ALL: &[&Language] = &[&python::PYTHON, &node::NODE, &bash::BASH];

/// The language that clients call `name`.
pub fn find(name: &str) -> Option<&'static Language> {
    let named = |language: &&&Language| language.name == name || language.aliases.contains(&name);
    ALL.iter().find(named).copied()
}
