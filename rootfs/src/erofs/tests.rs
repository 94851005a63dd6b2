//! Trees through the writer and back through the reader, and images that lie.

use std::collections::BTreeMap;
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::listing;
use crate::tree::{Content, Device, Kind, Metadata, Node, Tree};

fn image(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = Options { time_s: 5, uuid: [7; 16], label: "test" };
    let written = write(tree, &options, &mut bytes).expect("a vector takes all");
    assert_eq!(written.bytes, bytes.len() as u64);
    assert_eq!(bytes.len() as u64 % BLOCK_BYTES, 0);
    bytes
}

fn reopened(bytes: &[u8]) -> (TempDir, Result<Tree, ReadError>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    std::fs::write(&path, bytes).expect("a file");
    let tree = read(&path);
    (directory, tree)
}

fn lines(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    listing::lines(tree, true, &mut |line| {
        lines.push(line.to_owned());
        Ok(())
    })
    .expect("readable contents");
    lines
}

fn node(mode: u16, kind: Kind) -> Node {
    Node::new(Metadata { mode, uid: 0, gid: 0, mtime_s: 5 }, kind)
}

fn file(bytes: usize) -> Node {
    let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    node(0o644, Kind::File(Content::from_bytes(content)))
}

/// One of everything that an image can hold.
fn zoo() -> Tree {
    let mut tree = Tree::new(Metadata::root(0o755, 5));
    let mut insert = |path: &str, node| {
        tree.insert(path.as_bytes(), node).expect("a proper path");
    };
    for bytes in [0, 1, 1000, 4000, 4063, 4064, 4065, 4095, 4096, 4097, 8192, 9000, 20_000] {
        insert(&format!("sizes/{bytes}"), file(bytes));
    }
    // Names that sort before the dots, and more than a block of them.
    for name in 0..500 {
        insert(
            &format!("many/{}name-{name:0>40}", if name % 2 == 0 { "!" } else { "z" }),
            file(name),
        );
    }
    insert("empty", node(0o1777, Kind::Directory(BTreeMap::new())));
    insert("link", node(0o777, Kind::Symlink(b"sizes/1".to_vec())));
    insert("long", node(0o777, Kind::Symlink(vec![b'x'; 4090])));
    insert("dev/null", node(0o666, Kind::CharDevice(Device { major: 1, minor: 3 })));
    insert("dev/big", node(0o600, Kind::BlockDevice(Device { major: 259, minor: 70_000 })));
    insert("pipe", node(0o600, Kind::Fifo));
    insert("socket", node(0o600, Kind::Socket));
    insert("setuid", node(0o4755, Kind::File(Content::from_bytes("#!"))));
    let foreign = Metadata { mode: 0o640, uid: 100_000, gid: 70_000, mtime_s: 1_700_000_000 };
    let mut extended = Node::new(foreign, Kind::File(Content::from_bytes(vec![9; 5000])));
    extended.xattrs.insert(b"security.capability".to_vec(), vec![1; 20]);
    extended.xattrs.insert(b"user.note".to_vec(), b"hello".to_vec());
    insert("extended", extended);
    tree.link(b"many/hard", b"sizes/9000").expect("a file");
    tree.link(b"hard", b"sizes/9000").expect("a file");
    tree
}

#[test]
fn everything_comes_back_as_it_went_in() {
    let tree = zoo();
    let bytes = image(&tree);
    let (_directory, read) = reopened(&bytes);
    let read = read.expect("an image");
    assert_eq!(lines(&read), lines(&tree));
    assert_eq!(read.find(b"hard"), read.find(b"sizes/9000"));
    let times = |tree: &Tree| -> Vec<u64> {
        tree.walk_all().iter().map(|(_, id)| tree.node(*id).metadata.mtime_s).collect()
    };
    assert_eq!(times(&read), times(&tree));
    assert_eq!(image(&read), bytes, "an image of an image is the same image");
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    assert_eq!(image(&zoo()), image(&zoo()));
}

#[test]
fn the_tools_of_erofs_find_nothing_wrong_and_extract_the_same() {
    if crate::fetch::on_path("fsck.erofs").is_none() {
        return crate::skipped("there is no fsck.erofs here");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    let mut tree = zoo();
    // Files that only root may extract.
    for path in ["dev", "extended", "socket"] {
        tree.remove(path.as_bytes());
    }
    std::fs::write(&path, image(&tree)).expect("a file");
    let out = directory.path().join("out");
    let output = Command::new("fsck.erofs")
        .arg(format!("--extract={}", out.display()))
        .arg("--no-preserve")
        .arg(&path)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (path, id) in tree.walk_all() {
        let path = out.join(String::from_utf8(path).expect("ours are UTF-8"));
        match &tree.node(id).kind {
            Kind::File(content) => {
                let expected = crate::tree::ContentReader::new().read(content).expect("in memory");
                assert_eq!(std::fs::read(&path).expect("extracted"), expected, "{path:?}");
            }
            Kind::Symlink(target) => {
                let found = std::fs::read_link(&path).expect("extracted");
                assert_eq!(found.as_os_str().as_encoded_bytes(), target, "{path:?}");
            }
            _ => assert!(path.symlink_metadata().is_ok(), "{path:?}"),
        }
    }
}

#[test]
fn images_that_lie_are_refused_and_never_a_panic() {
    let whole = image(&zoo());
    assert!(matches!(reopened(&whole[..whole.len() - 4096]).1, Err(ReadError::Malformed { .. })));
    assert!(reopened(b"short").1.is_err());
    let mut other = whole.clone();
    other[1024] ^= 1;
    assert!(matches!(reopened(&other).1, Err(ReadError::Superblock(SuperblockError::Magic(_)))));
    let mut other = whole;
    other[1024 + 20] ^= 1;
    let result = reopened(&other).1;
    assert!(matches!(result, Err(ReadError::Superblock(SuperblockError::Checksum { .. }))));
}

/// A file behind this many directories with names of `name_bytes` bytes each.
fn deep(directories: usize, name_bytes: usize) -> Tree {
    let mut tree = Tree::new(Metadata::root(0o755, 5));
    let path = format!("{}/", "d".repeat(name_bytes)).repeat(directories) + "file";
    tree.insert(path.as_bytes(), file(1)).expect("a proper path");
    tree
}

#[test]
fn a_path_may_be_as_long_as_the_kernel_takes_it_and_no_longer() {
    let whole = deep(15, 255);
    let (_directory, read) = reopened(&image(&whole));
    assert_eq!(lines(&read.expect("an image")), lines(&whole));
    for tree in [deep(16, 255), deep(2047, 1)] {
        let result = reopened(&image(&tree)).1;
        assert!(
            matches!(result, Err(ReadError::Malformed { what: "a path that is too long", .. })),
            "{:?}",
            result.err()
        );
    }
}

#[test]
fn more_paths_than_are_read_are_refused() {
    // One file of many names far down: few bytes of an image, and each name has its whole path.
    let parent = format!("{}/", "d".repeat(255)).repeat(15);
    let mut tree = deep(15, 255);
    for name in 0..100 {
        let path = format!("{parent}{name}");
        tree.link(path.as_bytes(), format!("{parent}file").as_bytes()).expect("a file");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    std::fs::write(&path, image(&tree)).expect("a file");
    assert!(read(&path).is_ok());
    let result = read::read_within(&path, 100 * parent.len());
    assert!(matches!(result, Err(ReadError::TooManyPaths)), "{:?}", result.err());
}

#[test]
fn contents_that_share_bytes_are_refused() {
    let mut tree = Tree::new(Metadata::root(0o755, 5));
    for name in ["a", "b"] {
        let content = vec![name.as_bytes()[0]; 64 * BLOCK_BYTES as usize];
        tree.insert(name.as_bytes(), node(0o644, Kind::File(Content::from_bytes(content))))
            .expect("a proper path");
    }
    let mut bytes = image(&tree);
    assert!(reopened(&bytes).1.is_ok());
    // Both say that they have everything from the first block on: each is in the image, not both.
    let blocks = bytes.len() as u64 / BLOCK_BYTES;
    for slot in bytes[INODES_START as usize..].chunks_exact_mut(SLOT_BYTES as usize) {
        if slot[8..12] == (64 * BLOCK_BYTES as u32).to_le_bytes() {
            slot[8..12].copy_from_slice(&((blocks * BLOCK_BYTES) as u32).to_le_bytes());
            slot[16..20].copy_from_slice(&0_u32.to_le_bytes());
        }
    }
    let result = reopened(&bytes).1;
    assert!(
        matches!(
            result,
            Err(ReadError::Malformed { what: "the files have more bytes than the image", .. })
        ),
        "{:?}",
        result.err()
    );
}

#[test]
fn attributes_of_no_known_namespace_and_too_large_ones_are_refused() {
    for (name, bytes) in [(&b"other.name"[..], 1), (b"user.large", 5000), (b"user.huge", 70_000)] {
        let mut tree = Tree::new(Metadata::root(0o755, 0));
        let mut node = file(1);
        node.xattrs.insert(name.to_vec(), vec![0; bytes]);
        tree.insert(b"file", node).expect("a proper path");
        let result = write(&tree, &Options::default(), std::io::sink());
        assert!(matches!(result, Err(WriteError::Xattr { .. })), "{bytes}");
    }
}

/// Trees of any shape.
fn any_tree() -> impl Strategy<Value = Tree> {
    let kind = prop_oneof![
        (0_usize..12_000).prop_map(|bytes| file(bytes).kind),
        "[a-z/.]{1,300}".prop_map(|target| Kind::Symlink(target.into_bytes())),
        Just(Kind::Directory(BTreeMap::new())),
        Just(Kind::Fifo),
    ];
    let metadata = (0_u16..0o10000, 0_u32..200_000, any::<u32>(), 0_u64..10);
    let entry = ("[ -.0-~]{1,60}(/[ -.0-~]{1,200}){0,3}", metadata, kind);
    proptest::collection::vec(entry, 0..60).prop_map(|entries| {
        let mut tree = Tree::new(Metadata::root(0o755, 5));
        for (path, (mode, uid, gid, mtime_s), kind) in entries {
            // Names may be in each other's way, and then one of them is not there.
            let _ =
                tree.insert(path.as_bytes(), Node::new(Metadata { mode, uid, gid, mtime_s }, kind));
        }
        tree
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_back_as_it_went_in(tree in any_tree()) {
        let (_directory, read) = reopened(&image(&tree));
        prop_assert_eq!(lines(&read.expect("an image")), lines(&tree));
    }

    #[test]
    fn no_damage_to_an_image_makes_the_reader_panic(
        damage in proptest::collection::vec((4096_usize..60_000, any::<u8>()), 1..20),
    ) {
        let mut bytes = image(&zoo());
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let (_directory, read) = reopened(&bytes);
        if let Ok(tree) = read {
            let _ = listing::digest(&tree);
        }
    }
}
