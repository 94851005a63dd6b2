//! `image pull`: images from registries.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use tokio::sync::watch;

use crate::cli::cp::progress::Progress as Line;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::image::reference::Reference;
use crate::image::registry::{Options, Progress, pull};
use crate::image::{ImageError, Images};
use crate::settings::{Overrides, Settings};

/// Fetch an image from its registry, or from a mirror of that
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image pull python:3.12-slim
  host-bridge image pull localhost:5000/team/app@sha256:0123…
  host-bridge image pull --config ./burrow.toml registry.example/app:2

Prints the image's digest. Mirrors and registries without TLS are `[registries.…]` of the configuration;
credentials are those of docker and podman. What was cut off goes on where it stopped.")]
pub struct Pull {
    #[arg(value_name = "NAME")]
    name: Reference,

    /// The configuration (default: as `serve` finds it)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Draw no progress
    #[arg(short, long)]
    quiet: bool,
}

impl Pull {
    pub async fn run(&self, images: Images) -> Result<Exit> {
        let settings = Settings::load(self.config.as_deref(), &Overrides::default())?;
        let options = Options::from_settings(&settings.registries)?;
        let sharing = images.clone();
        let shared = tokio::task::spawn_blocking(move || sharing.share()).await??;
        let (tell, told) = watch::channel(Progress::default());
        let drawing = tokio::spawn(draw(told, self.name.short(), self.quiet));
        let pulled = pull(&self.name, &options, images.blobs(), &tell).await;
        drop(tell);
        drawing.await?;
        let pulled = pulled?;
        let name = self.name.clone();
        let taken = tokio::task::spawn_blocking(move || {
            // What a name with the digest of an index means is what was chosen from that.
            let digest = pulled.index.or(name.digest);
            let fixed = Reference { tag: None, digest, ..name.clone() };
            let names = [Some(name), digest.map(|_| fixed)];
            let added = names.iter().flatten().try_fold(None, |_, name| {
                images.add(&shared, pulled.manifest, Some(name), &pulled.source).map(Some)
            });
            drop(shared);
            if added.is_err() {
                images.discard()?;
            }
            added
        });
        let taken: Result<_, ImageError> = taken.await?;
        if let Some(image) = taken? {
            output::print_line(&image.digest.to_string())?;
        }
        Ok(Exit::SUCCESS)
    }
}

/// One line on a terminal, until nobody tells any more.
async fn draw(mut told: watch::Receiver<Progress>, what: String, quiet: bool) {
    let mut line: Option<Line> = None;
    let mut drawn = 0;
    while told.changed().await.is_ok() {
        let progress = told.borrow_and_update();
        let (bytes, size) = (progress.bytes(), progress.size());
        if size > 0 {
            let line = line.get_or_insert_with(|| Line::new(&what, Some(size), quiet));
            line.add(bytes.saturating_sub(drawn));
            drawn = bytes.max(drawn);
        }
    }
}
