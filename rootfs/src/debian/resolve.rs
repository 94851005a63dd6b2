//! Resolves a list of names to packages with all of `Depends` and `Pre-Depends`, without recommendations.
//!
//! Of alternatives, one that is selected already is taken, else the first that exists. If no package has a
//! name, packages that provide it are searched. The same index and names give the same result.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::control::{Stanza, stanzas};
use super::relation::{self, BadRelation, Operator, Relation};
use super::version;
use crate::digest::Sha256;

/// A package as an index describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    pub version: String,
    /// The archive whose index has it.
    pub archive: String,
    pub path: String,
    pub bytes: u64,
    pub sha256: Sha256,
    depends: Vec<Vec<Relation>>,
    provides: Vec<Relation>,
}

/// Why packages cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("an index has a package without a valid {field}: {package}")]
    Malformed { package: String, field: &'static str },
    #[error("{package}: {source}")]
    Relation { package: String, source: BadRelation },
    #[error("there is no package {0}")]
    Unknown(String),
    #[error("{package} depends on {wanted}, which no package provides")]
    Unsatisfied { package: String, wanted: String },
}

/// The newest version of every package of some indexes.
#[derive(Debug, Default)]
pub struct Universe {
    packages: BTreeMap<String, Candidate>,
}

impl Universe {
    /// Adds an index; of two versions the newer stays.
    pub fn add(&mut self, archive: &str, index: &str) -> Result<(), ResolveError> {
        for stanza in stanzas(index) {
            let candidate = candidate(archive, &stanza)?;
            let newer = self
                .packages
                .get(&candidate.name)
                .is_none_or(|known| version::compare(&candidate.version, &known.version).is_gt());
            if newer {
                self.packages.insert(candidate.name.clone(), candidate);
            }
        }
        Ok(())
    }

    /// The closure of some names; `without` counts as installed.
    pub fn closure(
        &self,
        names: &[String],
        without: &BTreeSet<String>,
    ) -> Result<Vec<&Candidate>, ResolveError> {
        let mut providers: HashMap<&str, Vec<(&Candidate, &Relation)>> = HashMap::new();
        for candidate in self.packages.values() {
            for provided in &candidate.provides {
                providers.entry(&provided.name).or_default().push((candidate, provided));
            }
        }
        let mut chosen: BTreeMap<&str, &Candidate> = BTreeMap::new();
        let mut todo = VecDeque::new();
        for name in names {
            let found = self.packages.get(name);
            let found = found.ok_or_else(|| ResolveError::Unknown(name.clone()))?;
            if chosen.insert(&found.name, found).is_none() {
                todo.push_back(found);
            }
        }
        while let Some(package) = todo.pop_front() {
            for group in &package.depends {
                let fits = |relation: &&Relation| {
                    without.contains(&relation.name)
                        || chosen
                            .get(relation.name.as_str())
                            .is_some_and(|there| relation.admits(&there.version))
                        || chosen.values().any(|there| provides(there, relation))
                };
                if group.iter().any(|relation| fits(&relation)) {
                    continue;
                }
                let found =
                    group.iter().find_map(|relation| self.candidate_for(relation, &providers));
                let found = found.ok_or_else(|| ResolveError::Unsatisfied {
                    package: package.name.clone(),
                    wanted: group
                        .iter()
                        .map(|relation| relation.name.as_str())
                        .collect::<Vec<_>>()
                        .join(" or "),
                })?;
                if chosen.insert(&found.name, found).is_none() {
                    todo.push_back(found);
                }
            }
        }
        Ok(chosen.into_values().collect())
    }

    fn candidate_for<'a>(
        &'a self,
        relation: &Relation,
        providers: &HashMap<&str, Vec<(&'a Candidate, &Relation)>>,
    ) -> Option<&'a Candidate> {
        let real = self.packages.get(&relation.name);
        real.filter(|real| relation.admits(&real.version)).or_else(|| {
            let all = providers.get(relation.name.as_str())?;
            all.iter()
                .find(|(_, provided)| admits_provided(relation, provided))
                .map(|(found, _)| *found)
        })
    }
}

fn provides(package: &Candidate, relation: &Relation) -> bool {
    package
        .provides
        .iter()
        .any(|provided| provided.name == relation.name && admits_provided(relation, provided))
}

/// A provided name has a version only if it is stated, and without one satisfies no constraint.
fn admits_provided(relation: &Relation, provided: &Relation) -> bool {
    match &provided.constraint {
        Some((Operator::Exactly, version)) => relation.admits(version),
        _ => relation.constraint.is_none(),
    }
}

fn candidate(archive: &str, stanza: &Stanza<'_>) -> Result<Candidate, ResolveError> {
    let package = stanza.get("Package").unwrap_or("a stanza without a name").to_owned();
    let field = |field: &'static str| {
        stanza.get(field).ok_or_else(|| ResolveError::Malformed { package: package.clone(), field })
    };
    let relations = |field: &'static str| {
        relation::parse(stanza.get(field).unwrap_or_default())
            .map_err(|source| ResolveError::Relation { package: package.clone(), source })
    };
    let malformed = |field| ResolveError::Malformed { package: package.clone(), field };
    let mut depends = relations("Pre-Depends")?;
    depends.extend(relations("Depends")?);
    Ok(Candidate {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        archive: archive.to_owned(),
        path: field("Filename")?.to_owned(),
        bytes: field("Size")?.parse().map_err(|_| malformed("Size"))?,
        sha256: field("SHA256")?.parse().map_err(|_| malformed("SHA256"))?,
        depends,
        provides: relations("Provides")?.into_iter().flatten().collect(),
    })
}

#[cfg(test)]
mod tests;
