//! Clients of a fleet under chaos: each calls any gateway, repeats what got no answer at another one, and records
//! what it was answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fleet::random::Random;
use serde_json::{Value, json};
use tests::http::{Answer, Client};

use super::hosts::{FREE, NAMESPACES, SHARED};
use super::judge::{Command, Incarnation, Promise};
use super::watch::now_ms;

/// After this long a client tries elsewhere.
const PATIENCE: Duration = Duration::from_secs(4);
const ATTEMPTS: usize = 4;
/// Few names, so that they are made again and again.
const NAMES: u64 = 5;
/// Names of what is made again when it is lost, which is seldom removed.
const LASTING_NAMES: usize = 4;
/// Longer than a run.
const TTL_MS: u64 = 30 * 60 * 1_000;
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// What clients have done so far.
#[derive(Default)]
pub(super) struct Log {
    pub promises: Vec<Promise>,
    pub removals: Vec<(u64, String)>,
    /// Lost lives of which a client was answered that they are not made again, with the time of that answer.
    pub given_up: Vec<(u64, Incarnation)>,
    pub commands: BTreeMap<String, Command>,
    /// How often each kind of call got each status; 0 is no answer.
    pub answers: BTreeMap<(&'static str, u16), usize>,
    /// The sandboxes whose commands count themselves, by namespace and id.
    counting: Vec<(String, String)>,
    /// Answers that no client should get.
    pub wrong: Vec<String>,
}

pub(super) type SharedLog = Arc<Mutex<Log>>;

/// One of them.
pub(super) struct Caller {
    number: usize,
    random: Random,
    names: usize,
    /// The gateways.
    urls: Vec<String>,
    log: SharedLog,
    next: usize,
}

impl Caller {
    pub(super) fn new(number: usize, seed: u64, urls: Vec<String>, log: SharedLog) -> Self {
        let names = super::number("BURROW_CHAOS_NAMES", NAMES) as usize;
        Self { number, random: Random::new(seed), names, urls, log, next: 0 }
    }

    /// Until it is over.
    pub(super) fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match self.random.below(10) {
                0..=2 => self.create_anywhere(),
                3 | 4 => self.create_with_counter(),
                5..=7 => self.run_command(),
                8 => self.remove(),
                _ => self.look(),
            }
            // Thinks for a moment, as a client does.
            thread::sleep(Duration::from_millis(self.random.below(80) as u64));
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        change(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn call(
        &mut self,
        kind: &'static str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Option<Answer> {
        let url = &self.urls[self.random.below(self.urls.len())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let client = Client::new(url);
        let answer = client.try_send(method, path, headers, body.as_bytes(), PATIENCE);
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        self.with(|log| *log.answers.entry((kind, status)).or_default() += 1);
        answer
    }

    fn name(&mut self) -> (String, String) {
        let namespace = NAMESPACES[self.random.below(NAMESPACES.len())];
        (namespace.to_owned(), format!("s{}", self.random.below(self.names)))
    }

    fn lasting_name(&mut self) -> (String, String) {
        (FREE.to_owned(), format!("again{}", self.random.below(LASTING_NAMES)))
    }

    /// Of all that there may be.
    fn any_name(&mut self) -> (String, String) {
        if self.random.below(5) == 0 { self.lasting_name() } else { self.name() }
    }

    fn key(&mut self) -> String {
        self.next += 1;
        format!("c{}-{}", self.number, self.next)
    }

    /// Whether the answer is one after which nobody knows what has been done.
    fn is_unknown(answer: Option<&Answer>) -> bool {
        answer.is_none_or(|answer| answer.status >= 500)
    }

    /// A create that the fleet places, repeated under its idempotency key until it is answered. Half of them ask to be made
    /// again when they are lost.
    fn create_anywhere(&mut self) {
        let on_lost = if self.random.below(2) == 0 { "restart" } else { "lose" };
        let (namespace, name) =
            if on_lost == "restart" { self.lasting_name() } else { self.name() };
        let key = self.key();
        let headers = [JSON[0], ("idempotency-key", key.as_str())];
        let body = json!({ "namespace": namespace, "name": name, "on_lost": on_lost });
        for _ in 0..ATTEMPTS {
            let answer = self.call("create", "POST", "/v1/sandboxes", &headers, &body);
            if let Some(answer) = answer.as_ref().filter(|answer| answer.status == 201) {
                self.promised(answer, &namespace, &name, Some(key));
                return;
            }
            if !Self::is_unknown(answer.as_ref()) {
                return;
            }
        }
    }

    /// A create at the node that is asked, whose commands can count themselves on the host, and which has a time to live.
    fn create_with_counter(&mut self) {
        let (namespace, name) = self.name();
        let body =
            json!({ "namespace": namespace, "name": name, "workspace": SHARED, "ttl_ms": TTL_MS });
        let answer = self.call("create here", "POST", "/v1/sandboxes", &JSON, &body);
        if let Some(answer) = answer.filter(|answer| answer.status == 201) {
            let id = self.promised(&answer, &namespace, &name, None);
            self.with(|log| log.counting.push((namespace, id)));
        }
    }

    fn promised(
        &self,
        answer: &Answer,
        namespace: &str,
        name: &str,
        request: Option<String>,
    ) -> String {
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        let name = format!("{namespace}.{name}");
        let promise = Promise { at_ms: now_ms(), name, id: id.clone(), request };
        self.with(|log| log.promises.push(promise));
        id
    }

    /// A command under a name, for one life: by the sandbox's id, which its next life has not.
    fn run_command(&mut self) {
        let draw = self.random.draw() as usize;
        // Those that are older are gone as a rule.
        let found = self.with(|log| {
            let recent = log.counting.len().min(6);
            (recent > 0).then(|| log.counting[log.counting.len() - 1 - draw % recent].clone())
        });
        let Some((namespace, id)) = found else { return };
        let key = self.key();
        let path = format!("/v1/sandboxes/{namespace}/{id}/sessions");
        // It says itself that it runs, outside of its sandbox.
        let line = format!("echo {key} >>/workspace/ran");
        let body = json!({ "session": key, "argv": ["sh", "-c", line] });
        let command = Command { id, ..Command::default() };
        self.with(|log| log.commands.insert(key.clone(), command));
        for _ in 0..ATTEMPTS {
            let answer = self.call("run", "POST", &path, &JSON, &body);
            if answer.as_ref().is_some_and(|answer| answer.status == 201) {
                self.with(|log| {
                    log.commands.get_mut(&key).expect("it is there").is_acknowledged = true;
                });
                return;
            }
            if !Self::is_unknown(answer.as_ref()) {
                return;
            }
        }
    }

    fn remove(&mut self) {
        let (namespace, name) = self.any_name();
        let begun = now_ms();
        self.with(|log| log.removals.push((begun, format!("{namespace}.{name}"))));
        let path = format!("/v1/sandboxes/{namespace}/{name}?force=true");
        let answer = self.call("remove", "DELETE", &path, &[], &Value::Null);
        let Some(answer) = answer.filter(|answer| answer.status == 410) else { return };
        let body = answer.json();
        if body["hint"] == "it is not made again"
            && let Some(life) = body["details"]["incarnation"].as_str()
        {
            self.with(|log| log.given_up.push((now_ms(), life.to_owned())));
        }
    }

    /// A look says that it is there, that it never was, that it is lost with its node, or that nobody knows.
    fn look(&mut self) {
        let (namespace, name) = self.any_name();
        let path = format!("/v1/sandboxes/{namespace}/{name}");
        let Some(answer) = self.call("look", "GET", &path, &[], &Value::Null) else { return };
        let is_plain = match answer.status {
            200 => answer.json()["name"] == name.as_str(),
            404 | 500.. => true,
            410 => {
                let body = answer.json();
                body["details"]["reason"] == "lost" || body["details"]["node"].is_string()
            }
            _ => false,
        };
        if !is_plain {
            let what = format!("a look at {namespace}/{name}: {} {}", answer.status, answer.text());
            self.with(|log| log.wrong.push(what));
        }
    }
}
