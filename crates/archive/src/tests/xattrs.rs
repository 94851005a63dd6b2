//! Extended attributes, for readers who want them.

use super::{
    Decoder, Entry, Event, Kind, PAX_BYTES_MAX, TarError, encode_entry, header, pax_header, whole,
};
use crate::encode_entry_with;

#[test]
fn extended_attributes_go_to_readers_who_want_them() {
    let pairs: [(&str, &[u8]); 4] = [
        ("SCHILY.xattr.user.note", b"first"),
        ("SCHILY.xattr.security.capability", &[1, 0, 0, 2]),
        ("SCHILY.xattr.user.note", b"second"),
        ("mtime", b"7"),
    ];
    let archive = whole(&[&pax_header(&pairs), &header(|_| {}), &header(|_| {})]);
    let attributes = |mut decoder: Decoder| {
        let (mut input, mut attributes) = (archive.as_slice(), Vec::new());
        while let Some(event) = decoder.next_event(&mut input).unwrap() {
            if matches!(event, Event::Entry(_)) {
                attributes.push(decoder.take_xattrs());
            }
        }
        attributes
    };
    let expected = vec![
        (b"security.capability".to_vec(), vec![1, 0, 0, 2]),
        (b"user.note".to_vec(), b"second".to_vec()),
    ];
    assert_eq!(attributes(Decoder::with_xattrs()), [expected, vec![]]);
    assert_eq!(attributes(Decoder::new()), [vec![], vec![]]);
}

#[test]
fn extended_attributes_are_written_as_they_are_read() {
    let entry = Entry {
        path: b"bin/ping".to_vec(),
        kind: Kind::File { size: 0 },
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime_s: 7,
        mtime_ns: 5,
    };
    let pairs = vec![
        (b"security.capability".to_vec(), vec![0, 1, b'\n', b'=', 255]),
        ("user.ü".as_bytes().to_vec(), Vec::new()),
    ];
    let mut archive = Vec::new();
    encode_entry_with(&entry, &pairs, &mut archive).unwrap();
    let (mut decoder, mut input) = (Decoder::with_xattrs(), archive.as_slice());
    let event = decoder.next_event(&mut input).unwrap();
    assert!(matches!(event, Some(Event::Entry(read)) if read == entry));
    assert_eq!(decoder.take_xattrs(), pairs);
    // Without any it is the same as before.
    let (mut with, mut without) = (Vec::new(), Vec::new());
    encode_entry_with(&entry, &[], &mut with).unwrap();
    encode_entry(&entry, &mut without).unwrap();
    assert_eq!(with, without);
    // What could not be read again is not written.
    for (name, bytes) in [("user.a=b", 1), ("user.large", PAX_BYTES_MAX)] {
        let pairs = [(name.as_bytes().to_vec(), vec![7; bytes])];
        let mut out = Vec::new();
        encode_entry_with(&entry, &pairs, &mut out).unwrap_err();
        assert!(out.is_empty(), "{name}");
    }
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
