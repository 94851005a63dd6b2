//! Input of a session: bytes at a place that the client names, so that none is typed twice when an
//! answer was lost.

use std::time::Duration;

use protocol::FaultCode;
use protocol::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::find::{Session, find};
use crate::call::Call;
use crate::problem::{Code, Problem};
use crate::shape::{Query, Reply};
use crate::v1::exec::program::check_range;
use agent_client::guest::{Guest, Writer};

pub const ABOUT: &str = "The body is the raw input; an empty body asks for the current input \
offset. With `offset`, the input is taken only if it continues at that offset: a client that does \
not know whether its last call arrived repeats it, and a `conflict` tells in `details.offset` \
where to continue. Answers when the program has received all of it, or when `timeout_ms` is over; \
then `offset` tells how far it got.";

/// How long a program is given to take input when the call does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const TIMEOUT_MS_MAX: u64 = 3_600_000;
/// How often a program is looked at that has not taken its input yet. Acknowledgements come in
/// batches, so the agent is asked.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputQuery {
    /// The input offset that the client expects.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub offset: Option<u64>,
    /// End the input after the body. On a terminal this is the end-of-file key.
    #[serde(default)]
    pub eof: bool,
    /// Take the keyboard from the client that holds it.
    #[serde(default)]
    pub take: bool,
    /// How long the program may take to receive it; 30 s by default.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = TIMEOUT_MS_MAX))]
    pub timeout_ms: Option<u64>,
}

/// The result of sending input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputTaken {
    /// The input offset now.
    pub offset: u64,
    /// Whether the program has received all of the body.
    pub complete: bool,
}

pub async fn write(
    mut call: Call,
    Query(query): Query<InputQuery>,
) -> Result<Reply<InputTaken>, Problem> {
    check_range("timeout_ms", query.timeout_ms, 1, TIMEOUT_MS_MAX)?;
    let limit = query.timeout_ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis);
    let deadline = Instant::now() + limit;
    let found = find(&call.api, &call.which()?, &call.session()?).await?;
    let (Session::Live(info), Some(inside)) = (&found.session, &found.inside) else {
        let message = format!("session {} has ended", found.session.id());
        return Err(Problem::new(Code::Gone, message));
    };
    let (guest, session) = (&inside.guest, &info.session);
    if let Some(owner) = &info.keyboard
        && !query.take
    {
        return Err(Problem::new(Code::Conflict, format!("the keyboard is held by {owner}"))
            .hint("take it with take=true")
            .details(json!({ "reason": "keyboard_held" })));
    }
    let (writer, opened) = guest.input(session, None, query.take).await?;
    if let Some(offset) = query.offset
        && offset != opened.at
    {
        let at = opened.at;
        return Err(Problem::new(
            Code::Conflict,
            format!("the input is at offset {at}, not at {offset}"),
        )
        .details(json!({ "reason": "offset", "offset": at })));
    }
    let writing = bring(&mut call, guest, session, writer, query.eof);
    match timeout_at(deadline, writing).await {
        Ok(Ok(Some(offset))) => Ok(Reply(InputTaken { offset, complete: true })),
        Ok(Err(problem)) => Err(problem),
        Ok(Ok(None)) | Err(_) => {
            // What was not taken was given up with the writer, so where it stands is final.
            let (_, opened) = guest.input(session, None, false).await?;
            Ok(Reply(InputTaken { offset: opened.at, complete: false }))
        }
    }
}

/// Writes the body and returns where the input stands then.
async fn bring(
    call: &mut Call,
    guest: &Guest,
    session: &SessionId,
    mut writer: Writer,
    ends: bool,
) -> Result<Option<u64>, Problem> {
    while let Some(bytes) = call.body.chunk().await? {
        writer.write(&bytes).await?;
    }
    if ends {
        return Ok(Some(writer.finish().await?));
    }
    let Some(end) = writer.offset() else { return Ok(None) };
    loop {
        match guest.input(session, Some(end), false).await {
            Ok(_) => return Ok(Some(end)),
            Err(error) if error.fault_code() == Some(FaultCode::Conflict) => {
                sleep(LOOK_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
