//! `image import`: images from files of this host.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::record::Recorder;
use crate::exit::Exit;
use crate::output;
use image::Images;
use image::reference::Reference;

/// Take up an OCI layout, what docker saves, the archive of a root, or a directory that is one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image import ./oci-layout --name app:1
  host-bridge image import saved.tar
  host-bridge image import rootfs.tar.gz --name base
  host-bridge image import ./rootfs --name base
  docker export work | host-bridge image import - --name work

Prints the digest of each image. Archives may be compressed with gzip or zstd. Layers are checked
against their digests; devices, paths out of the image and bombs are refused, and leave nothing.")]
pub struct Import {
    /// The archive or directory; - reads an archive from stdin
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
