//! Relations between packages: `a (>= 1) | b, c` as `Depends` has it, and `Provides`.

use std::cmp::Ordering;

use super::version;

/// A name, and which versions of it are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    pub name: String,
    pub constraint: Option<(Operator, String)>,
}

/// How a version is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Less,
    AtMost,
    Exactly,
    AtLeast,
    Greater,
}

/// Why a relation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a relation between packages: {0:?}")]
pub struct BadRelation(String);

impl Relation {
    /// Whether a version is one of those meant.
    pub fn admits(&self, candidate: &str) -> bool {
        let Some((operator, wanted)) = &self.constraint else { return true };
        let order = version::compare(candidate, wanted);
        match operator {
            Operator::Less => order == Ordering::Less,
            Operator::AtMost => order != Ordering::Greater,
            Operator::Exactly => order == Ordering::Equal,
            Operator::AtLeast => order != Ordering::Less,
            Operator::Greater => order == Ordering::Greater,
        }
    }
}

/// All groups of a field, each a choice of alternatives.
pub fn parse(field: &str) -> Result<Vec<Vec<Relation>>, BadRelation> {
    field
        .split(',')
        .map(str::trim)
        .filter(|group| !group.is_empty())
        .map(|group| group.split('|').map(parse_one).collect())
        .collect()
}

fn parse_one(text: &str) -> Result<Relation, BadRelation> {
    let bad = || BadRelation(text.trim().to_owned());
    // Architectures in brackets stand in source packages alone.
    let text = text.split('[').next().unwrap_or_default().trim();
    let (name, constraint) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => {
            let inner = rest.trim().strip_suffix(')').ok_or_else(bad)?.trim();
            let digits = inner.find(|letter| !"<>=".contains(letter)).ok_or_else(bad)?;
            let operator = match &inner[..digits] {
                "<<" => Operator::Less,
                "<=" | "<" => Operator::AtMost,
                "=" => Operator::Exactly,
                ">=" | ">" => Operator::AtLeast,
                ">>" => Operator::Greater,
                _ => return Err(bad()),
            };
            (name.trim(), Some((operator, inner[digits..].trim().to_owned())))
        }
    };
    let name = name.split(':').next().unwrap_or_default();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(bad());
    }
    Ok(Relation { name: name.to_owned(), constraint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_alternatives_and_versions_are_distinguished() {
        let groups = parse("libc6 (>= 2.36), awk | mawk (<< 2) , python3:any").expect("relations");
        assert_eq!(groups.len(), 3);
        assert_eq!(groups[1][1].name, "mawk");
        assert!(groups[0][0].admits("2.36-9") && !groups[0][0].admits("2.35"));
        assert!(!groups[1][1].admits("2") && groups[1][1].admits("1.9"));
        assert_eq!(groups[2], [Relation { name: "python3".into(), constraint: None }]);
    }

    #[test]
    fn invalid_relations_are_refused() {
        for text in ["a (1.0)", "a (>= 1", "a b", "(= 1)", "a ("] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
