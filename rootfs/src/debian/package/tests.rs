//! Packages made by hand: proper ones, and hostile ones.

use std::io::Write;

use super::*;

/// A package with one data member.
fn deb(name: &str, data: &[u8]) -> tempfile::NamedTempFile {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, body) in [("debian-binary", &b"2.0\n"[..]), (name, data)] {
        bytes.extend(
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, body.len()).bytes(),
        );
        bytes.extend(body);
        if body.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&bytes).expect("a file");
    file
}

fn entry(path: &str, kind: tar::Kind) -> tar::Entry {
    tar::Entry { path: path.into(), kind, mode: 0o755, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 }
}

fn archive(entries: &[(tar::Entry, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (entry, content) in entries {
        tar::encode_entry(entry, &mut bytes).expect("an entry");
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(tar::padding(content.len() as u64));
    }
    bytes.extend_from_slice(tar::END_OF_ARCHIVE);
    bytes
}

fn unpacked(name: &str, data: &[u8]) -> Result<(Vec<Entry>, Vec<u8>), PackageError> {
    let mut contents = Vec::new();
    let entries = unpack(deb(name, data).path(), &mut contents)?;
    Ok((entries, contents))
}

fn proper() -> Vec<u8> {
    archive(&[
        (entry("./", tar::Kind::Directory), b""),
        (entry("./usr/a", tar::Kind::File { size: 5 }), b"hello"),
        (entry("./usr/b", tar::Kind::HardLink { target: b"./usr/a".to_vec() }), b""),
        (entry("./usr/c", tar::Kind::Symlink { target: b"../etc".to_vec() }), b""),
        (entry("./usr/d", tar::Kind::File { size: 1 }), b"!"),
    ])
}

#[test]
fn a_package_becomes_a_list_and_a_file_of_contents() {
    let (entries, contents) = unpacked("data.tar", &proper()).expect("a package");
    assert_eq!(contents, b"hello!");
    let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["", "usr/a", "usr/b", "usr/c", "usr/d"]);
    assert_eq!(entries[4].kind, Kind::File { offset: 5, bytes: 1, sha256: Sha256::of(b"!") });
    assert_eq!(entries[2].kind, Kind::HardLink { target: "usr/a".into() });
}

#[test]
fn every_compression_gives_the_same_and_cut_ones_are_refused() {
    let plain = proper();
    let expected = unpacked("data.tar", &plain).expect("a package");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).expect("a vector takes all");
    let gz = gz.finish().expect("a vector takes all");
    let zst =
        ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    for (name, data) in [("data.tar.gz", gz), ("data.tar.zst", zst)] {
        assert_eq!(unpacked(name, &data).expect(name), expected, "{name}");
        assert!(unpacked(name, &data[..data.len() / 2]).is_err(), "{name}");
        assert!(unpacked(name, b"garbage, and not compressed").is_err(), "{name}");
    }
    assert!(unpacked("data.tar.xz", b"garbage, and not compressed").is_err());
    assert!(matches!(unpacked("data.tar.lzma", &plain), Err(PackageError::Compression(_))));
    assert!(matches!(unpacked("control.tar", &plain), Err(PackageError::NoData)));
    assert!(matches!(unpacked("data.tar", &plain[..1024]), Err(PackageError::Tar(_))));
}

#[test]
fn paths_that_leave_the_root_and_nodes_of_devices_are_refused() {
    let file = tar::Kind::File { size: 0 };
    let link = |target: &[u8]| tar::Kind::HardLink { target: target.to_vec() };
    for (path, kind) in [
        ("../etc/passwd", file.clone()),
        ("usr/../../etc/passwd", file.clone()),
        ("/etc/passwd", file.clone()),
        ("usr/x", link(b"../../etc/passwd")),
        ("usr/x", link(b"/etc/passwd")),
        ("dev/x", tar::Kind::CharDevice { major: 1, minor: 1 }),
        ("pipe", tar::Kind::Fifo),
    ] {
        let result = unpacked("data.tar", &archive(&[(entry(path, kind), b"")]));
        assert!(
            matches!(result, Err(PackageError::Tar(_) | PackageError::Unexpected { .. })),
            "{path}: {result:?}"
        );
    }
}
