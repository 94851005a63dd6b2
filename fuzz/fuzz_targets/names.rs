//! Messages of the name system, as a sandbox asks them and as a server that may be anybody's answers them.
#![no_main]

use burrow_fuzz::egress::dns;
use burrow_fuzz::egress::host::Host;
use libfuzzer_sys::fuzz_target;

/// What an answer is held against: the same number, name and kind that the seeds have.
const ID: u16 = 7;
const NAME: &str = "a.org";
/// What an answer to that begins with, so that its records are come to.
const BEGINNING: &[u8] = b"\0\x07\x81\x80\0\x01\0\x09\0\0\0\0\x01a\x03org\0\0\x01\0\x01";

fuzz_target!(|data: &[u8]| {
    let host: Host = NAME.parse().expect("a name");
    let whole = [BEGINNING, data].concat();
    for message in [data, &whole] {
        if let Some(found) = dns::parse_answer(message, ID, &host, dns::TYPE_A) {
            assert!(found.addresses.len() <= 16, "few are enough");
        }
        if let Ok(question) = dns::parse_question(message) {
            let _ = (dns::reversed(&question.name), question.name.parse::<Host>());
            let answer = dns::encode_address(&question, [198, 18, 0, 2].into(), 60);
            assert!(answer.len() <= message.len() + 16, "an answer in proportion");
            assert!(dns::parse_question(&answer).is_err(), "an answer is no question");
        }
    }
});
