//! The sources of code: an argument, a file, stdin, or a person at the prompt.

use std::io::{self, IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use protocol::limits::CODE_BYTES_MAX;

use super::super::failure::CliError;
use super::language::Language;

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Code from the command line.
    Inline(Vec<u8>),
    File(PathBuf),
    Stdin,
    /// A person at the prompt.
    Person,
}

impl Source {
    /// Reads from stdin instead of a person if stdin is not a terminal.
    pub fn or_stdin(self, for_a_program: bool) -> Self {
        match self {
            Self::Person if for_a_program || !stdin().is_terminal() => Self::Stdin,
            source => source,
        }
    }

    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Inline(_) | Self::Stdin | Self::Person => None,
        }
    }

    /// The file name of the code in tracebacks.
    pub fn name(&self, language: &Language) -> String {
        match self {
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Inline(_) => language.inline_name().to_owned(),
            Self::Stdin | Self::Person => language.piped_name().to_owned(),
        }
    }

    /// Reads all of the code.
    pub async fn read(&self) -> Result<Vec<u8>> {
        let code = match self.clone() {
            Self::Inline(code) => code,
            Self::Person => Vec::new(),
            // Either may be a pipe or a terminal, which are waited for.
            Self::File(path) => {
                let opened = path.clone();
                blocking(move || read_some(std::fs::File::open(opened)?))
                    .await
                    .map_err(|source| CliError::Unreadable { path, source })?
            }
            Self::Stdin => {
                blocking(|| read_some(stdin().lock())).await.context("cannot read stdin")?
            }
        };
        if code.len() > CODE_BYTES_MAX {
            return Err(CliError::CodeTooLong { limit: CODE_BYTES_MAX }.into());
        }
        Ok(code)
    }
}

/// Reads up to the limit and one byte more, which shows that the code is too long.
fn read_some(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut code = Vec::new();
    reader.take(CODE_BYTES_MAX as u64 + 1).read_to_end(&mut code)?;
    Ok(code)
}

async fn blocking(
    read: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
) -> io::Result<Vec<u8>> {
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err(io::Error::other("the reading thread failed")))
}
