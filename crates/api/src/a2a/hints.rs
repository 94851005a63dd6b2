//! Hints for clients of these calls, in their terms.

use sandbox::refusal::Hint;

pub fn words(hint: &Hint) -> Option<String> {
    let words = match hint {
        Hint::ListSandboxes => "GET /a2a/v1/sandboxes lists the sandboxes",
        Hint::OtherSandboxName => "choose another name, or DELETE that sandbox first",
        Hint::StopSandbox | Hint::DropNotebooks => "try again; DELETE ends it at once",
        Hint::ReplaceSandbox => "DELETE it, and make it again",
        Hint::RemoveLost => "DELETE it",
        Hint::ResumeSandbox => "`host-bridge resume` resumes it",
        _ => return hint.words(),
    };
    Some(words.to_owned())
}
