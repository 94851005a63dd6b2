//! Hints for clients of JSON-RPC, in terms of its methods.

use sandbox::refusal::Hint;

pub fn words(hint: &Hint) -> Option<String> {
    let words = match hint {
        Hint::ListSandboxes | Hint::ReplaceSandbox => "make it with sandbox.start",
        Hint::OtherSandboxName => "choose another name, or end that sandbox with sandbox.stop",
        Hint::StopSandbox | Hint::RemoveLost => "end it with sandbox.stop",
        Hint::ResumeSandbox => "sandbox.start resumes it",
        _ => return hint.words(),
    };
    Some(words.to_owned())
}
