//! Manifests: a description of an image, beside it as JSON. The builder writes them, `verify`
//! compares them with the image, and programs that start machines read them.

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;

/// A file in the directory of images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub file: String,
    pub bytes: u64,
    pub sha256: Sha256,
}

/// A package that went in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub sha256: Sha256,
}

/// The agent that went in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub release: String,
    pub bytes: u64,
    pub sha256: Sha256,
}

/// A file that runs as its owner or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetId {
    pub path: String,
    /// In octal digits.
    pub mode: String,
}

/// `NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageManifest {
    pub recipe: String,
    pub summary: String,
    /// The digest of the whole input; the image is rebuilt when it changes.
    pub key: Sha256,
    pub image: Output,
    pub format: String,
    pub uuid: String,
    /// Seconds since 1970; the time of every file.
    pub time_s: u64,
    pub agent: Agent,
    pub size_max_bytes: u64,
    pub programs: Vec<String>,
    /// The longest manifest.
    pub set_id: Vec<SetId>,
    pub files: u64,
    /// The digest of the lines of `rootfs ls --digests`, each preceded by its length.
    pub files_sha256: Sha256,
    pub packages: Vec<Package>,
}

/// `kernel.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelManifest {
    /// The output of `uname -r`.
    pub release: String,
    pub key: Sha256,
    /// The input's digest without the agent.
    pub kernel_key: Sha256,
    pub agent: Agent,
    pub vmlinuz: Output,
    pub vmlinux: Output,
    pub initramfs: Output,
    /// In the order of loading.
    pub modules: Vec<String>,
    pub size_max_bytes: u64,
    pub packages: Vec<Package>,
}

/// The names of the files of the kernel kit.
pub const VMLINUZ: &str = "vmlinuz";
pub const VMLINUX: &str = "vmlinux";
pub const INITRAMFS: &str = "initramfs.cpio";
pub const KERNEL_MANIFEST: &str = "kernel.json";
