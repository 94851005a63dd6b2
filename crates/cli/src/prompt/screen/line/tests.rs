use super::*;

fn line(pieces: &[&str]) -> Line {
    let mut line = Line::default();
    for piece in pieces {
        line.feed(piece.as_bytes());
    }
    line
}

#[test]
fn a_line_that_was_ended_is_fresh() {
    assert!(line(&[]).is_fresh());
    assert!(line(&["a\n"]).is_fresh());
    assert!(!line(&["a"]).is_fresh());
    assert!(!line(&["a\nb", "c"]).is_fresh());
    assert!(line(&["a\nb", "c\n"]).is_fresh());
    assert!(!line(&[&"x".repeat(10_000)]).is_fresh());
    assert!(line(&[&"x".repeat(10_000), "\n"]).is_fresh());
}

#[test]
fn colours_take_no_room() {
    assert!(line(&["\x1b[31ma\n\x1b[0m"]).is_fresh());
    assert_eq!(line(&["\x1b[1mName\x1b[0m: "]).text(80).as_deref(), Some("Name: "));
}

#[test]
fn an_unfinished_line_can_be_repeated() {
    assert_eq!(line(&["x\nName", ": "]).text(80).as_deref(), Some("Name: "));
    assert_eq!(line(&["50 %\r60 %"]).text(80).as_deref(), Some("60 %"));
    assert_eq!(line(&["a\x08b"]).text(80).as_deref(), Some("a\\u{8}b"));
    assert_eq!(line(&["long"]).text(4), None);
    assert_eq!(line(&[&"x".repeat(10_000)]).text(100_000), None);
}
