//! What saves the state of a sandbox before its machine ends, and what carries it into forks. Services above
//! this crate set both, the owner of a sandbox and its registry call them; neither knows notebooks.

use machine::{BoxFuture, SandboxId};

use crate::fork::CarriedNotebook;
use crate::{Record, SandboxRef};

/// Saves what exists only in the machine of a running sandbox, before it is ended. The error says
/// what is unsaved, and why.
pub type Saver =
    Box<dyn Fn(SandboxRef, SandboxId) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Gives each fork what was saved of a sandbox, and says which of its contexts that were. What cannot be carried
/// into all of them is in none.
pub type Carrier =
    Box<dyn Fn(Record, Vec<SandboxRef>) -> BoxFuture<'static, CarriedContexts> + Send + Sync>;

/// What was carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedContexts {
    pub notebooks: Vec<CarriedNotebook>,
    /// The contexts of the original that these are.
    pub contexts: Vec<String>,
}
