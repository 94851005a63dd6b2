//! The configuration of a bucket and the addresses of its objects. Pure, except that it reads the access
//! keys from the secrets.

use std::path::PathBuf;

use super::error::S3Error;
use super::limits::{BUCKET_CHARS_MAX, BUCKET_CHARS_MIN, REGION_CHARS_MAX};
use super::sign::{Keys, encode};
use host::dial::{Origin, Scheme};
use host::secret::Secrets;

/// The default region.
pub const REGION_USUAL: &str = "us-east-1";

/// A bucket as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub name: String,
    /// `None` for AWS's own endpoint of the region.
    pub endpoint: Option<Origin>,
    pub region: String,
    /// Empty, or with a slash at its end.
    pub prefix: String,
    /// Whether the bucket is the first part of the path, and not of the host's name.
    pub path_style: bool,
    /// The names of secrets; `None` for a public bucket.
    pub keys: Option<KeyNames>,
    /// Certificates that are trusted in addition to the host's.
    pub ca: Option<PathBuf>,
}

/// The secrets that its keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyNames {
    pub access: String,
    pub secret: String,
    pub session: Option<String>,
}

impl KeyNames {
    pub fn all(&self) -> impl Iterator<Item = &str> {
        [&self.access, &self.secret].into_iter().chain(&self.session).map(String::as_str)
    }

    /// Read again for each exchange: keys that were changed on the host hold from the next one on.
    pub async fn read(&self, secrets: &Secrets) -> Result<Keys, S3Error> {
        let session = match &self.session {
            Some(name) => Some(secrets.own(name).await?),
            None => None,
        };
        let (access, secret) = (secrets.own(&self.access).await?, secrets.own(&self.secret).await?);
        Ok(Keys { access, secret, session })
    }
}

impl Bucket {
    /// The server of the bucket.
    pub fn origin(&self) -> Origin {
        let mut origin = self.endpoint.clone().unwrap_or_else(|| Origin {
            scheme: Scheme::Https,
            name: format!("s3.{}.{}", self.region, domain_of(&self.region)),
            port: Scheme::Https.port(),
        });
        if !self.path_style {
            origin.name = format!("{}.{}", self.name, origin.name);
        }
        origin
    }

    /// The path of a request, encoded; without a key it addresses the bucket.
    pub fn path(&self, key: &str) -> String {
        let key = encode(key, true);
        if self.path_style { format!("/{}/{key}", self.name) } else { format!("/{key}") }
    }
}

fn domain_of(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// Whether S3 allows this name for a bucket.
pub fn is_bucket(text: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    (BUCKET_CHARS_MIN..=BUCKET_CHARS_MAX).contains(&text.len())
        && text.chars().all(good)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !text.contains("..")
}

/// Whether it can be the name of a region.
pub fn is_region(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.len() <= REGION_CHARS_MAX && text.chars().all(good)
}

/// `http://HOST[:PORT]` or with `https`; nothing after it.
pub fn parse_endpoint(text: &str) -> Option<Origin> {
    let parts = text.parse::<hyper::Uri>().ok()?.into_parts();
    let scheme = match parts.scheme?.as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let authority = parts.authority?;
    let is_bare = parts.path_and_query.is_none_or(|path| path.as_str() == "/");
    let has_port = !authority.as_str().ends_with(authority.host());
    let port = match authority.port_u16() {
        None if has_port => return None,
        port => port.unwrap_or_else(|| scheme.port()),
    };
    let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
    let is_good = is_bare && !name.is_empty() && !authority.as_str().contains('@');
    is_good.then_some(Origin { scheme, name, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> Bucket {
        Bucket {
            name: "data".into(),
            endpoint: None,
            region: "eu-west-1".into(),
            prefix: String::new(),
            path_style: false,
            keys: None,
            ca: None,
        }
    }

    #[test]
    fn a_bucket_is_a_part_of_the_hosts_name_or_of_the_path() {
        let virtual_hosted = bucket();
        assert_eq!(virtual_hosted.origin().to_string(), "https://data.s3.eu-west-1.amazonaws.com");
        assert_eq!(virtual_hosted.path("a b/c"), "/a%20b/c");
        let endpoint = parse_endpoint("http://127.0.0.1:9000/");
        let path_style = Bucket { endpoint, path_style: true, ..bucket() };
        assert_eq!(path_style.origin().to_string(), "http://127.0.0.1:9000");
        assert_eq!(
            (path_style.path("x"), path_style.path("")),
            ("/data/x".into(), "/data/".into())
        );
        let china = Bucket { region: "cn-north-1".into(), path_style: true, ..bucket() };
        assert_eq!(china.origin().name, "s3.cn-north-1.amazonaws.com.cn");
    }

    #[test]
    fn names_and_endpoints_that_lead_elsewhere_are_none() {
        for text in ["ab", "A-b", "a_b", "-ab", "a..b", "a/b", "a.b.", &"a".repeat(64)] {
            assert!(!is_bucket(text), "{text}");
        }
        assert!(is_bucket("my-data.2026"));
        for text in ["127.0.0.1", "ftp://a", "http://u:p@a", "http://a/b", "http://a:x", "http://"]
        {
            assert_eq!(parse_endpoint(text), None, "{text}");
        }
        assert!(is_region("eu-west-1") && !is_region("eu/west") && !is_region(""));
    }
}
