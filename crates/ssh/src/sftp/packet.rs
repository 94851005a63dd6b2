//! The packets of SFTP, version 3, as OpenSSH speaks it. Pure.

use protocol::Text;
use protocol::message::{FileInfo, FileKind};

/// The version that is spoken.
pub const VERSION: u32 = 3;
/// Extensions, by their names and versions.
pub const EXTENSIONS: [(&str, &str); 2] = [(POSIX_RENAME, "1"), (FSYNC, "1")];
pub const POSIX_RENAME: &str = "posix-rename@openssh.com";
pub const FSYNC: &str = "fsync@openssh.com";

/// What a client asks of a file that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(u32);

impl OpenFlags {
    pub fn reads(self) -> bool {
        self.0 & 0x01 != 0
    }
    pub fn writes(self) -> bool {
        self.0 & 0x02 != 0
    }
    pub fn appends(self) -> bool {
        self.0 & 0x04 != 0
    }
    pub fn creates(self) -> bool {
        self.0 & 0x08 != 0
    }
    pub fn truncates(self) -> bool {
        self.0 & 0x10 != 0
    }
    pub fn excludes(self) -> bool {
        self.0 & 0x20 != 0
    }
}

/// Attributes that a client sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub bytes: Option<u64>,
    pub owner: Option<(u32, u32)>,
    pub permissions: Option<u32>,
    /// When it was read last and when it was changed, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

/// The handle of an open file or directory.
pub type Handle = u32;

/// A request. What has an id is answered under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Init,
    Open { path: Text, flags: OpenFlags, attributes: Attributes },
    Close { handle: Handle },
    Read { handle: Handle, offset: u64, bytes: u32 },
    Write { handle: Handle, offset: u64, data: Vec<u8> },
    Stat { path: Text, follow: bool },
    HandleStat { handle: Handle },
    SetStat { path: Text, attributes: Attributes },
    HandleSetStat { handle: Handle, attributes: Attributes },
    OpenDirectory { path: Text },
    ReadDirectory { handle: Handle },
    Remove { path: Text },
    MakeDirectory { path: Text, attributes: Attributes },
    RemoveDirectory { path: Text },
    RealPath { path: Text },
    Rename { from: Text, to: Text, replace: bool },
    ReadLink { path: Text },
    MakeLink { target: Text, path: Text },
    Sync { handle: Handle },
    Unknown,
}

/// How a request ended that has no other answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    End,
    NoSuchFile(String),
    Denied(String),
    Failure(String),
    Bad,
    Unsupported(String),
}

impl Status {
    fn parts(&self) -> (u32, &str) {
        match self {
            Self::Ok => (0, ""),
            Self::End => (1, "end of file"),
            Self::NoSuchFile(why) => (2, why),
            Self::Denied(why) => (3, why),
            Self::Failure(why) => (4, why),
            Self::Bad => (5, "the message is malformed"),
            Self::Unsupported(why) => (8, why),
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Version,
    Status(Status),
    Handle(Handle),
    Data(Vec<u8>),
    /// Names with the lines that `ls -l` shows for them.
    Names(Vec<(Text, String, Option<FileInfo>)>),
    Attributes(FileInfo),
}

/// Reads the fields of a packet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<Text> {
        self.bytes().map(|bytes| bytes.to_vec().into())
    }

    fn handle(&mut self) -> Option<Handle> {
        self.bytes()?.try_into().ok().map(u32::from_be_bytes)
    }

    fn attributes(&mut self) -> Option<Attributes> {
        let flags = self.u32()?;
        let has = |flag: u32| flags & flag != 0;
        Some(Attributes {
            bytes: if has(1) { Some(self.u64()?) } else { None },
            owner: if has(2) { Some((self.u32()?, self.u32()?)) } else { None },
            permissions: if has(4) { Some(self.u32()? & 0o7777) } else { None },
            times: if has(8) { Some((self.u32()?, self.u32()?)) } else { None },
        })
    }
}

/// Reads a packet without its length: its id and the request. `None` is a packet that cannot be answered.
pub fn parse(packet: &[u8]) -> Option<(u32, Option<Request>)> {
    const INIT: u8 = 1;
    let mut fields = Fields(packet);
    let kind = fields.u8()?;
    let id = fields.u32()?;
    if kind == INIT {
        return Some((id, Some(Request::Init)));
    }
    Some((id, parse_body(kind, &mut fields)))
}

fn parse_body(kind: u8, fields: &mut Fields<'_>) -> Option<Request> {
    Some(match kind {
        3 => Request::Open {
            path: fields.text()?,
            flags: OpenFlags(fields.u32()?),
            attributes: fields.attributes()?,
        },
        4 => Request::Close { handle: fields.handle()? },
        5 => {
            Request::Read { handle: fields.handle()?, offset: fields.u64()?, bytes: fields.u32()? }
        }
        6 => Request::Write {
            handle: fields.handle()?,
            offset: fields.u64()?,
            data: fields.bytes()?.to_vec(),
        },
        7 => Request::Stat { path: fields.text()?, follow: false },
        8 => Request::HandleStat { handle: fields.handle()? },
        9 => Request::SetStat { path: fields.text()?, attributes: fields.attributes()? },
        10 => Request::HandleSetStat { handle: fields.handle()?, attributes: fields.attributes()? },
        11 => Request::OpenDirectory { path: fields.text()? },
        12 => Request::ReadDirectory { handle: fields.handle()? },
        13 => Request::Remove { path: fields.text()? },
        14 => Request::MakeDirectory { path: fields.text()?, attributes: fields.attributes()? },
        15 => Request::RemoveDirectory { path: fields.text()? },
        16 => Request::RealPath { path: fields.text()? },
        17 => Request::Stat { path: fields.text()?, follow: true },
        18 => Request::Rename { from: fields.text()?, to: fields.text()?, replace: false },
        19 => Request::ReadLink { path: fields.text()? },
        // OpenSSH sends the target first, and everybody does as it does.
        20 => Request::MakeLink { target: fields.text()?, path: fields.text()? },
        200 => match fields.bytes()? {
            name if name == POSIX_RENAME.as_bytes() => {
                Request::Rename { from: fields.text()?, to: fields.text()?, replace: true }
            }
            name if name == FSYNC.as_bytes() => Request::Sync { handle: fields.handle()? },
            _ => Request::Unknown,
        },
        _ => Request::Unknown,
    })
}

/// Writes an answer with its length.
pub fn encode(id: u32, reply: &Reply) -> Vec<u8> {
    let mut packet = vec![0; 4];
    let kind = match reply {
        Reply::Version => 2,
        Reply::Status(_) => 101,
        Reply::Handle(_) => 102,
        Reply::Data(_) => 103,
        Reply::Names(_) => 104,
        Reply::Attributes(_) => 105,
    };
    packet.push(kind);
    put_u32(&mut packet, if matches!(reply, Reply::Version) { VERSION } else { id });
    match reply {
        Reply::Version => {
            for (name, version) in EXTENSIONS {
                put_bytes(&mut packet, name.as_bytes());
                put_bytes(&mut packet, version.as_bytes());
            }
        }
        Reply::Status(status) => {
            let (code, why) = status.parts();
            put_u32(&mut packet, code);
            put_bytes(&mut packet, why.as_bytes());
            put_bytes(&mut packet, b"en");
        }
        Reply::Handle(handle) => put_bytes(&mut packet, &handle.to_be_bytes()),
        Reply::Data(bytes) => put_bytes(&mut packet, bytes),
        Reply::Names(names) => {
            put_u32(&mut packet, names.len() as u32);
            for (name, line, info) in names {
                put_bytes(&mut packet, name.as_bytes());
                put_bytes(&mut packet, line.as_bytes());
                match info {
                    Some(info) => put_attributes(&mut packet, info),
                    None => put_u32(&mut packet, 0),
                }
            }
        }
        Reply::Attributes(info) => put_attributes(&mut packet, info),
    }
    let length = (packet.len() - 4) as u32;
    packet[..4].copy_from_slice(&length.to_be_bytes());
    packet
}

fn put_u32(packet: &mut Vec<u8>, value: u32) {
    packet.extend(value.to_be_bytes());
}

fn put_bytes(packet: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(packet, bytes.len() as u32);
    packet.extend(bytes);
}

fn put_attributes(packet: &mut Vec<u8>, info: &FileInfo) {
    const ALL: u32 = 1 | 2 | 4 | 8;
    put_u32(packet, ALL);
    packet.extend(info.bytes.to_be_bytes());
    put_u32(packet, info.uid);
    put_u32(packet, info.gid);
    put_u32(packet, mode(info));
    let changed = u32::try_from(info.modified_ms.div_euclid(1000).max(0)).unwrap_or(u32::MAX);
    put_u32(packet, changed);
    put_u32(packet, changed);
}

/// Its kind and its permissions, as Linux has them.
fn mode(info: &FileInfo) -> u32 {
    let kind = match info.kind {
        FileKind::File => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::CharDevice => 0o020_000,
    };
    kind | info.permissions & 0o7777
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, id: u32, fields: &[&[u8]]) -> Vec<u8> {
        let mut packet = vec![kind];
        put_u32(&mut packet, id);
        for field in fields {
            put_bytes(&mut packet, field);
        }
        packet
    }

    #[test]
    fn a_request_is_read_with_its_fields() {
        let mut open = packet(3, 7, &[b"/a"]);
        put_u32(&mut open, 0x1a);
        put_u32(&mut open, 4);
        put_u32(&mut open, 0o100_755);
        let Some((7, Some(Request::Open { path, flags, attributes }))) = parse(&open) else {
            panic!("no open")
        };
        assert_eq!(path, "/a".into());
        assert!(flags.writes() && flags.creates() && flags.truncates() && !flags.reads());
        assert_eq!(attributes, Attributes { permissions: Some(0o755), ..Attributes::default() });
        let rename = parse(&packet(200, 8, &[POSIX_RENAME.as_bytes(), b"/a", b"/b"]));
        let expected = Request::Rename { from: "/a".into(), to: "/b".into(), replace: true };
        assert_eq!(rename, Some((8, Some(expected))));
        assert_eq!(parse(&packet(99, 9, &[])), Some((9, Some(Request::Unknown))));
    }

    #[test]
    fn whatever_is_cut_off_is_bad_and_never_a_panic() {
        let kinds = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 200, 255];
        for kind in kinds {
            let mut whole = packet(kind, 1, &[&[0, 0, 0, 1], b"/x"]);
            whole.extend([0xff; 24]);
            for end in 0..whole.len() {
                let parsed = parse(&whole[..end]);
                assert_eq!(parsed.is_none(), end < 5, "{kind} {end}");
            }
        }
        let endless = [&[4, 0, 0, 0, 1][..], &[0xff; 4]].concat();
        assert_eq!(parse(&endless), Some((1, None)));
    }

    #[test]
    fn an_answer_has_its_length_before_it() {
        let bytes = encode(5, &Reply::Status(Status::End));
        assert_eq!(bytes[..4], ((bytes.len() - 4) as u32).to_be_bytes());
        assert_eq!(bytes[4..13], [101, 0, 0, 0, 5, 0, 0, 0, 1]);
        assert_eq!(encode(0, &Reply::Version)[4..9], [2, 0, 0, 0, 3]);
    }
}
