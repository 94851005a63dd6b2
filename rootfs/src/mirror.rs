//! Finds the mirrors of packages in the environment or in this machine's apt configuration.
//!
//! No address is built in, so a machine without either gets an error that says what to set.

use std::io;
use std::path::Path;

use crate::debian::control::stanzas;
use crate::lock::Archive;

/// The variables that override apt's settings.
pub const MAIN_VARIABLE: &str = "BURROW_DEBIAN_MIRROR";
pub const SECURITY_VARIABLE: &str = "BURROW_DEBIAN_SECURITY_MIRROR";

/// Where apt keeps its sources.
const APT_DIRECTORY: &str = "/etc/apt";

/// Why there is no address.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error(
        "no mirror of Debian's {archive} archive is known: set {variable} to its address, or give \
         this machine an apt source with the suite {suite}"
    )]
    Unknown { archive: &'static str, variable: &'static str, suite: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The addresses of the archives, without a final slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    main: Option<String>,
    security: Option<String>,
}

impl Mirrors {
    /// The addresses for a suite, from the environment and this machine's apt.
    pub fn find(suite: &str) -> Result<Self, MirrorError> {
        let of_apt = Self::of_apt(Path::new(APT_DIRECTORY), suite)?;
        let variable = |name| {
            std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| trimmed(&value))
        };
        Ok(Self {
            main: variable(MAIN_VARIABLE).or(of_apt.main),
            security: variable(SECURITY_VARIABLE).or(of_apt.security),
        })
    }

    fn of_apt(directory: &Path, suite: &str) -> Result<Self, MirrorError> {
        let mut found = Self::default();
        let mut files = vec![directory.join("sources.list")];
        if let Ok(parts) = std::fs::read_dir(directory.join("sources.list.d")) {
            let mut parts: Vec<_> =
                parts.map(|part| part.map(|part| part.path())).collect::<Result<_, _>>()?;
            parts.sort_unstable();
            files.extend(parts);
        }
        for file in files {
            let text = match std::fs::read(&file) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => found.add_lines(&text, suite),
                Some("sources") => found.add_stanzas(&text, suite),
                _ => {}
            }
        }
        Ok(found)
    }

    /// `deb [options] address suite component…`
    fn add_lines(&mut self, text: &str, suite: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let Some(rest) = line.strip_prefix("deb ") else { continue };
            let rest = match rest.trim_start().strip_prefix('[') {
                Some(options) => options.split_once(']').map_or("", |(_, rest)| rest),
                None => rest,
            };
            let words: Vec<&str> = rest.split_whitespace().collect();
            if let [address, its_suite, components @ ..] = &words[..]
                && components.contains(&"main")
            {
                self.add(address, its_suite, suite);
            }
        }
    }

    fn add_stanzas(&mut self, text: &str, suite: &str) {
        for stanza in stanzas(text) {
            let words = |name| stanza.get(name).unwrap_or_default().split_whitespace();
            let off = stanza.get("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
            if off
                || !words("Types").any(|word| word == "deb")
                || !words("Components").any(|word| word == "main")
            {
                continue;
            }
            for address in words("URIs") {
                for its_suite in words("Suites") {
                    self.add(address, its_suite, suite);
                }
            }
        }
    }

    /// The first address of a suite counts.
    fn add(&mut self, address: &str, its_suite: &str, suite: &str) {
        if !["http://", "https://", "file:/"].iter().any(|scheme| address.starts_with(scheme)) {
            return;
        }
        let place = match its_suite.strip_prefix(suite) {
            Some("") => &mut self.main,
            Some("-security") => &mut self.security,
            _ => return,
        };
        place.get_or_insert_with(|| trimmed(address));
    }

    /// The address of an archive.
    pub fn address(&self, archive: Archive, suite: &str) -> Result<&str, MirrorError> {
        let (address, variable) = match archive {
            Archive::Main => (&self.main, MAIN_VARIABLE),
            Archive::Security => (&self.security, SECURITY_VARIABLE),
        };
        address.as_deref().ok_or_else(|| MirrorError::Unknown {
            archive: archive.name(),
            variable,
            suite: match archive {
                Archive::Main => suite.to_owned(),
                Archive::Security => format!("{suite}-security"),
            },
        })
    }
}

fn trimmed(address: &str) -> String {
    address.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Mirrors {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("sources.list.d")).expect("a directory");
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).expect("a file");
        }
        Mirrors::of_apt(directory.path(), "suite").expect("readable files")
    }

    fn both() -> Mirrors {
        Mirrors {
            main: Some("http://one.test/d".into()),
            security: Some("https://two.test/s".into()),
        }
    }

    #[test]
    fn one_line_sources_are_read() {
        let text = "# deb http://no.test/d suite main\ndeb-src http://no.test suite main\n\
            deb [arch=amd64 signed-by=/x] http://one.test/d/ suite main contrib # mine\n\
            deb http://later.test/d suite main\ndeb http://other.test/x stable main\n\
            deb https://two.test/s suite-security main\n";
        assert_eq!(found(&[("sources.list", text)]), both());
    }

    #[test]
    fn deb822_sources_are_read_and_disabled_ones_passed_over() {
        let text = "Types: deb\nURIs: http://off.test\nSuites: suite\nComponents: main\nEnabled: no\n\n\
            Types: deb deb-src\nURIs: http://one.test/d\nSuites: suite suite-updates\nComponents: main\n\n\
            Types: deb\nURIs: https://two.test/s/\nSuites: suite-security\nComponents: main\n";
        assert_eq!(found(&[("sources.list.d/debian.sources", text)]), both());
        assert_eq!(found(&[("sources.list.d/debian.sources.off", text)]), Mirrors::default());
    }

    #[test]
    fn without_an_address_the_error_says_what_to_set() {
        let error = Mirrors::default().address(Archive::Security, "suite").expect_err("none");
        let text = error.to_string();
        assert!(text.contains(SECURITY_VARIABLE) && text.contains("suite-security"), "{text}");
    }
}
