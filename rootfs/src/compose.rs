//! Turns packages into a tree: what is unpacked where, and the effects of packages' scripts.
//!
//! The builder calls it with packages in the order of their names, so that the same packages give
//! the same tree. `skeleton` has the files that no package brings.

mod rules;
mod skeleton;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::debian::package::{Entry, Kind as Packed};
use crate::recipe::Recipe;
use crate::tree::{Content, Kind, Metadata, Node, NodeId, Tree, TreeError, shown};

pub use rules::{dangling_links, set_id_files};
pub use skeleton::{AGENT_PATH, INIT_PATH};

/// Directories of the root that are links to those of the same name below /usr.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// A package that was unpacked.
#[derive(Clone, Debug)]
pub struct Layer {
    pub package: String,
    pub entries: Vec<Entry>,
    /// The file with all contents in a row.
    pub contents: Arc<Path>,
}

/// Why packages do not make a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    #[error("{package}: {source}")]
    Package { package: String, source: TreeError },
    #[error("{package} and {other} both have {path} with different content")]
    Conflict { package: String, other: String, path: String },
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// The whole tree of an image.
pub fn compose(
    recipe: &Recipe,
    layers: &[Layer],
    agent: Content,
    mtime_s: u64,
) -> Result<Tree, ComposeError> {
    let mut tree = skeleton::directories(mtime_s)?;
    let mut owners = BTreeMap::new();
    for layer in layers {
        add(&mut tree, recipe, layer, mtime_s, &mut owners)?;
    }
    skeleton::files(&mut tree, agent, mtime_s)?;
    rules::certificates(&mut tree, mtime_s)?;
    rules::links(&mut tree, recipe, mtime_s)?;
    // Exclusions leave dangling links behind, and links to those.
    loop {
        let dangling = dangling_links(&tree);
        if dangling.is_empty() {
            return Ok(tree);
        }
        for path in dangling {
            tree.remove(&path);
        }
    }
}

/// Unpacks one package into the tree.
fn add<'a>(
    tree: &mut Tree,
    recipe: &Recipe,
    layer: &'a Layer,
    mtime_s: u64,
    owners: &mut BTreeMap<String, &'a Layer>,
) -> Result<(), ComposeError> {
    let failed = |source| ComposeError::Package { package: layer.package.clone(), source };
    for entry in &layer.entries {
        let path = merged(&entry.path);
        if path.is_empty() || MERGED.contains(&path.as_str()) || recipe.excludes(&path) {
            continue;
        }
        let metadata = Metadata { mode: entry.mode, uid: entry.uid, gid: entry.gid, mtime_s };
        let kind = match &entry.kind {
            Packed::Directory => {
                // A directory of one package may be another's link to a directory, as with dpkg.
                let is_link = |id| matches!(tree.node(id).kind, Kind::Symlink(_));
                if tree.find(path.as_bytes()).is_some_and(is_link) {
                    continue;
                }
                Kind::Directory(BTreeMap::new())
            }
            Packed::File { offset, bytes, sha256 } => Kind::File(Content::from_slice(
                layer.contents.clone(),
                *offset,
                *bytes,
                Some(*sha256),
            )),
            Packed::Symlink { target } => Kind::Symlink(target.clone().into_bytes()),
            Packed::HardLink { target } => {
                let target = merged(target);
                // The first name may be excluded where the second is not.
                if !recipe.excludes(&target) {
                    tree.link(path.as_bytes(), target.as_bytes()).map_err(failed)?;
                }
                continue;
            }
        };
        let node = Node::new(metadata, kind);
        if node.names().is_none() {
            if let Some(other) = owners.get(&path)
                && !same(tree, &path, &node)
            {
                let (package, other) = (layer.package.clone(), other.package.clone());
                return Err(ComposeError::Conflict { package, other, path });
            }
            owners.insert(path.clone(), layer);
        }
        tree.insert(path.as_bytes(), node).map_err(failed)?;
    }
    Ok(())
}

/// Whether the tree has exactly this node at a path.
fn same(tree: &Tree, path: &str, node: &Node) -> bool {
    let there = tree.find(path.as_bytes()).map(|id: NodeId| tree.node(id));
    there.is_some_and(|there| match (&there.kind, &node.kind) {
        (Kind::File(left), Kind::File(right)) => {
            there.metadata == node.metadata && left.known_sha256() == right.known_sha256()
        }
        _ => there == node,
    })
}

/// A path of a package where everything below /bin, /sbin and /lib is below /usr.
fn merged(path: &str) -> String {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    if MERGED.contains(&first) && !rest.is_empty() {
        format!("usr/{path}")
    } else {
        path.to_owned()
    }
}

/// A node that root owns.
fn owned(kind: Kind, mode: u16, mtime_s: u64) -> Node {
    Node::new(Metadata::root(mode, mtime_s), kind)
}

/// For messages about the tree.
fn path_text(path: &[u8]) -> String {
    format!("/{}", shown(path))
}
