//! The rule for paths, case by case.

use crate::PATH_BYTES_MAX;
use crate::{TarError, safe_relative};

#[test]
fn paths_below_the_directory_are_safe() {
    let cases: [(&[u8], &[&[u8]]); 8] = [
        (b"a", &[b"a"]),
        (b"./a//b/./c/", &[b"a", b"b", b"c"]),
        (b".", &[]),
        (b"./", &[]),
        (b"..a/b..", &[b"..a", b"b.."]),
        (b"...", &[b"..."]),
        (b"\xff\n", &[b"\xff\n"]),
        (b"a\\..\\b", &[b"a\\..\\b"]),
    ];
    for (path, components) in cases {
        assert_eq!(safe_relative(path).unwrap(), components, "{path:?}");
    }
}

#[test]
fn paths_that_lead_out_are_refused() {
    let absolute = |path: &str| TarError::AbsolutePath { path: path.to_owned() };
    let climbing = |path: &str| TarError::ParentComponent { path: path.to_owned() };
    let cases: [(&[u8], TarError); 8] = [
        (b"", TarError::Empty { field: "path" }),
        (b"a\0", TarError::Nul { field: "path" }),
        (b"/", absolute("/")),
        (b"//etc/passwd", absolute("//etc/passwd")),
        (b"..", climbing("..")),
        (b"a/../b", climbing("a/../b")),
        (b"a/b/..", climbing("a/b/..")),
        (b"./../\x1b[31m", climbing("./../\\x1b[31m")),
    ];
    for (path, expected) in cases {
        assert_eq!(safe_relative(path), Err(expected), "{path:?}");
    }
    assert!(matches!(safe_relative(&[b'x'; PATH_BYTES_MAX + 1]), Err(TarError::TooLong { .. })));
}
