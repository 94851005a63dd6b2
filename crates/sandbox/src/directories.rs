//! Where a sandbox keeps its files.

use host::paths::Paths;
use machine::{Directories, SandboxId};

/// The two directories of a sandbox, or of a machine that may become one.
pub fn directories(paths: &Paths, id: &SandboxId) -> Directories {
    Directories {
        runtime: paths.runtime_boxes().join(id.as_str()),
        state: paths.state_boxes().join(id.as_str()),
    }
}
