//! Paths as clients give them, and names as `ls -l` shows them. Pure.

use protocol::Text;
use protocol::message::{FileInfo, FileKind};

use host::instant;

/// The path without `.`, `..` and empty names, from `start` on if it is not absolute. Symlinks are the guest's.
pub fn absolute(start: &[u8], path: &[u8]) -> Text {
    let start = if path.starts_with(b"/") { &b""[..] } else { start };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in start.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [b"/", names.join(&b'/').as_slice()].concat().into()
}

/// As in `-rw-r--r--    1 0        0              12 Nov 26 14:51 name`.
pub fn line(info: &FileInfo) -> String {
    let kind = match info.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
    };
    let bits = (0..9).rev().map(|bit| {
        let letter = ['x', 'w', 'r'][bit % 3];
        if info.permissions >> bit & 1 == 1 { letter } else { '-' }
    });
    let bits: String = bits.collect();
    let FileInfo { uid, gid, bytes, name, .. } = info;
    let date = date(info.modified_ms);
    format!("{kind}{bits}    1 {uid:<8} {gid:<8} {bytes:>8} {date} {name}")
}

/// The day and the minute.
fn date(ms: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // As in 2026-01-31T12:00:00.000Z.
    let text = instant::format(u64::try_from(ms).unwrap_or(0));
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse().ok().and_then(|month: usize| MONTHS.get(month.wrapping_sub(1)));
    format!("{} {} {}", month.unwrap_or(&"Jan"), part(8, 10), part(11, 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_at_the_root_or_where_the_session_does() {
        let found = |path: &str| absolute(b"/work", path.as_bytes()).to_string();
        for (path, expected) in [
            (".", "/work"),
            ("", "/work"),
            ("a//b/./c", "/work/a/b/c"),
            ("../x", "/x"),
            ("../../../x", "/x"),
            ("/", "/"),
            ("/a/../b/", "/b"),
        ] {
            assert_eq!(found(path), expected, "{path}");
        }
    }

    #[test]
    fn a_line_is_as_ls_shows_it() {
        let info = FileInfo {
            name: "notes".into(),
            kind: FileKind::File,
            bytes: 12,
            permissions: 0o4754,
            uid: 0,
            gid: 1000,
            modified_ms: 951_827_696_789,
            target: None,
        };
        assert_eq!(line(&info), "-rwxr-xr--    1 0        1000           12 Feb 29 12:34 notes");
    }
}
