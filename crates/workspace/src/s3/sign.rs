//! Signatures of requests, version 4 as AWS has published it. Pure: the time is the caller's.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};

use host::hex::digits;
use host::secret::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// Credentials. No part of them shows in `Debug`.
#[derive(Clone, Debug)]
pub struct Keys {
    pub access: Secret,
    pub secret: Secret,
    pub session: Option<Secret>,
}

/// The signed parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct SigningInput<'a> {
    pub method: &'a str,
    /// Encoded, as it is sent.
    pub path: &'a str,
    /// Encoded and in order, as it is sent.
    pub query: &'a str,
    /// Names in lower case, in order.
    pub headers: &'a [(String, String)],
    /// The hexadecimal SHA-256 of the body.
    pub content: &'a str,
}

/// The value of `Authorization`. `time` is as in `20130524T000000Z`.
pub fn authorization(keys: &Keys, region: &str, time: &str, signed: &SigningInput<'_>) -> String {
    let names: Vec<_> = signed.headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let mut canonical = format!("{}\n{}\n{}\n", signed.method, signed.path, signed.query);
    for (name, value) in signed.headers {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let _ = write!(canonical, "\n{names}\n{}", signed.content);
    let day = time.get(..8).unwrap_or(time);
    let scope = format!("{day}/{region}/{SERVICE}/aws4_request");
    let hashed = digits(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{hashed}");
    let first = host::secret::Wiped::new(format!("AWS4{}", keys.secret.expose()).into_bytes());
    let mut key = Key::new(HMAC_SHA256, &first);
    for part in [day, region, SERVICE, "aws4_request"] {
        key = Key::new(HMAC_SHA256, sign(&key, part.as_bytes()).as_ref());
    }
    let signature = digits(sign(&key, text.as_bytes()).as_ref());
    let access = keys.access.expose();
    format!("{ALGORITHM} Credential={access}/{scope},SignedHeaders={names},Signature={signature}")
}

/// Encodes a key or a value: S3 leaves these characters as they are, all others become `%XX`. A
/// slash stays only in keys.
pub fn encode(text: &str, keep_slash: bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_plain || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const TIME: &str = "20130524T000000Z";

    fn signature(
        method: &str,
        path: &str,
        query: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> String {
        let secret = |text: &str| Secret::of(text.as_bytes().to_vec()).unwrap();
        let keys = Keys {
            access: secret("AKIAIOSFODNN7EXAMPLE"),
            secret: secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session: None,
        };
        let usual = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("x-amz-content-sha256", body),
            ("x-amz-date", TIME),
        ];
        let mut headers: Vec<_> = usual.iter().chain(more).collect();
        headers.sort_unstable();
        let headers: Vec<_> = headers
            .into_iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let signed = SigningInput { method, path, query, headers: &headers, content: body };
        let whole = authorization(&keys, "us-east-1", TIME, &signed);
        assert!(
            whole.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request")
        );
        whole.rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn the_examples_that_were_published_are_signed_as_they_say() {
        assert_eq!(
            signature("GET", "/test.txt", "", &[("range", "bytes=0-9")], EMPTY),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let path = format!("/{}", encode("test$file.text", true));
        let more = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let body = digits(digest(&SHA256, b"Welcome to Amazon S3.").as_ref());
        assert_eq!(
            signature("PUT", &path, "", &more, &body),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", "lifecycle=", &[], EMPTY),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", "max-keys=2&prefix=J", &[], EMPTY),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn keys_keep_their_slashes_and_nothing_else_that_means_something() {
        assert_eq!(encode("a b/ü+~?", true), "a%20b/%C3%BC%2B~%3F");
        assert_eq!(encode("a/b=", false), "a%2Fb%3D");
    }
}
