//! `image commit`: an image of what a box has become.

use anyhow::Result;
use clap::Args;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use image::reference::Reference;
use sandbox::SandboxRef;

/// Make an image of what a running box has become since it was started from another
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge start --name work --image python:3.12-slim
  host-bridge exec work -- pip install ./package
  host-bridge image commit work team/ready:1
  host-bridge run --image team/ready:1 -- python3 -c 'import package'

Prints the image's digest. It has the layers of the box's image and one more; what the image said of
programs holds. The box's programs stand still meanwhile. /tmp, /run and what is mounted are not in
it, nor are secrets and the box's environment.")]
pub struct Commit {
    /// The box: NAME or NAMESPACE/NAME
    #[arg(value_name = "BOX")]
    which: SandboxRef,

    /// What to call the image
    #[arg(value_name = "NAME")]
    name: Reference,
}

impl Commit {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut daemon = context.daemon().await?;
        match daemon.commit(&self.which, &self.name).await {
            Ok(digest) => output::print_line(&digest.to_string())?,
            Err(error) => return Err(context.explain(&self.which, error).await),
        }
        Ok(Exit::SUCCESS)
    }
}
