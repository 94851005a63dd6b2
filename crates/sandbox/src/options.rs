//! The options of a sandbox: one table with a row for each, and their defaults.
//!
//! A row has the name of an option at each [`Door`], or why a door does not have it. Each door has a test
//! that compares its options with its column, and docs/reference/options.md is generated from the table, so
//! that no door can lack an option by accident. Pure.

mod defaults;
mod table;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use defaults::Defaults;
use host::units::{human_bytes, human_duration};
pub use table::all;

/// An entrance where sandboxes are specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `host-bridge run`.
    Run,
    /// `host-bridge start`.
    Start,
    /// `host-bridge repl`, for a new sandbox.
    Repl,
    /// `host-bridge mcp`, for the session's own sandbox.
    Mcp,
    /// `POST /v1/sandboxes`.
    Http,
    /// `sandbox.start` of JSON-RPC.
    Rpc,
    /// The tool `sandbox_create` of MCP.
    Tool,
    /// `POST /a2a/v1/sandboxes`.
    A2a,
    /// A notebook's own sandbox.
    Notebook,
    /// `create` of the Python client.
    Python,
    /// `Spec` of the Rust library, and of the control socket.
    Library,
    /// `[defaults]` of the configuration.
    Defaults,
    /// `host-bridge template create`.
    TemplateVerb,
    /// `PUT /v1/templates/{namespace}/{name}`.
    TemplateHttp,
    /// `[templates.NAME]` of the configuration.
    TemplateTable,
    /// `POST /v2/sandboxes` of E2B.
    E2b,
    /// `POST /daytona/sandbox` of Daytona.
    Daytona,
    /// `POST /api/kernels` of Jupyter, for the kernel's own sandbox.
    Jupyter,
    /// `POST …/fork`.
    Fork,
}

impl Door {
    pub const ALL: [Self; 19] = [
        Self::Run,
        Self::Start,
        Self::Repl,
        Self::Mcp,
        Self::Http,
        Self::Rpc,
        Self::Tool,
        Self::A2a,
        Self::Notebook,
        Self::Python,
        Self::Library,
        Self::Defaults,
        Self::TemplateVerb,
        Self::TemplateHttp,
        Self::TemplateTable,
        Self::E2b,
        Self::Daytona,
        Self::Jupyter,
        Self::Fork,
    ];

    /// How many of them make a sandbox of nothing but what is given: the first. The others keep a template,
    /// speak another server's protocol, or copy a sandbox.
    pub const DIRECT: usize = 12;

    /// Its title on the page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Run => "`run`",
            Self::Start => "`start`",
            Self::Repl => "`repl`",
            Self::Mcp => "`mcp`",
            Self::Http => "HTTP",
            Self::Rpc => "JSON-RPC",
            Self::Tool => "MCP tool",
            Self::A2a => "a2a",
            Self::Notebook => "notebook",
            Self::Python => "Python",
            Self::Library => "Rust",
            Self::Defaults => "`[defaults]`",
            Self::TemplateVerb => "`template create`",
            Self::TemplateHttp => "HTTP template",
            Self::TemplateTable => "`[templates.NAME]`",
            Self::E2b => "E2B",
            Self::Daytona => "Daytona",
            Self::Jupyter => "Jupyter",
            Self::Fork => "fork",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct SandboxOption {
    /// The field of `POST /v1/sandboxes`, or of `Spec` where that call has none.
    pub name: &'static str,
    pub about: &'static str,
    /// The doors that have it, and its name there.
    pub has: &'static [(Door, &'static str)],
    /// The doors that do not, and why.
    pub lacks: &'static [(&'static [Door], &'static str)],
}

impl SandboxOption {
    /// Its name at a door that has it. Several flags of a verb are separated by commas.
    pub fn at(&self, door: Door) -> Option<&'static str> {
        self.has.iter().find(|(own, _)| *own == door).map(|(_, called)| *called)
    }

    /// Why a door does not have it.
    pub fn lack(&self, door: Door) -> Option<&'static str> {
        self.lacks.iter().find(|(doors, _)| doors.contains(&door)).map(|(_, why)| *why)
    }
}

/// The names of the options at a door, in the order of the table.
pub fn names_at(door: Door) -> impl Iterator<Item = &'static str> {
    all().filter_map(move |option| option.at(door)).flat_map(|names| names.split(", "))
}

/// The options that a door does not have.
pub fn lacking(door: Door) -> impl Iterator<Item = &'static SandboxOption> {
    all().filter(move |option| option.at(door).is_none())
}

/// How to name an option in a refusal, at any door: its field, and its flag.
pub fn called(name: &str) -> String {
    match flag(name) {
        Some(flag) => format!("{name} ({flag})"),
        None => name.to_owned(),
    }
}

/// The flag of an option, or of what a cap counts, by its field.
pub fn flag(name: &str) -> Option<&'static str> {
    let field = if name == "disk_bytes" { "scratch_bytes" } else { name };
    let is_it =
        |option: &&SandboxOption| option.name == field || option.at(Door::Library) == Some(field);
    all().find(is_it)?.at(Door::Start)?.split(", ").next()
}

/// An amount of an option as people read it; the unit is at the end of the option's name.
pub fn amount(name: &str, value: u64) -> String {
    match name.rsplit('_').next() {
        Some("bytes") => human_bytes(value),
        Some("mib") => human_bytes(value.saturating_mul(1024 * 1024)),
        Some("ms") => human_duration(Duration::from_millis(value)),
        Some("millis") => format!("{} CPUs", value as f64 / 1000.0),
        _ => value.to_string(),
    }
}
