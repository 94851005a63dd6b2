//! Files of a sandbox: listed, looked at, made, moved, removed, and who may use them.

use hyper::{Method, StatusCode};
use protocol::message::{FileInfo, FileKind};
use protocol::requests::{MakeDirectory, Move, Program, Remove};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{TOOLBOX, coded, refused};
use super::limits::{DEPTH_DEFAULT, ENTRIES_MAX, OUTPUT_BYTES_MAX, PLACES_MAX, VALUE_BYTES};
use super::run::{Asked, run_to_end};
use super::seat::{self, Paths, path};
use crate::body::json_response;
use crate::call::Call;
use crate::entries::{Passwd, permissions};
use crate::route::{Operation, operation};
use crate::shape::{Done, Nothing, Query, Raw};
use host::instant::format;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let files = "/daytona/toolbox/{sandbox}/files";
    let looks = [
        operation(Method::GET, files, "daytona_ls", "List a directory.", list),
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/files/info",
            "daytona_stat",
            "Look up a path.",
            info,
        ),
    ];
    let changes = [
        operation(Method::DELETE, files, "daytona_rm", "Remove a file.", remove),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/files/folder",
            "daytona_mkdir",
            "Make a directory.",
            make,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/files/move",
            "daytona_mv",
            "Move a file.",
            rename,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/files/permissions",
            "daytona_chmod",
            "Set who may use a file.",
            set_permissions,
        ),
    ]
    .map(Operation::run);
    looks.into_iter().chain(changes).map(|operation| operation.refusing(TOOLBOX)).collect()
}

/// A path, and how deep a listing goes.
#[derive(Debug, Deserialize, JsonSchema)]
struct Listing {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OnePath {
    path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Removal {
    path: String,
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Folder {
    path: String,
    /// In octal digits.
    mode: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Pair {
    source: String,
    destination: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Rights {
    path: String,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    group: Option<String>,
}

fn shown(passwd: &Passwd, path: &str, info: &FileInfo) -> Value {
    let modified = format(u64::try_from(info.modified_ms).unwrap_or(0));
    json!({
        "name": path.rsplit('/').next().unwrap_or_default(),
        "path": path,
        "isDir": info.kind == FileKind::Directory,
        "size": info.bytes,
        "modTime": modified,
        "modifiedAt": modified,
        "mode": permissions(info.kind, info.permissions),
        "permissions": format!("{:04o}", info.permissions),
        "owner": passwd.name_of(info.uid),
        "group": passwd.name_of(info.gid),
    })
}

async fn list(call: Call, Query(ask): Query<Listing>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let top = path(&call, &inside, &ask.path).await?;
    let depth = ask.depth.unwrap_or(DEPTH_DEFAULT);
    if depth == 0 {
        return Err(Refusal::invalid("depth must be at least 1"));
    }
    let passwd = Passwd::read(&inside.guest).await?;
    let mut entries = Vec::new();
    let mut waiting = vec![(top.clone(), depth)];
    while let Some((directory, depth)) = waiting.pop() {
        let found = match inside.guest.list(directory.clone()).await {
            Ok(found) => found,
            // One further down may be gone by now.
            Err(_) if directory != top => continue,
            Err(error) => return Err(refused(error)),
        };
        for info in found {
            if entries.len() >= ENTRIES_MAX {
                let message = format!("there are more than {ENTRIES_MAX} entries; list less deep");
                return Err(Refusal::new(Code::LimitReached, message));
            }
            let path = format!("{}/{}", directory.trim_end_matches('/'), info.name);
            call.memory.grow(10 * VALUE_BYTES + 4 * path.len())?;
            entries.push(shown(&passwd, &path, &info));
            if info.kind == FileKind::Directory && depth > 1 {
                waiting.push((path, depth - 1));
            }
        }
    }
    Ok(Raw(json_response(StatusCode::OK, &entries)))
}

async fn info(call: Call, Query(ask): Query<OnePath>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let path = path(&call, &inside, &ask.path).await?;
    let info = inside.guest.stat(path.as_str(), true).await.map_err(refused)?;
    let passwd = Passwd::read(&inside.guest).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown(&passwd, &path, &info))))
}

async fn remove(call: Call, Query(ask): Query<Removal>, _: Nothing) -> Result<Done, Refusal> {
    let inside = seat::inside(&call).await?;
    let path = path(&call, &inside, &ask.path).await?;
    let info = inside.guest.stat(path.as_str(), false).await.map_err(refused)?;
    if info.kind == FileKind::Directory && !ask.recursive {
        let refusal = Refusal::invalid(format!("{path:?} is a directory; say recursive"));
        return Err(coded(refusal, "INVALID_FILE_PATH"));
    }
    let ask = Remove { path: path.into(), recursive: ask.recursive };
    inside.guest.remove(ask).await.map_err(refused)?;
    Ok(Done)
}

/// Permissions as people write them.
fn octal(text: &str) -> Result<u32, Refusal> {
    /// With setuid, setgid and sticky.
    const MODE_MAX: u32 = 0o7777;
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= MODE_MAX);
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    mode.filter(|_| is_plain)
        .ok_or_else(|| Refusal::invalid(format!("mode: {text:?} is not octal digits, as in 0755")))
}

async fn make(call: Call, Query(ask): Query<Folder>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let path = path(&call, &inside, &ask.path).await?;
    let permissions = Some(octal(&ask.mode)?);
    let ask = MakeDirectory { path: path.into(), permissions, parents: true };
    inside.guest.make_directory(ask).await.map_err(refused)?;
    Ok(Raw(json_response(StatusCode::CREATED, &Value::Null)))
}

async fn rename(call: Call, Query(ask): Query<Pair>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let mut paths = Paths::default();
    let from = paths.find(&call, &inside, &ask.source).await?;
    let to = paths.find(&call, &inside, &ask.destination).await?;
    let ask = Move { from: from.into(), to: to.into(), replace: true };
    inside.guest.rename(ask).await.map_err(refused)?;
    Ok(Raw(json_response(StatusCode::OK, &Value::Null)))
}

/// The programs of the sandbox do it, which know its accounts.
async fn set_permissions(
    call: Call,
    Query(ask): Query<Rights>,
    _: Nothing,
) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let path = path(&call, &inside, &ask.path).await?;
    inside.guest.stat(path.as_str(), true).await.map_err(refused)?;
    let is_name = |name: &str| !name.is_empty() && !name.contains([':', '\0']);
    let names = [&ask.owner, &ask.group].into_iter().flatten();
    if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
        return Err(Refusal::invalid(format!("{name:?} is no name of an account")));
    }
    let mut commands = Vec::new();
    let owner = match (&ask.owner, &ask.group) {
        (None, None) => None,
        (owner, None) => owner.clone(),
        (owner, Some(group)) => Some(format!("{}:{group}", owner.as_deref().unwrap_or_default())),
    };
    commands.extend(owner.map(|owner| ["chown".to_owned(), "--".to_owned(), owner, path.clone()]));
    if let Some(mode) = &ask.mode {
        let mode = format!("{:04o}", octal(mode)?);
        commands.push(["chmod".to_owned(), "--".to_owned(), mode, path]);
    }
    if commands.is_empty() {
        return Err(Refusal::invalid("name a mode, an owner or a group"));
    }
    for words in commands {
        let asked = Asked { limit: Some(PLACES_MAX), ..Asked::of(Program::argv(words)) };
        let ran = run_to_end(&call, &inside, asked, OUTPUT_BYTES_MAX).await?;
        if !ran.ended.is_success() {
            let said = ran.outputs.stderr.into_text();
            return Err(Refusal::new(Code::Io, said.trim().to_owned()));
        }
    }
    Ok(Raw(json_response(StatusCode::OK, &Value::Null)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal_digits() {
        assert_eq!(octal("755"), Ok(0o755));
        assert_eq!(octal("0644"), Ok(0o644));
        for broken in ["", "888", "+755", "u+x", "77777"] {
            assert!(octal(broken).is_err(), "{broken}");
        }
    }
}
