//! Greetings, good and hostile, whole and in pieces.

use proptest::prelude::*;

use super::*;

/// The result of parsing the bytes at once.
fn read(bytes: &[u8]) -> Hello {
    Greeting::default().read(bytes)
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    let mut all = (bytes.len() as u16).to_be_bytes().to_vec();
    all.extend_from_slice(bytes);
    all
}

/// An extension that names a host.
fn name(host: &str) -> (u16, Vec<u8>) {
    let mut entry = vec![HOST_NAME];
    entry.extend(with_length(host.as_bytes()));
    (SERVER_NAME, with_length(&entry))
}

/// The message of a greeting with these extensions.
fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(with_length(&[0x13, 0x01]));
    body.extend([1, 0]);
    let mut all = Vec::new();
    for (kind, data) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend(with_length(data));
    }
    body.extend(with_length(&all));
    let mut message = vec![CLIENT_HELLO];
    message.extend(&(body.len() as u32).to_be_bytes()[1..]);
    message.extend(body);
    message
}

/// Records of so many bytes each.
fn records(message: &[u8], bytes: usize) -> Vec<u8> {
    let record = |piece: &[u8]| [vec![HANDSHAKE, 3, 1], with_length(piece)].concat();
    message.chunks(bytes).flat_map(record).collect()
}

fn greeting(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    records(&message(extensions), RECORD_BYTES_MAX)
}

fn names(host: &str) -> Hello {
    Hello::Names(host.parse().unwrap())
}

#[test]
fn a_greeting_says_whom_it_means() {
    let other = (0x10, vec![0, 3, 2, b'h', b'2']);
    assert_eq!(
        read(&greeting(&[other.clone(), name("WWW.example.org")])),
        names("www.example.org")
    );
    assert_eq!(read(&greeting(&[other])), Hello::Nameless);
    assert_eq!(read(&greeting(&[])), Hello::Nameless);
}

#[test]
fn it_may_come_in_records_and_pieces_of_any_size() {
    let message = message(&[name("example.org")]);
    for bytes in 1..message.len() {
        let whole = records(&message, bytes);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Hello::More, "{end} bytes in records of {bytes}");
        }
        assert_eq!(read(&whole), names("example.org"), "in records of {bytes}");
    }
}

#[test]
fn one_that_comes_byte_by_byte_is_looked_at_once() {
    let message = message(&[name("example.org"), (0x15, vec![0; 4_000])]);
    for bytes in [1, 7, 1000, RECORD_BYTES_MAX] {
        let whole = records(&message, bytes);
        let mut greeting = Greeting::default();
        for end in 0..whole.len() {
            assert_eq!(
                greeting.read(&whole[..end]),
                Hello::More,
                "{end} bytes in records of {bytes}"
            );
            let records_done = (end / (bytes + RECORD_HEAD_BYTES)) * bytes;
            assert!(greeting.message.len() >= records_done && greeting.message.len() <= end);
        }
        assert_eq!(greeting.read(&whole), names("example.org"), "in records of {bytes}");
    }
}

#[test]
fn bytes_after_a_greeting_do_not_change_it() {
    let mut bytes = greeting(&[name("example.org")]);
    bytes.extend(b"more of whatever it is");
    assert_eq!(read(&bytes), names("example.org"));
}

#[test]
fn bytes_that_are_not_tls_are_recognised_at_once() {
    for bytes in
        [&b"GET / HTTP/1.1"[..], b"S", b"\x16\x02\x01", b"\x80\x2e\x01\x00\x02", b"\x15\x03"]
    {
        assert_eq!(read(bytes), Hello::Other, "{bytes:?}");
    }
}

#[test]
fn a_greeting_that_names_two_hosts_is_bad() {
    let twice = greeting(&[name("a.org"), name("b.org")]);
    assert!(matches!(read(&twice), Hello::Bad(_)));
    let mut entries = Vec::new();
    for host in ["a.org", "b.org"] {
        entries.push(HOST_NAME);
        entries.extend(with_length(host.as_bytes()));
    }
    let both = greeting(&[(SERVER_NAME, with_length(&entries))]);
    assert!(matches!(read(&both), Hello::Bad(_)));
}

#[test]
fn a_greeting_that_names_no_host_is_bad() {
    for host in ["127.0.0.1", "", "a\0.org", "a org", "::1"] {
        assert!(matches!(read(&greeting(&[name(host)])), Hello::Bad(_)), "{host:?}");
    }
}

#[test]
fn another_message_or_an_endless_one_is_bad() {
    let mut other = greeting(&[name("a.org")]);
    other[RECORD_HEAD_BYTES] = 2;
    assert!(matches!(read(&other), Hello::Bad(_)));
    let mut endless = greeting(&[name("a.org")]);
    endless[RECORD_HEAD_BYTES + 1] = 0xff;
    assert!(matches!(read(&endless), Hello::Bad(_)));
    assert!(matches!(read(&[HANDSHAKE, 3, 1, 0, 0]), Hello::Bad(_)), "an empty record");
    assert!(matches!(read(&[HANDSHAKE, 3, 1, 0xff, 0xff]), Hello::Bad(_)), "a record too long");
    let drip = records(&message(&[(0x15, vec![0; 20_000])]), 1);
    assert!(matches!(read(&drip[..=GREETING_BYTES_MAX]), Hello::Bad(_)), "all heads");
}

proptest! {
    #[test]
    fn no_bytes_of_a_stranger_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes);
        let _ = read(&records(&bytes, 100));
        let mut pieces = Greeting::default();
        let early = (0..=bytes.len()).map(|end| pieces.read(&bytes[..end])).find(|hello| *hello != Hello::More);
        prop_assert_eq!(early.unwrap_or(Hello::More), read(&bytes));
        let mut greeted = vec![CLIENT_HELLO, 0, (bytes.len() >> 8) as u8, bytes.len() as u8];
        greeted.extend(bytes);
        let _ = read(&records(&greeted, 1000));
    }
}

#[test]
fn a_changed_byte_names_another_host_only_if_it_is_in_the_name() {
    const NAME: &[u8] = b"example.org";
    let good = greeting(&[name("example.org")]);
    let begin = good.windows(NAME.len()).position(|bytes| bytes == NAME).unwrap();
    for at in 0..good.len() {
        for byte in 0..=u8::MAX {
            let mut bytes = good.clone();
            bytes[at] = byte;
            let hello = read(&bytes);
            if (begin..begin + NAME.len()).contains(&at) {
                let changed = std::str::from_utf8(&bytes[begin..begin + NAME.len()]);
                match changed.ok().and_then(|text| text.parse().ok()) {
                    Some(host) => assert_eq!(hello, Hello::Names(host), "byte {at} is {byte}"),
                    None => {
                        assert!(matches!(hello, Hello::Bad(_)), "byte {at} is {byte}: {hello:?}");
                    }
                }
            } else if let Hello::Names(host) = hello {
                assert_eq!(host.as_str(), "example.org", "byte {at} is {byte}");
            }
        }
    }
}
