//! Why git has failed, by its words: Daytona's clients have an exception for each of these. Pure.

use crate::daytona::answer::coded;
use crate::forms::problem::cut;
use sandbox::refusal::{Code, Refusal};

/// Words of git, the code that they mean to Daytona's clients, and ours. The first that fits counts.
const KNOWN: [(&[&str], &str, Code); 9] = [
    (
        &[
            "authentication failed",
            "could not read username",
            "could not read password",
            "terminal prompts disabled",
            "permission denied (publickey",
            "returned error: 401",
            "returned error: 403",
        ],
        "GIT_AUTH_FAILED",
        Code::Unauthenticated,
    ),
    (&["a branch named"], "GIT_BRANCH_EXISTS", Code::Conflict),
    (
        &[
            "did not match any file",
            "remote branch",
            "couldn't find remote ref",
            "not a valid object name",
            "invalid reference",
            "src refspec",
            "branch not found",
            "error: branch '",
        ],
        "GIT_BRANCH_NOT_FOUND",
        Code::NotFound,
    ),
    (&["remote rejected"], "GIT_REMOTE_REJECTED", Code::Invalid),
    (&["non-fast-forward", "[rejected]", "fetch first"], "GIT_PUSH_REJECTED", Code::Conflict),
    (&["would be overwritten"], "GIT_DIRTY_WORKTREE", Code::Conflict),
    (&["conflict (", "automatic merge failed"], "GIT_MERGE_CONFLICT", Code::Conflict),
    (
        &[
            "not a git repository",
            "repository not found",
            "does not appear to be a git repository",
            "does not exist",
            "returned error: 404",
            "cannot change to",
        ],
        "GIT_REPO_NOT_FOUND",
        Code::NotFound,
    ),
    (
        &["could not resolve host", "unable to access", "connection refused", "early eof"],
        "GIT_TRANSPORT_FAILED",
        Code::PortUnreachable,
    ),
];

pub fn refusal(stdout: &str, stderr: &str) -> Refusal {
    // A merge says what is in conflict on its ordinary output.
    let said = format!("{stdout}\n{stderr}").to_lowercase();
    let message = if stderr.trim().is_empty() { stdout } else { stderr };
    let message = cut(message.trim().to_owned());
    let known = KNOWN.iter().find(|(words, ..)| words.iter().any(|word| said.contains(word)));
    match known {
        Some((_, own, code)) => coded(Refusal::new(*code, message), own),
        None => Refusal::invalid(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_has_a_code() {
        for (said, code) in [
            ("fatal: Authentication failed for 'https://h/r'", Code::Unauthenticated),
            ("fatal: not a git repository (or any parent)", Code::NotFound),
            ("fatal: a branch named 'x' already exists", Code::Conflict),
            ("error: pathspec 'x' did not match any file(s) known to git", Code::NotFound),
            (" ! [rejected] main -> main (fetch first)", Code::Conflict),
            (
                "fatal: unable to access 'https://h/': Could not resolve host: h",
                Code::PortUnreachable,
            ),
            ("nothing to commit, working tree clean", Code::Invalid),
        ] {
            assert_eq!(refusal("", said).code, code, "{said}");
        }
        let conflict = refusal("CONFLICT (content): Merge conflict in a", "");
        assert_eq!(conflict.code, Code::Conflict);
    }
}
