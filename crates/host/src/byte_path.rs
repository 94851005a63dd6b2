//! Paths of archives and trees as bytes: relative, components separated by slashes, the root empty.
//! Pure.

/// A path as its directory and its last component.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    }
}

pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

/// The components of a path, with `..` resolved.
pub fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let mut components: Vec<Vec<u8>> = Vec::new();
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => drop(components.pop()),
            name => components.push(name.to_vec()),
        }
    }
    components
}

/// Whether a path leaves its root through `..`.
pub fn climbs(path: &[u8]) -> bool {
    let mut depth = 0_i64;
    path.split(|byte| *byte == b'/').any(|component| {
        depth += match component {
            b"" | b"." => 0,
            b".." => -1,
            _ => 1,
        };
        depth < 0
    })
}

/// The ends of all parent directories of a path, and the path itself.
pub fn ends(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.chain([path.len()]).filter(|end| *end > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_apart_and_together() {
        for path in [&b"a"[..], b"a/b", b"a/b/c"] {
            let (above, name) = split(path);
            assert_eq!(join(above, name), path);
        }
        assert_eq!(split(b""), (&b""[..], &b""[..]));
        assert_eq!(components(b"/a/./b//../c/"), [b"a", b"c"]);
        assert_eq!(components(b"../.."), [&b""[..]; 0]);
        assert!(climbs(b"a/../..") && climbs(b"..") && !climbs(b"a/../b/.."));
        assert_eq!(ends(b"a/bc/d").collect::<Vec<_>>(), [1, 4, 6]);
        assert_eq!(ends(b"").count(), 0);
    }
}
