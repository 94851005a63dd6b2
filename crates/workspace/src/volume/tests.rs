use std::process::Command;

use super::*;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("burrow-volume-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn volumes(&self) -> Volumes {
        let (volumes, unread) = Volumes::open(self.0.clone());
        assert_eq!(unread, Vec::<String>::new());
        volumes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn nobody() -> Option<String> {
    None
}

fn put(files: &Files, path: &str, text: &str) -> Result<VolumeEntry, VolumeError> {
    let mut incoming = files.begin(u64::MAX)?;
    incoming.write(text.as_bytes())?;
    files.place(incoming, path, &Attributes::default(), false)
}

fn text(files: &Files, path: &str) -> Result<String, VolumeError> {
    let (mut file, bytes) = files.read(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text.len() as u64, bytes);
    Ok(text)
}

fn paths(listed: Vec<VolumeEntry>) -> Vec<String> {
    listed.into_iter().map(|entry| entry.path).collect()
}

#[test]
fn a_volume_is_there_for_the_next_bridge_and_gone_when_it_is_removed() {
    let place = Place::new("kept");
    let volumes = place.volumes();
    let made = volumes.create("team", "data", Some("k1".to_owned())).unwrap();
    assert!(matches!(volumes.create("team", "data", None), Err(VolumeError::Taken { .. })));
    let other = volumes.create("other", "data", None).unwrap();
    assert_ne!((&made.id, &made.token), (&other.id, &other.token));
    put(&volumes.files(&made).unwrap(), "/a", "kept").unwrap();

    let next = place.volumes();
    assert_eq!(next.get(&made.id).unwrap(), made);
    assert_eq!(next.find("team", "data").unwrap(), made);
    assert_eq!(text(&next.files(&made).unwrap(), "a").unwrap(), "kept");
    assert!(matches!(next.find("team", "else"), Err(VolumeError::Unknown { .. })));
    assert_eq!(next.list(Some("team")), [Arc::clone(&made)]);

    let used = || Some("team/web".to_owned());
    assert!(matches!(next.remove(&made, used), Err(VolumeError::InUse { .. })));
    assert_eq!(text(&next.files(&made).unwrap(), "a").unwrap(), "kept");
    next.remove(&made, nobody).unwrap();
    assert!(matches!(next.remove(&made, nobody), Err(VolumeError::UnknownId { .. })));
    assert_eq!(names_in(&place.0), std::slice::from_ref(&other.id));
    assert_eq!(place.volumes().list(None), [other]);
}

#[test]
fn names_and_numbers_of_volumes_are_bounded() {
    let place = Place::new("bounded");
    let volumes = place.volumes();
    for name in ["", "a/b", "..", "a b", "ä", &"x".repeat(NAME_CHARS_MAX + 1)] {
        assert!(
            matches!(volumes.create("n", name, None), Err(VolumeError::Name { .. })),
            "{name:?}"
        );
    }
    for number in 0..VOLUMES_PER_NAMESPACE_MAX {
        volumes.create("n", &format!("v{number}"), None).unwrap();
    }
    assert!(matches!(volumes.create("n", "more", None), Err(VolumeError::TooMany { .. })));
    volumes.create("m", "more", None).unwrap();
}

#[test]
fn a_killed_bridge_leaves_nothing_half_made() {
    let place = Place::new("killed");
    let volumes = place.volumes();
    let made = volumes.create("team", "data", None).unwrap();
    let files = volumes.files(&made).unwrap();
    let mut incoming = files.begin(u64::MAX).unwrap();
    incoming.write(b"half").unwrap();
    std::mem::forget(incoming);
    fs::create_dir_all(place.0.join("new-0123456789ab/files")).unwrap();
    fs::create_dir_all(place.0.join("gone-0123456789ab/files/a/b")).unwrap();
    fs::create_dir_all(volumes.directory_of(&made).join(".burrow-gone-1-2-3.part/x")).unwrap();
    assert_eq!(paths(files.list("/", 9).unwrap()), [""; 0]);

    let next = place.volumes();
    next.sweep();
    assert_eq!(names_in(&place.0), std::slice::from_ref(&made.id));
    assert_eq!(names_in(&place.0.join(&made.id).join(INCOMING)), [""; 0]);
    assert_eq!(names_in(&next.directory_of(&made)), [""; 0]);
}

#[test]
fn files_are_written_looked_at_listed_and_removed() {
    let place = Place::new("files");
    let volumes = place.volumes();
    let files = volumes.files(&volumes.create("n", "v", None).unwrap()).unwrap();
    let none = Attributes::default();

    let root = files.look("/").unwrap();
    assert_eq!((root.path.as_str(), root.kind, root.mode), ("/", EntryKind::Directory, 0o755));
    let made = put(&files, "a.txt", "one").unwrap();
    assert_eq!((made.path.as_str(), made.name.as_str(), made.bytes), ("/a.txt", "a.txt", 3));
    assert_eq!((made.kind, made.mode), (EntryKind::File, 0o644));
    put(&files, "/a.txt", "another").unwrap();
    assert_eq!(text(&files, "//./a.txt").unwrap(), "another");

    assert!(matches!(put(&files, "/x/y/z", "deep"), Err(VolumeError::NoPath { .. })));
    assert!(matches!(files.make_directory("/x/y", &none, false), Err(VolumeError::NoPath { .. })));
    files.make_directory("/x/y", &none, true).unwrap();
    files.make_directory("/x/y", &none, true).unwrap();
    assert!(matches!(
        files.make_directory("/x/y", &none, false),
        Err(VolumeError::PathTaken { .. })
    ));
    assert!(matches!(
        files.make_directory("/a.txt", &none, true),
        Err(VolumeError::PathTaken { .. })
    ));
    put(&files, "/x/y/z", "deep").unwrap();
    let incoming = files.begin(u64::MAX).unwrap();
    files.place(incoming, "/p/q/empty", &none, true).unwrap();
    assert!(matches!(put(&files, "/x", "file"), Err(VolumeError::Kind { .. })));

    assert_eq!(paths(files.list("/", 1).unwrap()), ["/a.txt", "/p", "/x"]);
    assert_eq!(paths(files.list("/", 2).unwrap()), ["/a.txt", "/p", "/x", "/p/q", "/x/y"]);
    assert_eq!(paths(files.list("/x", 9).unwrap()), ["/x/y", "/x/y/z"]);
    assert!(matches!(files.list("/", 0), Err(VolumeError::OutOfRange { .. })));
    assert!(matches!(files.list("/a.txt", 1), Err(VolumeError::Kind { .. })));
    assert!(matches!(files.list("/none", 1), Err(VolumeError::NoPath { .. })));

    let closed = Attributes { mode: Some(0o600), ..none };
    assert_eq!(files.set("/a.txt", &closed).unwrap().mode, 0o600);
    let setuid = Attributes { mode: Some(0o4755), ..none };
    assert!(matches!(files.set("/a.txt", &setuid), Err(VolumeError::OutOfRange { .. })));
    if rustix::process::geteuid().is_root() {
        let owned = Attributes { uid: Some(1000), gid: Some(1001), mode: Some(0o750) };
        let made = files.make_directory("/owned", &owned, false).unwrap();
        assert_eq!((made.uid, made.gid, made.mode), (1000, 1001, 0o750));
    }

    assert!(matches!(files.read("/x"), Err(VolumeError::Kind { .. })));
    assert!(matches!(files.remove("/"), Err(VolumeError::Path { .. })));
    files.remove("/x").unwrap();
    assert!(matches!(files.look("/x/y/z"), Err(VolumeError::NoPath { .. })));
    files.remove("/a.txt").unwrap();
    assert!(matches!(files.remove("/a.txt"), Err(VolumeError::NoPath { .. })));
}

#[test]
fn nothing_leads_out_of_a_volume_and_nothing_special_is_opened() {
    let place = Place::new("hostile");
    let volumes = place.volumes();
    let volume = volumes.create("n", "v", None).unwrap();
    let (files, inside) = (volumes.files(&volume).unwrap(), volumes.directory_of(&volume));
    let secret = place.0.join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("file"), "secret").unwrap();
    symlink(&secret, inside.join("out")).unwrap();
    symlink(secret.join("file"), inside.join("out-file")).unwrap();
    symlink("../volume.json", inside.join("up")).unwrap();
    symlink("/proc/self/root", inside.join("magic")).unwrap();
    let pipe = Command::new("mkfifo").arg(inside.join("pipe")).status().unwrap();
    assert!(pipe.success());

    let none = Attributes::default();
    for path in ["/out/file", "/magic/etc/passwd", "/out/new"] {
        assert!(files.read(path).is_err(), "{path}");
        assert!(files.look(path).is_err(), "{path}");
        assert!(put(&files, path, "ours").is_err(), "{path}");
        assert!(files.make_directory(path, &none, true).is_err(), "{path}");
        assert!(files.remove(path).is_err(), "{path}");
        assert!(files.set(path, &Attributes { mode: Some(0o777), ..none }).is_err(), "{path}");
    }
    for path in ["/../volume.json", "/a/../../volume.json", "a\0b", &"x/".repeat(4000)] {
        assert!(matches!(files.look(path), Err(VolumeError::Path { .. })));
    }
    for path in ["/out-file", "/up", "/magic", "/out", "/pipe"] {
        assert!(matches!(files.read(path), Err(VolumeError::Kind { .. })), "{path}");
        assert!(files.set(path, &none).is_err(), "{path}");
        assert!(files.list(path, 1).is_err(), "{path}");
    }
    assert!(matches!(put(&files, "/.burrow-x.part", "ours"), Err(VolumeError::Path { .. })));
    let listed = files.list("/", 9).unwrap();
    let kinds: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    let links = ["magic", "out", "out-file"].map(|name| (name, EntryKind::Link));
    assert_eq!(kinds[..3], links);
    assert_eq!(kinds[3..], [("pipe", EntryKind::Other), ("up", EntryKind::Link)]);
    assert_eq!(files.look("/up").unwrap().target.as_deref(), Some("../volume.json"));

    // A file takes the place of a link, and not of what that leads to.
    put(&files, "/out-file", "ours").unwrap();
    assert_eq!(fs::read_to_string(secret.join("file")).unwrap(), "secret");
    assert_eq!(text(&files, "/out-file").unwrap(), "ours");
    files.remove("/out").unwrap();
    files.remove("/pipe").unwrap();
    assert!(secret.join("file").exists());
}

#[test]
fn a_tree_of_any_depth_and_width_is_removed() {
    let place = Place::new("deep");
    let volumes = place.volumes();
    let volume = volumes.create("n", "v", None).unwrap();
    let (files, inside) = (volumes.files(&volume).unwrap(), volumes.directory_of(&volume));
    let fill = |name: &str| {
        // Deeper than any path.
        let script = "
import os, sys
os.chdir(sys.argv[1])
os.mkdir(sys.argv[2]); os.chdir(sys.argv[2])
for number in range(300): os.mkdir(f'wide{number}')
for number in range(1500):
    os.mkdir('directory'); os.chdir('directory'); open('f', 'w').close()
os.mkdir('closed', 0)
";
        let filled = Command::new("python3").args(["-c", script]).arg(&inside).arg(name).status();
        assert!(filled.unwrap().success());
    };
    fill("tree");
    assert_eq!(files.disk_bytes(), u64::MAX);
    files.list("/", 64).unwrap();
    files.remove("/tree").unwrap();
    assert_eq!(names_in(&inside), [""; 0]);
    fill("tree");
    volumes.remove(&volume, nobody).unwrap();
    assert_eq!(names_in(&place.0), [""; 0]);
}

#[test]
fn what_a_volume_takes_on_disk_is_measured() {
    let place = Place::new("measured");
    let volumes = place.volumes();
    let volume = volumes.create("n", "v", None).unwrap();
    let before = volumes.measure(&volume);
    let mut file = fs::File::create(volumes.directory_of(&volume).join("a")).unwrap();
    file.write_all(&vec![1; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let bytes = volumes.measure(&volume);
    assert!(bytes >= before + (1 << 20) && bytes < before + (2 << 20), "{bytes}");
    assert_eq!(volumes.measured(), [(Arc::clone(&volume), bytes)]);
    let record = fs::metadata(place.0.join(&volume.id).join(RECORD)).unwrap();
    assert_eq!(record.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(place.0.join(&volume.id)).unwrap().mode() & 0o777, 0o700);
}
