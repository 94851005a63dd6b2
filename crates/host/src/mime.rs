//! Detects the type of a file from its first bytes, and from its name where they are not enough.
//! Pure; tools and artifacts use it.

/// The type of unknown bytes.
pub const OCTETS: &str = "application/octet-stream";
/// The type of unknown text.
pub const TEXT: &str = "text/plain";

/// Image types that models accept.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The first bytes of file types.
const BEGINNINGS: [(&[u8], &str); 17] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"PAR1", "application/vnd.apache.parquet"),
];

/// The same within a container: its magic, and the offset and the bytes that decide.
const CONTAINERS: [(usize, &[u8], &str); 4] = [
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (4, b"ftyp", "video/mp4"),
];

/// Types that are archives by their bytes and something else by their names.
const ZIPPED: [(&str, &str); 6] = [
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("epub", "application/epub+zip"),
    ("npz", "application/x-npz"),
];

/// File extensions.
const ENDINGS: [(&str, &str); 45] = [
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
    ("jsonl", "application/x-ndjson"),
    ("ndjson", "application/x-ndjson"),
    ("npy", "application/x-npy"),
    ("pkl", "application/x-pickle"),
    ("h5", "application/x-hdf5"),
    ("sqlite", "application/vnd.sqlite3"),
    ("tex", "text/x-tex"),
    ("rtf", "application/rtf"),
    ("ts", "text/x-typescript"),
    ("rs", "text/x-rust"),
    ("c", "text/x-c"),
    ("h", "text/x-c"),
    ("cpp", "text/x-c++"),
    ("java", "text/x-java"),
    ("go", "text/x-go"),
    ("rb", "text/x-ruby"),
    ("r", "text/x-r"),
    ("sql", "application/sql"),
    ("tar", "application/x-tar"),
    ("bz2", "application/x-bzip2"),
    ("xz", "application/x-xz"),
];

/// Names of files without an extension.
const EXTENSIONS: [(&str, &str); 17] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/svg+xml", "svg"),
    ("image/bmp", "bmp"),
    ("application/pdf", "pdf"),
    ("text/html", "html"),
    ("text/latex", "tex"),
    ("text/markdown", "md"),
    ("application/json", "json"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
    ("audio/mpeg", "mp3"),
    ("audio/wav", "wav"),
    ("audio/ogg", "ogg"),
    ("text/csv", "csv"),
];

/// How many bytes are examined.
pub const HEAD_BYTES: usize = 16;

/// Whether models accept the image type.
pub fn is_picture(mime: &str) -> bool {
    PICTURES.contains(&mime)
}

/// The type of a file by its first bytes. `is_text` says whether they are text.
pub fn of(path: &str, head: &[u8], is_text: bool) -> &'static str {
    let begins = BEGINNINGS.iter().find(|(beginning, _)| head.starts_with(beginning));
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let zipped = ZIPPED.iter().find(|(known, _)| ending.as_deref() == Some(known));
    match (begins, zipped) {
        // Two letters alone also begin texts.
        (Some((_, "image/bmp")), _) if is_text => {}
        (Some((_, "application/zip")), Some((_, mime))) | (Some((_, mime)), _) => return mime,
        (None, _) => {}
    }
    let contained = CONTAINERS.iter().find(|(at, word, _)| {
        let is_riff = *at == 4 || head.starts_with(b"RIFF");
        is_riff && head.get(*at..).is_some_and(|rest| rest.starts_with(word))
    });
    if let Some((_, _, mime)) = contained {
        return mime;
    }
    let named = ENDINGS.iter().find(|(known, _)| ending.as_deref() == Some(known));
    match named {
        Some((_, mime)) => mime,
        None if is_text => TEXT,
        None => OCTETS,
    }
}

/// The extension for a type.
pub fn extension(mime: &str) -> Option<&'static str> {
    EXTENSIONS.iter().find(|(known, _)| *known == mime).map(|(_, extension)| *extension)
}

/// The bytes as text, if they are text. The last character may be cut.
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
        assert_eq!(of("/a", b"\0\0\0\x20ftypisom", false), "video/mp4");
        assert_eq!(of("/a.bin", b"RIFF\0\0\0\0WAVEfmt ", false), "audio/wav");
        assert!(of("/a.xlsx", b"PK\x03\x04", false).ends_with("spreadsheetml.sheet"));
        assert_eq!(of("/a.png", b"PK\x03\x04", false), "application/zip");
        assert_eq!(of("/note", b"BMW is a car", true), TEXT);
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
