//! Words of strangers in messages: short, and without what a terminal would obey.

/// The rest of a longer path tells a reader nothing more.
const PATH_BYTES_MAX: usize = 256;

/// The first characters of a text, those aside that control a terminal.
pub fn excerpt(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}

/// The beginning of a path. A message writes it with `{:?}`, which escapes what a terminal would obey.
pub fn path_excerpt(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(PATH_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_controls_no_terminal() {
        assert_eq!(excerpt("a\u{1b}[31mb\n", 80), "a[31mb");
        assert_eq!(excerpt("ééé", 2), "éé");
        assert_eq!(path_excerpt(&[b'x'; PATH_BYTES_MAX + 1]).len(), PATH_BYTES_MAX);
        assert_eq!(path_excerpt(b"/a\xff"), "/a\u{fffd}");
    }
}
