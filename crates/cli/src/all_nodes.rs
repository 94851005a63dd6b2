//! What verbs share that ask all nodes of a fleet.

use super::exit::Exit;
use super::output;
use control::UnansweredNode;

/// Names the nodes that did not answer. That they did not fails the verb: what they have is missing.
pub fn report(what: &str, unanswered: &[UnansweredNode]) -> Exit {
    for UnansweredNode { node, why } in unanswered {
        output::note(&format!("the {what} of the node {node} are missing: {why}"));
    }
    if unanswered.is_empty() { Exit::SUCCESS } else { Exit::FAILED_ITSELF }
}
