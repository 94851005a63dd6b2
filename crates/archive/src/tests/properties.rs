//! Properties of the codec: an encoded entry decodes to the same, however the bytes are split, and
//! no input makes the decoder panic or allocate beyond its limits.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::header::{BLOCK_BYTES, seal};
use super::super::{DEVICE_NUMBER_MAX, FILE_BYTES_MAX};
use super::{Entry, Kind, Member, Seen, decode, decode_members, decode_pieces, encode, padding};
use crate::PATH_BYTES_MAX;
use crate::{encode_entry, safe_relative};

/// Names of every shape that the encoder treats differently: short, split into prefix and name,
/// longer than both, not ASCII, not UTF-8.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z .=\n/]{0,20}[a-z]".prop_map(String::into_bytes),
        "([a-z]{30,90}/){1,4}[a-z]{1,110}".prop_map(String::into_bytes),
        "\\PC{1,60}".prop_map(String::into_bytes),
        vec(1_u8.., 1..400),
        vec(1_u8.., PATH_BYTES_MAX - 2..=PATH_BYTES_MAX),
    ]
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    name().prop_filter("ends in a slash", |name| !name.ends_with(b"/"))
}

fn kind_and_content() -> impl Strategy<Value = (Kind, Vec<u8>)> {
    let number = 0..=DEVICE_NUMBER_MAX;
    let empty = |kind| (kind, Vec::new());
    prop_oneof![
        vec(any::<u8>(), 0..1600)
            .prop_map(|content| (Kind::File { size: content.len() as u64 }, content)),
        Just(empty(Kind::Directory)),
        name().prop_map(move |target| empty(Kind::Symlink { target })),
        name().prop_map(move |target| empty(Kind::HardLink { target })),
        Just(empty(Kind::Fifo)),
        (number.clone(), number.clone())
            .prop_map(move |(major, minor)| empty(Kind::CharDevice { major, minor })),
        (number.clone(), number)
            .prop_map(move |(major, minor)| empty(Kind::BlockDevice { major, minor })),
    ]
}

fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0..=70_000_u32, 2_097_150..=2_097_153_u32, any::<u32>()]
}

fn mtime() -> impl Strategy<Value = (i64, u32)> {
    let seconds = prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        -3..=3_i64,
        8_589_934_590..=8_589_934_593_i64,
        any::<i64>(),
    ];
    (seconds, prop_oneof![Just(0), 0..1_000_000_000_u32])
}

fn member() -> impl Strategy<Value = Member> {
    (path(), kind_and_content(), 0..=0o7777_u32, id(), id(), mtime()).prop_map(
        |(path, (kind, content), mode, uid, gid, (mtime_s, mtime_ns))| {
            (Entry { path, kind, mode, uid, gid, mtime_s, mtime_ns }, content)
        },
    )
}

/// Bytes cut at the given places, which wrap around.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn encoded_entries_decode_to_the_same(members in vec(member(), 0..5)) {
        prop_assert_eq!(decode_members(&encode(&members)), members);
    }

    #[test]
    fn every_size_survives(size in prop_oneof![
        8_589_934_590..=8_589_934_594_u64,
        0..=FILE_BYTES_MAX,
        Just(FILE_BYTES_MAX),
    ]) {
        let entry = Entry {
            path: b"large".to_vec(),
            kind: Kind::File { size },
            mode: 0,
            uid: 0,
            gid: 0,
            mtime_s: 0,
            mtime_ns: 0,
        };
        let mut headers = Vec::new();
        encode_entry(&entry, &mut headers).unwrap();
        let (seen, _) = decode_pieces([&headers[..]]);
        prop_assert_eq!(seen.first(), Some(&Seen::Entry(entry)));
    }

    #[test]
    fn every_split_gives_the_same_events(
        members in vec(member(), 0..4),
        cuts in vec(any::<usize>(), 0..30),
    ) {
        let archive = encode(&members);
        let expected = decode(&archive);
        let (seen, result) = decode_pieces(pieces(&archive, &cuts));
        prop_assert_eq!(result.map(|()| seen), expected.clone());
        let (seen, result) = decode_pieces(archive.chunks(1));
        prop_assert_eq!(result.map(|()| seen), expected);
    }

    /// Bytes that are changed anywhere, with the checksums of all headers corrected, so that the
    /// decoder reads the damage.
    #[test]
    fn damaged_archives_end_in_the_same_error_however_cut(
        members in vec(member(), 1..4),
        damage in vec((any::<usize>(), any::<u8>()), 1..12),
        cuts in vec(any::<usize>(), 0..10),
    ) {
        let mut archive = encode(&members);
        let headers: Vec<usize> = (0..archive.len())
            .step_by(BLOCK_BYTES)
            .filter(|at| archive[at + 257..].starts_with(b"ustar"))
            .collect();
        for (at, byte) in damage {
            let at = at % archive.len();
            archive[at] = byte;
        }
        for at in headers {
            seal((&mut archive[at..at + BLOCK_BYTES]).try_into().unwrap());
        }
        let whole = decode_pieces([&archive[..]]);
        prop_assert_eq!(decode_pieces(pieces(&archive, &cuts)), whole);
    }

    /// Sound checksums over noise, with types and sizes that lead somewhere.
    #[test]
    fn hostile_headers_never_panic_and_stay_within_bounds(
        blocks in vec(
            (vec(any::<u8>(), BLOCK_BYTES), any::<prop::sample::Index>(), any::<u16>(), any::<bool>()),
            0..12,
        ),
        cuts in vec(any::<usize>(), 0..10),
    ) {
        let flags = b"\x0001234567xxxgLKS";
        let mut archive = Vec::new();
        for (mut block, flag, size, blank) in blocks {
            if blank {
                block[100..].fill(0);
                block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
            }
            block[156] = flags[flag.index(flags.len())];
            seal((&mut block[..]).try_into().unwrap());
            archive.extend_from_slice(&block);
            archive.extend(std::iter::repeat_n(b'1', usize::from(size % 2048)));
            archive.extend_from_slice(padding(u64::from(size % 2048)));
        }
        let whole = decode_pieces([&archive[..]]);
        prop_assert_eq!(decode_pieces(pieces(&archive, &cuts)), whole);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..4096)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn random_pax_bodies_never_panic(body in "([0-9]{1,3} )?(path|size|mtime|uid|x)?=?[-0-9.\n]{0,20}") {
        let _ = decode(&super::extension(b'x', body.as_bytes()));
        let _ = decode(&super::extension(b'g', body.as_bytes()));
    }

    #[test]
    fn safe_components_are_plain_names(path in vec(prop_oneof![
        Just(b'.'), Just(b'/'), Just(b'a'), any::<u8>(),
    ], 0..30)) {
        if let Ok(components) = safe_relative(&path) {
            for component in components {
                prop_assert!(!matches!(component, b"" | b"." | b".."));
                prop_assert!(!component.contains(&b'/') && !component.contains(&0));
            }
        }
    }
}
