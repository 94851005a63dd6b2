//! The effects of packages' scripts, as rules over the whole tree.

use super::{owned, path_text};
use crate::recipe::Recipe;
use crate::tree::{Content, Kind, Tree, TreeError, join};

/// Where the package of certificates has them one by one.
const CERTIFICATES: &str = "usr/share/ca-certificates/mozilla";

/// Where programs look for all of them in one file.
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// Where OpenSSL looks by itself.
const OPENSSL_LINKS: [(&str, &str); 2] = [
    ("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt"),
    ("usr/lib/ssl/certs", "/etc/ssl/certs"),
];

/// Targets of links that exist only when the image runs.
const MOUNTED: [&[u8]; 5] = [b"proc", b"sys", b"dev", b"run", b"tmp"];

/// One file out of all certificates, in the order of their names.
pub(super) fn certificates(tree: &mut Tree, mtime_s: u64) -> Result<(), TreeError> {
    let names = tree.find(CERTIFICATES.as_bytes()).and_then(|id| tree.node(id).names().cloned());
    let Some(names) = names else { return Ok(()) };
    let pieces = names
        .values()
        .filter_map(|&id| match &tree.node(id).kind {
            Kind::File(content) => Some(content.pieces()),
            _ => None,
        })
        .flatten()
        .cloned()
        .collect();
    let bundle = Kind::File(Content::from_pieces(pieces));
    tree.insert(BUNDLE.as_bytes(), owned(bundle, 0o644, mtime_s))?;
    for (path, target) in OPENSSL_LINKS {
        link(tree, path, target, mtime_s)?;
    }
    Ok(())
}

/// The links of a recipe whose targets are there.
pub(super) fn links(tree: &mut Tree, recipe: &Recipe, mtime_s: u64) -> Result<(), TreeError> {
    for (path, target) in &recipe.links {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let leads_to =
            if target.starts_with('/') { target.clone() } else { format!("{directory}/{target}") };
        if tree.resolve(leads_to.as_bytes()).is_ok() {
            link(tree, path, target, mtime_s)?;
        }
    }
    Ok(())
}

fn link(tree: &mut Tree, path: &str, target: &str, mtime_s: u64) -> Result<(), TreeError> {
    if tree.find(path.as_bytes()).is_none() {
        let symlink = Kind::Symlink(target.as_bytes().to_vec());
        tree.insert(path.as_bytes(), owned(symlink, 0o777, mtime_s))?;
    }
    Ok(())
}

/// Dangling links, except those to what is mounted when the image runs.
pub fn dangling_links(tree: &Tree) -> Vec<Vec<u8>> {
    let is_dangling = |path: &[u8], target: &[u8]| {
        if tree.resolve(path).is_ok() {
            return false;
        }
        let parent = path.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |at| &path[..at]);
        let mut way: Vec<&[u8]> = Vec::new();
        let whole = if target.starts_with(b"/") { target.to_vec() } else { join(parent, target) };
        for name in whole.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(way.pop()),
                name => way.push(name),
            }
        }
        !way.first().is_some_and(|first| MOUNTED.contains(first))
    };
    tree.walk_all()
        .into_iter()
        .filter(|(path, id)| match &tree.node(*id).kind {
            Kind::Symlink(target) => is_dangling(path, target),
            _ => false,
        })
        .map(|(path, _)| path)
        .collect()
}

/// Files that run as their owner or group, with their modes.
pub fn set_id_files(tree: &Tree) -> Vec<(String, u16)> {
    tree.walk_all()
        .into_iter()
        .filter_map(|(path, id)| {
            let node = tree.node(id);
            let is_file = matches!(node.kind, Kind::File(_));
            (is_file && node.metadata.mode & 0o6000 != 0)
                .then(|| (path_text(&path), node.metadata.mode))
        })
        .collect()
}
