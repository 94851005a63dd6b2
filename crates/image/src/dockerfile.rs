//! Parses a Dockerfile into stages of instructions. Pure. An instruction that is not supported is an error
//! that names it; nothing is ignored. Variables are expanded when a step runs, because their values are
//! not known before.

mod instruction;
pub mod limits;
mod lines;
pub mod pattern;
pub mod words;

pub use instruction::{Command, Copy, Instruction, Text};
use limits::STEPS_MAX;
pub use lines::Lines;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{name} is not supported; {hint}")]
    Unknown { name: String, hint: &'static str },
    #[error("{name} takes {wanted}")]
    Arguments { name: &'static str, wanted: &'static str },
    #[error("{name} does not support --{flag}; {hint}")]
    Flag { name: &'static str, flag: String, hint: &'static str },
    #[error(
        "{word} does not begin a heredoc for {name}: write a word of letters, digits, '.', '_' and '-' after <<"
    )]
    TextName { name: &'static str, word: String },
    #[error("{what} is not closed")]
    Unclosed { what: String },
    #[error("cannot parse {text}: write $x, ${{x}}, ${{x:-word}} or ${{x:+word}}")]
    Variable { text: String },
    #[error("a word expands to more than {max} bytes")]
    TooLong { max: usize },
    #[error("variables are nested more than {max} deep")]
    TooDeep { max: usize },
    #[error("there are more than {max} instructions")]
    TooManySteps { max: usize },
    #[error("there are more than {max} rules of files to leave out, or one of them is too long")]
    TooManyRules { max: usize },
    #[error("{name} comes before the first FROM; only ARG may")]
    Early { name: &'static str },
    #[error("there is no FROM")]
    NoStage,
    #[error("two stages are named {name:?}")]
    TwoStages { name: String },
    #[error(
        "{name:?} is not a valid stage name: write a letter, then letters, digits, '.', '_' and '-'"
    )]
    StageName { name: String },
    #[error("the script begins with #!, but a shell would run it; write RUN PROGRAM <<END")]
    Interpreter,
    #[error("escape must be \\ or `")]
    Escape,
}

/// A fault with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct DockerfileError {
    pub line: usize,
    pub fault: Fault,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    /// As written, with its lines joined.
    pub text: String,
    pub what: Instruction,
}

/// The part that begins with a `FROM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub line: usize,
    pub text: String,
    /// Its base; variables are those before the first stage.
    pub from: String,
    pub platform: Option<String>,
    pub name: Option<String>,
    pub steps: Vec<Step>,
}

/// A whole recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dockerfile {
    pub escape: char,
    /// The `ARG`s before the first stage.
    pub before: Vec<Step>,
    pub stages: Vec<Stage>,
}

impl Dockerfile {
    pub fn parse(text: &str) -> Result<Self, DockerfileError> {
        let mut lines = Lines::new(text)?;
        let escape = lines.escape;
        let mut file = Self { escape, before: Vec::new(), stages: Vec::new() };
        let mut count = 0;
        while let Some(line) = lines.next_line() {
            let number = line.number;
            let wrong = |fault| DockerfileError { line: number, fault };
            count += 1;
            if count > STEPS_MAX {
                return Err(wrong(Fault::TooManySteps { max: STEPS_MAX }));
            }
            file.take(&mut lines, number, &line.text).map_err(wrong)?;
        }
        if file.stages.is_empty() {
            return Err(DockerfileError { line: lines.count(), fault: Fault::NoStage });
        }
        Ok(file)
    }

    fn take(&mut self, lines: &mut Lines<'_>, line: usize, text: &str) -> Result<(), Fault> {
        let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if keyword.eq_ignore_ascii_case("FROM") {
            let stage = self.stage(line, text, rest)?;
            self.stages.push(stage);
            return Ok(());
        }
        let (what, body) = instruction::parse(lines, keyword, rest.trim())?;
        let step = Step { line, text: format!("{}{body}", text.trim_end()), what };
        match (self.stages.last_mut(), &step.what) {
            (Some(stage), _) => stage.steps.push(step),
            (None, Instruction::Arg(_)) => self.before.push(step),
            (None, other) => return Err(Fault::Early { name: other.name() }),
        }
        Ok(())
    }

    fn stage(&self, line: usize, text: &str, rest: &str) -> Result<Stage, Fault> {
        let wanted = "an image, optionally followed by AS and a name";
        let bad = || Fault::Arguments { name: "FROM", wanted };
        let (flags, words) = instruction::flags(words::split(rest, self.escape)?);
        let mut platform = None;
        for (flag, value) in flags {
            match flag.as_str() {
                "platform" => platform = value,
                _ => return Err(Fault::Flag { name: "FROM", flag, hint: "leave it out" }),
            }
        }
        let (from, name) = match words.as_slice() {
            [from] => (from.clone(), None),
            [from, word, name] if word.eq_ignore_ascii_case("as") => {
                (from.clone(), Some(name.to_ascii_lowercase()))
            }
            _ => return Err(bad()),
        };
        if let Some(name) = &name {
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            if !is_name || name == "scratch" {
                return Err(Fault::StageName { name: name.clone() });
            }
            if self.stages.iter().any(|stage| stage.name.as_ref() == Some(name)) {
                return Err(Fault::TwoStages { name: name.clone() });
            }
        }
        let text = text.trim_end().to_owned();
        Ok(Stage { line, text, from, platform, name, steps: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        let wrong = Dockerfile::parse(text).unwrap_err();
        (wrong.line, wrong.fault.to_string())
    }

    #[test]
    fn stages_have_what_comes_before_the_next_and_lines_are_counted() {
        let text = "# syntax=x\nARG V=1\n\nFROM base:$V AS one\nRUN a \\\n  # no part of it\n  b\n\
                    from two\nCopy --from=one /a /b\n";
        let file = Dockerfile::parse(text).unwrap();
        assert_eq!((file.before.len(), file.stages.len()), (1, 2));
        let [one, two] = file.stages.as_slice() else { panic!() };
        assert_eq!((one.from.as_str(), one.name.as_deref(), one.line), ("base:$V", Some("one"), 4));
        assert_eq!((one.steps[0].line, two.line, two.steps[0].line), (5, 8, 9));
        let Instruction::Run(Command::Shell(script)) = &one.steps[0].what else { panic!() };
        assert_eq!(script.split_whitespace().collect::<Vec<_>>(), ["a", "b"]);
        let Instruction::Copy(copy) = &two.steps[0].what else { panic!() };
        assert_eq!((copy.from.as_deref(), copy.to.as_str()), (Some("one"), "/b"));
    }

    #[test]
    fn unknown_instructions_are_named_with_their_line() {
        for (text, line, expected) in [
            ("", 0, "there is no FROM"),
            ("RUN a\n", 1, "before the first FROM"),
            ("FROM a\nHEALTHCHECK CMD x\n", 2, "HEALTHCHECK"),
            ("FROM a\nRUN --mount=type=cache x\n", 2, "--mount"),
            ("FROM a\nRUN <<END\nx\n", 2, "<<END is not closed"),
            ("FROM a\nCOPY x\n", 2, "COPY takes"),
            ("FROM a\nCOPY --exclude x /x\n", 2, "COPY takes a pattern after --exclude="),
            ("FROM a\nADD --exclude= x /x\n", 2, "ADD takes a pattern after --exclude="),
            ("FROM a\nCOPY --parents x /x\n", 2, "--chmod and --exclude"),
            ("FROM a\nCOPY <<END /x\nmore\n", 2, "<<END is not closed"),
            ("FROM a\nADD <<../x /x\n../x\n", 2, "does not begin a heredoc"),
            ("FROM a\nCOPY <</x /x\n", 2, "does not begin a heredoc"),
            ("FROM a\nCOPY --from=a <<x /x\nx\n", 2, "--from"),
            ("FROM a AS b\nFROM a AS b\n", 2, "two stages"),
            ("FROM a AS scratch\n", 1, "not a valid stage name"),
            ("# escape=x\nFROM a\n", 1, "escape must be"),
            ("FROM a b\n", 1, "FROM takes"),
        ] {
            let (at, message) = wrong(text);
            assert!(at == line && message.contains(expected), "{text:?}: {at}: {message}");
        }
        let many = "RUN x\n".repeat(STEPS_MAX);
        let (_, message) = wrong(&format!("FROM a\n{many}"));
        assert!(message.contains("more than"), "{message}");
    }

    proptest! {
        #[test]
        fn recipes_of_strangers_never_panic(
            text in "(# ?escape ?= ?[`\\\\]\n)?((FROM|ARG|ENV|RUN|COPY|ADD|CMD|LABEL|SHELL|EXPOSE|from)?[ \t]{0,2}\\PC{0,24}(<<[A-Z'\"-]{0,4})?[\\\\`]?\n){0,8}"
        ) {
            if let Ok(file) = Dockerfile::parse(&text) {
                let known = |name: &str| Some(format!("<{name}>"));
                for step in file.stages.iter().flat_map(|stage| &stage.steps) {
                    // A step keeps its text as written, without expanded variables.
                    let _ = words::expand(&step.text, file.escape, &known);
                }
            }
        }
    }
}
