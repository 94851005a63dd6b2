//! A language as the verbs name it: by its name, by another name, or by the ending of a file. Pure.

use std::path::Path;
use std::str::FromStr;

use protocol::ContextName;
use protocol::limits::NAME_BYTES_MAX;

use super::super::failure::CliError;
use agent_client::guest::contexts::language;

/// A language by its name. The agent knows which there are: one that is not in the table is asked
/// for all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language(String);

impl Language {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// By the ending of a file's name.
    pub fn of_file(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        language::of_ending(&ending).map(|name| Self(name.to_owned()))
    }

    /// The one that is called so, if we know any.
    pub fn called(name: &str) -> Option<Self> {
        language::called(name).map(|own| Self(own.to_owned()))
    }

    /// The context of this language that is meant when none is named.
    pub fn context(&self) -> Result<ContextName, CliError> {
        self.0.parse().map_err(CliError::ContextName)
    }

    /// What code of the command line is called in tracebacks.
    pub fn inline_name(&self) -> &'static str {
        language::Language::of(&self.0).inline
    }

    /// What code of stdin is called.
    pub fn piped_name(&self) -> &'static str {
        language::Language::of(&self.0).piped
    }
}

impl Default for Language {
    fn default() -> Self {
        Self(language::DEFAULT.to_owned())
    }
}

/// Why a text cannot be a language's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a language: there are {known}", known = known())]
pub struct InvalidLanguage(String);

fn known() -> String {
    let names: Vec<_> = language::names().collect();
    let (last, first) = names.split_last().expect("the table is not empty");
    format!("{} and {last}", first.join(", "))
}

impl FromStr for Language {
    type Err = InvalidLanguage;

    fn from_str(text: &str) -> Result<Self, InvalidLanguage> {
        let name = text.to_ascii_lowercase();
        if let Some(known) = Self::called(&name) {
            return Ok(known);
        }
        if !protocol::ids::is_name(&name, b"_.-") {
            return Err(InvalidLanguage(name.chars().take(NAME_BYTES_MAX).collect()));
        }
        Ok(Self(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_several_names_and_one_context() {
        for (called, name) in [
            ("python", "python"),
            ("Python3", "python"),
            ("js", "node"),
            ("JavaScript", "node"),
            ("sh", "bash"),
            ("deno", "deno"),
        ] {
            let language: Language = called.parse().expect("a language");
            assert_eq!(language.as_str(), name);
            assert_eq!(language.context().expect("a name").as_str(), name);
        }
        assert!("".parse::<Language>().is_err());
        assert!("a b".parse::<Language>().is_err());
    }

    #[test]
    fn a_files_ending_tells_its_language() {
        for (path, name) in [
            ("a.py", Some("python")),
            ("/x/a.b.MJS", Some("node")),
            ("a.cjs", Some("node")),
            ("run.sh", Some("bash")),
            ("py", None),
            (".py", None),
            ("a.rb", None),
            ("a.", None),
        ] {
            let found = Language::of_file(Path::new(path));
            assert_eq!(found.as_ref().map(Language::as_str), name, "{path}");
        }
    }
}
