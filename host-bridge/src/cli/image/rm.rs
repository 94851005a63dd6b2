//! `image rm`: names go, and images with their last name.

use anyhow::Result;
use clap::Args;

use crate::cli::exit::Exit;
use crate::cli::{failure, output};
use crate::config::Paths;
use crate::image::Images;
use crate::sandbox::image_users;

/// Remove names of images, and each image with its last name
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image rm team/app:2
  host-bridge image rm 0123456789ab        the image with all its names

Refused while a box or a snapshot has the image; the message says which.")]
pub struct Rm {
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

impl Rm {
    pub fn run(&self, images: &Images, paths: &Paths) -> Result<Exit> {
        let mut exit = Exit::SUCCESS;
        for image in &self.images {
            match images.remove(image, || image_users(paths)) {
                Ok(removed) => {
                    for name in &removed.names {
                        output::print_line(&output::printable(name))?;
                    }
                    if removed.image {
                        output::print_line(&removed.digest.to_string())?;
                    }
                }
                // What is refused for one may be fine for the next.
                Err(error) => exit = failure::report(&error.into()),
            }
        }
        Ok(exit)
    }
}
