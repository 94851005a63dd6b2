//! Decides which argument is the sandbox and which is the file. Pure, except that an error message
//! checks whether a file exists.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::failure::CliError;
use super::source::Source;
use sandbox::SandboxRef;

/// The meaning of the arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct Selection {
    /// A new sandbox if absent.
    pub place: Option<SandboxRef>,
    pub source: Source,
}

/// Interprets the arguments. `code` is the value of `-c`.
pub fn read(words: &[OsString], code: Option<&OsStr>) -> Result<Selection, CliError> {
    let inline = code.map(|code| Source::Inline(code.as_bytes().to_vec()));
    match (words, inline) {
        ([], inline) => Ok(Selection { place: None, source: inline.unwrap_or(Source::Person) }),
        ([word], Some(source)) if !is_file(word) => {
            Ok(Selection { place: Some(parse_sandbox(word)?), source })
        }
        ([word], None) if is_file(word) => Ok(Selection { place: None, source: file(word) }),
        ([word], None) => {
            Ok(Selection { place: Some(parse_sandbox(word)?), source: Source::Person })
        }
        ([word] | [_, word, ..], Some(_)) => {
            Err(CliError::TwoCodeSources(word.to_string_lossy().into_owned()))
        }
        ([which, path, ..], None) => {
            Ok(Selection { place: Some(parse_sandbox(which)?), source: file(path) })
        }
    }
}

/// How to write the argument if it was meant as a file, if that file exists.
pub fn file_instead(words: &[OsString]) -> Option<String> {
    match words {
        [word] if Path::new(word).is_file() => Some(format!("./{}", word.to_string_lossy())),
        _ => None,
    }
}

/// The name of a sandbox contains no dot and does not begin with a slash.
fn is_file(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes == b"-" || bytes.first() == Some(&b'/') || bytes.contains(&b'.')
}

fn file(word: &OsStr) -> Source {
    if word == "-" { Source::Stdin } else { Source::File(word.into()) }
}

fn parse_sandbox(word: &OsStr) -> Result<SandboxRef, CliError> {
    let word = word.to_string_lossy();
    word.parse()
        .map_err(|reason| CliError::NeitherSandboxNorFile { word: word.into_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &[&str], code: Option<&str>) -> Result<Selection, CliError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        read(&words, code.map(OsStr::new))
    }

    fn named(which: &str) -> SandboxRef {
        which.parse().expect("a sandbox")
    }

    #[test]
    fn words_mean_one_thing_each() {
        let inline = || Source::Inline(b"1".to_vec());
        let file = |path: &str| Source::File(path.into());
        for (words, code, place, source) in [
            (&[][..], None, None, Source::Person),
            (&[], Some("1"), None, inline()),
            (&["work"], None, Some(named("work")), Source::Person),
            (&["ns/work"], None, Some(named("ns/work")), Source::Person),
            (&["work"], Some("1"), Some(named("work")), inline()),
            (&["a.py"], None, None, file("a.py")),
            (&["./work"], None, None, file("./work")),
            (&["/srv/run"], None, None, file("/srv/run")),
            (&["../run"], None, None, file("../run")),
            (&["-"], None, None, Source::Stdin),
            (&["work", "a.py"], None, Some(named("work")), file("a.py")),
            (&["work", "run"], None, Some(named("work")), file("run")),
            (&["work", "-"], None, Some(named("work")), Source::Stdin),
        ] {
            assert_eq!(wanted(words, code).ok(), Some(Selection { place, source }), "{words:?}");
        }
    }

    #[test]
    fn an_argument_that_is_neither_is_refused_with_both_readings() {
        let error = wanted(&["my sandbox"], None).expect_err("no name").to_string();
        assert!(error.contains("./my sandbox") && error.contains("is not a name"), "{error}");
        assert!(matches!(
            wanted(&["a.py", "b.py"], None),
            Err(CliError::NeitherSandboxNorFile { .. })
        ));
    }

    #[test]
    fn code_comes_from_one_place() {
        for words in [&["a.py"][..], &["-"], &["work", "a.py"], &["work", "run"]] {
            assert!(
                matches!(wanted(words, Some("1")), Err(CliError::TwoCodeSources(_))),
                "{words:?}"
            );
        }
    }
}
