//! Layers on top of each other.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

async fn root(place: &TestStore, layers: Vec<Archive>) -> PathBuf {
    let layers: Vec<_> = layers.into_iter().map(TestLayer::plain).collect();
    place.root(&layers).await.expect("a root")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn upper_files_replace_lower_ones_and_whiteouts_take_away() {
    let place = TestStore::new("layers");
    let below =
        Archive::default().dir("etc").file("etc/a", "old").file("etc/b", "b").file("c", "c");
    let above = Archive::default().file("etc/a", "new").file("etc/.wh.b", "").file(".wh.c", "");
    let root = root(&place, vec![below, above]).await;
    assert_eq!(read(&root.join("etc/a")), "new");
    assert!(!root.join("etc/b").exists() && !root.join("c").exists());
    assert_eq!(fs::read_dir(root.join("etc")).expect("etc").count(), 1);
}

#[tokio::test]
async fn an_opaque_directory_keeps_only_what_its_own_layer_has() {
    for opaque_first in [true, false] {
        let place = TestStore::new("opaque");
        let below = Archive::default().dir("d").file("d/old", "x").dir("d/sub").file("d/sub/f", "");
        let above = Archive::default().dir("d");
        let above = if opaque_first {
            above.file("d/.wh..wh..opq", "").file("d/new", "y")
        } else {
            above.file("d/new", "y").file("d/.wh..wh..opq", "")
        };
        let root = root(&place, vec![below, above]).await;
        let names: Vec<_> =
            fs::read_dir(root.join("d")).expect("d").map(|e| e.expect("e").file_name()).collect();
        assert_eq!(names, ["new"]);
    }
}

#[tokio::test]
async fn a_whiteout_of_a_linked_directory_takes_the_link_alone() {
    let place = TestStore::new("linked");
    let below = Archive::default().dir("real").file("real/f", "kept").link("way", "real");
    let root = root(&place, vec![below, Archive::default().file(".wh.way", "")]).await;
    assert_eq!(read(&root.join("real/f")), "kept");
    assert!(fs::symlink_metadata(root.join("way")).is_err());
}

#[tokio::test]
async fn a_whiteout_does_not_touch_its_own_layer() {
    let place = TestStore::new("own");
    let below = Archive::default().file("f", "old");
    let above = Archive::default().file("f", "new").file(".wh.f", "");
    assert_eq!(read(&root(&place, vec![below, above]).await.join("f")), "new");
}

#[tokio::test]
async fn a_directory_and_a_file_replace_each_other_between_layers() {
    let place = TestStore::new("kinds");
    let below = Archive::default().dir("a").file("a/f", "x").file("b", "x").link("l", "a");
    let above = Archive::default().file("a", "file").dir("b").file("b/g", "y").dir("l");
    let root = root(&place, vec![below, above]).await;
    assert_eq!(read(&root.join("a")), "file");
    assert_eq!(read(&root.join("b/g")), "y");
    assert!(fs::symlink_metadata(root.join("l")).expect("l").is_dir());
}

#[tokio::test]
async fn directories_look_like_the_topmost_layer_that_describes_them() {
    let place = TestStore::new("metadata");
    let below = Archive::default()
        .put(".", Kind::Directory, 0o711, b"")
        .put("tmp", Kind::Directory, 0o1777, b"")
        .put("home", Kind::Directory, 0o750, b"");
    // The upper layer names a file in tmp and never tmp itself.
    let above = Archive::default().file("tmp/f", "").put("home", Kind::Directory, 0o700, b"");
    let root = root(&place, vec![below, above]).await;
    let mode =
        |path: &str| fs::metadata(root.join(path)).expect(path).permissions().mode() & 0o7777;
    assert_eq!((mode(""), mode("tmp"), mode("home")), (0o711, 0o1777, 0o700));
    assert_eq!(fs::metadata(root.join("tmp")).expect("tmp").mtime(), 1_000);
}

#[tokio::test]
async fn a_bare_path_goes_where_a_lower_link_leads_within_the_root() {
    let place = TestStore::new("merged");
    let below = Archive::default()
        .dir("usr")
        .dir("usr/lib")
        .file("usr/lib/libc", "c")
        .link("lib", "usr/lib");
    let above = Archive::default().file("lib/libx", "x");
    let root = root(&place, vec![below, above]).await;
    assert!(fs::symlink_metadata(root.join("lib")).expect("lib").is_symlink());
    assert_eq!(
        (read(&root.join("usr/lib/libc")), read(&root.join("lib/libx"))),
        ("c".into(), "x".into())
    );
}

#[tokio::test]
async fn a_bare_path_never_follows_a_link_out_of_the_root() {
    let place = TestStore::new("out");
    let out = place.path.display().to_string();
    let below = Archive::default().link("way", &out).link("up", "../../../../../../..");
    let above = Archive::default().file("way/precious", "evil").file("up/precious", "evil");
    let root = root(&place, vec![below, above]).await;
    assert_eq!(read(&root.join("way/precious")), "evil");
    // Above the root there is the root.
    assert_eq!(read(&root.join("precious")), "evil");
}

#[tokio::test]
async fn hard_links_hold_within_a_layer_and_to_a_lower_one() {
    let place = TestStore::new("hard");
    let below = Archive::default().file("a", "shared").hard("b", "a").dir("bin").file("bin/x", "x");
    let above = Archive::default().hard("bin/y", "bin/x").hard("z", "later").file("later", "l");
    let root = root(&place, vec![below, above]).await;
    let inode = |path: &str| fs::metadata(root.join(path)).expect(path).ino();
    assert_eq!(inode("a"), inode("b"));
    assert_eq!(inode("bin/x"), inode("bin/y"));
    assert_eq!(inode("later"), inode("z"));
}

#[tokio::test]
async fn set_id_bits_owners_and_attributes_are_kept() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP owners are kept by root alone");
        return;
    }
    let place = TestStore::new("kept");
    // A capability as the kernel keeps it: version 2, effective, cap_net_raw.
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let archive = Archive::default()
        .put("su", Kind::File { size: 1 }, 0o4755, b"x")
        .pax("SCHILY.xattr.security.capability", &capability)
        .file("ping", "x")
        .pax("uid", b"1234")
        .file("own", "x")
        .pax("uid", b"4294967295")
        .file("nobody", "x");
    let root = root(&place, vec![archive]).await;
    let found = |path: &str| fs::metadata(root.join(path)).expect(path);
    assert_eq!(found("su").permissions().mode() & 0o7777, 0o4755);
    assert_eq!((found("own").uid(), found("nobody").uid()), (1234, 0));
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(root.join("ping"), "security.capability", &mut value[..]);
    assert_eq!(length.map(|length| value[..length].to_vec()), Ok(capability.to_vec()));
    let lease = place.images.lease(&place.images.find("test").expect("it")).expect("a lease");
    assert_eq!(lease.lost.owners, 1);
}

#[tokio::test]
async fn a_repeated_entry_counts_as_the_last_one_says() {
    let place = TestStore::new("repeated");
    let archive = Archive::default()
        .file("f", "first")
        .dir("d")
        .file("d/kept", "x")
        .put("d", Kind::Directory, 0o700, b"")
        .file("f", "second")
        .link("l", "a")
        .file("l", "now a file");
    let root = root(&place, vec![archive]).await;
    assert_eq!(
        (read(&root.join("f")), read(&root.join("l"))),
        ("second".into(), "now a file".into())
    );
    assert!(root.join("d/kept").exists());
    assert_eq!(fs::metadata(root.join("d")).expect("d").permissions().mode() & 0o777, 0o700);
}
