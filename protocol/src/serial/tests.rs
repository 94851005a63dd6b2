//! Hosts that come and go on one line, each cut off anywhere.

use proptest::prelude::*;

use super::*;

/// An agent that is fed in pieces: the payload of each link in turn.
#[derive(Default)]
struct Agent {
    intake: Intake,
    links: Vec<(LinkNumber, Vec<u8>)>,
}

impl Agent {
    fn hear(&mut self, mut bytes: &[u8]) {
        loop {
            let mut out = Vec::new();
            let (taken, begun) = self.intake.take(bytes, &mut out);
            if let Some((_, payload)) = self.links.last_mut() {
                payload.extend_from_slice(&out);
            } else {
                assert!(out.is_empty(), "nothing comes before the first link");
            }
            bytes = &bytes[taken..];
            match begun {
                Some(link) => self.links.push((link, Vec::new())),
                None => break,
            }
        }
        assert!(bytes.is_empty(), "everything is taken");
        assert!(self.intake.begun.len() < FILLING_BYTES, "and little is kept");
    }

    fn hear_in_pieces(&mut self, bytes: &[u8], sizes: &[usize]) {
        let mut rest = bytes;
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                return;
            }
            let (piece, behind) = rest.split_at((*size).min(rest.len()));
            self.hear(piece);
            rest = behind;
        }
    }
}

fn wrapped(link: LinkNumber, payload: &[u8]) -> Vec<u8> {
    let mut bytes = link.call();
    link.wrap(payload, &mut bytes);
    bytes
}

#[test]
fn a_link_is_a_call_an_answer_and_records() {
    let link = LinkNumber::drawn(0x0123_4567_89ab_cdef);
    let call = link.call();
    assert_eq!(&call[FILLING_BYTES..], b"CONNECT 0123456789abcdef\n");
    assert_eq!(link.answer(), b"OK 0123456789abcdef\n");
    let mut agent = Agent::default();
    agent.hear(&wrapped(link, b"hello"));
    assert_eq!(agent.links, [(link, b"hello".to_vec())]);
}

#[test]
fn a_call_within_what_was_carried_is_no_call() {
    let (link, other) = (LinkNumber::drawn(1), LinkNumber::drawn(2));
    let mut agent = Agent::default();
    agent.hear(&wrapped(link, &other.call()));
    assert_eq!(agent.links, [(link, other.call())]);
}

#[test]
fn filling_is_the_number_of_no_link() {
    assert_ne!(LinkNumber::drawn(u64::MAX).0.to_be_bytes(), [FILLING; LINK_BYTES]);
}

#[test]
fn a_host_receives_only_what_follows_its_own_answer() {
    let link = LinkNumber::drawn(77);
    let mut line = b"half a frame OK OOK 000000000000004c\nOK 0000".to_vec();
    line.extend(link.answer());
    line.extend(b"welcome");
    let mut answer = Answer::to(link);
    let behind: Vec<u8> = line
        .iter()
        .filter_map(|byte| answer.find(&[*byte]).map(<[u8]>::to_vec))
        .flatten()
        .collect();
    assert!(behind.is_empty(), "byte by byte there is nothing behind the last");
    assert_eq!(Answer::to(link).find(&line), Some(&b"welcome"[..]));
}

proptest! {
    /// A host that is cut off anywhere is followed by another: of the first an intact beginning has
    /// arrived, made of complete records, and of the second everything.
    #[test]
    fn the_next_host_is_understood_wherever_the_one_before_was_cut_off(
        numbers in any::<(u64, u64)>(),
        first in prop::collection::vec(any::<u8>(), 0..40_000),
        second in prop::collection::vec(any::<u8>(), 0..40_000),
        cut in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1..20_000_usize, 1..8),
    ) {
        let (one, two) = (LinkNumber::drawn(numbers.0), LinkNumber::drawn(numbers.1));
        prop_assume!(one != two);
        let mut line = wrapped(one, &first);
        line.truncate(cut.index(line.len() + 1));
        line.extend(wrapped(two, &second));
        let mut agent = Agent::default();
        agent.hear_in_pieces(&line, &sizes);
        let (link, payload) = agent.links.pop().expect("the second has come");
        prop_assert_eq!((link, payload), (two, second));
        if let Some((link, payload)) = agent.links.pop() {
            prop_assert_eq!(link, one);
            prop_assert!(first.starts_with(&payload));
            prop_assert!(payload.len() == first.len() || payload.len() % RECORD_BYTES_MAX == 0);
        }
        prop_assert!(agent.links.is_empty());
    }

    /// Whatever a line carries, nothing is passed on that no record of a link contained.
    #[test]
    fn noise_is_no_link(noise in prop::collection::vec(any::<u8>(), 0..4_000)) {
        let mut agent = Agent::default();
        agent.hear(&noise);
        prop_assert!(agent.links.is_empty());
    }
}
