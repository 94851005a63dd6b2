//! `artifact`: list, fetch and remove artifacts of runs. Only removal needs the daemon.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::failure::{self, CliError};
use super::output::{self, Sink};
use super::values::human_bytes;
use super::{instant, table};
use control::{ClientError, Request};
use host::paths::PRIVATE_FILE;
use sandbox::SandboxRef;
use services::artifact::{ArtifactError, ArtifactId, Category, content_of};
use services::store;
use services::store::artifacts::{ArtifactFilter, ArtifactRow, artifacts};

/// The size of one read.
const PIECE_BYTES: usize = 64 * 1024;
/// The default number of listed artifacts.
const LIMIT_DEFAULT: u64 = 100;

/// List, fetch and remove artifacts of runs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge artifact ls
  host-bridge artifact ls --sandbox work --category image
  host-bridge artifact get 0123456789abcdef -o plot.png
  host-bridge artifact rm 0123456789abcdef

Listing and fetching work without the daemon. Artifacts are kept when their sandbox is removed.")]
pub struct Artifact {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List artifacts, newest first
    Ls {
        /// List only artifacts of this sandbox, which may be removed already
        #[arg(long = "sandbox", alias = "box", value_name = "SANDBOX")]
        which: Option<SandboxRef>,
        /// List only this category: image, figure, video, audio, document, data, code, archive, text or
        /// other
        #[arg(long)]
        category: Option<Category>,
        /// List at most this many
        #[arg(short = 'n', long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
        limit: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write an artifact to a file or stdout
    Get {
        /// The artifact's id
        #[arg(value_name = "ID")]
        id: ArtifactId,
        /// Write to this file, replacing it (default: stdout)
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove artifacts
    Rm {
        /// The ids of the artifacts
        #[arg(required = true, value_name = "ID")]
        ids: Vec<ArtifactId>,
    },
}

impl Artifact {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        match &self.verb {
            Verb::Ls { which, category, limit, json } => {
                let which = ArtifactFilter {
                    namespace: which.as_ref().map(|which| which.namespace.to_string()),
                    sandbox: which.as_ref().map(|which| which.name.to_string()),
                    category: category.map(|category| category.to_string()),
                    ..ArtifactFilter::default()
                };
                list(&read(context, &which, *limit)?, *json)
            }
            Verb::Get { id, output } => get(context, id, output.as_deref()).await,
            Verb::Rm { ids } => remove(context, ids).await,
        }
    }
}

fn read(context: &Context, which: &ArtifactFilter, limit: u64) -> Result<Vec<ArtifactRow>> {
    let found = store::read(&context.paths, |connection| artifacts(connection, which, limit))?;
    Ok(found.unwrap_or_default())
}

fn list(rows: &[ArtifactRow], json: bool) -> Result<Exit> {
    if json {
        output::print_json(&rows)?;
    } else {
        let rows: Vec<_> = rows.iter().map(row).collect();
        let head = ["ID", "NAME", "TYPE", "SIZE", "SANDBOX", "CREATED"];
        output::print(&table::align(head, &rows))?;
    }
    Ok(Exit::SUCCESS)
}

/// The guest chose the name, which may contain control characters.
fn row(artifact: &ArtifactRow) -> [String; 6] {
    [
        artifact.id.clone(),
        output::printable(&artifact.name),
        output::printable(&artifact.mime),
        human_bytes(artifact.size),
        format!("{}/{}", artifact.namespace, artifact.sandbox),
        instant::format(artifact.created_ms),
    ]
}

async fn get(context: &Context, id: &ArtifactId, to: Option<&Path>) -> Result<Exit> {
    let which = ArtifactFilter { id: Some(id.to_string()), ..ArtifactFilter::default() };
    let found = read(context, &which, 1)?.pop();
    let row = found.ok_or_else(|| ArtifactError::NotFound { id: id.clone() })?;
    let mut content = content_of(&context.paths, &row)?;
    if let Some(path) = to {
        let unwritable = |source| CliError::Unwritable { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
        let mut file = options.open(path).map_err(unwritable)?;
        io::copy(&mut content, &mut file).map_err(unwritable)?;
        return Ok(Exit::SUCCESS);
    }
    print(content).await
}

async fn print(mut content: File) -> Result<Exit> {
    let stdout = Sink::stdout()?;
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let count = content.read(&mut piece)?;
        if count == 0 {
            return Ok(Exit::SUCCESS);
        }
        piece.truncate(count);
        match stdout.write(piece).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::SUCCESS),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn remove(context: &Context, ids: &[ArtifactId]) -> Result<Exit> {
    let mut daemon = context.daemon().await?;
    let mut exit = Exit::SUCCESS;
    for id in ids {
        match daemon.ask::<ArtifactRow>(&Request::RemoveArtifact { id: id.to_string() }).await {
            Ok(_) => output::print_line(id.as_str())?,
            // A refusal of one does not concern the next; a lost bridge does.
            Err(error @ ClientError::Refused(_)) => exit = failure::report(&error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}
