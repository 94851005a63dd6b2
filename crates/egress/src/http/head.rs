//! Parses the head of one request: its first line, its headers, its host and the length of its body.

use super::super::host::Host;
use super::super::limits::FIELDS_MAX;
use super::BadRequest;
use super::second::{OFFER, is_offer};

/// A head that is plain enough to have only one interpretation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub method: String,
    pub target: String,
    version: String,
    /// Names in lower case.
    fields: Vec<(String, String)>,
}

/// How the length of a body is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Bytes(u64),
    Pieces,
}

/// Refuses a line that ends otherwise than it seems to.
pub fn check_line(line: &[u8]) -> Result<(), BadRequest> {
    let text = line.strip_suffix(b"\r\n").unwrap_or(line);
    let is_plain = |byte: &u8| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f;
    if text.iter().all(is_plain) {
        Ok(())
    } else {
        Err(BadRequest::Malformed("it has control characters"))
    }
}

impl Head {
    /// Reads a head with the empty line at its end.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRequest> {
        let text = bytes
            .strip_suffix(b"\r\n\r\n")
            .ok_or(BadRequest::Malformed("its head does not end"))?;
        let text: String = text.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(BadRequest::Malformed("its first line does not have three words"));
        };
        if !is_token(method) || target.is_empty() || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
            return Err(BadRequest::Malformed("its first line is malformed"));
        }
        check_line(first.as_bytes())?;
        let mut fields = Vec::new();
        for line in lines {
            check_text(line)?;
            let (name, value) =
                line.split_once(':').ok_or(BadRequest::Malformed("a header has no colon"))?;
            // Some parsers read a line that begins with a space as a continuation.
            if !is_token(name) {
                return Err(BadRequest::Malformed("a header name is malformed"));
            }
            if fields.len() >= FIELDS_MAX {
                return Err(BadRequest::Malformed("it has too many headers"));
            }
            let value = value.trim_matches([' ', '\t']);
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let (method, target) = (method.to_owned(), target.to_owned());
        Ok(Self { method, target, version: version.to_owned(), fields })
    }

    /// The value of a field that may be there once.
    pub fn one(&self, name: &str) -> Result<Option<&str>, BadRequest> {
        let mut values = self.all(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(BadRequest::Malformed("it repeats a header that may appear once"));
        }
        Ok(value)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |field| field.0 == name).map(|field| field.1.as_str())
    }

    /// Whether a field that is a list has this word.
    pub fn lists(&self, name: &str, word: &str) -> bool {
        let mut words = self.all(name).flat_map(|value| value.split(','));
        words.any(|listed| listed.trim().eq_ignore_ascii_case(word))
    }

    /// Whether it has a body that means nothing.
    pub fn has_needless_body(&self) -> Result<bool, BadRequest> {
        /// The standard says so of these methods.
        const NEED_NONE: [&str; 4] = ["GET", "HEAD", "DELETE", "TRACE"];
        Ok(NEED_NONE.contains(&self.method.as_str()) && self.length()? != Length::Bytes(0))
    }

    /// Whether it offers HTTP/2 and nothing else.
    pub fn offers_second(&self) -> Result<bool, BadRequest> {
        Ok(self.one("upgrade")?.is_some_and(is_offer))
    }

    /// The body's length, if it has only one interpretation.
    pub fn length(&self) -> Result<Length, BadRequest> {
        let coding = self.one("transfer-encoding")?;
        let length = self.one("content-length")?;
        match (coding, length) {
            (None, None) => Ok(Length::Bytes(0)),
            (None, Some(length)) => {
                let is_plain =
                    !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                let length = length.parse().ok().filter(|_| is_plain);
                length
                    .map(Length::Bytes)
                    .ok_or(BadRequest::Malformed("its content-length is not a number"))
            }
            (Some(coding), None)
                if coding.eq_ignore_ascii_case("chunked") && self.version == "HTTP/1.1" =>
            {
                Ok(Length::Pieces)
            }
            (Some(_), None) => Err(BadRequest::Malformed("its transfer-encoding is not supported")),
            (Some(_), Some(_)) => {
                Err(BadRequest::Malformed("it has both content-length and transfer-encoding"))
            }
        }
    }

    /// Refuses a request that is for another host than this, in whichever of its places.
    pub fn check_host(&self, host: &Host, port: u16) -> Result<(), BadRequest> {
        let requested = self.one("host")?.ok_or(BadRequest::Malformed("it names no host"))?;
        let another = |requested: &str| BadRequest::AnotherHost {
            requested: shown(requested),
            host: host.clone(),
        };
        let is_it = |requested: &str| authority(requested, port) == Some((host.clone(), port));
        if !is_it(requested) {
            return Err(another(requested));
        }
        if self.target.starts_with('/') || self.target == "*" {
            return Ok(());
        }
        match self.absolute() {
            // Some parsers read what precedes other characters as a user's name.
            Some((in_target, path))
                if is_it(in_target) && !path.is_empty() && !path.starts_with('/') =>
            {
                Err(BadRequest::Malformed("its target has no path"))
            }
            Some((in_target, _)) if is_it(in_target) => Ok(()),
            Some((in_target, _)) => Err(another(in_target)),
            None => Err(BadRequest::Malformed("its target is neither a path nor an address")),
        }
    }

    /// Host and path of a target that is a whole address.
    pub fn absolute(&self) -> Option<(&str, &str)> {
        const SCHEME: &str = "http://";
        let scheme = self.target.get(..SCHEME.len())?;
        let rest = &self.target[SCHEME.len()..];
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        Some(rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())))
    }

    /// The request in the form for a server that is not a proxy, with `connection: close`. One that asks for
    /// another protocol was refused before, unless it was an offer.
    pub fn for_server(&self, authority: &str, path: &str) -> Vec<u8> {
        /// Between the client and the proxy alone.
        const OURS: [&str; 6] =
            ["connection", "proxy-connection", "proxy-authorization", "keep-alive", "host", "te"];
        /// Where the body ends. These stay even if the client names them in `connection`: without
        /// them the server would read the body as another request.
        const FRAME: [&str; 2] = ["content-length", "transfer-encoding"];
        let slash = if path.starts_with('/') { "" } else { "/" };
        let (method, version) = (&self.method, &self.version);
        let mut text = format!(
            "{method} {slash}{path} {version}\r\nhost: {authority}\r\nconnection: close\r\n"
        );
        for (name, value) in &self.fields {
            let name = name.as_str();
            let is_listed = self.lists("connection", name) && !FRAME.contains(&name);
            let is_of_offer = OFFER.contains(&name);
            if !OURS.contains(&name) && !is_listed && !is_of_offer {
                text.extend([name, ": ", value, "\r\n"]);
            }
        }
        text.push_str("\r\n");
        // Each character was one byte.
        text.chars().map(|c| c as u8).collect()
    }
}

/// A validated head with `connection: close`. Some servers only understand it as the field's only value.
pub fn closing(head: &[u8]) -> Vec<u8> {
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let mut out = lines.next().unwrap_or_default().to_vec();
    out.extend_from_slice(b"Connection: close\r\n");
    let is_said = |line: &&[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"connection")
    };
    out.extend(lines.filter(|line| !is_said(line)).flatten());
    out
}

fn check_text(line: &str) -> Result<(), BadRequest> {
    if line.chars().any(|c| c.is_ascii_control() && c != '\t') {
        return Err(BadRequest::Malformed("it has control characters"));
    }
    Ok(())
}

/// Host and port from text such as `example.org:8080`.
pub fn authority(text: &str, port_default: u16) -> Option<(Host, u16)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, "")) => (name, port_default),
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, port.parse().ok()?)
        }
        Some(_) => return None,
        None => (text, port_default),
    };
    Some((name.parse().ok()?, port))
}

fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// A client's text, in a form that can be shown.
pub fn shown(text: &str) -> String {
    const CHARS_SHOWN_MAX: usize = 80;
    text.chars().filter(char::is_ascii_graphic).take(CHARS_SHOWN_MAX).collect()
}
