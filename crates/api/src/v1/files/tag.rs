//! Entity tags, by which a client knows that a file has not changed since it read the beginning.
//!
//! A tag is made from the size of a file and the time of its last change, as the agent reports
//! them. For a while after a change the same tag may stand for other bytes, so it is marked as
//! weak.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::message::FileInfo;

use super::limits::TAG_SETTLES;

/// A tag as headers show it.
pub fn tag(info: &FileInfo) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    tag_at(info, i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn tag_at(info: &FileInfo, now_ms: i64) -> String {
    let settled_ms = info.modified_ms.saturating_add(TAG_SETTLES.as_millis() as i64);
    let mark = if settled_ms <= now_ms { "" } else { "W/" };
    format!("{mark}\"{:x}-{:x}\"", info.bytes, info.modified_ms)
}

/// Whether the client's version is surely the current one. Weak tags never match, nor do dates,
/// which are too coarse.
pub fn is_same(if_range: &str, tag: &str) -> bool {
    if_range == tag && !tag.starts_with("W/")
}

#[cfg(test)]
mod tests {
    use protocol::message::FileKind;

    use super::*;

    fn info(bytes: u64, modified_ms: i64) -> FileInfo {
        FileInfo {
            name: "file".into(),
            kind: FileKind::File,
            bytes,
            permissions: 0o644,
            uid: 0,
            gid: 0,
            modified_ms,
            target: None,
        }
    }

    #[test]
    fn a_tag_is_weak_until_its_file_has_settled() {
        assert_eq!(tag_at(&info(255, 1000), 2999), "W/\"ff-3e8\"");
        assert_eq!(tag_at(&info(255, 1000), 3000), "\"ff-3e8\"");
        assert_eq!(tag_at(&info(0, i64::MAX), i64::MAX), "\"0-7fffffffffffffff\"");
        assert!(tag_at(&info(1, 5000), 3000).starts_with("W/"), "a clock that is ahead");
    }

    #[test]
    fn only_strong_tags_match() {
        assert!(is_same("\"ff-3e8\"", "\"ff-3e8\""));
        assert!(!is_same("\"ff-3e9\"", "\"ff-3e8\""));
        assert!(!is_same("W/\"ff-3e8\"", "W/\"ff-3e8\""));
        assert!(!is_same("Fri, 20 Nov 2026 22:26:36 GMT", "\"ff-3e8\""));
    }
}
