//! What must open nothing, and what other makers of keys may do.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::json;

use super::*;

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
/// A time that no test will see.
const FAR_S: u64 = 4_000_000_000;

/// A bridge's keys, and its secret as another program would have it.
struct Bridge {
    _scratch: Scratch,
    keyring: Keyring,
    secret: Secret,
}

impl Bridge {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let keyring = Keyring::open(&scratch.0).unwrap();
        let secret = Store::open(&scratch.0).unwrap().read().unwrap().signers[0].secret.clone();
        Self { _scratch: scratch, keyring, secret }
    }

    /// Signs as any HS256 library does.
    fn sign(&self, header: &str, claims: &str) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.secret.sign(&signed));
        format!("msb_{signed}.{signature}")
    }

    fn verify(&self, header: &str, claims: &str) -> Result<Grant, Denied> {
        self.keyring.verify(&self.sign(header, claims))
    }
}

fn claims(more: &str) -> String {
    format!(r#"{{"exp":{FAR_S},"iat":1,"namespace":"team"{more}}}"#)
}

#[test]
fn what_another_library_signs_with_our_secret_is_accepted() {
    let bridge = Bridge::new("foreign");
    let grant = bridge.verify(HEADER, &claims("")).unwrap();
    assert_eq!((&grant.id, &grant.name), (&None, &None));
    assert!(grant.may(Access::Run) && grant.may(Access::Read) && !grant.may(Access::Admin));
    assert!(grant.covers(&"team".parse().unwrap()) && !grant.covers(&"x".parse().unwrap()));
    assert_eq!(grant.expires_at_ms, Some(FAR_S * 1000));
    for header in [
        r#"{"typ":"JWT","alg":"HS256"}"#,
        r#"{"alg":"HS256"}"#,
        r#"{ "alg" : "HS256", "typ": "jwt", "kid": "1" }"#,
    ] {
        assert!(bridge.verify(header, &claims(r#","sub":"x","aud":["y"]"#)).is_ok(), "{header}");
    }
    let theirs = claims(r#","jti":"6f1c2a3e-0000-4000-8000-000000000000""#);
    assert_eq!(bridge.verify(HEADER, &theirs).unwrap().id, None);
}

#[test]
fn a_signature_is_what_others_compute() {
    // Made with another implementation of HMAC-SHA-256.
    let bytes: [u8; 32] = std::array::from_fn(|index| index as u8);
    let secret = Secret::from_bytes(bytes);
    let signature = secret.sign("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30");
    assert_eq!(URL_SAFE_NO_PAD.encode(signature), "DipNCdRGLGdEmU3c9TMc6QJbme-uECl_u_c9v7k8fjU");
}

#[test]
fn only_hs256_is_an_algorithm() {
    let bridge = Bridge::new("algorithm");
    for alg in ["none", "None", "HS512", "hs256", "RS256", ""] {
        let header = json!({ "alg": alg, "typ": "JWT" }).to_string();
        let denied = bridge.verify(&header, &claims("")).unwrap_err();
        assert!(matches!(denied, Denied::Malformed(_)), "{alg}: {denied:?}");
    }
    let unsigned = format!(
        "msb_{}.{}.",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
        URL_SAFE_NO_PAD.encode(claims(""))
    );
    assert!(matches!(bridge.keyring.verify(&unsigned), Err(Denied::Malformed(_))));
}

#[test]
fn headers_that_ask_for_more_are_refused() {
    let bridge = Bridge::new("header");
    for header in [
        r#"{"alg":"HS256","crit":["exp"]}"#,
        r#"{"alg":"HS256","alg":"HS256"}"#,
        r#"{"alg":"HS256","jwk":{"k":"AA"}}"#,
        r#"{"alg":"HS256","typ":"JWE"}"#,
        r#"{"typ":"JWT"}"#,
        r#"{"alg":7}"#,
        r#"["HS256"]"#,
        r#"{"alg":"HS256"} {}"#,
        "",
    ] {
        let denied = bridge.verify(header, &claims("")).unwrap_err();
        assert!(matches!(denied, Denied::Malformed(_)), "{header}: {denied:?}");
    }
}

#[test]
fn claims_that_say_too_little_or_twice_are_refused() {
    let bridge = Bridge::new("claims");
    for text in [
        r#"{"exp":4000000000,"iat":1}"#,
        r#"{"exp":4000000000,"namespace":"*"}"#,
        r#"{"iat":1,"namespace":"*"}"#,
        r#"{"exp":null,"iat":1,"namespace":"*"}"#,
        r#"{"exp":"4000000000","iat":1,"namespace":"*"}"#,
        r#"{"exp":-1,"iat":1,"namespace":"*"}"#,
        r#"{"exp":4e9,"iat":1,"namespace":"*"}"#,
        r#"{"exp":4000000000,"iat":1,"namespace":""}"#,
        r#"{"exp":4000000000,"iat":1,"namespace":"../x"}"#,
        r#"{"exp":1,"exp":4000000000,"iat":1,"namespace":"*"}"#,
        r#"{"exp":4000000000,"iat":1,"namespace":"a","namespace":"*"}"#,
        r#"{"exp":4000000000,"iat":1,"namespace":"*","scopes":[]}"#,
        r#"{"exp":4000000000,"iat":1,"namespace":"*","scopes":["root"]}"#,
        r#"{"exp":4000000000,"iat":1,"namespace":"*","scopes":"admin"}"#,
        "null",
    ] {
        let denied = bridge.verify(HEADER, text).unwrap_err();
        assert!(matches!(denied, Denied::Malformed(_)), "{text}: {denied:?}");
    }
}

#[test]
fn times_are_kept_to_the_second() {
    let bridge = Bridge::new("times");
    let now_s = store::now_ms() / 1000;
    let at = |exp: u64, more: &str| {
        bridge.verify(HEADER, &format!(r#"{{"exp":{exp},"iat":1,"namespace":"*"{more}}}"#))
    };
    assert!(matches!(at(now_s, ""), Err(Denied::Expired { at_ms }) if at_ms == now_s * 1000));
    assert!(matches!(at(1, ""), Err(Denied::Expired { .. })));
    assert!(at(now_s + 60, "").is_ok());
    let soon = format!(r#","nbf":{}"#, now_s + 60);
    assert!(matches!(at(FAR_S, &soon), Err(Denied::NotYetValid { .. })));
    assert!(at(FAR_S, r#","nbf":1"#).is_ok());
    // So far away that milliseconds of it do not fit.
    assert!(at(u64::MAX, "").is_ok());
}

#[test]
fn a_signature_of_another_secret_opens_nothing() {
    let (ours, theirs) = (Bridge::new("ours"), Bridge::new("theirs"));
    let key = theirs.sign(HEADER, &claims(""));
    assert_eq!(ours.keyring.verify(&key), Err(Denied::BadSignature));
    assert!(theirs.keyring.verify(&key).is_ok());
}

#[test]
fn no_byte_of_a_key_can_be_changed_left_out_or_added() {
    let bridge = Bridge::new("bytes");
    let key = bridge.sign(HEADER, &claims(""));
    assert!(bridge.keyring.verify(&key).is_ok());
    for at in 0..key.len() {
        let (before, after) = (&key[..at], &key[at + 1..]);
        for letter in ["A", "b", "_", ".", "=", " ", "ä"] {
            if &key[at..=at] != letter {
                let changed = format!("{before}{letter}{after}");
                assert!(bridge.keyring.verify(&changed).is_err(), "{changed}");
            }
            let added = format!("{before}{letter}{}", &key[at..]);
            assert!(bridge.keyring.verify(&added).is_err(), "{added}");
        }
        assert!(bridge.keyring.verify(&format!("{before}{after}")).is_err());
        assert!(bridge.keyring.verify(before).is_err());
    }
    for around in [format!(" {key}"), format!("{key}\n"), key[4..].to_owned(), key.to_uppercase()] {
        assert!(bridge.keyring.verify(&around).is_err(), "{around:?}");
    }
}

#[test]
fn padding_is_refused_even_with_a_signature_that_covers_it() {
    let bridge = Bridge::new("padding");
    let payload = URL_SAFE.encode(claims(r#","sub":"x""#));
    let payload = if payload.ends_with('=') { payload } else { format!("{payload}==") };
    let signed = format!("{}.{payload}", URL_SAFE_NO_PAD.encode(HEADER));
    let signature = URL_SAFE_NO_PAD.encode(bridge.secret.sign(&signed));
    let denied = bridge.keyring.verify(&format!("msb_{signed}.{signature}")).unwrap_err();
    assert!(matches!(denied, Denied::Malformed(_)), "{denied:?}");
}

#[test]
fn a_key_longer_than_the_limit_is_not_looked_at() {
    let bridge = Bridge::new("long");
    let padded = claims(&format!(r#","x":"{}""#, "y".repeat(4096)));
    assert!(matches!(bridge.verify(HEADER, &padded), Err(Denied::Malformed(_))));
    assert!(bridge.verify(HEADER, &claims(&format!(r#","x":"{}""#, "y".repeat(2000)))).is_ok());
    let huge = "msb_".to_owned() + &".".repeat(10_000_000);
    assert!(matches!(bridge.keyring.verify(&huge), Err(Denied::Malformed(_))));
}

proptest::proptest! {
    #[test]
    fn bytes_of_strangers_never_panic(text in "(msb_)?[A-Za-z0-9_.=-]{0,80}|\\PC{0,40}") {
        let secrets = [Secret::from_bytes([7; 32])];
        proptest::prop_assert!(token::decode(&text, &secrets).is_err());
    }

    #[test]
    fn claims_of_strangers_never_panic(text in "\\PC{0,60}", header in "\\PC{0,30}") {
        let secret = Secret::from_bytes([7; 32]);
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(text));
        let signature = URL_SAFE_NO_PAD.encode(secret.sign(&signed));
        let _ = token::decode(&format!("msb_{signed}.{signature}"), &[secret]);
    }
}
