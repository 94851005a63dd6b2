//! `cp`: files and directories between the host and a box.
//!
//! | what | how it travels |
//! |---|---|
//! | a file | its bytes, written beside and renamed over when it is complete (in the box) |
//! | a directory | a tar archive, packed and unpacked on the way ([`pack`], [`unpack`]) |
//! | `-` | the content of a file as it is; a tar archive for a directory or with `--tar` |

mod download;
mod pack;
mod place;
pub(super) mod progress;
mod unpack;
mod upload;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use place::Place;

/// Copy files and directories between the host and a box
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that a person writes")]
#[command(after_help = "Examples:
  host-bridge cp data.csv work:/tmp/                 into a directory of the box
  host-bridge cp work:/etc/os-release .              out of it
  host-bridge cp src work:/build                     a directory: /build/src, or /build if there is none
  host-bridge cp src/. work:/build                   the contents of a directory
  host-bridge cp work:/var/log/app.log - | less      the content of a file
  echo hello | host-bridge cp - work:/tmp/greeting
  host-bridge cp work:/etc - | tar t                 a directory on stdout is a tar archive
  tar c src | host-bridge cp - work:/build/          and so is stdin for one
  host-bridge cp --tar a:/data - | host-bridge cp --tar - b:/     from box to box

One end is BOX:PATH (paths of a box count from its root), the other a path of the host or -. A path
of the host that looks like BOX:PATH is written ./BOX:PATH. Symbolic links that you name are
followed, those inside a directory are copied as links. What comes out of a box is written below
the destination and nowhere else, without set-id bits, and without devices.")]
pub struct Cp {
    /// Give the copies in the box the owners that the files have here
    #[arg(short, long)]
    archive: bool,

    /// Make missing parent directories in the box
    #[arg(short, long)]
    parents: bool,

    /// Let - be a tar archive in any case
    #[arg(long)]
    tar: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,

    #[arg(value_name = "SOURCE")]
    source: Place,

    #[arg(value_name = "DESTINATION")]
    destination: Place,
}

impl Cp {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let which = match (&self.source, &self.destination) {
            (Place::Guest(_), Place::Guest(_)) => return Err(CliError::TwoBoxesInCopy.into()),
            (Place::Guest(guest), _) | (_, Place::Guest(guest)) => &guest.which,
            _ => return Err(CliError::NoBoxInCopy.into()),
        };
        let guest = context.guest(which, "cp").await?;
        let _at_work = context.at_work(which).await?;
        let copied = match (&self.source, &self.destination) {
            (Place::Guest(from), Place::Standard) => self.print(&guest, &from.path).await,
            (Place::Guest(from), Place::Host(to)) => {
                self.fetch(&guest, &from.path, to).await.map(|()| Exit::SUCCESS)
            }
            (Place::Standard, Place::Guest(to)) => self.store(&guest, to).await,
            (Place::Host(from), Place::Guest(to)) => self.send(&guest, from, to).await,
            _ => Err(CliError::NoBoxInCopy.into()),
        };
        guest.close().await;
        copied
    }
}
