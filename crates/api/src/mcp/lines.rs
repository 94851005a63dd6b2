//! MCP as lines of JSON, over any two ends of a stream: the control socket, or this process's own
//! input and output.

use std::pin::pin;
use std::sync::Arc;

use rmcp::serve_server;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::Handler;
use super::limits::{LAST_WORDS_MAX, LINE_BYTES_MAX};
use super::server::Server;
use sandbox::Preset;

use super::session::Session;
use crate::Api;

/// Serves one client until its end. Its own sandbox is gone then; dropping the future removes it too.
pub async fn serve<R, W>(api: &Api, preset: Preset, reader: R, writer: W)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let session = Arc::new(Session::new(api.registry().clone(), preset));
    let transport = AsyncRwTransport::new(reader, writer).with_max_line_length(LINE_BYTES_MAX);
    let server = Handler::from(Server::new(api, Arc::clone(&session)));
    match serve_server(server, transport).await {
        Ok(running) => {
            let mut ended = pin!(running.waiting());
            // Its end concerns the client alone.
            let _ = ended.as_mut().await;
        }
        Err(error) => tracing::debug!(%error, "the handshake with an MCP client failed"),
    }
    // Calls under way end with their sandbox; those that linger are not waited for.
    let _ = timeout(LAST_WORDS_MAX, session.end()).await;
}
