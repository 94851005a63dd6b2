//! Finds the port and the sandbox of a request, from its host name or its headers.

use hyper::header::{HOST, HeaderMap, HeaderName};

/// The port of envd, and the paths of its requests in the table of operations.
const ENVD_PORT: u16 = 49983;
/// The same of the code interpreter.
const CODE_PORT: u16 = 49999;
/// The path of requests to any other port.
pub const OTHER_PORT: &str = "/.e2b/port";

const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");

/// The sandbox that a request is for, by what the client calls it, and the port in it.
pub struct Place<'a> {
    pub sandbox: &'a str,
    pub port: u16,
}

impl<'a> Place<'a> {
    /// A host name `PORT-ID.DOMAIN` decides before the headers do.
    pub fn of(headers: &'a HeaderMap) -> Option<Self> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let named = text(&HOST).and_then(|host| {
            let (label, _) = host.split_once('.')?;
            let (port, sandbox) = label.split_once('-')?;
            let is_id = sandbox.len() == 12 && sandbox.bytes().all(|b| b.is_ascii_hexdigit());
            Some(Self { sandbox, port: port.parse().ok().filter(|_| is_id)? })
        });
        named.or_else(|| {
            let (sandbox, port) = (text(&SANDBOX_ID)?, text(&SANDBOX_PORT)?);
            Some(Self { sandbox, port: port.parse().ok()? })
        })
    }
}

/// The id of the sandbox that a request is for, as the client writes it.
pub fn sandbox_of(headers: &HeaderMap) -> Option<&str> {
    Some(Place::of(headers)?.sandbox)
}

/// The path under which a request for a sandbox is in the table of operations; `None` for any other.
pub fn place_of(headers: &HeaderMap, path: &str) -> Option<String> {
    Some(match Place::of(headers)?.port {
        ENVD_PORT => format!("/.e2b/envd{path}"),
        CODE_PORT => format!("/.e2b/code{path}"),
        _ => OTHER_PORT.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(pairs: &[(&'static str, &str)]) -> String {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a header")));
        place_of(&pairs.collect(), "/files").unwrap_or_else(|| "/files".to_owned())
    }

    #[test]
    fn a_request_is_for_a_sandbox_by_its_host_name_or_its_headers() {
        let id = ("e2b-sandbox-id", "0123456789ab");
        assert_eq!(placed(&[]), "/files");
        assert_eq!(placed(&[id]), "/files");
        assert_eq!(placed(&[id, ("e2b-sandbox-port", "49983")]), "/.e2b/envd/files");
        assert_eq!(placed(&[id, ("e2b-sandbox-port", "49999")]), "/.e2b/code/files");
        assert_eq!(placed(&[id, ("e2b-sandbox-port", "80")]), OTHER_PORT);
        let host = ("host", "49983-0123456789ab.localhost:8080");
        assert_eq!(placed(&[host, id, ("e2b-sandbox-port", "80")]), "/.e2b/envd/files");
        for other in ["127.0.0.1:80", "49983-app.example.org", "my-0123456789ab.example.org"] {
            assert_eq!(placed(&[("host", other)]), "/files", "{other}");
        }
    }
}
