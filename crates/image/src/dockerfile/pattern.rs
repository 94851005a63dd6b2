//! Names with wildcards, and the files that are no part of a context: `*`, `?`, `[a-z]` and `\x` within
//! a component, `**` for any number of them. Pure, and never slower than the product of both lengths.

use super::Fault;
use super::limits::{RULE_COMPONENTS_MAX, RULES_MAX};

/// Any number of components.
const ANY_DEPTH: &[u8] = b"**";

/// Whether a component of a path has wildcards.
pub fn is_pattern(component: &[u8]) -> bool {
    component.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Whether a name matches a pattern of one component.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where to continue when the rest after the last star does not match: the star takes one more
    // byte.
    let mut star = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
            continue;
        }
        let fits = match name.get(read) {
            Some(&byte) => one(&pattern[at..], byte),
            None if at == pattern.len() => return true,
            None => return false,
        };
        if let Some(length) = fits {
            (at, read) = (at + length, read + 1);
        } else if let Some((after, taken)) = star {
            (at, read) = (after, taken + 1);
            star = Some((after, taken + 1));
        } else {
            return false;
        }
    }
}

/// The length of the pattern that matches this byte, if it matches.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let close = rest.iter().skip(1).position(|byte| *byte == b']').map(|at| at + 1)?;
            let set = &rest[..close];
            let (set, is_other) = match set {
                [b'^', set @ ..] => (set, true),
                set => (set, false),
            };
            let mut left = set;
            let mut is_in = false;
            while let [first, more @ ..] = left {
                left = match more {
                    [b'-', last, more @ ..] => {
                        is_in |= (*first..=*last).contains(&byte);
                        more
                    }
                    more => {
                        is_in |= *first == byte;
                        more
                    }
                };
            }
            (is_in != is_other).then_some(close + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// The rules for files that are not copied: those of a context, or those of one instruction.
#[derive(Debug, Default)]
pub struct Ignore(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    components: Vec<Vec<u8>>,
    /// Whether it re-includes what an earlier rule excluded.
    keeps: bool,
}

impl Ignore {
    /// The rules of a file, one a line.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        Self::new(lines.filter(|line| !line.is_empty() && !line.starts_with('#')))
    }

    pub fn new<'a>(written: impl IntoIterator<Item = &'a str>) -> Result<Self, Fault> {
        let mut rules = Vec::new();
        for rule in written {
            let (pattern, keeps) = match rule.strip_prefix('!') {
                Some(pattern) => (pattern.trim(), true),
                None => (rule, false),
            };
            let mut components: Vec<Vec<u8>> = Vec::new();
            for component in pattern.split('/').filter(|part| !part.is_empty() && *part != ".") {
                match component {
                    ".." => drop(components.pop()),
                    other => components.push(other.as_bytes().to_vec()),
                }
            }
            if components.len() > RULE_COMPONENTS_MAX || rules.len() >= RULES_MAX {
                return Err(Fault::TooManyRules { max: RULES_MAX });
            }
            if !components.is_empty() {
                rules.push(Rule { components, keeps });
            }
        }
        Ok(Self(rules))
    }

    /// Whether the last rule that speaks of a path, or of a directory that it is in, takes it away.
    pub fn excludes(&self, path: &[u8]) -> bool {
        let path: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let found = self.0.iter().rev().find(|rule| rule.speaks_of(&path));
        found.is_some_and(|rule| !rule.keeps)
    }
}

impl Rule {
    fn speaks_of(&self, path: &[&[u8]]) -> bool {
        // Whether the components so far match this many components of the path.
        let mut fits = vec![false; path.len() + 1];
        fits[0] = true;
        for component in &self.components {
            let mut next = vec![false; path.len() + 1];
            for at in 0..=path.len() {
                next[at] = if component == ANY_DEPTH {
                    fits[at] || (at > 0 && next[at - 1])
                } else {
                    at > 0 && fits[at - 1] && matches(component, path[at - 1])
                };
            }
            fits = next;
        }
        fits[1..].contains(&true)
    }
}
