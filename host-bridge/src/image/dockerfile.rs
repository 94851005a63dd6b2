//! The recipe of an image, as a Dockerfile says it: text to stages of instructions. Pure. What is not
//! understood is refused by its name, and nothing is passed over. Variables are filled in when a step
//! is done, because only then it is known what they stand for.

mod instruction;
pub mod limits;
mod lines;
pub mod pattern;
pub mod words;

pub use instruction::{Command, Copy, Instruction};
use limits::STEPS_MAX;
pub use lines::Lines;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{name} is not known here; {hint}")]
    Unknown { name: String, hint: &'static str },
    #[error("{name} takes {wanted}")]
    Arguments { name: &'static str, wanted: &'static str },
    #[error("--{flag} is no flag of {name} here; {hint}")]
    Flag { name: &'static str, flag: String, hint: &'static str },
    #[error("{what} is not closed")]
    Unclosed { what: String },
    #[error("{text} is not understood: $x, ${{x}}, ${{x:-word}} and ${{x:+word}} are")]
    Variable { text: String },
    #[error("a word becomes longer than {max} bytes")]
    TooLong { max: usize },
    #[error("variables are within each other more than {max} deep")]
    TooDeep { max: usize },
    #[error("there are more than {max} instructions")]
    TooManySteps { max: usize },
    #[error("there are more than {max} rules, or one of them is too long")]
    TooManyRules { max: usize },
    #[error("{name} comes before the first FROM; only ARG may")]
    Early { name: &'static str },
    #[error("there is no FROM")]
    NoStage,
    #[error("{name:?} is the name of two stages")]
    TwoStages { name: String },
    #[error("{name:?} is no name of a stage: a letter, then letters, digits, '.', '_' and '-'")]
    StageName { name: String },
    #[error("the script begins with #!, and a shell would read it; write RUN PROGRAM <<END")]
    Interpreter,
    #[error("escape is \\ or `")]
    Escape,
}

/// A fault and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct Wrong {
    pub line: usize,
    pub fault: Fault,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    /// As it is written, its lines put together.
    pub text: String,
    pub what: Instruction,
}

/// What begins with a `FROM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub line: usize,
    pub text: String,
    /// What it begins with; variables are those before the first stage.
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
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let mut lines = Lines::new(text)?;
        let escape = lines.escape;
        let mut file = Self { escape, before: Vec::new(), stages: Vec::new() };
        let mut count = 0;
        while let Some(line) = lines.next_line() {
            let number = line.number;
            let wrong = |fault| Wrong { line: number, fault };
            count += 1;
            if count > STEPS_MAX {
                return Err(wrong(Fault::TooManySteps { max: STEPS_MAX }));
            }
            file.take(&mut lines, number, &line.text).map_err(wrong)?;
        }
        if file.stages.is_empty() {
            return Err(Wrong { line: lines.count(), fault: Fault::NoStage });
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
        let wanted = "an image, and perhaps AS and a name";
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
