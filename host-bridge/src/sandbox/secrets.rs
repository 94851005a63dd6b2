//! The secrets that a sandbox asks for, between its specification and its machine.

use super::{Event, EventSink, SandboxError, Spec};
use crate::secret::{SecretError, Secrets, Variable};

/// The variables that its secrets will be, if it may have all of them. Reads nothing.
pub(super) fn variables(secrets: &Secrets, spec: &Spec) -> Result<Vec<String>, SandboxError> {
    let variables = secrets.variables(spec.namespace.as_str(), &spec.secrets)?;
    // Whichever of the two came first would be taken for the other.
    let both = variables.iter().find(|variable| spec.env.iter().any(|(name, _)| name == *variable));
    match both {
        Some(variable) => Err(SecretError::AlsoPlain { variable: variable.clone() }.into()),
        None => Ok(variables),
    }
}

/// The values. What is wrong with a provider is for the operator; whoever asked is told which secret.
pub(super) async fn resolve(
    secrets: &Secrets,
    spec: &Spec,
    events: &EventSink,
) -> Result<Vec<Variable>, SandboxError> {
    let resolved = secrets.resolve(spec.namespace.as_str(), &spec.secrets).await;
    if let Err(SecretError::Provider { name, source, .. }) = &resolved {
        let what = format!("the secret {name:?} could not be had: {source}");
        events(&Event::Trouble { which: Some(spec.which()), what });
    }
    Ok(resolved?)
}
