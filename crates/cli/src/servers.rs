//! The interface to the servers that `main` passes to `serve` and `mcp`. The verbs start the
//! servers and know nothing else about them, so `cli` imports neither `api` nor `daemon`.

use std::future::Future;

use access::audit::Audit;
use anyhow::Result;
use host::paths::Paths;
use otel::Otel;
use sandbox::{EventSink, Preset};
use settings::Settings;

/// The servers. `main` implements this with the crates `daemon` and `api`.
pub trait Servers {
    /// Serves until a signal or a client ends it; one that a verb started, also until nothing needs it.
    fn serve(
        paths: Paths,
        settings: Settings,
        events: EventSink,
        otel: Otel,
        is_unattended: bool,
    ) -> impl Future<Output = Result<Served>>;

    /// Serves one session of MCP on stdin and stdout, with a bridge of this process alone, until the
    /// client ends it or `interrupted` is ready.
    fn serve_tools<T>(
        paths: &Paths,
        audit: Audit,
        preset: Preset,
        interrupted: impl Future<Output = T>,
    ) -> impl Future<Output = Result<Option<T>>>;
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// In order.
    Ended,
    /// A second signal came first: sandboxes may still be stopping.
    Hurried,
}
