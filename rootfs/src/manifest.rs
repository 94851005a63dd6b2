//! Manifests: what an image is made of, beside it as JSON. Written by the builder, held against the
//! image by `verify`, read by whoever starts machines.

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
    /// What everything that went in hashes to; the image is built anew when it changes.
    pub key: Sha256,
    pub image: Output,
    pub format: String,
    pub uuid: String,
    /// Seconds since 1970; the time of every file.
    pub time_s: u64,
    pub agent: Agent,
    pub size_max_bytes: u64,
    pub programs: Vec<String>,
    /// All that there may be.
    pub set_id: Vec<SetId>,
    pub files: u64,
    /// What the lines of `rootfs ls --digests` hash to, each with its length before it.
    pub files_sha256: Sha256,
    pub packages: Vec<Package>,
}

/// `kernel.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelManifest {
    /// What `uname -r` says.
    pub release: String,
    pub key: Sha256,
    /// The same without the agent.
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
