//! Refusals of calls for a sandbox that is gone, where another one may have its name.

use std::fmt;

use super::Api;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Reason, Refusal};

/// The sandbox that a client means by its id, unless another one has its name now.
pub fn is_still(api: &Api, which: SandboxRef, id: &str) -> Result<SandboxRef, Refusal> {
    // Who looks for it refuses what is not here.
    let Ok(record) = api.registry().get(&which) else { return Ok(which) };
    if record.id.as_str() == id {
        return Ok(which);
    }
    let followed = record.follows.filter(|followed| followed.id.as_str() == id);
    Err(match followed {
        Some(followed) => lost(&which, &followed.node, &followed.incarnation, true)
            .hint("another of this name was made after it; get that one by its name"),
        None => Refusal::new(Code::Gone, format!("{which} is another sandbox than {id} now"))
            .hint("get it by its name"),
    })
}

/// A sandbox that is gone with its node.
pub fn lost(what: &dyn fmt::Display, node: &str, incarnation: &str, returns: bool) -> Refusal {
    let message = format!("{what} was lost with its node {node}");
    let hint = if returns {
        "another of this name is being made: look again in a moment, or remove it to have none made"
    } else {
        "its name is free: create it again"
    };
    let details = serde_json::json!({
        "node": node,
        "incarnation": incarnation,
        "returns": returns,
    });
    Refusal::new(Code::Gone, message).because(Reason::Lost).details(details).hint(hint)
}
