//! Python's `tarfile`: it reads our archives, and we read its archives.

use std::fs;
use std::process::Command;

use super::super::{decode_members, encode, encode_entry, entry, file, pax};
use super::{Entry, Kind, LATE_S, Member, Scratch, is_missing, run, specimens, with_time};

/// Prints each member of the archive that is named, one field per word.
const PYTHON_READER: &str = r#"
import sys, tarfile
with tarfile.open(sys.argv[1], errors="surrogateescape", encoding="utf-8") as archive:
    for m in archive:
        raw = lambda s: s.encode("utf-8", "surrogateescape").hex()
        content = archive.extractfile(m).read().hex() if m.isreg() else ""
        mtime = m.pax_headers.get("mtime", str(m.mtime))
        print(m.type.decode(), m.mode, m.uid, m.gid, mtime, m.devmajor, m.devminor,
              raw(m.name), "-" + raw(m.linkname), "-" + content)
"#;

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The expected output of [`PYTHON_READER`] for a member.
fn reader_line((entry, content): &Member) -> String {
    let nothing = Vec::new();
    let (flag, device, target) = match &entry.kind {
        Kind::File { .. } => (0, (0, 0), &nothing),
        Kind::HardLink { target } => (1, (0, 0), target),
        Kind::Symlink { target } => (2, (0, 0), target),
        Kind::CharDevice { major, minor } => (3, (*major, *minor), &nothing),
        Kind::BlockDevice { major, minor } => (4, (*major, *minor), &nothing),
        Kind::Directory => (5, (0, 0), &nothing),
        Kind::Fifo => (6, (0, 0), &nothing),
    };
    let mtime = pax::format_time((entry.mtime_s, entry.mtime_ns));
    format!(
        "{flag} {} {} {} {mtime} {} {} {} -{} -{}",
        entry.mode,
        entry.uid,
        entry.gid,
        device.0,
        device.1,
        hexadecimal(&entry.path),
        hexadecimal(target),
        hexadecimal(content)
    )
}

#[test]
fn python_reads_what_is_encoded() {
    if is_missing("python3") {
        return;
    }
    let scratch = Scratch::new("python-reads");
    let mut members = specimens();
    let device = |path, kind| (entry(path, kind), Vec::new());
    members.push(device("tty", Kind::CharDevice { major: 5, minor: 1 }));
    members.push(device("disk", Kind::BlockDevice { major: 259, minor: 1_048_575 }));
    let owned = Entry { uid: 2_097_152, gid: u32::MAX, ..entry("owned", Kind::Fifo) };
    members.push((owned, Vec::new()));

    let archive = scratch.join("archive");
    fs::write(&archive, encode(&members)).unwrap();
    let printed = run(Command::new("python3").args(["-c", PYTHON_READER]).arg(&archive));
    let lines: Vec<_> = members.iter().map(reader_line).collect();
    assert_eq!(String::from_utf8(printed).unwrap().lines().collect::<Vec<_>>(), lines);
}

#[test]
fn python_reads_sizes_beyond_8_gib() {
    if is_missing("python3") {
        return;
    }
    let scratch = Scratch::new("python-large");
    let archive = scratch.join("archive");
    let mut headers = Vec::new();
    encode_entry(&entry("large", Kind::File { size: 9 << 30 }), &mut headers).unwrap();
    fs::write(&archive, headers).unwrap();
    let script = "import sys, tarfile; print(tarfile.open(sys.argv[1]).firstmember.size)";
    let printed = run(Command::new("python3").args(["-c", script]).arg(&archive));
    assert_eq!(printed, format!("{}\n", 9_u64 << 30).as_bytes());
}

/// Writes an archive in the format that is named to the standard output.
const PYTHON_WRITER: &str = r#"
import io, sys, tarfile
form = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
archive = tarfile.open(mode="w|", fileobj=sys.stdout.buffer, format=form[sys.argv[1]],
                       encoding="utf-8", pax_headers={"comment": "for all"})
def add(name, type=tarfile.REGTYPE, content=b"", **more):
    m = tarfile.TarInfo(name)
    m.type, m.size, m.mode, m.uid, m.gid, m.mtime = type, len(content), 0o640, 1000, 100, 1700000000
    for key, value in more.items():
        setattr(m, key, value)
    archive.addfile(m, io.BytesIO(content))
add("dir", tarfile.DIRTYPE)
add("dir/plain", content=b"\x07" * 600)
add("s" * 80 + "/" + "s" * 80, content=b"split")
add("ünï/日本語 🦀", content="é".encode())
add("link", tarfile.SYMTYPE, linkname="/else/../where/")
add("hard", tarfile.LNKTYPE, linkname="dir/plain")
add("fifo", tarfile.FIFOTYPE)
add("tty", tarfile.CHRTYPE, devmajor=5, devminor=1)
add("disk", tarfile.BLKTYPE, devmajor=259, devminor=1048575)
if sys.argv[1] != "ustar":
    add("l" * 300, content=b"long")
    add("link-long", tarfile.SYMTYPE, linkname="ü" * 150)
    add("owned", uid=2097152, gid=4294967295)
    add("late", mtime=9000000000)
    add("early", mtime=-2)
if sys.argv[1] == "pax":
    add("fraction", mtime=-1.5)
archive.close()
"#;

#[test]
fn archives_of_python_are_decoded_in_every_format() {
    if is_missing("python3") {
        return;
    }
    let empty = |path: &str, kind| (entry(path, kind), Vec::new());
    let target = |text: &str| text.as_bytes().to_vec();
    let mut expected = vec![
        empty("dir", Kind::Directory),
        file("dir/plain", &[7; 600]),
        file(format!("{0}/{0}", "s".repeat(80)), b"split"),
        file("ünï/日本語 🦀", "é".as_bytes()),
        empty("link", Kind::Symlink { target: target("/else/../where/") }),
        empty("hard", Kind::HardLink { target: target("dir/plain") }),
        empty("fifo", Kind::Fifo),
        empty("tty", Kind::CharDevice { major: 5, minor: 1 }),
        empty("disk", Kind::BlockDevice { major: 259, minor: 1_048_575 }),
    ];
    let write = |format| run(Command::new("python3").args(["-c", PYTHON_WRITER, format]));
    assert_eq!(decode_members(&write("ustar")), expected);

    let owned = Entry { uid: 2_097_152, gid: u32::MAX, ..entry("owned", Kind::File { size: 0 }) };
    expected.extend([
        file("l".repeat(300), b"long"),
        empty("link-long", Kind::Symlink { target: target(&"ü".repeat(150)) }),
        (owned, Vec::new()),
        with_time(file("late", b""), LATE_S, 0),
        with_time(file("early", b""), -2, 0),
    ]);
    assert_eq!(decode_members(&write("gnu")), expected);

    expected.push(with_time(file("fraction", b""), -2, 500_000_000));
    assert_eq!(decode_members(&write("pax")), expected);
}
