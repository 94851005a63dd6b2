//! `image pull`: pull images from registries.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use tokio::sync::watch;

use super::record::Recorder;
use crate::cp::progress::Progress as Line;
use crate::exit::Exit;
use crate::output;
use host::paths::Paths;
use image::puller::pull_into;
use image::reference::Reference;
use image::registry::{Options, Progress};
use image::{Image, ImageError, Images};
use sandbox::Spec;
use settings::{Overrides, Settings};

/// Pull an image from its registry
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image pull python:3.12-slim
  host-bridge image pull localhost:5000/team/app@sha256:0123…
  host-bridge image pull --config ./burrow.toml registry.example/app:2

Prints the image's digest. Set mirrors and registries without TLS in `[registries.…]` of the
configuration. The credentials of docker and podman are used. An interrupted pull continues where it
stopped.")]
pub struct Pull {
    /// The image: NAME[:TAG][@DIGEST]
    #[arg(value_name = "NAME")]
    name: Reference,

    /// Read this configuration file (default: the one that `serve` reads)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Hide the progress line
    #[arg(short, long)]
    quiet: bool,
}

impl Pull {
    pub async fn run(&self, images: Images, recorder: &Recorder) -> Result<Exit> {
        let act = recorder.begin("pull_image").image(self.name.to_string());
        let pulled = self.pull(&images).await;
        act.ended(&pulled);
        output::print_line(&pulled?.digest.to_string())?;
        Ok(Exit::SUCCESS)
    }

    async fn pull(&self, images: &Images) -> Result<Image> {
        let settings = Settings::load(self.config.as_deref(), &Overrides::default())?;
        let options = Options::from_settings(&settings.registries, &settings.images_ca)?;
        Ok(fetch(images, &self.name, &options, self.quiet).await?)
    }
}

/// Pulls the image of a sandbox that is started without the daemon, if requested.
pub async fn if_wanted(paths: &Paths, spec: &Spec) -> Result<()> {
    let pull = spec.pull.unwrap_or_default();
    let name = spec.image.as_deref().filter(|name| !name.starts_with('/'));
    let Some(name) = name.filter(|_| pull != image::Pull::Never) else { return Ok(()) };
    paths.prepare()?;
    let images = Images::open(paths)?;
    match images.find(name) {
        Ok(_) if pull == image::Pull::Missing => return Ok(()),
        Ok(_) | Err(ImageError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let settings = Settings::load(None, &Overrides::default())?;
    let options = Options::from_settings(&settings.registries, &settings.images_ca)?;
    fetch(&images, &name.parse()?, &options, false).await?;
    Ok(())
}

/// Pulls an image and shows a progress line.
pub async fn fetch(
    images: &Images,
    name: &Reference,
    options: &Options,
    quiet: bool,
) -> Result<Image, ImageError> {
    let (tell, progress) = watch::channel(Progress::default());
    let drawing = tokio::spawn(draw(progress, name.short(), quiet));
    let pulled = pull_into(images, name, options, &tell).await;
    drop(tell);
    // The progress line is removed before other output.
    let _ = drawing.await;
    pulled
}

/// Draws the progress line until the pull ends.
async fn draw(mut updates: watch::Receiver<Progress>, what: String, quiet: bool) {
    let mut line: Option<Line> = None;
    let mut drawn = 0;
    while updates.changed().await.is_ok() {
        let progress = updates.borrow_and_update();
        let (bytes, size) = (progress.bytes(), progress.size());
        if size > 0 {
            let line = line.get_or_insert_with(|| Line::new(&what, Some(size), quiet));
            line.add(bytes.saturating_sub(drawn));
            drawn = bytes.max(drawn);
        }
    }
}
