//! The tar decoder, fed what a hostile guest may send in whatever slices; slices must not matter.
#![no_main]

use archive::{Decoder, Event, safe_relative};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((slice, archive)) = data.split_first() else { return };
    let whole = decode(archive.chunks(archive.len().max(1)));
    let pieces = decode(archive.chunks(usize::from(*slice) + 1));
    assert_eq!(whole, pieces, "the same archive in other slices");
});

/// The entries, the bytes of content, and whether the archive was good to its end.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, usize, bool) {
    let mut decoder = Decoder::new();
    let (mut entries, mut content) = (Vec::new(), 0);
    for mut piece in pieces {
        loop {
            match decoder.next_event(&mut piece) {
                Ok(None) => break,
                Ok(Some(Event::Entry(entry))) => {
                    let _ = safe_relative(&entry.path);
                    entries.push(format!("{entry:?}"));
                }
                Ok(Some(Event::Content(bytes))) => content += bytes.len(),
                Ok(Some(Event::EndOfEntry | Event::EndOfArchive)) => {}
                Err(_) => return (entries, content, false),
            }
        }
    }
    (entries, content, decoder.finish().is_ok())
}
