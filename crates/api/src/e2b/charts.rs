//! The forms of figures and tables that only E2B's clients read: code that gives them in an interpreter, and
//! which interpreters have it.
//!
//! The code is the host's own and is run once in each interpreter of Python that a client of E2B runs code in,
//! before its first. It costs nothing until matplotlib or pandas is imported, and no other context has it.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use protocol::ContextName;
use protocol::repl::{ContextInfo, ContextState};

use super::limits::CONTEXTS_KNOWN_MAX;
use crate::environment::ascii;
use agent_client::guest::contexts::language;
use machine::SandboxId;

/// A figure of matplotlib as its kind, its labels and its points.
pub const CHART: &str = "application/vnd.burrow.chart+json";
/// A table of pandas as its columns.
pub const TABLE: &str = "application/vnd.burrow.table+json";

/// A string of JSON in ASCII is one of Python.
static CODE: LazyLock<String> = LazyLock::new(|| {
    let forms = ascii(&include_str!("charts/forms.py").into());
    format!("FORMS = {forms}\n{}", include_str!("charts/hook.py"))
});

/// Interpreters that have the code: each context, with the count of its interpreters.
#[derive(Default)]
pub struct Prepared(Mutex<HashMap<(SandboxId, ContextName), u64>>);

impl Prepared {
    /// Code to be run before that of a client, unless the interpreter has it. `known` is the context as it was
    /// found; the code may be run again without harm.
    pub fn code_for(
        &self,
        sandbox: &SandboxId,
        (name, language): (&ContextName, &str),
        known: Option<&ContextInfo>,
    ) -> Option<String> {
        if language != language::PYTHON.name {
            return None;
        }
        let alive =
            known.filter(|known| matches!(known.state, ContextState::Idle | ContextState::Running));
        // One that has yet to start is known for sure only by its next run.
        if let Some(alive) = alive {
            let mut contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (sandbox.clone(), name.clone());
            if contexts.get(&key) == Some(&alive.interpreters) {
                return None;
            }
            if contexts.len() >= CONTEXTS_KNOWN_MAX {
                contexts.clear();
            }
            contexts.insert(key, alive.interpreters);
        }
        Some(CODE.clone())
    }
}

#[cfg(test)]
mod tests;
