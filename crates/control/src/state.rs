//! What is wrong with the files of a state directory, for `doctor` and `serve --check-config`. A bridge
//! starts nevertheless, and refuses what needs them; but without its keys no server that asks for them.

use std::fs;

use access::keys;
use host::paths::Paths;
use image::Images;
use sandbox::record::{RECORD_FILE, StoredRecord};
use services::store::{self, StoreError};

/// One file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateProblem {
    /// What was found, and what does not work because of it.
    pub what: String,
    pub fix: String,
}

/// Looks through the state directory, also beside a bridge that runs.
pub fn state_problems(paths: &Paths) -> Vec<StateProblem> {
    let mut problems = Vec::new();
    if let Err(error) = store::read(paths, |_| Ok(())) {
        let place = paths.store().display().to_string();
        let repair =
            "stop the daemon and run `host-bridge store repair`, which keeps what can be read";
        let (why, fix) = match error {
            StoreError::Damaged { what, .. } => {
                (format!("the store {place} is damaged ({what})"), repair.to_owned())
            }
            StoreError::Corrupt { source } => {
                (format!("the store {place} is damaged: {source}"), repair.to_owned())
            }
            error => (error.to_string(), format!("make {place} a file that can be read")),
        };
        let what = format!("notebooks, history and artifacts do not work: {why}");
        problems.push(StateProblem { what, fix });
    }
    let audit = paths.audit();
    if fs::metadata(&audit).is_ok_and(|found| !found.is_dir()) {
        let what = format!("nothing is recorded: {} is not a directory", audit.display());
        let fix = format!("move {} away", audit.display());
        problems.push(StateProblem { what, fix });
    }
    let keys = keys::directory(paths);
    if keys.exists()
        && let Err(error) = keys::Store::open(&keys).and_then(|store| store.read())
    {
        let what = format!("no server that asks for keys starts: {error}");
        let fix = "every key must be made again without the files".to_owned();
        problems.push(StateProblem { what, fix });
    }
    if paths.images().exists()
        && let Err(error) = Images::open(paths).and_then(|images| images.list())
    {
        let what = format!("no image can be named: {error}");
        let fix =
            "move that file away: images are found by their digests, and pulls name them again";
        problems.push(StateProblem { what, fix: fix.to_owned() });
    }
    let directories = fs::read_dir(paths.state_boxes()).into_iter().flatten().flatten();
    for directory in directories.map(|entry| entry.path()) {
        let record = directory.join(RECORD_FILE);
        if let Err(error) = StoredRecord::read(&directory)
            && record.exists()
        {
            let id = directory.file_name().unwrap_or_default().to_string_lossy();
            let what =
                format!("a sandbox is damaged: {} cannot be read: {error}", record.display());
            let fix = format!("`host-bridge rm {id}` ends and removes it");
            problems.push(StateProblem { what, fix });
        }
    }
    problems
}
