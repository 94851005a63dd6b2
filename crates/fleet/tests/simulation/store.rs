//! The store as the simulation has it: one history of writes, compare-and-swap, and keys that run out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fleet::event::{Entry, Outcome, Scanned, Scope};
use fleet::ids::{Name, NodeId, Revision};
use fleet::records::{Key, Value};

#[derive(Default)]
pub(crate) struct Store {
    last: u64,
    entries: HashMap<Key, Entry>,
    /// What each key was before its last write: a server that lags still says so.
    before: HashMap<Key, Entry>,
    names: BTreeMap<NodeId, BTreeSet<Name>>,
    /// Those whose lost sandbox waits to be made again.
    pub(crate) waiting: BTreeSet<Name>,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
}

impl Store {
    pub(crate) fn write(&mut self, key: &Key, expected: Revision, value: Option<Value>) -> Outcome {
        let found = self.entries.entry(key.clone()).or_default();
        if found.revision != expected {
            return Outcome::Conflict;
        }
        self.last += 1;
        self.writes += 1;
        if let (Key::Name(name), Some(Value::Name(old))) = (key, &found.value)
            && let Some(names) = self.names.get_mut(&old.node)
        {
            names.remove(name);
        }
        if let (Key::Name(name), Some(Value::Name(new))) = (key, &value) {
            self.names.entry(new.node.clone()).or_default().insert(name.clone());
        }
        if let Key::Name(name) = key {
            match &value {
                Some(Value::Name(new)) if new.waits() => self.waiting.insert(name.clone()),
                _ => self.waiting.remove(name),
            };
        }
        let revision = Revision(self.last);
        let before = std::mem::replace(found, Entry { revision, value });
        self.before.insert(key.clone(), before);
        Outcome::Stored(revision)
    }

    /// The key runs out, if nobody has written it since.
    pub(crate) fn expire(&mut self, key: &Key, written: Revision) {
        if self.peek(key).revision == written {
            self.write(key, written, None);
        }
    }

    pub(crate) fn read(&mut self, key: &Key) -> Entry {
        self.reads += 1;
        self.peek(key)
    }

    /// Without being counted: nobody asks over the network.
    pub(crate) fn peek(&self, key: &Key) -> Entry {
        self.entries.get(key).cloned().unwrap_or_default()
    }

    /// As a server says it that has not seen the last write of the key.
    pub(crate) fn read_late(&mut self, key: &Key) -> Entry {
        match self.before.get(key) {
            Some(entry) => entry.clone(),
            None => self.read(key),
        }
    }

    pub(crate) fn scan(&self, scope: &Scope) -> Scanned {
        let record = |name: &Name| {
            let entry = self.entries.get(&Key::Name(name.clone())).expect("an indexed name");
            match &entry.value {
                Some(Value::Name(record)) => (name.clone(), entry.revision, record.clone()),
                _ => panic!("{name} is indexed and has no record"),
            }
        };
        match scope {
            Scope::Node(node) => {
                let own = self.names.get(node).into_iter().flatten();
                let others = self
                    .waiting
                    .iter()
                    .filter(|name| self.names.get(node).is_none_or(|names| !names.contains(*name)));
                own.chain(others).map(record).collect()
            }
            Scope::Namespace(namespace) => {
                let all = self.names.values().flatten();
                all.filter(|name| name.namespace() == namespace).map(record).collect()
            }
        }
    }

    pub(crate) fn nodes(&self) -> Vec<(NodeId, Value)> {
        let nodes = self.entries.iter().filter_map(|(key, entry)| match (key, &entry.value) {
            (Key::Node(id), Some(value)) => Some((id.clone(), value.clone())),
            _ => None,
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_by(|a, b| a.0.cmp(&b.0));
        nodes
    }
}
