//! Derives from the settings what every process that starts sandboxes needs: the daemon, and verbs
//! that work without it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::agent::find_agent;
use host::helper::{Helper, find_helper};
use machine::vmm::Kit;
use sandbox::HostFiles;
use sandbox::options::Defaults;
use settings::{Origin, Overrides, Settings, SettingsError};

/// Files that control the bridge or its sandboxes, besides its directories. No sandbox may mount them.
pub fn own_files(settings: &Settings) -> Vec<PathBuf> {
    let helper = match find_helper() {
        Ok(Helper::At(path)) => Some(path),
        Ok(Helper::ThisProgram) | Err(_) => None,
    };
    let agent = find_agent().ok().and_then(|agent| agent.path().map(Path::to_owned));
    let programs = [std::env::current_exe().ok(), agent, helper];
    let kit = Kit::find().ok().map(|kit| kit.directory().to_owned());
    programs.into_iter().chain([kit]).flatten().chain(settings.own_files()).collect()
}

/// What a bridge that serves shows of the host's files.
pub fn served_files(settings: &Settings) -> HostFiles {
    HostFiles {
        root: settings.served_root(),
        private: settings.private_files(),
        confinement: settings.process.confinement,
        scratch: settings.process.scratch,
    }
}

/// The settings of a verb without a daemon: the configuration that a daemon of its user would have. One
/// that its user may not read belongs to somebody else, and is ignored.
pub fn own_settings() -> Result<Settings, SettingsError> {
    match Settings::load(None, &Overrides::default()) {
        Err(SettingsError::Unreadable { source, .. })
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            Ok(Settings::default())
        }
        loaded => loaded,
    }
}

/// What a verb without a daemon shows of the host's files: it is on its user's own machine.
pub fn own_host_files(settings: &Settings) -> HostFiles {
    let HostFiles { root, .. } = HostFiles::default();
    HostFiles { root: settings.process.root.clone().or(root), ..served_files(settings) }
}

/// The defaults for sandboxes of a server's clients.
pub fn client_defaults(settings: &Settings) -> Defaults {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let set = &settings.defaults;
    Defaults {
        machine: set.machine.parse().expect("the options name kinds of machine"),
        memory_mib: Some(set.memory_mib),
        cpu_millis: Some(set.cpu_millis),
        ttl_ms: set.ttl.map(millis),
        idle_ttl_ms: set.idle_ttl.map(millis),
        on_idle: Some(set.on_idle.parse().expect("the options name what can happen")),
        keep_stopped_ms: set.keep_stopped.map(millis),
        durability: Some(set.durability.parse().expect("the options name durabilities")),
        record: Some(set.record.parse().expect("the options name what can be recorded")),
    }
}

/// The same for sandboxes of the bridge's own user, who has the limits that the configuration names, and
/// no others.
pub fn operator_defaults(settings: &Settings) -> Defaults {
    let is_set = |key: &str| settings.origin(&format!("defaults.{key}")) != Origin::Default;
    let all = client_defaults(settings);
    Defaults {
        memory_mib: all.memory_mib.filter(|_| is_set("memory_mib")),
        cpu_millis: all.cpu_millis.filter(|_| is_set("cpus")),
        ..all
    }
}

/// The default egress rules of each namespace.
pub fn egress_defaults(settings: &Settings) -> egress::Defaults {
    let own = |(name, namespace): (&String, &settings::Namespace)| {
        namespace.egress.clone().map(|rules| (name.clone(), rules))
    };
    egress::Defaults {
        all: settings.defaults.egress.clone(),
        namespaces: settings.namespaces.iter().filter_map(own).collect(),
    }
}

/// Converts the egress settings.
pub fn egress_settings(set: &settings::Egress) -> egress::Settings {
    let limit = |bytes: u64| (bytes > 0).then_some(bytes);
    egress::Settings {
        dns: set.dns,
        // They were looked at when they were set.
        allow_private: set.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
        ca: set.ca.clone(),
        connections_max: set.connections_max,
        connections_per_second: set.connections_per_second,
        bytes_per_second: limit(set.bytes_per_second),
        bytes_max: limit(set.bytes_max),
        idle: set.idle,
    }
}
