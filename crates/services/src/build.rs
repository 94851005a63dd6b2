//! An image by a recipe: its stages in their order, each step on top of the one before.
//!
//! Instructions about programs change the configuration; those about files make a layer. `COPY` is done on
//! this host, within the roots that it copies from and to. `RUN` uses a sandbox of its own, which has no
//! network unless it is given one, and ends with the command. Each layer makes an unnamed image, which the
//! next build finds by its step: the previous image, the instruction, the environment, and the content of the
//! files. Nothing here uses a terminal.

mod blocking;
mod config;
mod error;
pub mod packages;
mod plan;
mod run;
mod stage;

use std::path::{Path, PathBuf};

use tokio::sync::mpsc::Sender;

pub use error::{BuildError, StepError};
pub use plan::{Plan, STDIN};

use egress::{EgressSink, Settings};
use host::paths::Paths;
use image::reference::Reference;
use image::{Image, Images};
use machine::MachineKind;
use sandbox::host_files::HOST_ROOT;
use sandbox::options::Defaults;
use sandbox::{HostFiles, Name, SandboxRef, Spec};

/// The file of a context that excludes others.
const IGNORE: &str = ".dockerignore";

/// The options of a build.
#[derive(Clone, Debug, Default)]
pub struct BuildRequest {
    pub context: PathBuf,
    /// The recipe's path, if it is not `Dockerfile` in the context.
    pub file: Option<PathBuf>,
    /// The recipe's text, if it is not in a file.
    pub text: Option<String>,
    pub names: Vec<Reference>,
    pub args: Vec<(String, String)>,
    pub labels: Vec<(String, String)>,
    pub target: Option<String>,
    /// Whether every step is done though it was done before.
    pub no_cache: bool,
    /// What its commands may reach.
    pub egress: Vec<String>,
}

/// Events of a build.
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

/// The environment of a build.
pub struct BuildOptions {
    pub paths: Paths,
    pub images: Images,
    pub egress: Settings,
    /// Records the decisions about what the steps reach, as those about any other sandbox.
    pub decisions: EgressSink,
    pub step: StepSandbox,
    /// Receives what happens, for those who watch the build.
    pub events: Sender<BuildEvent>,
}

impl BuildOptions {
    async fn report(&self, event: BuildEvent) {
        // Nobody may listen.
        let _ = self.events.send(event).await;
    }
}

/// The settings of the sandboxes that run a recipe's commands: the same as any other
/// sandbox of the builder, with the defaults of the bridge.
#[derive(Clone)]
pub struct StepSandbox {
    machine: MachineKind,
    memory_mib: Option<u64>,
    cpu_millis: Option<u32>,
    files: HostFiles,
}

impl StepSandbox {
    /// For a build that names the machine, or leaves it to the defaults.
    pub fn new(machine: Option<MachineKind>, defaults: &Defaults, files: HostFiles) -> Self {
        let mut spec = Spec::new(which());
        spec.machine = machine;
        Self::like(&spec, defaults, files)
    }

    /// Whether its root is this host's own.
    fn has_hosts_root(&self) -> bool {
        let root = self.files.root.as_deref();
        self.machine.sees_host() && root == Some(Path::new(HOST_ROOT))
    }

    /// For what is installed for a sandbox: on its machine, with its limits.
    pub fn like(spec: &Spec, defaults: &Defaults, files: HostFiles) -> Self {
        let mut spec = Spec { snapshot: None, ..spec.clone() };
        defaults.fill(&mut spec);
        let (memory_mib, cpu_millis) = (spec.memory_mib, spec.cpu_millis);
        Self { machine: spec.machine(), memory_mib, cpu_millis, files }
    }
}

/// The name under which the sandboxes of steps are recorded.
pub fn which() -> SandboxRef {
    let name = run::NAME.parse().expect("it is a name");
    SandboxRef { namespace: Name::default_namespace(), name }
}

/// Builds the image of a plan. A failed build keeps its unnamed images for the next one.
pub async fn build(plan: &Plan, options: &BuildOptions) -> Result<Image, BuildError> {
    stage::build_all(plan, options).await
}
