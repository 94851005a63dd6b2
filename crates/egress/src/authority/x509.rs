//! Certificates, as far as one authority of a sandbox and the hosts that it speaks for need them:
//! version 3, P-256, in DER. Pure; it signs nothing by itself.
//!
//! Everything but names, keys and numbers is fixed, so this is a writer for a dozen kinds of value, and no
//! reader.

use crate::host::Host;

/// The same for all certificates: a guest's clock may be wrong, and their validity ends with the sandbox, not
/// at a date.
const NOT_BEFORE: &str = "200101000000Z";
const NOT_AFTER: &str = "491231235959Z";

const AUTHORITY: &str = "The host of this sandbox";
const HOST: &str = "A host that this sandbox sends secrets to";

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Context-specific tags.
const PLACE_0: u8 = 0xa0;
const PLACE_1: u8 = 0xa1;
const PLACE_3: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const ADDRESS: u8 = 0x87;
const KEY_IDENTIFIER: u8 = 0x80;

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 29, 14];
const KEY_USAGE: &[u8] = &[0x55, 29, 15];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 29, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 29, 19];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 29, 30];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 29, 35];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 29, 37];
const SERVER_AUTHENTICATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// Bits of a key's usage, the first being the highest.
const SIGNS_CERTIFICATES_AND_LISTS: [u8; 2] = [1, 0b0000_0110];
const SIGNS: [u8; 2] = [7, 0b1000_0000];

/// Bytes of a certificate's serial number.
pub const SERIAL_BYTES: usize = 16;
/// Bytes of a key id.
pub const KEY_ID_BYTES: usize = 20;

/// The content to sign.
pub struct TbsCertificate<'a> {
    pub serial: [u8; SERIAL_BYTES],
    /// The uncompressed point of its own key, and of the authority's.
    pub key: &'a [u8],
    pub key_id: &'a [u8; KEY_ID_BYTES],
    pub authority_key_id: &'a [u8; KEY_ID_BYTES],
}

impl TbsCertificate<'_> {
    /// An authority that its own certificate restricts to these hosts and their subdomains.
    pub fn authority(&self, hosts: &[Host]) -> Vec<u8> {
        let permitted: Vec<u8> = hosts
            .iter()
            .flat_map(|host| tagged(SEQUENCE, &tagged(DNS_NAME, host.as_str().as_bytes())))
            .collect();
        // Without a constraint, all names of a kind would be permitted.
        let addresses = [vec![0; 8], vec![0; 32]];
        let excluded = addresses.map(|all| tagged(SEQUENCE, &tagged(ADDRESS, &all))).concat();
        let constraints = [tagged(PLACE_0, &permitted), tagged(PLACE_1, &excluded)].concat();
        let no_authorities_below = tagged(INTEGER, &[0]);
        let is_one = [tagged(BOOLEAN, &[0xff]), no_authorities_below].concat();
        self.certificate(
            AUTHORITY,
            &[
                extension(BASIC_CONSTRAINTS, true, &tagged(SEQUENCE, &is_one)),
                extension(KEY_USAGE, true, &tagged(BIT_STRING, &SIGNS_CERTIFICATES_AND_LISTS)),
                extension(NAME_CONSTRAINTS, true, &tagged(SEQUENCE, &constraints)),
                self.own_key_id(),
            ],
        )
    }

    /// A server of one host.
    pub fn host(&self, host: &Host) -> Vec<u8> {
        let name = tagged(DNS_NAME, host.as_str().as_bytes());
        let issuer_key = tagged(KEY_IDENTIFIER, self.authority_key_id);
        let servers = tagged(IDENTIFIER, SERVER_AUTHENTICATION);
        self.certificate(
            HOST,
            &[
                extension(BASIC_CONSTRAINTS, true, &tagged(SEQUENCE, &[])),
                extension(KEY_USAGE, true, &tagged(BIT_STRING, &SIGNS)),
                extension(EXTENDED_KEY_USAGE, false, &tagged(SEQUENCE, &servers)),
                extension(SUBJECT_ALTERNATIVE_NAME, false, &tagged(SEQUENCE, &name)),
                extension(AUTHORITY_KEY_IDENTIFIER, false, &tagged(SEQUENCE, &issuer_key)),
                self.own_key_id(),
            ],
        )
    }

    fn own_key_id(&self) -> Vec<u8> {
        extension(SUBJECT_KEY_IDENTIFIER, false, &tagged(OCTET_STRING, self.key_id))
    }

    fn certificate(&self, subject: &str, extensions: &[Vec<u8>]) -> Vec<u8> {
        let key_kind = [tagged(IDENTIFIER, EC_PUBLIC_KEY), tagged(IDENTIFIER, P256)].concat();
        let key = [tagged(SEQUENCE, &key_kind), bits(self.key)].concat();
        let validity = [NOT_BEFORE, NOT_AFTER].map(|at| tagged(UTC_TIME, at.as_bytes())).concat();
        let version_3 = tagged(PLACE_0, &tagged(INTEGER, &[2]));
        let body = [
            version_3,
            tagged(INTEGER, &positive(self.serial)),
            algorithm(),
            name(AUTHORITY),
            tagged(SEQUENCE, &validity),
            name(subject),
            tagged(SEQUENCE, &key),
            tagged(PLACE_3, &tagged(SEQUENCE, &extensions.concat())),
        ];
        tagged(SEQUENCE, &body.concat())
    }
}

/// The certificate, from the signed content and its signature.
pub fn signed(unsigned: &[u8], signature: &[u8]) -> Vec<u8> {
    tagged(SEQUENCE, &[unsigned, &algorithm(), &bits(signature)].concat())
}

fn algorithm() -> Vec<u8> {
    tagged(SEQUENCE, &tagged(IDENTIFIER, ECDSA_WITH_SHA256))
}

fn name(common: &str) -> Vec<u8> {
    let pair = [tagged(IDENTIFIER, COMMON_NAME), tagged(UTF8_STRING, common.as_bytes())].concat();
    tagged(SEQUENCE, &tagged(SET, &tagged(SEQUENCE, &pair)))
}

fn extension(which: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if is_critical { tagged(BOOLEAN, &[0xff]) } else { Vec::new() };
    let parts = [tagged(IDENTIFIER, which), critical, tagged(OCTET_STRING, value)];
    tagged(SEQUENCE, &parts.concat())
}

/// Whole bytes as a string of bits.
fn bits(bytes: &[u8]) -> Vec<u8> {
    tagged(BIT_STRING, &[&[0], bytes].concat())
}

/// A number that is above zero and has no needless zero at its front.
fn positive(mut number: [u8; SERIAL_BYTES]) -> [u8; SERIAL_BYTES] {
    number[0] = number[0] & 0x7f | 0x40;
    number
}

/// A value with its kind and length before it.
fn tagged(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    let mut out = vec![tag];
    match length {
        0..0x80 => out.push(length as u8),
        0x80..0x100 => out.extend([0x81, length as u8]),
        _ => {
            debug_assert!(length < 1 << 24, "names are bounded, and so is all else");
            let [_, a, b, c] = (length as u32).to_be_bytes();
            if a == 0 {
                out.extend([0x82, b, c]);
            } else {
                out.extend([0x83, a, b, c]);
            }
        }
    }
    out.extend_from_slice(value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_short_as_can_be() {
        assert_eq!(tagged(4, &[7; 127])[..2], [4, 127]);
        assert_eq!(tagged(4, &[7; 128])[..3], [4, 0x81, 128]);
        assert_eq!(tagged(4, &[7; 256])[..4], [4, 0x82, 1, 0]);
        assert_eq!(tagged(4, &vec![7; 65_536])[..5], [4, 0x83, 1, 0, 0]);
    }

    #[test]
    fn numbers_are_above_zero() {
        for first in [0, 0x3f, 0x80, 0xff] {
            let number = positive([first; SERIAL_BYTES]);
            assert!((0x40..0x80).contains(&number[0]), "{first}");
        }
    }
}
