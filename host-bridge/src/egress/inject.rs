//! Secrets that stay on this side. A sandbox has a placeholder for each; what it sends to one of the
//! secret's hosts over TLS is read here, and the placeholder in a field of a request's head becomes
//! the value. Nowhere else: not in the request's line, which servers write into their logs, not in a
//! body, and not on the way to any other host.
//!
//! ```text
//!  guest ══TLS══▶ an authority that it trusts ─▶ head: placeholder → value ══TLS══▶ the host itself
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::host::Host;
use super::http::Wrong;
use super::limits::FILLED_HEAD_BYTES_MAX;
use crate::secret::{Secret, Wiped, wipe};

/// What no name of a secret has, around it: one placeholder is never the beginning of another.
const BEFORE: &str = "burrow-secret~";
const BEHIND: &str = "~";

/// What stands for a secret in the sandbox.
pub fn placeholder(name: &str) -> String {
    format!("{BEFORE}{name}{BEHIND}")
}

/// A secret that is put into requests for its hosts.
#[derive(Clone, Debug)]
pub struct Injected {
    pub name: String,
    pub hosts: Vec<Host>,
    /// Absent where it could not be had again: its hosts are out of reach then.
    pub value: Option<Secret>,
}

/// All of one sandbox.
#[derive(Clone, Debug, Default)]
pub struct Injections(Vec<Injected>);

/// A secret that a bridge could not read again when it took a sandbox up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret {name:?} that goes there could not be had again")]
pub struct Missing {
    pub name: String,
}

impl Injections {
    pub fn new(injected: Vec<Injected>) -> Self {
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

    /// Whether what goes to this host is to be read.
    pub fn are_for(&self, host: &Host) -> Result<bool, Missing> {
        let mut those = self.of(host).peekable();
        let is_for = those.peek().is_some();
        match those.find(|one| one.value.is_none()) {
            Some(missing) => Err(Missing { name: missing.name.clone() }),
            None => Ok(is_for),
        }
    }

    fn of(&self, host: &Host) -> impl Iterator<Item = &Injected> {
        self.0.iter().filter(move |one| one.hosts.contains(host))
    }

    /// A request's head as the host is to get it, and the secrets that are in it. The head has been
    /// judged before: its lines are whole and plain.
    pub fn fill(&self, host: &Host, head: &[u8]) -> Result<(Wiped, Vec<String>), Wrong> {
        let (mut out, mut used) = (Vec::with_capacity(FILLED_HEAD_BYTES_MAX), Vec::new());
        for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let field = line.iter().position(|byte| *byte == b':').filter(|_| number > 0);
            let Some(colon) = field else {
                put(&mut out, line)?;
                continue;
            };
            let (name, value) = line.split_at(colon + 1);
            put(&mut out, name)?;
            match self.of_basic(host, name, value, &mut used) {
                Some(filled) => put(&mut out, &filled)?,
                None => self.put_filled(host, value, &mut out, &mut used)?,
            }
        }
        used.sort();
        used.dedup();
        Ok((Wiped::new(out), used))
    }

    /// Name and password of the oldest way to say who one is are hidden from the eye: a placeholder
    /// in them is not seen as it stands.
    fn of_basic(
        &self,
        host: &Host,
        name: &[u8],
        value: &[u8],
        used: &mut Vec<String>,
    ) -> Option<Wiped> {
        const SCHEME: &[u8] = b"basic ";
        if !name.eq_ignore_ascii_case(b"authorization:") {
            return None;
        }
        let value = value.trim_ascii();
        let (scheme, encoded) = value.split_at_checked(SCHEME.len())?;
        let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
        if !scheme.eq_ignore_ascii_case(SCHEME) || find(&decoded, BEFORE.as_bytes()).is_none() {
            return None;
        }
        let mut plain = Vec::with_capacity(FILLED_HEAD_BYTES_MAX);
        // One that is too long is refused when the field is put where it is: as it was sent.
        self.put_filled(host, &decoded, &mut plain, used).ok()?;
        let mut field = b" Basic ".to_vec();
        let plain = Wiped::new(plain);
        let mut encoded = STANDARD.encode(&*plain).into_bytes();
        field.reserve_exact(encoded.len() + 2);
        field.extend_from_slice(&encoded);
        wipe(&mut encoded);
        field.extend_from_slice(b"\r\n");
        Some(Wiped::new(field))
    }

    fn put_filled(
        &self,
        host: &Host,
        mut value: &[u8],
        out: &mut Vec<u8>,
        used: &mut Vec<String>,
    ) -> Result<(), Wrong> {
        while let Some(at) = find(value, BEFORE.as_bytes()) {
            put(out, &value[..at])?;
            value = &value[at..];
            let meant = self.of(host).find_map(|one| {
                let placeholder = placeholder(&one.name);
                let is_it = value.starts_with(placeholder.as_bytes());
                one.value.as_ref().filter(|_| is_it).map(|value| (one, placeholder.len(), value))
            });
            let length = if let Some((one, length, secret)) = meant {
                put(out, secret.expose().as_bytes())?;
                used.push(one.name.clone());
                length
            } else {
                // Another host's, or nobody's: it goes on as it is.
                put(out, BEFORE.as_bytes())?;
                BEFORE.len()
            };
            value = &value[length..];
        }
        put(out, value)
    }
}

/// Whether a value can stand in a field at all. One that cannot would let whoever gives it out write
/// requests of their own.
pub fn fits_a_field(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// Appends within the room that there is: a place that grows leaves a copy of what it had behind.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Wrong> {
    if out.len() + bytes.len() > FILLED_HEAD_BYTES_MAX {
        wipe(out);
        return Err(Wrong::TooLong);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests;
