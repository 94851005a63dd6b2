//! Secrets by name: a sandbox can use one without knowing where it is kept.
//!
//! ```text
//!  configuration ──▶ Secrets ──resolve(namespace, names)──▶ [(variable, Secret)] ──▶ the boot frame
//!   (name, source,      │                                        wiped when dropped
//!    who may use it)    └─▶ environment, file, credential, command: read at each creation
//! ```
//!
//! A value exists from the moment in which its provider returns it to the moment in which the machine has it.
//! `sandbox` requests it, `machine` passes it on; it is in no record, no answer, no log, no argument and no
//! event, and errors here never contain what was read.

mod error;
pub mod limits;
mod provider;
mod value;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use error::{ProviderError, SecretError};
pub use provider::credentials_directory;
pub use value::{Secret, Wiped, wipe, wipe_text};

use limits::{NAME_CHARS_MAX, SECRETS_PER_SANDBOX_MAX};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A variable of the bridge's own environment.
    Environment(String),
    File(PathBuf),
    /// A credential that systemd has given to this service.
    Credential(String),
    /// The output of a host program; never through a shell.
    Command(Vec<String>),
}

impl Source {
    /// The kind of source, for messages that must not say more.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Environment(_) => "environment",
            Self::File(_) => "file",
            Self::Credential(_) => "credential",
            Self::Command(_) => "command",
        }
    }
}

/// Which namespaces may use a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    All,
    These(Vec<String>),
}

impl Reach {
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|name| name == namespace),
        }
    }
}

/// A secret as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub source: Source,
    /// The environment variable that holds it in the sandbox.
    pub variable: String,
    pub reach: Reach,
    /// Hosts into whose requests it is inserted, instead of giving it to the sandbox.
    pub hosts: Vec<String>,
    /// The header fields that it is inserted into, in lower case.
    pub fields: Vec<String>,
}

/// The fields that a secret with hosts is put into where it says nothing else: those by which clients
/// say who they are, and which servers do not give back.
pub const FIELDS_USUAL: [&str; 8] = [
    "authorization",
    "api-key",
    "private-token",
    "x-access-token",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
    "x-vault-token",
];

/// A secret with its value.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub name: String,
    pub variable: String,
    pub value: Secret,
    pub hosts: Vec<String>,
    pub fields: Vec<String>,
}

/// All secrets of one bridge. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Arc<BTreeMap<String, Entry>>);

/// An environment variable for a sandbox, with its value.
pub type Variable = (String, Secret);

impl Secrets {
    pub fn new(entries: BTreeMap<String, Entry>) -> Self {
        Self(Arc::new(entries))
    }

    /// The variables for these secrets in a sandbox of this namespace, or the first forbidden one.
    /// Reads nothing.
    pub fn variables(&self, namespace: &str, names: &[String]) -> Result<Vec<String>, SecretError> {
        if names.len() > SECRETS_PER_SANDBOX_MAX {
            return Err(SecretError::TooMany { count: names.len() });
        }
        let mut variables: Vec<String> = Vec::new();
        for name in names {
            let variable = self.entry(namespace, name)?.variable.clone();
            if variables.contains(&variable) {
                return Err(SecretError::Twice { variable });
            }
            variables.push(variable);
        }
        Ok(variables)
    }

    /// The values, in the order of their names, or the error of the first that failed.
    pub async fn resolve(
        &self,
        namespace: &str,
        names: &[String],
    ) -> Result<Vec<Resolved>, SecretError> {
        let mut values = Vec::with_capacity(names.len());
        for name in names {
            let entry = self.entry(namespace, name)?;
            let value = provider::read(&entry.source, &self.hidden()).await;
            let failed = |source| {
                let kind = entry.source.kind();
                SecretError::Provider { name: name.clone(), kind, source }
            };
            values.push(Resolved {
                name: name.clone(),
                variable: entry.variable.clone(),
                value: value.map_err(failed)?,
                hosts: entry.hosts.clone(),
                fields: entry.fields.clone(),
            });
        }
        Ok(values)
    }

    /// A value that the bridge itself needs, whichever sandboxes may use it.
    pub async fn own(&self, name: &str) -> Result<Secret, SecretError> {
        let unknown = || SecretError::Unset { name: name.chars().take(NAME_CHARS_MAX).collect() };
        let entry = self.0.get(name).ok_or_else(unknown)?;
        let value = provider::read(&entry.source, &self.hidden()).await;
        value.map_err(|source| {
            let kind = entry.source.kind();
            SecretError::Provider { name: name.to_owned(), kind, source }
        })
    }

    /// The hosts of a secret that the bridge inserts; empty if the sandbox gets the value.
    pub fn hosts(&self, namespace: &str, name: &str) -> Result<&[String], SecretError> {
        Ok(&self.entry(namespace, name)?.hosts)
    }

    /// The header fields that it is inserted into.
    pub fn fields(&self, namespace: &str, name: &str) -> Result<&[String], SecretError> {
        Ok(&self.entry(namespace, name)?.fields)
    }

    /// Another namespace's secret is as unknown as a missing one: the caller learns nothing about
    /// others' secrets.
    fn entry(&self, namespace: &str, name: &str) -> Result<&Entry, SecretError> {
        let entry = self.0.get(name).filter(|entry| entry.reach.covers(namespace));
        entry.ok_or_else(|| SecretError::Unknown {
            name: name.chars().take(NAME_CHARS_MAX).collect(),
            namespace: namespace.to_owned(),
        })
    }

    /// Environment variables that are secrets, which provider programs must not inherit.
    fn hidden(&self) -> Vec<String> {
        let sources = self.0.values().map(|entry| &entry.source);
        let hidden = sources.filter_map(|source| match source {
            Source::Environment(variable) => Some(variable.clone()),
            _ => None,
        });
        hidden.collect()
    }
}

/// Keeps this process out of core dumps and from other programs of its user, as far as the kernel
/// lets it: a dump of a process that hands out secrets has them in it. Best effort, because a host
/// that refuses is no reason not to serve.
pub fn guard_process() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // The hard limit stays: programs in sandboxes may want dumps of their own.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, hard);
    }
    // A host that pipes dumps to a program does not heed the limit, but heeds this.
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// Whether a text is a secret's name: a letter, then letters, digits, `_`, `-` and `.`.
pub fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(good)
}

/// Whether a text is the name of an environment variable.
pub fn is_variable(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(good)
}

/// The default variable of a secret: its name in capitals.
pub fn usual_variable(name: &str) -> String {
    name.to_ascii_uppercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests;
