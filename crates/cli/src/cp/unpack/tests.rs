use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use archive::{END_OF_ARCHIVE, encode_entry, padding};

use super::super::pack::pack;
use super::*;

/// A directory of a test's own, gone at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("burrow-unpack-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("in")).expect("a directory for the test");
        fs::write(path.join("precious"), "untouched").expect("a file for the test");
        Self(path)
    }

    fn destination(&self) -> PathBuf {
        self.0.join("in")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        assert_eq!(fs::read_to_string(self.0.join("precious")).ok().as_deref(), Some("untouched"));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(path: &str, kind: Kind, mode: u32) -> Entry {
    Entry { path: path.into(), kind, mode, uid: 0, gid: 0, mtime_s: 1_000, mtime_ns: 5 }
}

fn directory(path: &str) -> (Entry, Vec<u8>) {
    (entry(path, Kind::Directory, 0o755), Vec::new())
}

fn file(path: &str, content: &str) -> (Entry, Vec<u8>) {
    (entry(path, Kind::File { size: content.len() as u64 }, 0o644), content.into())
}

fn link(path: &str, target: &str) -> (Entry, Vec<u8>) {
    (entry(path, Kind::Symlink { target: target.into() }, 0o777), Vec::new())
}

fn hard_link(path: &str, target: &str) -> (Entry, Vec<u8>) {
    (entry(path, Kind::HardLink { target: target.into() }, 0o644), Vec::new())
}

fn archive(entries: &[(Entry, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (entry, content) in entries {
        encode_entry(entry, &mut bytes).expect("an entry that can be written");
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(padding(content.len() as u64));
    }
    bytes.extend_from_slice(END_OF_ARCHIVE);
    bytes
}

fn unpack(
    scratch: &Scratch,
    named: RootName,
    entries: &[(Entry, Vec<u8>)],
) -> Result<Unpacked, UnpackError> {
    let mut unpacker = Unpacker::new(&scratch.destination(), named)?;
    for piece in archive(entries).chunks(700) {
        unpacker.push(piece)?;
    }
    unpacker.finish()
}

fn named(name: &str) -> RootName {
    RootName::As(name.into())
}

#[test]
fn a_tree_arrives_under_the_name_that_was_asked_for() {
    let scratch = Scratch::new("tree");
    let entries = [
        directory("src"),
        directory("src/a"),
        file("src/a/f", "hello"),
        link("src/l", "a/f"),
        hard_link("src/h", "src/a/f"),
    ];
    let unpacked = unpack(&scratch, named("copy"), &entries).expect("a good archive");
    assert_eq!(unpacked, Unpacked { entries: 5, left_out: 0 });
    let root = scratch.destination().join("copy");
    assert_eq!(fs::read_to_string(root.join("a/f")).expect("the file"), "hello");
    assert_eq!(fs::read_link(root.join("l")).expect("the link"), PathBuf::from("a/f"));
    assert_eq!(fs::metadata(root.join("h")).expect("the hard link").nlink(), 2);
    assert_eq!(fs::metadata(root.join("a")).expect("the directory").mtime(), 1_000);
    assert!(!scratch.destination().join("src").exists());
}

#[test]
fn contents_go_into_the_destination_itself() {
    for root in ["src", "."] {
        let scratch = Scratch::new("contents");
        let below = format!("{root}/f");
        unpack(&scratch, RootName::Contents, &[directory(root), file(&below, "x")]).expect("good");
        assert!(scratch.destination().join("f").exists(), "{root}");
    }
}

#[test]
fn an_archive_cannot_name_a_second_thing() {
    let scratch = Scratch::new("second");
    let entries = [directory("src"), file("bashrc", "evil")];
    let refused = unpack(&scratch, named("src"), &entries);
    assert!(matches!(refused, Err(UnpackError::Elsewhere { .. })), "{refused:?}");
    let hidden = [directory("src"), file("src/f", ""), hard_link("src/h", "precious")];
    assert!(matches!(unpack(&scratch, named("src"), &hidden), Err(UnpackError::Elsewhere { .. })));
}

#[test]
fn paths_that_climb_or_are_absolute_are_refused() {
    for path in ["../precious", "src/../../precious", "/etc/x"] {
        let scratch = Scratch::new("climb");
        let refused = unpack(&scratch, named("src"), &[file(path, "evil")]);
        assert!(matches!(refused, Err(UnpackError::Archive(_))), "{path}: {refused:?}");
    }
}

#[test]
fn a_planted_link_leads_nowhere() {
    let through =
        |way: &str| [directory("src"), link("src/way", way), file("src/way/precious", "evil")];
    for way in ["..", "../..", "/", "/tmp", "."] {
        let scratch = Scratch::new("planted");
        let refused = unpack(&scratch, named("src"), &through(way));
        assert!(matches!(refused, Err(UnpackError::Escape { .. })), "{way}: {refused:?}");
    }
}

#[test]
fn a_planted_link_is_replaced_and_not_written_through() {
    let scratch = Scratch::new("through");
    let entries = [directory("src"), link("src/f", "../../precious"), file("src/f", "mine")];
    unpack(&scratch, named("src"), &entries).expect("replaces the link");
    let written = scratch.destination().join("src/f");
    assert!(fs::symlink_metadata(&written).expect("the file").is_file());
    assert_eq!(fs::read_to_string(written).expect("the file"), "mine");
}

#[test]
fn a_hard_link_to_a_planted_link_is_the_link() {
    let scratch = Scratch::new("hard");
    let entries = [
        directory("src"),
        link("src/l", "../../precious"),
        hard_link("src/h", "src/l"),
        file("src/h", "mine"),
    ];
    unpack(&scratch, named("src"), &entries).expect("never follows");
    assert!(fs::symlink_metadata(scratch.destination().join("src/h")).expect("h").is_file());
}

#[test]
fn a_link_of_the_host_in_the_way_is_not_followed_either() {
    let scratch = Scratch::new("own");
    symlink(&scratch.0, scratch.destination().join("src")).expect("a link");
    let refused = unpack(&scratch, named("src"), &[directory("src"), file("src/precious", "evil")]);
    assert!(matches!(refused, Err(UnpackError::Escape { .. })), "{refused:?}");
}

#[test]
fn set_id_bits_are_dropped_and_devices_are_not_made() {
    let scratch = Scratch::new("bits");
    let (mut suid, content) = file("src/suid", "x");
    suid.mode = 0o7755;
    let device = entry("src/null", Kind::CharDevice { major: 1, minor: 3 }, 0o666);
    let fifo = entry("src/pipe", Kind::Fifo, 0o666);
    let entries = [directory("src"), (suid, content), (device, vec![]), (fifo, vec![])];
    let unpacked = unpack(&scratch, named("src"), &entries).expect("a good archive");
    assert_eq!(unpacked, Unpacked { entries: 2, left_out: 2 });
    let root = scratch.destination().join("src");
    let mode = fs::metadata(root.join("suid")).expect("the file").permissions().mode();
    assert_eq!(mode & 0o7000, 0);
    assert!(!root.join("null").exists() && !root.join("pipe").exists());
}

#[test]
fn a_directory_without_write_permission_is_filled_first() {
    let scratch = Scratch::new("narrow");
    let mut narrow = directory("src");
    narrow.0.mode = 0o500;
    unpack(&scratch, named("src"), &[narrow, file("src/f", "x")]).expect("fills it");
    let root = scratch.destination().join("src");
    let mode = fs::metadata(&root).expect("the directory").permissions().mode();
    assert_eq!(mode & 0o700, 0o500);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).expect("so that it can go");
}

#[test]
fn an_archive_that_is_cut_off_is_an_error() {
    let scratch = Scratch::new("cut");
    let bytes = archive(&[directory("src"), file("src/f", "hello")]);
    let mut unpacker = Unpacker::new(&scratch.destination(), named("src")).expect("a destination");
    unpacker.push(&bytes[..1_100]).expect("good so far");
    assert!(matches!(unpacker.finish(), Err(UnpackError::Archive(_))));
}

#[test]
fn a_packed_tree_unpacks_to_the_same() {
    let scratch = Scratch::new("round");
    let source = scratch.0.join("source");
    fs::create_dir_all(source.join("deep/er")).expect("directories");
    fs::write(source.join("deep/er/big"), vec![7_u8; 600_000]).expect("a file");
    fs::write(source.join("empty"), "").expect("a file");
    symlink("deep", source.join("way")).expect("a link");
    let mut unpacker = Unpacker::new(&scratch.destination(), named("copy")).expect("a destination");
    let packed = pack(&source, Some(b"whatever"), |piece| {
        unpacker.push(&piece).expect("our own archive");
        true
    })
    .expect("a readable tree");
    assert_eq!(packed.entries, 6);
    assert_eq!(unpacker.finish().expect("whole").entries, 6);
    let copy = scratch.destination().join("copy");
    assert_eq!(fs::read(copy.join("deep/er/big")).expect("the file"), vec![7_u8; 600_000]);
    assert_eq!(fs::read_link(copy.join("way")).expect("the link"), PathBuf::from("deep"));
}

#[test]
fn packing_stops_when_nobody_wants_more() {
    let scratch = Scratch::new("unwanted");
    assert!(matches!(
        pack(&scratch.0, None, |_| false),
        Err(super::super::pack::PackError::Unwanted)
    ));
}
