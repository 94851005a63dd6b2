//! Options whose values are words: one way to read them, to show them, and to refuse others.

use std::fmt;

/// Characters of an unknown word that are shown: enough to recognise it.
const UNKNOWN_CHARS_SHOWN: usize = 32;

/// A word that an option does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    text: String,
    /// What it is not.
    what: &'static str,
    words: &'static [&'static str],
}

impl UnknownWord {
    pub(crate) fn new(text: &str, what: &'static str, words: &'static [&'static str]) -> Self {
        Self { text: text.chars().take(UNKNOWN_CHARS_SHOWN).collect(), what, words }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}: it is ", self.text, self.what)?;
        let last = self.words.len().saturating_sub(1);
        for (at, word) in self.words.iter().enumerate() {
            let before = match at {
                0 => "",
                _ if at == last => " or ",
                _ => ", ",
            };
            write!(f, "{before}{word:?}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownWord {}

/// Gives an enum its words, in text and when it is read from JSON. `$what` is what an unknown word is not.
macro_rules! words {
    ($of:ident, $what:literal, { $($variant:ident: $word:literal),+ $(,)? }) => {
        impl $of {
            pub const NAMES: [&'static str; [$($word),+].len()] = [$($word),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $of {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    other => Err($crate::words::UnknownWord::new(other, $what, &Self::NAMES)),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $of {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::{Durability, OnIdle, OnLost, RecordPolicy};

    #[test]
    fn the_words_are_the_same_in_text_and_in_json() {
        fn check<T>(names: &[&str], unknown: &str)
        where
            T: std::str::FromStr<Err = super::UnknownWord> + std::fmt::Display + serde::Serialize,
        {
            for name in names {
                let Ok(parsed) = name.parse::<T>() else { panic!("{name}") };
                assert_eq!(parsed.to_string(), *name);
                assert_eq!(serde_json::to_string(&parsed).unwrap(), format!("\"{name}\""));
            }
            let Err(refused) = "alwaysalwaysalwaysalwaysalwaysalways".parse::<T>() else {
                panic!("it is a word")
            };
            assert_eq!(refused.to_string(), unknown);
        }
        check::<OnIdle>(
            &OnIdle::NAMES,
            "\"alwaysalwaysalwaysalwaysalwaysal\" is not what can happen to an idle sandbox: it is \"stop\", \
             \"pause\" or \"snapshot\"",
        );
        check::<Durability>(
            &Durability::NAMES,
            "\"alwaysalwaysalwaysalwaysalwaysal\" is not a durability: it is \"off\", \"async\" or \"sync\"",
        );
        check::<RecordPolicy>(
            &RecordPolicy::NAMES,
            "\"alwaysalwaysalwaysalwaysalwaysal\" is not what can be recorded: it is \"off\", \"on\" or \"input\"",
        );
        check::<OnLost>(
            &OnLost::NAMES,
            "\"alwaysalwaysalwaysalwaysalwaysal\" is not what can become of a sandbox that is lost: it is \"lose\", \
             \"restart\" or \"restore\"",
        );
    }
}
