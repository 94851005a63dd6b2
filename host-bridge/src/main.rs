//! The program `host-bridge`: the verbs of `cli`, over the parts that serve.

mod memory;

use std::future::Future;
use std::process::ExitCode;

use access::audit::Audit;
use anyhow::Result;
use cli::{Served, Servers};
use daemon::{Embedded, ServeError, ServeOptions, serve};
use host::paths::Paths;
use otel::Otel;
use sandbox::{EventSink, Preset};
use settings::Settings;

/// The agent, where it was built before this program.
#[cfg(carries_agent)]
const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest-agent"));

fn main() -> ExitCode {
    memory::keep_little();
    #[cfg(carries_agent)]
    host::agent::carry(AGENT);
    cli::main::<Parts>()
}

struct Parts;

impl Servers for Parts {
    async fn serve(
        paths: Paths,
        settings: Settings,
        events: EventSink,
        otel: Otel,
        is_unattended: bool,
    ) -> Result<Served> {
        let served = tokio::select! {
            served = serve(ServeOptions { paths, settings, events, otel, is_unattended }) => served,
            never = memory::give_back_when_grown() => match never {},
        };
        match served {
            Ok(()) => Ok(Served::Ended),
            Err(ServeError::Hurried) => Ok(Served::Hurried),
            // Its own message is enough, and `cli` has it.
            Err(ServeError::Lock(error)) => Err(error.into()),
            Err(error) => Err(error.into()),
        }
    }

    async fn serve_tools<T>(
        paths: &Paths,
        audit: Audit,
        preset: Preset,
        interrupted: impl Future<Output = T>,
    ) -> Result<Option<T>> {
        let embedded = Embedded::open(paths, audit).await?;
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        let outcome = tokio::select! {
            () = api::mcp::serve(embedded.api(), preset, input, output) => None,
            interrupted = interrupted => Some(interrupted),
        };
        embedded.close().await;
        Ok(outcome)
    }
}
