//! Reads the outer format of a package: an `ar` archive of three members.

use std::io::{self, Read, Seek, SeekFrom};

const MAGIC: &[u8; 8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;

/// How many members are read; a package has three, a signed one a few more.
const MEMBERS_MAX: usize = 16;

/// One member and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub offset: u64,
    pub bytes: u64,
}

/// Why a file is no such archive.
#[derive(Debug, thiserror::Error)]
pub enum ArError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not an ar archive")]
    Magic,
    #[error("a broken header at byte {0}")]
    Header(u64),
    #[error("the member {0} is cut short")]
    Truncated(String),
    #[error("more than {MEMBERS_MAX} members")]
    TooMany,
}

/// The members of an archive, all of which are inside of it.
pub fn members(file: &mut (impl Read + Seek)) -> Result<Vec<Member>, ArError> {
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).map_err(|_| ArError::Magic)?;
    if &magic != MAGIC {
        return Err(ArError::Magic);
    }
    let mut members = Vec::new();
    let mut at = MAGIC.len() as u64;
    while at < end {
        if members.len() == MEMBERS_MAX {
            return Err(ArError::TooMany);
        }
        file.seek(SeekFrom::Start(at))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).map_err(|_| ArError::Header(at))?;
        let text = |from: usize, to: usize| {
            std::str::from_utf8(&header[from..to]).map_err(|_| ArError::Header(at))
        };
        let name = text(0, 16)?.trim_end().trim_end_matches('/').to_owned();
        let bytes: u64 = text(48, 58)?.trim_end().parse().map_err(|_| ArError::Header(at))?;
        if &header[58..] != b"`\n" {
            return Err(ArError::Header(at));
        }
        let offset = at + HEADER_BYTES as u64;
        at = offset + bytes;
        if at > end {
            return Err(ArError::Truncated(name));
        }
        at += at % 2;
        members.push(Member { name, offset, bytes });
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn archive(name: &str, body: &[u8]) -> Vec<u8> {
        let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, body.len());
        [MAGIC, header.as_bytes(), body].concat()
    }

    #[test]
    fn members_are_found_where_they_are() {
        let mut bytes = archive("debian-binary", b"2.0");
        bytes.push(b'\n');
        bytes.extend(&archive("data.tar/", b"xy")[MAGIC.len()..]);
        let found = members(&mut Cursor::new(bytes)).expect("an archive");
        let expected = [("debian-binary", 68, 3), ("data.tar", 132, 2)];
        let found: Vec<_> =
            found.iter().map(|member| (&*member.name, member.offset, member.bytes)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn truncated_and_broken_archives_are_refused() {
        let whole = archive("data.tar", b"twelve bytes");
        assert!(matches!(members(&mut Cursor::new(&whole[..79])), Err(ArError::Truncated(_))));
        assert!(matches!(members(&mut Cursor::new(&whole[..30])), Err(ArError::Header(8))));
        assert!(matches!(members(&mut Cursor::new(b"!<arc")), Err(ArError::Magic)));
        let mut broken = whole;
        broken[8 + 48] = b'-';
        assert!(matches!(members(&mut Cursor::new(broken)), Err(ArError::Header(8))));
    }
}
