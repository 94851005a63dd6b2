//! Which host names and which web pages may drive this server.
//!
//! A page in a browser can send requests to the loopback address of the machine that it is looked at
//! on. Two things give it away: the name in `Host`, when its own name was made to resolve to the
//! loopback address, and `Origin`, which browsers add and pages cannot change. Pure.

use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
};

use sandbox::refusal::{Code, Refusal};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Headers that decide something and must not come twice: of two, this server would believe one
/// and a proxy before it the other.
const SINGLE: [HeaderName; 4] = [HOST, ORIGIN, AUTHORIZATION, CONTENT_TYPE];

/// The names that mean the machine itself.
const LOOPBACK_NAMES: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "::1"];

/// What is let through beside the machine's own names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Host names, without a port.
    pub hosts: Vec<String>,
    /// As a browser writes them: `https://app.example`.
    pub origins: Vec<String>,
}

impl Origins {
    /// Refuses what a page that is not ours may have sent. `is_loopback` says whether the request
    /// came to a loopback address.
    pub fn check(&self, headers: &HeaderMap, is_loopback: bool) -> Result<(), Refusal> {
        check_single(headers)?;
        let host = host_of(headers);
        let name = without_port(host);
        if !self.serves(name, is_loopback) {
            let message = format!("this server does not answer to the host name {name:?}");
            return Err(Refusal::new(Code::Misdirected, message)
                .hint("use 127.0.0.1 or localhost, or add the name to `allowed_hosts`"));
        }
        self.check_page(headers, |origin| is_own(origin, host))
    }

    /// The same for a request to a port of a sandbox under a host name of its own, which the port's own
    /// pages may drive, and those of `is_kin`. Its host name is one of ours.
    pub fn check_port(
        &self,
        headers: &HeaderMap,
        is_kin: impl Fn(&str) -> bool,
    ) -> Result<(), Refusal> {
        check_single(headers)?;
        let host = host_of(headers);
        self.check_page(headers, |origin| is_own(origin, host) || is_kin(origin))
    }

    fn check_page(
        &self,
        headers: &HeaderMap,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<(), Refusal> {
        match headers.get(ORIGIN).map(HeaderValue::to_str) {
            Some(Ok(origin)) if is_own(origin) || self.is_listed(origin) => Ok(()),
            Some(origin) => {
                let origin = origin.unwrap_or("the Origin header is not readable");
                let message = format!("web pages from {origin:?} may not call this server");
                Err(Refusal::new(Code::Misdirected, message)
                    .hint("add the origin to `allowed_origins` if it is yours"))
            }
            // Without an origin, only a link that a person follows comes from another site.
            None if is_foreign(headers) => {
                let message = "a web page from another site may not call this server";
                Err(Refusal::new(Code::Misdirected, message))
            }
            None => Ok(()),
        }
    }

    /// Whether pages of this origin may read the answers.
    pub fn is_listed(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// What says to a browser which pages may show one in a frame: its own, and the listed ones.
    pub fn framers(&self) -> Option<HeaderValue> {
        let listed = self.origins.iter().map(String::as_str);
        let all: Vec<&str> = ["frame-ancestors 'self'"].into_iter().chain(listed).collect();
        HeaderValue::try_from(all.join(" ")).ok()
    }

    fn serves(&self, name: &str, is_loopback: bool) -> bool {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        if self.hosts.iter().any(|known| is(known)) {
            return true;
        }
        if is_loopback { LOOPBACK_NAMES.into_iter().any(is) } else { self.hosts.is_empty() }
    }
}

fn check_single(headers: &HeaderMap) -> Result<(), Refusal> {
    match SINGLE.iter().find(|name| headers.get_all(*name).iter().count() > 1) {
        Some(name) => Err(Refusal::invalid(format!("the header {name} is there more than once"))),
        None => Ok(()),
    }
}

/// The host that a request is for, with its port.
pub fn host_of(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

fn is_own(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
}

/// Browsers say where a request comes from. Another port of this machine is the same site to them,
/// and may be a page that a sandbox serves.
fn is_foreign(headers: &HeaderMap) -> bool {
    let is = |name: &HeaderName, value: &str| headers.get(name).is_some_and(|is| is == value);
    let is_own = is(&FETCH_SITE, "same-origin") || is(&FETCH_SITE, "none");
    headers.contains_key(&FETCH_SITE) && !is_own && !is(&FETCH_MODE, "navigate")
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|digit| digit.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
        });
        pairs.collect()
    }

    fn passes(origins: &Origins, is_loopback: bool, pairs: &[(&str, &str)]) -> bool {
        origins.check(&headers(pairs), is_loopback).is_ok()
    }

    #[test]
    fn the_loopback_address_answers_to_its_own_names_alone() {
        let none = Origins::default();
        for host in ["127.0.0.1:5555", "localhost", "LocalHost:1", "[::1]:5555", "[::1]"] {
            assert!(passes(&none, true, &[("host", host)]), "{host}");
        }
        for host in ["evil.example:5555", "127.0.0.1.evil.example", "localhost.", "", "10.0.0.1"] {
            assert!(!passes(&none, true, &[("host", host)]), "{host}");
        }
        let ours = Origins { hosts: vec!["box.example".to_owned()], ..Origins::default() };
        assert!(passes(&ours, true, &[("host", "box.example:80")]));
        assert!(!passes(&ours, false, &[("host", "10.0.0.1")]));
        assert!(passes(&none, false, &[("host", "10.0.0.1")]));
    }

    #[test]
    fn a_page_of_another_origin_drives_nothing() {
        let none = Origins::default();
        let with = |origin| [("host", "localhost:5555"), ("origin", origin)];
        assert!(passes(&none, true, &with("http://localhost:5555")));
        for origin in ["http://evil.example", "null", "http://localhost:3000", "file://"] {
            assert!(!passes(&none, true, &with(origin)), "{origin}");
        }
        let listed =
            Origins { origins: vec!["http://localhost:3000".to_owned()], ..Origins::default() };
        assert!(passes(&listed, true, &with("http://localhost:3000")));
    }

    #[test]
    fn a_header_that_decides_something_is_there_once() {
        let none = Origins::default();
        for name in ["host", "origin", "authorization", "content-type"] {
            let twice = [("host", "localhost"), (name, "localhost"), (name, "localhost")];
            let refused = {
                let mut all = headers(&twice[..1]);
                for (name, value) in &twice[1..] {
                    all.append(
                        HeaderName::try_from(*name).unwrap(),
                        HeaderValue::from_static(value),
                    );
                }
                none.check(&all, true).unwrap_err()
            };
            assert_eq!(refused.code, Code::Invalid, "{name}");
        }
    }

    #[test]
    fn an_image_of_another_page_is_not_fetched_and_a_link_is_followed() {
        let none = Origins::default();
        let with = |mode| {
            [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)]
        };
        assert!(!passes(&none, true, &with("no-cors")));
        assert!(passes(&none, true, &with("navigate")));
        let site = |site| [("host", "localhost"), ("sec-fetch-site", site)];
        assert!(!passes(&none, true, &site("same-site")));
        assert!(passes(&none, true, &site("same-origin")) && passes(&none, true, &site("none")));
    }
}
