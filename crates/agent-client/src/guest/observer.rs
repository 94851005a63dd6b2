//! Who learns of the ends of an agent's programs, beside those who wait for them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use protocol::SessionId;
use protocol::exit::ExitRecord;

/// Called with each end that this client of an agent hears of, several times for one that several wait
/// for. It must not block.
type Observe = Box<dyn Fn(&SessionId, &ExitRecord) + Send + Sync>;

/// One place for an observer. Clones share it.
#[derive(Clone, Default)]
pub struct EndObserver(Arc<OnceLock<Observe>>);

impl EndObserver {
    /// Sets the observer. Only the first one counts.
    pub fn set(&self, observe: Observe) {
        let _ = self.0.set(observe);
    }

    pub(crate) fn tell(&self, session: &SessionId, record: &ExitRecord) {
        if let Some(observe) = self.0.get() {
            observe(session, record);
        }
    }
}

impl fmt::Debug for EndObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndObserver").field(&self.0.get().is_some()).finish()
    }
}
