use super::*;

fn typed(bytes: &[u8]) -> Option<Secret> {
    let mut typing = Typing::default();
    bytes.iter().find_map(|byte| typing.feed(*byte))
}

fn line(text: &str) -> Secret {
    Secret::Line(text.to_owned())
}

#[test]
fn a_secret_ends_with_its_line() {
    assert_eq!(typed(b"hunter2\rmore"), Some(line("hunter2")));
    assert_eq!(typed(b"\n"), Some(line("")));
    assert_eq!(typed(b"hunter2"), None);
}

#[test]
fn a_secret_can_be_mended() {
    assert_eq!(typed(b"ab\x7f\x08c\r"), Some(line("c")));
    assert_eq!(typed("aß\x7f\r".as_bytes()), Some(line("a")));
    assert_eq!(typed(b"wrong\x15right\r"), Some(line("right")));
    assert_eq!(typed(b"\x7f\r"), Some(line("")));
}

#[test]
fn asking_can_be_answered_otherwise() {
    assert_eq!(typed(b"abc\x03"), Some(Secret::Interrupted));
    assert_eq!(typed(b"\x04"), Some(Secret::End));
    assert_eq!(typed(b"a\x04b\r"), Some(line("ab")));
}

#[test]
fn a_secret_without_an_end_is_cut() {
    let mut long = vec![b'x'; SECRET_BYTES_MAX + 10];
    long.push(b'\r');
    assert_eq!(typed(&long), Some(line(&"x".repeat(SECRET_BYTES_MAX))));
}
