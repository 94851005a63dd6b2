//! `image prune`: remove images, layers and installed packages that nothing uses.

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::record::Recorder;
use crate::exit::Exit;
use crate::output;
use crate::values::human_bytes;
use host::paths::Paths;
use image::Images;
use image::store::PruneResult;
use sandbox::image_users;
use services::build::packages::cache::{PackageCache, PackagesPruned, Prune};

/// Remove unused images, layers and packages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image prune
  host-bridge image prune --json | jq .bytes

Removes images that have no name and that no sandbox uses, layers that belong to no image, and packages of
--pip and --npm that no sandbox over the host's root uses.")]
pub struct PruneImages {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Pruned<'a> {
    #[serde(flatten)]
    images: &'a PruneResult,
    packages: u64,
    package_bytes: u64,
}

impl PruneImages {
    pub fn run(&self, images: &Images, paths: &Paths, recorder: &Recorder) -> Result<Exit> {
        let act = recorder.begin("prune_images");
        let pruned = act.tried(images.prune(|| image_users(paths)))?;
        let act = act.digests(&pruned.images).fact("layers", pruned.layers);
        let act = act.fact("blobs", pruned.blobs).fact("bytes", pruned.bytes);
        let packages = act.tried(prune_packages(paths))?;
        act.fact("packages", packages.sets).fact("package_bytes", packages.bytes).done();
        if self.json {
            output::print_json(&Pruned {
                images: &pruned,
                packages: packages.sets,
                package_bytes: packages.bytes,
            })?;
            return Ok(Exit::SUCCESS);
        }
        for digest in &pruned.images {
            output::print_line(&digest.to_string())?;
        }
        let (layers, blobs, bytes) = (pruned.layers, pruned.blobs, human_bytes(pruned.bytes));
        output::note(&format!("removed {layers} layers and {blobs} blobs of {bytes}"));
        if packages.sets > 0 {
            let (sets, bytes) = (packages.sets, human_bytes(packages.bytes));
            output::note(&format!("removed {sets} sets of installed packages of {bytes}"));
        }
        Ok(Exit::SUCCESS)
    }
}

/// Removes the packages that nobody uses. Without a cache there are none.
fn prune_packages(paths: &Paths) -> Result<PackagesPruned> {
    let Ok(cache) = PackageCache::of_user() else { return Ok(PackagesPruned::default()) };
    let pruned = cache.prune(paths, Prune::Unused);
    pruned.with_context(|| format!("cannot remove packages in {}", cache.place().display()))
}
