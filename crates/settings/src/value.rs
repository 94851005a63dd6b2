//! Values as they were written, and what an option makes of them. Pure.

use std::path::PathBuf;
use std::time::Duration;

use super::limits::{CPUS_MAX, DURATION_MAX, ENTRIES_MAX};
use egress::RuleError;
use host::similar::nearest;

/// What is written to have none.
pub const OFF: &str = "off";

/// A value, before anybody knows what it is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A string of TOML.
    Text(String),
    Whole(i64),
    Real(f64),
    Truth(bool),
    List(Vec<Given>),
    /// Keys with their values, in the order of the file; for sections with names of the user's choice.
    Table(Vec<(String, Given)>),
    /// What no option is: a date. The word says which.
    Other(&'static str),
    /// From a flag or a variable, where all is text.
    Bare(String),
}

/// Why a value is not one that the option may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("{found} is not {wanted}")]
    Kind { wanted: &'static str, found: String },
    #[error("{found:?} is none of {}{}", choices.join(", "), did_you_mean(*meant))]
    Choice { found: String, choices: &'static [&'static str], meant: Option<&'static str> },
    #[error("{value} is out of range: {min} to {max}")]
    Range { value: String, min: String, max: String },
    #[error(
        "{0:?} is not a duration: write whole seconds, or units as in \"30s\", \"5m\", \"1h30m\" or \"7d\""
    )]
    Duration(String),
    #[error("{0:?} is not a size: write bytes, or \"512KiB\", \"64MiB\" or \"1GiB\"")]
    Size(String),
    #[error("{0:?} is not an address and port as in \"127.0.0.1:5555\", nor \"unix:/path\"")]
    Listen(String),
    #[error("{0:?} is not an address and port as in \"127.0.0.1:53\"")]
    Address(String),
    #[error("{0:?} is not a range of addresses as in \"10.1.2.0/24\"")]
    AddressRange(String),
    #[error("{0}")]
    Egress(#[from] RuleError),
    #[error("{0:?} is not an absolute path")]
    Path(String),
    #[error("{0:?} is not a host name or address, without a port, as in \"burrow.example.org\"")]
    Host(String),
    #[error("{0:?} is not an origin as a browser sends it, as in \"https://app.example.org\"")]
    WebOrigin(String),
    #[error("{0:?} is not a name of an image: 1 to 255 characters without spaces")]
    ImageName(String),
    #[error(
        "{0:?} is not an entry of the pool: write IMAGE=COUNT, and behind it, divided by spaces, \
         machine=KIND, memory_mib=N, cpus=N, scratch=SIZE, contexts=LANGUAGE+LANGUAGE"
    )]
    PoolEntry(String),
    #[error("there is no key {key:?}{}; there are {}", did_you_mean(*meant), known.join(", "))]
    Key { key: String, known: &'static [&'static str], meant: Option<&'static str> },
    #[error(
        "{0:?} is not a name of a secret: write a letter, then letters, digits, '_', '-' and '.'"
    )]
    SecretName(String),
    #[error("say where the value is with one of env, file, credential and command")]
    SecretSource,
    #[error("{first} and {second} both say where the value is: leave one of them")]
    SecretSources { first: String, second: String },
    #[error("say with namespaces who may use it, as in [\"team\"], or \"*\" for all")]
    Namespaces,
    #[error("{0:?} is not a name of a field of requests, such as x-api-key")]
    Field(String),
    #[error("{0:?} is not the whole name of a host, such as api.example.org")]
    SecretHost(String),
    #[error("write 1 to {max} names of hosts, such as [\"api.example.org\"]")]
    SecretHosts { max: usize },
    #[error("say with path which directory of the host it is, or with bucket which bucket")]
    WorkspacePath,
    #[error(
        "nothing holds a mounted directory to {key}: leave it out, or leave out mount for a copy"
    )]
    MountLimit { key: String },
    #[error("it is a directory of the host or a bucket: write path or bucket, and not both")]
    WorkspaceTwice,
    #[error("{key} is about a bucket: say with bucket which one it is")]
    NoBucket { key: String },
    #[error("access_key and secret_key belong together, and session_token to both of them")]
    HalfKeys,
    #[error("there is no [secrets.{0}]: the keys of a bucket are said by the names of secrets")]
    NoSecret(String),
    #[error(
        "{0:?} is not the name of a bucket: 3 to 63 lower-case letters, digits, '-' and '.' between them"
    )]
    BucketName(String),
    #[error(
        "{0:?} is not an endpoint, as in \"http://127.0.0.1:9000\": a scheme, a host and a port"
    )]
    Endpoint(String),
    #[error("{0:?} is not the name of a region, such as \"eu-west-1\"")]
    Region(String),
    #[error("a bucket cannot be mounted by the bridge: leave mount out for a copy")]
    MountBucket,
    #[error("{0:?} is not a path in a workspace, as in \"outputs/\"")]
    Prefix(String),
    #[error(
        "{0:?} is not a name of a workspace: write a letter, then letters, digits, '_', '-' and '.'"
    )]
    WorkspaceName(String),
    #[error("{0:?} is not a name of a variable: write letters, digits and '_'")]
    Variable(String),
    #[error("{0:?} is not a name of a namespace")]
    Namespace(String),
    #[error("{0:?} is not a name of a credential: write one without '/'")]
    Credential(String),
    #[error("a command is a list of its program and its arguments, the program an absolute path")]
    Command,
    #[error("{key}: {wrong}")]
    Inside { key: String, wrong: Box<Wrong> },
    #[error("{0:?} is not a registry: write a host name or address, optionally followed by a colon and a port")]
    Registry(String),
    #[error(
        "{0:?} is not a mirror: write HOST, HOST:PORT or HOST/PREFIX, with https:// or http:// in \
         front or without"
    )]
    Mirror(String),
    #[error(
        "{0:?} is not a key of a label: write letters, digits, '.', '_', '/' and '-', beginning with a \
         letter or digit"
    )]
    LabelKey(String),
    #[error("{0:?} becomes the same name as another one, with '_' for '.', '/' and '-'")]
    SameLabel(String),
    #[error("more than {entries_max} entries")]
    TooMany { entries_max: usize },
}

/// The end of a message about a word that nobody knows.
pub fn did_you_mean(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"))
}

impl Given {
    /// The value for a message.
    fn shown(&self) -> String {
        /// Of a text that may be anything.
        const CHARS_SHOWN_MAX: usize = 80;
        match self {
            Self::Text(text) | Self::Bare(text) => {
                format!("{:?}", text.chars().take(CHARS_SHOWN_MAX).collect::<String>())
            }
            Self::Whole(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Truth(truth) => truth.to_string(),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Other(what) => (*what).to_owned(),
        }
    }

    pub fn kind(&self, wanted: &'static str) -> Wrong {
        Wrong::Kind { wanted, found: self.shown() }
    }

    pub fn text(&self) -> Result<&str, Wrong> {
        match self {
            Self::Text(text) | Self::Bare(text) => Ok(text),
            _ => Err(self.kind("a string")),
        }
    }

    /// The keys of a table of the file.
    pub fn table(&self) -> Result<&[(String, Given)], Wrong> {
        match self {
            Self::Table(table) => Ok(table),
            _ => Err(self.kind("a table of the configuration file")),
        }
    }

    pub fn truth(&self) -> Result<bool, Wrong> {
        match self {
            Self::Truth(truth) => Ok(*truth),
            Self::Bare(text) if text == "true" || text == "1" => Ok(true),
            Self::Bare(text) if text == "false" || text == "0" => Ok(false),
            _ => Err(self.kind("true or false")),
        }
    }

    pub fn whole(&self, min: u64, max: u64) -> Result<u64, Wrong> {
        let number = match self {
            Self::Whole(number) => Some(i128::from(*number)),
            Self::Bare(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.kind("a whole number"))?;
        let fits = u64::try_from(number).ok().filter(|number| (min..=max).contains(number));
        fits.ok_or_else(|| range(&number, &min, &max))
    }

    /// A size in bytes, with a unit or without.
    pub fn bytes(&self, min: u64, max: u64) -> Result<u64, Wrong> {
        let bytes = match self {
            Self::Text(text) | Self::Bare(text) => {
                parse_size(text).ok_or_else(|| Wrong::Size(text.clone()))?
            }
            _ => return self.whole(min, max),
        };
        let out_of_range = || range(&show_size(bytes), &show_size(min), &show_size(max));
        (min..=max).contains(&bytes).then_some(bytes).ok_or_else(out_of_range)
    }

    pub fn duration(&self, min: Duration) -> Result<Duration, Wrong> {
        let duration = match self {
            Self::Whole(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Self::Text(text) | Self::Bare(text) => parse_duration(text),
            _ => return Err(self.kind("a duration, as in \"30s\"")),
        };
        let duration = duration.ok_or_else(|| Wrong::Duration(self.shown_bare()))?;
        let out_of_range =
            || range(&show_duration(duration), &show_duration(min), &show_duration(DURATION_MAX));
        (min..=DURATION_MAX).contains(&duration).then_some(duration).ok_or_else(out_of_range)
    }

    /// A duration, or `"off"` for none.
    pub fn duration_or_off(&self, min: Duration) -> Result<Option<Duration>, Wrong> {
        if self.is_off() { Ok(None) } else { self.duration(min).map(Some) }
    }

    /// CPUs with a fraction, in thousandths.
    pub fn cpu_millis(&self) -> Result<u32, Wrong> {
        let cpus = match self {
            Self::Whole(cpus) => Some(*cpus as f64),
            Self::Real(cpus) => Some(*cpus),
            Self::Bare(text) => text.parse::<f64>().ok(),
            _ => None,
        };
        let cpus = cpus.ok_or_else(|| self.kind("a number, as in 1 or 0.5"))?;
        if (0.001..=f64::from(CPUS_MAX)).contains(&cpus) {
            Ok((cpus * 1000.0).round() as u32)
        } else {
            Err(range(&cpus, &0.001, &CPUS_MAX))
        }
    }

    /// An absolute path, or `"off"` for none.
    pub fn path_or_off(&self) -> Result<Option<PathBuf>, Wrong> {
        if self.is_off() {
            return Ok(None);
        }
        let path = PathBuf::from(self.text()?);
        if path.is_absolute() { Ok(Some(path)) } else { Err(Wrong::Path(self.shown_bare())) }
    }

    /// The same, or a name of something that is no file; whoever uses it says what is wrong with it.
    pub fn place_or_off(&self) -> Result<Option<PathBuf>, Wrong> {
        let is_name = |text: &str| text.starts_with(|first: char| first.is_ascii_alphanumeric());
        match self.text() {
            Ok(text) if !self.is_off() && is_name(text) => Ok(Some(PathBuf::from(text))),
            _ => self.path_or_off(),
        }
    }

    pub fn choice(&self, choices: &'static [&'static str]) -> Result<&'static str, Wrong> {
        let text = self.text()?;
        choices.iter().find(|choice| **choice == text).copied().ok_or_else(|| Wrong::Choice {
            found: text.to_owned(),
            choices,
            meant: nearest(text, choices.iter().copied()),
        })
    }

    /// A list of texts; one text is a list of one, and commas divide that of a variable. `"off"` is
    /// the empty list.
    pub fn texts(&self) -> Result<Vec<&str>, Wrong> {
        let texts = match self {
            _ if self.is_off() => Vec::new(),
            Self::Text(text) => vec![text.as_str()],
            Self::Bare(text) => text.split(',').map(str::trim).collect(),
            Self::List(list) => list.iter().map(Self::text).collect::<Result<_, _>>()?,
            _ => return Err(self.kind("a list of strings")),
        };
        if texts.len() > ENTRIES_MAX {
            return Err(Wrong::TooMany { entries_max: ENTRIES_MAX });
        }
        Ok(texts)
    }

    fn is_off(&self) -> bool {
        matches!(self, Self::Text(text) | Self::Bare(text) if text == OFF)
    }

    /// As shown, without quotes around text.
    fn shown_bare(&self) -> String {
        self.text().map_or_else(|_| self.shown(), str::to_owned)
    }
}

fn range(value: &impl ToString, min: &impl ToString, max: &impl ToString) -> Wrong {
    Wrong::Range { value: value.to_string(), min: min.to_string(), max: max.to_string() }
}

/// The units of durations in milliseconds, the largest first.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// The units of sizes, the largest first.
const SIZE_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// `30s`, `1h30m`, `250ms`; a bare number is seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut total_ms = 0_u64;
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (_, unit_ms) = DURATION_UNITS.iter().find(|(name, _)| *name == &after[..unit])?;
        total_ms = total_ms.checked_add(number.checked_mul(*unit_ms)?)?;
        rest = &after[unit..];
    }
    (!text.is_empty()).then_some(Duration::from_millis(total_ms))
}

fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let scale = match unit.trim_start() {
        "" => 1,
        unit => SIZE_UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.checked_mul(scale)
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// The largest unit that it is a whole number of.
pub fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis() as u64;
    let whole = |(_, unit_ms): &&(&str, u64)| ms.is_multiple_of(*unit_ms) && ms > 0;
    match DURATION_UNITS.iter().find(whole) {
        Some((unit, unit_ms)) => format!("{}{unit}", ms / unit_ms),
        None => "0s".to_owned(),
    }
}

/// The same for sizes.
pub fn show_size(bytes: u64) -> String {
    let whole = |(_, unit): &&(&str, u64)| bytes.is_multiple_of(*unit) && bytes > 0;
    match SIZE_UNITS.iter().find(whole) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => "0B".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_shown() {
        for (text, ms) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("250ms", 250),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(ms)), text);
        }
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("90"), Some(Duration::from_secs(90)));
        for text in ["", "s", "1", "1x", "-1s", "1.5m", "1m 30s", "1m30", "99999999999999999999d"] {
            let parsed = parse_duration(text);
            assert_eq!(parsed, (text == "1").then_some(Duration::from_secs(1)), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_they_are_shown() {
        for (text, bytes) in [("64MiB", 64 << 20), ("1GiB", 1 << 30), ("3KiB", 3072), ("7B", 7)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!((parse_size("4096"), parse_size("64 MiB")), (Some(4096), Some(64 << 20)));
        // Whether these are thousands is anybody's guess, so nobody guesses.
        assert!(
            ["", "MiB", "64MB", "64m", "-1", "1.5GiB"]
                .iter()
                .all(|text| parse_size(text).is_none())
        );
    }

    #[test]
    fn cpus_are_counted_in_thousandths() {
        let millis = |given: Given| given.cpu_millis();
        assert_eq!(millis(Given::Whole(2)), Ok(2000));
        assert_eq!(millis(Given::Real(0.5)), Ok(500));
        assert_eq!(millis(Given::Bare("1.25".to_owned())), Ok(1250));
        for given in [Given::Real(f64::NAN), Given::Real(-1.0), Given::Whole(0), Given::Real(1e300)]
        {
            assert!(millis(given).is_err());
        }
    }
}
