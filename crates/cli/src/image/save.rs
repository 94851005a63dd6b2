//! `image save`: write images as an archive to a file or to stdout.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::Args;
use futures_util::StreamExt as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use tokio::task::spawn_blocking;

use super::record::{AuditedAction, Recorder};
use crate::archive_target::Target;
use crate::cp::progress::Progress;
use crate::exit::Exit;
use crate::failure::CliError;
use image::Images;
use image::save::{Format, SaveError};

/// Save images as one archive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image save team/app:4 -o app.tar
  host-bridge image save team/app:4 team/db:1 | zstd > both.tar.zst
  host-bridge image save --format docker team/app:4 | docker load
  host-bridge image save team/app:4 | ssh other host-bridge image import -

An OCI layout keeps the digests of the images, and saving the same images twice gives the same bytes.
Each image is saved under the names given here. A file is replaced only when the archive is complete.")]
pub struct Save {
    /// The images: names or digests
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,

    /// Write to this file; - for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Set the format: oci for an OCI layout, or docker for `docker load`
    #[arg(long, value_name = "FORM", default_value = "oci")]
    format: Format,

    /// Hide the progress line
    #[arg(short, long)]
    quiet: bool,
}

impl Save {
    pub async fn run(self, images: Images, recorder: &Recorder) -> Result<Exit> {
        let acts: Vec<_> =
            self.images.iter().map(|image| self.act(&images, recorder, image)).collect();
        let saved = self.save(images).await;
        for act in acts {
            match &saved {
                Ok(Exit::SUCCESS) => act.done(),
                Ok(_) => act.broken_off(),
                Err(error) => act.failed(error),
            }
        }
        saved
    }

    /// The record for one image, since saving it exports its contents.
    fn act(&self, images: &Images, recorder: &Recorder, image: &str) -> AuditedAction {
        let act = recorder.begin("save_image").image(image);
        let act = act.fact("to", self.output.to_string_lossy());
        match images.find(image) {
            Ok(found) => act.digest(&found.digest),
            // It fails, and why is in its record.
            Err(_) => act,
        }
    }

    async fn save(self, images: Images) -> Result<Exit> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let target = Target::of(&self.output)?;
        let is_stream = matches!(target, Target::Stream(_));
        let stopped = Arc::clone(&is_stopped);
        let mut work = spawn_blocking(move || self.write(&images, target, &stopped));
        let number = tokio::select! {
            done = &mut work => return done?,
            Some(number) = signals.next() => number,
        };
        if is_stream {
            // It may wait for a reader, and there is nothing to take away.
            return Ok(Exit::signalled(number));
        }
        is_stopped.store(true, Ordering::Relaxed);
        // It ends before the next bytes, and takes its file away.
        match work.await? {
            Err(error) if matches!(error.downcast_ref(), Some(SaveError::Stopped)) => {
                Ok(Exit::signalled(number))
            }
            done => done,
        }
    }

    fn write(&self, images: &Images, mut target: Target, stopped: &AtomicBool) -> Result<Exit> {
        let saving = images.saving(&self.images, self.format)?;
        let what = self.images.join(" ");
        let mut line = Progress::new(&what, Some(saving.bytes()), self.quiet);
        let written = saving.write(target.out(), &mut |bytes| {
            line.add(bytes);
            !stopped.load(Ordering::Relaxed)
        });
        drop(line);
        let unwritable = |source| CliError::Unwritable { path: self.output.clone(), source };
        match written {
            // The reader is gone.
            Err(SaveError::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(Exit::UNREAD);
            }
            Err(SaveError::Write(source)) => return Err(unwritable(source).into()),
            written => written?,
        }
        target.finish().map_err(unwritable)?;
        Ok(Exit::SUCCESS)
    }
}
