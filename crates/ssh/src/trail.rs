//! One operation on its way into the audit log. It is recorded when this is dropped.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use access::audit::{Audit, Door, Entry, Outcome, Who};
use sandbox::refusal::Refusal;
use sandbox::{Registry, SandboxRef, Visit};
use serde_json::Value;

use crate::Options;
use crate::login::Login;

/// See the module's description.
pub struct Trail {
    audit: Audit,
    begun: Instant,
    entry: Option<Entry>,
}

impl Trail {
    pub fn begin(door: &Options, login: &Login, peer: SocketAddr, operation: &str) -> Self {
        let who = Who::Key { id: login.key(), name: login.grant.name.clone() };
        let entry = Entry {
            remote: Some(peer.to_string()),
            ..about(Entry::new(who, Door::Ssh, operation), &door.registry, &login.which)
        };
        Self { audit: door.audit.clone(), begun: Instant::now(), entry: Some(entry) }
    }

    /// Records that somebody was not let in.
    pub fn refuse(door: &Options, peer: SocketAddr) {
        let entry = Entry::new(Who::Anybody, Door::Ssh, "ssh_login");
        let (outcome, remote) = (Outcome::Refused, Some(peer.to_string()));
        door.audit.record(Entry { outcome, remote, ..entry });
    }

    /// Enters the sandbox, and wakes it first if it is asleep; unless nothing may be done without a record.
    pub async fn visit(&mut self, door: &Options, login: &Login) -> Result<Visit, String> {
        if let Err(error) = self.audit.admit() {
            self.end(Outcome::Refused, None);
            return Err(error.to_string());
        }
        let there = match &door.elsewhere {
            Some(elsewhere) => elsewhere.visit(&login.which, &login.grant).await,
            None => Ok(None),
        };
        match there {
            Ok(None) => {}
            Ok(Some((node, visit))) => {
                self.fact("node", node);
                return Ok(visit);
            }
            Err(refusal) => return Err(self.fail(Outcome::Refused, &refusal)),
        }
        match door.registry.visit(&login.which).await {
            Ok(visit) => {
                if let Some(woke_in) = visit.woke_in {
                    self.fact("woke_ms", millis(woke_in).max(1));
                }
                Ok(visit)
            }
            Err(error) => Err(self.fail(Outcome::Refused, &Refusal::from(&error))),
        }
    }

    /// The program that it starts, and its command where arguments are recorded.
    pub fn program(&mut self, program: &str, command: Option<String>) {
        if let Some(entry) = &mut self.entry {
            entry.program = Some(program.to_owned());
            entry.arguments = command.filter(|_| self.audit.arguments()).into_iter().collect();
        }
    }

    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(entry) = &mut self.entry {
            entry.facts.insert(name.to_owned(), value.into());
        }
    }

    /// Notes a failure, and returns its words for the client.
    pub fn fail(&mut self, outcome: Outcome, refusal: &Refusal) -> String {
        self.end(outcome, Some(refusal.code.name().to_owned()));
        refusal.message.clone()
    }

    fn end(&mut self, outcome: Outcome, code: Option<String>) {
        if let Some(entry) = &mut self.entry {
            (entry.outcome, entry.code) = (outcome, code);
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let duration_us = u64::try_from(self.begun.elapsed().as_micros()).ok();
            self.audit.record(Entry { duration_us, ..entry });
        }
    }
}

fn about(mut entry: Entry, registry: &Registry, which: &SandboxRef) -> Entry {
    entry.namespace = Some(which.namespace.to_string());
    entry.sandbox = Some(which.name.to_string());
    if let Ok(record) = registry.get(which) {
        entry.describe(record);
    }
    entry
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
