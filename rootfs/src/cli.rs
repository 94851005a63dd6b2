//! The command line: `lock`, `build`, `verify`, `ls`. Only this file writes to the terminal.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::builder::{self, BuildRequest};
use crate::manifest::{ImageManifest, KERNEL_MANIFEST, KernelManifest};
use crate::{erofs, listing, verify};

/// Builds microVM images from Debian packages, needing no root, no mounts and no mkfs.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Write the locks of recipes again, from what the mirror has now.
    Lock {
        /// The recipes; all, if none is named.
        names: Vec<String>,
        /// The directory with `recipes` and `locks`.
        #[arg(long, default_value = "rootfs")]
        source: PathBuf,
    },
    /// Build images and the kernel kit, as far as anything has changed.
    Build {
        /// The recipes; all that are not optional, if none is named.
        names: Vec<String>,
        /// The directory with `recipes` and `locks`.
        #[arg(long, default_value = "rootfs")]
        source: PathBuf,
        /// Where images go.
        #[arg(long, default_value = "target/images")]
        out: PathBuf,
        /// The agent to put in.
        #[arg(
            long,
            env = "BURROW_AGENT",
            default_value = "target/x86_64-unknown-linux-musl/release/guest-agent"
        )]
        agent: PathBuf,
    },
    /// Open all images again and hold them against their manifests.
    Verify {
        #[arg(default_value = "target/images")]
        directory: PathBuf,
    },
    /// List the images of a directory, or what is in one image.
    Ls {
        /// A directory of images, or a file `NAME.erofs`.
        #[arg(default_value = "target/images")]
        path: PathBuf,
        /// With the SHA-256 of every file.
        #[arg(long)]
        digests: bool,
    },
}

/// Runs the command.
#[expect(clippy::print_stderr, reason = "this is the command line")]
pub fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let pipe = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if pipe == Some(io::ErrorKind::BrokenPipe) {
                return ExitCode::SUCCESS;
            }
            eprintln!("rootfs: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "progress is for people")]
fn run(verb: Verb) -> Result<()> {
    let mut say = |line: &str| eprintln!("rootfs: {line}");
    let mut out = BufWriter::new(io::stdout().lock());
    match verb {
        Verb::Lock { names, source } => builder::lock(&source, &names, &mut say)?,
        Verb::Build { names, source, out: directory, agent } => {
            let order = BuildRequest { source, out: directory, agent, names };
            for built in builder::build(&order, &mut say)? {
                let what = if built.changed { "built" } else { "unchanged" };
                writeln!(out, "{:<10} {what:<10} {:>7.1} MB", built.name, megabytes(built.bytes))?;
            }
        }
        Verb::Verify { directory } => {
            let mut names = Vec::new();
            let wrong = verify::verify(&directory, &mut |name| names.push(name.to_owned()))?;
            for line in &wrong {
                say(line);
            }
            if !wrong.is_empty() {
                bail!("{} findings in {}", wrong.len(), directory.display());
            }
            if names.is_empty() {
                bail!("there are no images in {}", directory.display());
            }
            writeln!(out, "verified: {}", names.join(", "))?;
        }
        Verb::Ls { path, digests } if path.is_file() => {
            let tree = erofs::read(&path)?;
            listing::lines(&tree, digests, &mut |line| writeln!(out, "{line}"))?;
        }
        Verb::Ls { path, .. } => list_images(&path, &mut out)?,
    }
    Ok(out.flush()?)
}

fn list_images(directory: &Path, out: &mut impl Write) -> Result<()> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort_unstable();
    for file in files {
        let text = std::fs::read(&file)?;
        if file.ends_with(KERNEL_MANIFEST) {
            let kernel: KernelManifest = serde_json::from_slice(&text)?;
            let bytes = kernel.vmlinuz.bytes + kernel.initramfs.bytes;
            let modules = kernel.modules.len();
            writeln!(
                out,
                "{:<10} {:>7.1} MB  Linux {} with {modules} modules",
                "kernel",
                megabytes(bytes),
                kernel.release
            )?;
        } else {
            let image: ImageManifest = serde_json::from_slice(&text)?;
            writeln!(
                out,
                "{:<10} {:>7.1} MB  {}",
                image.recipe,
                megabytes(image.image.bytes),
                image.summary
            )?;
        }
    }
    Ok(())
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
