//! `filesystem.Filesystem`: directories and what is in them, and watches.

use hyper::Method;
use protocol::message::FileKind;
use protocol::requests::{MakeDirectory, Move, Remove};
use serde::Deserialize;
use serde_json::{Value, json};

use super::account::accounts;
use super::answer::{STREAMING, UNARY};
use super::connect::{Message, done};
use super::entry::{entry_at, memory_bytes, shown};
use super::limits::ENTRIES_MAX;
use super::seat::{self, Seat};
use super::watches;
use crate::budget::Share;
use crate::call::Call;
use crate::entries::Passwd;
use crate::refusal::of_file as refused;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use access::keys::Access;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let post = || Method::POST;
    let (read, run) = (Access::Read, Access::Run);
    let unary = [
        (read, operation(post(), "/.e2b/envd/filesystem.Filesystem/Stat", "e2b_stat", "S", stat)),
        (read, operation(post(), "/.e2b/envd/filesystem.Filesystem/ListDir", "e2b_ls", "L", list)),
        (
            run,
            operation(post(), "/.e2b/envd/filesystem.Filesystem/MakeDir", "e2b_mkdir", "M", make),
        ),
        (run, operation(post(), "/.e2b/envd/filesystem.Filesystem/Move", "e2b_move", "M", rename)),
        (run, operation(post(), "/.e2b/envd/filesystem.Filesystem/Remove", "e2b_rm", "R", remove)),
        (
            read,
            operation(
                post(),
                "/.e2b/envd/filesystem.Filesystem/CreateWatcher",
                "e2b_watch",
                "Begin to watch a directory.",
                watches::create,
            ),
        ),
        (
            read,
            operation(
                post(),
                "/.e2b/envd/filesystem.Filesystem/GetWatcherEvents",
                "e2b_watch_events",
                "What a watch has seen.",
                watches::events,
            ),
        ),
        (
            read,
            operation(
                post(),
                "/.e2b/envd/filesystem.Filesystem/RemoveWatcher",
                "e2b_unwatch",
                "End a watch.",
                watches::remove,
            ),
        ),
    ]
    .map(|(access, operation)| operation.access(Some(access)).refusing(UNARY));
    let watch = operation(
        post(),
        "/.e2b/envd/filesystem.Filesystem/WatchDir",
        "e2b_watch_stream",
        "Follow a watch.",
        watches::follow,
    )
    .access(Some(read))
    .refusing(STREAMING);
    let all = unary.into_iter().chain([watch]);
    all.map(|operation| operation.known_by(seat::known)).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathAsk {
    path: String,
    depth: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MoveAsk {
    source: String,
    destination: String,
}

async fn stat(call: Call, _: Nothing, Message(ask): Message<PathAsk>) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let path = seat.account.path(&ask.path)?;
    answer_entry(&call, &seat, &path).await
}

async fn answer_entry(call: &Call, seat: &Seat, path: &str) -> Result<Raw, Refusal> {
    let passwd = accounts(&call.api, &seat.inside).await?;
    let entry = entry_at(&seat.inside.guest, &passwd, path).await?;
    Ok(done(&json!({ "entry": entry })))
}

async fn list(call: Call, _: Nothing, Message(ask): Message<PathAsk>) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let path = seat.account.path(&ask.path)?;
    let passwd = accounts(&call.api, &seat.inside).await?;
    let mut entries = Vec::new();
    walk(&seat, &passwd, (path, ask.depth.max(1)), &mut entries, &call.memory).await?;
    Ok(done(&json!({ "entries": entries })))
}

/// All entries below a directory, each before what is in it. Links are not followed.
async fn walk(
    seat: &Seat,
    passwd: &Passwd,
    (top, depth): (String, u32),
    entries: &mut Vec<Value>,
    memory: &Share,
) -> Result<(), Refusal> {
    let guest = &seat.inside.guest;
    let found = guest.list(top.clone()).await.map_err(refused)?;
    // What is still to be shown, the next one last.
    let mut waiting: Vec<_> =
        found.into_iter().rev().map(|info| (top.clone(), info, depth)).collect();
    while let Some((above, info, depth)) = waiting.pop() {
        if entries.len() >= ENTRIES_MAX {
            let message = format!("there are more than {ENTRIES_MAX} entries; list less deep");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        let path = format!("{}/{}", above.trim_end_matches('/'), info.name);
        let is_directory = info.kind == FileKind::Directory;
        let entry = shown(guest, passwd, &path, info).await;
        memory.grow(memory_bytes(&entry))?;
        entries.push(entry);
        if is_directory && depth > 1 {
            // It may be gone by now.
            let below = guest.list(path.clone()).await.unwrap_or_default();
            waiting.extend(below.into_iter().rev().map(|info| (path.clone(), info, depth - 1)));
        }
    }
    Ok(())
}

async fn make(call: Call, _: Nothing, Message(ask): Message<PathAsk>) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let path = seat.account.path(&ask.path)?;
    let guest = &seat.inside.guest;
    if let Ok(found) = guest.stat(path.as_str(), true).await {
        return Err(if found.kind == FileKind::Directory {
            Refusal::new(Code::Conflict, format!("the directory {path:?} exists already"))
        } else {
            Refusal::invalid(format!("{path:?} exists and is no directory"))
        });
    }
    make_directories(&seat, &path).await?;
    answer_entry(&call, &seat, &path).await
}

async fn make_directories(seat: &Seat, path: &str) -> Result<(), Refusal> {
    let ask = MakeDirectory { path: path.into(), permissions: None, parents: true };
    seat.inside.guest.make_directory(ask).await.map_err(refused)
}

async fn rename(call: Call, _: Nothing, Message(ask): Message<MoveAsk>) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let from = seat.account.path(&ask.source)?;
    let to = seat.account.path(&ask.destination)?;
    seat.inside.guest.stat(from.as_str(), false).await.map_err(refused)?;
    if let Some((above, _)) = to.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
        make_directories(&seat, above).await?;
    }
    let ask = Move { from: from.as_str().into(), to: to.as_str().into(), replace: true };
    seat.inside.guest.rename(ask).await.map_err(refused)?;
    answer_entry(&call, &seat, &to).await
}

async fn remove(call: Call, _: Nothing, Message(ask): Message<PathAsk>) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let path = seat.account.path(&ask.path)?;
    let ask = Remove { path: path.into(), recursive: true };
    match seat.inside.guest.remove(ask).await.map_err(refused) {
        Err(refusal) if refusal.code == Code::NotFound => {}
        removed => removed?,
    }
    Ok(done(&json!({})))
}
