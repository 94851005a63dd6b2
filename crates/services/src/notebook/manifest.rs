//! Parses a keeper's manifest of saved variables, which is untrusted. Pure.
//!
//! The manifest itself goes back to a guest unchanged; only the fields that are parsed here are
//! used, and only for display and for fetching files that are named by their digest.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limits::{GROUPS_MAX, NAMES_MAX, STATE_BYTES_MAX, WORDS_CHARS_MAX};

/// The keepers' digests: 20 bytes, in hexadecimal digits.
const DIGEST_CHARS: usize = 40;

/// Why a manifest is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the keeper's answer cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the keeper reports {count} {what}, and the limit is {max}")]
    TooMany { what: &'static str, count: u64, max: u64 },
    #[error("the keeper names an invalid file")]
    Name,
}

/// See the module's description.
#[derive(Debug, Deserialize)]
pub struct Manifest {
    /// Which save has written it.
    #[serde(default)]
    pub mark: String,
    variables: Vec<Variable>,
    pub groups: Vec<Group>,
    #[serde(default)]
    lost: Vec<LostName>,
    #[serde(default)]
    depends: Vec<Dependent>,
    #[serde(default)]
    modules: BTreeMap<String, Module>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    kind: String,
    digest: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    unavailable: Option<String>,
}

/// Variables that are kept together, in one file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Group {
    pub digest: String,
    pub bytes: u64,
    /// Why it could not be loaded where it was last.
    #[serde(default)]
    pub unavailable: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Module {
    module: String,
    #[serde(default)]
    unavailable: bool,
}

/// The saved variables of a notebook, and those that are not saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedVariables {
    pub kept: Vec<KeptName>,
    /// Not there after a restore, and why.
    pub lost: Vec<LostName>,
    /// Saved, but they use something that is lost.
    pub depends: Vec<Dependent>,
    /// Kept, but they could not be loaded here.
    pub unavailable: Vec<Unavailable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptName {
    pub name: String,
    /// What it is: a type, or `module`.
    pub kind: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostName {
    pub name: String,
    #[serde(alias = "type", default)]
    pub kind: String,
    pub reason: String,
    /// The lost variables that it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub because_of: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependent {
    pub name: String,
    pub uses: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unavailable {
    pub name: String,
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Option::<OneOrMany>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(one)) => vec![one],
        Some(OneOrMany::Many(many)) => many,
    })
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_slice(&mended(bytes))?;
        let names = manifest.variables.len()
            + manifest.lost.len()
            + manifest.depends.len()
            + manifest.modules.len();
        bound("names", names, NAMES_MAX)?;
        bound("groups", manifest.groups.len(), GROUPS_MAX)?;
        if !manifest.groups.iter().all(|group| is_digest(&group.digest)) {
            return Err(ManifestError::Name);
        }
        let bytes = manifest.bytes();
        if bytes > STATE_BYTES_MAX {
            let (what, max) = ("bytes", STATE_BYTES_MAX);
            return Err(ManifestError::TooMany { what, count: bytes, max });
        }
        Ok(manifest)
    }

    /// The size of all groups.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.bytes))
    }

    /// The part that people see. `damaged` are the digests of changed files.
    pub fn summary(&self, damaged: &[String]) -> SavedVariables {
        let mut variables = SavedVariables::default();
        for variable in &self.variables {
            let name = clip(&variable.name);
            let damage = damaged.contains(&variable.digest).then(|| DAMAGE.to_owned());
            if let Some(reason) = damage.or_else(|| variable.unavailable.as_deref().map(clip)) {
                variables.unavailable.push(Unavailable { name, reason });
            } else {
                variables.kept.push(KeptName {
                    name,
                    kind: clip(&variable.kind),
                    bytes: variable.bytes,
                });
            }
        }
        for (name, module) in &self.modules {
            let (name, module_name) = (clip(name), clip(&module.module));
            if module.unavailable {
                let reason = format!("the module {module_name} is not installed here");
                variables.unavailable.push(Unavailable { name, reason });
            } else {
                variables.kept.push(KeptName {
                    name,
                    kind: format!("module {module_name}"),
                    bytes: 0,
                });
            }
        }
        variables.lost = self.lost.iter().map(LostName::clipped).collect();
        variables.depends = self.depends.iter().map(Dependent::clipped).collect();
        variables
    }
}

/// The reason for a variable whose sealed file does not open.
pub const DAMAGE: &str = "its saved value was changed on the host's disk";

impl LostName {
    pub(super) fn clipped(&self) -> Self {
        Self {
            name: clip(&self.name),
            kind: clip(&self.kind),
            reason: clip(&self.reason),
            because_of: self.because_of.iter().take(GIVEN_MAX).map(|name| clip(name)).collect(),
        }
    }
}

impl Dependent {
    pub(super) fn clipped(&self) -> Self {
        let uses = self.uses.iter().take(GIVEN_MAX).map(|name| clip(name)).collect();
        Self { name: clip(&self.name), uses }
    }
}

impl Unavailable {
    pub(super) fn clipped(&self) -> Self {
        Self { name: clip(&self.name), reason: clip(&self.reason) }
    }
}

/// JSON whose lone surrogates are replaced by U+FFFD: a guest's names and reasons may contain some, and our
/// strings cannot.
pub(super) fn mended(json: &[u8]) -> Cow<'_, [u8]> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut whole = Cow::Borrowed(json);
    let mut at = 0;
    while at < json.len() {
        if json[at] != b'\\' {
            at += 1;
            continue;
        }
        match (unit(at), unit(at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                whole.to_mut()[at + 2..at + 6].copy_from_slice(b"fffd");
                at += 6;
            }
            // An escape of two characters at least, of which the second is no beginning of another.
            _ => at += 2,
        }
    }
    whole
}

/// Names that are given for one name.
const GIVEN_MAX: usize = 100;

fn clip(text: &str) -> String {
    text.chars().take(WORDS_CHARS_MAX).collect()
}

fn bound(what: &'static str, count: usize, max: usize) -> Result<(), ManifestError> {
    if count > max {
        return Err(ManifestError::TooMany { what, count: count as u64, max: max as u64 });
    }
    Ok(())
}

pub fn is_digest(text: &str) -> bool {
    text.len() == DIGEST_CHARS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef01234567";

    fn manifest() -> Value {
        json!({
            "format": 1, "python": [3, 11, 2], "generation": 4, "cwd": "/", "path": [],
            "variables": [
                {"name": "x", "kind": "int", "digest": DIGEST, "bytes": 5},
                {"name": "y", "kind": "", "digest": DIGEST, "bytes": 5, "unavailable": "no module"},
            ],
            "groups": [{"digest": DIGEST, "bytes": 5, "names": [["x"]], "needs": []}],
            "lost": [{"name": "f", "type": "file", "reason": "an open file", "because_of": "g"}],
            "depends": [{"name": "h", "uses": ["f"]}],
            "modules": {"np": {"module": "numpy", "unavailable": false},
                        "pd": {"module": "pandas", "unavailable": true}},
        })
    }

    fn parse(manifest: &Value) -> Result<Manifest, ManifestError> {
        Manifest::parse(manifest.to_string().as_bytes())
    }

    #[test]
    fn kept_and_lost_variables_are_listed_by_name() {
        let summary = parse(&manifest()).unwrap().summary(&[]);
        let names: Vec<_> = summary.kept.iter().map(|variable| variable.name.as_str()).collect();
        assert_eq!(names, ["x", "np"]);
        assert_eq!(summary.lost[0].kind, "file");
        assert_eq!(summary.lost[0].because_of, ["g"]);
        assert_eq!(summary.depends[0].uses, ["f"]);
        let away: Vec<_> = summary.unavailable.iter().map(|away| away.name.as_str()).collect();
        assert_eq!(away, ["y", "pd"]);
        let summary = parse(&manifest()).unwrap().summary(&[DIGEST.to_owned()]);
        assert_eq!(summary.unavailable[0], Unavailable { name: "x".into(), reason: DAMAGE.into() });
    }

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_and_backslashes_stay() {
        let text = |json: &[u8]| serde_json::from_slice::<String>(&mended(json)).unwrap();
        assert_eq!(text(br#""a\udcffb""#), "a\u{fffd}b");
        assert_eq!(text(br#""\ud83d\ude00\ud83d""#), "😀\u{fffd}");
        assert_eq!(text(br#""\\udcff\n\ud800\\""#), "\\udcff\n\u{fffd}\\");
        assert!(matches!(mended(b"{}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_file_whose_name_is_no_digest_is_not_fetched() {
        for name in ["../../etc/passwd", "", "ABCDEF", &DIGEST.to_uppercase(), &DIGEST[1..]] {
            let mut bad = manifest();
            bad["groups"][0]["digest"] = json!(name);
            assert!(matches!(parse(&bad), Err(ManifestError::Name)), "{name}");
        }
    }

    #[test]
    fn sizes_and_counts_are_bounded_before_anything_is_fetched() {
        let mut bad = manifest();
        bad["groups"][0]["bytes"] = json!(u64::MAX);
        bad["groups"].as_array_mut().unwrap().push(json!({"digest": DIGEST, "bytes": 1}));
        assert!(matches!(parse(&bad), Err(ManifestError::TooMany { what: "bytes", .. })));
        let mut bad = manifest();
        let one = bad["lost"][0].clone();
        bad["lost"] = Value::Array(vec![one; NAMES_MAX + 1]);
        assert!(matches!(parse(&bad), Err(ManifestError::TooMany { what: "names", .. })));
        let mut long = manifest();
        long["lost"][0]["reason"] = json!("é".repeat(5 * WORDS_CHARS_MAX));
        let reason = parse(&long).unwrap().summary(&[]).lost.remove(0).reason;
        assert_eq!(reason.chars().count(), WORDS_CHARS_MAX);
    }
}
