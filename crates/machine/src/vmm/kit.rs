//! The kit: the kernel, the initramfs with the agent, and the images, as the builder leaves them in
//! one directory.
//!
//! Every start reads the kit. Nothing is built or fetched here; errors say what is missing and how to get it.

use std::path::{Path, PathBuf};

/// The kernel as an ELF file, and compressed as distributions ship it.
const KERNEL: &str = "vmlinux";
const KERNEL_PACKED: &str = "vmlinuz";
const INITRAMFS: &str = "initramfs.cpio";
/// The suffix of an image's file.
const IMAGE_SUFFIX: &str = ".erofs";
/// The image of a sandbox that names none.
pub const IMAGE_DEFAULT: &str = "full";

/// Where to look if `BURROW_IMAGES` is not set: beside the program, where the build leaves it; and
/// where packages install it.
const BESIDE: [&str; 4] = ["images", "../images", "../../images", "../share/burrow/images"];
const INSTALLED: &str = "/usr/share/burrow/images";
const VARIABLE: &str = "BURROW_IMAGES";

/// A directory with all that a virtual machine boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kit(PathBuf);

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KitError {
    #[error(
        "there is no kernel for virtual machines in any of {}: build one with `./do images`, or say with {VARIABLE} where it is",
        list(.0)
    )]
    NoKit(Vec<PathBuf>),
    #[error("{} is missing; `./do images` builds it", .0.display())]
    Missing(PathBuf),
    #[error("{name:?} is no image: it is neither a file nor one of {known:?}")]
    NoImage { name: String, known: Vec<String> },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl Kit {
    /// Finds the directory.
    pub fn find() -> Result<Self, KitError> {
        if let Some(named) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            return Self::in_any([PathBuf::from(named)].into());
        }
        let program = std::env::current_exe().ok();
        let beside = program.as_deref().and_then(Path::parent).map(Path::to_owned);
        let near = beside.iter().flat_map(|directory| BESIDE.map(|name| directory.join(name)));
        Self::in_any(near.chain([PathBuf::from(INSTALLED)]).collect())
    }

    /// The kit in this directory.
    pub fn in_directory(directory: PathBuf) -> Result<Self, KitError> {
        Self::in_any(vec![directory])
    }

    fn in_any(directories: Vec<PathBuf>) -> Result<Self, KitError> {
        let has_kernel = |directory: &PathBuf| directory.join(INITRAMFS).is_file();
        match directories.iter().find(|directory| has_kernel(directory)) {
            Some(found) => Ok(Self(found.canonicalize().unwrap_or_else(|_| found.clone()))),
            None => Err(KitError::NoKit(directories)),
        }
    }

    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// The kernel that starts soonest: the unpacked one, if it exists.
    pub fn kernel(&self) -> Result<PathBuf, KitError> {
        self.file(KERNEL).or_else(|_| self.packed_kernel())
    }

    /// The kernel for monitors that unpack nothing.
    pub fn unpacked_kernel(&self) -> Result<PathBuf, KitError> {
        self.file(KERNEL)
    }

    /// The kernel as firmware loads it.
    pub fn packed_kernel(&self) -> Result<PathBuf, KitError> {
        self.file(KERNEL_PACKED)
    }

    pub fn initramfs(&self) -> Result<PathBuf, KitError> {
        self.file(INITRAMFS)
    }

    fn file(&self, name: &str) -> Result<PathBuf, KitError> {
        let path = self.0.join(name);
        if path.is_file() { Ok(path) } else { Err(KitError::Missing(path)) }
    }

    /// An image by its name in the kit or by its path.
    pub fn image(&self, name: &str) -> Result<PathBuf, KitError> {
        if name.contains('/') {
            let path = PathBuf::from(name);
            return if path.is_file() { Ok(path) } else { Err(KitError::Missing(path)) };
        }
        let path = self.0.join(format!("{name}{IMAGE_SUFFIX}"));
        if path.is_file() {
            return Ok(path);
        }
        Err(KitError::NoImage { name: name.to_owned(), known: self.images() })
    }

    /// The names of all images, sorted.
    pub fn images(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> =
            names.filter_map(|name| name.strip_suffix(IMAGE_SUFFIX).map(str::to_owned)).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_named_with_a_remedy() {
        let directory = std::env::temp_dir().join(format!("burrow-kit-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let none = Kit::in_any(vec![directory.clone()]).unwrap_err();
        assert!(none.to_string().contains("./do images"), "{none}");
        for name in [INITRAMFS, "python.erofs"] {
            std::fs::write(directory.join(name), b"").unwrap();
        }
        let kit = Kit::in_any(vec![directory.join("not-there"), directory.clone()]).unwrap();
        assert!(matches!(kit.kernel(), Err(KitError::Missing(_))));
        assert_eq!(kit.images(), ["python"]);
        assert!(kit.image("python").unwrap().ends_with("python.erofs"));
        let refused = kit.image("pyton").unwrap_err().to_string();
        assert!(refused.contains("pyton") && refused.contains("\"python\""), "{refused}");
        assert!(matches!(kit.image("/not/there"), Err(KitError::Missing(_))));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
