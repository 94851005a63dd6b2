//! Who records what is typed: what is written to the inputs of sessions, for all who use this client.
//!
//! The owner of a sandbox sets it once, before anybody uses the guest. Without a rule nothing is recorded.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use host::instant::now_ms;
use protocol::SessionId;

use super::GuestError;

/// Takes what was written to the input of a session, and when. It must not wait for anybody.
type Record = Box<dyn Fn(&SessionId, u64, &[u8]) + Send + Sync>;

/// See the module's description.
pub enum InputRule {
    /// Everything that is typed goes there.
    Recorded(Record),
    /// It is recorded where the sandbox is, past which this client writes. So it types nothing.
    ElsewhereRecorded,
}

const UNRECORDED: &str = "what is typed into this sandbox is recorded, and this way to its agent passes no recorder: type at \
    the node that has the sandbox, or use the HTTP API";

/// A place for a rule. Clones share it.
#[derive(Clone, Default)]
pub struct InputRules(Arc<OnceLock<InputRule>>);

impl InputRules {
    /// Sets the rule. Only the first one counts.
    pub fn set(&self, rule: InputRule) {
        let _ = self.0.set(rule);
    }

    /// Who records the input of a session, which is about to be opened.
    pub(super) fn open(&self, session: &SessionId) -> Result<Option<TypedInput>, GuestError> {
        match self.0.get() {
            None => Ok(None),
            Some(InputRule::ElsewhereRecorded) => Err(GuestError::NotRecorded(UNRECORDED)),
            Some(InputRule::Recorded(_)) => {
                Ok(Some(TypedInput { session: session.clone(), rules: self.clone() }))
            }
        }
    }
}

impl fmt::Debug for InputRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InputRules").field(&self.0.get().is_some()).finish()
    }
}

/// The input of one session, which is recorded.
#[derive(Clone, Debug)]
pub(super) struct TypedInput {
    session: SessionId,
    rules: InputRules,
}

impl TypedInput {
    /// Writes, and records as much as was written, with the time before it: an echo is later.
    pub fn record<E>(
        &self,
        bytes: &[u8],
        write: impl FnOnce() -> Poll<Result<usize, E>>,
    ) -> Poll<Result<usize, E>> {
        let at_ms = now_ms();
        let written = write();
        if let (Poll::Ready(Ok(count @ 1..)), Some(InputRule::Recorded(record))) =
            (&written, self.rules.0.get())
        {
            record(&self.session, at_ms, &bytes[..*count]);
        }
        written
    }
}
