//! The table of all options. Documentation, names and formatting of values are derived from it.

mod audit;
mod defaults;
mod egress;
mod events;
mod fleet;
mod forwards;
mod image_policy;
mod images;
mod log;
mod metrics;
mod pool;
mod previews;
mod process;
mod server;
mod snapshots;
mod ssh;
mod telemetry;

use std::time::Duration;

use super::Settings;
use super::registries::REGISTRIES;
use super::value::{InvalidValue, RawValue};

/// A group of options.
pub struct Section {
    pub name: &'static str,
    pub about: &'static str,
    pub options: &'static [ConfigOption],
}

/// One option.
pub struct ConfigOption {
    pub key: &'static str,
    /// The allowed values, for people.
    pub values: &'static str,
    pub about: &'static str,
    pub set: fn(&mut Settings, &RawValue) -> Result<(), InvalidValue>,
    /// The value as TOML.
    pub show: fn(&Settings) -> String,
}

/// The section with names chosen by the user besides its option.
pub const IMAGES: &str = "images";
pub const IMAGES_ABOUT: &str = "Names that clients give for an image, and what each means: the \
    directory that is the root of the sandbox, as in `\"python:3.12\" = \"/srv/images/python312\"`, or a \
    stored image by its name or digest, as in `\"microsandbox/python\" = \"python:3.12-slim\"`. \
    The names that published clients send stand for `root` of `[process]` where that is set, and `\"off\"` \
    removes one. On a virtual machine they are images of the kit. Any other name that is not here, and not in \
    the store, is refused. `/`, the host's own root, is given only where `root` is `/` too.";

/// The section of secrets, each with a table of its own.
pub const SECRETS: &str = "secrets";
pub const SECRETS_ABOUT: &str = "Values that sandboxes may ask for by name. Only the file can set them: one table \
    `[secrets.NAME]` each, with `namespaces` (a list of those that may use it, or `\"*\"`); one of \
    `env = \"VARIABLE\"`, `file = \"/path\"`, `credential = \"name\"` (of systemd) and \
    `command = [\"/program\", \"argument\"]`; and `as = \"VARIABLE\"`, the environment variable that \
    holds the value in the sandbox (default: the name in capitals). Values are read for each sandbox \
    and never stored. With `hosts = [\"api.example.org\"]` no sandbox gets the value: the bridge inserts \
    it into requests to these hosts at port 443, in the header `fields` (default: `authorization`, \
    `x-api-key` and similar ones).";

/// The section of caps, whose tables are of namespaces and keys.
pub const CAPS: &str = "caps";
pub const CAPS_ABOUT: &str = "Limits for all sandboxes of one namespace or of one key together. \
    Only the file can set them: tables `[caps.per_namespace]` and `[caps.per_key]`, and \
    `[caps.namespace.NAME]` and `[caps.key.ID]` for exceptions, with any of `sandboxes`, \
    `memory_mib`, `cpus`, `disk` (writable layers, logs, snapshots, volumes and sleeping memory), `ttl` (of each \
    sandbox), `run_time_per_day` and `output_per_day`. Requests that exceed a cap are refused with 429.";

/// The section of workspaces, likewise.
pub const WORKSPACES: &str = "workspaces";
pub const WORKSPACES_ABOUT: &str = "Directories of the host that sandboxes may work on. Only the file \
    can set them: one table `[workspaces.NAME]` each, with `path = \"/srv/project\"` and `namespaces` (a \
    list of those that may use it, or `\"*\"`). Optional keys: `read_only = true`, \
    `write = [\"outputs/\"]` for the paths whose changes are copied back (default: all), \
    `file_bytes_max` (`\"256MiB\"`), `total_bytes_max` (`\"1GiB\"`) and `entries_max` (`50000`). With \
    `mount = true` the directory is mounted instead of copied, on process and qemu machines. \
    For an S3 bucket, set `bucket = \"name\"` instead of `path`, with `endpoint` \
    (`\"http://127.0.0.1:9000\"`; default: AWS in the region), `region`, `prefix`, `path_style`, `ca`, \
    and `access_key`, `secret_key` and `session_token`, each the name of a secret.";

/// The section of webhooks, likewise.
pub const WEBHOOKS: &str = "webhooks";
pub const WEBHOOKS_ABOUT: &str = "Programs elsewhere that events of sandboxes are sent to. Only the file can \
    set them: one table `[webhooks.NAME]` each, with `url = \"https://example.org/events\"`, `secret`, the name \
    of a secret that each request is signed with, and `namespaces`, a list of those whose events are sent, or \
    `\"*\"`. Optional keys: `kinds = [\"exited\", \"out_of_memory\"]` (default: all), `attempts` at one event \
    before it becomes a dead letter (1 to 100, default 10), `allow_private = true` for a host with an address \
    of a private network or of this host, and `ca`, a file of certificates (PEM) to trust besides those of \
    the host.";

/// The section of namespaces, likewise.
pub const NAMESPACES: &str = "namespaces";
pub const NAMESPACES_ABOUT: &str = "Settings for the sandboxes of one namespace. Only the file can set \
    them: one table `[namespaces.NAME]` each. `egress = [\"@pypi\"]` replaces the list of `[defaults]` \
    for sandboxes that are created without one; `[]` allows nothing.";

/// The section of templates, likewise.
pub const TEMPLATES: &str = "templates";
pub const TEMPLATES_ABOUT: &str = "What sandboxes are made of under one name, with commands that make them ready. \
    Only the file can set them: one table `[templates.NAME]` each. Optional keys: `namespaces`, a list of those \
    that have it (default: `[\"default\"]`); `start`, a script for `/bin/sh` that runs as a session; `ready`, one \
    that is run until it exits with 0, within `ready_timeout` (default `\"1m\"`, at most `\"10m\"`); `warm`, how \
    many sandboxes are kept ready (0 to 32, default 0); and options of sandboxes: `image`, `machine`, \
    `memory_mib`, `cpus`, `scratch`, `env` (a table), `workdir`, `user`, `egress`, `labels` (a table), `ttl`, \
    `idle_ttl`, `on_idle` and `keep_stopped`.";

/// The sections with names chosen by the user instead of options.
pub const NAMED: [&str; 7] =
    [SECRETS, WORKSPACES, WEBHOOKS, NAMESPACES, TEMPLATES, CAPS, REGISTRIES];

const DURATION: &str = "a duration";
const DURATION_OR_OFF: &str = "a duration, or `\"off\"`";
pub(super) const SECOND: Duration = Duration::from_secs(1);

pub const SECTIONS: &[Section] = &[
    server::SECTION,
    log::SECTION,
    audit::SECTION,
    events::SECTION,
    metrics::SECTION,
    telemetry::SECTION,
    defaults::SECTION,
    egress::SECTION,
    forwards::SECTION,
    fleet::SECTION,
    previews::SECTION,
    ssh::SECTION,
    process::SECTION,
    pool::SECTION,
    snapshots::SECTION,
    image_policy::SECTION,
    // The last, because the names follow.
    images::SECTION,
];

fn put<T>(place: &mut T, value: Result<T, InvalidValue>) -> Result<(), InvalidValue> {
    *place = value?;
    Ok(())
}

fn put_usize(place: &mut usize, value: Result<u64, InvalidValue>) -> Result<(), InvalidValue> {
    put(place, value.map(|value| value as usize))
}

fn put_u32(place: &mut u32, value: Result<u64, InvalidValue>) -> Result<(), InvalidValue> {
    put(place, value.map(|value| value as u32))
}

fn checked(
    given: &RawValue,
    is_good: fn(&str) -> bool,
    wrong: fn(String) -> InvalidValue,
) -> Result<Vec<String>, InvalidValue> {
    let check = |text: &str| {
        if is_good(text) { Ok(text.to_ascii_lowercase()) } else { Err(wrong(text.to_owned())) }
    };
    given.texts()?.into_iter().map(check).collect()
}

/// A name or an address, without a port.
fn is_host(text: &str) -> bool {
    let is_address = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    is_address || (!text.is_empty() && text.bytes().all(letter))
}

fn is_range(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, "0"));
    let bits_max =
        address.parse::<std::net::IpAddr>().map(|ip| if ip.is_ipv4() { 32 } else { 128 });
    bits_max.is_ok_and(|max| bits.parse::<u8>().is_ok_and(|bits| bits <= max))
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(letter)
    })
}
