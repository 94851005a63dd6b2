//! `image`: manage images. Only `commit` needs the daemon: the store has its own locks, which work
//! between processes.

mod build;
mod commit;
mod import;
mod inspect;
mod ls;
pub mod packages;
mod prune;
pub mod pull;
mod record;
mod rm;
mod save;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use image::Images;
use image::digest::Digest;
use record::Recorder;

/// The number of digits in a short digest.
const DIGITS_SHOWN: usize = 12;

/// Manage images
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image pull python:3.12-slim
  docker save python:3.12-slim | gzip > py.tar.gz && host-bridge image import py.tar.gz
  host-bridge image import ./layout --name team/app:2
  host-bridge image ls
  host-bridge run --image team/app:2 -- python3 -c 'print(1)'
  host-bridge image commit work team/app:3
  host-bridge image build -t team/app:4 .
  host-bridge image save team/app:4 -o app.tar
  host-bridge image rm team/app:2
  host-bridge image prune

An image is given as NAME[:TAG][@DIGEST], or by its digest or the first 12 digits of the digest.")]
pub struct Image {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Ls(ls::Ls),
    Inspect(inspect::Inspect),
    Import(import::Import),
    Rm(rm::Rm),
    Prune(prune::PruneImages),
    Pull(pull::Pull),
    Commit(commit::Commit),
    Build(Box<build::Build>),
    Save(save::Save),
}

impl Image {
    pub async fn run(self, context: &Context) -> Result<Exit> {
        if let Verb::Commit(verb) = &self.verb {
            return verb.run(context).await;
        }
        context.paths.prepare()?;
        let recorder = match &self.verb {
            // Commands that only read work even if the audit log cannot be written.
            Verb::Ls(_) | Verb::Inspect(_) => Recorder::default(),
            _ => Recorder::open(context)?,
        };
        let done = self.carry_out(context, &recorder).await;
        recorder.close().await;
        done
    }

    async fn carry_out(self, context: &Context, recorder: &Recorder) -> Result<Exit> {
        let images = Images::open(&context.paths)?;
        let (paths, recorder) = (context.paths.clone(), recorder.clone());
        if let Verb::Pull(verb) = &self.verb {
            return verb.run(images, &recorder).await;
        }
        if let Verb::Build(verb) = &self.verb {
            return verb.run(context, images, &recorder).await;
        }
        if let Verb::Save(verb) = self.verb {
            return verb.run(images, &recorder).await;
        }
        // All of it waits for disks and locks.
        let done = tokio::task::spawn_blocking(move || match self.verb {
            Verb::Ls(verb) => verb.run(&images),
            Verb::Inspect(verb) => verb.run(&images),
            Verb::Import(verb) => verb.run(&images, &recorder),
            Verb::Rm(verb) => verb.run(&images, &paths, &recorder),
            Verb::Prune(verb) => verb.run(&images, &paths, &recorder),
            Verb::Pull(_) | Verb::Commit(_) | Verb::Build(_) | Verb::Save(_) => Ok(Exit::SUCCESS),
        });
        done.await?
    }
}

fn short(digest: &Digest) -> String {
    digest.hex().chars().take(DIGITS_SHOWN).collect()
}
