//! `port-forward`: forward TCP ports of the host into a sandbox.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{self, printable};
use super::values::Forwarding;
use crate::terminal::{Notice, Notices};
use agent_client::guest::{Guest, Output, Piece, Writer};
use sandbox::SandboxRef;

/// Connections at once; more wait in the kernel's backlog. An agent allows a client 2048 streams,
/// and a connection is two of them.
const CONNECTIONS_MAX: usize = 512;
/// The size of one read from a connection: one chunk of the wire.
const READ_BYTES: usize = protocol::limits::CHUNK_BYTES_MAX;

/// Forward TCP ports into a sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge port-forward work 8080:80              127.0.0.1:8080 to port 80 of the sandbox
  host-bridge port-forward work 8080:80 5432         also 5432 to port 5432
  host-bridge port-forward work 0:80                 from a free port, which is printed
  host-bridge port-forward work 0.0.0.0:8080:80      accept other hosts, too

Runs until ctrl-c. Each forwarding is printed when it is ready.")]
pub struct PortForward {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// The host's address and port, and the sandbox's port
    #[arg(required = true, value_name = "[BIND:]HOST:SANDBOX")]
    forwardings: Vec<Forwarding>,
}

impl PortForward {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut notices = Notices::watch()?;
        let guest = context.guest(&self.which, "port-forward").await?;
        let _at_work = context.at_work(&self.which).await?;
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        for forwarding in &self.forwardings {
            let wanted = (forwarding.bind.as_str(), forwarding.host_port);
            let address = format!("{}:{}", forwarding.bind, forwarding.host_port);
            let listener = TcpListener::bind(wanted)
                .await
                .map_err(|source| CliError::Listen { address, source })?;
            let bound = listener.local_addr()?;
            output::print_line(&format!("{bound} -> {}:{}", self.which, forwarding.sandbox_port))?;
            tokio::spawn(accept(
                listener,
                guest.clone(),
                forwarding.sandbox_port,
                Arc::clone(&slots),
            ));
        }
        let lost = guest.lost();
        tokio::pin!(lost);
        loop {
            tokio::select! {
                error = &mut lost => return Err(error.into()),
                notice = notices.next() => match notice {
                    Notice::End(nix::libc::SIGINT) => break,
                    Notice::End(signal) => return Ok(Exit::signalled(signal)),
                    Notice::Resized | Notice::Continued => {}
                },
            }
        }
        guest.close().await;
        Ok(Exit::SUCCESS)
    }
}

async fn accept(listener: TcpListener, guest: Guest, port: u16, slots: Arc<Semaphore>) {
    // The semaphore is never closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                output::note(&format!("cannot accept a connection: {error}"));
                // Out of descriptors, most likely: until some are closed, all would fail.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let guest = guest.clone();
        tokio::spawn(async move {
            if let Err(error) = carry(&guest, stream, port).await {
                output::note(&format!("port {port}: {}", printable(&format!("{error:#}"))));
            }
            drop(slot);
        });
    }
}

/// Carries one connection, each direction to its own end, so that half-closed ones work.
async fn carry(guest: &Guest, stream: TcpStream, port: u16) -> Result<()> {
    stream.set_nodelay(true)?;
    let (writer, output) = guest.forward(None, port).await?;
    let (reader, sink) = stream.into_split();
    tokio::try_join!(upwards(reader, writer), downwards(output, sink))?;
    Ok(())
}

async fn upwards(mut reader: OwnedReadHalf, mut writer: Writer) -> Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match reader.read(&mut buffer).await? {
            0 => break,
            count => writer.write(&buffer[..count]).await?,
        }
    }
    writer.finish().await?;
    Ok(())
}

async fn downwards(mut output: Output, mut sink: OwnedWriteHalf) -> Result<()> {
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => sink.write_all(&bytes).await?,
            Piece::Gap { from, to } => return Err(CliError::OutputMissing(to - from).into()),
            Piece::End => break,
            Piece::Failed(error) => return Err(error.into()),
        }
    }
    Ok(sink.shutdown().await?)
}
