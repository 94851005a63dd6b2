//! The sandbox that a call is for, and where paths begin in it.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::Text;
use protocol::requests::Program;

use super::answer::coded;
use super::limits::PLACES_MAX;
use super::replies::is_there;
use super::run::{Asked, run_to_end};
use crate::call::{Call, Inside};
use access::keys::Access;
use sandbox::Record;
use sandbox::refusal::{Code, Refusal};

/// Says where a program begins that names no directory, and its home.
const PLACES: &str = r#"printf '%s\0%s' "${HOME:-/}" "$PWD""#;
const PLACES_BYTES_MAX: usize = 16 * 1024;

/// The sandbox that the path names, if it is there to the clients.
pub fn find(call: &Call) -> Result<Record, Refusal> {
    call.found("sandbox", is_there)
}

/// The same, running.
pub async fn inside(call: &Call) -> Result<Inside, Refusal> {
    call.enter(find(call)?.which()).await
}

/// Where relative paths begin in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub home: String,
    pub work: String,
}

impl Places {
    /// A program says it, so that a path means the same to a command and to a call about files.
    pub async fn of(call: &Call, inside: &Inside) -> Result<Self, Refusal> {
        // A key that only looks has nothing run, not even this.
        call.may(Access::Run).map_err(|refusal| refusal.hint("name an absolute path"))?;
        let program = Program::Script { script: PLACES.into(), shell: None };
        let asked = Asked { limit: Some(PLACES_MAX), ..Asked::of(program) };
        let outputs = run_to_end(call, inside, asked, PLACES_BYTES_MAX).await?.outputs;
        let text = outputs.stdout.into_text();
        let (home, work) = text.split_once('\0').unwrap_or(("/", "/"));
        Ok(Self { home: home.to_owned(), work: work.to_owned() })
    }

    fn path(&self, text: &str) -> String {
        let below = |place: &str, rest: &str| format!("{}/{rest}", place.trim_end_matches('/'));
        match text.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => below(&self.home, &rest[1..]),
            _ if text.is_empty() || text == "." => self.work.clone(),
            _ => below(&self.work, text),
        }
    }
}

/// Finds the paths that a client means: absolute, or below the working directory or the home. The sandbox is
/// asked for these once, and only if that is needed.
#[derive(Debug, Default)]
pub struct Paths(Option<Places>);

impl Paths {
    pub async fn find(
        &mut self,
        call: &Call,
        inside: &Inside,
        text: &str,
    ) -> Result<String, Refusal> {
        if text.contains('\0') {
            let refusal = Refusal::new(Code::Invalid, "a path has no NULs");
            return Err(coded(refusal, "INVALID_FILE_PATH"));
        }
        if text.starts_with('/') {
            return Ok(text.to_owned());
        }
        let places = match self.0.take() {
            Some(places) => places,
            None => Places::of(call, inside).await?,
        };
        Ok(self.0.insert(places).path(text))
    }
}

/// One path.
pub async fn path(call: &Call, inside: &Inside, text: &str) -> Result<String, Refusal> {
    Paths::default().find(call, inside, text).await
}

/// Variables of an environment, as the clients write them.
pub type Variables = Option<BTreeMap<String, String>>;

pub fn variables(given: Variables) -> Vec<(Text, Text)> {
    let given = given.unwrap_or_default().into_iter();
    given.map(|(name, value)| (name.into(), value.into())).collect()
}

/// A time that is in seconds; none at all for none.
pub fn seconds(given: Option<i64>) -> Option<Duration> {
    let given = given.and_then(|seconds| u64::try_from(seconds).ok())?;
    (given > 0).then(|| Duration::from_secs(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_in_the_working_directory_or_in_the_home() {
        let places = Places { home: "/root".to_owned(), work: "/srv/".to_owned() };
        for (text, path) in [
            ("a/b", "/srv/a/b"),
            ("", "/srv/"),
            (".", "/srv/"),
            ("~", "/root"),
            ("~/a", "/root/a"),
            ("~other", "/srv/~other"),
            ("../x", "/srv/../x"),
        ] {
            assert_eq!(places.path(text), path);
        }
    }
}
