//! Parses one instruction of a Dockerfile.

use super::limits::CHARS_SHOWN_MAX;
use super::lines::Lines;
use super::{Fault, words};
use crate::layer::limits::NAME_BYTES_MAX;
use host::excerpt::excerpt;

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Words that no shell sees.
    Exec(Vec<String>),
    /// A text for the shell.
    Shell(String),
}

/// Files that come into an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// The stage or image that they are from; the context when absent.
    pub from: Option<String>,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    /// Patterns of files that are left out.
    pub exclude: Vec<String>,
    pub sources: Vec<String>,
    /// Files that are written here, in their lines.
    pub texts: Vec<Text>,
    pub to: String,
    /// Whether it is an `ADD`, which unpacks archives.
    pub adds: bool,
}

/// A file whose content follows an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The word that ends it, which is also its name in a directory.
    pub name: String,
    pub content: String,
    /// Whether variables are expanded; not after a quoted word.
    pub expands: bool,
}

/// An instruction, its variables not filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    Arg(Vec<(String, Option<String>)>),
    Env(Vec<(String, String)>),
    Label(Vec<(String, String)>),
    Workdir(String),
    User(String),
    Expose(Vec<String>),
    Volume(Vec<String>),
    StopSignal(String),
    Shell(Vec<String>),
    Cmd(Command),
    Entrypoint(Command),
    Run(Command),
    Copy(Copy),
}

impl Instruction {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Arg(_) => "ARG",
            Self::Env(_) => "ENV",
            Self::Label(_) => "LABEL",
            Self::Workdir(_) => "WORKDIR",
            Self::User(_) => "USER",
            Self::Expose(_) => "EXPOSE",
            Self::Volume(_) => "VOLUME",
            Self::StopSignal(_) => "STOPSIGNAL",
            Self::Shell(_) => "SHELL",
            Self::Cmd(_) => "CMD",
            Self::Entrypoint(_) => "ENTRYPOINT",
            Self::Run(_) => "RUN",
            Self::Copy(Copy { adds: true, .. }) => "ADD",
            Self::Copy(_) => "COPY",
        }
    }
}

type Flags = Vec<(String, Option<String>)>;

/// The flags before the first word that is none.
pub fn flags(words: Vec<String>) -> (Flags, Vec<String>) {
    let mut flags = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next_if(|word| word.starts_with("--")) {
        flags.push(match word[2..].split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word[2..].to_owned(), None),
        });
    }
    (flags, words.collect())
}

/// Parses an instruction; here-documents after it are passed separately.
pub fn parse(
    lines: &mut Lines<'_>,
    keyword: &str,
    rest: &str,
) -> Result<(Instruction, String), Fault> {
    let escape = lines.escape;
    let split = |text| words::split(text, escape);
    let one = |name, wanted| {
        if rest.is_empty() { Err(Fault::Arguments { name, wanted }) } else { Ok(rest.to_owned()) }
    };
    let what = match keyword.to_ascii_uppercase().as_str() {
        "ARG" => {
            let words = split(rest)?;
            let all = words.iter().map(|word| match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            });
            let all: Vec<_> = all.collect();
            if all.is_empty() || all.iter().any(|(name, _)| name.is_empty()) {
                return Err(Fault::Arguments { name: "ARG", wanted: "NAME or NAME=VALUE" });
            }
            Instruction::Arg(all)
        }
        "ENV" => Instruction::Env(pairs("ENV", rest, escape)?),
        "LABEL" => Instruction::Label(pairs("LABEL", rest, escape)?),
        "WORKDIR" => Instruction::Workdir(one("WORKDIR", "a directory")?),
        "USER" => {
            Instruction::User(one("USER", "a user, optionally followed by a colon and a group")?)
        }
        "STOPSIGNAL" => Instruction::StopSignal(one("STOPSIGNAL", "a signal")?),
        "EXPOSE" => {
            one("EXPOSE", "ports")?;
            Instruction::Expose(split(rest)?)
        }
        "VOLUME" => {
            one("VOLUME", "directories")?;
            match array(rest) {
                Some(all) => Instruction::Volume(all),
                None => Instruction::Volume(split(rest)?),
            }
        }
        "SHELL" => {
            let wanted = "a list: [\"program\", \"flag\"]";
            let shell = array(rest).filter(|all| !all.is_empty());
            Instruction::Shell(shell.ok_or(Fault::Arguments { name: "SHELL", wanted })?)
        }
        "CMD" => Instruction::Cmd(command(rest)),
        "ENTRYPOINT" => Instruction::Entrypoint(command(rest)),
        "RUN" => return run(lines, rest),
        "COPY" => return copy("COPY", lines, rest),
        "ADD" => return copy("ADD", lines, rest),
        _ => return Err(unknown(keyword)),
    };
    Ok((what, String::new()))
}

fn unknown(keyword: &str) -> Fault {
    let name = keyword.to_ascii_uppercase();
    let hint = match name.as_str() {
        "MAINTAINER" => "write LABEL maintainer=…",
        "ONBUILD" => "write the instruction in the Dockerfile that needs it",
        "HEALTHCHECK" => "health checks are not run; leave it out",
        _ => "see `host-bridge image build --help` for supported instructions",
    };
    Fault::Unknown { name: excerpt(&name, CHARS_SHOWN_MAX), hint }
}

/// A JSON list of strings; anything else is for the shell.
fn array(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

fn command(text: &str) -> Command {
    array(text).map_or_else(|| Command::Shell(text.to_owned()), Command::Exec)
}

fn pairs(name: &'static str, rest: &str, escape: char) -> Result<Vec<(String, String)>, Fault> {
    let bad = || Fault::Arguments { name, wanted: "NAME=VALUE …" };
    let words = words::split(rest, escape)?;
    let first = words.first().ok_or_else(bad)?;
    if !first.contains('=') {
        // The old form: one name, and all that follows is its value.
        let value = rest[first.len()..].trim();
        return if value.is_empty() { Err(bad()) } else { Ok(vec![(first.clone(), value.into())]) };
    }
    let pair = |word: &String| {
        let (name, value) = word.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    };
    words.iter().map(|word| pair(word).ok_or_else(bad)).collect()
}

fn run(lines: &mut Lines<'_>, rest: &str) -> Result<(Instruction, String), Fault> {
    let name = "RUN";
    if let Some(flag) = rest.strip_prefix("--") {
        let flag = flag.split(|c: char| c == '=' || c.is_whitespace()).next();
        let flag = flag.unwrap_or_default().to_owned();
        let hint = match flag.as_str() {
            "network" => "set what the build may reach with the command line's --egress",
            "mount" => "copy the files that it needs, and remove them in the same RUN",
            _ => "leave it out",
        };
        return Err(Fault::Flag { name, flag, hint });
    }
    if rest.is_empty() {
        return Err(Fault::Arguments { name, wanted: "a command" });
    }
    if let Some(all) = array(rest) {
        return Ok((Instruction::Run(Command::Exec(all)), String::new()));
    }
    let mut body = String::new();
    let mut inside = String::new();
    let mut found = 0;
    for (word, strips_tabs) in heredocs(rest) {
        let text = lines.until(&word, strips_tabs)?;
        body.extend(["\n", &text, &word]);
        inside = text;
        found += 1;
    }
    if found == 1 && rest.starts_with("<<") && rest.split_whitespace().count() == 1 {
        // Nothing else is there: the text is the script.
        if inside.starts_with("#!") {
            return Err(Fault::Interpreter);
        }
        return Ok((Instruction::Run(Command::Shell(inside)), body));
    }
    // The shell handles here-documents itself.
    Ok((Instruction::Run(Command::Shell(format!("{rest}{body}"))), body))
}

/// The words that end the here-documents of a command, in order, and whether their leading tabs are
/// removed.
fn heredocs(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut quote = None;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let after = at + c.len_utf8();
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if text[at..].starts_with("<<<") => {
                at += 3;
                continue;
            }
            None if text[at..].starts_with("<<") => {
                let rest = &text[at + 2..];
                let (rest, strips_tabs) =
                    rest.strip_prefix('-').map_or((rest, false), |rest| (rest, true));
                let is_part = |c: char| c.is_ascii_alphanumeric() || "_\"'".contains(c);
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let word = rest[..end].replace(['"', '\''], "");
                // A number after `<<` is arithmetic.
                if word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                    found.push((word, strips_tabs));
                }
                at = text.len() - rest.len() + end;
                continue;
            }
            _ => {}
        }
        at = after;
    }
    found
}

fn copy(
    name: &'static str,
    lines: &mut Lines<'_>,
    rest: &str,
) -> Result<(Instruction, String), Fault> {
    let escape = lines.escape;
    let (flags, mut words) = match rest.find('[').map(|at| (&rest[..at], &rest[at..])) {
        Some((before, list)) if before.split_whitespace().all(|word| word.starts_with("--")) => {
            let (flags, _) = flags(words::split(before, escape)?);
            match array(list) {
                Some(words) => (flags, words),
                None => self::flags(words::split(rest, escape)?),
            }
        }
        _ => flags(words::split(rest, escape)?),
    };
    let mut copy = Copy { adds: name == "ADD", ..Copy::default() };
    for (flag, value) in flags {
        match flag.as_str() {
            "from" if !copy.adds => copy.from = value,
            "chown" => copy.chown = value,
            "chmod" => copy.chmod = value,
            "exclude" => {
                let pattern = value.filter(|pattern| !pattern.is_empty());
                let wanted = "a pattern after --exclude=";
                copy.exclude.push(pattern.ok_or(Fault::Arguments { name, wanted })?);
            }
            // It only affects how layers are stored, not their content.
            "link" => {}
            _ => {
                let hint = "supported flags are --from, --chown, --chmod and --exclude";
                return Err(Fault::Flag { name, flag, hint });
            }
        }
    }
    if copy.adds && words.iter().any(|word| word.contains("://") || word.starts_with("git@")) {
        let hint = "fetch it beforehand, or in a RUN with --egress";
        return Err(Fault::Unknown { name: "ADD of a URL or repository".to_owned(), hint });
    }
    let wanted = "source files and a destination";
    copy.to = words.pop().filter(|_| !words.is_empty()).ok_or(Fault::Arguments { name, wanted })?;
    let mut body = String::new();
    for word in words {
        let Some(begun) = word.strip_prefix("<<") else {
            copy.sources.push(word);
            continue;
        };
        let (begun, strips_tabs) =
            begun.strip_prefix('-').map_or((begun, false), |rest| (rest, true));
        let (end, expands) = end_word(begun)
            .ok_or(Fault::TextName { name, word: excerpt(&word, CHARS_SHOWN_MAX) })?;
        let content = lines.until(end, strips_tabs)?;
        body.extend(["\n", &content, end]);
        copy.texts.push(Text { name: end.to_owned(), content, expands });
    }
    if copy.from.is_some() && !copy.texts.is_empty() {
        let (flag, hint) = ("from".to_owned(), "a heredoc's text is in the Dockerfile itself");
        return Err(Fault::Flag { name, flag, hint });
    }
    Ok((Instruction::Copy(copy), body))
}

/// The word that ends a text, and whether variables in that are filled in. It may become the name of
/// a file.
fn end_word(text: &str) -> Option<(&str, bool)> {
    let quoted = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    let (word, expands) = match quoted('"').or_else(|| quoted('\'')) {
        Some(word) => (word, false),
        None => (text, true),
    };
    let is_word = word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && word.len() <= NAME_BYTES_MAX
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    is_word.then_some((word, expands))
}
