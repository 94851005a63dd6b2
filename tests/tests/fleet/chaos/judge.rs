//! Judges what has happened: what clients were answered, what ran where, and what the fleet has written about its
//! names, each with its time. It knows no bridge and no NATS.
//!
//! - At any moment at most one machine runs under a name, and only the one that owns it.
//! - An acknowledged create runs, or was removed by somebody, or the fleet reports it lost.
//! - Nothing runs after it was reported lost, or its record removed.
//! - One idempotency key never has two sandboxes that were both acknowledged and are still there.
//! - A namespace never has more machines than its quota.
//! - No time to live is over: the shortest is longer than a run.
//! - A command runs once, and one that was acknowledged has run.
//! - What is made again when it is lost is made again once, as another life and another sandbox, after it was written that it
//!   is lost and before somebody has removed it; until then it is reported lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How long before its effect a removal may have begun.
const CALL_MS_MAX: u64 = 10_000;

/// A name of the fleet, as `namespace.name`.
pub(super) type Name = String;
/// Of the fleet.
pub(super) type Incarnation = String;

/// What one write has made of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Owned {
        incarnation: Incarnation,
        node: String,
        request: String,
        /// It is made again when it is lost.
        returns: bool,
    },
    Lost {
        incarnation: Incarnation,
        returns: bool,
    },
    Removed,
}

/// A write to the fleet's bucket of names. Times are milliseconds since the epoch, of one clock.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub at_ms: u64,
    pub name: Name,
    pub record: Record,
}

/// A machine, as it was seen from outside: it certainly ran from `first_ms` to `last_ms`.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub name: Name,
    pub node: String,
    /// Of the sandbox.
    pub id: String,
    pub first_ms: u64,
    pub last_ms: u64,
}

/// A create that was answered with success.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    pub at_ms: u64,
    pub name: Name,
    pub id: String,
    /// Its idempotency key, if it had one.
    pub request: Option<String>,
}

/// A command that clients have asked for, perhaps several times.
#[derive(Clone, Debug, Default)]
pub(super) struct Command {
    /// Of the sandbox that it was for.
    pub id: String,
    pub is_acknowledged: bool,
    /// How often it has counted itself.
    pub times: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub writes: Vec<Written>,
    pub lives: BTreeMap<Incarnation, Life>,
    /// Those that ran when all was over.
    pub running: BTreeSet<Incarnation>,
    /// The sandboxes that their node says to have stopped, by their ids, with the reason: it has come back before others
    /// could say that it is gone.
    pub stopped: BTreeMap<String, String>,
    pub promises: Vec<Promise>,
    /// When a client has begun to remove what has a name.
    pub removals: Vec<(u64, Name)>,
    /// Lost lives that are not made again, as a client was answered then.
    pub given_up: Vec<(u64, Incarnation)>,
    pub commands: BTreeMap<String, Command>,
    pub quotas: BTreeMap<String, usize>,
}

/// From when to when a name was an incarnation's, and how that ended.
#[derive(Clone, Debug)]
struct Tenure {
    name: Name,
    node: String,
    request: String,
    returns: bool,
    from_ms: u64,
    /// When, and whether it was lost.
    end: Option<(u64, bool)>,
}

impl Tenure {
    /// The lost life that it was made again after.
    fn follows(&self) -> Option<&str> {
        self.request.strip_prefix("return:")?.split(':').next()
    }
}

impl History {
    /// All that is wrong; nothing if the list is empty.
    pub(super) fn judge(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let tenures = self.tenures(&mut wrong);
        self.judge_lives(&tenures, &mut wrong);
        self.judge_promises(&tenures, &mut wrong);
        self.judge_quotas(&mut wrong);
        self.judge_returns(&tenures, &mut wrong);
        for (id, reason) in self.stopped.iter().filter(|(_, reason)| reason.starts_with("expired"))
        {
            wrong.push(format!("{id} {reason}, which is longer than a run"));
        }
        for (command, Command { id, is_acknowledged, times }) in &self.commands {
            if *times > 1 {
                wrong.push(format!("the command {command} in {id} ran {times} times"));
            }
            if *is_acknowledged && *times == 0 && self.is_running(id) {
                wrong.push(format!("the command {command} in {id} was acknowledged and never ran"));
            }
        }
        wrong
    }

    fn is_running(&self, id: &str) -> bool {
        let mut running = self.running.iter().filter_map(|life| self.lives.get(life));
        running.any(|life| life.id == id)
    }

    /// The writes in their order, in which an owner follows another only after that has gone.
    fn tenures(&self, wrong: &mut Vec<String>) -> BTreeMap<Incarnation, Tenure> {
        let mut tenures: BTreeMap<Incarnation, Tenure> = BTreeMap::new();
        let mut owners: BTreeMap<&Name, Incarnation> = BTreeMap::new();
        for Written { at_ms, name, record } in &self.writes {
            let before = owners.get(name).cloned();
            match record {
                Record::Owned { incarnation, node, request, returns } => {
                    if tenures.get(incarnation).is_some_and(|known| known.end.is_some()) {
                        wrong.push(format!("{incarnation} has {name} again at {at_ms}"));
                    }
                    if let Some(before) = before.filter(|before| before != incarnation) {
                        wrong.push(format!(
                            "{name} is given to {incarnation} while it is {before}'s, at {at_ms}"
                        ));
                    }
                    owners.insert(name, incarnation.clone());
                    tenures.entry(incarnation.clone()).or_insert_with(|| Tenure {
                        name: name.clone(),
                        node: node.clone(),
                        request: request.clone(),
                        returns: *returns,
                        from_ms: *at_ms,
                        end: None,
                    });
                }
                Record::Lost { .. } | Record::Removed => {
                    let is_lost = matches!(record, Record::Lost { .. });
                    let ended = before.and_then(|before| tenures.get_mut(&before));
                    if let Some(tenure) = ended {
                        tenure.end.get_or_insert((*at_ms, is_lost));
                    }
                    owners.remove(name);
                }
            }
        }
        tenures
    }

    fn judge_lives(&self, tenures: &BTreeMap<Incarnation, Tenure>, wrong: &mut Vec<String>) {
        for (incarnation, life) in &self.lives {
            let Some(tenure) = tenures.get(incarnation) else {
                wrong.push(format!("{incarnation} of {} runs and never owned it", life.name));
                continue;
            };
            if tenure.name != life.name || tenure.node != life.node {
                wrong.push(format!("{incarnation} is {tenure:?} and runs as {life:?}"));
            }
            if life.first_ms < tenure.from_ms {
                wrong.push(format!("{incarnation} of {} ran before it owned it", life.name));
            }
            if let Some((at_ms, is_lost)) = tenure.end.filter(|(at_ms, _)| *at_ms < life.last_ms) {
                let what = if is_lost { "reported lost" } else { "removed" };
                let after = life.last_ms - at_ms;
                wrong.push(format!(
                    "{incarnation} of {} was {what} and ran {after} ms later",
                    life.name
                ));
            }
        }
        let mut by_name: BTreeMap<&Name, Vec<(&Incarnation, &Life)>> = BTreeMap::new();
        for (incarnation, life) in &self.lives {
            by_name.entry(&life.name).or_default().push((incarnation, life));
        }
        for (name, mut lives) in by_name {
            lives.sort_by_key(|(_, life)| life.first_ms);
            for pair in lives.windows(2) {
                let [(one, earlier), (other, later)] = pair else { continue };
                if later.first_ms < earlier.last_ms {
                    wrong
                        .push(format!("{name} runs as {one} and as {other} at {}", later.first_ms));
                }
            }
        }
    }

    fn judge_promises(&self, tenures: &BTreeMap<Incarnation, Tenure>, wrong: &mut Vec<String>) {
        let mut by_request: BTreeMap<&str, BTreeSet<&Incarnation>> = BTreeMap::new();
        for promise in &self.promises {
            let Promise { name, id, request, .. } = promise;
            let Some((incarnation, tenure)) = self.tenure_of(promise, tenures) else {
                wrong.push(format!("{promise:?}: nobody has ever owned that"));
                continue;
            };
            match tenure.end {
                None if !self.running.contains(incarnation) && !self.stopped.contains_key(id) => {
                    wrong.push(format!("{promise:?}: {incarnation} is gone and nobody says so"));
                }
                Some((at_ms, false)) => {
                    let mut removals = self.removals.iter();
                    if !removals.any(|(begun, of)| of == name && *begun <= at_ms) {
                        wrong
                            .push(format!("{promise:?}: nobody removed {incarnation}, and it was"));
                    }
                }
                None | Some((_, true)) => {}
            }
            if let Some(request) = request.as_deref().filter(|_| tenure.end.is_none()) {
                by_request.entry(request).or_default().insert(incarnation);
            }
        }
        for (request, incarnations) in by_request.iter().filter(|(_, all)| all.len() > 1) {
            wrong.push(format!("{request} has {incarnations:?}"));
        }
    }

    /// What a promise is about. A create that is repeated under its key may have had the name before, and have failed: it is
    /// the one whose machine was seen, or the last one of the key if no machine was.
    fn tenure_of<'a>(
        &self,
        promise: &Promise,
        tenures: &'a BTreeMap<Incarnation, Tenure>,
    ) -> Option<(&'a Incarnation, &'a Tenure)> {
        let Promise { at_ms, name, id, request } = promise;
        let is_it = |tenure: &Tenure| {
            let has_key = |key: &String| tenure.request.ends_with(&format!(":{key}"));
            tenure.name == *name && request.as_ref().is_none_or(has_key)
        };
        if let Some((life, _)) = self.lives.iter().find(|(_, life)| life.id == *id) {
            return tenures.get_key_value(life).filter(|(_, tenure)| is_it(tenure));
        }
        let unseen = tenures.iter().filter(|(life, tenure)| {
            request.is_some() && is_it(tenure) && !self.lives.contains_key(*life)
        });
        unseen.filter(|(_, tenure)| tenure.from_ms <= *at_ms).max_by_key(|(_, it)| it.from_ms)
    }

    fn judge_returns(&self, tenures: &BTreeMap<Incarnation, Tenure>, wrong: &mut Vec<String>) {
        let mut ids: BTreeMap<&str, &Incarnation> = BTreeMap::new();
        for (incarnation, life) in &self.lives {
            if let Some(other) = ids.insert(&life.id, incarnation) {
                wrong.push(format!("{other} and {incarnation} are both the sandbox {}", life.id));
            }
        }
        let mut successors: BTreeMap<&str, Vec<&Incarnation>> = BTreeMap::new();
        for (incarnation, tenure) in tenures {
            let Some(before) = tenure.follows() else { continue };
            successors.entry(before).or_default().push(incarnation);
            let is_of_one_that_was_lost = tenures.get(before).is_some_and(|lost| {
                let was_lost =
                    lost.end.is_some_and(|(at, is_lost)| is_lost && at <= tenure.from_ms);
                was_lost && lost.returns && lost.name == tenure.name
            });
            if !is_of_one_that_was_lost {
                wrong.push(format!(
                    "{incarnation} follows {before}, which was not lost: {tenure:?}"
                ));
            }
            if self.given_up.iter().any(|(at, of)| of == before && *at < tenure.from_ms) {
                wrong.push(format!("{incarnation} follows {before}, which was given up before"));
            }
        }
        for (before, all) in &successors {
            let ran = all.iter().filter(|incarnation| self.lives.contains_key(**incarnation));
            let first =
                all.iter().filter(|incarnation| !tenures[**incarnation].request[7..].contains(':'));
            if ran.count() > 1 || first.count() > 1 {
                wrong.push(format!("{before} was made again as each of {all:?}"));
            }
        }
        // The last of a name: where nothing is left of one that was to be made again, somebody has removed it.
        let mut last: BTreeMap<&Name, (&Incarnation, &Tenure)> = BTreeMap::new();
        for (incarnation, tenure) in tenures {
            let known = last.entry(&tenure.name).or_insert((incarnation, tenure));
            if tenure.from_ms > known.1.from_ms {
                *known = (incarnation, tenure);
            }
        }
        for (name, (incarnation, tenure)) in last {
            let (Some(before), Some((at_ms, false))) = (tenure.follows(), tenure.end) else {
                continue;
            };
            let lost_ms = tenures.get(before).and_then(|lost| lost.end).map_or(0, |(at, _)| at);
            let mut removals = self.removals.iter();
            if !removals.any(|(begun, of)| {
                of == name && (lost_ms.saturating_sub(CALL_MS_MAX)..=at_ms).contains(begun)
            }) {
                wrong.push(format!(
                    "{before} of {name} is forgotten: {incarnation} is gone, and nobody removed it"
                ));
            }
        }
    }

    /// How many were made again and have run, and whether one waits for that now.
    pub(super) fn returns(&self) -> (usize, bool) {
        let tenures = self.tenures(&mut Vec::new());
        let again = tenures.iter().filter(|(incarnation, tenure)| {
            tenure.follows().is_some() && self.lives.contains_key(*incarnation)
        });
        let mut last = BTreeMap::new();
        for written in &self.writes {
            last.insert(&written.name, &written.record);
        }
        let is_given_up = |life: &Incarnation| self.given_up.iter().any(|(_, of)| of == life);
        let waits = last.values().any(|record| {
            matches!(record, Record::Lost { incarnation, returns: true } if !is_given_up(incarnation))
        });
        (again.count(), waits)
    }

    fn judge_quotas(&self, wrong: &mut Vec<String>) {
        for (namespace, limit) in &self.quotas {
            let prefix = format!("{namespace}.");
            let of_it = self.lives.values().filter(|life| life.name.starts_with(&prefix));
            let mut changes: Vec<(u64, i64)> = of_it
                .flat_map(|life| [(life.first_ms, 1), (life.last_ms.max(life.first_ms), -1)])
                .collect();
            // At one moment what ends comes first: it was seen to run at most until then.
            changes.sort_unstable();
            let (mut count, mut most) = (0_i64, 0);
            for (_, change) in changes {
                count += change;
                most = most.max(count);
            }
            if most > *limit as i64 {
                wrong.push(format!(
                    "{most} machines ran at once in {namespace}, limited to {limit}"
                ));
            }
        }
    }

    /// Everything of one name, for who reads a failure.
    pub(super) fn of_name(&self, name: &str) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for written in self.writes.iter().filter(|written| written.name == name) {
            lines.push((written.at_ms, format!("{:?}", written.record)));
        }
        for (incarnation, life) in self.lives.iter().filter(|(_, life)| life.name == name) {
            lines.push((life.first_ms, format!("{incarnation} is seen to run at {}", life.node)));
            lines.push((life.last_ms, format!("{incarnation} is seen for the last time")));
        }
        for promise in self.promises.iter().filter(|promise| promise.name == name) {
            lines.push((promise.at_ms, format!("{promise:?}")));
        }
        for (at_ms, of) in self.removals.iter().filter(|(_, of)| of == name) {
            lines.push((*at_ms, format!("somebody removes {of}")));
        }
        lines.sort();
        lines.iter().fold(String::new(), |mut text, (at_ms, line)| {
            let _ = writeln!(text, "{at_ms} {line}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(at_ms: u64, record: Record) -> Written {
        Written { at_ms, name: "a.x".into(), record }
    }

    fn owned(incarnation: &str) -> Record {
        let request = format!("key:{incarnation}");
        let incarnation = incarnation.into();
        Record::Owned { incarnation, node: "n1".into(), request, returns: true }
    }

    fn life(id: &str, first_ms: u64, last_ms: u64) -> Life {
        Life { name: "a.x".into(), node: "n1".into(), id: id.into(), first_ms, last_ms }
    }

    /// One sandbox that was promised, ran and was reported lost, and the next one of its name, which runs.
    fn sound() -> History {
        let lost = Record::Lost { incarnation: "i1".into(), returns: true };
        let promise = |at_ms, id: &str| Promise {
            at_ms,
            name: "a.x".into(),
            id: id.into(),
            request: Some(id.replace('b', "i")),
        };
        History {
            writes: vec![written(1, owned("i1")), written(50, lost), written(60, owned("i2"))],
            lives: [("i1".to_owned(), life("b1", 5, 40)), ("i2".to_owned(), life("b2", 65, 90))]
                .into(),
            running: ["i2".to_owned()].into(),
            promises: vec![promise(6, "b1"), promise(66, "b2")],
            commands: [(
                "c".to_owned(),
                Command { id: "b2".into(), is_acknowledged: true, times: 1 },
            )]
            .into(),
            quotas: [("a".to_owned(), 1)].into(),
            ..History::default()
        }
    }

    #[test]
    fn a_sound_history_has_nothing_wrong() {
        assert_eq!(sound().judge(), Vec::<String>::new());
    }

    #[test]
    fn a_create_that_failed_before_it_was_repeated_is_not_the_one_that_was_promised() {
        let mut history = sound();
        let Record::Owned { incarnation, .. } = &mut history.writes[0].record else {
            unreachable!("it is owned")
        };
        *incarnation = "i0".into();
        let again = written(2, owned("i1"));
        let lost = written(50, Record::Lost { incarnation: "i1".into(), returns: true });
        history.writes.splice(1..2, [written(2, Record::Removed), again, lost]);
        history.lives.get_mut("i1").expect("it is").first_ms = 6;
        assert_eq!(history.judge(), Vec::<String>::new());
        history.promises[0].id = "b9".into();
        finds_in(&history, "nobody removed i0");
    }

    fn finds(words: &str, change: impl FnOnce(&mut History)) {
        let mut history = sound();
        change(&mut history);
        finds_in(&history, words);
    }

    fn finds_in(history: &History, words: &str) {
        let wrong = history.judge();
        assert!(wrong.iter().any(|line| line.contains(words)), "not found: {words}: {wrong:?}");
    }

    /// The second life is made again after the first.
    fn again(history: &mut History, request: &str) {
        history.promises.pop();
        if let Record::Owned { request: known, .. } = &mut history.writes[2].record {
            *known = request.to_owned();
        }
    }

    #[test]
    fn each_kind_of_wrong_about_what_is_made_again_is_found() {
        let mut history = sound();
        again(&mut history, "return:i1");
        assert_eq!((history.judge(), history.returns()), (Vec::<String>::new(), (1, false)));
        finds("follows i0, which was not lost", |history| again(history, "return:i0"));
        finds("follows i1, which was not lost", |history| {
            again(history, "return:i1");
            if let Record::Owned { returns, .. } = &mut history.writes[0].record {
                *returns = false;
            }
        });
        finds("which was given up before", |history| {
            again(history, "return:i1");
            history.given_up.push((55, "i1".into()));
        });
        finds("are both the sandbox b1", |history| {
            history.lives.get_mut("i2").expect("it is").id = "b1".into();
        });
        finds("i1 has a.x again", |history| history.writes.push(written(70, owned("i1"))));
        finds("i1 was made again as each of", |history| {
            again(history, "return:i1");
            history.writes.push(written(92, Record::Removed));
            history.writes.push(written(93, owned("i3")));
            if let Record::Owned { request, .. } = &mut history.writes[4].record {
                *request = "return:i1:draw".into();
            }
            history.lives.insert("i3".into(), life("b3", 94, 99));
        });
        finds("i1 of a.x is forgotten", |history| {
            again(history, "return:i1");
            history.writes.push(written(92, Record::Removed));
        });
    }

    #[test]
    fn each_kind_of_wrong_is_found() {
        finds("while it is", |history| drop(history.writes.remove(1)));
        finds("runs as", |history| history.lives.get_mut("i1").expect("it is").last_ms = 70);
        finds("was reported lost and ran 20 ms later", |history| {
            history.lives.get_mut("i1").expect("it is").last_ms = 70;
        });
        finds("2 machines ran at once", |history| {
            history.lives.get_mut("i1").expect("it is").last_ms = 70;
        });
        finds("before it owned", |history| history.writes[2].at_ms = 66);
        finds("never owned it", |history| {
            history.lives.insert("i3".into(), life("b3", 95, 99));
        });
        finds("gone and nobody says so", |history| history.running.clear());
        finds("nobody removed", |history| history.writes[1].record = Record::Removed);
        finds("nobody has ever owned", |history| history.promises[0].id = "b9".into());
        finds("b2 expired", |history| {
            history.stopped.insert("b2".into(), "expired: it reached its time to live".into());
        });
        finds("ran 2 times", |history| {
            history.commands.get_mut("c").expect("it is").times = 2;
        });
        finds("acknowledged and never ran", |history| {
            history.commands.get_mut("c").expect("it is").times = 0;
        });
    }
}
