//! Terminals: a login shell each, as a session of the agent. Several clients may be connected to one, and all
//! may type.
//!
//! A message of text says that a client is connected, and another one how the shell has ended; bytes go both ways
//! in binary messages.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use protocol::SessionId;
use protocol::message::{Channel, SessionInfo};
use protocol::requests::{
    GroupLimits, Program, Resize, Signal, SpoolSpec, Start, Stdio, Target, TerminalSize,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{TOOLBOX, coded};
use super::limits::SCROLL_BACK_BYTES;
use super::seat::{self, path, variables};
use super::sessions::{check_id, is_id};
use crate::Api;
use crate::body::{Gone, Response, json_response};
use crate::call::{Call, Inside};
use crate::forms::exit::met_limit;
use crate::route::{Operation, operation};
use crate::sessions::typing::write;
use crate::sessions::{Feed, FeedEvent, SessionEnd, Start as Begin, find};
use crate::shape::{Json, Nothing, Query, Raw};
use crate::subprotocol::offered;
use crate::websocket::{
    self, CLOSE_NORMAL, ClientMessage, Reader, Socket, Writer, is_wanted, ping_clock,
};
use agent_client::guest::Guest;
use agent_client::queries::QueryFilter;
use host::instant::format;
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::{Code, Refusal};

/// What the names of the sessions of terminals end with.
const SUFFIX: &str = ".pty";
/// The subprotocol of clients that want to hear of the end in a message.
const EXIT_CONTROL: &str = "X-Daytona-Pty-Exit-Control";
/// The variables of a new terminal, as a subprotocol.
const ENVS: &str = "X-Daytona-Pty-Envs~";
const ROWS_DEFAULT: u16 = 24;
const COLUMNS_DEFAULT: u16 = 80;
const SIGKILL: i32 = nix::libc::SIGKILL;

pub fn operations() -> Vec<Operation> {
    let all = "/daytona/toolbox/{sandbox}/process/pty";
    let one = "/daytona/toolbox/{sandbox}/process/pty/{pty}";
    let made = "Make a terminal.";
    let changes = [
        // Before the path of one terminal, which it would be otherwise.
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/process/pty/create-connect",
            "daytona_pty_socket",
            "Make a terminal and connect to it.",
            create_and_connect,
        ),
        operation(Method::POST, all, "daytona_make_pty", made, create),
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/process/pty/{pty}/connect",
            "daytona_pty_connect",
            "Connect to a terminal.",
            connect,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/process/pty/{pty}/resize",
            "daytona_pty_resize",
            "Resize a terminal.",
            resize,
        ),
        operation(Method::DELETE, one, "daytona_end_pty", "End a terminal.", remove),
    ]
    .map(Operation::run);
    let looks = [
        operation(Method::GET, all, "daytona_ptys", "List terminals.", list),
        operation(Method::GET, one, "daytona_pty", "One terminal.", get),
    ];
    changes.into_iter().chain(looks).map(|operation| operation.refusing(TOOLBOX)).collect()
}

/// A terminal to make.
#[derive(Debug, Deserialize, JsonSchema)]
struct Make {
    id: String,
    #[serde(default)]
    cols: Option<u16>,
    #[serde(default)]
    rows: Option<u16>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    envs: Option<BTreeMap<String, String>>,
}

/// The same in a query; the variables come with the greeting.
#[derive(Debug, Deserialize, JsonSchema)]
struct MakeQuery {
    id: String,
    #[serde(default)]
    cols: Option<u16>,
    #[serde(default)]
    rows: Option<u16>,
    #[serde(default)]
    cwd: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Size {
    cols: u16,
    rows: u16,
}

fn size(rows: Option<u16>, columns: Option<u16>) -> TerminalSize {
    let or = |number: Option<u16>, usual| number.filter(|number| *number > 0).unwrap_or(usual);
    TerminalSize { rows: or(rows, ROWS_DEFAULT), columns: or(columns, COLUMNS_DEFAULT) }
}

fn session_of(id: &str) -> SessionId {
    format!("{id}{SUFFIX}").parse().expect("an id and letters behind a dot are a name")
}

/// The id of a session that is a terminal of this door's.
fn id_of(session: &SessionId) -> Option<&str> {
    session.as_str().strip_suffix(SUFFIX).filter(|id| is_id(id))
}

fn missing(id: &str) -> Refusal {
    let refusal = Refusal::not_found(format!("there is no terminal {id:?}"));
    coded(refusal, "PROCESS_NOT_FOUND")
}

fn shown(info: &SessionInfo) -> Value {
    let size = info.size.unwrap_or_else(|| size(None, None));
    json!({
        "id": id_of(&info.session),
        "cols": size.columns,
        "rows": size.rows,
        "cwd": "",
        "envs": {},
        "active": info.exit.is_none(),
        "lazyStart": false,
        "createdAt": format(info.started_at_ms),
    })
}

/// The terminals that run.
async fn running(inside: &Inside) -> Result<Vec<SessionInfo>, Refusal> {
    let sessions = inside.guest.sessions(0).await?.sessions.into_iter();
    let is_ours =
        |info: &SessionInfo| info.exit.is_none() && info.terminal && id_of(&info.session).is_some();
    Ok(sessions.filter(is_ours).collect())
}

/// The terminal that the path names, running.
async fn named(call: &Call) -> Result<(Inside, SessionInfo), Refusal> {
    let inside = seat::inside(call).await?;
    let id: String = call.parameter("pty")?;
    let mut running = running(&inside).await?.into_iter();
    let found = running.find(|info| id_of(&info.session) == Some(id.as_str()));
    let found = found.ok_or_else(|| missing(&id))?;
    Ok((inside, found))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let sessions: Vec<Value> = running(&inside).await?.iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "sessions": sessions }))))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (_, info) = named(&call).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown(&info))))
}

async fn resize(call: Call, _: Nothing, Json(ask): Json<Size>) -> Result<Raw, Refusal> {
    let (inside, info) = named(&call).await?;
    let size = size(Some(ask.rows), Some(ask.cols));
    let session = info.session.clone();
    inside.guest.resize(Resize { session, size, redraw: false }).await?;
    let info = SessionInfo { size: Some(size), ..info };
    Ok(Raw(json_response(StatusCode::OK, &shown(&info))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (inside, info) = named(&call).await?;
    let (session, target) = (info.session, Target::Tree);
    inside.guest.signal(Signal { session, signal: SIGKILL, target }).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "message": "the terminal was ended" }))))
}

async fn create(call: Call, _: Nothing, Json(ask): Json<Make>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    start(&call, &inside, &ask).await?;
    Ok(Raw(json_response(StatusCode::CREATED, &json!({ "sessionId": ask.id }))))
}

async fn create_and_connect(
    mut call: Call,
    Query(query): Query<MakeQuery>,
    _: Nothing,
) -> Result<Raw, Refusal> {
    if !is_wanted(&call.headers) {
        return Err(Refusal::invalid("this call is a WebSocket: send Upgrade: websocket"));
    }
    let MakeQuery { id, cols, rows, cwd } = query;
    let ask = Make { id, cols, rows, cwd, envs: offered_variables(&call.headers)? };
    let inside = seat::inside(&call).await?;
    let session = start(&call, &inside, &ask).await?;
    attend(&mut call, &inside, &session, Begin::Offset(0)).await.map(Raw)
}

async fn connect(mut call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (inside, info) = named(&call).await?;
    attend(&mut call, &inside, &info.session, Begin::Tail(SCROLL_BACK_BYTES)).await.map(Raw)
}

/// The variables that a client sends with its greeting.
fn offered_variables(headers: &HeaderMap) -> Result<Option<BTreeMap<String, String>>, Refusal> {
    let Some(text) = offered(headers).find_map(|one| one.strip_prefix(ENVS)) else {
        return Ok(None);
    };
    let decoded = URL_SAFE_NO_PAD.decode(text).ok();
    let variables = decoded.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let broken = || Refusal::invalid(format!("{ENVS} is followed by no object of JSON in base64"));
    variables.map(Some).ok_or_else(broken)
}

async fn start(call: &Call, inside: &Inside, ask: &Make) -> Result<SessionId, Refusal> {
    check_id(&ask.id)?;
    let session = session_of(&ask.id);
    let taken = || {
        let message = format!("the terminal {:?} is there already", ask.id);
        Refusal::new(Code::Conflict, message)
    };
    if running(inside).await?.iter().any(|info| info.session == session) {
        return Err(taken());
    }
    let cwd = match ask.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => Some(path(call, inside, cwd).await?),
        None => inside.workdir.clone(),
    };
    let mut env = vec![("TERM".into(), "xterm-256color".into())];
    env.extend(variables(ask.envs.clone()));
    let start = Start {
        session: session.clone(),
        program: Program::LoginShell {},
        cwd: cwd.map(Into::into),
        env,
        user: None,
        stdio: Stdio::Pty { size: size(ask.rows, ask.cols) },
        deadline_ms: None,
        spool: SpoolSpec::default(),
        holders: vec![RECORDED_HOLDER.to_owned()],
        tied: false,
        limits: GroupLimits::default(),
    };
    call.trail.program(&start.program);
    let guest = inside.guest.clone();
    // It is not cancelled half-way.
    let joined = tokio::spawn(async move { guest.start(&start).await }).await;
    let started = joined.map_err(|error| Refusal::new(Code::Internal, error.to_string()))??;
    if started.repeated { Err(taken()) } else { Ok(session) }
}

async fn attend(
    call: &mut Call,
    inside: &Inside,
    session: &SessionId,
    begin: Begin,
) -> Result<Response, Refusal> {
    let found = find(call, &inside.which, session).await?;
    let channels = [(Channel::Terminal, begin)];
    let feed = Feed::open(&call.api, found, &channels, true, &call.memory).await?;
    // All of a terminal that was made for this client is new to it.
    let live_from = if begin == Begin::Offset(0) { 0 } else { feed.live_from() };
    let (api, guest, session) = (call.api.clone(), inside.guest.clone(), session.clone());
    websocket::accept_as(call, EXIT_CONTROL, move |socket| async move {
        let Socket { reader, writer } = socket;
        tokio::select! {
            () = listen(reader, api, guest, session) => {}
            _ = speak(feed, live_from, writer) => {}
        }
    })
}

/// Types what the client sends until it is gone.
async fn listen(mut reader: Reader, api: Api, guest: Guest, session: SessionId) {
    while let Some(message) = reader.next().await {
        let bytes = match &message {
            ClientMessage::Binary(bytes) => &bytes[..],
            ClientMessage::Text(text) => text.as_bytes(),
        };
        // What has ended meanwhile takes none, and its end is on the way to the client.
        let _ = write(api.typists(), &guest, &session, bytes, false).await;
    }
}

async fn speak(mut feed: Feed, live_from: u64, mut writer: Writer) -> Result<(), Gone> {
    // What a program asked a terminal before is no question to this one.
    let mut screen = QueryFilter::new(live_from);
    let mut pings = ping_clock();
    writer.tell(&json!({ "type": "control", "status": "connected" })).await?;
    loop {
        let event = tokio::select! {
            event = feed.next() => event,
            _ = pings.tick() => {
                writer.ping().await?;
                continue;
            }
        };
        match event {
            Some(FeedEvent::Output { offset, bytes, .. }) => {
                let shown = screen.show(offset, &bytes, true);
                if !shown.is_empty() {
                    writer.binary(shown.into()).await?;
                }
            }
            Some(FeedEvent::Waiting) => {}
            Some(FeedEvent::Gap { .. }) => {
                let rest = screen.cut();
                if !rest.is_empty() {
                    writer.binary(rest.into()).await?;
                }
            }
            Some(FeedEvent::Ended(SessionEnd::Known(record))) => {
                let mut end = json!({ "exitCode": record.cause.shell_code() });
                if let Some(words) = met_limit(&record.cause) {
                    end["exitReason"] = words.into();
                }
                let mut message = json!({ "type": "control", "status": "exited" });
                if let (Some(message), Value::Object(end)) = (message.as_object_mut(), end.clone())
                {
                    message.extend(end);
                }
                writer.tell(&message).await?;
                writer.close(CLOSE_NORMAL, &end.to_string()).await;
                return Ok(());
            }
            Some(FeedEvent::Ended(SessionEnd::Unknown { .. }) | FeedEvent::Running) | None => {
                let words = "the sandbox has ended, and the terminal with it";
                let message = json!({ "type": "control", "status": "error", "error": words });
                writer.tell(&message).await?;
                writer.close(CLOSE_NORMAL, &json!({ "error": words }).to_string()).await;
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};

    use super::*;

    fn with(text: &'static str) -> HeaderMap {
        [(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(text))].into_iter().collect()
    }

    #[test]
    fn variables_come_as_a_subprotocol() {
        let sent = "X-Daytona-Pty-Exit-Control, X-Daytona-Pty-Envs~eyJBIjoiYiJ9";
        let read = offered_variables(&with(sent)).unwrap().unwrap();
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [("A".to_owned(), "b".to_owned())]);
        assert_eq!(offered_variables(&with("X-Daytona-Pty-Exit-Control")), Ok(None));
        for broken in ["X-Daytona-Pty-Envs~", "X-Daytona-Pty-Envs~!", "X-Daytona-Pty-Envs~W10"] {
            assert!(offered_variables(&with(broken)).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_terminal_is_found_by_its_id_and_no_other_session_is_one() {
        assert_eq!(id_of(&session_of("my-pty_1")), Some("my-pty_1"));
        for other in ["abc", "a.b.pty", "a.0123456789ab"] {
            assert_eq!(id_of(&other.parse().unwrap()), None, "{other}");
        }
    }
}
