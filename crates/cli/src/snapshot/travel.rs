//! `snapshot export` and `snapshot import`: a snapshot as an archive in a file, a pipe or a bucket.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::archive_target::Target;
use crate::context::Context;
use crate::cp::progress::Progress;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output;
use control::Request;
use sandbox::SandboxRef;
use sandbox::limits::SNAPSHOT_PIECE_BYTES;
use workspace::s3::ObjectUrl;

const STANDARD: &str = "-";

/// Export a snapshot as an archive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge snapshot export base base.tar
  host-bridge snapshot export base - | zstd > base.tar.zst
  host-bridge snapshot export base - | ssh other host-bridge snapshot import -
  host-bridge snapshot export base s3://data/snapshots/base.tar

The archive has everything that another host with the same kit needs: memory, disk and what they were made
of. It contains any secrets that programs had in their memory. A file is replaced only when the archive is
complete; an object of a bucket is never replaced. The bucket is one of [workspaces] in the configuration.")]
pub struct Export {
    /// The snapshot: NAME or NAMESPACE/NAME
    #[arg(value_name = "SNAPSHOT")]
    which: SandboxRef,

    /// Write to this file, or to an object of a bucket; - for stdout
    #[arg(value_name = "FILE")]
    to: String,

    /// Hide the progress line
    #[arg(short, long)]
    quiet: bool,
}

/// Import a snapshot from an archive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge snapshot import base.tar
  host-bridge snapshot import base.tar team/base
  zstd -dc base.tar.zst | host-bridge snapshot import -
  host-bridge snapshot import s3://data/snapshots/base.tar base

Refused with the reason if this host could not start from it (kernel, initramfs, image, monitor, processor),
or if anything in it is not as its digests say; nothing is kept of it then. A virtual machine trusts the
memory that it is started from: import only snapshots of hosts that you trust.")]
pub struct Import {
    /// Read this file, or an object of a bucket; - for stdin
    #[arg(value_name = "FILE")]
    from: String,

    /// Set its name: NAME or NAMESPACE/NAME (default: the one that it had)
    #[arg(value_name = "SNAPSHOT")]
    which: Option<SandboxRef>,

    /// Hide the progress line
    #[arg(short, long)]
    quiet: bool,
}

impl Export {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        if ObjectUrl::is_meant(&self.to) {
            let to = Some(self.to.clone());
            let request = Request::ExportSnapshot { snapshot: self.which.clone(), to };
            context.daemon().await?.ask::<u64>(&request).await?;
            return Ok(Exit::SUCCESS);
        }
        let path = PathBuf::from(&self.to);
        let mut target = Target::of(&path)?;
        let unwritable = |source| CliError::Unwritable { path: path.clone(), source };
        let (bytes, mut archive) = context.daemon().await?.export_snapshot(&self.which).await?;
        let mut line = Progress::new(&self.which.to_string(), Some(bytes), self.quiet);
        let (mut piece, mut written) = (vec![0; SNAPSHOT_PIECE_BYTES], 0_u64);
        loop {
            let count = archive.read(&mut piece).await.context("the bridge's archive")?;
            if count == 0 {
                break;
            }
            match target.out().write_all(&piece[..count]) {
                // The reader is gone.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::UNREAD),
                sent => sent.map_err(unwritable)?,
            }
            written += count as u64;
            line.add(count as u64);
        }
        drop(line);
        if written != bytes {
            return Err(CliError::ArchiveCutOff { written, bytes }.into());
        }
        target.finish().map_err(unwritable)?;
        Ok(Exit::SUCCESS)
    }
}

impl Import {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let imported = if ObjectUrl::is_meant(&self.from) {
            let from = Some(self.from.clone());
            let request = Request::ImportSnapshot { snapshot: self.which.clone(), from };
            context.daemon().await?.ask::<sandbox::Snapshot>(&request).await?
        } else {
            self.send(context).await?
        };
        output::print_line(&imported.which().to_string())?;
        Ok(Exit::SUCCESS)
    }

    async fn send(&self, context: &Context) -> Result<sandbox::Snapshot> {
        let unreadable = || format!("cannot read {}", self.from);
        let (mut from, bytes) = open(Path::new(&self.from)).await.with_context(unreadable)?;
        let mut upload = context.daemon().await?.import_snapshot(self.which.clone()).await?;
        let mut line = Progress::new(&self.from, bytes, self.quiet);
        let mut piece = vec![0; SNAPSHOT_PIECE_BYTES];
        loop {
            let count = from.read(&mut piece).await.with_context(unreadable)?;
            if count == 0 || !upload.send(&piece[..count]).await {
                break;
            }
            line.add(count as u64);
        }
        drop(line);
        Ok(upload.finish().await?)
    }
}

/// What is read, and its length if that is known.
async fn open(path: &Path) -> io::Result<(Box<dyn AsyncRead + Unpin>, Option<u64>)> {
    if path == Path::new(STANDARD) {
        return Ok((Box::new(tokio::io::stdin()), None));
    }
    let file = tokio::fs::File::open(path).await?;
    let found = file.metadata().await?;
    Ok((Box::new(file), found.is_file().then_some(found.len())))
}
