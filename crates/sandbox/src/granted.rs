//! What a sandbox was given, as text for the audit log: its limits, its isolation, and what it may reach.
//! Values of secrets and of its environment are never included. Pure.

use serde_json::{Value, json};

use super::{Durability, OnIdle, OnLost, Record, RecordPolicy, Spec};
use crate::limits::GRANTED_RULES_MAX;

/// A name, and what was granted.
pub type Granted = (&'static str, Value);

impl Spec {
    /// What was requested. Defaults are not included: they follow from the operator's settings.
    pub fn requested(&self) -> Vec<Granted> {
        let mut words = vec![("machine", json!(self.machine().name()))];
        words.extend(self.scratch_bytes.map(|bytes| ("scratch_bytes", json!(bytes))));
        words.extend(self.pull.map(|pull| ("pull", json!(pull.to_string()))));
        words.extend(self.snapshot.as_ref().map(|name| ("snapshot", json!(name.as_str()))));
        words.extend(self.egress.iter().flat_map(|rules| of_rules(rules)));
        words.extend(of_bounds(self.memory_mib, self.cpu_millis()));
        words.extend(of_lives(self.ttl_ms, self.idle_ttl_ms, self.on_idle.unwrap_or_default()));
        words.extend(of_output(self.durability.unwrap_or_default()));
        words.extend(of_recording(self.record.unwrap_or_default()));
        words.extend(of_loss(self.on_lost.unwrap_or_default()));
        words.extend(
            (!self.node_labels.is_empty()).then(|| ("node_labels", json!(self.node_labels))),
        );
        words.extend(of_texts(self.user.as_deref(), self.workspace.as_deref(), self.mount));
        words
    }
}

impl Record {
    /// What was granted.
    pub fn granted(&self) -> Vec<Granted> {
        let machine = ("machine", json!(self.machine.name()));
        let mut words = vec![machine, ("scratch_bytes", json!(self.scratch_bytes))];
        words.extend(of_rules(&self.egress));
        words.extend(of_bounds(self.memory_mib, self.cpu_millis));
        words.extend(of_lives(self.ttl_ms, self.idle_ttl_ms, self.on_idle));
        words.extend(of_output(self.durability));
        words.extend(of_recording(self.record));
        words.extend(of_loss(self.on_lost));
        words.extend(of_texts(self.user.as_deref(), self.workspace.as_deref(), self.mounted));
        words
    }
}

/// The first rules, and how many more there are.
fn of_rules(rules: &[String]) -> Vec<Granted> {
    let first: Vec<_> = rules.iter().take(GRANTED_RULES_MAX).collect();
    let more = rules.len() - first.len();
    let mut words = vec![("egress", json!(first))];
    words.extend((more > 0).then(|| ("more_egress", json!(more))));
    words
}

fn of_bounds(memory_mib: Option<u64>, cpu_millis: Option<u32>) -> impl Iterator<Item = Granted> {
    let memory = memory_mib.map(|mib| ("memory_mib", json!(mib)));
    memory.into_iter().chain(cpu_millis.map(|millis| ("cpu_millis", json!(millis))))
}

fn of_output(durability: Durability) -> Option<Granted> {
    (!durability.is_off()).then(|| ("durability", json!(durability.name())))
}

fn of_recording(record: RecordPolicy) -> Option<Granted> {
    (!record.is_on()).then(|| ("record", json!(record.name())))
}

fn of_loss(on_lost: OnLost) -> Option<Granted> {
    (!on_lost.is_lose()).then(|| ("on_lost", json!(on_lost.name())))
}

fn of_lives(
    ttl_ms: Option<u64>,
    idle_ttl_ms: Option<u64>,
    on_idle: OnIdle,
) -> impl Iterator<Item = Granted> {
    let ttl = ttl_ms.map(|ms| ("ttl_ms", json!(ms)));
    let on_idle = (!on_idle.is_stop()).then(|| ("on_idle", json!(on_idle.name())));
    ttl.into_iter().chain(idle_ttl_ms.map(|ms| ("idle_ttl_ms", json!(ms)))).chain(on_idle)
}

fn of_texts(
    user: Option<&str>,
    workspace: Option<&str>,
    is_mounted: bool,
) -> impl Iterator<Item = Granted> {
    let user = user.map(|user| ("user", json!(user)));
    let workspace = workspace.map(|name| ("workspace", json!(name)));
    let mounted = is_mounted.then_some(("mounted", Value::Bool(true)));
    user.into_iter().chain(workspace).chain(mounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_cut_and_counted_and_the_environment_is_nobodys_business() {
        let mut spec = Spec::new("a".parse().unwrap());
        spec.env = vec![("TOKEN".to_owned(), "hunter2".to_owned())];
        spec.egress = Some((0..200).map(|number| format!("host-{number}.org")).collect());
        for words in
            [spec.requested(), Record::new("0123456789ab".parse().unwrap(), &spec, 7).granted()]
        {
            let of = |name: &str| words.iter().find(|(own, _)| *own == name).unwrap().1.clone();
            let count = of("egress").as_array().unwrap().len() as u64;
            assert_eq!(count + of("more_egress").as_u64().unwrap(), 200);
            assert_eq!(of("machine"), "process");
            assert!(!json!(words).to_string().contains("hunter2"));
        }
    }
}
