//! A file tree as a value: an image's content before it is written.
//!
//! Packages are unpacked into one, rules change it, writers (`erofs`, `cpio`) turn it into an image
//! and `erofs::read` turns an image back into it. Contents stay where they are and are only pointed
//! at. Nothing here ever touches a file of the host by a name that a package has chosen.

mod content;

use std::collections::BTreeMap;

pub use content::{Content, ContentReader, Piece};

/// How many symbolic links a path may lead through; the kernel's own limit.
pub const LINKS_FOLLOWED_MAX: usize = 40;

/// The largest name of one component, which is the kernel's `NAME_MAX`.
pub const NAME_BYTES_MAX: usize = 255;

/// Permissions, set-id and sticky: the valid bits of a mode here.
pub const MODE_MASK: u16 = 0o7777;

/// A node of one tree; several names may lead to it, which is a hard link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

impl NodeId {
    /// The root directory, which every tree has.
    pub const ROOT: Self = Self(0);
}

/// Owner, mode and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Only the bits of [`MODE_MASK`].
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970.
    pub mtime_s: u64,
}

impl Metadata {
    /// Root's, with a mode.
    pub fn root(mode: u16, mtime_s: u64) -> Self {
        Self { mode, uid: 0, gid: 0, mtime_s }
    }
}

/// One file, directory or other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub metadata: Metadata,
    pub kind: Kind,
    /// Full names (`security.capability`) and values.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Node {
    pub fn new(metadata: Metadata, kind: Kind) -> Self {
        Self { metadata, kind, xattrs: BTreeMap::new() }
    }

    /// Its names, if it is a directory.
    pub fn names(&self) -> Option<&BTreeMap<Vec<u8>, NodeId>> {
        match &self.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }
}

/// The type of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory(BTreeMap<Vec<u8>, NodeId>),
    File(Content),
    /// The target is free text, as it is for the kernel.
    Symlink(Vec<u8>),
    CharDevice(Device),
    BlockDevice(Device),
    Fifo,
    Socket,
}

/// The numbers of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

/// Why a tree cannot be changed or followed as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("no such file in the tree: {path}")]
    NotFound { path: String },
    #[error("{path}: a parent is not a directory")]
    ParentNotADirectory { path: String },
    #[error("{path}: leads through the symbolic link {link}")]
    ThroughSymlink { path: String, link: String },
    #[error("{path}: a directory has that name")]
    IsADirectory { path: String },
    #[error("{path}: a directory cannot have a second name")]
    LinkToDirectory { path: String },
    #[error("bad path {path}: {why}")]
    BadPath { path: String, why: &'static str },
    #[error("{path}: more than {LINKS_FOLLOWED_MAX} symbolic links")]
    TooManyLinks { path: String },
}

/// A root directory and all below it.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// The attributes of directories without an entry.
    parents: Metadata,
}

impl Tree {
    /// A tree with nothing but its root; parents that appear unasked look like the root.
    pub fn new(root: Metadata) -> Self {
        Self { nodes: vec![Node::new(root, Kind::Directory(BTreeMap::new()))], parents: root }
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0]
    }

    /// Puts a node at a path; missing parents are made. A directory over a directory keeps the old
    /// content; anything else is replaced, except a directory by something else.
    pub fn insert(&mut self, path: &[u8], node: Node) -> Result<NodeId, TreeError> {
        let Some((parent, name)) = self.make_parents(path)? else {
            self.nodes[0].metadata = node.metadata;
            self.nodes[0].xattrs = node.xattrs;
            return Ok(NodeId::ROOT);
        };
        if let Some(old) = self.child(parent, &name)
            && self.node(old).names().is_some()
        {
            if node.names().is_none() {
                return Err(TreeError::IsADirectory { path: shown(path) });
            }
            let old_node = self.node_mut(old);
            old_node.metadata = node.metadata;
            old_node.xattrs = node.xattrs;
            return Ok(old);
        }
        let id = NodeId(self.nodes.len());
        self.nodes.push(node);
        self.names_mut(parent).insert(name, id);
        Ok(id)
    }

    /// Gives a node that has a name another one.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<NodeId, TreeError> {
        let id = self.find(target).ok_or_else(|| TreeError::NotFound { path: shown(target) })?;
        if self.node(id).names().is_some() {
            return Err(TreeError::LinkToDirectory { path: shown(path) });
        }
        let root = || TreeError::IsADirectory { path: shown(path) };
        let (parent, name) = self.make_parents(path)?.ok_or_else(root)?;
        if self.child(parent, &name).is_some_and(|old| self.node(old).names().is_some()) {
            return Err(root());
        }
        self.names_mut(parent).insert(name, id);
        Ok(id)
    }

    /// Takes a name away, and all below it; whether there was one.
    pub fn remove(&mut self, path: &[u8]) -> bool {
        let Ok(mut components) = components(path) else { return false };
        let Some(name) = components.pop() else { return false };
        let name = name.to_vec();
        let Some(parent) = self.walk(&components) else { return false };
        match &mut self.nodes[parent.0].kind {
            Kind::Directory(names) => names.remove(&name).is_some(),
            _ => false,
        }
    }

    /// The node at a path, without following symbolic links.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        self.walk(&components(path).ok()?)
    }

    /// The node at a path, with symbolic links resolved inside the root.
    pub fn resolve(&self, path: &[u8]) -> Result<NodeId, TreeError> {
        let mut followed = 0;
        let mut todo: Vec<Vec<u8>> = split(path).rev().map(<[u8]>::to_vec).collect();
        let mut way = vec![NodeId::ROOT];
        while let Some(name) = todo.pop() {
            if name == b".." {
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let here = *way.last().expect("the root stays");
            let child =
                self.child(here, &name).ok_or_else(|| TreeError::NotFound { path: shown(path) })?;
            if let Kind::Symlink(target) = &self.node(child).kind {
                followed += 1;
                if followed > LINKS_FOLLOWED_MAX {
                    return Err(TreeError::TooManyLinks { path: shown(path) });
                }
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                todo.extend(split(target).rev().map(<[u8]>::to_vec));
            } else {
                way.push(child);
            }
        }
        Ok(*way.last().expect("the root stays"))
    }

    /// Every name with its node, parents first and siblings in the order of their bytes; the root
    /// is the empty path.
    pub fn walk_all(&self) -> Vec<(Vec<u8>, NodeId)> {
        let mut found = Vec::new();
        let mut todo = vec![(Vec::new(), NodeId::ROOT)];
        while let Some((path, id)) = todo.pop() {
            if let Some(names) = self.node(id).names() {
                for (name, &child) in names.iter().rev() {
                    todo.push((join(&path, name), child));
                }
            }
            found.push((path, id));
        }
        found
    }

    fn child(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        self.node(directory).names()?.get(name).copied()
    }

    fn walk(&self, components: &[&[u8]]) -> Option<NodeId> {
        components.iter().try_fold(NodeId::ROOT, |here, name| self.child(here, name))
    }

    /// The directory that a path's last component is in, made if need be; nothing for the root.
    fn make_parents(&mut self, path: &[u8]) -> Result<Option<(NodeId, Vec<u8>)>, TreeError> {
        let mut components = components(path)?;
        let Some(last) = components.pop() else { return Ok(None) };
        let mut here = NodeId::ROOT;
        for (depth, name) in components.iter().enumerate() {
            here = match self.child(here, name) {
                None => {
                    let id = NodeId(self.nodes.len());
                    self.nodes.push(Node::new(self.parents, Kind::Directory(BTreeMap::new())));
                    self.names_mut(here).insert(name.to_vec(), id);
                    id
                }
                Some(child) => match self.node(child).kind {
                    Kind::Directory(_) => child,
                    Kind::Symlink(_) => {
                        let link = shown(&components[..=depth].join(&b'/'));
                        return Err(TreeError::ThroughSymlink { path: shown(path), link });
                    }
                    _ => return Err(TreeError::ParentNotADirectory { path: shown(path) }),
                },
            };
        }
        Ok(Some((here, last.to_vec())))
    }

    fn names_mut(&mut self, directory: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match &mut self.nodes[directory.0].kind {
            Kind::Directory(names) => names,
            _ => unreachable!("callers have walked to a directory"),
        }
    }
}

/// A path below another.
pub fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, name].join(&b'/') }
}

/// A path in readable form, whatever its bytes.
pub fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

fn split(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// The components of a path below the root, where a leading slash is as good as none.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, TreeError> {
    let bad = |why| TreeError::BadPath { path: shown(path), why };
    let components: Vec<&[u8]> = split(path).collect();
    for name in &components {
        if *name == b".." {
            return Err(bad("it climbs"));
        }
        if name.contains(&0) {
            return Err(bad("a NUL byte"));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(bad("a name of more than 255 bytes"));
        }
    }
    Ok(components)
}

#[cfg(test)]
mod tests;
