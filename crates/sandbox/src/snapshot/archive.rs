//! The archive by which a snapshot travels: a tar archive of fixed members in a fixed order.
//!
//! ```text
//!   manifest.json      what it is a snapshot of, what its machine was made of, and each part: its size, its
//!                      digest, and where in the file its bytes are (the rest is holes)
//!   manifest.sha256    the digest of that document, so that nothing in it is believed before it is checked
//!   memory             \
//!   scratch.img         } the parts, each only the bytes that are there
//!   names              /
//! ```
//!
//! The paths in an archive decide nothing: a member is either the one that must come next, or the archive is
//! refused. Everything that a manifest says is checked here against named limits, before a byte of a part is
//! taken.

use std::io;

use ::archive::{Entry, Kind, TarError, encode_entry};
use image::digest::{Digest, InvalidDigest};
use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::MachineKind;
use crate::limits::{
    SNAPSHOT_EXTENTS_MAX, SNAPSHOT_NAMES_BYTES_MAX, SNAPSHOTS_BYTES_MAX, VIRTUAL_SCRATCH_BYTES_MAX,
};
use egress::NAMES_FILE;
use host::paths::PRIVATE_FILE;
use machine::Capability;
use machine::limits::SNAPSHOT_MARGIN_BYTES;
use machine::vmm::{MEMORY, Manifest, SCRATCH};

/// Increases when older bridges can no longer read what newer ones write.
pub(super) const FORMAT: u32 = 1;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const DIGEST: &str = "manifest.sha256";

/// The document at the beginning of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArchiveManifest {
    pub format: u32,
    pub snapshot: Snapshot,
    /// What its machine was made of: kernel, initramfs and image by their digests, monitor, processors.
    pub machine: Manifest,
    /// In the order of their members.
    pub(super) parts: Vec<Part>,
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub name: PartName,
    /// The length of the file, its holes included.
    pub bytes: u64,
    /// The digest of its bytes without the holes, as they are in the archive.
    pub digest: Digest,
    /// The offset and the length of each run of bytes that is there, in order.
    pub extents: Vec<(u64, u64)>,
}

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PartName {
    /// The memory and the state of the devices.
    #[serde(rename = "memory")]
    Memory,
    /// The disk of the writable layer.
    #[serde(rename = "scratch.img")]
    Scratch,
    /// The addresses that its programs know hosts by.
    #[serde(rename = "names")]
    Names,
}

impl PartName {
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::Memory => MEMORY,
            Self::Scratch => SCRATCH,
            Self::Names => "names",
        }
    }

    /// The name of the file in the directory of a snapshot; those of the machine are a level below.
    pub(super) fn file(self) -> String {
        match self {
            Self::Memory | Self::Scratch => format!("{}/{}", super::MACHINE, self.member()),
            Self::Names => NAMES_FILE.to_owned(),
        }
    }
}

/// Why an archive is refused, or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is cut off")]
    Truncated,
    #[error("it is no tar archive of a snapshot: {0}")]
    Tar(#[from] TarError),
    #[error("it has {found:?} where {wanted:?} must be")]
    Member { found: String, wanted: String },
    #[error("its manifest cannot be read: {0}")]
    Manifest(#[from] serde_json::Error),
    #[error("the digest of its manifest cannot be read: {0}")]
    ManifestDigest(#[from] InvalidDigest),
    #[error("its format is {found}, and this bridge reads {FORMAT}")]
    Format { found: u32 },
    #[error("its {what} has the digest {found}, and must have {wanted}")]
    Digest { what: &'static str, wanted: Digest, found: Digest },
    #[error("its {what} has {bytes} bytes, more than the limit of {bytes_max}")]
    TooLarge { what: &'static str, bytes: u64, bytes_max: u64 },
    #[error("its manifest contradicts itself: {why}")]
    Contradiction { why: &'static str },
    #[error("snapshots of {kind} machines do not travel: {why}")]
    Kind { kind: MachineKind, why: &'static str },
    #[error("its image {image:?} is a file of the host that it was taken on; use images by name")]
    ForeignImage { image: String },
    #[error("could not {action} its files: {source}")]
    Files { action: &'static str, source: io::Error },
}

impl ArchiveError {
    /// Whether something is larger than a limit.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge { .. })
    }

    /// Whether this host is at fault, and not the archive.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Files { .. })
    }

    pub(super) fn files(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Files { action, source }
    }
}

impl Part {
    /// How many bytes of it are in the archive.
    pub(super) fn data_bytes(&self) -> u64 {
        super::sum(self.extents.iter().map(|(_, bytes)| *bytes))
    }

    fn check(&self) -> Result<(), ArchiveError> {
        if self.extents.len() > SNAPSHOT_EXTENTS_MAX {
            let (bytes, bytes_max) = (self.extents.len() as u64, SNAPSHOT_EXTENTS_MAX as u64);
            return Err(ArchiveError::TooLarge { what: "list of extents", bytes, bytes_max });
        }
        let mut end = 0;
        for (offset, bytes) in &self.extents {
            let after = offset.checked_add(*bytes).filter(|after| *after <= self.bytes);
            if *offset < end || *bytes == 0 || after.is_none() {
                let why = "extents are empty, overlap or leave their file";
                return Err(ArchiveError::Contradiction { why });
            }
            end = after.unwrap_or(self.bytes);
        }
        Ok(())
    }
}

impl ArchiveManifest {
    /// The document of an archive, if it is one that can be used.
    pub(super) fn parse(text: &[u8]) -> Result<Self, ArchiveError> {
        /// So that the format is known of one whose other fields are not.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_slice(text)?;
        if head.format != FORMAT {
            return Err(ArchiveError::Format { found: head.format });
        }
        let manifest: Self = serde_json::from_slice(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ArchiveError> {
        let (snapshot, machine) = (&self.snapshot, &self.machine);
        let contradiction = |why| Err(ArchiveError::Contradiction { why });
        require_export(snapshot.machine)?;
        if machine.kind != snapshot.machine {
            return contradiction("its machine is of another kind");
        }
        // A path would be a file of this host.
        if let Some(image) = snapshot.image.as_ref().filter(|image| image.contains('/')) {
            return Err(ArchiveError::ForeignImage { image: image.clone() });
        }
        let wanted: &[PartName] = if machine.has_scratch {
            &[PartName::Memory, PartName::Scratch, PartName::Names]
        } else {
            &[PartName::Memory, PartName::Names]
        };
        let named: Vec<_> = self.parts.iter().map(|part| part.name).collect();
        // The names may be missing.
        if named != wanted && named != wanted[..wanted.len() - 1] {
            return contradiction("its parts are not those of its machine");
        }
        for part in &self.parts {
            let bytes_max = match part.name {
                PartName::Memory => machine.memory_bytes.saturating_add(SNAPSHOT_MARGIN_BYTES),
                PartName::Scratch => snapshot.scratch_bytes.min(VIRTUAL_SCRATCH_BYTES_MAX),
                PartName::Names => SNAPSHOT_NAMES_BYTES_MAX,
            };
            if part.bytes > bytes_max {
                let (what, bytes) = (part.name.member(), part.bytes);
                return Err(ArchiveError::TooLarge { what, bytes, bytes_max });
            }
            part.check()?;
        }
        let bytes = self.data_bytes();
        if bytes > SNAPSHOTS_BYTES_MAX {
            let bytes_max = SNAPSHOTS_BYTES_MAX;
            return Err(ArchiveError::TooLarge { what: "content", bytes, bytes_max });
        }
        Ok(())
    }

    /// The bytes of all parts.
    pub(super) fn data_bytes(&self) -> u64 {
        super::sum(self.parts.iter().map(Part::data_bytes))
    }
}

/// Refuses a kind of machine whose snapshots another host cannot use.
pub(super) fn require_export(kind: MachineKind) -> Result<(), ArchiveError> {
    match kind.lack(Capability::Export) {
        Some(lack) => Err(ArchiveError::Kind { kind, why: lack.why }),
        None => Ok(()),
    }
}

/// The header of a member.
pub(super) fn header(name: &str, size: u64) -> Result<Vec<u8>, ArchiveError> {
    let (path, kind) = (name.as_bytes().to_vec(), Kind::File { size });
    let entry = Entry { path, kind, mode: PRIVATE_FILE, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 };
    let mut header = Vec::new();
    encode_entry(&entry, &mut header)?;
    Ok(header)
}
