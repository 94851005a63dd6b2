//! Sessions of commands. Each command is a session of the agent with recorded output, so that its log is read
//! from the beginning, by many, at their own pace; what a Daytona session keeps between its commands, the
//! directory and the variables, is in a file of the sandbox.
//!
//! ```text
//!  /tmp/.daytona/SESSION/          made by create_session, removed by delete_session
//!     state, cwd                   what the last command has left
//!     COMMAND                      the text of a command; its program is the session SESSION.COMMAND
//! ```

mod logs;
mod place;
mod shell;

use std::time::Duration;

use hyper::{Method, StatusCode};
use protocol::message::FileKind;
use protocol::requests::{GroupLimits, Program, Remove, Signal, SpoolSpec, Start, Stdio, Target};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::answer::{TOOLBOX, coded, refused};
use super::limits::{COMMAND_BYTES_MAX, STOP_WAIT_MAX};
use super::run::{Asked, run_to_end};
use super::seat;
use crate::body::json_response;
use crate::call::{Call, Inside};
use crate::route::{Operation, operation};
use crate::sessions::find::list as list_sessions;
use crate::sessions::typing::write;
use crate::sessions::{FoundSession, Session, find};
use crate::shape::{Done, Json, Nothing, Raw};
use crate::websocket::is_wanted;
use agent_client::guest::FileTarget;
use host::id::RandomId;
use place::{CommandId, DIRECTORY, SessionPlace};

pub use place::{check_id, is_id};
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::{Code, Refusal};

const SIGKILL: i32 = nix::libc::SIGKILL;
/// How long a program may take to make a directory.
const MAKING_MAX: Duration = Duration::from_secs(30);

pub fn operations() -> Vec<Operation> {
    let all = "/daytona/toolbox/{sandbox}/process/session";
    let one = "/daytona/toolbox/{sandbox}/process/session/{session}";
    let looks = [
        operation(Method::GET, all, "daytona_sessions", "List sessions.", list),
        operation(Method::GET, one, "daytona_session", "One session.", get),
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/process/session/{session}/command/{command}",
            "daytona_command",
            "One command.",
            command,
        ),
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/process/session/{session}/command/{command}/logs",
            "daytona_logs",
            "The output of a command.",
            log,
        ),
    ];
    let changes = [
        operation(Method::POST, all, "daytona_make_session", "Make a session.", create).run(),
        operation(Method::DELETE, one, "daytona_end_session", "End a session.", remove).run(),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/process/session/{session}/exec",
            "daytona_session_exec",
            "Run a command of a session.",
            exec,
        )
        .counted(),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/process/session/{session}/command/{command}/input",
            "daytona_input",
            "Type into a command.",
            input,
        )
        .run(),
    ];
    looks.into_iter().chain(changes).map(|operation| operation.refusing(TOOLBOX)).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MakeSession {
    session_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Exec {
    command: String,
    #[serde(default)]
    run_async: Option<bool>,
    /// Its older name.
    #[serde(default, rename = "async")]
    is_async: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Input {
    data: String,
}

fn missing(what: &str, id: &str) -> Refusal {
    coded(Refusal::not_found(format!("there is no {what} {id:?}")), "PROCESS_NOT_FOUND")
}

/// A session that is there, and the sandbox it is in.
async fn seated(call: &Call) -> Result<(Inside, SessionPlace), Refusal> {
    let inside = seat::inside(call).await?;
    let id: String = call.parameter("session")?;
    let place: SessionPlace = id.parse().map_err(|_| missing("session", &id))?;
    match inside.guest.stat(place.directory(), false).await {
        Ok(info) if info.kind == FileKind::Directory => Ok((inside, place)),
        _ => Err(missing("session", &id)),
    }
}

async fn create(call: Call, _: Nothing, Json(ask): Json<MakeSession>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let place: SessionPlace = ask.session_id.parse()?;
    // A program makes it, so that it belongs to whom the commands run as.
    let words = ["/bin/sh", "-c", shell::MAKE, "sh", DIRECTORY, place.id()];
    let asked = Asked { limit: Some(MAKING_MAX), ..Asked::of(Program::argv(words)) };
    let ran = run_to_end(&call, &inside, asked, COMMAND_BYTES_MAX).await?;
    if ran.ended.is_success() {
        return Ok(Raw(json_response(StatusCode::CREATED, &Value::Null)));
    }
    if inside.guest.stat(place.directory(), false).await.is_ok() {
        let message = format!("the session {:?} is there already", place.id());
        return Err(Refusal::new(Code::Conflict, message));
    }
    let said = ran.outputs.stderr.into_text();
    Err(Refusal::new(Code::Io, format!("the session cannot be made: {}", said.trim())))
}

/// The commands of a session, in the order in which they were started, and how those among the sandbox's
/// `sessions` have ended.
async fn commands(
    inside: &Inside,
    place: &SessionPlace,
    sessions: &[Session],
) -> Result<Vec<Value>, Refusal> {
    let mut found = inside.guest.list(place.directory()).await.map_err(refused)?;
    found.sort_by_key(|info| info.modified_ms);
    let mut shown_commands = Vec::new();
    for info in found {
        let Ok(id) = info.name.to_string().parse::<CommandId>() else { continue };
        let name = place.session(&id);
        let session = sessions.iter().find(|session| *session.id() == name);
        shown_commands.push(shown(inside, place, &id, session).await?);
    }
    Ok(shown_commands)
}

async fn shown(
    inside: &Inside,
    place: &SessionPlace,
    id: &CommandId,
    session: Option<&Session>,
) -> Result<Value, Refusal> {
    let opened = inside.guest.read_file(place.command(id), 0, None).await;
    let text = match opened {
        Ok((output, _, _)) => output.whole(COMMAND_BYTES_MAX).await?.unwrap_or_default(),
        Err(_) => return Err(missing("command", id.as_str())),
    };
    let mut shown = json!({ "id": id.as_str(), "command": String::from_utf8_lossy(&text) });
    if let Some(exit) = session.and_then(Session::exit) {
        shown["exitCode"] = exit.cause.shell_code().into();
    }
    Ok(shown)
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    // Before the first session there is no directory of them.
    let found = inside.guest.list(DIRECTORY).await.unwrap_or_default();
    let known = list_sessions(&call.api, &inside.which, true).await?;
    let mut sessions = Vec::new();
    for info in found {
        let Ok(place) = info.name.to_string().parse::<SessionPlace>() else { continue };
        let commands = commands(&inside, &place, &known).await.unwrap_or_default();
        sessions.push(json!({ "sessionId": place.id(), "commands": commands }));
    }
    Ok(Raw(json_response(StatusCode::OK, &sessions)))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (inside, place) = seated(&call).await?;
    let known = list_sessions(&call.api, &inside.which, true).await?;
    let commands = commands(&inside, &place, &known).await?;
    let answer = json!({ "sessionId": place.id(), "commands": commands });
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

/// The command that the path names.
async fn named(call: &Call) -> Result<(Inside, SessionPlace, CommandId, FoundSession), Refusal> {
    let (inside, place) = seated(call).await?;
    let text: String = call.parameter("command")?;
    let id: CommandId = text.parse().map_err(|_| missing("command", &text))?;
    let found = find(call, &inside.which, &place.session(&id)).await;
    let found = found.map_err(|refusal| match refusal.code {
        Code::NotFound => missing("command", &text),
        _ => refusal,
    })?;
    Ok((inside, place, id, found))
}

async fn command(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (inside, place, id, found) = named(&call).await?;
    let shown = shown(&inside, &place, &id, Some(&found.session)).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown)))
}

async fn exec(call: Call, _: Nothing, Json(ask): Json<Exec>) -> Result<Raw, Refusal> {
    let (inside, place) = seated(&call).await?;
    if ask.command.len() > COMMAND_BYTES_MAX {
        let message =
            format!("a command has at most {COMMAND_BYTES_MAX} bytes; write it to a file");
        return Err(Refusal::new(Code::TooLarge, message));
    }
    let is_async = ask.run_async.or(ask.is_async).unwrap_or(false);
    let drawn = RandomId::draw().map_err(|error| Refusal::of(Code::Internal, &error))?;
    let id = CommandId::of(&drawn);
    let mut upload =
        inside.guest.write_file(FileTarget::replace(place.command(&id))).map_err(refused)?;
    upload.write(ask.command.as_bytes()).await.map_err(refused)?;
    upload.finish().await.map_err(refused)?;
    start(&call, &inside, &place, &id, (ask.command, is_async)).await?;
    if is_async {
        let answer = json!({ "cmdId": id.as_str() });
        return Ok(Raw(json_response(StatusCode::ACCEPTED, &answer)));
    }
    let found = find(&call, &inside.which, &place.session(&id)).await?;
    let logs = logs::gather(&call, found, true).await?;
    let mut answer = logs.shown();
    answer["cmdId"] = id.as_str().into();
    answer["exitCode"] = logs.exit_code().into();
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

/// Starts the program of a command. It is not cancelled half-way.
async fn start(
    call: &Call,
    inside: &Inside,
    place: &SessionPlace,
    id: &CommandId,
    (command, takes_input): (String, bool),
) -> Result<(), Refusal> {
    let bash = super::process::shell(inside).await;
    let (program, script) = match bash {
        Some(bash) => (bash, shell::bash(&place.directory())),
        None => ("/bin/sh", shell::sh(&place.directory())),
    };
    let start = Start {
        session: place.session(id),
        program: Program::argv([program, "-c", &script, "daytona", &command]),
        cwd: inside.workdir.as_deref().map(Into::into),
        env: Vec::new(),
        user: None,
        // Nobody types into a command that is waited for.
        stdio: Stdio::Pipes { stdin: takes_input },
        deadline_ms: None,
        spool: SpoolSpec::default(),
        holders: vec![RECORDED_HOLDER.to_owned()],
        tied: false,
        limits: GroupLimits::default(),
    };
    call.trail.program(&Program::script(command));
    let guest = inside.guest.clone();
    let starting = tokio::spawn(async move { guest.start(&start).await });
    let joined = starting.await;
    joined.map_err(|error| Refusal::new(Code::Internal, error.to_string()))??;
    Ok(())
}

async fn log(mut call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (_, _, _, found) = named(&call).await?;
    if is_wanted(&call.headers) {
        return logs::follow(&mut call, found).await.map(Raw);
    }
    let logs = logs::gather(&call, found, false).await?;
    Ok(Raw(json_response(StatusCode::OK, &logs.shown())))
}

async fn input(call: Call, _: Nothing, Json(ask): Json<Input>) -> Result<Done, Refusal> {
    let (inside, _, _, found) = named(&call).await?;
    let over = || {
        let refusal = Refusal::new(Code::Gone, "the command has ended, or takes no input");
        coded(refusal, "COMMAND_ALREADY_COMPLETED")
    };
    if found.session.exit().is_some() {
        return Err(over());
    }
    match write(call.api.typists(), &inside.guest, found.session.id(), ask.data.as_bytes(), false)
        .await
    {
        Err(refusal) if matches!(refusal.code, Code::Gone | Code::NotFound | Code::Invalid) => {
            Err(over())
        }
        written => written.map(|()| Done),
    }
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let (inside, place) = seated(&call).await?;
    let sessions = inside.guest.sessions(0).await?.sessions;
    let own = sessions.into_iter().filter(|info| info.exit.is_none() && place.owns(&info.session));
    for info in own {
        let (session, target) = (info.session.clone(), Target::Tree);
        // It may have ended by now.
        let _ = inside.guest.signal(Signal { session, signal: SIGKILL, target }).await;
        let _ = timeout(STOP_WAIT_MAX, inside.guest.wait(&info.session)).await;
    }
    let ask = Remove { path: place.directory().into(), recursive: true };
    inside.guest.remove(ask).await.map_err(refused)?;
    Ok(Done)
}
