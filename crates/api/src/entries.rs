//! Files as the clients of other services know them: Go's words for permissions, and owners by the names
//! that the image has for them.

use protocol::message::FileKind;

use crate::limits::PASSWD_BYTES_MAX;
use agent_client::guest::Guest;
use sandbox::refusal::Refusal;

/// The accounts of one image.
#[derive(Debug, Default)]
pub struct Passwd(Vec<Line>);

/// One of them.
#[derive(Debug)]
pub struct Line {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
}

impl Passwd {
    /// An image without the file has no accounts.
    pub async fn read(guest: &Guest) -> Result<Self, Refusal> {
        let Ok((output, _, _)) = guest.read_file("/etc/passwd", 0, None).await else {
            return Ok(Self::default());
        };
        let bytes = output.whole(PASSWD_BYTES_MAX).await?.unwrap_or_default();
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(':').collect();
            let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            Some(Line { name: name.to_owned(), uid, gid, home: home.to_owned() })
        });
        Self(lines.collect())
    }

    pub fn named(&self, name: &str) -> Option<&Line> {
        self.0.iter().find(|line| line.name == name)
    }

    /// The name of a user, or its number.
    pub fn name_of(&self, uid: u32) -> String {
        let found = self.0.iter().find(|line| line.uid == uid);
        found.map_or_else(|| uid.to_string(), |line| line.name.clone())
    }
}

/// Kind and permissions as Go writes them.
pub fn permissions(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'L',
        FileKind::Fifo => 'p',
        FileKind::Socket => 'S',
        FileKind::BlockDevice | FileKind::CharDevice => 'D',
        FileKind::File => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bits = bits.map(|(at, letter)| if mode & (0o400 >> at) == 0 { '-' } else { letter });
    std::iter::once(first).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_written_as_go_does() {
        assert_eq!(permissions(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(permissions(FileKind::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(permissions(FileKind::Symlink, 0o777), "Lrwxrwxrwx");
    }

    #[test]
    fn accounts_are_read_and_what_is_none_is_passed_over() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1001::/home/user:\n#\nbad:x:a:b::/:";
        let passwd = Passwd::parse(text);
        assert_eq!(passwd.named("user").map(|line| (line.uid, line.gid)), Some((1000, 1001)));
        assert_eq!(passwd.name_of(0), "root");
        assert_eq!(passwd.name_of(7), "7");
        assert!(passwd.named("bad").is_none());
    }
}
