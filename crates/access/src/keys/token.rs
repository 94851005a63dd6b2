//! Encodes claims as a key, and decodes a key that one of our secrets has signed. Pure; no clock.
//!
//! The signature is checked before anything that it covers is parsed. Bytes of an attacker meet
//! three searches for a dot, a decoding of 43 letters and one digest per secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;

use super::claims::{Claims, Header};
use super::id::Fingerprint;
use super::limits::{KEY_BYTES_MAX, SECRET_BYTES};
use super::secret::{Key, Secret};
use super::{Denied, KeysError};

/// What every key begins with: it makes keys findable where they should not be.
pub const KEY_PREFIX: &str = "msb_";
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const ALGORITHM: &str = "HS256";
const TYPE: &str = "JWT";
/// 32 bytes in base64url without padding.
const SIGNATURE_CHARS: usize = 43;

/// Encodes a key.
pub fn encode(claims: &Claims, secret: &Secret) -> Result<Key, KeysError> {
    let payload = serde_json::to_vec(claims).map_err(|_| KeysError::Claims)?;
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(payload));
    let signature = URL_SAFE_NO_PAD.encode(secret.sign(&signed));
    let text = format!("{KEY_PREFIX}{signed}.{signature}");
    if text.len() > KEY_BYTES_MAX { Err(KeysError::Claims) } else { Ok(Key::new(text)) }
}

/// Reads a key that one of `secrets` has signed.
pub fn decode(presented: &str, secrets: &[Secret]) -> Result<(Claims, Fingerprint), Denied> {
    if presented.len() > KEY_BYTES_MAX {
        return Err(Denied::Malformed("it is too long"));
    }
    let token = presented.strip_prefix(KEY_PREFIX);
    let token = token.ok_or(Denied::Malformed("it does not begin with msb_"))?;
    let (signed, signature) = token.rsplit_once('.').ok_or(Denied::Malformed("it has no parts"))?;
    let (header, payload) = signed.split_once('.').ok_or(Denied::Malformed("a part is missing"))?;
    if payload.contains('.') {
        return Err(Denied::Malformed("it has too many parts"));
    }
    let signature = decode_signature(signature)?;
    if !secrets.iter().any(|secret| secret.has_signed(signed, &signature)) {
        return Err(Denied::BadSignature);
    }
    check_header(&decode_json(header)?)?;
    Ok((decode_json(payload)?, Fingerprint::of(&signature)))
}

fn decode_signature(text: &str) -> Result<[u8; SECRET_BYTES], Denied> {
    const WRONG: Denied = Denied::Malformed("its signature is not HS256");
    let mut bytes = [0; SECRET_BYTES];
    if text.len() != SIGNATURE_CHARS {
        return Err(WRONG);
    }
    match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
        Ok(SECRET_BYTES) => Ok(bytes),
        _ => Err(WRONG),
    }
}

/// Accepts one algorithm only, whatever the key's header says.
fn check_header(header: &Header) -> Result<(), Denied> {
    if header.alg != ALGORITHM {
        return Err(Denied::Malformed("its algorithm is not HS256"));
    }
    match &header.typ {
        Some(typ) if !typ.eq_ignore_ascii_case(TYPE) => Err(Denied::Malformed("it is not a JWT")),
        _ => Ok(()),
    }
}

fn decode_json<T: DeserializeOwned>(text: &str) -> Result<T, Denied> {
    let bytes = URL_SAFE_NO_PAD.decode(text);
    let bytes = bytes.map_err(|_| Denied::Malformed("a part is not base64url"))?;
    // serde would take a list of values for an object, too.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Denied::Malformed("a part is not an object"));
    }
    serde_json::from_slice(&bytes).map_err(|_| Denied::Malformed("its claims cannot be read"))
}
