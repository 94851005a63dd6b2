//! Apps of an earlier bridge: those that had answered continue at their ports; half-started ones
//! are removed.

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::keeper::Keeper;
use super::limits::ADOPT_TIME_MAX;
use super::note::{self, Note};
use super::{Apps, State};
use sandbox::{Record, Registry};

/// Takes up all that there are, and waits until they are found.
pub async fn adopt(apps: &Apps, registry: &Registry) {
    let mut found = JoinSet::new();
    for record in registry.list(None) {
        let Ok(state) = registry.state_directory(&record.which()) else { continue };
        for note in Note::read_all(&state) {
            if record.state.is_over() {
                note::forget(&state, &note.session);
            } else if let Some(seen) = take_up(apps, registry, &record, note) {
                found.spawn(seen);
            }
        }
    }
    while found.join_next().await.is_some() {}
}

/// Starts the keeper of one; the result resolves when its state is known.
fn take_up(
    apps: &Apps,
    registry: &Registry,
    record: &Record,
    note: Note,
) -> Option<impl Future<Output = ()> + use<>> {
    // One that does not answer now may do so for the bridge after us: its note stays.
    let guest = registry.guest(&record.which()).ok()?;
    let seat = apps.0.table.sit_again(record, &note)?;
    let mut shown = seat.shown.subscribe();
    let keeper = Keeper::new(apps.clone(), registry.clone(), record.clone(), guest, seat).ok()?;
    tokio::spawn(keeper.take_up(note));
    Some(async move {
        // An end of it is an answer too.
        let _ = timeout(ADOPT_TIME_MAX, shown.wait_for(|app| app.state != State::Starting)).await;
    })
}
