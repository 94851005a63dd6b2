//! An image by a recipe: its stages in their order, each step on top of the one before.
//!
//! What only speaks of programs changes the configuration; what changes files makes a layer. `COPY` is
//! done on this host, within the roots that it copies from and to; `RUN` in a sandbox of its own, which
//! has no network unless it is given one and is gone with the command. Each layer makes an image
//! without a name, which the next build finds by what the step was: the image before, the instruction,
//! what programs are told, and what is in the files. Nothing here touches a terminal.

mod blocking;
mod error;
mod plan;
mod run;
mod stage;
mod words;

use std::path::PathBuf;

use tokio::sync::mpsc::Sender;

pub use error::{BuildError, StepError};
pub use plan::{Plan, STDIN};

use egress::Settings;
use host::paths::Paths;
use image::reference::Reference;
use image::{Image, Images};

/// What of a context is no part of it.
const IGNORE: &str = ".dockerignore";

/// What is to be built.
#[derive(Clone, Debug, Default)]
pub struct BuildRequest {
    pub context: PathBuf,
    /// The recipe, where it is not `Dockerfile` in the context.
    pub file: Option<PathBuf>,
    /// What the recipe says, where it is no file at all.
    pub text: Option<String>,
    pub names: Vec<Reference>,
    pub args: Vec<(String, String)>,
    pub labels: Vec<(String, String)>,
    pub target: Option<String>,
    /// Whether every step is done though it was done before.
    pub anew: bool,
    /// What its commands may reach.
    pub egress: Vec<String>,
}

/// What is told while it is built.
#[derive(Clone, Debug)]
pub enum BuildEvent {
    Step {
        number: usize,
        of: usize,
        text: String,
    },
    /// The step was done before.
    Known,
    Output(Vec<u8>),
    Warning(String),
}

/// What a build works with.
pub struct BuildOptions {
    pub paths: Paths,
    pub images: Images,
    pub egress: Settings,
    pub tell: Sender<BuildEvent>,
}

/// Builds the image of a plan. What a failed build has made is kept for the next, without a name.
pub async fn build(plan: &Plan, means: &BuildOptions) -> Result<Image, BuildError> {
    stage::all(plan, means).await
}
