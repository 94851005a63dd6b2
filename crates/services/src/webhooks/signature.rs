//! The signature of a request, as the Standard Webhooks specification has it, so that receivers verify it
//! with a library that exists. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// What a secret begins with whose rest is base64.
const BASE64_PREFIX: &str = "whsec_";

/// `v1,` and the base64 of the HMAC-SHA256 over `id.seconds.body`. The key is what follows `whsec_` in
/// the secret, as base64, or the secret itself.
pub fn signature(secret: &[u8], id: &str, seconds: u64, body: &[u8]) -> Result<String, String> {
    let key = match secret.strip_prefix(BASE64_PREFIX.as_bytes()) {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| format!("what follows {BASE64_PREFIX} in its secret is not base64"))?,
        None => secret.to_owned(),
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let mut signed = hmac::Context::with_key(&key);
    signed.update(format!("{id}.{seconds}.").as_bytes());
    signed.update(body);
    Ok(format!("v1,{}", STANDARD.encode(signed.sign())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_of_the_specification() {
        // The example of standard-webhooks, whose libraries have it in their tests.
        let secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_ne!(signature(b"a", "1", 2, b"3"), signature(b"a", "1", 2, b"4"));
        assert!(signature(b"whsec_!", "1", 2, b"3").unwrap_err().contains("base64"));
    }
}
