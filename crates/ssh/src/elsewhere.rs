//! Sandboxes of other nodes of a fleet, as this door enters them. `daemon` implements it; a bridge of its own has none.

use std::pin::Pin;

use access::keys::Grant;
use sandbox::refusal::Refusal;
use sandbox::{SandboxRef, Visit};

/// A visit, with the name of the node; `None` if no other node has the sandbox.
pub type Visiting<'a> =
    Pin<Box<dyn Future<Output = Result<Option<(String, Visit)>, Refusal>> + Send + 'a>>;

/// The other nodes.
pub trait Elsewhere: Send + Sync {
    /// Enters a sandbox that another node has, and wakes it first if it is asleep. That node judges the grant again.
    fn visit<'a>(&'a self, which: &'a SandboxRef, grant: &'a Grant) -> Visiting<'a>;
}
