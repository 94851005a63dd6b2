//! The templates of writable layers: empty file systems, one file for each size.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::{MKFS, NoDisk, copy_of, mounted};
use crate::limits::SCRATCH_TEMPLATES_MAX;
use crate::process::sealed::Sealed;
use crate::vmm::find_program;
use host::agent::find_agent;
use host::paths::make_private_directory;

/// The directory of templates in the state directory.
const DIRECTORY: &str = "scratch";

/// No journal, because nobody mounts a layer again. Checksums let the tables be written when they are
/// needed; nothing is reserved for root, who is everybody in a sandbox.
const MKFS_ARGUMENTS: [&str; 10] = [
    "-q",
    "-F",
    "-b",
    "4096",
    "-m",
    "0",
    "-O",
    "^has_journal,^resize_inode,metadata_csum",
    "-E",
    "lazy_itable_init=1,nodiscard",
];

/// Whether there is a template of this size.
pub(super) fn exists(state: &Path, bytes: u64) -> bool {
    place(state, bytes).exists()
}

fn place(state: &Path, bytes: u64) -> PathBuf {
    state.join(DIRECTORY).join(format!("{bytes}.ext4"))
}

/// Opens the template of a size, and makes it where there is none.
pub(super) fn find(state: &Path, bytes: u64) -> Result<File, NoDisk> {
    // Sandboxes that start at once make it once.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = place(state, bytes);
    let failed = |action| {
        let path = path.clone();
        move |source| NoDisk::Files { action, path, source }
    };
    match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map_err(failed("open")),
    }
    let new = format(state, bytes)?;
    let moved =
        try_mount(state, &new).and_then(|()| fs::rename(&new, &path).map_err(failed("keep")));
    if let Err(error) = moved {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    remove_oldest(&state.join(DIRECTORY));
    File::open(&path).map_err(failed("open"))
}

/// Makes an empty file system, under a name of this process's own.
pub(super) fn format(state: &Path, bytes: u64) -> Result<PathBuf, NoDisk> {
    let directory = state.join(DIRECTORY);
    let path = directory.join(format!("{bytes}.{}.new", std::process::id()));
    let failed = |source| NoDisk::Files { action: "make", path: path.clone(), source };
    make_private_directory(&directory).map_err(failed)?;
    File::create(&path).and_then(|file| file.set_len(bytes)).map_err(failed)?;
    let program = find_program(MKFS).ok_or(NoDisk::NoProgram)?;
    match run(MKFS, Command::new(program).args(MKFS_ARGUMENTS).arg(&path)) {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error)
        }
    }
}

/// Mounts a copy of it, as each sandbox will have one.
fn try_mount(state: &Path, template: &Path) -> Result<(), NoDisk> {
    let failed = |source| NoDisk::Files { action: "open", path: template.to_owned(), source };
    let copy = copy_of(&File::open(template).map_err(failed)?, state)?;
    let agent = find_agent().map_err(|error| NoDisk::Mount(io::Error::other(error)))?;
    mounted::mount(&Sealed::default(), &agent, copy).map(drop)
}

fn run(program: &'static str, command: &mut Command) -> Result<(), NoDisk> {
    let failed = |reason| NoDisk::Failed { program, reason };
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if message.is_empty() { output.status.to_string() } else { message }))
}

/// Anybody may ask for any size.
fn remove_oldest(directory: &Path) {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut templates: Vec<_> = found
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    templates.sort();
    let more = templates.len().saturating_sub(SCRATCH_TEMPLATES_MAX);
    for (_, path) in templates.into_iter().take(more) {
        let _ = fs::remove_file(path);
    }
}
