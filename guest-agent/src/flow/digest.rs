//! The running digest of an output that is kept on the host's disk.

use super::sha256::Sha256;

/// The digest of all bytes so far, at most of those before a mark.
pub struct RunningDigest {
    sha: Sha256,
    until: u64,
}

/// The digest of an output from its first byte on.
pub struct Digested {
    pub bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl RunningDigest {
    pub fn new() -> Self {
        Self { sha: Sha256::new(), until: u64::MAX }
    }

    /// Adds the next bytes of the output.
    pub fn update(&mut self, bytes: &[u8]) {
        let count = (bytes.len() as u64).min(self.until - self.sha.bytes());
        self.sha.update(&bytes[..count as usize]);
    }

    /// Nothing from `until` on counts. It is not before what counts already.
    pub fn end_at(&mut self, until: u64) {
        self.until = until.max(self.sha.bytes());
    }

    /// The digest, if all that counts is there.
    pub fn result(&self, is_closed: bool) -> Option<Digested> {
        let bytes = self.sha.bytes();
        if !is_closed && bytes < self.until {
            return None;
        }
        let nibbles = self.sha.clone().finish().into_iter().flat_map(|word| {
            (0..8).map(move |at| char::from(DIGITS[(word >> (28 - 4 * at)) as usize & 15]))
        });
        Some(Digested { bytes, sha256: nibbles.collect() })
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_bytes_before_its_mark_however_they_come() {
        let mut digest = RunningDigest::new();
        digest.update(b"ab");
        assert!(digest.result(false).is_none(), "more may come");
        digest.end_at(3);
        assert!(digest.result(false).is_none(), "one byte is missing");
        digest.update(b"cd");
        let Digested { bytes, sha256 } = digest.result(false).expect("it is complete");
        assert_eq!(bytes, 3);
        assert_eq!(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_digest_without_a_mark_is_of_all_of_a_closed_output() {
        let digest = RunningDigest::new();
        let Digested { bytes, sha256 } = digest.result(true).expect("nothing more comes");
        assert_eq!(bytes, 0);
        assert_eq!(sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
