use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A directory that goes away with its test.
struct Parent(PathBuf);

impl Parent {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gallery-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn files_are_private_and_numbered_on() {
    let parent = Parent::new("numbered");
    let mut gallery = Gallery::below(&parent.0, "ns/work", "main");
    let first = gallery.keep(None, "image/png", b"1").expect("kept");
    assert_eq!(first, parent.0.join("burrow-ns-work-main/01.png"));
    assert_eq!((mode(&first), mode(first.parent().expect("has one"))), (0o600, 0o700));
    let second = gallery.keep(None, "text/html; charset=utf-8", b"2").expect("kept");
    assert!(second.ends_with("02.html"), "{second:?}");
    let mut later = Gallery::below(&parent.0, "ns/work", "main");
    let third = later.keep(None, "application/x-unheard-of", b"3").expect("kept");
    assert!(third.ends_with("03.bin"), "{third:?}");
    let fourth = later.keep(None, "image/svg+xml", b"4").expect("kept");
    assert!(fourth.ends_with("04.svg"), "{fourth:?}");
}

#[test]
fn an_update_finds_its_file_again() {
    let parent = Parent::new("update");
    let mut gallery = Gallery::below(&parent.0, "work", "main");
    let path = gallery.keep(Some("plot"), "image/png", b"old").expect("kept");
    assert_eq!(gallery.update("plot", "image/png", b"new").expect("kept"), path);
    assert_eq!(fs::read(&path).expect("read"), b"new");
    assert_eq!(mode(&path), 0o600);
    let other = gallery.update("plot", "text/html", b"x").expect("kept");
    assert!(other.ends_with("02.html"), "{other:?}");
}

#[test]
fn a_directory_of_somebody_elses_is_not_used() {
    let parent = Parent::new("trap");
    let trap = parent.0.join("trap");
    fs::create_dir(&trap).expect("a directory");
    symlink(&trap, parent.0.join("burrow-work-main")).expect("a link");
    let path = Gallery::below(&parent.0, "work", "main").keep(None, "image/png", b"x");
    let expected = parent.0.join(format!("burrow-work-main-{}/01.png", std::process::id()));
    assert_eq!(path.expect("kept"), expected);
    assert_eq!(fs::read_dir(trap).expect("read").count(), 0);
}

#[test]
fn a_place_is_no_way_out_of_the_directory() {
    assert_eq!(directory_name("/run/../agent.sock", "main"), "burrow--run-..-agent.sock-main");
    assert!(directory_name(&"x/".repeat(1000), "main").len() < 120);
}

#[test]
fn code_that_shows_without_an_end_fills_no_disk() {
    let parent = Parent::new("flood");
    let mut gallery = Gallery::below(&parent.0, "work", "main");
    gallery.bytes = BYTES_MAX - 1;
    assert!(matches!(gallery.keep(None, "image/png", b"xx"), Err(GalleryError::Bytes)));
    gallery.files = FILES_MAX;
    assert!(matches!(gallery.keep(None, "image/png", b"x"), Err(GalleryError::Files)));
}
