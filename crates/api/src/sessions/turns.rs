//! Turns of reading logs: few at once for the whole server, short ones, each on a thread that may
//! wait for the disk. A reader of more asks for turn after turn, behind all who wait; a reader that is gone
//! meanwhile gets no other.

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use sandbox::log::{LogError, ReadBudget};
use sandbox::refusal::{Code, Refusal};

/// Records that any turn looks at, wanted or not: some milliseconds. Who wants little of a long log
/// is to wait for it in many turns, and the others only for one.
const LOOKED_RECORDS_MAX: usize = 4096;
/// Bytes of output that any turn looks at.
const LOOKED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Turns that are on at once, of all readers. They take processors and the disk from everybody else,
/// and hundreds of readers of long logs are to wait for each other rather than to be waited for.
const TURNS_MAX: usize = 2;

/// Places for turns. A caller that leaves while it waits costs no turn.
static TURNS: Semaphore = Semaphore::const_new(TURNS_MAX);

/// Does what is done in one turn, with so much room.
pub async fn turn<T: Send + 'static>(
    work: impl FnOnce(&mut ReadBudget) -> Result<T, LogError> + Send + 'static,
) -> Result<T, Refusal> {
    let place = TURNS.acquire().await.map_err(|_| broken())?;
    let done = spawn_blocking(move || {
        let _place = place;
        work(&mut ReadBudget { records: LOOKED_RECORDS_MAX, bytes: LOOKED_BYTES_MAX })
    });
    done.await.map_err(|_| broken())?.map_err(|error| unreadable(&error))
}

/// Repeats turns of `look` until one has a result.
pub async fn turns<L: Send + 'static, T: Send + 'static>(
    mut look: L,
    step: fn(&mut L, &mut ReadBudget) -> Result<Option<T>, LogError>,
) -> Result<T, Refusal> {
    loop {
        let (back, found) = turn(move |room| {
            let found = step(&mut look, room)?;
            Ok((look, found))
        })
        .await?;
        if let Some(found) = found {
            return Ok(found);
        }
        look = back;
    }
}

/// The task of a turn is no more, which happens when the server ends.
pub fn broken() -> Refusal {
    Refusal::new(Code::Unavailable, "the server is stopping and cannot continue this answer")
}

fn unreadable(error: &LogError) -> Refusal {
    Refusal::new(Code::Internal, error.to_string())
}
