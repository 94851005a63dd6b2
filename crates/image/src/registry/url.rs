//! URLs of requests and of redirects. Pure.

use hyper::Uri;
use hyper::http::uri;

use crate::reference::Host;

pub use host::dial::{Origin, Scheme};

/// A place at an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub origin: Origin,
    /// With the query. It may be a secret: signed URLs are.
    pub path: String,
}

/// The origin of a registry.
pub fn origin_of(scheme: Scheme, host: &Host) -> Origin {
    let port = host.port().unwrap_or_else(|| scheme.port());
    Origin { scheme, name: host.name().to_owned(), port }
}

impl Url {
    /// A path at an origin.
    pub fn at(origin: &Origin, path: impl Into<String>) -> Self {
        Self { origin: origin.clone(), path: path.into() }
    }

    /// Parses an absolute URL without user and password.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.parse::<Uri>().ok()?.into_parts();
        let scheme = match parts.scheme?.as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let authority = parts.authority?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        // An invalid port after a colon must not become the default port.
        let has_port = !authority.as_str().ends_with(authority.host());
        let port = match authority.port_u16() {
            None if has_port => return None,
            port => port.unwrap_or_else(|| scheme.port()),
        };
        let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let path = parts.path_and_query.map_or_else(|| "/".to_owned(), |path| whole_path(&path));
        Some(Self { origin: Origin { scheme, name, port }, path })
    }

    /// The target of a `Location` header in an answer from this URL.
    pub fn join(&self, location: &str) -> Option<Self> {
        if location.contains("://") && !location.starts_with(['/', '?', '.']) {
            return Self::parse(location);
        }
        if location.starts_with("//") {
            return Self::parse(&format!("{}:{location}", self.origin.scheme.as_str()));
        }
        let own = self.path.split('?').next().unwrap_or_default();
        let path = match location {
            path if path.starts_with('/') => path.to_owned(),
            query if query.starts_with('?') => format!("{own}{query}"),
            relative => {
                format!("{}/{relative}", own.rsplit_once('/').map_or("", |(above, _)| above))
            }
        };
        let path = path.parse::<uri::PathAndQuery>().ok()?;
        Some(Self::at(&self.origin, whole_path(&path)))
    }

    /// Adds a query parameter; `value` may be any text.
    pub fn push_query(&mut self, name: &str, value: &str) {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(name);
        self.path.push('=');
        self.path.push_str(&encode(value));
    }
}

fn whole_path(path: &uri::PathAndQuery) -> String {
    let path = path.as_str();
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// A value of a query or a form.
pub fn encode(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for nibble in [byte >> 4, byte & 0xf] {
                let digit = char::from_digit(u32::from(nibble), 16);
                encoded.extend(digit.map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn origins_are_the_same_however_they_are_written() {
        assert_eq!(
            url("https://Registry.example/x").origin,
            url("https://registry.example:443").origin
        );
        assert_ne!(url("https://a/").origin, url("http://a/").origin);
        assert_ne!(url("https://a/").origin, url("https://a:444/").origin);
        assert_eq!(url("http://[::1]:5000/x?y").origin.to_string(), "http://[::1]:5000");
        assert!(url("http://127.0.0.1:5000").origin.is_loopback());
        for text in [
            "ftp://a/",
            "a/b",
            "https://user:word@a/",
            "https://a:99999/",
            "https://a:x/",
            "https://",
            "",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    #[test]
    fn redirects_lead_where_they_say() {
        let from = url("https://a.example:5000/v2/x/blobs/1?q=1");
        for (location, to) in [
            ("https://b.example/z?sig=1", "https://b.example/z?sig=1"),
            ("http://b.example", "http://b.example/"),
            ("//c.example/y", "https://c.example/y"),
            ("/y?z=http://other", "https://a.example:5000/y?z=http://other"),
            ("?z=1", "https://a.example:5000/v2/x/blobs/1?z=1"),
            ("2", "https://a.example:5000/v2/x/blobs/2"),
        ] {
            assert_eq!(from.join(location), Some(url(to)), "{location}");
        }
        assert_eq!(from.join("gopher://b/"), None);
        assert_eq!(from.join("/a b"), None);
    }

    #[test]
    fn values_of_queries_cannot_become_others() {
        let mut to = url("https://a/token?x=1");
        to.push_query("scope", "repository:a/b:pull&x=2 é");
        assert_eq!(to.path, "/token?x=1&scope=repository%3Aa%2Fb%3Apull%26x%3D2%20%C3%A9");
    }

    proptest::proptest! {
        #[test]
        fn locations_of_strangers_never_panic(location in "\\PC{0,40}") {
            let from = url("https://a.example/v2/");
            if let Some(to) = from.join(&location) {
                proptest::prop_assert!(to.path.starts_with('/'));
            }
        }
    }
}
