//! Questions and answers, good and hostile.

use proptest::prelude::*;

use super::*;

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

/// A server's answer to `question`, with these records.
fn answer(question: &[u8], records: &[(&str, u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = question.to_vec();
    message[2] |= 0x80;
    message[7] = records.len() as u8;
    for (name, kind, data) in records {
        message.extend(name_bytes(&host(name)));
        message.extend(kind.to_be_bytes());
        message.extend(CLASS_INTERNET.to_be_bytes());
        message.extend(60_u32.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    }
    message
}

fn found(message: &[u8]) -> Option<Vec<IpAddr>> {
    parse_answer(message, 7, &host("a.org"), TYPE_A).map(|found| found.addresses)
}

#[test]
fn a_question_is_read_as_it_was_asked() {
    let question =
        parse_question(&encode_question(7, &host("www.example.org"), TYPE_AAAA)).unwrap();
    assert_eq!((question.name.as_str(), question.kind), ("www.example.org", TYPE_AAAA));
}

#[test]
fn an_answer_repeats_the_question_and_gives_the_address() {
    let query = encode_question(7, &host("a.org"), TYPE_A);
    let question = parse_question(&query).unwrap();
    let message = encode_address(&question, Ipv4Addr::new(198, 18, 0, 9), 60);
    assert_eq!(found(&message), Some(vec!["198.18.0.9".parse().unwrap()]));
    let plain = encode_plain(&question, Code::NoSuchName);
    let read = parse_answer(&plain, 7, &host("a.org"), TYPE_A).unwrap();
    assert_eq!((read.code, read.addresses.len()), (Code::NoSuchName as u16, 0));
}

#[test]
fn aliases_are_followed_in_whatever_order_they_come() {
    let question = encode_question(7, &host("a.org"), TYPE_A);
    let address = vec![93, 184, 216, 34];
    let records = [
        ("c.org", TYPE_A, address.clone()),
        ("b.org", TYPE_CNAME, name_bytes(&host("c.org"))),
        ("a.org", TYPE_CNAME, name_bytes(&host("B.org"))),
        ("other.org", TYPE_A, vec![10, 0, 0, 1]),
    ];
    assert_eq!(found(&answer(&question, &records)), Some(vec!["93.184.216.34".parse().unwrap()]));
}

#[test]
fn aliases_in_a_ring_end() {
    let question = encode_question(7, &host("a.org"), TYPE_A);
    let records = [
        ("a.org", TYPE_CNAME, name_bytes(&host("b.org"))),
        ("b.org", TYPE_CNAME, name_bytes(&host("a.org"))),
    ];
    assert_eq!(found(&answer(&question, &records)), Some(vec![]));
}

#[test]
fn an_answer_to_another_question_is_ignored() {
    let question = encode_question(7, &host("a.org"), TYPE_A);
    let good = answer(&question, &[("a.org", TYPE_A, vec![1, 2, 3, 4])]);
    assert!(found(&good).is_some());
    assert_eq!(parse_answer(&good, 8, &host("a.org"), TYPE_A), None, "another id");
    assert_eq!(parse_answer(&good, 7, &host("b.org"), TYPE_A), None, "another name");
    assert_eq!(parse_answer(&good, 7, &host("a.org"), TYPE_AAAA), None, "another kind");
    assert_eq!(found(&question), None, "a question");
}

#[test]
fn a_malformed_question_is_refused_where_its_header_can_be_read() {
    let question = encode_question(7, &host("a.org"), TYPE_A);
    let wrong = |change: fn(&mut Vec<u8>)| {
        let mut message = question.clone();
        change(&mut message);
        parse_question(&message).unwrap_err()
    };
    assert_eq!(wrong(|message| message.truncate(11)), QuestionError::Nothing);
    assert_eq!(wrong(|message| message[2] |= 0x80), QuestionError::Nothing);
    let code = |not: QuestionError| match not {
        QuestionError::Answer { code, .. } => code,
        QuestionError::Nothing => panic!("it has a header"),
    };
    assert_eq!(code(wrong(|message| message[2] |= 0x28)), Code::NotImplemented);
    assert_eq!(code(wrong(|message| message[5] = 2)), Code::Malformed);
    assert_eq!(code(wrong(|message| message[5] = 0)), Code::Malformed);
    assert_eq!(code(wrong(|message| message.truncate(15))), Code::Malformed);
    assert_eq!(code(wrong(|message| message[12] = 0xc0)), Code::Malformed, "a pointer");
}

#[test]
fn a_part_with_a_dot_in_it_does_not_become_two() {
    let mut message = encode_question(7, &host("axb.org"), TYPE_A);
    message[14] = b'.';
    let question = parse_question(&message).unwrap();
    assert_eq!(question.name, "a?b.org");
    assert!(question.name.parse::<Host>().is_err());
}

#[test]
fn the_name_of_an_address_is_read_backwards() {
    assert_eq!(reversed("9.0.18.198.in-addr.arpa"), Some(Ipv4Addr::new(198, 18, 0, 9)));
    for name in ["9.0.18.in-addr.arpa", "1.9.0.18.198.in-addr.arpa", "x.0.18.198.in-addr.arpa"] {
        assert_eq!(reversed(name), None, "{name}");
    }
}

proptest! {
    /// Any input is read or refused within bounds, and can be answered.
    #[test]
    fn no_bytes_of_a_stranger_do_harm(message in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(question) = parse_question(&message) {
            prop_assert!(question.name.len() <= NAME_BYTES_MAX);
            let answer = encode_address(&question, Ipv4Addr::LOCALHOST, 1);
            prop_assert!(answer.len() <= message.len() + 16);
        }
        let _ = parse_answer(&message, 7, &host("a.org"), TYPE_A);
    }
}

#[test]
fn a_changed_byte_adds_no_address_that_the_answer_does_not_hold() {
    const FLAGS_AT: usize = 2;
    let query = encode_question(7, &host("a.org"), TYPE_A);
    let records =
        [("a.org", TYPE_CNAME, name_bytes(&host("b.org"))), ("b.org", TYPE_A, vec![1, 2, 3, 4])];
    let good = answer(&query, &records);
    assert_eq!(found(&good), Some(vec!["1.2.3.4".parse().unwrap()]));
    for at in 0..good.len() {
        for byte in 0..=u8::MAX {
            let mut message = good.clone();
            message[at] = byte;
            // The address is at the end, and nothing else in the answer can become one.
            let octets: [u8; 4] = message[message.len() - 4..].try_into().unwrap();
            let addresses = found(&message).unwrap_or_default();
            assert!(
                addresses.is_empty() || addresses == [IpAddr::from(octets)],
                "byte {at} is {byte}: {addresses:?}"
            );
            let question = parse_question(&message);
            assert!(question.is_err() || at == FLAGS_AT, "byte {at} is {byte}: {question:?}");
        }
    }
}
