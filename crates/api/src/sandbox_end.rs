//! What has become of a sandbox that a call does not reach. Of one whose agent is gone callers see only that the link
//! is closed; a moment later its record says how it ended. Of one that is elsewhere the fleet knows the node.

use serde_json::json;
use tokio::time::timeout;

use super::Api;
use super::limits::END_KNOWN_MAX;
use sandbox::refusal::{Code, Hint, Refusal};
use sandbox::{SandboxRef, State, Until};

impl Api {
    /// The state of a sandbox that has ended, or whose agent no longer answers; `None` if it goes on.
    pub(super) async fn end_of(&self, which: &SandboxRef) -> Option<State> {
        let _ = timeout(END_KNOWN_MAX, self.registry().wait(which, Until::Stopped)).await;
        let state = self.registry().get(which).ok()?.state;
        matches!(state, State::Stopped { .. } | State::Lost { .. }).then_some(state)
    }

    /// A problem with a sandbox's agent as its record explains it. Others stay as they are.
    pub(super) async fn explained(&self, which: &SandboxRef, problem: Refusal) -> Refusal {
        if problem.hint.as_deref() == Some(&Hint::ListSandboxes) {
            return self.located(which, problem).await;
        }
        if problem.code != Code::GuestUnreachable {
            return problem;
        }
        let Some(state) = self.end_of(which).await else { return problem };
        let details = json!({ "reason": "sandbox_ended", "state": state.name() });
        let message = format!("the sandbox {which} is {state}");
        Refusal { message, ..problem }.details(details)
    }

    /// That there is no such sandbox here, with the node of the fleet that has it. Doors that send calls on do not get
    /// that far.
    async fn located(&self, which: &SandboxRef, problem: Refusal) -> Refusal {
        let Some(node) = self.node() else { return problem };
        let Some(to) = node.elsewhere(which).await else { return problem };
        let message = format!("the sandbox {which} is at the node {}, not here", to.node);
        Refusal { message, ..problem }
            .hint(format!("call the bridge of that node, at {}", to.address))
    }
}
