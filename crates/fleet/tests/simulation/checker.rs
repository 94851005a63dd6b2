//! Judges a history: what ran where, what clients were promised, and what the records have said.
//!
//! It judges any history, simulated or recorded:
//! - at any moment at most one machine runs under a name;
//! - a namespace never has more machines than its quota;
//! - nothing is reported lost while it runs, and what is lost is reported so;
//! - an acknowledged create is there, or was removed, or is reported lost;
//! - one idempotency key never has two sandboxes that were both promised and not lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fleet::ids::{Incarnation, Name, NodeId};

#[derive(Clone, Debug)]
pub(crate) enum Happened {
    Runs { node: NodeId, name: Name, incarnation: Incarnation },
    Stops { incarnation: Incarnation },
    Promised { request: Arc<str>, name: Name, incarnation: Incarnation },
    ReportedLost { incarnation: Incarnation },
    RecordRemoved { incarnation: Incarnation },
}

pub(crate) struct Checker {
    limits: BTreeMap<Arc<str>, u32>,
    running: BTreeMap<Name, (Incarnation, NodeId)>,
    names: HashMap<Incarnation, Name>,
    counts: BTreeMap<Arc<str>, u32>,
    promised: BTreeMap<Arc<str>, BTreeSet<Incarnation>>,
    reported_lost: BTreeSet<Incarnation>,
    removed: BTreeSet<Incarnation>,
    /// The last happenings, for who reads a failure.
    recent: Vec<(u64, Happened)>,
}

impl Checker {
    pub(crate) fn new(limits: BTreeMap<Arc<str>, u32>) -> Self {
        Self {
            limits,
            running: BTreeMap::new(),
            names: HashMap::new(),
            counts: BTreeMap::new(),
            promised: BTreeMap::new(),
            reported_lost: BTreeSet::new(),
            removed: BTreeSet::new(),
            recent: Vec::new(),
        }
    }

    pub(crate) fn running(&self, namespace: &str) -> u32 {
        self.counts.get(namespace).copied().unwrap_or_default()
    }

    /// Every incarnation that was promised.
    pub(crate) fn promised(&self) -> BTreeSet<Incarnation> {
        self.promised.values().flatten().copied().collect()
    }

    pub(crate) fn lost(&self) -> usize {
        self.reported_lost.len()
    }

    fn runs(&self, incarnation: Incarnation) -> bool {
        let name = self.names.get(&incarnation);
        name.and_then(|name| self.running.get(name)).is_some_and(|(runs, _)| *runs == incarnation)
    }

    pub(crate) fn see(&mut self, at: u64, happened: Happened) -> Result<(), String> {
        self.recent.push((at, happened.clone()));
        if self.recent.len() > 4_096 {
            self.recent.drain(..2_048);
        }
        let outcome = self.judge(happened);
        outcome.map_err(|why| {
            let last = self.recent.iter().rev().take(40).rev();
            let lines: Vec<_> = last.map(|(at, what)| format!("{at:>8} {what:?}")).collect();
            format!("{why}\n{}", lines.join("\n"))
        })
    }

    fn judge(&mut self, happened: Happened) -> Result<(), String> {
        match happened {
            Happened::Runs { node, name, incarnation } => {
                if let Some((other, at)) = self.running.get(&name) {
                    return Err(format!(
                        "{name} runs as {incarnation} at {node}, and as {other} at {at}"
                    ));
                }
                if self.reported_lost.contains(&incarnation) {
                    return Err(format!(
                        "{name}, {incarnation}, starts after it was reported lost"
                    ));
                }
                let count = self.counts.entry(name.namespace().clone()).or_default();
                *count += 1;
                if self.limits.get(name.namespace()).is_some_and(|limit| *count > *limit) {
                    return Err(format!("{count} machines run in {}", name.namespace()));
                }
                self.names.insert(incarnation, name.clone());
                self.running.insert(name, (incarnation, node));
            }
            Happened::Stops { incarnation } => {
                let name = self.names[&incarnation].clone();
                self.running.remove(&name);
                *self.counts.get_mut(name.namespace()).expect("it ran") -= 1;
            }
            Happened::Promised { request, name, incarnation } => {
                let promised = self.promised.entry(request.clone()).or_default();
                promised.insert(incarnation);
                let there: Vec<_> = promised
                    .iter()
                    .filter(|id| !self.reported_lost.contains(id) && !self.removed.contains(id))
                    .collect();
                if there.len() > 1 {
                    return Err(format!("{request} of {name} has {} sandboxes", there.len()));
                }
            }
            Happened::ReportedLost { incarnation } => {
                if self.runs(incarnation) {
                    return Err(format!("{incarnation} is reported lost, and runs"));
                }
                self.reported_lost.insert(incarnation);
            }
            Happened::RecordRemoved { incarnation } => {
                if self.runs(incarnation) {
                    return Err(format!("the record of {incarnation} is removed, and it runs"));
                }
                self.removed.insert(incarnation);
            }
        }
        Ok(())
    }

    /// When everything is whole again and some time has passed.
    pub(crate) fn end(&self) -> Result<(), String> {
        for (request, incarnations) in &self.promised {
            for id in incarnations {
                let known = self.reported_lost.contains(id) || self.removed.contains(id);
                if !self.runs(*id) && !known {
                    return Err(format!(
                        "{id} of {request} was promised, and nobody says where it is"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn the_checker_finds_a_name_with_two_owners() {
    let mut checker = Checker::new(BTreeMap::new());
    let name = Name::parse("a", "x").expect("a name");
    let runs = |node: &str, id| Happened::Runs {
        node: NodeId::parse(node).expect("a node"),
        name: name.clone(),
        incarnation: Incarnation(id),
    };
    checker.see(1, runs("n1", 1)).expect("one owner");
    checker.see(2, runs("n2", 2)).expect_err("two owners");
}

#[test]
fn the_checker_finds_a_promise_that_is_forgotten_and_one_that_is_denied() {
    let mut checker = Checker::new(BTreeMap::new());
    let name = Name::parse("a", "x").expect("a name");
    let (node, incarnation) = (NodeId::parse("n1").expect("a node"), Incarnation(1));
    checker.see(1, Happened::Runs { node, name: name.clone(), incarnation }).expect("it starts");
    checker.see(2, Happened::Promised { request: "r".into(), name, incarnation }).expect("it runs");
    checker.see(3, Happened::ReportedLost { incarnation }).expect_err("it runs");
    checker.see(4, Happened::Stops { incarnation }).expect("it ends");
    checker.end().expect_err("nobody has said so");
    checker.see(5, Happened::ReportedLost { incarnation }).expect("it is gone");
    checker.end().expect("it was said");
}
