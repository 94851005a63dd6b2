//! Languages as the verbs name them: by name, by another name, or by file extension. Pure.

use std::path::Path;
use std::str::FromStr;

use protocol::ContextName;
use protocol::limits::NAME_BYTES_MAX;

use super::super::failure::CliError;
use agent_client::guest::contexts::language;

/// A language by its name. The agent knows which exist: one that is not in the table is requested
/// anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language(String);

impl Language {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The language of a file, by its extension.
    pub fn of_file(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        language::of_ending(&ending).map(|name| Self(name.to_owned()))
    }

    /// The table's row for this language, if there is one.
    pub fn called(name: &str) -> Option<Self> {
        language::called(name).map(|own| Self(own.to_owned()))
    }

    /// The default context of this language.
    pub fn context(&self) -> Result<ContextName, CliError> {
        self.0.parse().map_err(CliError::ContextName)
    }

    /// The name of command-line code in tracebacks.
    pub fn inline_name(&self) -> &'static str {
        language::Language::of(&self.0).inline
    }

    /// The name of code from stdin in tracebacks.
    pub fn piped_name(&self) -> &'static str {
        language::Language::of(&self.0).piped
    }
}

impl Default for Language {
    fn default() -> Self {
        Self(language::DEFAULT.to_owned())
    }
}

/// The help of the option.
pub fn help() -> String {
    let (known, default) = (known(), language::DEFAULT);
    format!("Set the language: {known} (default: by the file's extension, or {default})")
}

/// Why a text is not a language's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a language: write {known}", known = known())]
pub struct InvalidLanguage(String);

fn known() -> String {
    let names: Vec<_> = language::names().collect();
    let (last, first) = names.split_last().expect("the table is not empty");
    format!("{} or {last}", first.join(", "))
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
