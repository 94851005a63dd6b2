//! Reads the server name from the greeting (`ClientHello`) of a TLS client. Pure. Its input is untrusted
//! and may arrive in pieces of any size.

use super::host::Host;
use super::limits::GREETING_BYTES_MAX;

const RECORD_HEAD_BYTES: usize = 5;
/// The type and length of a message.
const MESSAGE_HEAD_BYTES: usize = 4;
/// A record before encryption has at most this many bytes.
const RECORD_BYTES_MAX: usize = 1 << 14;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// So far it is TLS, and incomplete.
    More,
    /// It means this host.
    Names(Host),
    /// It is valid and names no host.
    Nameless,
    /// It is not TLS.
    Other,
    /// It is broken, or contains what a well-meaning client does not send.
    Bad(&'static str),
}

/// A `ClientHello` that arrives in any pieces. Each byte is parsed once, however many pieces there are:
/// otherwise an attacker could cause much work by sending single bytes.
#[derive(Debug, Default)]
pub struct Greeting {
    /// Where the current record begins, and how much of it is in `message` already.
    record: usize,
    taken: usize,
    /// The first message so far, which may be in several records.
    message: Vec<u8>,
}

impl Greeting {
    /// Looks at the first bytes of a connection, which are those of before and perhaps more.
    pub fn read(&mut self, bytes: &[u8]) -> Hello {
        match self.gather(bytes) {
            Ok(Some(body)) => parse(body),
            Ok(None) if bytes.len() > GREETING_BYTES_MAX => {
                Hello::Bad("its TLS greeting does not end")
            }
            Ok(None) => Hello::More,
            Err(hello) => hello,
        }
    }

    /// The body of the message; `None` while it is not all there.
    fn gather(&mut self, bytes: &[u8]) -> Result<Option<&[u8]>, Hello> {
        while let Some(record) = bytes.get(self.record..).filter(|record| !record.is_empty()) {
            match record {
                [HANDSHAKE] | [HANDSHAKE, 3, ..] => {}
                _ if self.message.is_empty() => return Err(Hello::Other),
                _ => return Err(Hello::Bad("its TLS greeting is truncated")),
            }
            let Some((head, body)) = record.split_at_checked(RECORD_HEAD_BYTES) else { break };
            let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
            if length == 0 || length > RECORD_BYTES_MAX {
                return Err(Hello::Bad("a TLS record has an invalid length"));
            }
            let body = &body[..length.min(body.len())];
            self.message.extend_from_slice(&body[self.taken..]);
            self.taken = body.len();
            if let Some(end) = self.end()? {
                return Ok(Some(&self.message[MESSAGE_HEAD_BYTES..end]));
            }
            if self.taken < length {
                break;
            }
            (self.record, self.taken) = (self.record + RECORD_HEAD_BYTES + length, 0);
        }
        Ok(None)
    }

    /// Where the message ends, once it is complete.
    fn end(&self) -> Result<Option<usize>, Hello> {
        match self.message[..] {
            [CLIENT_HELLO, a, b, c, ..] => {
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if length > GREETING_BYTES_MAX {
                    return Err(Hello::Bad("its TLS greeting is too long"));
                }
                let end = MESSAGE_HEAD_BYTES + length;
                Ok((self.message.len() >= end).then_some(end))
            }
            [CLIENT_HELLO, ..] | [] => Ok(None),
            _ => Err(Hello::Bad("it does not begin with a TLS greeting")),
        }
    }
}

fn parse(body: &[u8]) -> Hello {
    extensions(body).map_or(Hello::Bad("its TLS greeting is malformed"), named)
}

/// The extensions after version, random, session, ciphers and compressions. The oldest versions
/// have none.
fn extensions(body: &[u8]) -> Option<&[u8]> {
    const VERSION_AND_RANDOM_BYTES: usize = 34;
    let mut rest = Reader(body);
    rest.take(VERSION_AND_RANDOM_BYTES)?;
    rest.short()?;
    rest.long()?;
    rest.short()?;
    if rest.0.is_empty() {
        return Some(&[]);
    }
    let extensions = rest.long()?;
    rest.0.is_empty().then_some(extensions)
}

fn named(extensions: &[u8]) -> Hello {
    let mut rest = Reader(extensions);
    let mut found = None;
    while !rest.0.is_empty() {
        let Some((kind, data)) = rest.number().zip(rest.long()) else {
            return Hello::Bad("its TLS greeting is malformed");
        };
        if kind == SERVER_NAME && found.replace(data).is_some() {
            return Hello::Bad("its TLS greeting names two hosts");
        }
    }
    let Some(list) = found else { return Hello::Nameless };
    let mut list = Reader(list);
    let Some(names) = list.long().filter(|_| list.0.is_empty()) else {
        return Hello::Bad("its TLS greeting is malformed");
    };
    let mut names = Reader(names);
    let entry = names.take(1).zip(names.long());
    match entry {
        Some(([HOST_NAME], name)) if names.0.is_empty() => {
            let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            name.map_or(Hello::Bad("its TLS greeting names an invalid host"), Hello::Names)
        }
        Some(_) => Hello::Bad("its TLS greeting names two hosts or an unknown kind of name"),
        None => Hello::Bad("its TLS greeting is malformed"),
    }
}

/// Reads values that are preceded by their length.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn short(&mut self) -> Option<&'a [u8]> {
        let count = self.take(1)?[0];
        self.take(count.into())
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(count.into())
    }
}

#[cfg(test)]
mod tests;
