//! The sandbox that a call is for.

use super::create::EPHEMERAL;
use crate::call::Call;
use crate::creation::namespace_of;
use sandbox::refusal::Refusal;
use sandbox::{Name, Record, SandboxId, SandboxRef, State};

/// The sandbox that the path names, by its id or by its name, if it is there and the key reaches it. Of others
/// it says nothing.
pub fn find(call: &Call) -> Result<Record, Refusal> {
    let text: String = call.parameter("sandbox")?;
    let missing = || Refusal::not_found(format!("sandbox {text:?} was not found"));
    let registry = call.api.registry();
    let id = text.parse::<SandboxId>().ok();
    let by_id = id.and_then(|id| registry.find(&id));
    let by_name = || {
        let name: Name = text.parse().ok()?;
        Some(SandboxRef { namespace: namespace_of(&call.caller, None), name })
    };
    let which = by_id.filter(|which| call.caller.covers(&which.namespace)).or_else(by_name);
    let which = which.ok_or_else(missing)?;
    let record = registry.get(&which).ok().filter(is_there).ok_or_else(missing)?;
    call.trail.sandbox(&which);
    Ok(record)
}

/// Whether it is there to the clients. One that has ended is not: it cannot be started again. An ephemeral one
/// is there for a moment, because its client looks whether it has stopped.
pub fn is_there(record: &Record) -> bool {
    !matches!(record.state, State::Stopped { .. }) || is_ephemeral(record)
}

/// Whether it is removed when it stops.
pub fn is_ephemeral(record: &Record) -> bool {
    record.labels.contains_key(EPHEMERAL)
}
