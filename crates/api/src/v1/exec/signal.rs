//! Signals as clients name them.

use std::str::FromStr;

use nix::sys::signal::Signal;
use schemars::JsonSchema;
use serde::Deserialize;

use sandbox::refusal::Refusal;

/// A signal by its name, with or without `SIG`, or by its number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SignalName {
    Name(
        #[schemars(regex(
            pattern = "^(SIG)?(HUP|INT|QUIT|ILL|TRAP|ABRT|BUS|FPE|KILL|USR1|SEGV|USR2|PIPE|ALRM|TERM|STKFLT|CHLD|CONT|STOP|TSTP|TTIN|TTOU|URG|XCPU|XFSZ|VTALRM|PROF|WINCH|IO|PWR|SYS)$"
        ))]
        String,
    ),
    Number(#[schemars(range(min = 1, max = 31))] i32),
}

impl SignalName {
    /// Linux's number of it.
    pub fn number(&self) -> Result<i32, Refusal> {
        let known = match self {
            Self::Name(name) => {
                let bare = name.strip_prefix("SIG").unwrap_or(name);
                Signal::from_str(&format!("SIG{bare}")).ok()
            }
            Self::Number(number) => Signal::try_from(*number).ok(),
        };
        known.map(|signal| signal as i32).ok_or_else(|| {
            let named = match self {
                Self::Name(name) => format!("{name:?}"),
                Self::Number(number) => number.to_string(),
            };
            Refusal::invalid(format!("{named} is not a signal"))
                .hint("use a name such as TERM, INT or KILL, or a number from 1 to 31")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_known_by_name_and_by_number() {
        let named = |name: &str| SignalName::Name(name.to_owned()).number();
        assert_eq!(named("TERM").unwrap(), 15);
        assert_eq!(named("SIGKILL").unwrap(), 9);
        assert_eq!(SignalName::Number(2).number().unwrap(), 2);
        for wrong in ["", "SIG", "SIGSIGTERM", "term", "NOPE"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
        assert!(SignalName::Number(0).number().is_err());
        assert!(SignalName::Number(64).number().is_err());
    }

    #[test]
    fn every_name_of_the_pattern_is_a_signal() {
        let schema = schemars::schema_for!(SignalName);
        let text = serde_json::to_string(&schema).unwrap();
        let names = text.split('(').nth(2).unwrap().split(')').next().unwrap();
        for name in names.split('|') {
            assert!(SignalName::Name(name.to_owned()).number().is_ok(), "{name}");
        }
    }
}
