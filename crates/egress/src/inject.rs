//! Secrets that never enter the sandbox. The sandbox has a placeholder for each secret. In requests that
//! go to one of the secret's hosts over TLS, this module replaces the placeholder in a header with the
//! value. It replaces nothing in the request line, which servers log, nothing in a body, and nothing that
//! goes to another host.
//!
//! ```text
//!  guest ══TLS══▶ an authority that it trusts ─▶ head: placeholder → value ══TLS══▶ the host itself
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::host::Host;
use super::http::bad_request::BadRequest;
use super::limits::FILLED_HEAD_BYTES_MAX;
use host::secret::{Secret, Wiped, wipe};

/// The delimiters of a placeholder. No secret's name contains them, so no placeholder is the
/// beginning of another.
const BEFORE: &str = "burrow-secret~";
const BEHIND: &str = "~";
/// The beginning of a field with basic authentication.
const BASIC: &[u8] = b"basic ";

/// The text that stands for a secret in the sandbox.
pub fn placeholder(name: &str) -> String {
    format!("{BEFORE}{name}{BEHIND}")
}

/// A secret that is put into requests for its hosts.
#[derive(Clone, Debug)]
pub struct InjectedSecret {
    pub name: String,
    pub hosts: Vec<Host>,
    /// The fields of heads that it may be in, in lower case.
    pub fields: Vec<String>,
    /// Absent if it could not be restored: then its hosts are unreachable.
    pub value: Option<Secret>,
}

impl InjectedSecret {
    /// Servers echo many fields. Only fields that authenticate are filled.
    fn is_for(&self, field: &[u8]) -> bool {
        self.fields.iter().any(|one| one.as_bytes() == field)
    }
}

/// All of one sandbox.
#[derive(Clone, Debug, Default)]
pub struct Injections(Vec<InjectedSecret>);

/// A secret that a bridge could not read again when it took a sandbox up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret {name:?} for this host could not be read again")]
pub struct UnreadableSecret {
    pub name: String,
}

impl Injections {
    pub fn new(injected: Vec<InjectedSecret>) -> Self {
        Self(injected)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every host that one of them is for, once.
    pub fn hosts(&self) -> Vec<Host> {
        let mut hosts: Vec<Host> = self.0.iter().flat_map(|one| one.hosts.clone()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Whether connections to this host must be read.
    pub fn are_for(&self, host: &Host) -> Result<bool, UnreadableSecret> {
        let mut those = self.of(host).peekable();
        let is_for = those.peek().is_some();
        match those.find(|one| one.value.is_none()) {
            Some(missing) => Err(UnreadableSecret { name: missing.name.clone() }),
            None => Ok(is_for),
        }
    }

    fn of(&self, host: &Host) -> impl Iterator<Item = &InjectedSecret> {
        self.0.iter().filter(move |one| one.hosts.contains(host))
    }

    /// A request's head with the secrets for this host, and which they were. The head was validated
    /// before: its lines are whole and plain.
    pub fn fill(&self, host: &Host, head: &[u8]) -> Result<(Wiped, Vec<String>), BadRequest> {
        let (mut out, mut used) = (Vec::with_capacity(self.room(head)), Vec::new());
        for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let field = line.iter().position(|byte| *byte == b':').filter(|_| number > 0);
            let Some(colon) = field else {
                put(&mut out, line)?;
                continue;
            };
            let (name, value) = line.split_at(colon + 1);
            put(&mut out, name)?;
            let name = name[..name.len() - 1].to_ascii_lowercase();
            match self.of_basic(host, &name, value, &mut used)? {
                Some(filled) => put(&mut out, &filled)?,
                None => self.put_filled((host, &name), value, &mut out, &mut used)?,
            }
        }
        used.sort();
        used.dedup();
        Ok((Wiped::new(out), used))
    }

    /// Name and password of the oldest way to say who one is are hidden from the eye: a placeholder
    /// in them is not seen literally.
    fn of_basic(
        &self,
        host: &Host,
        name: &[u8],
        value: &[u8],
        used: &mut Vec<String>,
    ) -> Result<Option<Wiped>, BadRequest> {
        let Some(decoded) = decoded_basic(name, value) else { return Ok(None) };
        let mut plain = Vec::with_capacity(self.room(&decoded));
        let before = used.len();
        self.put_filled((host, name), &decoded, &mut plain, used)?;
        if used.len() == before {
            // It is forwarded unchanged, however it was written.
            return Ok(None);
        }
        let mut field = b" Basic ".to_vec();
        let plain = Wiped::new(plain);
        let mut encoded = STANDARD.encode(&*plain).into_bytes();
        field.reserve_exact(encoded.len() + 2);
        field.extend_from_slice(&encoded);
        wipe(&mut encoded);
        field.extend_from_slice(b"\r\n");
        Ok(Some(Wiped::new(field)))
    }

    /// Room for a text and all that it may become, so that nothing of it is ever moved.
    fn room(&self, text: &[u8]) -> usize {
        let plain = find_all(text, BEFORE.as_bytes());
        let hidden = find_all(&text.to_ascii_lowercase(), BASIC);
        let longest = self.0.iter().filter_map(|one| one.value.as_ref());
        let longest = longest.map(|value| value.expose().len()).max().unwrap_or_default();
        let more = match hidden {
            0 => plain * longest,
            // As many as fit, encoded.
            _ => FILLED_HEAD_BYTES_MAX,
        };
        (text.len() + more).min(FILLED_HEAD_BYTES_MAX)
    }

    fn put_filled(
        &self,
        (host, field): (&Host, &[u8]),
        mut value: &[u8],
        out: &mut Vec<u8>,
        used: &mut Vec<String>,
    ) -> Result<(), BadRequest> {
        while let Some(at) = find(value, BEFORE.as_bytes()) {
            put(out, &value[..at])?;
            value = &value[at..];
            let meant = self.of(host).filter(|one| one.is_for(field)).find_map(|one| {
                let placeholder = placeholder(&one.name);
                let is_it = value.starts_with(placeholder.as_bytes());
                one.value.as_ref().filter(|_| is_it).map(|value| (one, placeholder.len(), value))
            });
            let length = if let Some((one, length, secret)) = meant {
                put(out, secret.expose().as_bytes())?;
                used.push(one.name.clone());
                length
            } else {
                // Another host's placeholder, or an unknown one: it is forwarded unchanged.
                put(out, BEFORE.as_bytes())?;
                BEFORE.len()
            };
            value = &value[length..];
        }
        put(out, value)
    }
}

/// Whether a value is valid in a field. An invalid one would let its owner inject requests.
pub fn fits_a_field(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// Appends within the capacity: a buffer that grows leaves a copy of its content in memory.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), BadRequest> {
    if out.len() + bytes.len() > FILLED_HEAD_BYTES_MAX {
        wipe(out);
        return Err(BadRequest::TooLong);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// The decoded text of a basic authentication field, if it contains a placeholder.
fn decoded_basic(name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = value.trim_ascii().split_at_checked(BASIC.len())?;
    if name != b"authorization" || !scheme.eq_ignore_ascii_case(BASIC) {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    find(&decoded, BEFORE.as_bytes()).map(|_| decoded)
}

fn find_all(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).filter(|window| *window == what).count()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests;
