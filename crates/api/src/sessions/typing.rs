//! Input of a session: written, and waited for until the program's input has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use protocol::{AgentId, FaultCode, SessionId};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout_at};

use crate::limits::{INPUT_PAUSE, TYPED_MAX};
use agent_client::guest::{Guest, GuestError, Writer};
use sandbox::refusal::{Code, Refusal};

/// How often a program is looked at that has not taken its input yet. Acknowledgements come in
/// batches, so the agent is asked.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Waits until all that was written has been taken, or ends the input behind it. Returns the offset of the
/// input then.
pub async fn taken(
    guest: &Guest,
    session: &SessionId,
    writer: &mut Writer,
    ends: bool,
) -> Result<u64, GuestError> {
    let end = writer.offset().expect("the answer to the opening has where it begins");
    if ends {
        writer.close();
        return writer.done().await;
    }
    loop {
        match guest.input(session, Some(end), false).await {
            Ok(_) => return Ok(end),
            Err(error) if error.fault_code() == Some(FaultCode::Conflict) => {
                sleep(LOOK_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whose turn it is to type into each session. All who come through this server are one client to the agent,
/// which would give each of them the keyboard of the other, and drop what that one has written.
#[derive(Default)]
pub struct Typists(Mutex<Turns>);

/// The turns of the sessions that somebody types into.
type Turns = HashMap<(AgentId, SessionId), Weak<Turn<()>>>;

impl Typists {
    async fn turn(&self, guest: &Guest, session: &SessionId) -> OwnedMutexGuard<()> {
        self.of(guest.agent_id(), session).lock_owned().await
    }

    fn of(&self, agent: AgentId, session: &SessionId) -> Arc<Turn<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody types into these any more.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let place = (agent, session.clone());
        if let Some(known) = turns.get(&place).and_then(Weak::upgrade) {
            return known;
        }
        let turn = Arc::new(Turn::new(()));
        turns.insert(place, Arc::downgrade(&turn));
        turn
    }
}

/// Writes bytes, or ends the input behind them, and waits until the program's input has them.
pub async fn write(
    typists: &Typists,
    guest: &Guest,
    session: &SessionId,
    bytes: &[u8],
    ends: bool,
) -> Result<(), Refusal> {
    let deadline = Instant::now() + TYPED_MAX;
    let typing = async {
        let _turn = typists.turn(guest, session).await;
        let mut writer = writer(guest, session).await?;
        writer.write(bytes).await?;
        match taken(guest, session, &mut writer, ends).await {
            // It has ended meanwhile, and is in the log.
            Err(error) if is_over(&error) => Ok(()),
            taken => taken.map(drop).map_err(Refusal::from),
        }
    };
    timeout_at(deadline, typing).await.unwrap_or_else(|_| {
        Err(Refusal::new(Code::DeadlineExceeded, "the process does not read its input"))
    })
}

fn is_over(error: &GuestError) -> bool {
    matches!(error.fault_code(), Some(FaultCode::NotFound | FaultCode::Gone))
}

/// The keyboard, as soon as another writer has finished.
async fn writer(guest: &Guest, session: &SessionId) -> Result<Writer, Refusal> {
    loop {
        match guest.input(session, None, false).await {
            Ok((writer, _)) => return Ok(writer),
            Err(error) if error.fault_code() == Some(FaultCode::Conflict) => {
                sleep(INPUT_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_types_into_a_session_at_a_time_and_what_nobody_types_into_is_forgotten() {
        let typists = Typists::default();
        let (agent, other) = (AgentId([1; 16]), AgentId([2; 16]));
        let session: SessionId = "a".parse().unwrap();
        let first = typists.of(agent, &session).lock_owned().await;
        assert!(typists.of(agent, &session).try_lock().is_err());
        assert!(typists.of(other, &session).try_lock().is_ok());
        drop(first);
        assert!(typists.of(agent, &session).try_lock().is_ok());
        let _only = typists.of(other, &session);
        assert_eq!(typists.0.lock().unwrap().len(), 1);
    }
}
