//! What some bytes are, by how they begin, and by the name of their file where that does not tell.
//! Pure.

/// What is said of bytes that nothing is known of.
pub const OCTETS: &str = "application/octet-stream";
/// The same of text.
pub const TEXT: &str = "text/plain";

/// Pictures that models look at.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// How files begin.
const BEGINNINGS: [(&[u8], &str); 9] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
];

/// What names end in.
const ENDINGS: [(&str, &str); 24] = [
    ("txt", TEXT),
    ("log", TEXT),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("tsv", "text/tab-separated-values"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("json", "application/json"),
    ("ipynb", "application/x-ipynb+json"),
    ("xml", "application/xml"),
    ("svg", "image/svg+xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("toml", "application/toml"),
    ("py", "text/x-python"),
    ("sh", "text/x-shellscript"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("parquet", "application/vnd.apache.parquet"),
];

/// How many bytes tell.
pub const HEAD_BYTES: usize = 16;

/// Whether models look at it.
pub fn is_picture(mime: &str) -> bool {
    PICTURES.contains(&mime)
}

/// What a file is that begins so. `is_text` says whether that is text.
pub fn of(path: &str, head: &[u8], is_text: bool) -> &'static str {
    let begins = BEGINNINGS.iter().find(|(beginning, _)| head.starts_with(beginning));
    if let Some((_, mime)) = begins {
        return mime;
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return "image/webp";
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let named = ENDINGS.iter().find(|(known, _)| ending.as_deref() == Some(known));
    match named {
        Some((_, mime)) => mime,
        None if is_text => TEXT,
        None => OCTETS,
    }
}

/// The text that bytes are, unless they are none. The last character may be cut.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_says_more_than_the_name() {
        assert_eq!(of("/a.txt", b"\x89PNG\r\n\x1a\nrest", false), "image/png");
        assert_eq!(of("/a", b"RIFF\0\0\0\0WEBPVP8 ", false), "image/webp");
        assert_eq!(of("/a.CSV", b"a,b", true), "text/csv");
        assert_eq!(of("/csv", b"a,b", true), TEXT);
        assert_eq!(of("/a.b/c", b"\0", false), OCTETS);
        assert!(is_picture("image/webp") && !is_picture("image/svg+xml"));
    }

    #[test]
    fn text_may_end_within_a_character_and_not_be_broken_before() {
        assert_eq!(text("a€".as_bytes()), Some("a€"));
        assert_eq!(text(&"a€".as_bytes()[..2]), Some("a"));
        assert_eq!(text(b"a\xff"), None);
        assert_eq!(text(b"a\0"), None);
    }
}
