//! Trees as packages and rules change them.

use super::*;

fn directory() -> Node {
    Node::new(Metadata::root(0o755, 0), Kind::Directory(BTreeMap::new()))
}

fn file(text: &str) -> Node {
    Node::new(Metadata::root(0o644, 0), Kind::File(Content::from_bytes(text)))
}

fn symlink(target: &str) -> Node {
    Node::new(Metadata::root(0o777, 0), Kind::Symlink(target.into()))
}

fn tree(nodes: &[(&str, Node)]) -> Tree {
    let mut tree = Tree::new(Metadata::root(0o755, 0));
    for (path, node) in nodes {
        tree.insert(path.as_bytes(), node.clone()).expect("a proper path");
    }
    tree
}

#[test]
fn missing_parents_appear_and_a_directory_over_a_directory_keeps_its_files() {
    let mut tree = tree(&[("a/b/c", file("x"))]);
    let mut other = directory();
    other.metadata.mode = 0o700;
    tree.insert(b"a/b", other).expect("a directory again");
    assert_eq!(tree.node(tree.find(b"a/b").expect("there")).metadata.mode, 0o700);
    assert!(tree.find(b"/a//b/./c").is_some());
}

#[test]
fn nothing_goes_through_a_link_or_a_file_or_climbs() {
    let mut tree = tree(&[("link", symlink("/etc")), ("file", file("")), ("dir/x", file(""))]);
    let result = tree.insert(b"link/passwd", file(""));
    assert!(matches!(result, Err(TreeError::ThroughSymlink { .. })));
    let result = tree.insert(b"file/x", file(""));
    assert!(matches!(result, Err(TreeError::ParentNotADirectory { .. })));
    let result = tree.insert(b"a/../../x", file(""));
    assert!(matches!(result, Err(TreeError::BadPath { .. })));
    assert!(matches!(tree.insert(b"dir", file("")), Err(TreeError::IsADirectory { .. })));
    let long = [b'x'; NAME_BYTES_MAX + 1];
    assert!(matches!(tree.insert(&long, file("")), Err(TreeError::BadPath { .. })));
}

#[test]
fn links_are_followed_inside_of_the_tree_alone() {
    let tree = tree(&[
        ("usr/bin/sh", file("#")),
        ("bin", symlink("usr/bin")),
        ("deep/up", symlink("../../../../bin/sh")),
        ("loop", symlink("loop")),
        ("absolute", symlink("/bin/./sh")),
    ]);
    let shell = tree.find(b"usr/bin/sh");
    for path in [&b"bin/sh"[..], b"deep/up", b"absolute", b"/../bin/sh"] {
        assert_eq!(tree.resolve(path).ok(), shell, "{}", shown(path));
    }
    assert!(matches!(tree.resolve(b"loop"), Err(TreeError::TooManyLinks { .. })));
    assert!(matches!(tree.resolve(b"bin/none"), Err(TreeError::NotFound { .. })));
}

#[test]
fn a_second_name_is_the_same_file_until_it_is_replaced() {
    let mut tree = tree(&[("a", file("1")), ("dir/x", file(""))]);
    tree.link(b"dir/b", b"a").expect("a file");
    assert_eq!(tree.find(b"a"), tree.find(b"dir/b"));
    tree.insert(b"a", file("2")).expect("a new file");
    assert_ne!(tree.find(b"a"), tree.find(b"dir/b"));
    assert!(matches!(tree.link(b"c", b"dir"), Err(TreeError::LinkToDirectory { .. })));
    assert!(matches!(tree.link(b"c", b"none"), Err(TreeError::NotFound { .. })));
    assert!(tree.remove(b"dir"));
    assert!(!tree.remove(b"dir") && tree.find(b"dir/b").is_none());
}

#[test]
fn contents_are_read_in_part_and_across_their_pieces() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    std::fs::write(&path, b"0123456789").expect("a file");
    let slice = Piece::Slice { file: path.as_path().into(), offset: 2, bytes: 4 };
    let pieces = vec![Piece::Bytes((*b"ab").into()), slice, Piece::Bytes((*b"yz").into())];
    let content = Content::from_pieces(pieces);
    assert_eq!(content.bytes(), 8);
    let mut reader = ContentReader::new();
    assert_eq!(reader.read(&content).expect("readable"), b"ab2345yz");
    let mut part = Vec::new();
    let sink = &mut |bytes: &[u8]| {
        part.extend_from_slice(bytes);
        Ok::<_, std::io::Error>(())
    };
    reader.copy(&content, 1, 7, sink).expect("readable");
    assert_eq!(part, b"b2345y");
}
