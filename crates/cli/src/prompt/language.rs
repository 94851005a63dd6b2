//! The prompts and exit words of each language. Pure.

use protocol::repl::RunEnd;

/// One row per language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Language {
    /// The name of the language as it is usually written.
    pub title: &'static str,
    pub first: &'static str,
    /// The prompt before further lines of an input.
    pub more: &'static str,
    /// The text that Tab inserts where there is nothing to complete.
    pub tab: &'static str,
    pub judge: CompletenessCheck,
}

/// How to decide whether an input is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletenessCheck {
    /// Ask the interpreter.
    Interpreter,
    /// Look at the text: a shell cannot be asked.
    Shell,
}

const PYTHON: Language = Language {
    title: "Python",
    first: ">>> ",
    more: "... ",
    tab: "    ",
    judge: CompletenessCheck::Interpreter,
};
const NODE: Language = Language {
    title: "Node.js",
    first: "> ",
    more: "... ",
    tab: "  ",
    judge: CompletenessCheck::Interpreter,
};
const BASH: Language =
    Language { title: "bash", first: "$ ", more: "> ", tab: "\t", judge: CompletenessCheck::Shell };
/// A language of an agent that is newer than we are.
const OTHER: Language = Language { title: "", ..NODE };

impl Language {
    /// By the name that the agent gives it.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "python" => PYTHON,
            "node" => NODE,
            "bash" => BASH,
            _ => OTHER,
        }
    }

    /// The exit code with which the person leaves by what they have typed, if they do.
    pub(super) fn farewell(&self, code: &str, end: &RunEnd) -> Option<i32> {
        match (self.judge, end) {
            (CompletenessCheck::Interpreter, RunEnd::Exited { code }) => Some(*code),
            // The end of a shell's run is the status of its last command, whatever that was.
            (CompletenessCheck::Shell, RunEnd::Exited { code: status }) => {
                is_exit(code).then_some(*status)
            }
            (CompletenessCheck::Shell, RunEnd::Ok {}) => is_exit(code).then_some(0),
            _ => None,
        }
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

    #[test]
    fn an_exit_of_the_code_ends_a_prompt() {
        let exited = RunEnd::Exited { code: 3 };
        assert_eq!(PYTHON.farewell("f()", &exited), Some(3));
        assert_eq!(PYTHON.farewell("exit", &RunEnd::Ok {}), None);
        assert_eq!(PYTHON.farewell("exit()", &RunEnd::Error {}), None);
    }

    #[test]
    fn a_shells_prompt_ends_by_its_exit_alone() {
        let exited = RunEnd::Exited { code: 3 };
        for (code, leaves) in
            [("exit 3", true), (" exit\n", true), ("logout", true), ("false", false)]
        {
            assert_eq!(BASH.farewell(code, &exited).is_some(), leaves, "{code}");
        }
        assert_eq!(BASH.farewell("exit", &RunEnd::Ok {}), Some(0));
        assert_eq!(BASH.farewell("exit | cat", &exited), None);
        assert_eq!(BASH.farewell("exit x", &exited), None);
    }
}
