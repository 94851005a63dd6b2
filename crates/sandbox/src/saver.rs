//! What saves the state of a sandbox before its machine ends. Services above this crate set it, the owner of
//! a sandbox calls it; it knows no notebooks.

use machine::{BoxFuture, SandboxId};

use crate::SandboxRef;

/// Saves what exists only in the machine of a running sandbox, before it is ended. The error says
/// what is unsaved, and why.
pub type Saver =
    Box<dyn Fn(SandboxRef, SandboxId) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
