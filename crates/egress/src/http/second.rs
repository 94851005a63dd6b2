//! HTTP/2, which is not carried without TLS: recognises how clients offer it, and how to refuse those that
//! begin with it. Pure.
//!
//! An offer is not binding: a server that does not know it answers as if it had not been made, so it is
//! removed from the request. A client that begins with HTTP/2 has no other way, and gets its refusal in
//! HTTP/2.

/// The fields of an offer, which the field `connection` lists too.
pub const OFFER: [&str; 2] = ["upgrade", "http2-settings"];
/// The name of the offered protocol: HTTP/2 without TLS.
const PROTOCOL: &str = "h2c";

const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// The error that asks for the first version.
const HTTP_1_1_REQUIRED: u32 = 0xd;

/// Whether the value of `upgrade` is exactly this offer.
pub fn is_offer(upgrade: &str) -> bool {
    upgrade.split(',').all(|protocol| protocol.trim().eq_ignore_ascii_case(PROTOCOL))
}

/// A head without its offer. It was validated before: its lines are whole and plain.
pub fn without_offer(head: &[u8]) -> Vec<u8> {
    let is_of_offer =
        |name: &[u8]| OFFER.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()));
    let mut out = Vec::with_capacity(head.len());
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let colon = line.iter().position(|byte| *byte == b':').filter(|_| number > 0);
        let (name, value) = line.split_at(colon.unwrap_or_default());
        if is_of_offer(name) {
            continue;
        }
        if !name.eq_ignore_ascii_case(b"connection") {
            out.extend_from_slice(line);
            continue;
        }
        let words = value[1..].split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let words: Vec<_> = words.filter(|word| !word.is_empty() && !is_of_offer(word)).collect();
        if !words.is_empty() {
            out.extend([name, b": ", &words.join(&b", "[..]), b"\r\n"].concat());
        }
    }
    out
}

/// The answer to a client that has begun with HTTP/2: the settings that it waits for, and a GOAWAY with the
/// reason.
pub fn refusal(why: &str) -> Vec<u8> {
    let last_stream = 0_u32;
    let end = [&last_stream.to_be_bytes()[..], &HTTP_1_1_REQUIRED.to_be_bytes(), why.as_bytes()];
    [frame(SETTINGS, &[]), frame(GOAWAY, &end.concat())].concat()
}

/// A frame of the whole connection. Bodies here are far below the limit.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[1..], &[kind, 0, 0, 0, 0, 0], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_second_version_is_an_offer() {
        for upgrade in ["h2c", "H2C", "h2c, h2c"] {
            assert!(is_offer(upgrade), "{upgrade}");
        }
        for upgrade in ["", "websocket", "h2c, websocket", "h2c,", "h2", "TLS/1.0"] {
            assert!(!is_offer(upgrade), "{upgrade}");
        }
    }

    #[test]
    fn an_offer_is_taken_out_and_everything_else_stays_as_it_was() {
        for (with, without) in [
            ("Connection: Upgrade, HTTP2-Settings\r\n", ""),
            ("Connection: keep-alive,upgrade , http2-settings\r\n", "Connection: keep-alive\r\n"),
            ("connection: Upgrade\r\nConnection: X\r\nX: y\r\n", "Connection: X\r\nX: y\r\n"),
            ("", ""),
        ] {
            let head =
                |fields: &str| format!("GET /upgrade: HTTP/1.1\r\nHost:a.org\r\n{fields}\r\n");
            let offered = head(&format!("Upgrade: h2c\r\n{with}HTTP2-SETTINGS: AAMAAABk\r\n"));
            let left = without_offer(offered.as_bytes());
            assert_eq!(String::from_utf8_lossy(&left), head(without));
        }
    }

    #[test]
    fn the_end_is_settings_and_a_reason() {
        let frames = refusal("no");
        assert_eq!(frames[..9], [0, 0, 0, 4, 0, 0, 0, 0, 0]);
        assert_eq!(frames[9..18], [0, 0, 10, 7, 0, 0, 0, 0, 0]);
        assert_eq!(frames[18..], [0, 0, 0, 0, 0, 0, 0, 0xd, b'n', b'o']);
    }
}
