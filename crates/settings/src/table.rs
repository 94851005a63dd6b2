//! All options: the only list of them. What is documented, what may be set by which name, and how
//! each value is shown, comes from here.

mod audit;
mod defaults;
mod egress;
mod image_policy;
mod log;
mod metrics;
mod pool;
mod server;

use std::time::Duration;

use super::Settings;
use super::registries::REGISTRIES;
use super::value::{Given, Wrong};

/// A group of options.
pub struct Section {
    pub name: &'static str,
    pub about: &'static str,
    pub options: &'static [Choice],
}

/// One option.
pub struct Choice {
    pub key: &'static str,
    /// What it may be, for people.
    pub values: &'static str,
    pub about: &'static str,
    pub set: fn(&mut Settings, &Given) -> Result<(), Wrong>,
    /// The value as TOML.
    pub show: fn(&Settings) -> String,
}

/// The section that has names of the user's choice instead of options.
pub const IMAGES: &str = "images";
pub const IMAGES_ABOUT: &str = "Names that clients give for an image, and the directory that is \
    the root of such a sandbox: `\"python:3.12\" = \"/srv/images/python312\"`; or the image of this \
    host's store that is meant, by its name or digest: `\"microsandbox/python\" = \"python:3.12-slim\"`. \
    What is written here \
    is added to the names that there are; `\"off\"` takes one away. On the process machine `/` is \
    the host's own root, read-only below a layer of the sandbox's own.";

/// The section of secrets, each with a table of its own.
pub const SECRETS: &str = "secrets";
pub const SECRETS_ABOUT: &str = "What sandboxes may ask for by name, in the file alone: a table \
    `[secrets.NAME]` each, with `namespaces` (a list of those that may use it, or `\"*\"`), one of \
    `env = \"VARIABLE\"`, `file = \"/path\"`, `credential = \"name\"` (of systemd) and \
    `command = [\"/program\", \"argument\"]`, and `as = \"VARIABLE\"` for the variable that \
    programs find it in, which is the name in capitals otherwise. Values are read for each sandbox \
    and kept nowhere. With `hosts = [\"api.example.org\"]` no sandbox has the value: it is put into \
    the heads of requests that go to these hosts, at port 443, in the `fields` that say who somebody \
    is: `authorization`, `x-api-key` and the like where none are named.";

/// The section of caps, whose tables are of namespaces and keys.
pub const CAPS: &str = "caps";
pub const CAPS_ABOUT: &str = "How much the living sandboxes of one namespace or of one key may have \
    together, in the file alone: tables `[caps.per_namespace]` and `[caps.per_key]`, and \
    `[caps.namespace.NAME]` and `[caps.key.ID]` where one differs, with any of `sandboxes`, \
    `memory_mib`, `cpus`, `disk` (of their writable layers, logs and snapshots), `ttl` (of each \
    one), `run_time_per_day` and `output_per_day`. What exceeds one is refused with 429.";

/// The section of workspaces, likewise.
pub const WORKSPACES: &str = "workspaces";
pub const WORKSPACES_ABOUT: &str = "Directories of the host that sandboxes may work on, in the file \
    alone: a table `[workspaces.NAME]` each, with `path = \"/srv/project\"` and `namespaces` (a list \
    of those that may use it, or `\"*\"`), and, where wanted, `read_only = true`, \
    `write = [\"outputs/\"]` for the paths whose changes come back (all of them otherwise), \
    `file_bytes_max` (`\"256MiB\"`), `total_bytes_max` (`\"1GiB\"`) and `entries_max` (`50000`). With \
    `mount = true` it is no copy but the directory itself, on process and qemu machines. \
    A bucket of S3's instead of a directory: `bucket = \"name\"` for `path`, with `endpoint` \
    (`\"http://127.0.0.1:9000\"`; AWS's of the region otherwise), `region`, `prefix`, `path_style`, `ca`, \
    and `access_key`, `secret_key` and `session_token`, each the name of one of the secrets.";

/// The section of namespaces, likewise.
pub const NAMESPACES: &str = "namespaces";
pub const NAMESPACES_ABOUT: &str = "What differs for the sandboxes of one namespace, in the file alone: \
    a table `[namespaces.NAME]` each. With `egress = [\"pypi.org\"]` those reach that of which nobody \
    says what they may reach, instead of what `[defaults]` says, and nothing with `[]`.";

/// The sections that have names of the user's choice.
pub const NAMED: [&str; 6] = [IMAGES, SECRETS, WORKSPACES, NAMESPACES, CAPS, REGISTRIES];

const DURATION: &str = "a duration";
const DURATION_OR_OFF: &str = "a duration, or `\"off\"`";
const SECOND: Duration = Duration::from_secs(1);

pub const SECTIONS: &[Section] = &[
    server::SECTION,
    log::SECTION,
    audit::SECTION,
    metrics::SECTION,
    defaults::SECTION,
    egress::SECTION,
    pool::SECTION,
    image_policy::SECTION,
];

fn put<T>(place: &mut T, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *place = value?;
    Ok(())
}

fn put_usize(place: &mut usize, value: Result<u64, Wrong>) -> Result<(), Wrong> {
    put(place, value.map(|value| value as usize))
}

fn put_u32(place: &mut u32, value: Result<u64, Wrong>) -> Result<(), Wrong> {
    put(place, value.map(|value| value as u32))
}

fn checked(
    given: &Given,
    is_good: fn(&str) -> bool,
    wrong: fn(String) -> Wrong,
) -> Result<Vec<String>, Wrong> {
    let check = |text: &str| {
        if is_good(text) { Ok(text.to_ascii_lowercase()) } else { Err(wrong(text.to_owned())) }
    };
    given.texts()?.into_iter().map(check).collect()
}

/// A name or an address; a port would be compared with nothing.
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
