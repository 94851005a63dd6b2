//! The client's side of an HTTP/1 connection, in whatever slices; slices must not matter. What goes on is
//! the beginning of what was input; where a head is changed on its way, it is one that would go on as it is.
#![no_main]

use burrow_fuzz::egress::http::{BadRequest, Head, Requests, agrees, is_request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((slice, input)) = data.split_first() else { return };
    let whole = passed(input.chunks(input.len().max(1)));
    let pieces = passed(input.chunks(usize::from(*slice) + 1));
    assert_eq!(whole.fine.is_ok(), pieces.fine.is_ok(), "the same bytes in other slices");
    assert_eq!(whole.out, pieces.out);
    if !whole.is_only_one && !has_offer(input) {
        assert!(input.starts_with(&whole.out), "nothing is added, and nothing changed");
    }
    let again = passed([&whole.out[..]].into_iter());
    match again.fine {
        Ok(()) => assert_eq!(again.out, whole.out, "it goes on as it is"),
        // A head has a field more that the client's may have had no more room for.
        Err(BadRequest::TooLong | BadRequest::Malformed("it has too many headers")) => {}
        Err(wrong) => panic!("what goes on may not go on: {wrong}"),
    }
    let _ = (is_request(input), agrees(input));
    if let Ok(head) = Head::parse(input) {
        let _ = head.absolute();
        let sent = head.for_server("a.org", "/");
        match Head::parse(&sent) {
            Ok(again) => assert_eq!(again.length(), head.length(), "its body ends where it did"),
            // It has two that the client's may have had no more room for.
            Err(BadRequest::Malformed(why)) => assert_eq!(why, "it has too many headers"),
            Err(wrong) => panic!("what is sent is no head: {wrong}"),
        }
    }
});

/// What has become of requests.
struct Passed {
    fine: Result<(), BadRequest>,
    out: Vec<u8>,
    /// The first has a body that it does not need, and is changed for that.
    is_only_one: bool,
}

fn passed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Passed {
    let mut requests = Requests::new("a.org".parse().expect("a name"), 80);
    let (mut fine, mut out) = (Ok(()), Vec::new());
    for piece in pieces {
        fine = requests.push(piece, &mut out);
        if fine.is_err() || requests.awaits_agreement() {
            break;
        }
    }
    Passed { fine, out, is_only_one: requests.is_only_one() }
}

/// Whether one may offer the second version, which is taken out of it.
fn has_offer(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|window| window.eq_ignore_ascii_case(b"h2c"))
}
