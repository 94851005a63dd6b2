//! `image prune`: remove images and layers that nothing uses.

use anyhow::Result;
use clap::Args;

use super::record::Recorder;
use crate::exit::Exit;
use crate::output;
use crate::values::human_bytes;
use host::paths::Paths;
use image::Images;
use sandbox::image_users;

/// Remove unused images and layers
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image prune
  host-bridge image prune --json | jq .bytes

Removes images that have no name and that no sandbox uses, and layers that belong to no image.")]
pub struct Prune {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Prune {
    pub fn run(&self, images: &Images, paths: &Paths, recorder: &Recorder) -> Result<Exit> {
        let act = recorder.begin("prune_images");
        let pruned = act.tried(images.prune(|| image_users(paths)))?;
        let act = act.digests(&pruned.images).fact("layers", pruned.layers);
        act.fact("blobs", pruned.blobs).fact("bytes", pruned.bytes).done();
        if self.json {
            output::print_json(&pruned)?;
            return Ok(Exit::SUCCESS);
        }
        for digest in &pruned.images {
            output::print_line(&digest.to_string())?;
        }
        let (layers, blobs, bytes) = (pruned.layers, pruned.blobs, human_bytes(pruned.bytes));
        output::note(&format!("removed {layers} layers and {blobs} blobs of {bytes}"));
        Ok(Exit::SUCCESS)
    }
}
