//! `image commit`: create an image from a running sandbox.

use anyhow::Result;
use clap::Args;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use control::Request;
use image::digest::Digest;
use image::reference::Reference;
use sandbox::SandboxRef;

/// Create an image from a running sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge start --name work --image python:3.12-slim
  host-bridge exec work -- pip install ./package
  host-bridge image commit work team/ready:1
  host-bridge run --image team/ready:1 -- python3 -c 'import package'

Prints the image's digest. The new image is the sandbox's image with one more layer and the same command,
user and variables. The sandbox is paused while its files are read. /tmp, /run, mounts, secrets and the
sandbox's own environment are left out.")]
pub struct Commit {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// The name of the new image
    #[arg(value_name = "NAME")]
    name: Reference,
}

impl Commit {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut daemon = context.daemon().await?;
        let (sandbox, image) = (self.which.clone(), self.name.to_string());
        let request = Request::Commit { sandbox, image };
        match daemon.ask::<Digest>(&request).await {
            Ok(digest) => output::print_line(&digest.to_string())?,
            Err(error) => return Err(context.explain(&self.which, error).await),
        }
        Ok(Exit::SUCCESS)
    }
}
