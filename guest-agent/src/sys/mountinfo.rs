//! `/proc/self/mountinfo`, parsed: what is mounted where.
//!
//! `boot` finds the mounts below a root directory, `cgroup` those of control groups. Parsing is
//! pure; [`read`] is the only I/O.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The directory of the file system that is visible at `point`.
    pub root: PathBuf,
    pub point: PathBuf,
    pub kind: String,
    pub read_only: bool,
}

/// Lines that are not as the kernel documents them are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let read_only = fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
    // Any number of optional fields stands before the lone hyphen.
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8(fields.next()?.to_vec()).ok()?;
    Some(Mount { root, point, kind, read_only })
}

/// Space, tab, newline and backslash stand as three octal digits after a backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| digits.iter().all(|d| matches!(d, b'0'..=b'7')));
        if let (b'\\', Some(digits)) = (first, octal) {
            let value = digits.iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
            bytes.push(value as u8);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_fields_and_escapes_are_read() {
        let text = b"31 23 0:28 / /sys/fs/cgroup ro,nosuid shared:1 master:2 - tmpfs tmpfs rw\n\
                     41 31 0:38 /a\\040b /mnt/x\\134y rw - cgroup2 cgroup2 rw\nnonsense\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].kind, "tmpfs");
        assert!(mounts[0].read_only);
        assert_eq!(mounts[1].root, PathBuf::from("/a b"));
        assert_eq!(mounts[1].point, PathBuf::from("/mnt/x\\y"));
        assert!(!mounts[1].read_only);
    }
}
