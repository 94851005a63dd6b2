//! The thread that writes the stream: it gives the offsets, keeps the logs within their bounds, and
//! compares what they know with the sandboxes that there are.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::limits::{
    BYTES_MAX, IDLE_PAUSE, NAMESPACES_MAX, QUEUE_MAX, RETRY_PAUSE, SEGMENTS_MAX, SYNC_PAUSE,
};
use super::namespace_log::NamespaceLog;
use super::reader::namespaces;
use super::{Dropped, Ends, Trouble};
use host::instant::now_ms;
use host::journal::Queue;
use host::paths::{make_private_directory, write_durably};
use sandbox::event::{Facts, Kind, of_change};
use sandbox::{Name, Phase, Record, SandboxId};

/// The file with the first offset of namespaces that begin: above all that were given to one whose log
/// was removed, so that no offset comes twice.
const FLOOR: &str = "floor";

/// The cause of a removal that was found later.
const FOUND_GONE: &str = "an earlier bridge ended before it recorded this";

/// What the thread is handed.
pub enum Item {
    Happened(Box<Happened>),
    /// The sandboxes that there are.
    Present(Vec<Record>),
}

/// Something that has happened to a sandbox.
pub struct Happened {
    pub at_ms: u64,
    pub namespace: Name,
    pub sandbox: Name,
    pub id: SandboxId,
    pub kind: Kind,
    pub facts: Facts,
}

pub struct Writer {
    directory: PathBuf,
    logs: HashMap<Name, NamespaceLog>,
    floor: u64,
    ends: watch::Sender<Ends>,
}

impl Writer {
    pub fn open(directory: &Path, ends: watch::Sender<Ends>) -> io::Result<Self> {
        make_private_directory(directory)?;
        let floor = fs::read_to_string(directory.join(FLOOR)).ok();
        let floor = floor.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        let mut logs = HashMap::new();
        for namespace in namespaces(directory)? {
            let log = NamespaceLog::open(&directory.join(namespace.as_str()), floor)?;
            logs.insert(namespace, log);
        }
        let writer = Self { directory: directory.to_owned(), logs, floor, ends };
        writer.publish();
        Ok(writer)
    }

    /// Writes what comes until the queue ends.
    pub fn run(mut self, queue: &Queue<Item>, dropped: &Dropped, trouble: &Trouble) {
        let mut items = Vec::new();
        let mut was_failing = false;
        loop {
            let pause = if self.logs.values().any(NamespaceLog::is_unsynced) {
                SYNC_PAUSE
            } else {
                IDLE_PAUSE
            };
            let pause = if was_failing { RETRY_PAUSE } else { pause };
            let is_ending = queue.take(&mut items, pause);
            let written = self.turn(&mut items, dropped, is_ending);
            self.publish();
            match &written {
                Ok(()) if was_failing => trouble("events can be written again".to_owned()),
                Err(error) if !was_failing => {
                    trouble(format!("events cannot be written: {error}"));
                }
                _ => {}
            }
            was_failing = written.is_err();
            match (is_ending, was_failing) {
                (true, true) => {
                    trouble("events were lost when this bridge ended".to_owned());
                    return;
                }
                (true, false) => return,
                (false, true) => std::thread::sleep(RETRY_PAUSE),
                (false, false) => queue.gather(),
            }
        }
    }

    /// Takes all items, and writes as much as can be written.
    fn turn(
        &mut self,
        items: &mut Vec<Item>,
        dropped: &Dropped,
        is_ending: bool,
    ) -> io::Result<()> {
        debug_assert!(items.len() <= QUEUE_MAX, "the queue is bounded");
        let mut done = Ok(());
        for item in items.drain(..) {
            match item {
                Item::Happened(happened) => {
                    let Happened { at_ms, namespace, sandbox, id, kind, facts } = *happened;
                    match self.log(&namespace) {
                        Ok(log) => log.add(at_ms, kind, (sandbox, id), false, facts),
                        Err(error) => {
                            dropped.count(namespace);
                            done = Err(error);
                        }
                    }
                }
                Item::Present(present) => done = done.and(self.settle(present)),
            }
        }
        if done.is_ok() {
            for (namespace, count) in dropped.take() {
                match self.log(&namespace) {
                    Ok(log) => log.count_lost(count),
                    Err(error) => done = Err(error),
                }
            }
        }
        for log in self.logs.values_mut().filter(|log| log.is_pending()) {
            let flushed = log.flush();
            if flushed.is_ok() {
                log.say_lost(now_ms());
            }
            done = done.and(flushed).and(log.flush());
        }
        for log in self.logs.values_mut() {
            done = done.and(log.sync(is_ending));
        }
        done.and(self.shorten())
    }

    /// The log of a namespace, which is made if there is none.
    fn log(&mut self, namespace: &Name) -> io::Result<&mut NamespaceLog> {
        if !self.logs.contains_key(namespace) {
            self.make_room()?;
            let directory = self.directory.join(namespace.as_str());
            self.logs.insert(namespace.clone(), NamespaceLog::open(&directory, self.floor)?);
        }
        let log = self.logs.get_mut(namespace);
        log.ok_or_else(|| io::Error::other("a log that was just made is gone"))
    }

    /// Removes the log of the namespace that has had no sandbox and no event for longest, if there are too
    /// many.
    fn make_room(&mut self) -> io::Result<()> {
        if self.logs.len() < NAMESPACES_MAX {
            return Ok(());
        }
        let idle = self.logs.iter().filter(|(_, log)| log.is_empty());
        let oldest = idle.min_by_key(|(_, log)| log.used).map(|(name, _)| name.clone());
        let Some((name, log)) = oldest.and_then(|name| self.logs.remove_entry(&name)) else {
            return Err(io::Error::other("too many namespaces have events"));
        };
        let floor = self.floor.max(log.settled());
        write_durably(&self.directory, FLOOR, floor.to_string().as_bytes())?;
        self.floor = floor;
        if let Err(error) = log.remove() {
            // What is left of it is found again.
            let directory = self.directory.join(name.as_str());
            self.logs.insert(name, NamespaceLog::open(&directory, floor)?);
            return Err(error);
        }
        Ok(())
    }

    /// Keeps the bounds of each log and of all.
    fn shorten(&mut self) -> io::Result<()> {
        for log in self.logs.values_mut() {
            while log.segments() > SEGMENTS_MAX {
                log.shorten()?;
            }
        }
        let mut bytes: u64 = self.logs.values().map(NamespaceLog::bytes).sum();
        while bytes > BYTES_MAX {
            let long = self.logs.values_mut().filter(|log| log.segments() > 1);
            let Some(longest) = long.max_by_key(|log| log.bytes()) else { return Ok(()) };
            let before = longest.bytes();
            longest.shorten()?;
            bytes -= before - longest.bytes();
        }
        Ok(())
    }

    /// Adds what the sandboxes that there are say has happened, and no event does.
    fn settle(&mut self, present: Vec<Record>) -> io::Result<()> {
        let at_ms = now_ms();
        let ids: HashSet<SandboxId> = present.iter().map(|record| record.id.clone()).collect();
        for log in self.logs.values_mut() {
            let gone = log.known().iter().filter(|(id, _)| !ids.contains(*id));
            let gone: Vec<_> = gone.map(|(id, (name, _))| (name.clone(), id.clone())).collect();
            for of in gone {
                log.add(at_ms, Kind::Removed, of, true, Facts::cause(FOUND_GONE));
            }
        }
        for record in present {
            let log = self.log(&record.namespace)?;
            let of = (record.name.clone(), record.id.clone());
            let mut before = log.known().get(&record.id).map(|(_, phase)| *phase);
            if before.is_none() && log.is_complete {
                log.add(at_ms, Kind::Created, of.clone(), true, Facts::creation(&record));
                before = Some(Phase::Creating);
            }
            match before.map(|before| of_change(before, &record.state)) {
                Some(Some((kind, facts))) => log.add(at_ms, kind, of, true, facts),
                Some(None) => {}
                None => log.know(of.1, of.0, record.state.phase()),
            }
        }
        for log in self.logs.values_mut() {
            log.is_complete = true;
        }
        Ok(())
    }

    fn publish(&self) {
        let ends = self.logs.iter().map(|(name, log)| (name.clone(), log.settled()));
        let ends: Ends = ends.collect();
        self.ends.send_if_modified(|known| {
            let is_new = *known != ends;
            *known = ends;
            is_new
        });
    }
}
