//! URIs of things in sandboxes: encoding and parsing. Pure.

use std::fmt::Write as _;

use sandbox::SandboxRef;

/// What the URIs of all that is in sandboxes begin with.
pub const SANDBOXES: &str = "burrow://sandboxes/";
/// The separator between a sandbox and the path of a file.
const FILES: &str = "/files/";

/// Something in a sandbox. The name of the sandbox is one part, whether it says a namespace or not.
pub fn of_sandbox(which: &SandboxRef, kind: &str, path: &str) -> String {
    let mut uri = SANDBOXES.to_owned();
    encode(&mut uri, &which.to_string(), b"-._~");
    // Writing to a string does not fail.
    let _ = write!(uri, "/{kind}/");
    encode(&mut uri, path.trim_start_matches('/'), b"-._~/");
    uri
}

/// The sandbox that a URI is of.
pub fn sandbox_of(uri: &str) -> Option<String> {
    Some(parse_file(uri.strip_prefix(SANDBOXES)?)?.0)
}

/// The sandbox and the absolute path that the rest of a file's URI names.
pub fn parse_file(rest: &str) -> Option<(String, String)> {
    let (sandbox, path) = rest.split_once(FILES)?;
    if sandbox.is_empty() || sandbox.contains('/') || path.is_empty() {
        return None;
    }
    // The path of an absolute name may be put in with its slash or without.
    let path = decode(path)?;
    Some((decode(sandbox)?, format!("/{}", path.trim_start_matches('/'))))
}

fn encode(uri: &mut String, text: &str, plain: &[u8]) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
}

/// Text without its escapes; `None` when one of them is invalid, or the result is no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(which: &str, path: &str) -> String {
        of_sandbox(&which.parse().expect("a name"), "files", path)
    }

    #[test]
    fn a_file_has_one_uri_and_is_found_again_by_it() {
        assert_eq!(
            files("work", "/tmp/some file.csv"),
            "burrow://sandboxes/work/files/tmp/some%20file.csv"
        );
        assert_eq!(files("team/work", "/a%b"), "burrow://sandboxes/team%2Fwork/files/a%25b");
        let found = parse_file("team%2Fwork/files//a%25b");
        assert_eq!(found, Some(("team/work".to_owned(), "/a%b".to_owned())));
        for wrong in [
            "",
            "work",
            "work/files/",
            "/files/a",
            "a/b/files/c",
            "w/files/%",
            "w/files/%+1",
            "w/files/%ff",
        ] {
            assert_eq!(parse_file(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn every_path_comes_back(path in "/[^\0/].{0,40}") {
            let uri = files("team/work", &path);
            prop_assert!(uri.bytes().all(|byte| byte.is_ascii_graphic()));
            let rest = uri.strip_prefix(SANDBOXES).expect("ours");
            prop_assert_eq!(parse_file(rest), Some(("team/work".to_owned(), path)));
        }

        #[test]
        fn whatever_a_client_says_is_no_panic(rest in ".{0,80}") {
            let _ = parse_file(&rest);
        }
    }
}
