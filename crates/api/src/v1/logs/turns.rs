//! Turns of reading logs: few at once for the whole server, short ones, each on a thread that may
//! wait for the disk. Whoever reads more asks for turn after turn, behind all who wait; who is gone
//! meanwhile gets no other.

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::limits::{LOOKED_BYTES_MAX, LOOKED_RECORDS_MAX, TURNS_MAX};
use crate::problem::{Code, Problem};
use sandbox::log::{LogError, ReadBudget};

/// Places for turns. Who is gone while waiting for one costs no turn.
static TURNS: Semaphore = Semaphore::const_new(TURNS_MAX);

/// Does what is done in one turn, with so much room.
pub async fn turn<T: Send + 'static>(
    work: impl FnOnce(&mut ReadBudget) -> Result<T, LogError> + Send + 'static,
) -> Result<T, Problem> {
    let place = TURNS.acquire().await.map_err(|_| broken())?;
    let done = spawn_blocking(move || {
        let _place = place;
        work(&mut ReadBudget { records: LOOKED_RECORDS_MAX, bytes: LOOKED_BYTES_MAX })
    });
    done.await.map_err(|_| broken())?.map_err(|error| unreadable(&error))
}

/// Does turns of `look` until it has come to something.
pub async fn turns<L: Send + 'static, T: Send + 'static>(
    mut look: L,
    step: fn(&mut L, &mut ReadBudget) -> Result<Option<T>, LogError>,
) -> Result<T, Problem> {
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
pub fn broken() -> Problem {
    Problem::new(Code::Unavailable, "the server is stopping and cannot continue this answer")
}

fn unreadable(error: &LogError) -> Problem {
    Problem::new(Code::Internal, error.to_string())
}
