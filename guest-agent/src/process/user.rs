//! The user of a program: `name`, `name:group`, `uid` or `uid:gid`, looked up in the guest's own
//! `/etc/passwd` and `/etc/group`.
//!
//! Only `process` calls it. The C library's functions are not used, because in a static program
//! they read only these two files, too, and bring buffers and locks with them.

use std::io;
use std::sync::OnceLock;

use nix::unistd::geteuid;

use crate::lookup;
use crate::sys::spawn::Identity;

#[cfg(test)]
mod tests;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The two files are the image's, and are read whole by the event loop. Real ones have some KiB; this
/// has room for ten thousand accounts.
const BYTES_MAX: u64 = 1024 * 1024;

/// A user as a program sees itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// `None` changes nothing.
    pub identity: Option<Identity>,
    pub name: String,
    pub home: String,
    pub shell: String,
}

/// Why a user does not exist.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("no user is called {0:?}")]
    UnknownUser(String),
    #[error("no group is called {0:?}")]
    UnknownGroup(String),
    #[error("{0:?} is not a user: write name, name:group, uid or uid:gid")]
    Malformed(String),
    #[error("{path} cannot be read: {source}")]
    Unreadable { path: &'static str, source: io::Error },
}

impl UserError {
    pub fn errno(&self) -> i32 {
        match self {
            Self::UnknownUser(_) | Self::UnknownGroup(_) => libc::ENOENT,
            Self::Malformed(_) => libc::EINVAL,
            Self::Unreadable { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// Looks up a user. An image without the two files has no names, but every number.
pub fn resolve(text: Option<&str>) -> Result<User, UserError> {
    let Some(text) = text else {
        return Ok(own());
    };
    resolve_in(text, &read(PASSWD)?, &read(GROUP)?)
}

/// The kernel is asked once, not for each start.
static OWN_UID: OnceLock<u32> = OnceLock::new();

/// The agent's own user. Root is not looked up: it is the usual case, on every start's way, and
/// has no other home.
fn own() -> User {
    let uid = *OWN_UID.get_or_init(|| geteuid().as_raw());
    let account = if uid == 0 {
        None
    } else {
        read(PASSWD).ok().and_then(|text| find_account(&text, &uid.to_string()))
    };
    let (name, home, shell) = describe(account, uid);
    User { identity: None, name, home, shell }
}

fn read(path: &'static str) -> Result<String, UserError> {
    match lookup::read_regular(path, BYTES_MAX) {
        // A comment in some other encoding is no reason to fail.
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(UserError::Unreadable { path, source }),
    }
}

/// The pure half of [`resolve`].
pub fn resolve_in(text: &str, passwd: &str, group: &str) -> Result<User, UserError> {
    let (user, group_asked) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    if user.is_empty() || group_asked.is_some_and(|group| group.is_empty() || group.contains(':')) {
        return Err(UserError::Malformed(text.to_owned()));
    }
    let account = find_account(passwd, user);
    let uid = match &account {
        Some(account) => account.uid,
        None => parse_id(user).ok_or_else(|| UserError::UnknownUser(user.to_owned()))?,
    };
    let gid = match (group_asked, &account) {
        (Some(name), _) => {
            find_group(group, name).ok_or_else(|| UserError::UnknownGroup(name.to_owned()))?
        }
        (None, Some(account)) => account.gid,
        // Like docker for a number without an entry.
        (None, None) => 0,
    };
    // An explicit group replaces the supplementary ones, as in docker.
    let mut groups = vec![gid];
    if let (None, Some(account)) = (group_asked, &account) {
        groups.extend(groups_with_member(group, &account.name).filter(|other| *other != gid));
        groups.truncate(GROUPS_MAX);
    }
    let (name, home, shell) = describe(account, uid);
    Ok(User { identity: Some(Identity { uid, gid, groups }), name, home, shell })
}

/// `NGROUPS_MAX` of Linux: more cannot be set.
const GROUPS_MAX: usize = 65_536;

struct Account {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
    shell: String,
}

/// By name first; a number is looked up as a number, so that it gets its home and its groups.
fn find_account(passwd: &str, user: &str) -> Option<Account> {
    let by_name = passwd.lines().filter_map(parse_account).find(|account| account.name == user);
    by_name.or_else(|| {
        let uid = parse_id(user)?;
        passwd.lines().filter_map(parse_account).find(|account| account.uid == uid)
    })
}

/// `name:password:uid:gid:comment:home:shell`
fn parse_account(line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields[..] else {
        return None;
    };
    Some(Account {
        name: name.to_owned(),
        uid: parse_id(uid)?,
        gid: parse_id(gid)?,
        home: home.to_owned(),
        shell: shell.to_owned(),
    })
}

fn find_group(group: &str, wanted: &str) -> Option<u32> {
    let by_name = group.lines().filter_map(parse_group).find(|(name, ..)| *name == wanted);
    by_name.map(|(_, gid, _)| gid).or_else(|| parse_id(wanted))
}

fn groups_with_member<'a>(group: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    let has_user = move |members: &str| members.split(',').any(|member| member == user);
    group
        .lines()
        .filter_map(parse_group)
        .filter(move |(_, _, members)| has_user(members))
        .map(|(_, gid, _)| gid)
}

/// `name:password:gid:member,member`
fn parse_group(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.split(':');
    let (name, _, gid, members) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    Some((name, parse_id(gid)?, members))
}

/// Decimal digits alone. The highest number means "no change" to the kernel and is no id.
fn parse_id(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| digits && *id != u32::MAX)
}

/// The environment of a user's programs: from the account, or sensible defaults for a number
/// without one.
fn describe(account: Option<Account>, uid: u32) -> (String, String, String) {
    let or =
        |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    match account {
        Some(account) => (account.name, or(account.home, "/"), or(account.shell, "/bin/sh")),
        None if uid == 0 => ("root".to_owned(), "/root".to_owned(), "/bin/sh".to_owned()),
        None => (uid.to_string(), "/".to_owned(), "/bin/sh".to_owned()),
    }
}
