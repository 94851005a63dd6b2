//! The control socket: how a person's commands reach the bridge that serves.
//!
//! One JSON object per line, on a Unix socket that only its owner can open; each request is
//! answered by one line, in order. Messages are about sandboxes as a whole. Their processes,
//! files and ports belong to the agents: `dial` returns where one is reached, and the caller
//! speaks to it directly, so that no byte of output goes through the bridge. `daemon` serves the socket and `cli` calls
//! it; what both need to set up is here too.
//!
//! ```text
//! {"start":{"name":"web"}}
//! {"ok":{"sandbox":{"id":"4f…","name":"web","state":"running",…}}}
//! {"stop":{"sandbox":"web","grace_ms":1000}}
//! {"mcp":{}}                 (after its answer, the connection carries lines of MCP)
//! {"error":{"code":"not_found","message":"there is no sandbox web","hint":"`host-bridge ps` …"}}
//! ```

#![forbid(unsafe_code)]

pub mod apps;
pub mod audit;
mod check;
mod client;
mod egress_recorder;
mod images;
pub mod limits;
pub mod line;
pub mod message;
mod open_audit;
mod pool;
mod refusal;
mod setup;
mod state;
mod telemetry;

pub use apps::{AppOrder, AppProgram, AppRow, StartApp};
pub use check::{CheckedSettings, InvalidSettings, check_settings};
pub use client::{AllNodes, Client, ClientError, NodeAnswer};
pub use egress::{EgressSink, RefusedHosts};
pub use egress_recorder::egress_recorder;
pub use images::{AliasError, aliases, missing};
pub use message::{
    CapUsage, CapUsageRow, Dialled, ErrorCode, ErrorReply, InputRecord, List, NamespaceCost,
    PreviewLink, Purpose, Request, Version,
};
pub use message::{EventBatch, EventsQuery, UnansweredNode};
pub use node::{NodeRow, Readiness};
pub use open_audit::{OpenAuditError, entry, open_audit};
pub use pool::{PoolError, pool_options, templates};
pub use setup::{
    client_defaults, egress_defaults, egress_settings, operator_defaults, own_files,
    own_host_files, own_settings, served_files,
};
pub use state::{StateProblem, state_problems};
pub use telemetry::telemetry;
