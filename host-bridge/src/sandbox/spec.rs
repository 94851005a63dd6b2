//! What a sandbox shall be, as it is asked for, and the machine that follows from it.

use std::path::{Path, PathBuf};

use protocol::ids::is_name;
use serde::{Deserialize, Serialize};

use super::{Name, SandboxError, SandboxRef};
use crate::config::Paths;
use crate::limits::SCRATCH_BYTES_DEFAULT;
use crate::link::Address;
use crate::machine::process::hide;
use crate::machine::{BoxId, Directories, MachineKind, MachineSpec};

/// The root of a sandbox that names no image.
const HOST_ROOT: &str = "/";

/// A sandbox to start. Fields that a request leaves out have the defaults of [`Spec::new`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    #[serde(default = "Name::default_namespace")]
    pub namespace: Name,
    pub name: Name,
    #[serde(default)]
    pub machine: MachineKind,
    /// The directory that is the root file system; the host's own root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where the agent of an external machine listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The environment of every program. Values may be secrets: they go to the machine and are
    /// kept nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// The name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// [`SCRATCH_BYTES_DEFAULT`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_bytes: Option<u64>,
    /// Paths that programs must not see. When absent, the credentials of
    /// [`hide::HIDDEN_OF_SYSTEM`] and [`hide::HIDDEN_IN_HOME`] over the host's root, and nothing
    /// over any other. The bridge's own directories are always hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hide: Option<Vec<String>>,
}

impl Spec {
    pub fn new(which: SandboxRef) -> Self {
        Self {
            namespace: which.namespace,
            name: which.name,
            machine: MachineKind::default(),
            image: None,
            address: None,
            env: Vec::new(),
            hostname: None,
            scratch_bytes: None,
            hide: None,
        }
    }

    pub fn which(&self) -> SandboxRef {
        SandboxRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    pub fn hostname(&self) -> &str {
        self.hostname.as_deref().unwrap_or(self.name.as_str())
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes.unwrap_or(SCRATCH_BYTES_DEFAULT)
    }

    /// Refuses what no machine could do.
    pub fn check(&self) -> Result<(), SandboxError> {
        if !is_name(self.hostname(), b"_-") {
            return Err(SandboxError::Hostname { hostname: self.hostname().to_owned() });
        }
        let broken = self.env.iter().find(|(name, value)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        });
        match broken {
            Some((name, _)) => Err(SandboxError::Environment { name: name.clone() }),
            None => Ok(()),
        }
    }

    /// The machine for this sandbox. Looks at the host's files, but changes none.
    pub(super) fn machine_spec(
        &self,
        id: BoxId,
        paths: &Paths,
        directories: Option<Directories>,
    ) -> MachineSpec {
        let named = PathBuf::from(self.image.as_deref().unwrap_or(HOST_ROOT));
        // The machine says what is wrong with a root that is not there.
        let root = named.canonicalize().unwrap_or(named);
        MachineSpec {
            id,
            hostname: self.hostname().to_owned(),
            hide: self.hidden(&root, paths),
            root,
            scratch_bytes: self.scratch_bytes(),
            env: self.env.clone(),
            directories,
            address: self.address.clone(),
        }
    }

    fn hidden(&self, root: &Path, paths: &Paths) -> Vec<String> {
        let mut hidden = match &self.hide {
            Some(asked_for) => asked_for.clone(),
            None if root == Path::new(HOST_ROOT) => hide::hidden_on_host(),
            None => Vec::new(),
        };
        // Whoever reads these commands the other sandboxes.
        for own in [&paths.runtime, &paths.state] {
            let real = own.canonicalize().unwrap_or_else(|_| own.clone());
            hidden.extend(hide::seen_through(root, &real));
        }
        hidden.sort();
        hidden.dedup();
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() }
    }

    fn machine(spec: &Spec) -> MachineSpec {
        spec.machine_spec("0123456789ab".parse().unwrap(), &paths(), None)
    }

    #[test]
    fn defaults_are_the_hosts_root_with_its_credentials_hidden() {
        let spec = Spec::new("web".parse().unwrap());
        let machine = machine(&spec);
        assert_eq!(machine.root, Path::new("/"));
        assert_eq!(machine.hostname, "web");
        assert_eq!(machine.scratch_bytes, SCRATCH_BYTES_DEFAULT);
        assert!(machine.hide.contains(&"/nowhere/state".to_owned()), "{:?}", machine.hide);
        if Path::new("/etc/shadow").exists() {
            assert!(machine.hide.contains(&"/etc/shadow".to_owned()));
        }
    }

    #[test]
    fn the_bridges_own_directories_stay_hidden_whatever_is_asked_for() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.hide = Some(vec!["/opt".to_owned()]);
        assert_eq!(machine(&spec).hide, ["/nowhere/run", "/nowhere/state", "/opt"]);
    }

    #[test]
    fn another_root_hides_nothing_by_itself() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.image = Some("/usr".to_owned());
        assert!(machine(&spec).hide.is_empty());
    }

    #[test]
    fn a_name_alone_is_a_whole_request_and_unknown_fields_are_refused() {
        let spec: Spec = serde_json::from_str(r#"{"name":"web"}"#).unwrap();
        assert_eq!(spec, Spec::new("web".parse().unwrap()));
        assert!(serde_json::from_str::<Spec>(r#"{"name":"web","imgae":"/x"}"#).is_err());
    }

    #[test]
    fn an_environment_name_with_an_equals_sign_is_refused() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.env = vec![("A=B".to_owned(), String::new())];
        assert!(matches!(spec.check(), Err(SandboxError::Environment { .. })));
        spec.env.clear();
        spec.hostname = Some("a.b c".to_owned());
        assert!(matches!(spec.check(), Err(SandboxError::Hostname { .. })));
    }
}
