//! `cp`: files and directories between the host and a sandbox.
//!
//! | what | how it travels |
//! |---|---|
//! | a file | its bytes, written beside and renamed over when it is complete (in the sandbox) |
//! | a directory | a tar archive, packed and unpacked on the way ([`pack`], [`unpack`]) |
//! | `-` | the content of a file as it is; a tar archive for a directory or with `--tar` |

mod download;
mod endpoint;
mod pack;
pub(super) mod progress;
mod unpack;
mod upload;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use endpoint::Endpoint;

/// Copy files between host and sandbox
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that a person writes")]
#[command(after_help = "Examples:
  host-bridge cp data.csv work:/tmp/                 into a directory of the sandbox
  host-bridge cp work:/etc/os-release .              from the sandbox
  host-bridge cp src work:/build                     as /build/src, or as /build if that is new
  host-bridge cp src/. work:/build                   only the contents of a directory
  host-bridge cp work:/var/log/app.log - | less      the contents of a file
  echo hello | host-bridge cp - work:/tmp/greeting
  host-bridge cp work:/etc - | tar t                 a directory is written as a tar archive
  tar c src | host-bridge cp - work:/build/          and read as one
  host-bridge cp --tar a:/data - | host-bridge cp --tar - b:/     between sandboxes

One end is SANDBOX:PATH (relative to the sandbox's root), the other is a path on the host or -. Write
./SANDBOX:PATH for a host path that looks like SANDBOX:PATH. Symbolic links given as arguments are
followed; links inside a directory are copied as links. Files from a sandbox are only ever written below
the destination; set-id bits are dropped and devices are skipped.")]
pub struct Cp {
    /// Keep the owners of files copied into the sandbox
    #[arg(short, long)]
    archive: bool,

    /// Create missing parent directories in the sandbox
    #[arg(short, long)]
    parents: bool,

    /// Treat - as a tar archive always
    #[arg(long)]
    tar: bool,

    /// Hide the progress line
    #[arg(short, long)]
    quiet: bool,

    /// The path to copy from: SANDBOX:PATH, a host path, or -
    #[arg(value_name = "SOURCE")]
    source: Endpoint,

    /// The path to copy to: SANDBOX:PATH, a host path, or -
    #[arg(value_name = "DESTINATION")]
    destination: Endpoint,
}

impl Cp {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let which = match (&self.source, &self.destination) {
            (Endpoint::Guest(_), Endpoint::Guest(_)) => {
                return Err(CliError::TwoSandboxesInCopy.into());
            }
            (Endpoint::Guest(guest), _) | (_, Endpoint::Guest(guest)) => &guest.which,
            _ => return Err(CliError::NoSandboxInCopy.into()),
        };
        let guest = context.guest(which, "cp").await?;
        let _at_work = context.at_work(which).await?;
        let copied = match (&self.source, &self.destination) {
            (Endpoint::Guest(from), Endpoint::Standard) => self.print(&guest, &from.path).await,
            (Endpoint::Guest(from), Endpoint::Host(to)) => {
                self.fetch(&guest, &from.path, to).await.map(|()| Exit::SUCCESS)
            }
            (Endpoint::Standard, Endpoint::Guest(to)) => self.store(&guest, to).await,
            (Endpoint::Host(from), Endpoint::Guest(to)) => self.send(&guest, from, to).await,
            _ => Err(CliError::NoSandboxInCopy.into()),
        };
        guest.close().await;
        copied
    }
}
