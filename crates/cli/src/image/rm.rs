//! `image rm`: remove names of images, and images that lose their last name.

use anyhow::Result;
use clap::Args;

use super::record::Recorder;
use crate::exit::Exit;
use crate::{failure, output};
use host::paths::Paths;
use image::Images;
use sandbox::image_users;

/// Remove images by name or digest
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image rm team/app:2
  host-bridge image rm 0123456789ab        the image and all its names

An image is removed with its last name. An image that a sandbox or a snapshot uses is not removed; the
message names the user.")]
pub struct Rm {
    /// The images: names or digests
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

impl Rm {
    pub fn run(&self, images: &Images, paths: &Paths, recorder: &Recorder) -> Result<Exit> {
        let mut exit = Exit::SUCCESS;
        for image in &self.images {
            let act = recorder.begin("remove_image").image(image);
            match act.tried(images.remove(image, || image_users(paths))) {
                Ok(removed) => {
                    let act = act.digest(&removed.digest).fact("names", removed.names.join(","));
                    act.fact("with_its_last_name", removed.image).done();
                    for name in &removed.names {
                        output::print_line(&output::printable(name))?;
                    }
                    if removed.image {
                        output::print_line(&removed.digest.to_string())?;
                    }
                }
                // A refusal of one does not concern the next.
                Err(error) => exit = failure::report(&error),
            }
        }
        Ok(exit)
    }
}
