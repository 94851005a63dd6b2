//! Heads of requests with placeholders in them: a value goes to its hosts and in its fields alone, and all
//! the rest of the head stays as it was.
#![no_main]

use burrow_fuzz::egress::host::Host;
use burrow_fuzz::egress::http::Head;
use burrow_fuzz::egress::inject::{InjectedSecret, Injections, placeholder};
use burrow_fuzz::egress::limits::FILLED_HEAD_BYTES_MAX;
use burrow_fuzz::secret::Secret;
use libfuzzer_sys::fuzz_target;

const NAME: &str = "n";
const VALUE: &[u8] = "what nobody says \u{1f511}".as_bytes();
/// What no engine spells by itself, each for a byte that no head has.
const WORDS: [&[u8]; 4] =
    [b"burrow-secret~n~", b"Authorization: Basic ", b"token: ", b"bWU6YnVycm93LXNlY3JldH5ufg=="];

fuzz_target!(|data: &[u8]| {
    let head = [b"GET / HTTP/1.1\r\n", &spell(data)[..], b"\r\n\r\n"].concat();
    if Head::parse(&head).is_err() || count(&head, VALUE) > 0 {
        return;
    }
    let secrets = injections();
    let (other, _) = secrets.fill(&host("b.org"), &head).expect("nothing is put in");
    assert_eq!(*other, head, "another host gets what the sandbox has");
    let Ok((filled, used)) = secrets.fill(&host("a.org"), &head) else { return };
    assert!(filled.len() <= FILLED_HEAD_BYTES_MAX, "a head is bounded");
    assert_eq!(used.is_empty(), *filled == *head, "injected secrets are reported");
    assert!(filled.starts_with(b"GET / HTTP/1.1\r\n"), "the first line has none");
    if !has_password(&head) {
        let undone = replaced(&filled, VALUE, placeholder(NAME).as_bytes());
        assert_eq!(undone, head, "nothing else has changed");
    }
});

fn spell(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in data {
        match WORDS.get(usize::from(*byte)) {
            Some(word) => out.extend_from_slice(word),
            None => out.push(*byte),
        }
    }
    out
}

fn injections() -> Injections {
    let fields = ["authorization", "token"].map(str::to_owned).to_vec();
    let value = Secret::of(VALUE.to_vec()).expect("a good value");
    let hosts = vec![host("a.org")];
    Injections::new(vec![InjectedSecret {
        name: NAME.to_owned(),
        hosts,
        fields,
        value: Some(value),
    }])
}

fn host(name: &str) -> Host {
    name.parse().expect("a name")
}

/// A field with an encoded password is written again, in which a placeholder may have been.
fn has_password(head: &[u8]) -> bool {
    head.windows(5).any(|window| window.eq_ignore_ascii_case(b"basic"))
}

fn count(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).filter(|window| *window == what).count()
}

fn replaced(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(what.len()).position(|window| window == what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}
