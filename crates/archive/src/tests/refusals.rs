//! Every refusal and every bound, against archives built by hand.

use super::{
    BLOCK_BYTES, Entry, Kind, PAX_BYTES_MAX, TarError, decode, decode_one, encode, encode_entry,
    entry, extension, file, header, pax_header, records, whole,
};
use crate::PATH_BYTES_MAX;
use crate::{DEVICE_NUMBER_MAX, FILE_BYTES_MAX};

#[test]
fn refused_entries_append_nothing() {
    let long = vec![b'x'; PATH_BYTES_MAX + 1];
    let fifo = || entry("f", Kind::Fifo);
    let out_of_range = |field| TarError::OutOfRange { field };
    let cases = [
        (entry("", Kind::Fifo), TarError::Empty { field: "path" }),
        (entry("a\0b", Kind::Fifo), TarError::Nul { field: "path" }),
        (
            entry(long.clone(), Kind::Fifo),
            TarError::TooLong { field: "path", bytes: long.len() as u64, limit: PATH_BYTES_MAX },
        ),
        (
            entry("l", Kind::Symlink { target: Vec::new() }),
            TarError::Empty { field: "link target" },
        ),
        (
            entry("l", Kind::HardLink { target: b"\0".to_vec() }),
            TarError::Nul { field: "link target" },
        ),
        (entry("f", Kind::File { size: FILE_BYTES_MAX + 1 }), out_of_range("size")),
        (
            entry("c", Kind::CharDevice { major: DEVICE_NUMBER_MAX + 1, minor: 0 }),
            out_of_range("device number"),
        ),
        (Entry { mtime_ns: 1_000_000_000, ..fifo() }, out_of_range("mtime_ns")),
    ];
    for (refused, expected) in cases {
        let mut out = b"before".to_vec();
        assert_eq!(encode_entry(&refused, &mut out), Err(expected));
        assert_eq!(out, b"before");
    }
}

#[test]
fn an_archive_cut_anywhere_is_truncated() {
    let long = vec![b'x'; 300];
    let archive = encode(&[file("f", b"content"), file(long, b"")]);
    for cut in 0..archive.len() {
        assert_eq!(decode(&archive[..cut]), Err(TarError::Truncated { offset: cut as u64 }));
    }
}

#[test]
fn a_lone_zero_block_is_no_end() {
    let archive = whole(&[&[0; BLOCK_BYTES], &header(|_| {})]);
    assert_eq!(decode(&archive), Err(TarError::LoneZeroBlock { offset: 512 }));
}

#[test]
fn a_flipped_bit_in_a_header_is_noticed() {
    let sound = encode(&[file("f", b"")]);
    // The terminators of the numbers and of the checksum itself carry nothing.
    for at in [0, 100, 116, 124, 136, 156, 157, 257, 345, 511] {
        let mut archive = sound.clone();
        archive[at] ^= 4;
        assert!(matches!(decode(&archive), Err(TarError::Checksum { offset: 0, .. })), "byte {at}");
    }
}

#[test]
fn numbers_that_are_none_are_refused() {
    let archive = whole(&[&header(|block| block[124..136].copy_from_slice(b"-0000000001\0"))]);
    assert_eq!(decode(&archive), Err(TarError::NotANumber { field: "size" }));
    let archive = whole(&[&header(|block| block[100..108].copy_from_slice(b"0000648\0"))]);
    assert_eq!(decode(&archive), Err(TarError::NotANumber { field: "mode" }));
}

#[test]
fn sizes_beyond_any_file_are_refused() {
    let size = |bytes: [u8; 12]| whole(&[&header(|block| block[124..136].copy_from_slice(&bytes))]);
    let refused = Err(TarError::OutOfRange { field: "size" });
    assert_eq!(decode(&size([0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0])), refused);
    assert_eq!(decode(&size([0xff; 12])), refused);
    for digits in ["9223372036854775808", "18446744073709551615"] {
        let archive = whole(&[&pax_header(&[("size", digits.as_bytes())]), &header(|_| {})]);
        assert_eq!(decode(&archive), refused);
    }
}

#[test]
fn malformed_pax_records_are_refused() {
    let sound: &[u8] = b"10 uid=10\n";
    let cases: [&[u8]; 10] = [
        b"x",
        b"11 uid=10\n",
        b"8 uid=10\n",
        b"10 uid=10 ",
        b"+9 uid=1\n",
        b"6 uid\n",
        b"5 =1\n",
        b"0 uid=10\n",
        b"1 uid=10\n",
        b"99999999999999999999999 uid=10\n",
    ];
    for case in cases {
        let body = [sound, case].concat();
        let archive = whole(&[&extension(b'x', &body), &header(|_| {})]);
        assert_eq!(decode(&archive), Err(TarError::PaxRecord { at: sound.len() }), "{case:?}");
    }
    let archive = whole(&[&extension(b'x', sound), &header(|_| {})]);
    assert_eq!(decode_one(&archive).uid, 10);
}

#[test]
fn a_nul_in_a_name_is_refused() {
    let archive = whole(&[&pax_header(&[("path", b"a\0b")]), &header(|_| {})]);
    assert_eq!(decode(&archive), Err(TarError::Nul { field: "path" }));
}

#[test]
fn names_are_bounded_and_a_directory_may_add_its_slash() {
    let longest = vec![b'x'; PATH_BYTES_MAX];
    let longer = vec![b'x'; PATH_BYTES_MAX + 1];
    let directory = entry(longest.clone(), Kind::Directory);
    assert_eq!(decode_one(&encode(&[(directory.clone(), Vec::new())])), directory);

    let with_slash = extension(b'L', &[&longest[..], b"/\0"].concat());
    assert_eq!(decode_one(&whole(&[&with_slash, &header(|_| {})])).path, longest);

    let too_long = |field| {
        Err(TarError::TooLong { field, bytes: PATH_BYTES_MAX as u64 + 1, limit: PATH_BYTES_MAX })
    };
    for (extension, field) in [
        (pax_header(&[("path", &longer)]), "path"),
        (pax_header(&[("linkpath", &longer)]), "linkpath"),
        (extension(b'L', &longer), "path"),
        (extension(b'K', &longer), "link target"),
    ] {
        let link = header(|block| block[156] = b'2');
        assert_eq!(decode(&whole(&[&extension, &link])), too_long(field));
    }
}

#[test]
fn extended_headers_are_bounded_before_they_are_read() {
    let largest = vec![b'c'; PAX_BYTES_MAX - 16];
    let body = records(&[("comment", &largest)]);
    assert_eq!(body.len(), PAX_BYTES_MAX - 1);
    decode_one(&whole(&[&extension(b'x', &body), &header(|_| {})]));

    for (flag, limit) in [
        (b'x', PAX_BYTES_MAX),
        (b'g', PAX_BYTES_MAX),
        (b'L', PATH_BYTES_MAX + 2),
        (b'K', PATH_BYTES_MAX + 2),
    ] {
        let bytes = limit as u64 + 1;
        let head = header(|block| {
            block[156] = flag;
            block[124..136].copy_from_slice(format!("{bytes:011o}\0").as_bytes());
        });
        let refused = TarError::TooLong { field: "extended header", bytes, limit };
        assert_eq!(decode(&head), Err(refused));
    }
}

#[test]
fn sparse_files_are_refused() {
    let sparse = header(|block| block[156] = b'S');
    assert_eq!(decode(&whole(&[&sparse])), Err(TarError::Sparse));
    let pax = pax_header(&[("GNU.sparse.major", b"1")]);
    assert_eq!(decode(&whole(&[&pax, &header(|_| {})])), Err(TarError::Sparse));
}

#[test]
fn unknown_types_are_refused() {
    let label = header(|block| block[156] = b'V');
    assert_eq!(decode(&whole(&[&label])), Err(TarError::UnknownType { flag: b'V' }));
}

#[test]
fn an_extension_needs_its_entry() {
    let archive = whole(&[&pax_header(&[("uid", b"1")])]);
    assert_eq!(decode(&archive), Err(TarError::OrphanedExtension { offset: 1024 }));
}
