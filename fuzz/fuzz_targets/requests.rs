//! The client's side of an HTTP/1 connection, in whatever slices; slices must not matter, and what goes on
//! is nothing but the beginning of what was said.
#![no_main]

use burrow_fuzz::egress::http::{Head, Requests, Wrong, agrees, is_request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((slice, said)) = data.split_first() else { return };
    let (fine, out) = passed(said.chunks(said.len().max(1)));
    let (fine_in_slices, out_of_slices) = passed(said.chunks(usize::from(*slice) + 1));
    assert_eq!(fine.is_ok(), fine_in_slices.is_ok(), "the same bytes in other slices");
    assert_eq!(out, out_of_slices);
    assert!(said.starts_with(&out), "nothing is added, and nothing changed");
    let _ = (is_request(said), agrees(said));
    if let Ok(head) = Head::parse(said) {
        let _ = head.absolute();
        let sent = head.for_server("a.org", "/");
        match Head::parse(&sent) {
            Ok(again) => assert_eq!(again.length(), head.length(), "its body ends where it did"),
            // It has two that the client's may have had no more room for.
            Err(Wrong::Malformed(why)) => assert_eq!(why, "it has too many fields"),
            Err(wrong) => panic!("what is sent is no head: {wrong}"),
        }
    }
});

fn passed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Result<(), Wrong>, Vec<u8>) {
    let mut requests = Requests::new("a.org".parse().expect("a name"), 80);
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(wrong) = requests.push(piece, &mut out) {
            return (Err(wrong), out);
        }
        if requests.awaits_agreement() {
            break;
        }
    }
    (Ok(()), out)
}
