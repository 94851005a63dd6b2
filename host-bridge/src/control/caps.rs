//! From the caps that the operator has set to those that the registry holds, and what is told of them.

use super::message::{Capped, CappedRow};
use crate::sandbox::caps::{Cap, Caps, Row};
use crate::sandbox::{Name, Registry, SandboxError};
use crate::settings;

/// What a namespace and a key have.
pub(super) fn shown(
    registry: &Registry,
    namespace: &Name,
    key: Option<&str>,
) -> Result<Vec<Capped>, SandboxError> {
    let row = |Row { cap, used, allowed }| CappedRow { cap: cap.to_owned(), used, allowed };
    let scopes = Caps::scopes(namespace.as_str(), key).into_iter().map(|scope| {
        let (used, cap) = registry.caps(&scope)?;
        let caps = used.rows(&cap).into_iter().map(row).collect();
        Ok(Capped { scope, caps })
    });
    scopes.collect()
}

/// The same in the units of records.
pub(super) fn caps(set: &settings::Caps) -> Caps {
    let all = |named: &std::collections::BTreeMap<String, settings::Cap>| {
        named.iter().map(|(name, set)| (name.clone(), cap(set))).collect()
    };
    Caps {
        per_namespace: cap(&set.per_namespace),
        per_key: cap(&set.per_key),
        namespaces: all(&set.namespaces),
        keys: all(&set.keys),
    }
}

fn cap(set: &settings::Cap) -> Cap {
    Cap {
        sandboxes: set.sandboxes,
        memory_mib: set.memory_mib,
        cpu_millis: set.cpu_millis.map(u64::from),
        disk_bytes: set.disk_bytes,
        ttl_ms: set.ttl.map(millis),
        run_ms: set.run_time_per_day.map(millis),
        output_bytes: set.output_bytes_per_day,
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
