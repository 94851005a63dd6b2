//! The secrets that a sandbox asks for, between its specification and its machine.

use super::{Event, EventSink, SandboxError, Spec};
use egress::{Host, InjectedSecret, Injections, Rules, TLS_PORT};
use egress::{fits_a_field, placeholder};
use host::secret::{Resolved, Secret, SecretError, Secrets, Variable};

/// How a sandbox gets its secrets.
#[derive(Debug, Default)]
pub(super) struct ResolvedSecrets {
    /// Variables of its environment: values, and placeholders of those that stay on this side.
    pub variables: Vec<Variable>,
    pub injections: Injections,
}

/// The variables for its secrets, if it may use all of them. Reads nothing.
pub(super) fn variables(
    secrets: &Secrets,
    spec: &Spec,
    rules: &Rules,
) -> Result<Vec<String>, SandboxError> {
    let namespace = spec.namespace.as_str();
    let variables = secrets.variables(namespace, &spec.secrets)?;
    // Whichever of the two came first would be taken for the other.
    let both = variables.iter().find(|variable| spec.env.iter().any(|(name, _)| name == *variable));
    if let Some(variable) = both {
        return Err(SecretError::AlsoPlain { variable: variable.clone() }.into());
    }
    for name in &spec.secrets {
        for host in secrets.hosts(namespace, name)? {
            let is_reached =
                host.parse::<Host>().is_ok_and(|host| rules.allowing(&host, TLS_PORT).is_some());
            if !is_reached {
                let (name, host) = (name.clone(), host.clone());
                return Err(SecretError::OutOfReach { name, host }.into());
            }
        }
    }
    Ok(variables)
}

/// Reads the values. A provider's error is for the operator; the caller only learns which secret failed.
pub(super) async fn resolve(
    secrets: &Secrets,
    spec: &Spec,
    events: &EventSink,
) -> Result<ResolvedSecrets, SandboxError> {
    let resolved = secrets.resolve(spec.namespace.as_str(), &spec.secrets).await;
    if let Err(SecretError::Provider { name, source, .. }) = &resolved {
        let what = format!("the secret {name:?} could not be read: {source}");
        events(&Event::Trouble { which: Some(spec.which()), what });
    }
    let (mut variables, mut injected) = (Vec::new(), Vec::new());
    for one in resolved? {
        let Resolved { name, variable, value, hosts, fields } = one;
        if hosts.is_empty() {
            variables.push((variable, value));
            continue;
        }
        if !fits_a_field(value.expose()) {
            return Err(SecretError::NoField { name }.into());
        }
        variables.push((variable, plain(placeholder(&name))));
        injected.push(InjectedSecret { name, hosts: parsed(&hosts), fields, value: Some(value) });
    }
    Ok(ResolvedSecrets { variables, injections: Injections::new(injected) })
}

/// The injections of a sandbox that an earlier bridge had. A secret that cannot be read any more closes its
/// hosts, which is reported to `trouble`.
pub(super) async fn again(
    secrets: &Secrets,
    namespace: &str,
    names: &[String],
    trouble: impl Fn(String),
) -> Injections {
    let mut injected = Vec::new();
    for name in names {
        let (hosts, fields) = match secrets.hosts(namespace, name) {
            Ok(hosts) => (hosts, secrets.fields(namespace, name).unwrap_or_default()),
            Err(error) => {
                trouble(format!("secrets are no longer added to its requests: {error}"));
                continue;
            }
        };
        if hosts.is_empty() {
            continue;
        }
        let value = match secrets.resolve(namespace, std::slice::from_ref(name)).await {
            Ok(mut resolved) => resolved.pop().map(|one| one.value),
            Err(SecretError::Provider { source, .. }) => {
                trouble(format!("the secret {name:?} could not be read: {source}"));
                None
            }
            Err(error) => {
                trouble(error.to_string());
                None
            }
        };
        let fitting = value.filter(|value| {
            let fits = fits_a_field(value.expose());
            if !fits {
                trouble(SecretError::NoField { name: name.clone() }.to_string());
            }
            fits
        });
        let (hosts, fields) = (parsed(hosts), fields.to_vec());
        injected.push(InjectedSecret { name: name.clone(), hosts, fields, value: fitting });
    }
    Injections::new(injected)
}

/// The configuration has read them before.
fn parsed(hosts: &[String]) -> Vec<Host> {
    hosts.iter().filter_map(|host| host.parse().ok()).collect()
}

/// A text that is no secret, on the way that secrets go.
pub(super) fn plain(text: String) -> Secret {
    Secret::of(text.into_bytes()).expect("neither empty nor endless")
}
