//! Derives from the settings what every process that starts sandboxes needs: the daemon, and verbs
//! that work without it.

use std::path::PathBuf;

use host::helper::{Helper, find_helper};
use host::paths::find_agent;
use machine::vmm::Kit;
use settings::Settings;

/// Files that control the bridge or its sandboxes, besides its directories. No sandbox may mount them.
pub fn own_files(settings: &Settings) -> Vec<PathBuf> {
    let helper = match find_helper() {
        Ok(Helper::At(path)) => Some(path),
        Ok(Helper::ThisProgram) | Err(_) => None,
    };
    let programs = [std::env::current_exe().ok(), find_agent().ok(), helper];
    let kit = Kit::find().ok().map(|kit| kit.directory().to_owned());
    programs.into_iter().chain([kit]).flatten().chain(settings.own_files()).collect()
}

/// Converts the egress settings.
pub fn egress_settings(set: &settings::Egress) -> egress::Settings {
    let limit = |bytes: u64| (bytes > 0).then_some(bytes);
    egress::Settings {
        dns: set.dns,
        // They were looked at when they were set.
        allow_private: set.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
        authorities: set.authorities.clone(),
        connections_max: set.connections_max,
        connections_per_second: set.connections_per_second,
        bytes_per_second: limit(set.bytes_per_second),
        bytes_max: limit(set.bytes_max),
        idle: set.idle,
    }
}
