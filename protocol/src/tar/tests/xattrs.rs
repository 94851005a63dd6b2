//! Extended attributes, for readers who want them.

use super::{Decoder, Event, PAX_BYTES_MAX, TarError, header, pax_header, whole};

#[test]
fn extended_attributes_are_told_to_readers_who_want_them() {
    let pairs: [(&str, &[u8]); 4] = [
        ("SCHILY.xattr.user.note", b"first"),
        ("SCHILY.xattr.security.capability", &[1, 0, 0, 2]),
        ("SCHILY.xattr.user.note", b"second"),
        ("mtime", b"7"),
    ];
    let archive = whole(&[&pax_header(&pairs), &header(|_| {}), &header(|_| {})]);
    let told = |mut decoder: Decoder| {
        let (mut input, mut told) = (archive.as_slice(), Vec::new());
        while let Some(event) = decoder.next_event(&mut input).unwrap() {
            if matches!(event, Event::Entry(_)) {
                told.push(decoder.take_xattrs());
            }
        }
        told
    };
    let expected = vec![
        (b"security.capability".to_vec(), vec![1, 0, 0, 2]),
        (b"user.note".to_vec(), b"second".to_vec()),
    ];
    assert_eq!(told(Decoder::with_xattrs()), [expected, vec![]]);
    assert_eq!(told(Decoder::new()), [vec![], vec![]]);
}

#[test]
fn extended_attributes_without_end_are_refused() {
    let value = vec![7; PAX_BYTES_MAX / 2];
    let headers: Vec<_> = (0..3)
        .map(|number| pax_header(&[(&format!("SCHILY.xattr.user.{number}"), &value)]))
        .collect();
    let archive = whole(&[&headers.concat(), &header(|_| {})]);
    let mut decoder = Decoder::with_xattrs();
    let refused = decoder.next_event(&mut archive.as_slice());
    assert!(matches!(refused, Err(TarError::TooLong { .. })), "{refused:?}");
}
