//! Raw values, and their conversion to the types of the options. Pure.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::limits::{CPUS_MAX, DURATION_MAX, ENTRIES_MAX};
use egress::RuleError;
use host::similar::nearest;
use sandbox::event::UnknownKind;

/// The word for "none".
pub const OFF: &str = "off";

/// A value before it is converted to an option's type.
#[derive(Clone, Debug, PartialEq)]
pub enum RawValue {
    /// A string of TOML.
    Text(String),
    Whole(i64),
    Real(f64),
    Truth(bool),
    List(Vec<RawValue>),
    /// Keys with their values, in the order of the file; for sections with names of the user's choice.
    Table(Vec<(String, RawValue)>),
    /// A type that no option has, such as a date. The word names it.
    Other(&'static str),
    /// From a flag or a variable, where everything is text.
    Bare(String),
}

/// Why a value is invalid for an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    #[error("{found} is not {wanted}")]
    Kind { wanted: &'static str, found: String },
    #[error("{found:?} is not one of {}{}", choices.join(", "), did_you_mean(*meant))]
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
    #[error("{0:?} is not an address and port as in \"127.0.0.1:2222\"")]
    SshListen(String),
    #[error("{0:?} is not an address and port as in \"127.0.0.1:53\"")]
    Address(String),
    #[error("{0:?} is not a range of ports from 1024 to 65535, as in \"20000-20999\"")]
    Ports(String),
    #[error("{0:?} is not an address of NATS, as in \"nats://10.0.0.1:4222\"")]
    Nats(String),
    #[error("{0:?} is not the name of a node: use 1 to 63 letters, digits, '_' and '-'")]
    Node(String),
    #[error("{0:?} is not a label, as in \"zone=a\"")]
    NodeLabel(String),
    #[error("{0:?} is not a quota of a namespace, as in \"team=50\", or \"*=10\" for all others")]
    NamespaceQuota(String),
    #[error("{0:?} is not an address of a bridge, as in \"https://node1.example.org:5555\"")]
    BridgeAddress(String),
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
    #[error(
        "{0:?} is not an origin as in \"https://preview.example.org\", nor \"localhost\" or \"off\""
    )]
    PreviewUrl(String),
    #[error("{0:?} is not a namespace, nor \"*\" for all")]
    PublicNamespace(String),
    #[error("{0:?} is not a name of an image: write 1 to 255 characters without spaces")]
    ImageName(String),
    #[error(
        "{0:?} is not an entry of the pool: write IMAGE=COUNT, then, separated by spaces, any of \
         machine=KIND, memory_mib=N, cpus=N, scratch=SIZE, contexts=LANGUAGE+LANGUAGE"
    )]
    PoolEntry(String),
    #[error("there is no key {key:?}{}; the keys are {}", did_you_mean(*meant), known.join(", "))]
    Key { key: String, known: &'static [&'static str], meant: Option<&'static str> },
    #[error(
        "{0:?} is not a name of a secret: write a letter, then letters, digits, '_', '-' and '.'"
    )]
    SecretName(String),
    #[error("the source of the value is missing: write one of env, file, credential and command")]
    SecretSource,
    #[error("{first} and {second} both set the source of the value: keep one of them")]
    SecretSources { first: String, second: String },
    #[error(
        "namespaces is missing: list those that may use it, as in [\"team\"], or \"*\" for all"
    )]
    Namespaces,
    #[error("{0:?} is not a header name, such as x-api-key")]
    Field(String),
    #[error("{0:?} is not a full host name, such as api.example.org")]
    SecretHost(String),
    #[error("write 1 to {max} host names, such as [\"api.example.org\"]")]
    SecretHosts { max: usize },
    #[error(
        "the source is missing: set path to a directory of the host, or bucket to an S3 bucket"
    )]
    WorkspacePath,
    #[error("{key} has no effect on a mounted directory: remove it, or remove mount to use a copy")]
    MountLimit { key: String },
    #[error("path and bucket are both set: keep one of them")]
    WorkspaceTwice,
    #[error("{key} needs a bucket: set bucket to its name")]
    NoBucket { key: String },
    #[error("access_key and secret_key must be set together, and session_token needs both")]
    HalfKeys,
    #[error("there is no [secrets.{0}]: give the keys of a bucket as names of secrets")]
    NoSecret(String),
    #[error(
        "{0:?} is not the name of a bucket: write 3 to 63 lower-case letters, digits, '-' and '.'"
    )]
    BucketName(String),
    #[error(
        "{0:?} is not an endpoint: write a scheme, a host and a port, as in \"http://127.0.0.1:9000\""
    )]
    Endpoint(String),
    #[error("{0:?} is not the name of a region, such as \"eu-west-1\"")]
    Region(String),
    #[error(
        "{0:?} is not a name of a webhook: write a letter, then letters, digits, '_', '-' and '.'"
    )]
    WebhookName(String),
    #[error("{0}")]
    Template(String),
    #[error("{key} is missing: every webhook needs it")]
    WebhookLacks { key: &'static str },
    #[error("{0:?} is not a URL, such as \"https://example.org/events\"")]
    WebhookUrl(String),
    #[error(
        "there is no [secrets.{0}]: a webhook names the secret that its requests are signed with"
    )]
    NoWebhookSecret(String),
    #[error(transparent)]
    EventKind(#[from] UnknownKind),
    #[error("{0:?} is not the URL of a collector, such as \"http://127.0.0.1:4318\"")]
    OtelEndpoint(String),
    #[error("{0:?} is not a header that can be set, or has no value: write \"x-tenant=team\"")]
    OtelHeader(String),
    #[error(
        "{0} looks like a credential: put its value into a secret, and write \"{0}=secret:NAME\""
    )]
    OtelCredential(String),
    #[error("there is no [secrets.{0}]: a header names the secret that is its value")]
    NoHeaderSecret(String),
    #[error("{0:?} is not a name of a service: write one without control characters")]
    ServiceName(String),
    #[error("{0:?} is not an attribute, as in \"deployment.environment.name=staging\"")]
    ResourceAttribute(String),
    #[error("a bucket cannot be mounted: remove mount to use a copy")]
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
    #[error(
        "a command must be a list of a program and its arguments, with an absolute path for the program"
    )]
    Command,
    #[error("{key}: {wrong}")]
    Inside { key: String, wrong: Box<InvalidValue> },
    #[error(
        "{0:?} is not a registry: write a host name or address, optionally with a colon and a port"
    )]
    Registry(String),
    #[error(
        "{0:?} is not a mirror: write HOST, HOST:PORT or HOST/PREFIX, optionally with https:// or \
         http://"
    )]
    Mirror(String),
    #[error(
        "{0:?} is not a label key: write letters, digits, '.', '_', '/' and '-', beginning with a \
         letter or digit"
    )]
    LabelKey(String),
    #[error(
        "{0:?} becomes the same name as another key when '.', '/' and '-' are replaced with '_'"
    )]
    SameLabel(String),
    #[error("more than {entries_max} entries")]
    TooMany { entries_max: usize },
}

/// The suggestion at the end of a message about an unknown word.
pub fn did_you_mean(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"))
}

impl RawValue {
    /// The value for a message.
    fn shown(&self) -> String {
        /// Limits the text in a message.
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

    pub fn kind(&self, wanted: &'static str) -> InvalidValue {
        InvalidValue::Kind { wanted, found: self.shown() }
    }

    pub fn text(&self) -> Result<&str, InvalidValue> {
        match self {
            Self::Text(text) | Self::Bare(text) => Ok(text),
            _ => Err(self.kind("a string")),
        }
    }

    /// The keys of a table of the file.
    pub fn table(&self) -> Result<&[(String, RawValue)], InvalidValue> {
        match self {
            Self::Table(table) => Ok(table),
            _ => Err(self.kind("a table of the configuration file")),
        }
    }

    pub fn truth(&self) -> Result<bool, InvalidValue> {
        match self {
            Self::Truth(truth) => Ok(*truth),
            Self::Bare(text) if text == "true" || text == "1" => Ok(true),
            Self::Bare(text) if text == "false" || text == "0" => Ok(false),
            _ => Err(self.kind("true or false")),
        }
    }

    pub fn whole(&self, min: u64, max: u64) -> Result<u64, InvalidValue> {
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
    pub fn bytes(&self, min: u64, max: u64) -> Result<u64, InvalidValue> {
        let bytes = match self {
            Self::Text(text) | Self::Bare(text) => {
                parse_size(text).ok_or_else(|| InvalidValue::Size(text.clone()))?
            }
            _ => return self.whole(min, max),
        };
        let out_of_range = || range(&show_size(bytes), &show_size(min), &show_size(max));
        (min..=max).contains(&bytes).then_some(bytes).ok_or_else(out_of_range)
    }

    pub fn duration(&self, min: Duration) -> Result<Duration, InvalidValue> {
        let duration = match self {
            Self::Whole(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Self::Text(text) | Self::Bare(text) => parse_duration(text),
            _ => return Err(self.kind("a duration, as in \"30s\"")),
        };
        let duration = duration.ok_or_else(|| InvalidValue::Duration(self.shown_bare()))?;
        let out_of_range =
            || range(&show_duration(duration), &show_duration(min), &show_duration(DURATION_MAX));
        (min..=DURATION_MAX).contains(&duration).then_some(duration).ok_or_else(out_of_range)
    }

    /// The first and the last port, of which none is a service's of the host.
    pub fn ports(&self) -> Result<RangeInclusive<u16>, InvalidValue> {
        /// Below, only root may listen.
        const PORT_MIN: u16 = 1024;
        let text = self.text()?;
        let ends = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port >= PORT_MIN);
        match (port(ends.0), port(ends.1)) {
            (Some(first), Some(last)) if first <= last => Ok(first..=last),
            _ => Err(InvalidValue::Ports(self.shown_bare())),
        }
    }

    /// A duration, or `"off"` for none.
    pub fn duration_or_off(&self, min: Duration) -> Result<Option<Duration>, InvalidValue> {
        if self.is_off() { Ok(None) } else { self.duration(min).map(Some) }
    }

    /// CPUs with a fraction, in thousandths.
    pub fn cpu_millis(&self) -> Result<u32, InvalidValue> {
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
    pub fn path_or_off(&self) -> Result<Option<PathBuf>, InvalidValue> {
        if self.is_off() {
            return Ok(None);
        }
        let path = PathBuf::from(self.text()?);
        if path.is_absolute() { Ok(Some(path)) } else { Err(InvalidValue::Path(self.shown_bare())) }
    }

    /// Absolute paths.
    pub fn paths(&self) -> Result<Vec<PathBuf>, InvalidValue> {
        let path = |text: &str| {
            let path = PathBuf::from(text);
            if path.is_absolute() { Ok(path) } else { Err(InvalidValue::Path(text.to_owned())) }
        };
        self.texts()?.into_iter().map(path).collect()
    }

    /// A path or none, or a name that is no path; its user checks it.
    pub fn place_or_off(&self) -> Result<Option<PathBuf>, InvalidValue> {
        let is_name = |text: &str| text.starts_with(|first: char| first.is_ascii_alphanumeric());
        match self.text() {
            Ok(text) if !self.is_off() && is_name(text) => Ok(Some(PathBuf::from(text))),
            _ => self.path_or_off(),
        }
    }

    pub fn choice(&self, choices: &'static [&'static str]) -> Result<&'static str, InvalidValue> {
        let text = self.text()?;
        choices.iter().find(|choice| **choice == text).copied().ok_or_else(|| {
            InvalidValue::Choice {
                found: text.to_owned(),
                choices,
                meant: nearest(text, choices.iter().copied()),
            }
        })
    }

    /// A list of texts; one text is a list of one, and commas divide that of a variable. `"off"` is
    /// the empty list.
    pub fn texts(&self) -> Result<Vec<&str>, InvalidValue> {
        let texts = match self {
            _ if self.is_off() => Vec::new(),
            Self::Text(text) => vec![text.as_str()],
            Self::Bare(text) => text.split(',').map(str::trim).collect(),
            Self::List(list) => list.iter().map(Self::text).collect::<Result<_, _>>()?,
            _ => return Err(self.kind("a list of strings")),
        };
        if texts.len() > ENTRIES_MAX {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        Ok(texts)
    }

    pub fn is_off(&self) -> bool {
        matches!(self, Self::Text(text) | Self::Bare(text) if text == OFF)
    }

    /// As shown, without quotes around text.
    fn shown_bare(&self) -> String {
        self.text().map_or_else(|_| self.shown(), str::to_owned)
    }
}

fn range(value: &impl ToString, min: &impl ToString, max: &impl ToString) -> InvalidValue {
    InvalidValue::Range { value: value.to_string(), min: min.to_string(), max: max.to_string() }
}

/// A range as it is written.
pub fn show_ports(ports: &RangeInclusive<u16>) -> String {
    format!("{}-{}", ports.start(), ports.end())
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
        // Whether these are thousands is ambiguous, so it is an error.
        assert!(
            ["", "MiB", "64MB", "64m", "-1", "1.5GiB"]
                .iter()
                .all(|text| parse_size(text).is_none())
        );
    }

    #[test]
    fn cpus_are_counted_in_thousandths() {
        let millis = |given: RawValue| given.cpu_millis();
        assert_eq!(millis(RawValue::Whole(2)), Ok(2000));
        assert_eq!(millis(RawValue::Real(0.5)), Ok(500));
        assert_eq!(millis(RawValue::Bare("1.25".to_owned())), Ok(1250));
        for given in [
            RawValue::Real(f64::NAN),
            RawValue::Real(-1.0),
            RawValue::Whole(0),
            RawValue::Real(1e300),
        ] {
            assert!(millis(given).is_err());
        }
    }
}
