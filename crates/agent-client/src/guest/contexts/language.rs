//! The languages that the host knows: one table, with a row for each. Every part of the bridge that
//! treats one language differently from another reads its row. Pure.
//!
//! The agent decides which languages exist: one that is not in this table is requested anyway, and
//! treated as [`Language::UNKNOWN`]. A test in `tests` checks that no other file names a language.

/// The row of a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// The agent's name for it.
    pub name: &'static str,
    /// Other names that clients use.
    pub aliases: &'static [&'static str],
    /// The name of the language as it is usually written.
    pub title: &'static str,
    /// The endings of its files, in small letters.
    pub endings: &'static [&'static str],
    /// The interpreter's name for code from the command line, in tracebacks.
    pub inline: &'static str,
    /// The interpreter's name for code from stdin.
    pub piped: &'static str,
    /// The error by which its code ends the interpreter with a status, if that is one.
    pub exit_error: Option<&'static str>,
    pub prompt: Prompt,
}

/// The look of a language's prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub first: &'static str,
    /// The prompt before further lines of an input.
    pub more: &'static str,
    /// The text that Tab inserts where there is nothing to complete.
    pub tab: &'static str,
    pub judge: CompletenessCheck,
}

/// How to decide whether an input is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletenessCheck {
    /// Ask the interpreter.
    Interpreter,
    /// Look at the text: a shell cannot be asked.
    Shell,
}

pub const PYTHON: Language = Language {
    name: "python",
    aliases: &["python3", "py"],
    title: "Python",
    // The driver runs a notebook cell by cell.
    endings: &["py", "pyw", "ipynb"],
    inline: "<string>",
    piped: "<stdin>",
    exit_error: Some("SystemExit"),
    prompt: Prompt {
        first: ">>> ",
        more: "... ",
        tab: "    ",
        judge: CompletenessCheck::Interpreter,
    },
};

pub const NODE: Language = Language {
    name: "node",
    aliases: &["nodejs", "javascript", "js"],
    title: "Node.js",
    endings: &["js", "mjs", "cjs"],
    inline: "[eval]",
    piped: "[stdin]",
    exit_error: None,
    prompt: Prompt { first: "> ", more: "... ", tab: "  ", judge: CompletenessCheck::Interpreter },
};

pub const BASH: Language = Language {
    name: "bash",
    aliases: &["sh", "shell"],
    title: "bash",
    endings: &["sh", "bash"],
    inline: "bash",
    piped: "bash",
    exit_error: None,
    prompt: Prompt { first: "$ ", more: "> ", tab: "\t", judge: CompletenessCheck::Shell },
};

/// All rows.
pub const ALL: &[Language] = &[PYTHON, NODE, BASH];

/// The language of a run that names neither a language nor a context.
pub const DEFAULT: &str = PYTHON.name;

impl Language {
    /// A language of an agent that is newer than this bridge.
    pub const UNKNOWN: Self = Self {
        name: "",
        aliases: &[],
        title: "",
        endings: &[],
        inline: "<string>",
        piped: "<stdin>",
        exit_error: None,
        prompt: NODE.prompt,
    };

    /// The row of the language that the agent gives this name.
    pub fn of(name: &str) -> Self {
        ALL.iter().find(|row| row.name == name).copied().unwrap_or(Self::UNKNOWN)
    }
}

/// The canonical name of a language, if the table has it.
pub fn called(name: &str) -> Option<&'static str> {
    let found = ALL.iter().find(|row| row.name == name || row.aliases.contains(&name));
    found.map(|row| row.name)
}

/// The own name of the language whose files have this ending, in small letters.
pub fn of_ending(ending: &str) -> Option<&'static str> {
    ALL.iter().find(|row| row.endings.contains(&ending)).map(|row| row.name)
}

/// The own names, in the order of the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_several_names() {
        for (name, own) in [("python3", Some("python")), ("js", Some("node")), ("ruby", None)] {
            assert_eq!(called(name), own);
        }
        assert_eq!(called(DEFAULT), Some(DEFAULT));
    }

    #[test]
    fn no_name_and_no_ending_belongs_to_two_languages() {
        for (at, row) in ALL.iter().enumerate() {
            for other in &ALL[at + 1..] {
                let names = |row: &Language| [&[row.name], row.aliases].concat();
                assert!(names(row).iter().all(|name| !names(other).contains(name)), "{row:?}");
                assert!(row.endings.iter().all(|ending| !other.endings.contains(ending)));
            }
            assert_eq!(Language::of(row.name), *row);
        }
        assert_eq!(Language::of("ruby"), Language::UNKNOWN);
    }
}
