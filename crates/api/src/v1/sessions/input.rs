//! Input of a session at an offset that the client names, so that a repeated request types nothing
//! twice.

use std::time::Duration;

use protocol::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::call::Call;
use crate::forms::ranges::check_range;
use crate::sessions::typing::taken;
use crate::sessions::{Session, find};
use crate::shape::{Query, Reply};
use agent_client::guest::{Guest, Writer};
use sandbox::refusal::{Code, Refusal};

pub const ABOUT: &str = "The body is the raw input; an empty body asks for the current input \
offset. With `offset`, the input is taken only if it continues at that offset: a client that does \
not know whether its last call arrived repeats it, and a `conflict` tells in `details.offset` \
where to continue. Answers when the program has received all of it, even if it ends with that, or when \
`timeout_ms` is over; then `offset` tells how far it got. If the program ends before, the answer is \
`gone`, with the offset in `details.offset`.";

/// How long a program is given to take input when the call does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const TIMEOUT_MS_MAX: u64 = 3_600_000;

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
) -> Result<Reply<InputTaken>, Refusal> {
    check_range("timeout_ms", query.timeout_ms, 1, TIMEOUT_MS_MAX)?;
    let limit = query.timeout_ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis);
    let deadline = Instant::now() + limit;
    let found = find(&call, &call.which()?, &call.session()?).await?;
    let (Session::Live(info), Some(inside)) = (&found.session, &found.inside) else {
        return Err(ended(found.session.id()));
    };
    let (guest, session) = (&inside.guest, &info.session);
    if let Some(owner) = &info.keyboard
        && !query.take
    {
        return Err(Refusal::new(Code::Conflict, format!("the keyboard is held by {owner}"))
            .hint("take it with take=true")
            .details(json!({ "reason": "keyboard_held" })));
    }
    let opened = guest.input(session, None, query.take).await;
    let (mut writer, opened) = opened.map_err(|error| or_ended(error.into(), session))?;
    if let Some(offset) = query.offset
        && offset != opened.at
    {
        let at = opened.at;
        return Err(Refusal::new(
            Code::Conflict,
            format!("the input is at offset {at}, not at {offset}"),
        )
        .details(json!({ "reason": "offset", "offset": at })));
    }
    let mut end = None;
    let bringing = bring(&mut call, guest, session, &mut writer, (query.eof, &mut end));
    match timeout_at(deadline, bringing).await {
        Ok(Ok(offset)) => Ok(Reply(InputTaken { offset, complete: true })),
        Ok(Err(refusal)) => match writer.taken() {
            // The program has ended with what it was given.
            Some(taken) if is_over(&refusal) && end == Some(taken) => {
                Ok(Reply(InputTaken { offset: taken, complete: true }))
            }
            Some(taken) if is_over(&refusal) => {
                Err(or_ended(refusal, session).details(json!({ "offset": taken })))
            }
            _ => Err(refusal),
        },
        Err(_) => {
            // Bytes that were not taken are given up with the writer, so the offset is final.
            drop(writer);
            let asked = guest.input(session, None, false).await;
            let (_, opened) = asked.map_err(|error| or_ended(error.into(), session))?;
            Ok(Reply(InputTaken { offset: opened.at, complete: false }))
        }
    }
}

/// Writes the body and waits until the program has it. Returns the offset of the input after it, which
/// is in `end` as soon as the body has been read.
async fn bring(
    call: &mut Call,
    guest: &Guest,
    session: &SessionId,
    writer: &mut Writer,
    (ends, end): (bool, &mut Option<u64>),
) -> Result<u64, Refusal> {
    while let Some(bytes) = call.body.chunk().await? {
        writer.write(&bytes).await?;
    }
    *end = writer.offset();
    Ok(taken(guest, session, writer, ends).await?)
}

/// Whether the session takes no more input from this call.
fn is_over(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::Gone | Code::NotFound)
}

/// A session that was there and is not known any more has ended.
fn or_ended(refusal: Refusal, session: &SessionId) -> Refusal {
    if refusal.code == Code::NotFound { ended(session) } else { refusal }
}

fn ended(session: &SessionId) -> Refusal {
    Refusal::new(Code::Gone, format!("session {session} has ended"))
}
