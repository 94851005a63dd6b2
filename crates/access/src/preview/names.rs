//! The host names of ports: `PORT-NAME.DOMAIN` in the namespace `default`, `PORT-ID.DOMAIN` in any. Pure.
//!
//! A page is kept apart from others by its host name, so a name must never come to mean the port of
//! another tenant: what has the form of an id is one, and never a name.

use super::limits::LABEL_BYTES_MAX;
use super::link::LinkToken;
use super::{LINK_FIELD, Previews};
use sandbox::{Name, Record, Registry, SandboxId, SandboxRef};

/// An origin, below whose host ports have names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub is_tls: bool,
    host: String,
    /// With its colon; empty for the scheme's own.
    port: String,
}

/// A port as a host name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    pub port: u16,
    /// The name or the id of a sandbox.
    pub sandbox: &'a str,
}

impl Base {
    /// Of `https://HOST` or `http://HOST:PORT`.
    pub(super) fn of_origin(origin: &str) -> Option<Self> {
        let (scheme, authority) = origin.split_once("://")?;
        let is_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = without_port(authority);
        let (host, port) = (host.to_owned(), authority[host.len()..].to_owned());
        Some(Self { is_tls, host, port })
    }

    pub(super) fn on(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The host, and the port unless it is the scheme's own.
    pub fn authority(&self) -> String {
        format!("{}{}", self.host, self.port)
    }

    /// The label of a host with a port or not, if it is one below this.
    fn label<'a>(&self, host: &'a str) -> Option<&'a str> {
        let (label, domain) = without_port(host).split_once('.')?;
        domain.eq_ignore_ascii_case(&self.host).then_some(label)
    }
}

impl<'a> Named<'a> {
    /// `None` for a label that names no port, such as `api`.
    fn of_label(label: &'a str) -> Option<Self> {
        let (port, sandbox) = label.split_once('-')?;
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain)?;
        Some(Self { port, sandbox })
    }

    /// Whether it is the id of a sandbox.
    pub fn is_id(&self) -> bool {
        is_id(self.sandbox)
    }

    /// The sandbox, whether or not there is one; `None` if an id is nobody's, or a name is none.
    pub fn which(&self, registry: &Registry) -> Option<SandboxRef> {
        let sandbox = self.sandbox.to_ascii_lowercase();
        if self.is_id() {
            return registry.find(&sandbox.parse::<SandboxId>().ok()?);
        }
        let name = sandbox.parse().ok()?;
        Some(SandboxRef { namespace: Name::default_namespace(), name })
    }
}

impl Previews {
    /// The port that a host name means, if it is one of ours.
    pub fn named<'a>(&self, host: &'a str) -> Option<Named<'a>> {
        Named::of_label(self.base()?.label(host)?)
    }

    /// The origin of a port, if ports have names.
    pub fn origin(&self, record: &Record, port: u16) -> Option<String> {
        let base = self.base()?;
        let label = label(record, port);
        Some(format!("{}://{label}.{}", base.scheme(), base.authority()))
    }

    /// The address that a link is: the port's own, or where it has none its path on the server's.
    pub fn link_url(&self, record: &Record, port: u16, token: &LinkToken, server: &str) -> String {
        let Record { namespace, name, .. } = record;
        let place = self
            .origin(record, port)
            .unwrap_or_else(|| format!("{server}/p/{namespace}/{name}/{port}"));
        format!("{place}/?{LINK_FIELD}={}", token.expose())
    }

    /// Whether an origin, as a browser says it, is that of a port of the sandbox that a host name means.
    pub fn is_of_same_sandbox(&self, origin: &str, host: &str) -> bool {
        let other = origin.split_once("://").and_then(|(_, other)| self.named(other));
        let own = self.named(host);
        other.zip(own).is_some_and(|(other, own)| other.sandbox.eq_ignore_ascii_case(own.sandbox))
    }
}

/// By its name where that is as good as its id.
fn label(record: &Record, port: u16) -> String {
    let name = record.name.as_str();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let named = format!("{port}-{name}");
    let serves = record.namespace == Name::default_namespace()
        && name.bytes().all(is_plain)
        && !name.ends_with('-')
        && !is_id(name)
        && named.len() <= LABEL_BYTES_MAX;
    if serves { named } else { format!("{port}-{}", record.id) }
}

fn is_id(text: &str) -> bool {
    /// As [`SandboxId`] is written.
    const ID_CHARS: usize = 12;
    text.len() == ID_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn previews(url: &str) -> Previews {
        Previews::new(Some(url), Vec::new())
    }

    #[test]
    fn a_host_name_means_a_port_below_the_domain_alone() {
        let ours = previews("https://Preview.example.org:8443".to_ascii_lowercase().as_str());
        let named = |host| ours.named(host).map(|named| (named.port, named.sandbox.to_owned()));
        let work = Some((3000, "work".to_owned()));
        assert_eq!(named("3000-work.preview.example.org:8443"), work);
        assert_eq!(named("3000-work.PREVIEW.example.org"), work);
        for other in [
            "preview.example.org",
            "api.preview.example.org",
            "3000-work.example.org",
            "3000-work.preview.example.org.evil.example",
            "a.3000-work.preview.example.org",
            "3000-work.preview.example.org.",
            "0-work.preview.example.org",
            "03000-work.preview.example.org",
            "+80-work.preview.example.org",
            "65536-work.preview.example.org",
            "127.0.0.1:5555",
            "",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_localhost_are_where_the_first_server_listens() {
        let ours = previews("localhost");
        assert_eq!(ours.base(), None);
        ours.listens_at("http://127.0.0.1:5555", true);
        ours.listens_at("http://127.0.0.1:6666", true);
        assert_eq!(ours.base().map(Base::authority).as_deref(), Some("localhost:5555"));
        assert!(ours.named("80-a.localhost:5555").is_some());
        let set = previews("https://p.example");
        set.listens_at("http://127.0.0.1:5555", true);
        assert_eq!(set.base().map(Base::authority).as_deref(), Some("p.example"));
        assert_eq!(Previews::default().base(), None);
    }

    #[test]
    fn what_looks_like_an_id_is_never_a_name() {
        for (label, id) in [("80-0123456789ab", true), ("80-0123456789AB", true)] {
            assert_eq!(Named::of_label(label).map(|named| named.is_id()), Some(id), "{label}");
        }
        for label in ["80-work", "80-0123456789abc", "80-0123456789ag"] {
            assert_eq!(Named::of_label(label).map(|named| named.is_id()), Some(false), "{label}");
        }
    }

    #[test]
    fn pages_of_one_sandbox_know_each_other_and_nobody_else() {
        let ours = previews("http://p.example");
        let same = |origin| ours.is_of_same_sandbox(origin, "3000-a.p.example");
        assert!(same("http://8000-a.p.example") && same("http://3000-a.p.example"));
        for other in ["http://8000-b.p.example", "http://a.p.example", "null", "http://p.example"] {
            assert!(!same(other), "{other}");
        }
    }
}
