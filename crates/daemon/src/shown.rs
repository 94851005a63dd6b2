//! Formats caps for the control socket.

use control::message::{CapUsage, CapUsageRow};
use sandbox::caps::{CapUse, Caps};
use sandbox::{Name, Registry, SandboxError};

/// The caps and usage of a namespace and a key.
pub(super) fn caps(
    registry: &Registry,
    namespace: &Name,
    key: Option<&str>,
) -> Result<Vec<CapUsage>, SandboxError> {
    let row = |CapUse { cap, used, allowed }| CapUsageRow { cap: cap.to_owned(), used, allowed };
    let scopes = Caps::scopes(namespace.as_str(), key).into_iter().map(|scope| {
        let (used, cap) = registry.caps(&scope)?;
        let caps = used.rows(&cap).into_iter().map(row).collect();
        Ok(CapUsage { scope, caps })
    });
    scopes.collect()
}
