//! The kernel kit: a kernel in both forms, and an initramfs whose init is the agent.
//!
//! The builder calls it with the content of the kernel's package. The recipe lists the modules, and their
//! dependencies determine the order in which the agent loads them.

mod image;
mod lz4;
mod modules;

pub use image::{ImageError, extract};
pub use modules::{Module, ModuleError, Modules, without_signature};

use crate::tree::{Content, Device, Kind, Metadata, Node, Tree, TreeError};

/// Where the agent looks for modules, and the list of their files in loading order.
pub const MODULES_DIRECTORY: &str = "modules";
pub const MODULES_ORDER: &str = "modules/order";

/// Directories that the agent mounts things on before it has a root.
const DIRECTORIES: [&str; 5] = ["dev", "proc", "sys", "run", "newroot"];

/// A module of the initramfs.
pub struct PackedModule {
    pub file: String,
    /// The virtio device that it is loaded for; each costs some boot time.
    pub device: Option<String>,
    pub content: Content,
}

/// The tree of an initramfs.
pub fn initramfs(
    agent: Content,
    modules: Vec<PackedModule>,
    mtime_s: u64,
) -> Result<Tree, TreeError> {
    let metadata = |mode| Metadata::root(mode, mtime_s);
    let mut tree = Tree::new(metadata(0o755));
    for name in DIRECTORIES {
        let directory = Kind::Directory(std::collections::BTreeMap::new());
        tree.insert(name.as_bytes(), Node::new(metadata(0o755), directory))?;
    }
    // The kernel opens the console for init before anything is mounted on /dev.
    for (name, mode, minor, major) in [("console", 0o600, 1, 5), ("null", 0o666, 3, 1)] {
        let device = Kind::CharDevice(Device { major, minor });
        tree.insert(format!("dev/{name}").as_bytes(), Node::new(metadata(mode), device))?;
    }
    tree.insert(b"init", Node::new(metadata(0o755), Kind::File(agent)))?;
    let line = |packed: &PackedModule| match &packed.device {
        Some(device) => format!("{} {device}\n", packed.file),
        None => format!("{}\n", packed.file),
    };
    let order: String = modules.iter().map(line).collect();
    let order = Kind::File(Content::from_bytes(order));
    tree.insert(MODULES_ORDER.as_bytes(), Node::new(metadata(0o644), order))?;
    for PackedModule { file, content, .. } in modules {
        let path = format!("{MODULES_DIRECTORY}/{file}");
        tree.insert(path.as_bytes(), Node::new(metadata(0o644), Kind::File(content)))?;
    }
    Ok(tree)
}
