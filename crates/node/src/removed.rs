//! Sandboxes that were removed here while their names could not be given back: a small file for each, so that the next
//! bridge gives back what this one no longer could.
//!
//! ```text
//!  removed ─▶ NATS does not answer ─▶ noted ─▶ the removal is answered … the record is gone ─▶ the note goes
//!                                       └─▶ the bridge dies ─▶ the next one joins, and removes the record ──┘
//! ```

use std::fs;
use std::io;
use std::path::PathBuf;

use fleet::ids::{Incarnation, Name};
use fleet::limits::HOLDINGS_MAX;
use host::paths::{Paths, make_private_directory, write_durably};
use serde::{Deserialize, Serialize};

use crate::identity::IdentityError;
use crate::incarnation;

/// What is kept of one, in a file with the name of its life.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted {
    /// Namespace and name, if what it would be made of again is still kept under them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    returning: Option<(String, String)>,
}

/// See the module's description.
pub(crate) struct RemovedNotes(PathBuf);

impl RemovedNotes {
    pub(crate) fn open(paths: &Paths) -> Result<Self, IdentityError> {
        let path = paths.state.join("fleet").join("removed");
        match make_private_directory(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(IdentityError::File { path, source }),
        }
    }

    /// It is on disk when this returns.
    pub(crate) fn keep(&self, life: Incarnation, returning: Option<&Name>) -> io::Result<()> {
        let returning = returning.map(|name| {
            let (namespace, name) = name.parts();
            (namespace.to_string(), name.to_string())
        });
        write_durably(&self.0, &life.to_string(), &serde_json::to_vec(&Noted { returning })?)
    }

    pub(crate) fn forget(&self, life: Incarnation) {
        // Most were never noted.
        let _ = fs::remove_file(self.0.join(life.to_string()));
    }

    /// Those that an earlier bridge has left, each with its name if it would be made again.
    pub(crate) fn all(&self) -> Vec<(Incarnation, Option<Name>)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let lives = entries.filter_map(|entry| incarnation(entry.file_name().to_str()?));
        let with_name = |life: Incarnation| {
            let noted = fs::read(self.0.join(life.to_string())).ok();
            let noted = noted.and_then(|bytes| serde_json::from_slice::<Noted>(&bytes).ok());
            let (namespace, name) = noted.unwrap_or_default().returning.unzip();
            (life, namespace.zip(name).and_then(|(space, name)| Name::parse(&space, &name).ok()))
        };
        lives.take(HOLDINGS_MAX).map(with_name).collect()
    }
}
