//! `image build`: build an image from a Dockerfile.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::sync::mpsc::{Receiver, channel};

use super::pull;
use super::record::Recorder;
use crate::context::Context;
use crate::exit::Exit;
use crate::machine_kind::{self, KindParser};
use crate::output::{self, Sink};
use control::{egress_settings, operator_defaults, own_host_files};
use image::dockerfile::limits::FILE_BYTES_MAX;
use image::reference::Reference;
use image::registry::Options;
use image::{Image, ImageError, Images};
use machine::MachineKind;
use services::build::{self, BuildEvent, BuildOptions, BuildRequest, Plan, StepSandbox};
use settings::{Overrides, Settings};

/// The maximum number of buffered events; a full buffer slows the build down.
pub const EVENTS_WAITING_MAX: usize = 64;

/// Build an image from a Dockerfile
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image build -t team/app:1 .
  host-bridge image build -t team/app:1 -f build/Dockerfile --build-arg VERSION=2 .
  host-bridge image build -t app --pull missing --egress @pypi .
  host-bridge image build --target tests --no-cache .
  host-bridge image build -t team/app:1 -t team/app:latest -f - . <Dockerfile

Prints the image's digest on stdout and the progress on stderr. RUN has no network unless --egress allows
hosts. Supported instructions: FROM, ARG, ENV, LABEL, WORKDIR, USER, EXPOSE, VOLUME, STOPSIGNAL, SHELL, CMD,
ENTRYPOINT, COPY, ADD of files in the context, and RUN; others are refused. The next build reuses the
completed steps of a failed one; `image prune` removes them.")]
pub struct Build {
    /// The directory that COPY reads from
    #[arg(value_name = "CONTEXT")]
    context: PathBuf,

    /// Name the image; repeatable
    #[arg(short, long = "tag", value_name = "NAME")]
    tags: Vec<Reference>,

    /// Read this Dockerfile; - for stdin (default: Dockerfile in the context)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Set an ARG; NAME alone takes the environment variable of that name; repeatable
    #[arg(long = "build-arg", value_name = "NAME[=VALUE]", value_parser = argument)]
    args: Vec<(String, Option<String>)>,

    /// Add a label to the image; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,

    /// Build up to this stage (default: the last)
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,

    /// Run every step, even if it is cached
    #[arg(long)]
    no_cache: bool,

    /// Set when base images are pulled from their registries
    #[arg(long, value_name = "never|missing|always", default_value = "never")]
    pull: image::Pull,

    /// Allow RUN to connect to a host: HOST, *.HOST or public, with an optional :PORT, or a registry
    /// as @pypi, @npm, @crates or @debian; repeatable
    #[arg(long, value_name = "HOST")]
    egress: Vec<String>,

    /// Set the machine that RUN starts, with its own kernel or the host's (default: the
    /// configuration's, or process)
    #[arg(long, value_name = "MACHINE", env = machine_kind::VARIABLE, hide_env_values = true,
          value_parser = KindParser, hide_possible_values = true)]
    machine: Option<MachineKind>,

    /// Print only the digest and errors
    #[arg(short, long)]
    quiet: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "write NAME=VALUE".to_owned())
}

/// Reads a Dockerfile from stdin, within its size limit.
fn recipe_of_stdin() -> Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.context("cannot read the Dockerfile on stdin")?;
    anyhow::ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "the Dockerfile on stdin is larger than the limit of {FILE_BYTES_MAX} bytes"
    );
    Ok(text)
}

fn argument(text: &str) -> Result<(String, Option<String>), String> {
    if text.is_empty() || text.contains('=') {
        return pair(text).map(|(name, value)| (name, Some(value)));
    }
    Ok((text.to_owned(), None))
}

impl Build {
    pub async fn run(
        &self,
        context: &Context,
        images: Images,
        recorder: &Recorder,
    ) -> Result<Exit> {
        let mut act = recorder.begin("build_image");
        if !self.tags.is_empty() {
            let tags: Vec<_> = self.tags.iter().map(ToString::to_string).collect();
            act = act.image(tags.join(","));
        }
        act = act.fact("context", self.context.to_string_lossy());
        if !self.egress.is_empty() {
            act = act.fact("egress", self.egress.join(","));
        }
        let built = self.build(context, images, recorder).await;
        act.ended(&built);
        output::print_line(&built?.digest.to_string())?;
        Ok(Exit::SUCCESS)
    }

    async fn build(&self, context: &Context, images: Images, recorder: &Recorder) -> Result<Image> {
        let settings = Settings::load(None, &Overrides::default())?;
        let (file, text) = match &self.file {
            Some(file) if file.as_os_str() == build::STDIN => (None, Some(recipe_of_stdin()?)),
            file => (file.clone(), None),
        };
        // A variable that is not set gives nothing, as with docker.
        let value = |(name, value): &(String, Option<String>)| {
            Some((name.clone(), value.clone().or_else(|| std::env::var(name).ok())?))
        };
        let plan = Plan::read(BuildRequest {
            context: self.context.clone(),
            file,
            text,
            names: self.tags.clone(),
            args: self.args.iter().filter_map(value).collect(),
            labels: self.label.clone(),
            target: self.target.clone(),
            no_cache: self.no_cache,
            egress: self.egress.clone(),
        })?;
        let options = Options::from_settings(&settings.registries, &settings.images_ca)?;
        for name in plan.images() {
            self.fetch(&images, &name, &options, recorder).await?;
        }
        let (events, progress) = channel(EVENTS_WAITING_MAX);
        let paths = context.paths.clone();
        let (defaults, files) = (operator_defaults(&settings), own_host_files(&settings));
        let step = StepSandbox::new(self.machine, &defaults, files);
        let egress = egress_settings(&settings.egress);
        let decisions = recorder.egress(build::which());
        let options = BuildOptions { paths, images, egress, decisions, step, events };
        let writing = tokio::spawn(write(progress, self.quiet));
        let built = build::build(&plan, &options).await;
        drop(options);
        // The output precedes the result.
        let _ = writing.await;
        Ok(built?)
    }

    async fn fetch(
        &self,
        images: &Images,
        name: &str,
        options: &Options,
        recorder: &Recorder,
    ) -> Result<()> {
        let here = match images.find(name) {
            Ok(_) => true,
            Err(ImageError::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let wanted = match self.pull {
            image::Pull::Never => false,
            image::Pull::Missing => !here,
            image::Pull::Always => true,
        };
        if wanted {
            let act = recorder.begin("pull_image").image(name);
            let pulled = pull::fetch(images, &name.parse()?, options, self.quiet).await;
            let pulled = pulled.map_err(anyhow::Error::from);
            act.ended(&pulled);
            pulled?;
        }
        Ok(())
    }
}

/// Prints the progress of a build. A closed stderr is not an error.
pub async fn write(mut progress: Receiver<BuildEvent>, quiet: bool) {
    let Ok(stderr) = Sink::stderr() else { return };
    while let Some(progress) = progress.recv().await {
        let bytes = match progress {
            BuildEvent::Warning(text) => {
                output::note(&output::printable(&text));
                continue;
            }
            _ if quiet => continue,
            BuildEvent::Output(bytes) => bytes,
            BuildEvent::Known => b"  cached\n".to_vec(),
            BuildEvent::Step { number, of, text } => {
                let text = output::printable(text.lines().next().unwrap_or_default());
                format!("[{number}/{of}] {text}\n").into_bytes()
            }
        };
        let _ = stderr.write(bytes).await;
    }
}
