//! Archives that `ADD` unpacks: their result, and what is refused.

use std::os::unix::fs::symlink;

use archive::{Decoder, Event};

use super::*;
use crate::copy::{CopyError, Layer, Root, Task};
use crate::digest::Digest;
use crate::dockerfile::pattern::Ignore;
use crate::layer::LayerError;

/// The content of a layer after an archive was put on a root: names, and the targets of links.
fn added(place: &TestStore, bytes: &[u8], to: &str) -> Result<(Vec<String>, Digest), CopyError> {
    fs::write(place.file("archive"), bytes).unwrap();
    let root = place.file("root");
    if !root.exists() {
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/", root.join("usr/lib/up")).unwrap();
        fs::write(root.join("file"), "x").unwrap();
    }
    let (from, root) = (Root::open(&place.path.join("files"))?, Root::open(&root)?);
    let file = place.file("layer.tar");
    let mut layer = Layer::new(&root, &file)?;
    let sources = ["archive".to_owned()];
    let (ignore, owner, mode) = (None, None, None);
    let (sources, texts) = (&sources[..], &[][..]);
    let (from, exclude) = (&from, &Ignore::default());
    let task = Task { from, ignore, exclude, sources, texts, to, owner, mode, unpacks: true };
    layer.copy(&task)?;
    let key = layer.finish()?;
    let bytes = fs::read(&file).unwrap();
    let (mut decoder, mut names) = (Decoder::new(), Vec::new());
    let mut piece = bytes.as_slice();
    while let Some(event) = decoder.next_event(&mut piece).unwrap() {
        if let Event::Entry(entry) = event {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let meant = match &entry.kind {
                Kind::HardLink { target } => format!(" = {}", text(target)),
                Kind::Symlink { target } => format!(" > {}", text(target)),
                _ => String::new(),
            };
            names.push(format!("{}{meant}", text(&entry.path)));
        }
    }
    decoder.finish().unwrap();
    Ok((names, key))
}

#[test]
fn an_archive_is_recognised_by_its_content_and_goes_where_links_of_the_image_lead() {
    let place = TestStore::new("add");
    let archive = || {
        let archive = Archive::default().dir("lib").file("lib/a", "a").hard("lib/b", "lib/a");
        archive.link("c", "lib/a").end()
    };
    let expected = ["usr/lib", "usr/lib/a", "usr/lib/b = usr/lib/a", "c > lib/a"];
    let (_, key) = added(&place, &archive(), "/").unwrap();
    for pack in [<[u8]>::to_vec as fn(&[u8]) -> Vec<u8>, gzip, zstd] {
        let (names, again) = added(&place, &pack(&archive()), "/").unwrap();
        assert_eq!(names, expected);
        assert_eq!(again, key, "what it is packed with is no matter of what is in it");
    }
    let (names, _) = added(&place, &archive(), "/new/place").unwrap();
    assert_eq!(names[..3], ["new", "new/place", "new/place/lib"]);
    // A file that is no archive stays a file.
    let zeros = vec![0; 2048];
    for bytes in [&b"text"[..], &zeros, &gzip(b"text"), &[0x1f, 0x8b, 1, 2], &archive()[..511]] {
        assert_eq!(added(&place, bytes, "/x").unwrap().0, ["x"]);
    }
    for (bytes, with) in [(&b"\xfd7zXZ\0more"[..], "xz"), (b"BZh91AY&SY", "bzip2")] {
        let error = added(&place, bytes, "/x").unwrap_err().to_string();
        assert!(error.contains(with), "{error}");
    }
    assert_eq!(added(&place, b"BZh is no archive", "/x").unwrap().0, ["x"]);
}

#[test]
fn archives_are_refused_like_layers() {
    let place = TestStore::new("add-hostile");
    let base = Archive::default;
    let device = Kind::CharDevice { major: 1, minor: 3 };
    for (archive, expected) in [
        (base().file("/etc/x", ""), "absolute path"),
        (base().file("a/../../x", ""), "leaves the archive"),
        (base().file("a", "").hard("b", "../x"), "leaves the archive"),
        (base().put("null", device, 0o666, b""), "device"),
        (base().link("a", "/").file("a/x", ""), "through a symbolic link"),
        (base().link("a", "lib").file("a/b/x", ""), "through a symbolic link"),
        (base().file("lib/.wh.x", ""), "marks a removed file"),
        (base().file(".wh.x/y", ""), "marks a removed file"),
        (base().file("usr", ""), "is a directory"),
        (base().file("file/x", ""), "a directory is needed"),
        (base().file(&"d/".repeat(200), ""), "more than 128 directories"),
    ] {
        let error = added(&place, &archive.end(), "/").unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    // A truncated archive is refused.
    let whole = base().file("a", &"text".repeat(1000)).end();
    for end in [1024, 2000, whole.len() - 1024] {
        let error = added(&place, &whole[..end], "/").unwrap_err();
        assert!(
            matches!(&error, CopyError::Archive { source: LayerError::Archive(_), .. }),
            "{error}"
        );
    }
    // A link of the image that leads up leads to the image's root.
    let (names, _) = added(&place, &base().file("lib/up/x", "").end(), "/").unwrap();
    assert_eq!(names, ["x"]);
}
