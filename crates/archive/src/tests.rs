//! What the tests of the codec share: owned events, archives built by hand.

mod formats;
mod paths;
mod peers;
mod properties;
mod refusals;
mod xattrs;

use super::header::{BLOCK_BYTES, Block, seal};
use super::{
    Decoder, END_OF_ARCHIVE, Entry, Event, Kind, PAX_BYTES_MAX, TarError, encode_entry, padding,
    pax,
};

/// The content of [`Event`]s, with neighbouring pieces joined, as splits may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Entry(Entry),
    Content(Vec<u8>),
    EndOfEntry,
    EndOfArchive,
}

/// Feeds the pieces, checking after each that all of it was read.
fn decode_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Seen>, Result<(), TarError>) {
    let mut decoder = Decoder::new();
    let mut seen = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next_event(&mut piece) {
                Ok(None) => break,
                Ok(Some(Event::Content(content))) => {
                    assert!(!content.is_empty());
                    match seen.last_mut() {
                        Some(Seen::Content(before)) => before.extend_from_slice(content),
                        _ => seen.push(Seen::Content(content.to_vec())),
                    }
                }
                Ok(Some(Event::Entry(entry))) => seen.push(Seen::Entry(entry)),
                Ok(Some(Event::EndOfEntry)) => seen.push(Seen::EndOfEntry),
                Ok(Some(Event::EndOfArchive)) => seen.push(Seen::EndOfArchive),
                Err(error) => {
                    assert_eq!(decoder.next_event(&mut piece), Err(error.clone()));
                    assert_eq!(decoder.finish(), Err(error.clone()));
                    return (seen, Err(error));
                }
            }
            assert!(decoder.allocated_bytes() <= 3 * PAX_BYTES_MAX);
        }
        assert!(piece.is_empty(), "more is asked for only when all was read");
    }
    (seen, decoder.finish())
}

fn decode(archive: &[u8]) -> Result<Vec<Seen>, TarError> {
    let (seen, result) = decode_pieces([archive]);
    result.map(|()| seen)
}

type Member = (Entry, Vec<u8>);

/// The members of a whole archive, in which every entry must end as it should.
fn decode_members(archive: &[u8]) -> Vec<Member> {
    let mut seen = decode(archive).expect("a whole archive");
    assert_eq!(seen.pop(), Some(Seen::EndOfArchive));
    let mut members = Vec::new();
    let mut open: Option<Member> = None;
    for event in seen {
        match (event, &mut open) {
            (Seen::Entry(entry), None) => open = Some((entry, Vec::new())),
            (Seen::Content(content), Some((_, before))) => before.extend(content),
            (Seen::EndOfEntry, Some(_)) => members.extend(open.take()),
            (event, _) => panic!("{event:?} out of place"),
        }
    }
    assert_eq!(open, None);
    members
}

fn decode_one(archive: &[u8]) -> Entry {
    let mut members = decode_members(archive);
    assert_eq!(members.len(), 1);
    members.remove(0).0
}

fn encode(members: &[Member]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (entry, content) in members {
        assert_eq!(entry.kind.content_bytes(), content.len() as u64);
        encode_entry(entry, &mut archive).unwrap();
        archive.extend_from_slice(content);
        archive.extend_from_slice(padding(content.len() as u64));
        assert_eq!(archive.len() % BLOCK_BYTES, 0);
    }
    archive.extend_from_slice(END_OF_ARCHIVE);
    archive
}

fn entry(path: impl Into<Vec<u8>>, kind: Kind) -> Entry {
    Entry {
        path: path.into(),
        kind,
        mode: 0o640,
        uid: 1000,
        gid: 100,
        mtime_s: 1_700_000_000,
        mtime_ns: 0,
    }
}

fn file(path: impl Into<Vec<u8>>, content: &[u8]) -> Member {
    (entry(path, Kind::File { size: content.len() as u64 }), content.to_vec())
}

/// The header of an empty file `f`, edited, with a new checksum.
fn header(edit: impl FnOnce(&mut Block)) -> Block {
    let mut encoded = Vec::new();
    encode_entry(&entry("f", Kind::File { size: 0 }), &mut encoded).unwrap();
    let mut block: Block = encoded.try_into().expect("one block");
    edit(&mut block);
    seal(&mut block);
    block
}

/// An extended header of the given type with its body and padding.
fn extension(flag: u8, body: &[u8]) -> Vec<u8> {
    let head = header(|block| {
        block[156] = flag;
        block[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
    });
    [&head[..], body, padding(body.len() as u64)].concat()
}

fn records(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in pairs {
        super::record::write_record(&mut body, key, value);
    }
    body
}

fn pax_header(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    extension(b'x', &records(pairs))
}

/// `parts` with the end of an archive after them.
fn whole(parts: &[&[u8]]) -> Vec<u8> {
    [&parts.concat(), END_OF_ARCHIVE].concat()
}
