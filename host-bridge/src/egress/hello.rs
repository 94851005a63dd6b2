//! The greeting of a TLS client, as far as it says whom it means. Pure; what it reads comes from
//! strangers, in whatever pieces.

use super::host::Host;
use super::limits::GREETING_BYTES_MAX;

const RECORD_HEAD_BYTES: usize = 5;
/// Before encryption a record has no more.
const RECORD_BYTES_MAX: usize = 1 << 14;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// It is TLS as far as one can see, and goes on.
    More,
    /// It means this host.
    Names(Host),
    /// It is good and names nobody.
    Nameless,
    /// It is not TLS.
    Other,
    /// It is broken, or says what a well-meaning client does not.
    Bad(&'static str),
}

/// Looks at the first bytes of a connection.
pub fn read(bytes: &[u8]) -> Hello {
    match gathered(bytes) {
        Ok(Some(message)) => parse(&message),
        Ok(None) if bytes.len() > GREETING_BYTES_MAX => Hello::Bad("its greeting has no end"),
        Ok(None) => Hello::More,
        Err(hello) => hello,
    }
}

/// The body of the first message, which may be in several records; `None` while it is not all there.
fn gathered(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, Hello> {
    let mut message = Vec::new();
    loop {
        match bytes {
            [] => return Ok(None),
            [HANDSHAKE] | [HANDSHAKE, 3, ..] => {}
            _ if message.is_empty() => return Err(Hello::Other),
            _ => return Err(Hello::Bad("its greeting is cut")),
        }
        let Some(head) = bytes.get(..RECORD_HEAD_BYTES) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(Hello::Bad("a record of it has no good length"));
        }
        let end = (RECORD_HEAD_BYTES + length).min(bytes.len());
        message.extend_from_slice(&bytes[RECORD_HEAD_BYTES..end]);
        bytes = &bytes[end..];
        match message[..] {
            [CLIENT_HELLO, a, b, c, ..] => {
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if length > GREETING_BYTES_MAX {
                    return Err(Hello::Bad("its greeting is too long"));
                }
                if let Some(body) = message.get(4..4 + length) {
                    return Ok(Some(body.to_vec()));
                }
            }
            [CLIENT_HELLO, ..] | [] => {}
            _ => return Err(Hello::Bad("it begins with another message than a greeting")),
        }
    }
}

fn parse(body: &[u8]) -> Hello {
    extensions(body).map_or(Hello::Bad("its greeting is broken"), named)
}

/// What follows version, random number, session, ciphers and compressions. None in the oldest.
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
            return Hello::Bad("its greeting is broken");
        };
        if kind == SERVER_NAME && found.replace(data).is_some() {
            return Hello::Bad("it names two hosts");
        }
    }
    let Some(list) = found else { return Hello::Nameless };
    let mut list = Reader(list);
    let Some(names) = list.long().filter(|_| list.0.is_empty()) else {
        return Hello::Bad("its greeting is broken");
    };
    let mut names = Reader(names);
    let entry = names.take(1).zip(names.long());
    match entry {
        Some(([HOST_NAME], name)) if names.0.is_empty() => {
            let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            name.map_or(Hello::Bad("it names what is no host"), Hello::Names)
        }
        Some(_) => Hello::Bad("it names two hosts, or something else"),
        None => Hello::Bad("its greeting is broken"),
    }
}

/// Takes what has its length before it.
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
