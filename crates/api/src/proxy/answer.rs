//! The head of a program's answer as the client gets it. Pure.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName,
    HeaderValue, LOCATION, SET_COOKIE, STRICT_TRANSPORT_SECURITY, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};

use super::Form;
use super::request::{Way, strip_connection};
use super::visitor::is_link_cookie;

/// What speaks for more than the program's own pages: other names of the domain, or other ports of the
/// host.
const NEVER: [HeaderName; 3] = [
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("public-key-pins"),
];

/// What speaks for a whole origin, where that is this server's.
const NEVER_OF_THE_SERVER: [HeaderName; 6] = [
    STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("origin-agent-cluster"),
];

/// A page on the server's own origin has no rights there, whatever it says itself.
const NO_RIGHTS: HeaderValue = HeaderValue::from_static("sandbox");

impl Way {
    /// The headers for the client.
    pub fn answer(&self, mut head: HeaderMap, status: StatusCode, method: &Method) -> HeaderMap {
        let upgrade = head.get(UPGRADE).cloned();
        strip_connection(&mut head);
        // The length is that of the body that follows; only where none follows it says something else.
        let is_bodiless = *method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
        if !is_bodiless || !is_one_number(&head) {
            head.remove(CONTENT_LENGTH);
        }
        for name in NEVER {
            head.remove(name);
        }
        for name in [LOCATION, CONTENT_LOCATION] {
            let place = head.get(&name).and_then(|place| place.to_str().ok());
            if let Some(place) = place.and_then(|place| self.place(place))
                && let Ok(place) = HeaderValue::try_from(place)
            {
                head.insert(name, place);
            }
        }
        let cookies: Vec<HeaderValue> = head.get_all(SET_COOKIE).iter().cloned().collect();
        head.remove(SET_COOKIE);
        for cookie in cookies.iter().filter_map(|cookie| cookie.to_str().ok()) {
            let cookie = self.cookie(cookie).and_then(|cookie| cookie.try_into().ok());
            if let Some(cookie) = cookie {
                head.append(SET_COOKIE, cookie);
            }
        }
        if self.form.shares_origin() {
            for name in NEVER_OF_THE_SERVER {
                head.remove(name);
            }
            head.append(CONTENT_SECURITY_POLICY, NO_RIGHTS);
            head.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        } else if let Some(policy) = &self.framers {
            head.append(CONTENT_SECURITY_POLICY, policy.clone());
        }
        if status == StatusCode::SWITCHING_PROTOCOLS
            && let Some(upgrade) = upgrade.or_else(|| self.upgrade.clone())
        {
            head.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.insert(UPGRADE, upgrade);
        }
        head
    }

    /// Where a client finds what the program says is at a place; `None` where that is the same.
    fn place(&self, place: &str) -> Option<String> {
        let path = self.own_path(place)?;
        match &self.form {
            Form::Path(prefix) => {
                // A program that knows of the prefix has used it.
                let rest = path.strip_prefix(prefix.as_str());
                let is_below =
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
                Some(if is_below { path } else { format!("{prefix}{path}") })
            }
            // A path of two slashes would be another host.
            Form::Host | Form::Headers => (!path.starts_with("//")).then_some(path),
        }
    }

    /// The path of a place, if that is the program's own: a path, or a whole URL of its host as the program
    /// or the client knows it.
    fn own_path(&self, place: &str) -> Option<String> {
        let authority_on = match place.split_once("://") {
            Some(("http" | "https", rest)) => rest,
            _ => match place.strip_prefix("//") {
                Some(rest) => rest,
                None => return place.starts_with('/').then(|| place.to_owned()),
            },
        };
        let end = authority_on.find(['/', '?', '#']).unwrap_or(authority_on.len());
        let (authority, path) = authority_on.split_at(end);
        let local = ["localhost", "127.0.0.1", "0.0.0.0", "[::1]"];
        let is_local = local.iter().any(|host| authority == format!("{host}:{}", self.port));
        let is_own = self.host.to_str().is_ok_and(|host| authority.eq_ignore_ascii_case(host));
        if !is_local && !is_own {
            return None;
        }
        Some(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
    }

    /// A cookie of the program as a browser may have it: for its own host name, or for its own path.
    fn cookie(&self, cookie: &str) -> Option<String> {
        let mut parts = cookie.split(';').map(str::trim);
        let pair = parts.next()?;
        if is_link_cookie(pair) {
            return None;
        }
        let mut kept = vec![pair.to_owned()];
        let mut path = None;
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                // Its name would be that of the neighbours, too.
                "domain" => {}
                "path" => path = Some(value.trim()),
                _ => kept.push(part.to_owned()),
            }
        }
        match (&self.form, path) {
            (Form::Path(prefix), path) => {
                let path = path.filter(|path| path.starts_with('/')).unwrap_or("/");
                kept.push(format!(
                    "Path={}",
                    self.place(path).unwrap_or_else(|| format!("{prefix}/"))
                ));
            }
            (Form::Host | Form::Headers, Some(path)) => kept.push(format!("Path={path}")),
            (Form::Host | Form::Headers, None) => {}
        }
        Some(kept.join("; "))
    }
}

fn is_one_number(head: &HeaderMap) -> bool {
    let mut lengths = head.get_all(CONTENT_LENGTH).iter();
    let is_number = |length: &HeaderValue| length.as_bytes().iter().all(u8::is_ascii_digit);
    lengths.next().is_some_and(is_number) && lengths.next().is_none()
}

#[cfg(test)]
mod tests;
