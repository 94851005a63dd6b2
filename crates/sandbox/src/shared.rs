//! Who besides this registry keeps templates: a fleet, whose nodes all have the same.
//!
//! ```text
//!  put ─▶ kept by the fleet ─▶ kept here ─▶ answered         the other nodes: mirrored here a moment later
//! ```
//!
//! The registry calls it; `node` implements it. A bridge of its own has none.

use super::{NameRefused, Template, TemplateRef};
use machine::BoxFuture;

/// Keeps templates for all.
pub trait SharedTemplates: Send + Sync {
    /// Keeps one in the place of any of its name, and returns it as the fleet has it.
    fn put(&self, template: Template) -> BoxFuture<'_, Result<Template, NameRefused>>;

    /// Removes one. One that is gone already is no error.
    fn remove<'a>(&'a self, which: &'a TemplateRef) -> BoxFuture<'a, Result<(), NameRefused>>;
}

/// Why a template was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the template {template}: {why}")]
pub struct TemplateRefused {
    pub template: TemplateRef,
    pub why: NameRefused,
}
