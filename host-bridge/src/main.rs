//! The program `host-bridge`: the verbs of `cli`, over the parts that serve.

use std::future::Future;
use std::process::ExitCode;

use access::audit::Audit;
use anyhow::Result;
use cli::{Served, Servers};
use daemon::{Embedded, ServeError, ServeOptions, serve};
use host::paths::Paths;
use sandbox::{EventSink, Preset};
use settings::Settings;

fn main() -> ExitCode {
    cli::main::<Parts>()
}

struct Parts;

impl Servers for Parts {
    async fn serve(paths: Paths, settings: Settings, events: EventSink) -> Result<Served> {
        match serve(ServeOptions { paths, settings, events }).await {
            Ok(()) => Ok(Served::Ended),
            Err(ServeError::Hurried) => Ok(Served::Hurried),
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
