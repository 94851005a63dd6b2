//! Explains an error response of S3 and what to do about it. Pure.

use std::time::Duration;

use super::error::S3Error;
use super::limits::CODE_CHARS_MAX;
use super::xml::{self, XmlEvent};
use host::instant;

/// The head of a response.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    pub what: &'static str,
    /// Whether the request was a read.
    pub is_read: bool,
    pub status: u16,
    pub date: Option<String>,
    pub region: Option<String>,
    pub retry_after: Option<String>,
}

/// The error of an answer, by its code, or by its status where it has none: answers to `HEAD` have no body.
pub fn refusal(answer: Refusal, body: &[u8]) -> S3Error {
    let (mut code, mut region) = (String::new(), answer.region);
    // A body that is not S3's says nothing.
    let _ = xml::read(body, |answer| match answer {
        XmlEvent::Leaf("Error/Code", text) => code = word(&text),
        XmlEvent::Leaf("Error/Region", text) => region = Some(word(&text)),
        _ => {}
    });
    let (what, status) = (answer.what, answer.status);
    match code.as_str() {
        "NoSuchBucket" => S3Error::NoBucket,
        "InvalidAccessKeyId" => S3Error::AccessKey,
        "SignatureDoesNotMatch" => S3Error::Signature,
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => S3Error::Session { code },
        "RequestTimeTooSkewed" => S3Error::Skewed {
            ours: instant::format(instant::now_ms()),
            theirs: answer.date.map_or_else(|| "not said".to_owned(), |date| shown(&date)),
        },
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException" => S3Error::Elsewhere { code, region },
        "AccessDenied" | "AllAccessDisabled" => denied(what, answer.is_read),
        _ if matches!(status, 301 | 307 | 308) => {
            S3Error::Elsewhere { code: named(code, status), region }
        }
        _ if matches!(status, 408 | 429 | 500 | 502..=599) || code == "SlowDown" => {
            let seconds = answer.retry_after.and_then(|text| text.trim().parse().ok());
            let retry_after = seconds.map(Duration::from_secs);
            S3Error::Busy { code: named(code, status), retry_after }
        }
        "" if status == 401 || status == 403 => denied(what, answer.is_read),
        _ => S3Error::Refused { what, status, code: named(code, status) },
    }
}

fn denied(what: &'static str, is_read: bool) -> S3Error {
    let wants = if is_read {
        "s3:ListBucket on the bucket and s3:GetObject on its objects"
    } else {
        "s3:PutObject and s3:DeleteObject on its objects"
    };
    S3Error::Denied { what, wants }
}

fn named(code: String, status: u16) -> String {
    if code.is_empty() { format!("HTTP {status}") } else { code }
}

/// A short word, whatever the server sends.
fn word(text: &str) -> String {
    let good = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().filter(good).take(CODE_CHARS_MAX).collect()
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(CODE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(status: u16, body: &str) -> String {
        let date = Some("Fri, 24 May 2013 00:00:00 GMT".to_owned());
        let answer = Refusal {
            what: "listing its objects",
            is_read: true,
            status,
            date,
            ..Refusal::default()
        };
        refusal(answer, body.as_bytes()).to_string()
    }

    fn code(code: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message><Region>eu-x</Region></Error>"
        )
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        for (status, name, word) in [
            (403, "AccessDenied", "s3:ListBucket"),
            (404, "NoSuchBucket", "`bucket`"),
            (403, "InvalidAccessKeyId", "does not know the access key"),
            (403, "SignatureDoesNotMatch", "does not match"),
            (400, "ExpiredToken", "session token"),
            (403, "RequestTimeTooSkewed", "24 May 2013"),
            (301, "PermanentRedirect", "set `region` to \"eu-x\""),
            (503, "SlowDown", "busy"),
            (418, "Teapot", "418 (Teapot)"),
        ] {
            let message = explained(status, &code(name));
            assert!(message.contains(word), "{message}");
        }
        for (status, word) in [(403, "AccessDenied"), (502, "HTTP 502"), (412, "412")] {
            assert!(explained(status, "").contains(word), "{}", explained(status, ""));
        }
    }

    #[test]
    fn a_server_puts_no_words_into_our_mouth() {
        let message = explained(400, &code("a\u{1b}[31m&lt;b&gt; c"));
        assert!(message.contains("(a31mbc)"), "{message}");
    }
}
