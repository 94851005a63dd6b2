//! The exit words of each language: when a person leaves its prompt. Pure.

use agent_client::guest::contexts::language::{CompletenessCheck, Language};
use protocol::repl::RunEnd;

/// The exit code if the person leaves by typing this.
pub(super) fn farewell(language: &Language, code: &str, end: &RunEnd) -> Option<i32> {
    match (language.prompt.judge, end) {
        (CompletenessCheck::Interpreter, RunEnd::Exited { code }) => Some(*code),
        // A shell run's end is the status of its last command, whatever that was.
        (CompletenessCheck::Shell, RunEnd::Exited { code: status }) => {
            is_exit(code).then_some(*status)
        }
        (CompletenessCheck::Shell, RunEnd::Ok {}) => is_exit(code).then_some(0),
        _ => None,
    }
}

/// Whether a line only leaves the shell.
fn is_exit(code: &str) -> bool {
    let mut words = code.split_whitespace();
    let leaves = matches!(words.next(), Some("exit" | "logout"));
    leaves
        && words.next().is_none_or(|status| status.parse::<i32>().is_ok())
        && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_client::guest::contexts::language::{BASH, PYTHON};

    #[test]
    fn an_exit_of_the_code_ends_a_prompt() {
        let exited = RunEnd::Exited { code: 3 };
        assert_eq!(farewell(&PYTHON, "f()", &exited), Some(3));
        assert_eq!(farewell(&PYTHON, "exit", &RunEnd::Ok {}), None);
        assert_eq!(farewell(&PYTHON, "exit()", &RunEnd::Error {}), None);
    }

    #[test]
    fn a_shells_prompt_ends_by_its_exit_alone() {
        let exited = RunEnd::Exited { code: 3 };
        for (code, leaves) in
            [("exit 3", true), (" exit\n", true), ("logout", true), ("false", false)]
        {
            assert_eq!(farewell(&BASH, code, &exited).is_some(), leaves, "{code}");
        }
        assert_eq!(farewell(&BASH, "exit", &RunEnd::Ok {}), Some(0));
        assert_eq!(farewell(&BASH, "exit | cat", &exited), None);
        assert_eq!(farewell(&BASH, "exit x", &exited), None);
    }
}
