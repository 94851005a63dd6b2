//! `[pool]`: the machines to prepare. Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::limits::{MEMORY_MIB_MAX, POOL_COUNT_MAX};
use super::shown::show_cpus;
use super::value::{InvalidValue, OFF, RawValue, show_size};

/// See the table of options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub entries: Vec<PoolEntry>,
    pub age_max: Option<Duration>,
    pub check_every: Duration,
    pub starts_at_once: usize,
}

/// Machines of one image. Written as `IMAGE=COUNT`, and after it, separated by spaces, what differs
/// from a sandbox that names nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolEntry {
    /// A name of `[images]` or of the kit, or a directory or file.
    pub image: String,
    pub count: usize,
    /// The kind of machine by name; the default one if absent.
    pub machine: Option<String>,
    pub memory_mib: PoolLimit<u64>,
    pub cpu_millis: PoolLimit<u32>,
    pub scratch_bytes: Option<u64>,
    /// Languages whose interpreters are started in advance.
    pub contexts: Vec<String>,
}

/// A limit of an entry: the default, none, or its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolLimit<T> {
    #[default]
    Default,
    Off,
    Own(T),
}

impl<T> PoolLimit<T> {
    pub fn or(self, default: T) -> Option<T> {
        match self {
            Self::Default => Some(default),
            Self::Off => None,
            Self::Own(value) => Some(value),
        }
    }
}

/// The separator between languages.
const AND: char = '+';

impl FromStr for PoolEntry {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wrong = || InvalidValue::PoolEntry(text.to_owned());
        let mut words = text.split_whitespace();
        // A name of an image may have the sign in it; a number has not.
        let (image, count) =
            words.next().and_then(|word| word.rsplit_once('=')).ok_or_else(wrong)?;
        if image.is_empty() {
            return Err(wrong());
        }
        let mut entry = Self {
            image: image.to_owned(),
            count: bare(count).whole(1, POOL_COUNT_MAX as u64)? as usize,
            machine: None,
            memory_mib: PoolLimit::Default,
            cpu_millis: PoolLimit::Default,
            scratch_bytes: None,
            contexts: Vec::new(),
        };
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            match key {
                "machine" => entry.machine = Some(value.to_owned()),
                "memory_mib" => {
                    entry.memory_mib =
                        parse_setting(value, |given| given.whole(1, MEMORY_MIB_MAX))?;
                }
                "cpus" => entry.cpu_millis = parse_setting(value, RawValue::cpu_millis)?,
                "scratch" => entry.scratch_bytes = Some(bare(value).bytes(1, u64::MAX)?),
                "contexts" => {
                    entry.contexts = value.split(AND).map(str::to_owned).collect();
                    if entry.contexts.iter().any(String::is_empty) {
                        return Err(wrong());
                    }
                }
                _ => return Err(wrong()),
            }
        }
        Ok(entry)
    }
}

fn bare(text: &str) -> RawValue {
    RawValue::Bare(text.to_owned())
}

fn parse_setting<T>(
    text: &str,
    read: impl FnOnce(&RawValue) -> Result<T, InvalidValue>,
) -> Result<PoolLimit<T>, InvalidValue> {
    if text == OFF { Ok(PoolLimit::Off) } else { read(&bare(text)).map(PoolLimit::Own) }
}

impl fmt::Display for PoolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.image, self.count)?;
        if let Some(machine) = &self.machine {
            write!(f, " machine={machine}")?;
        }
        match self.memory_mib {
            PoolLimit::Default => {}
            PoolLimit::Off => write!(f, " memory_mib={OFF}")?,
            PoolLimit::Own(mib) => write!(f, " memory_mib={mib}")?,
        }
        match self.cpu_millis {
            PoolLimit::Default => {}
            PoolLimit::Off => write!(f, " cpus={OFF}")?,
            PoolLimit::Own(millis) => write!(f, " cpus={}", show_cpus(millis))?,
        }
        if let Some(bytes) = self.scratch_bytes {
            write!(f, " scratch={}", show_size(bytes))?;
        }
        if !self.contexts.is_empty() {
            write!(f, " contexts={}", self.contexts.join(&AND.to_string()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_is_shown() {
        for text in [
            "python=4",
            "node:20-slim=1 machine=qemu",
            "a=b=2 memory_mib=256 cpus=0.5 scratch=64MiB contexts=python+node",
            "/srv/root=8 memory_mib=off cpus=off",
        ] {
            let entry: PoolEntry = text.parse().unwrap();
            assert_eq!(entry.to_string(), text);
        }
        let entry: PoolEntry = "a=b=2 cpus=off".parse().unwrap();
        assert_eq!((entry.image.as_str(), entry.count), ("a=b", 2));
        assert_eq!((entry.memory_mib.or(512), entry.cpu_millis.or(1000)), (Some(512), None));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in [
            "",
            "python",
            "=4",
            "python=0",
            "python=many",
            "python=4 memory=1",
            "python=4 memory_mib=0",
            "python=4 qemu",
            "python=4 contexts=python+",
            "python=4 scratch=1MB",
        ] {
            assert!(text.parse::<PoolEntry>().is_err(), "{text:?}");
        }
    }
}
