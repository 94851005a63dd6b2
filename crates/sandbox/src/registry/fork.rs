//! Forks a sandbox; see [`crate::fork`].
//!
//! The names of all forks are taken, and the caps asked, before anything starts. If one of them does not
//! start, none is left. A bridge that dies meanwhile leaves forks that are complete, and others that the
//! next bridge removes, because their records say that they were being created.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Registry;
use super::create::Prepared;
use crate::again::again;
use crate::changes;
use crate::commit::CommitError;
use crate::contents::{self, Contents, Reading};
use crate::fork::{ForkReport, ForkRequest, Forked, LeftBehind, Origin};
use crate::limits::{FORK_RETRY_PAUSE, FORK_STARTS_MAX, FORKS_MAX, SANDBOXES_MAX};
use crate::options::Defaults;
use crate::owner::Order;
use crate::{CarriedContexts, Event, Facts, Kind, Name, Record, SandboxError, SandboxRef, Spec};
use agent_client::guest::{Guest, Output};
use host::instant::now_ms;
use machine::{Capability, MachineError};
use protocol::FaultCode;
use protocol::limits::{FREEZE_WATCHDOG_MAX, NAME_BYTES_MAX};
use workspace::WORKSPACE;

impl Registry {
    /// Makes copies of a running sandbox, all or none. One that is asleep is woken. The work goes on if the
    /// caller stops waiting.
    pub async fn fork(
        &self,
        which: &SandboxRef,
        request: ForkRequest,
    ) -> Result<Forked, SandboxError> {
        let (registry, which) = (self.clone(), which.clone());
        let forking = tokio::spawn(async move { registry.fork_now(&which, request).await });
        forking.await.unwrap_or(Err(SandboxError::Stopping))
    }

    async fn fork_now(
        &self,
        which: &SandboxRef,
        request: ForkRequest,
    ) -> Result<Forked, SandboxError> {
        let count = if request.names.is_empty() { request.count } else { request.names.len() };
        if !(1..=FORKS_MAX).contains(&count) {
            let (value, max) = (count as u64, FORKS_MAX as u64);
            return Err(SandboxError::OutOfRange { what: "count", value, min: 1, max });
        }
        let machine = self.get(which)?.machine;
        let has_memory = machine.can(Capability::Snapshot);
        if !has_memory && !machine.sees_host() {
            return Err(SandboxError::Unsupported {
                what: "a fork of this sandbox",
                why: "its kind of machine has neither snapshots of memory nor a writable layer of this host",
                hint: "fork process sandboxes and virtual machines",
            });
        }
        if request.needs_memory && !has_memory {
            return Err(MachineError::lacks(machine, Capability::Snapshot, "be forked").into());
        }
        if has_memory && request.keeps_index {
            return Err(SandboxError::Unsupported {
                what: "a list of the files that change in a fork of this sandbox",
                why: "its kind of machine has its files on a disk of its own",
                hint: "fork it, run the command in the fork and look at the files there",
            });
        }
        // It stays awake until its forks run.
        let visit = self.visit(which).await?;
        let record = self.get(which)?;
        let mut forking = Forking { registry: self, record, request, count };
        let forked = if has_memory {
            forking.by_snapshot().await
        } else {
            forking.by_files(&visit.guest).await
        }?;
        let forks = forked.forks.iter().map(|fork| fork.name.clone()).collect();
        let facts = Box::new(Facts { forks, ..Facts::none() });
        let of = forking.record.subject();
        (self.0.events)(&Event::Happened { of, kind: Kind::Forked, facts });
        Ok(forked)
    }
}

/// A fork under way.
struct Forking<'a> {
    registry: &'a Registry,
    record: Record,
    request: ForkRequest,
    count: usize,
}

impl Forking<'_> {
    async fn by_snapshot(&mut self) -> Result<Forked, SandboxError> {
        let (registry, record) = (self.registry, &self.record);
        let which = record.which();
        if !record.secrets.is_empty() {
            return Err(SandboxError::HoldsSecrets { which });
        }
        let state = registry.0.directories(&record.id).state;
        let name = Name::generate().map_err(SandboxError::Draw)?;
        let mut draft = Box::new(registry.begin_snapshot(record, &state, name)?);
        let mut origin = Origin::of(record, now_ms());
        origin.snapshot = Some(Arc::new(draft.nameless()));
        let snapshot = registry.order(&which, |reply| Order::Snapshot { draft, reply }).await?;
        let mut spec = Spec { image: None, machine: None, ..self.spec(Vec::new()) };
        snapshot.fill(&mut spec)?;
        let prepared = self.prepare(&spec, &origin).await?;
        let forks = self.start(prepared, None).await?;
        let left = LeftBehind { workspace: self.record.workspace.clone(), ..LeftBehind::default() };
        let report = ForkReport { memory: true, frozen: true, left, ..ForkReport::default() };
        Ok(Forked { forks, report })
    }

    async fn by_files(&mut self, guest: &Guest) -> Result<Forked, SandboxError> {
        let which = self.record.which();
        let failed = |source| {
            let source = Box::new(source);
            SandboxError::Fork { which: which.clone(), source }
        };
        let mut left =
            self.left_behind(guest).await.map_err(|error| failed(CommitError::Read(error)))?;
        if self.request.carries_notebooks {
            self.registry.save_inside(&which).await?;
        }
        let layer = layer_when_thawed(guest).await;
        let (output, env) = layer.map_err(|error| failed(CommitError::Read(error)))?;
        // Before its programs are frozen.
        let origin = Origin::of(&self.record, now_ms());
        let prepared = self.prepare(&self.spec(self.kept(env)?), &origin).await?;
        let reading = read_layer(self.registry, &self.record, guest, output).await?;
        let forks = self.start(prepared, Some(&reading.contents)).await?;
        if self.request.keeps_index {
            self.keep_index(&forks, &reading.contents).await?;
        }
        let CarriedContexts { notebooks, contexts } = self.carry(&forks).await;
        left.contexts.retain(|context| !contexts.contains(context));
        let report = ForkReport {
            memory: false,
            frozen: reading.is_frozen,
            entries: reading.contents.tally.entries,
            bytes: reading.contents.tally.bytes,
            notebooks,
            left,
        };
        Ok(Forked { forks, report })
    }

    /// Lets each fork say later what has changed in it. If that cannot be, none is left.
    async fn keep_index(&self, forks: &[Record], contents: &Contents) -> Result<(), SandboxError> {
        let reader = contents.reader();
        let states: Vec<_> =
            forks.iter().map(|fork| self.registry.0.directories(&fork.id).state).collect();
        let keeping = tokio::task::spawn_blocking(move || {
            let index = changes::index(reader)?;
            states.iter().try_for_each(|state| changes::write_index(state, &index))
        });
        let kept = keeping.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let Err(error) = kept else { return Ok(()) };
        for fork in forks {
            let _ = self.registry.discard(&fork.which()).await;
        }
        let source = Box::new(CommitError::Disk(error));
        Err(SandboxError::Fork { which: self.record.which(), source })
    }

    /// Gives the forks the variables of notebooks.
    async fn carry(&self, forks: &[Record]) -> CarriedContexts {
        match self.registry.0.carrier.get().filter(|_| self.request.carries_notebooks) {
            None => CarriedContexts::default(),
            Some(carrier) => {
                let forks = forks.iter().map(Record::which).collect();
                carrier(self.record.clone(), forks).await
            }
        }
    }

    /// What runs in the original, by name.
    async fn left_behind(
        &self,
        guest: &Guest,
    ) -> Result<LeftBehind, agent_client::guest::GuestError> {
        let contexts = guest.contexts().await?;
        let contexts = contexts.into_iter().map(|info| info.context.to_string()).collect();
        let sessions = guest.sessions(0).await?.sessions.into_iter();
        let running = sessions.filter(|info| info.exit.is_none());
        let sessions = running.map(|info| format!("{}: {}", info.session, info.command)).collect();
        Ok(LeftBehind { contexts, sessions, workspace: self.record.workspace.clone() })
    }

    /// The variables that were asked for: not those of secrets, which are read again, and not those that each
    /// sandbox gets of the bridge.
    fn kept(&self, env: Vec<(String, String)>) -> Result<Vec<(String, String)>, SandboxError> {
        let record = &self.record;
        let namespace = record.namespace.as_str();
        let secrets = self.registry.0.secrets.variables(namespace, &record.secrets)?;
        let is_kept = |name: &String| record.env_names.contains(name) && !secrets.contains(name);
        Ok(env.into_iter().filter(|(name, _)| is_kept(name)).collect())
    }

    /// The specification of a fork, but for its name.
    fn spec(&self, env: Vec<(String, String)>) -> Spec {
        let (record, request) = (&self.record, &self.request);
        let mut spec = again(record, env);
        // A name may mean another image by now.
        spec.image = record.image_digest.map(|digest| digest.to_string()).or(spec.image);
        spec.pull = Some(image::Pull::Never);
        spec.hostname = None;
        spec.key.clone_from(&request.key);
        spec.ttl_ms = request.ttl_ms.or(spec.ttl_ms);
        spec.keep_stopped_ms = request.keep_stopped_ms.or(spec.keep_stopped_ms);
        // Two sandboxes that write changes back to one directory would undo each other's.
        if spec.workspace.take().is_some() && record.mounted {
            spec.workdir = spec.workdir.filter(|workdir| !workdir.starts_with(WORKSPACE));
        }
        spec.mount = false;
        // It would be made again without what it has of its original.
        (spec.on_lost, spec.follows) = (None, None);
        spec
    }

    /// Takes the names of all forks, or of none.
    async fn prepare(&self, spec: &Spec, origin: &Origin) -> Result<Vec<Prepared>, SandboxError> {
        let inner = &self.registry.0;
        let files =
            if self.request.is_operator { inner.files.for_operator() } else { inner.files.clone() };
        let mut prepared = Vec::with_capacity(self.count);
        if self.request.names.is_empty() {
            for number in 1..=SANDBOXES_MAX + self.count {
                let spec = Spec { name: numbered(&self.record.name, number), ..spec.clone() };
                match self.prepare_one(&files, spec, origin).await {
                    Err(SandboxError::NameTaken { .. }) => continue,
                    one => prepared.push(one?),
                }
                if prepared.len() == self.count {
                    break;
                }
            }
            return Ok(prepared);
        }
        for name in &self.request.names {
            let spec = Spec { name: name.clone(), ..spec.clone() };
            prepared.push(self.prepare_one(&files, spec, origin).await?);
        }
        Ok(prepared)
    }

    async fn prepare_one(
        &self,
        files: &crate::HostFiles,
        spec: Spec,
        origin: &Origin,
    ) -> Result<Prepared, SandboxError> {
        self.registry.prepare(files, &Defaults::default(), spec, None, Some(origin)).await
    }

    /// Starts all forks, some at a time. If one fails, none is left.
    async fn start(
        &self,
        prepared: Vec<Prepared>,
        contents: Option<&Contents>,
    ) -> Result<Vec<Record>, SandboxError> {
        let turns = Arc::new(Semaphore::new(FORK_STARTS_MAX));
        let mut starts = JoinSet::new();
        for (place, one) in prepared.into_iter().enumerate() {
            let (registry, turns) = (self.registry.clone(), Arc::clone(&turns));
            let contents = contents.cloned();
            starts.spawn(async move {
                let Ok(_turn) = turns.acquire().await else {
                    return (place, Err(SandboxError::Stopping));
                };
                (place, registry.begin(one, contents).await)
            });
        }
        let (mut forks, mut failure) = (Vec::with_capacity(self.count), None);
        while let Some(started) = starts.join_next().await {
            match started {
                Ok((place, Ok(record))) => forks.push((place, record)),
                Ok((_, Err(error))) => {
                    // Those that wait for their turn have not begun.
                    turns.close();
                    failure.get_or_insert(error);
                }
                Err(_) => drop(failure.get_or_insert(SandboxError::Stopping)),
            }
        }
        if let Some(error) = failure {
            for (_, record) in forks {
                let _ = self.registry.discard(&record.which()).await;
            }
            return Err(error);
        }
        forks.sort_by_key(|(place, _)| *place);
        Ok(forks.into_iter().map(|(_, record)| record).collect())
    }
}

/// Asks for the layer. Another fork, or a commit, may have frozen the programs for a moment.
async fn layer_when_thawed(
    guest: &Guest,
) -> Result<(Output, Vec<(String, String)>), agent_client::guest::GuestError> {
    let until = Instant::now() + FREEZE_WATCHDOG_MAX;
    loop {
        match guest.layer_get().await {
            Err(error)
                if error.fault_code() == Some(FaultCode::Conflict) && Instant::now() < until =>
            {
                sleep(FORK_RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Reads the layer that is on its way, with the programs frozen. It is an errand of the sandbox's owner.
pub(super) async fn read_layer(
    registry: &Registry,
    record: &Record,
    guest: &Guest,
    output: Output,
) -> Result<Reading, SandboxError> {
    let (reader, which) = (guest.clone(), record.which());
    let directory = registry.0.paths.snapshots();
    let bytes_max = record.scratch_bytes;
    let work = Box::pin(async move {
        let reading =
            tokio::spawn(
                async move { contents::read(&reader, output, &directory, bytes_max).await },
            );
        let read = reading.await.map_err(|_| SandboxError::Stopping)?;
        read.map_err(|source| SandboxError::Fork { which, source: Box::new(source) })
    });
    registry.order(&record.which(), |reply| Order::Fork { work, reply }).await
}

/// The name of a fork with this number. A long name is cut for it.
fn numbered(name: &Name, number: usize) -> Name {
    let suffix = format!("-{number}");
    let kept = name.as_str().len().min(NAME_BYTES_MAX - suffix.len());
    format!("{}{suffix}", &name.as_str()[..kept]).parse().expect("a name with a number is a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_for_its_number() {
        assert_eq!(numbered(&"web".parse().unwrap(), 12).as_str(), "web-12");
        let long: Name = "a".repeat(NAME_BYTES_MAX).parse().unwrap();
        assert_eq!(numbered(&long, 3).as_str().len(), NAME_BYTES_MAX);
    }
}
