//! Copies from a sandbox to the host. The content is hostile: [`super::unpack`] says what a tree
//! may do, and the length of a file is only a claim of the sandbox.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use host::sparse::{finish_sparse, write_sparse};
use protocol::message::FileKind;
use tokio::sync::{mpsc, oneshot};

use super::super::exit::Exit;
use super::super::failure::CliError;
use super::super::output::{self, Sink, printable};
use super::Cp;
use super::endpoint;
use super::progress::Progress;
use super::unpack::{RootName, Unpacker};
use agent_client::guest::{Guest, Output, Piece};

/// Pieces buffered between the link and the disk.
const PIECES_WAITING_MAX: usize = 4;
/// Bits of a mode that a copy keeps.
const MODE_KEPT: u32 = 0o777;

impl Cp {
    /// Copies to our stdout.
    pub(super) async fn print(&self, guest: &Guest, from: &str) -> Result<Exit> {
        let (mut output, total) = if self.tar || is_directory(guest, from).await? {
            (guest.tar_get(tar_path(from), true).await?, None)
        } else {
            let (output, _, bytes) = guest.read_file(from, 0, None).await?;
            (output, bytes)
        };
        let stdout = Sink::stdout()?;
        let mut progress = Progress::new(from, total, self.quiet);
        while let Some(bytes) = next(&mut output).await? {
            progress.add(bytes.len() as u64);
            match stdout.write(bytes).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::SUCCESS),
                Err(error) => return Err(error).context("cannot write to stdout"),
            }
        }
        Ok(Exit::SUCCESS)
    }

    /// Copies to a path of the host.
    pub(super) async fn fetch(&self, guest: &Guest, from: &str, to: &Path) -> Result<()> {
        if is_directory(guest, from).await? {
            return self.fetch_tree(guest, from, to).await;
        }
        let to = match (to.is_dir(), endpoint::base_name(from)) {
            (true, Some(name)) => to.join(name),
            (false, _) if endpoint::ends_in_slash(to) => {
                return Err(CliError::NotADirectory(to.display().to_string()).into());
            }
            _ => to.to_path_buf(),
        };
        let (output, info, bytes) = guest.read_file(from, 0, None).await?;
        let mut target = Target::open(&to, info.permissions & MODE_KEPT)?;
        let progress = Progress::new(from, bytes, self.quiet);
        drain(output, progress, move |piece| {
            if let Some(bytes) = piece {
                return target.write(bytes);
            }
            target.finish()
        })
        .await
    }

    async fn fetch_tree(&self, guest: &Guest, from: &str, to: &Path) -> Result<()> {
        let (destination, named) = tree_target(from, to)?;
        let mut unpacker = Some(Unpacker::new(&destination, named)?);
        let output = guest.tar_get(tar_path(from), true).await?;
        let progress = Progress::new(from, None, self.quiet);
        let from = printable(from);
        drain(output, progress, move |piece| match (piece, &mut unpacker) {
            (Some(bytes), Some(unpacker)) => Ok(unpacker.push(bytes)?),
            (None, unpacker) => {
                let unpacked = unpacker.take().map(Unpacker::finish).transpose()?;
                let left_out = unpacked.map_or(0, |unpacked| unpacked.left_out);
                if left_out > 0 {
                    output::note(&format!("{from}: skipped {left_out} devices, pipes or sockets"));
                }
                Ok(())
            }
            (Some(_), None) => Ok(()),
        })
        .await
    }
}

/// The directory that a tree is written to, and the name of its root there.
fn tree_target(from: &str, to: &Path) -> Result<(PathBuf, RootName)> {
    if endpoint::wants_contents(from) {
        if !to.exists() {
            std::fs::create_dir(to)
                .map_err(|source| CliError::Unwritable { path: to.to_path_buf(), source })?;
        }
        return Ok((to.to_path_buf(), RootName::Contents));
    }
    if to.is_dir() {
        let name = endpoint::base_name(from).ok_or(CliError::RootHasNoName)?;
        return Ok((to.to_path_buf(), RootName::As(name.as_bytes().to_vec())));
    }
    if to.exists() {
        return Err(CliError::NotADirectory(to.display().to_string()).into());
    }
    let name = to.file_name().ok_or(CliError::RootHasNoName)?;
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((parent.to_path_buf(), RootName::As(name.as_encoded_bytes().to_vec())))
}

/// The path that an archive is asked of: the agent names its entries by the last component.
fn tar_path(from: &str) -> &str {
    let path = from.strip_suffix("/.").unwrap_or(from).trim_end_matches('/');
    if path.is_empty() { "/" } else { path }
}

/// A file of the host that is being written; a new one is removed again unless it became whole.
struct Target {
    file: File,
    path: PathBuf,
    is_new: bool,
    is_complete: bool,
    /// Pipes and devices have no holes.
    is_regular: bool,
}

impl Target {
    fn open(path: &Path, mode: u32) -> Result<Self> {
        let unwritable = |source| CliError::Unwritable { path: path.to_path_buf(), source };
        let new = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let (file, is_new) = match new {
            Ok(file) => (file, true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let old = OpenOptions::new().write(true).truncate(true).open(path);
                (old.map_err(unwritable)?, false)
            }
            Err(error) => return Err(unwritable(error).into()),
        };
        let is_regular = file.metadata().is_ok_and(|found| found.is_file());
        Ok(Self { file, path: path.to_path_buf(), is_new, is_complete: false, is_regular })
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let unwritable = |source| CliError::Unwritable { path: self.path.clone(), source };
        let written = if self.is_regular {
            write_sparse(&self.file, bytes)
        } else {
            (&self.file).write_all(bytes)
        };
        Ok(written.map_err(unwritable)?)
    }

    fn finish(&mut self) -> Result<()> {
        let finished = if self.is_regular { finish_sparse(&self.file) } else { Ok(()) };
        finished.map_err(|source| CliError::Unwritable { path: self.path.clone(), source })?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_new && !self.is_complete {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Takes an output on a thread that may wait for the disk: `take` gets every piece, and `None` when
/// all of it has come.
async fn drain(
    mut output: Output,
    mut progress: Progress,
    mut take: impl FnMut(Option<&[u8]>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let (pieces, mut waiting) = mpsc::channel::<Option<Vec<u8>>>(PIECES_WAITING_MAX);
    let (outcome, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let mut taken = Ok(());
        while let Some(piece) = waiting.blocking_recv() {
            taken = take(piece.as_deref());
            if taken.is_err() {
                break;
            }
        }
        let _ = outcome.send(taken);
    });
    loop {
        let piece = next(&mut output).await?;
        let last = piece.is_none();
        progress.add(piece.as_ref().map_or(0, Vec::len) as u64);
        // A thread that has given up says why below.
        if pieces.send(piece).await.is_err() || last {
            break;
        }
    }
    drop(pieces);
    ended.await.context("the writing thread failed")?
}

async fn next(output: &mut Output) -> Result<Option<Vec<u8>>> {
    match output.next().await {
        Piece::Bytes { bytes, .. } => Ok(Some(bytes)),
        Piece::Gap { from, to } => Err(CliError::OutputMissing(to - from).into()),
        Piece::End => Ok(None),
        Piece::Failed(error) => Err(error.into()),
    }
}

async fn is_directory(guest: &Guest, path: &str) -> Result<bool> {
    let info = guest.stat(path, true).await.with_context(|| printable(path))?;
    let kind = match info.kind {
        FileKind::Directory => return Ok(true),
        FileKind::File => return Ok(false),
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "pipe",
        FileKind::Socket => "socket",
        FileKind::BlockDevice | FileKind::CharDevice => "device",
    };
    Err(CliError::NotCopyable { path: path.to_owned(), kind }.into())
}
