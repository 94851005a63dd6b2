//! The JSON forms of what operations take and return, for every door that shows them.
//!
//! They are below the doors: a form converts from and to the types of the parts that do the work, and
//! knows no call and no answer. The native API, MCP and a2a use them; a form that only one of them has
//! stays there. `tidy` holds that MCP and a2a take nothing from `v1`.

pub mod apps;
pub mod artifacts;
pub mod contexts;
pub mod events;
pub mod exit;
pub mod files;
pub mod history;
pub mod machine;
pub mod metrics;
pub mod notebooks;
pub mod ports;
pub mod problem;
pub mod ranges;
pub mod sandboxes;
