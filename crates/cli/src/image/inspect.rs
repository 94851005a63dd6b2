//! `image inspect`: show an image as JSON.

use anyhow::Result;
use clap::Args;

use crate::exit::Exit;
use crate::output;
use image::Images;

/// Show an image as JSON
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image inspect python:3.12-slim
  host-bridge image inspect 0123456789ab | jq .process")]
pub struct Inspect {
    /// The image: a name or a digest
    #[arg(value_name = "IMAGE")]
    image: String,
}

impl Inspect {
    pub fn run(&self, images: &Images) -> Result<Exit> {
        output::print_json(&images.inspect(&self.image)?)?;
        Ok(Exit::SUCCESS)
    }
}
