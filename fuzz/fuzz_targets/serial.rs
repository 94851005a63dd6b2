//! Both ends of a line without connections, fed what may come over it in whatever slices. Slices must
//! not matter; and whatever came before, a whole call begins its link and an answer is found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::serial::{Answer, FILLING_BYTES, Intake, LinkNumber};

/// What no engine spells by itself stands for a byte and the one behind it: a call, a call without
/// its filling, an answer, and a record of as many bytes.
const CALL: u8 = 0xf0;
const CONNECT: u8 = 0xf1;
const ANSWER: u8 = 0xf2;
const RECORD: u8 = 0xf3;

/// How many calls one input may hold; each has 16 KiB.
const CALLS_MAX: usize = 8;

const LAST: &[u8] = b"what stands behind all";

fuzz_target!(|data: &[u8]| {
    let Some((slice, spelt)) = data.split_first() else { return };
    let (before, slice) = (spell(spelt), usize::from(*slice) + 1);
    let link = LinkNumber::drawn(1 << 40);

    let mut stream = [before.clone(), link.call()].concat();
    link.wrap(LAST, &mut stream);
    let whole = taken(stream.chunks(stream.len()));
    assert_eq!(whole, taken(stream.chunks(slice)), "the same bytes in other slices");
    assert_eq!(whole.last(), Some(&(Some(link), LAST.to_vec())), "a call begins its link");

    let answer = link.answer();
    let stream = [before, answer.clone(), LAST.to_vec()].concat();
    let at = stream.windows(answer.len()).position(|bytes| bytes == answer).expect("it is there");
    let behind = &stream[at + answer.len()..];
    assert_eq!(found(link, stream.chunks(stream.len())), behind);
    assert_eq!(found(link, stream.chunks(slice)), behind, "the same bytes in other slices");
});

fn spell(data: &[u8]) -> Vec<u8> {
    let (mut out, mut data, mut calls) = (Vec::new(), data.iter(), 0);
    while let Some(&byte) = data.next() {
        let mut argument = || *data.next().unwrap_or(&0);
        let link = |number: u8| LinkNumber::drawn(u64::from(number));
        match byte {
            CALL if calls < CALLS_MAX => {
                calls += 1;
                out.extend(link(argument()).call());
            }
            CONNECT => out.extend_from_slice(&link(argument()).call()[FILLING_BYTES..]),
            ANSWER => out.extend(link(argument()).answer()),
            RECORD => {
                let number = argument();
                link(number % 4).wrap(&vec![number; usize::from(number)], &mut out);
            }
            byte => out.push(byte),
        }
    }
    out
}

/// The links that an agent sees, and the bytes of each; what is before the first comes first.
fn taken<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(Option<LinkNumber>, Vec<u8>)> {
    let mut intake = Intake::default();
    let mut links = vec![(None, Vec::new())];
    for mut piece in pieces {
        while !piece.is_empty() {
            let (_, out) = links.last_mut().expect("never empty");
            let (bytes, begun) = intake.take(piece, out);
            assert!(bytes > 0 || begun.is_some(), "it goes on");
            piece = &piece[bytes..];
            if begun.is_some() {
                links.push((begun, Vec::new()));
            }
        }
    }
    links
}

/// What stands behind the answer that a host has found.
fn found<'a>(link: LinkNumber, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut answer = Answer::to(link);
    let mut behind: Option<Vec<u8>> = None;
    for piece in pieces {
        match &mut behind {
            Some(behind) => behind.extend_from_slice(piece),
            None => behind = answer.find(piece).map(<[u8]>::to_vec),
        }
    }
    behind.expect("an answer is found")
}
