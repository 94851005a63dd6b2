//! The header `Content-Digest`: the expected digest of a body, and the check of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderName};
use ring::digest::{Algorithm, Context, SHA256, SHA512};
use serde_json::json;

use sandbox::refusal::{Code, Refusal};

pub const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// The stronger first.
const KNOWN: [(&str, &Algorithm); 2] = [("sha-512", &SHA512), ("sha-256", &SHA256)];

/// A digest that is made while bytes go by.
#[derive(Clone)]
pub struct Digest {
    name: &'static str,
    expected: Vec<u8>,
    context: Context,
}

impl Digest {
    /// What the headers ask for; `None` when they ask for nothing. One that cannot be checked is
    /// refused: a client that sends it counts on it.
    pub fn expected(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let mut lines = Vec::new();
        for line in headers.get_all(CONTENT_DIGEST) {
            lines.push(line.to_str().map_err(|_| malformed())?);
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let members: Vec<(&str, &str)> = lines
            .iter()
            .flat_map(|line| line.split(','))
            .map(|member| member.trim().split_once('=').ok_or_else(malformed))
            .collect::<Result<_, _>>()?;
        for (name, algorithm) in KNOWN {
            // Of a name that is there twice the last one counts.
            let Some((_, value)) = members.iter().rev().find(|(member, _)| *member == name) else {
                continue;
            };
            let encoded = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
            let expected = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
            let expected = expected
                .filter(|expected| expected.len() == algorithm.output_len())
                .ok_or_else(malformed)?;
            return Ok(Some(Self { name, expected, context: Context::new(algorithm) }));
        }
        let message = "none of the digests in Content-Digest can be checked here";
        Err(Refusal::invalid(message).hint("send sha-256 or sha-512"))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// Refuses a body with another digest.
    pub fn check(self) -> Result<(), Refusal> {
        let actual = self.context.finish();
        if actual.as_ref() == self.expected {
            return Ok(());
        }
        let message = format!("the {} of the body does not match Content-Digest", self.name);
        let actual = format!("{}=:{}:", self.name, STANDARD.encode(actual));
        Err(Refusal::new(Code::Invalid, message)
            .hint(
                "the body was damaged in transit, or the digest is wrong; the file was not changed",
            )
            .details(json!({ "content_digest": actual })))
    }
}

fn malformed() -> Refusal {
    Refusal::invalid("Content-Digest is malformed")
        .hint("write sha-256=:BASE64: with the 32 bytes of the digest")
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    /// Of `abc`.
    const SHA256_ABC: &str = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";

    fn expected(values: &[&str]) -> Result<Option<Digest>, Refusal> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_DIGEST, HeaderValue::from_str(value).unwrap());
        }
        Digest::expected(&headers)
    }

    #[test]
    fn a_body_is_held_against_its_digest() {
        let mut digest = expected(&[SHA256_ABC]).unwrap().unwrap();
        digest.update(b"a");
        digest.update(b"bc");
        digest.clone().check().unwrap();
        digest.update(b"d");
        assert_eq!(digest.check().unwrap_err().code, Code::Invalid);
        assert!(expected(&[]).unwrap().is_none());
    }

    #[test]
    fn one_that_can_be_checked_is_enough() {
        let both = format!("unixsum=:AA==:, {SHA256_ABC}");
        assert_eq!(expected(&[&both]).unwrap().unwrap().name, "sha-256");
        assert_eq!(expected(&["md5=:AA==:", SHA256_ABC]).unwrap().unwrap().name, "sha-256");
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        for value in ["", "sha-256", "sha-256=abc", "sha-256=:AA==:", "sha-256=:*:", "md5=:AA==:"] {
            assert_eq!(expected(&[value]).err().map(|problem| problem.code), Some(Code::Invalid));
        }
    }
}
