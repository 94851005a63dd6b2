//! Who acts in a sandbox: the account that a call names, or E2B's usual one, `user` with `/home/user`.
//!
//! An image that has no such account still has the directory: it is made, and the sandbox's own user acts
//! there. Accounts are read from the image once, and again when one is named that was not there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};
use protocol::requests::MakeDirectory;

use super::limits::{PASSWD_BYTES_MAX, SANDBOXES_KNOWN_MAX};
use crate::Api;
use crate::call::Inside;
use agent_client::guest::Guest;
use machine::SandboxId;
use sandbox::refusal::{Code, Refusal};

const USUAL: &str = "user";
const USUAL_HOME: &str = "/home/user";

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user that programs are started as; the sandbox's own if absent.
    pub user: Option<String>,
    pub home: String,
    /// The owner of what is written; the agent's own if absent.
    pub ids: Option<(u32, u32)>,
}

/// The accounts of sandboxes that are in memory.
#[derive(Default)]
pub struct Accounts(Mutex<HashMap<SandboxId, Arc<Passwd>>>);

/// The accounts of one image.
#[derive(Debug, Default)]
pub struct Passwd(Vec<Line>);

#[derive(Debug)]
struct Line {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Passwd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passwd {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(':').collect();
            let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            Some(Line { name: name.to_owned(), uid, gid, home: home.to_owned() })
        });
        Self(lines.collect())
    }

    fn named(&self, name: &str) -> Option<&Line> {
        self.0.iter().find(|line| line.name == name)
    }

    /// The name of a user, or its number.
    pub fn name_of(&self, uid: u32) -> String {
        let found = self.0.iter().find(|line| line.uid == uid);
        found.map_or_else(|| uid.to_string(), |line| line.name.clone())
    }
}

impl Line {
    fn account(&self) -> Account {
        let home = if self.home.starts_with('/') { self.home.clone() } else { "/".to_owned() };
        Account { user: Some(self.name.clone()), home, ids: Some((self.uid, self.gid)) }
    }
}

/// The account of a name, or the usual one.
pub async fn account(
    api: &Api,
    inside: &Inside,
    requested: Option<&str>,
) -> Result<Account, Refusal> {
    let name = requested.filter(|name| !name.is_empty()).unwrap_or(USUAL);
    let passwd = accounts(api, inside).await?;
    if let Some(line) = passwd.named(name) {
        return Ok(line.account());
    }
    if name == USUAL {
        return Ok(Account { user: None, home: USUAL_HOME.to_owned(), ids: None });
    }
    let read = read(&inside.guest).await?;
    if let Some(line) = read.named(name) {
        return Ok(line.account());
    }
    let message = format!("there is no user {name:?} in this sandbox");
    Err(Refusal::new(Code::Unauthenticated, message))
}

/// The accounts of a sandbox.
pub async fn accounts(api: &Api, inside: &Inside) -> Result<Arc<Passwd>, Refusal> {
    if let Some(known) = api.e2b().accounts.lock().get(&inside.id) {
        return Ok(Arc::clone(known));
    }
    let read = Arc::new(read(&inside.guest).await?);
    if read.named(USUAL).is_none() {
        let ask = MakeDirectory { path: USUAL_HOME.into(), permissions: None, parents: true };
        // Where it cannot be made, each program says that it cannot begin there.
        let _ = inside.guest.make_directory(ask).await;
    }
    let mut known = api.e2b().accounts.lock();
    if known.len() >= SANDBOXES_KNOWN_MAX {
        known.clear();
    }
    known.insert(inside.id.clone(), Arc::clone(&read));
    Ok(read)
}

/// An image without the file has no accounts.
async fn read(guest: &Guest) -> Result<Passwd, Refusal> {
    let Ok((output, _, _)) = guest.read_file("/etc/passwd", 0, None).await else {
        return Ok(Passwd::default());
    };
    let bytes = output.whole(PASSWD_BYTES_MAX).await?.unwrap_or_default();
    Ok(Passwd::parse(&String::from_utf8_lossy(&bytes)))
}

/// The name that a call of envd acts under, if it gives one.
pub fn requested(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(name, _)| name.to_owned())
}

impl Account {
    /// The path that a client means: absolute, below the home, or the home.
    pub fn path(&self, text: &str) -> Result<String, Refusal> {
        let home = self.home.trim_end_matches('/');
        match text.strip_prefix('~') {
            _ if text.starts_with('/') => Ok(text.to_owned()),
            Some("") => Ok(self.home.clone()),
            Some(rest) if rest.starts_with('/') => Ok(format!("{home}{rest}")),
            Some(_) => Err(Refusal::invalid(format!("{text:?} is the home of another user"))),
            None if text.is_empty() => Ok(self.home.clone()),
            None => Ok(format!("{home}/{text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_and_what_is_none_is_passed_over() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1001::/home/user:\n#\nbad:x:a:b::/:";
        let passwd = Passwd::parse(text);
        assert_eq!(passwd.named("user").unwrap().account().ids, Some((1000, 1001)));
        assert_eq!(passwd.name_of(0), "root");
        assert_eq!(passwd.name_of(7), "7");
        assert!(passwd.named("bad").is_none());
    }

    #[test]
    fn paths_begin_at_the_root_or_in_the_home() {
        let account = Account { user: None, home: "/home/user".to_owned(), ids: None };
        for (text, path) in [
            ("/a", "/a"),
            ("a/b", "/home/user/a/b"),
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/a", "/home/user/a"),
        ] {
            assert_eq!(account.path(text).unwrap(), path);
        }
        assert!(account.path("~root").is_err());
    }
}
