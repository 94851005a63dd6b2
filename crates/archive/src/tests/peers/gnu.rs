//! GNU tar: it extracts our archives, and we read its archives.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::super::{Decoder, Event, TarError, decode, decode_members, encode};
use super::{Kind, Member, Scratch, is_missing, run, specimens};

fn gnu_tar(directory: &Path) -> Command {
    let mut command = Command::new("tar");
    command.arg("-C").arg(directory);
    command
}

/// Checks that `directory` contains `members`.
fn assert_extracted(directory: &Path, members: &[Member]) {
    for (entry, content) in members {
        let path = directory.join(OsStr::from_bytes(&entry.path));
        let metadata = fs::symlink_metadata(&path).expect("extracted");
        let file_type = metadata.file_type();
        match &entry.kind {
            Kind::File { .. } => assert_eq!(&fs::read(&path).unwrap(), content, "{path:?}"),
            Kind::Directory => assert!(file_type.is_dir()),
            Kind::Fifo => assert!(file_type.is_fifo()),
            Kind::Symlink { target } => {
                assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), target);
                continue;
            }
            Kind::HardLink { target } => {
                let target = directory.join(OsStr::from_bytes(target));
                assert_eq!(metadata.ino(), fs::metadata(target).unwrap().ino());
                continue;
            }
            Kind::CharDevice { .. } | Kind::BlockDevice { .. } => unreachable!(),
        }
        assert_eq!(metadata.permissions().mode() & 0o7777, entry.mode, "{path:?}");
        let mtime = (metadata.mtime(), metadata.mtime_nsec());
        assert_eq!(mtime, (entry.mtime_s, i64::from(entry.mtime_ns)), "{path:?}");
    }
}

#[test]
fn gnu_tar_extracts_what_is_encoded() {
    if is_missing("tar") {
        return;
    }
    let scratch = Scratch::new("extract");
    let members = specimens();
    let archive = scratch.join("archive");
    fs::write(&archive, encode(&members)).unwrap();
    let target = scratch.join("target");
    fs::create_dir(&target).unwrap();
    run(gnu_tar(&target)
        .args(["-xp", "--no-same-owner", "--delay-directory-restore", "-f"])
        .arg(&archive));
    assert_extracted(&target, &members);
}

/// Builds the specimens whose paths and targets have at most so many bytes, as a real tree.
fn plant(directory: &Path, path_bytes_max: usize, link_bytes_max: usize) {
    for (entry, content) in specimens() {
        if entry.path.len() > path_bytes_max {
            continue;
        }
        let path = directory.join(OsStr::from_bytes(&entry.path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry.kind {
            Kind::File { .. } => {
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode)).unwrap();
                let seconds = Duration::from_secs(entry.mtime_s.unsigned_abs());
                let epoch = SystemTime::UNIX_EPOCH;
                let whole = if entry.mtime_s < 0 { epoch - seconds } else { epoch + seconds };
                let mtime = whole + Duration::from_nanos(u64::from(entry.mtime_ns));
                File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
            }
            Kind::Symlink { target } if target.len() <= link_bytes_max => {
                symlink(OsStr::from_bytes(&target), path).unwrap();
            }
            Kind::HardLink { target } if target.len() <= link_bytes_max => {
                fs::hard_link(directory.join(OsStr::from_bytes(&target)), path).unwrap();
            }
            Kind::Directory => fs::create_dir_all(&path).unwrap(),
            _ => {}
        }
    }
}

/// Every path below `directory`, relative to it.
fn planted(directory: &Path, below: &Path, paths: &mut Vec<PathBuf>) {
    for item in fs::read_dir(directory.join(below)).unwrap() {
        let item = item.unwrap();
        let path = below.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            planted(directory, &path, paths);
        }
        paths.push(path);
    }
}

/// Checks that the members match the tree, with times cut to seconds where the format has no more.
fn assert_archived(directory: &Path, members: Vec<Member>, has_fractions: bool) {
    let mut members: BTreeMap<_, _> = members
        .into_iter()
        .map(|(entry, content)| (entry.path.clone(), (entry, content)))
        .collect();
    let mut paths = Vec::new();
    planted(directory, Path::new(""), &mut paths);
    assert_eq!(members.len(), paths.len());
    for path in paths {
        let (entry, content) = members.remove(path.as_os_str().as_bytes()).expect("archived");
        let full = directory.join(&path);
        let metadata = fs::symlink_metadata(&full).unwrap();
        match &entry.kind {
            Kind::File { .. } => assert_eq!(fs::read(&full).unwrap(), content, "{path:?}"),
            Kind::Directory => assert!(metadata.is_dir()),
            Kind::Symlink { target } => {
                assert_eq!(fs::read_link(&full).unwrap().as_os_str().as_bytes(), target);
            }
            Kind::HardLink { target } => {
                let target = fs::metadata(directory.join(OsStr::from_bytes(target))).unwrap();
                assert_eq!(metadata.ino(), target.ino(), "{path:?}");
            }
            other => panic!("{other:?} was not planted"),
        }
        assert_eq!(entry.mode, metadata.mode() & 0o7777, "{path:?}");
        assert_eq!((entry.uid, entry.gid), (metadata.uid(), metadata.gid()));
        assert_eq!(entry.mtime_s, metadata.mtime(), "{path:?}");
        let nanoseconds = if has_fractions { metadata.mtime_nsec() } else { 0 };
        assert_eq!(i64::from(entry.mtime_ns), nanoseconds, "{path:?}");
    }
}

#[test]
fn trees_of_gnu_tar_are_decoded_in_every_format() {
    if is_missing("tar") {
        return;
    }
    let formats = [
        ("v7", 99, 99),
        ("ustar", 255, 99),
        ("oldgnu", usize::MAX, usize::MAX),
        ("gnu", usize::MAX, usize::MAX),
        ("posix", usize::MAX, usize::MAX),
    ];
    for (format, path_bytes_max, link_bytes_max) in formats {
        let scratch = Scratch::new(format);
        plant(&scratch.0, path_bytes_max, link_bytes_max);
        if matches!(format, "v7" | "ustar") {
            // Times before 1970 and after 2242 have no octal digits.
            fs::remove_file(scratch.join("early")).unwrap();
            fs::remove_file(scratch.join("late")).unwrap();
        }
        let mut names = Vec::new();
        for item in fs::read_dir(&scratch.0).unwrap() {
            names.push(item.unwrap().file_name());
        }
        let archive = run(gnu_tar(&scratch.0)
            .arg(format!("--format={format}"))
            .args(["-cf", "-", "--"])
            .args(names));
        assert_archived(&scratch.0, decode_members(&archive), format == "posix");
    }
}

#[test]
fn sparse_files_of_gnu_tar_are_refused() {
    if is_missing("tar") {
        return;
    }
    let scratch = Scratch::new("sparse");
    File::create(scratch.join("sparse")).unwrap().set_len(1 << 24).unwrap();
    for format in ["--format=gnu", "--format=posix"] {
        let archive = run(gnu_tar(&scratch.0).args([format, "-Scf", "-", "sparse"]));
        assert_eq!(decode(&archive), Err(TarError::Sparse), "{format}");
    }
}

#[test]
fn files_beyond_8_gib_of_gnu_tar_are_announced_in_full() {
    if is_missing("tar") {
        return;
    }
    let scratch = Scratch::new("large");
    let size = 9 << 30;
    File::create(scratch.join("large")).unwrap().set_len(size).unwrap();
    for format in ["--format=gnu", "--format=posix"] {
        let mut child = gnu_tar(&scratch.0)
            .args([format, "-cf", "-", "large"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut start = [0; 4096];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let event = Decoder::new().next_event(&mut &start[..]).unwrap();
        let Some(Event::Entry(entry)) = event else { panic!("{event:?}") };
        assert_eq!(entry.kind, Kind::File { size }, "{format}");
    }
}
