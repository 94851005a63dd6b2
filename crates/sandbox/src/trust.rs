//! Decides whether programs of a sandbox get the certificate authorities of this host and of its operator, and
//! gives the variables that name their file. Owners, the registry and one-shots call this; `egress` writes the
//! file. Starts nothing.

use std::path::Path;

use super::Spec;
use super::host_files::is_host_root;
use super::secrets::{ResolvedSecrets, plain};
use egress::{BUNDLE, BUNDLE_VARIABLES, Settings};
use host::secret::Variable;
use machine::MachineKind;

/// Whether a sandbox with egress needs the file: its root is not the host's, or the operator trusts more
/// authorities than the host does.
pub(super) fn is_shared(machine: MachineKind, image: Option<&str>, settings: &Settings) -> bool {
    let is_hosts_own =
        machine.sees_host() && image.is_some_and(|image| is_host_root(Path::new(image)));
    !is_hosts_own || !settings.ca.is_empty()
}

/// The variables that name the file, for the host's authorities and for that of injected secrets. Variables
/// that the caller has set are left out.
pub(super) fn variables(
    spec: &Spec,
    resolved: &ResolvedSecrets,
    settings: &Settings,
) -> Vec<Variable> {
    let reaches_any = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
    let is_there = reaches_any && is_shared(spec.machine(), spec.image.as_deref(), settings);
    if !is_there && resolved.injections.is_empty() {
        return Vec::new();
    }
    let is_set = |name: &str| spec.env.iter().any(|(set, _)| set == name);
    let unset = BUNDLE_VARIABLES.iter().filter(|name| !is_set(name));
    unset.map(|name| ((*name).to_owned(), plain(BUNDLE.to_owned()))).collect()
}
