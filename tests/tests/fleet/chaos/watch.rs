//! What is seen from outside: which machines run, by the records on the hosts' disks and the processes of this
//! machine, and what the fleet has written about its names, in NATS.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::{self, kv};
use sandbox::record::StoredRecord;
use serde_json::Value;

use super::judge::{Incarnation, Life, Record, Written};

/// How often all records are looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
const BUCKET: &str = "burrow-sandboxes";
/// All that is written of a name in a run, and more.
const HISTORY: i64 = 64;
/// Longer than a run: what was removed does not come back as what it was before.
const MARKERS: Duration = Duration::from_secs(3_600);

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    now.as_millis() as u64
}

/// A machine's process, and what it was seen as.
#[derive(Clone)]
struct Seen {
    life: Life,
    process: machine::ProcessIdentity,
    runs: bool,
}

type Table = Arc<Mutex<BTreeMap<Incarnation, Seen>>>;

/// Looks at all hosts until it is dropped.
pub(super) struct Watch {
    seen: Table,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Of hosts by their names, with the directories of their state.
    pub(super) fn start(hosts: Vec<(String, PathBuf)>) -> Self {
        let (seen, is_over) = (Table::default(), Arc::new(AtomicBool::new(false)));
        let (table, over) = (Arc::clone(&seen), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                look(&hosts, &table);
                // Polled until it is over.
                thread::sleep(LOOK_PAUSE);
            }
        });
        Self { seen, is_over, thread: Some(thread) }
    }

    /// What has run until now.
    pub(super) fn lives(&self) -> BTreeMap<Incarnation, Life> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().map(|(id, seen)| (id.clone(), seen.life.clone())).collect()
    }

    /// What runs now.
    pub(super) fn running(&self) -> Vec<Incarnation> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|(_, seen)| seen.runs).map(|(id, _)| id.clone()).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(hosts: &[(String, PathBuf)], table: &Table) {
    let mut seen = table.lock().unwrap_or_else(PoisonError::into_inner);
    for seen in seen.values_mut().filter(|seen| seen.runs) {
        let before = now_ms();
        if seen.process.is_current() {
            seen.life.last_ms = before;
        } else {
            seen.runs = false;
        }
    }
    for (node, state) in hosts {
        for entry in fs::read_dir(state.join("boxes")).into_iter().flatten().flatten() {
            // One that is being made or removed has no whole record.
            let Ok(stored) = StoredRecord::read(&entry.path()) else { continue };
            let (record, Some(process)) = (stored.record, stored.trace.process) else { continue };
            let Some(incarnation) = record.incarnation.as_ref() else { continue };
            if seen.contains_key(incarnation.as_str()) || !process.is_current() {
                continue;
            }
            let now = now_ms();
            let life = Life {
                name: format!("{}.{}", record.namespace, record.name),
                node: node.clone(),
                id: record.id.to_string(),
                first_ms: now,
                last_ms: now,
            };
            seen.insert(incarnation.clone(), Seen { life, process, runs: true });
        }
    }
}

/// Makes the bucket of names before any bridge does, so that it keeps everything that is ever written there.
pub(super) async fn keep_history(urls: &str) {
    let mut made = Err(String::new());
    for _ in 0..60 {
        made = make_bucket(urls).await;
        if made.is_ok() {
            return;
        }
        // Polled: the servers choose a leader first.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    made.expect("the bucket of names is made");
}

async fn make_bucket(urls: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let client = async_nats::connect(urls.split(',').collect::<Vec<_>>());
    let client = client.await.map_err(|error| text(&error))?;
    let config = kv::Config {
        bucket: BUCKET.to_owned(),
        history: HISTORY,
        num_replicas: tests::cluster::SERVERS,
        limit_markers: Some(MARKERS),
        ..kv::Config::default()
    };
    let made = jetstream::new(client).create_key_value(config).await;
    made.map(drop).map_err(|error| text(&error))
}

/// Everything that was ever written about names.
pub(super) async fn read_history(urls: &str) -> Vec<Written> {
    let mut read = Err(String::new());
    for _ in 0..60 {
        read = try_read_history(urls).await;
        if read.is_ok() {
            break;
        }
        // Polled: the servers come back first.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    read.expect("the history of names is read")
}

async fn try_read_history(urls: &str) -> Result<Vec<Written>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let client = async_nats::connect(urls.split(',').collect::<Vec<_>>());
    let client = client.await.map_err(|error| text(&error))?;
    let stream = jetstream::new(client).get_stream(format!("KV_{BUCKET}")).await;
    let stream = stream.map_err(|error| text(&error))?;
    let state = stream.cached_info().state.clone();
    let mut found = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        let message = match stream.get_raw_message(sequence).await {
            Ok(message) => message,
            // Scans write barriers, of which only the newest are kept.
            Err(error) if text(&error).contains("no message found") => continue,
            Err(error) => return Err(text(&error)),
        };
        let key = message.subject.strip_prefix(&format!("$KV.{BUCKET}.")).unwrap_or_default();
        if key.starts_with("barrier.") || key.matches('.').count() != 1 {
            continue;
        }
        let at_ms = (message.time.unix_timestamp_nanos() / 1_000_000) as u64;
        let is_gone = message.headers.get("KV-Operation").is_some()
            || message.headers.get("Nats-Marker-Reason").is_some();
        let record = if is_gone { Some(Record::Removed) } else { parse(&message.payload) };
        let record = record.ok_or_else(|| format!("{key} has {:?}", message.payload))?;
        found.push(Written { at_ms, name: key.to_owned(), record });
    }
    Ok(found)
}

fn parse(payload: &[u8]) -> Option<Record> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let returns = value["returns"] == true;
    let incarnation = text("incarnation")?;
    match value["state"].as_str()? {
        "owned" => {
            let (node, request) = (text("node")?, text("request")?);
            Some(Record::Owned { incarnation, node, request, returns })
        }
        "lost" => Some(Record::Lost { incarnation, returns }),
        _ => None,
    }
}
