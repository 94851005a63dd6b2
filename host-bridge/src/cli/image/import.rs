//! `image import`: images from files of this host.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cli::exit::Exit;
use crate::cli::output;
use crate::image::Images;
use crate::image::reference::Reference;

/// Take up an OCI layout, what docker saves, the archive of a root, or a directory that is one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image import ./oci-layout --name app:1
  host-bridge image import saved.tar
  host-bridge image import rootfs.tar.gz --name base
  host-bridge image import ./rootfs --name base

Prints the digest of each image. Archives may be compressed with gzip or zstd. Layers are checked
against their digests; devices, paths out of the image and bombs are refused, and leave nothing.")]
pub struct Import {
    /// The archive or directory
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// What to call it (default: what it is called there)
    #[arg(long, value_name = "NAME")]
    name: Option<Reference>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Import {
    pub fn run(&self, images: &Images) -> Result<Exit> {
        let imported = images.import(&self.path, self.name.as_ref())?;
        if self.json {
            output::print_json(&imported)?;
        } else {
            for image in &imported {
                output::print_line(&image.digest.to_string())?;
            }
        }
        Ok(Exit::SUCCESS)
    }
}
