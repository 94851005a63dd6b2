//! A session over a WebSocket: its output goes out, input comes in, and neither waits for the
//! other. A browser terminal needs nothing else.

mod seat;

use hyper::Method;
use protocol::SessionId;
use protocol::requests::{Program, Stdio};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::seat::Seat;
use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query};
use super::super::websocket::{self, WebSocketResponse};
use super::exec::program::{Bounds, Described};
use super::exec::{ChannelName, OnDisconnect};
use super::sessions::{Size, start_recorded};
use super::value::Content;
use crate::forms::exit::Exit;
use crate::forms::problem::Problem;
use crate::sessions::find;
use agent_client::program::{Leash, OnDrop, draw_session};
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::{Code, Refusal};

/// The terminal of a client that does not say how large its own is.
const SIZE_DEFAULT: Size = Size { rows: 24, columns: 80 };

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/attach",
            "attach_session",
            "Attach to a session over a WebSocket.",
            attach,
        )
        .about(ABOUT)
        .run()
        .problems(&[Code::RangeNotSatisfiable]),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/shell",
            "shell_socket",
            "Start a shell on a terminal and attach to it over a WebSocket.",
            shell,
        )
        .about(ABOUT_SHELL)
        .run()
        .problems(&[Code::SpawnFailed, Code::Unsupported, Code::Io, Code::LimitReached]),
    ]
    .map(|operation| operation.tag("sessions"))
    .to_vec()
}

const ABOUT: &str = "Binary messages carry the bytes of the terminal, both ways. Text messages are \
JSON. The client may send `{\"type\":\"resize\",\"rows\":24,\"columns\":80}`, \
`{\"type\":\"signal\",\"signal\":\"INT\"}`, `{\"type\":\"stdin\",\"text\":\"…\"}`, \
`{\"type\":\"eof\"}` and `{\"type\":\"take\"}`, which takes the keyboard. The server sends \
`attached` first, `gap` for bytes that no longer exist, `keyboard` when the client gains or loses \
the keyboard, `refused` for a request that was not carried out, and `exited` or `over` at the end; \
then it closes with 1000. The output of a session without a terminal comes as `output`. With \
`plain=true` there is no JSON: everything that the client sends is typed, and the server sends \
only bytes, as the attach addon of xterm.js expects. What the program asked its terminal before \
the client came (where the cursor is, which colours it has) is replaced by as many NULs, which \
terminals ignore, and so is what it asks later unless the client has the keyboard: a terminal \
answers by typing, and one at most may. Disconnecting does not end the session; a client that \
reconnects with `from` misses nothing.";

const ABOUT_SHELL: &str = "Starts a login shell, or `argv`, from one URL for a browser terminal. \
The messages are those of `attach`. When the client disconnects, everything that was started is \
killed, unless `on_disconnect` is `detach`: then it keeps running as the session that `attached` \
names.";

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachQuery {
    /// The first byte to send; by default the last screens are sent.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub from: Option<u64>,
    /// Take the keyboard from the client that holds it.
    #[serde(default)]
    pub take: bool,
    /// Attach read-only.
    #[serde(default)]
    pub read_only: bool,
    /// The size of the client's terminal.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 65535))]
    pub rows: Option<u16>,
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 65535))]
    pub columns: Option<u16>,
    /// Send only bytes, without JSON messages.
    #[serde(default)]
    pub plain: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShellQuery {
    /// The size of the client's terminal: 24 rows of 80 columns by default.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 65535))]
    pub rows: Option<u16>,
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 65535))]
    pub columns: Option<u16>,
    /// A program and its arguments instead of a login shell.
    #[serde(default)]
    pub argv: Vec<String>,
    #[serde(default)]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// `name`, `name:group`, `uid` or `uid:gid`.
    #[serde(default)]
    #[schemars(with = "String")]
    pub user: Option<String>,
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Send only bytes, without JSON messages.
    #[serde(default)]
    pub plain: bool,
}

/// The server's messages about a session, besides its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AttachEvent {
    /// The first message.
    Attached {
        session: String,
        terminal: bool,
        /// The offset in the output of the first byte that follows; without a terminal, in stdout.
        offset: u64,
        /// Whether what the client types goes to the program.
        keyboard: bool,
    },
    /// Bytes of a session without a terminal.
    Output {
        channel: ChannelName,
        offset: u64,
        #[serde(flatten)]
        content: Content,
    },
    /// Bytes that no longer exist.
    Gap { channel: ChannelName, from: u64, to: u64 },
    /// Whether what the client types goes to the program.
    Keyboard { held: bool },
    /// A request of the client was not carried out.
    Refused { problem: Problem },
    /// The program ended.
    Exited { exit: Exit },
    /// The sandbox ended, and the session with it.
    Over {
        /// What its record says of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        sandbox: Option<String>,
    },
}

async fn attach(
    mut call: Call,
    Query(query): Query<AttachQuery>,
    _: Nothing,
) -> Result<WebSocketResponse, Refusal> {
    let found = find(&call, &call.which()?, &call.session()?).await?;
    let size = match (query.rows, query.columns) {
        (None, None) => None,
        (rows, columns) => Some(Size {
            rows: rows.unwrap_or(SIZE_DEFAULT.rows),
            columns: columns.unwrap_or(SIZE_DEFAULT.columns),
        }),
    };
    let size = size.map(Size::checked).transpose()?;
    let mut seat = Seat::take(&call, found, query.from).await?;
    if !query.read_only {
        seat.sit_down(query.take, size).await?;
    }
    sit(&mut call, seat, query.plain)
}

async fn shell(
    mut call: Call,
    Query(query): Query<ShellQuery>,
    _: Nothing,
) -> Result<WebSocketResponse, Refusal> {
    if !websocket::is_wanted(&call.headers) {
        return Err(Refusal::invalid("this call is a WebSocket: send Upgrade: websocket"));
    }
    let inside = call.inside().await?;
    let size = Size {
        rows: query.rows.unwrap_or(SIZE_DEFAULT.rows),
        columns: query.columns.unwrap_or(SIZE_DEFAULT.columns),
    };
    let program = match query.argv {
        argv if argv.is_empty() => Program::LoginShell {},
        argv => Program::argv(argv),
    };
    let described = Described {
        program,
        cwd: query.cwd,
        env: std::collections::BTreeMap::new(),
        user: query.user,
        timeout_ms: None,
        bounds: Bounds::default(),
    };
    let session: SessionId = draw_session()?;
    let stdio = Stdio::Pty { size: size.checked()? };
    let workdir = inside.workdir.as_deref();
    let mut start = described.beginning_in(workdir).start(session.clone(), stdio)?;
    start.holders = vec![RECORDED_HOLDER.to_owned()];
    start.tied = query.on_disconnect == OnDisconnect::Cancel;
    // The name is ours alone, so a client that leaves before it has begun ends it too.
    let on_drop = match query.on_disconnect {
        OnDisconnect::Cancel => OnDrop::KillRecorded,
        OnDisconnect::Detach => OnDrop::Leave,
    };
    let leash = Leash::new(inside.guest.clone(), session.clone(), on_drop);
    start_recorded(&inside, &start).await?;
    let found = find(&call, &inside.which, &session).await?;
    let mut seat = Seat::take(&call, found, Some(0)).await?;
    seat.sit_down(false, None).await?;
    seat.hold(leash);
    sit(&mut call, seat, query.plain)
}

fn sit(call: &mut Call, seat: Seat, plain: bool) -> Result<WebSocketResponse, Refusal> {
    let attend = move |socket| seat.attend(socket, plain);
    Ok(WebSocketResponse(websocket::accept(call, attend)?))
}
