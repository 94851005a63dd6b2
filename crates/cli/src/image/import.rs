//! `image import`: import images from files or directories of this host.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::record::Recorder;
use crate::exit::Exit;
use crate::output;
use image::Images;
use image::reference::Reference;

/// Import an image from a file or directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image import ./oci-layout --name app:1
  host-bridge image import saved.tar
  host-bridge image import rootfs.tar.gz --name base
  host-bridge image import ./rootfs --name base
  docker export work | host-bridge image import - --name work

Reads an OCI layout, an archive of `docker save`, an archive of a root file system, or a directory that
is one. Archives may be compressed with gzip or zstd. Prints the digest of each image. Layers are checked
against their digests. Devices, paths that leave the image and archives that expand beyond the limits are
refused; nothing of them is stored.")]
pub struct Import {
    /// The archive or directory; - reads an archive from stdin
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Set the image's name (default: the name in the archive)
    #[arg(long, value_name = "NAME")]
    name: Option<Reference>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Import {
    pub fn run(&self, images: &Images, recorder: &Recorder) -> Result<Exit> {
        let act = recorder.begin("import_image").fact("path", self.path.to_string_lossy());
        let act = match &self.name {
            Some(name) => act.image(name.to_string()),
            None => act,
        };
        let is_stdin = self.path.as_os_str() == "-";
        let path = if is_stdin { Path::new("/dev/stdin") } else { &self.path };
        let imported = act.tried(images.import(path, self.name.as_ref()))?;
        for image in &imported {
            act.clone().digest(&image.digest).done();
        }
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
