//! Input of a session: written, and waited for until the program's input has it.

use std::time::Duration;

use protocol::{FaultCode, SessionId};
use tokio::time::sleep;

use agent_client::guest::{Guest, GuestError, Writer};

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
