//! The part of a file that an archive has signed, as `gpgv` verifies it, and nothing around it.
//!
//! `builder::locking` calls it. A file may contain anything before and after the signed part, so
//! the output of `gpgv` is read, never the file.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::fetch::{on_path, run};

/// Why a file is not signed by the archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the signature is not valid: {0}")]
    Bad(String),
    #[error("the signed text is not UTF-8")]
    NotText,
}

/// The text in a file that one of these keys has signed; `None` if `gpgv` is missing.
pub fn signed_text(
    keyring: &Path,
    signed: &Path,
    bytes_max: u64,
) -> Result<Option<String>, SignatureError> {
    let program = on_path("gpgv").filter(|_| File::open(keyring).is_ok());
    let Some(program) = program else { return Ok(None) };
    let mut command = Command::new(program);
    command.arg("--keyring").arg(keyring).args(["--output", "-"]).arg(signed);
    let mut text = Vec::new();
    run(command, b"", &mut text, bytes_max).map_err(SignatureError::Bad)?;
    String::from_utf8(text).map(Some).map_err(|_| SignatureError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::release::Release;

    const SIGNED: &str = include_str!("../tests/signed/InRelease");
    const TEXT_BYTES_MAX: u64 = 10_000;

    /// The text that counts as signed in a file; `None` if `gpgv` is missing.
    fn judged(file: &str, bytes_max: u64) -> Option<Result<String, SignatureError>> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("InRelease");
        std::fs::write(&path, file).expect("a file");
        let keyring = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signed/keyring.gpg");
        let judged = signed_text(&keyring, &path, bytes_max).transpose();
        if judged.is_none() {
            crate::skipped("there is no gpgv here");
        }
        judged
    }

    #[test]
    fn only_what_is_signed_is_read_whatever_stands_around_it() {
        let forged = format!(
            "Date: Thu, 01 Jan 2037 00:00:00 UTC\nSHA256:\n {} 66 main/Packages\n",
            "cd".repeat(32)
        );
        for file in [SIGNED.to_owned(), format!("{forged}{SIGNED}"), format!("{SIGNED}{forged}")] {
            let Some(text) = judged(&file, TEXT_BYTES_MAX) else { return };
            let release = Release::parse(&text.expect("a good signature")).expect("a release");
            assert_eq!(release.date_s, 1_783_764_997);
            let digest = "ab".repeat(32).parse().expect("a digest");
            assert_eq!(release.file("main/Packages"), Ok((77, digest)));
        }
    }

    #[test]
    fn changed_unsigned_and_truncated_files_are_refused() {
        let changed = SIGNED.replace(" 77 ", " 78 ");
        let unsigned = SIGNED.split("-----BEGIN PGP SIGNATURE").next().expect("a beginning");
        for (file, bytes_max) in [
            (&*changed, TEXT_BYTES_MAX),
            (unsigned, TEXT_BYTES_MAX),
            ("", TEXT_BYTES_MAX),
            (SIGNED, 20),
        ] {
            let Some(text) = judged(file, bytes_max) else { return };
            assert!(matches!(text, Err(SignatureError::Bad(_))), "{text:?}");
        }
    }

    #[test]
    fn without_keys_nothing_is_judged() {
        let judged = signed_text(Path::new("/no/keyring"), Path::new("/no/file"), TEXT_BYTES_MAX);
        assert_eq!(judged, Ok(None));
    }
}
