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

use super::limits::SANDBOXES_KNOWN_MAX;
use crate::Api;
use crate::call::Inside;
use crate::entries::{Line, Passwd};
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

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Passwd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<&Line> for Account {
    fn from(line: &Line) -> Self {
        let home = if line.home.starts_with('/') { line.home.clone() } else { "/".to_owned() };
        Self { user: Some(line.name.clone()), home, ids: Some((line.uid, line.gid)) }
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
        return Ok(line.into());
    }
    if name == USUAL {
        return Ok(Account { user: None, home: USUAL_HOME.to_owned(), ids: None });
    }
    let read = Passwd::read(&inside.guest).await?;
    if let Some(line) = read.named(name) {
        return Ok(line.into());
    }
    let message = format!("there is no user {name:?} in this sandbox");
    Err(Refusal::new(Code::Unauthenticated, message))
}

/// The accounts of a sandbox.
pub async fn accounts(api: &Api, inside: &Inside) -> Result<Arc<Passwd>, Refusal> {
    if let Some(known) = api.e2b().accounts.lock().get(&inside.id) {
        return Ok(Arc::clone(known));
    }
    let read = Arc::new(Passwd::read(&inside.guest).await?);
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
