//! Every spelling that is written or read, against archives built by hand.

use super::{
    BLOCK_BYTES, Entry, Kind, TarError, decode, decode_members, decode_one, encode, encode_entry,
    entry, extension, file, header, padding, pax_header, records, whole,
};

#[test]
fn plain_entries_take_one_block_each() {
    let mut encoded = Vec::new();
    encode_entry(&entry("d", Kind::Directory), &mut encoded).unwrap();
    encode_entry(&entry([b'a'; 100], Kind::Fifo), &mut encoded).unwrap();
    let split = [&[b'p'; 155][..], b"/", &[b'n'; 100]].concat();
    encode_entry(&entry(split, Kind::Fifo), &mut encoded).unwrap();
    assert_eq!(encoded.len(), 3 * BLOCK_BYTES);
}

#[test]
fn neither_part_of_a_split_path_is_empty() {
    let rooted = [b"/", &[b'n'; 100][..]].concat();
    for odd in [entry(rooted, Kind::Fifo), entry([b'd'; 100], Kind::Directory)] {
        let archive = encode(&[(odd.clone(), Vec::new())]);
        assert!(contains(&archive, b"path="));
        assert_eq!(decode_one(&archive), odd);
    }
}

#[test]
fn names_beyond_ascii_are_pax_records_and_say_when_they_are_bytes() {
    let link = |target: &[u8]| entry("l", Kind::Symlink { target: target.to_vec() });
    let encoded = |entry| encode(&[(entry, Vec::new())]);
    let utf8 = encoded(entry("é", Kind::Fifo));
    assert!(contains(&utf8, "path=é\n".as_bytes()) && !contains(&utf8, b"hdrcharset"));
    let utf8 = encoded(link("é".as_bytes()));
    assert!(contains(&utf8, "linkpath=é\n".as_bytes()) && !contains(&utf8, b"hdrcharset"));
    for bytes in [entry(b"\xff", Kind::Fifo), link(b"\xff")] {
        assert!(contains(&encoded(bytes), b"hdrcharset=BINARY\n"));
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn padding_fills_the_last_block_and_no_more() {
    for (size, expected) in [(0, 0), (1, 511), (511, 1), (512, 0), (513, 511), (u64::MAX, 1)] {
        assert_eq!(padding(size).len(), expected, "{size}");
    }
}

#[test]
fn final_slashes_are_dropped_and_type_bits_masked() {
    let odd = Entry { mode: 0o100_755, ..entry("a/b//", Kind::File { size: 0 }) };
    let decoded = decode_one(&encode(&[(odd.clone(), Vec::new())]));
    assert_eq!(decoded, Entry { path: b"a/b".to_vec(), mode: 0o755, ..odd });
}

#[test]
fn bytes_after_the_end_are_ignored() {
    let archive = [encode(&[file("f", b"content")]), vec![0xff; 3000]].concat();
    assert_eq!(decode_members(&archive), [file("f", b"content")]);
}

#[test]
fn sums_of_signed_bytes_are_accepted() {
    let mut block = header(|block| block[..2].copy_from_slice(&[0xc3, 0xa9]));
    let digits = std::str::from_utf8(&block[148..154]).unwrap();
    let unsigned = u32::from_str_radix(digits, 8).unwrap();
    block[148..154].copy_from_slice(format!("{:06o}", unsigned - 2 * 256).as_bytes());
    assert_eq!(decode_one(&whole(&[&block])).path, "é".as_bytes());
}

#[test]
fn headers_of_version_7_are_read() {
    let v7 = |name: &[u8], flag: u8| {
        header(|block| {
            block[..name.len()].copy_from_slice(name);
            block[100..108].copy_from_slice(b"   644 \0");
            block[156] = flag;
            block[257..].fill(0);
        })
    };
    let archive = whole(&[&v7(b"old", 0), &v7(b"dir/", 0)]);
    let members = decode_members(&archive);
    assert_eq!(members[0].0, Entry { mode: 0o644, ..entry("old", Kind::File { size: 0 }) });
    assert_eq!(members[1].0, Entry { mode: 0o644, ..entry("dir", Kind::Directory) });
}

#[test]
fn the_prefix_counts_only_under_the_magic_of_posix() {
    let prefixed = |magic: &[u8; 8]| {
        header(|block| {
            block[257..265].copy_from_slice(magic);
            block[345..348].copy_from_slice(b"dir");
        })
    };
    assert_eq!(decode_one(&whole(&[&prefixed(b"ustar\x0000")])).path, b"dir/f");
    assert_eq!(decode_one(&whole(&[&prefixed(b"ustar  \0")])).path, b"f");
}

#[test]
fn long_names_of_gnu_are_read() {
    let (path, target) = (vec![b'p'; 300], vec![b't'; 200]);
    let link = header(|block| block[156] = b'2');
    let archive = whole(&[
        &extension(b'K', &[&target[..], b"\0"].concat()),
        &extension(b'L', &[&path[..], b"\0"].concat()),
        &link,
        &header(|_| {}),
    ]);
    let members = decode_members(&archive);
    assert_eq!(members[0].0, entry(path, Kind::Symlink { target }));
    assert_eq!(members[1].0.path, b"f", "extensions hold for one entry");
}

#[test]
fn numbers_in_base_256_are_read() {
    let uid = |bytes: [u8; 8]| whole(&[&header(|block| block[108..116].copy_from_slice(&bytes))]);
    assert_eq!(decode_one(&uid([0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xfe])).uid, u32::MAX - 1);
    let too_large = Err(TarError::OutOfRange { field: "uid" });
    assert_eq!(decode(&uid([0x80, 0, 0, 1, 0, 0, 0, 0])), too_large);
    assert_eq!(decode(&uid([0xff; 8])), too_large);

    let mtime =
        |bytes: [u8; 12]| whole(&[&header(|block| block[136..148].copy_from_slice(&bytes))]);
    assert_eq!(decode_one(&mtime([0xff; 12])).mtime_s, -1);
    let mut far = [0xff; 12];
    far[0] = 0xc0;
    assert_eq!(decode(&mtime(far)), Err(TarError::OutOfRange { field: "mtime" }));
}

#[test]
fn only_files_have_content() {
    let sized = |flag: u8| {
        header(|block| {
            block[124..136].copy_from_slice(b"00000001000\0");
            block[156] = flag;
            block[157] = b't';
        })
    };
    let blocks: Vec<_> = b"123456".iter().map(|&flag| sized(flag)).collect();
    let parts: Vec<_> = blocks.iter().map(|block| &block[..]).collect();
    assert_eq!(decode_members(&whole(&parts)).len(), 6);
}

#[test]
fn global_headers_give_attributes_but_no_names() {
    let global = extension(
        b'g',
        &records(&[
            ("comment", b"of git"),
            ("path", b"everywhere"),
            ("linkpath", b"everywhere"),
            ("size", b"77"),
            ("uid", b"7"),
            ("mtime", b"-1.5"),
        ]),
    );
    let taken_back = pax_header(&[("mtime", b""), ("gid", b"8")]);
    let plain = header(|_| {});
    let members = decode_members(&whole(&[&global, &plain, &taken_back, &plain]));
    let base = entry("f", Kind::File { size: 0 });
    let first = Entry { uid: 7, mtime_s: -2, mtime_ns: 500_000_000, ..base.clone() };
    assert_eq!(members[0].0, first);
    assert_eq!(members[1].0, Entry { uid: 7, gid: 8, ..base });
}

#[test]
fn times_in_pax_are_read_to_the_nanosecond() {
    let cases: [(&[u8], i64, u32); 8] = [
        (b"0", 0, 0),
        (b"1.", 1, 0),
        (b"1.000000001", 1, 1),
        (b"1.0000000019", 1, 1),
        (b"-0.25", -1, 750_000_000),
        (b"-1", -1, 0),
        (b"9223372036854775807.999999999", i64::MAX, 999_999_999),
        (b"-9223372036854775808", i64::MIN, 0),
    ];
    for (text, seconds, nanoseconds) in cases {
        let decoded = decode_one(&whole(&[&pax_header(&[("mtime", text)]), &header(|_| {})]));
        assert_eq!((decoded.mtime_s, decoded.mtime_ns), (seconds, nanoseconds), "{text:?}");
    }
    for text in ["x", "1e3", "+1", "1.5s", "--1", ".5", "9223372036854775808"] {
        let archive = whole(&[&pax_header(&[("mtime", text.as_bytes())]), &header(|_| {})]);
        assert!(decode(&archive).is_err(), "{text}");
    }
}
