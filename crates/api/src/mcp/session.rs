//! What a client has from its first call to its last: a sandbox of its own, and the results that
//! were cut.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::limits::OWN_SANDBOX_IDLE;
use super::results::Results;
use crate::Api;
use crate::caller::Caller;
use crate::creation::{install, permitted};
use host::id::RandomId;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Labels, MachineKind, Name, Preset, Registry, SandboxError, SandboxRef, Spec, State};
use services::build::packages::Packages;

/// How to go on where its node takes no sandbox.
const ELSEWHERE: &str =
    "`sandbox_create` makes one at a node of the fleet that has room: name that in `sandbox`";

/// See the module's description. Dropping it removes its own sandbox; [`Session::end`] also waits
/// until it is gone.
pub struct Session {
    registry: Registry,
    preset: Preset,
    own: Mutex<Option<SandboxRef>>,
    /// Held while its own sandbox is made, which may take long: who only looks does not wait for it.
    making: tokio::sync::Mutex<()>,
    results: Mutex<Results>,
}

impl Session {
    pub fn new(registry: Registry, preset: Preset) -> Self {
        let (own, making, results) = Default::default();
        Self { registry, preset, own, making, results }
    }

    /// The namespace of sandboxes named without one.
    pub fn namespace(&self, caller: &Caller) -> Name {
        let wished = self.preset.namespace.as_ref().or(caller.only_namespace());
        wished.cloned().unwrap_or_else(Name::default_namespace)
    }

    /// Its own sandbox, if it has one that is still there.
    pub fn own(&self) -> Option<SandboxRef> {
        let own = self.own_slot().clone()?;
        let found = self.registry.get(&own);
        (!matches!(found, Err(SandboxError::NotFound { .. }))).then_some(own)
    }

    fn own_slot(&self) -> MutexGuard<'_, Option<SandboxRef>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its own sandbox, and the note about it. The first call makes it, and so does one that
    /// finds it gone.
    pub async fn own_or_make(
        &self,
        api: &Api,
        caller: &Caller,
    ) -> Result<(SandboxRef, Option<String>), Refusal> {
        let _making = self.making.lock().await;
        let (mut note, own) = (None, self.own_slot().clone());
        if let Some(which) = own.as_ref() {
            reaches(caller, &which.namespace)?;
            // The record of what has stopped by itself goes in a moment, and its name is not used again.
            match self.registry.get(which).map(|record| record.state) {
                Err(SandboxError::NotFound { .. })
                | Ok(State::Stopped { .. } | State::Stopping) => {}
                // Whatever else it is in, the call says.
                Ok(_) | Err(_) => return Ok((which.clone(), None)),
            }
            note = Some(format!(
                "this session's sandbox {which} has ended, and its files and variables are gone; \
                this result is from a new sandbox"
            ));
        }
        let drawn = RandomId::draw().map_err(SandboxError::Draw)?;
        let name: Name = format!("mcp-{drawn}").parse().map_err(|_| {
            Refusal::new(Code::Internal, "hexadecimal digits behind letters are no name")
        })?;
        let which = SandboxRef { namespace: self.namespace(caller), name };
        reaches(caller, &which.namespace)?;
        let mut spec = permitted(api, caller, self.preset_spec(which.clone()))?;
        let packages = Packages { pip: self.preset.pip.clone(), npm: self.preset.npm.clone() };
        let _packages = install(api, caller, &mut spec, Some(packages)).await?;
        // It is ours from here on, even when the caller is gone.
        *self.own_slot() = Some(which.clone());
        if let Err(error) = self.registry.create(spec).await {
            *self.own_slot() = None;
            let refusal = Refusal::from(error);
            // It is made at the session's node, and another may have room.
            let is_full = refusal.code == Code::LimitReached && api.node().is_some();
            return Err(if is_full { refusal.hint(ELSEWHERE) } else { refusal });
        }
        Ok((which, note))
    }

    /// The machine of every sandbox that it makes, if one was chosen.
    pub fn machine(&self) -> Option<MachineKind> {
        self.preset.machine
    }

    /// What its own sandbox may reach.
    pub fn egress(&self) -> Vec<String> {
        let namespace = self.preset.namespace.clone().unwrap_or_else(Name::default_namespace);
        let rules = self.preset.egress.as_deref();
        let rules = rules.unwrap_or_else(|| self.registry.egress_default(&namespace));
        rules.iter().filter(|rule| !rule.eq_ignore_ascii_case("none")).cloned().collect()
    }

    /// Whether its own sandbox has files of the user.
    pub fn has_workspace(&self) -> bool {
        self.preset.workspace.is_some()
    }

    /// Its own sandbox, as the session was set up.
    fn preset_spec(&self, which: SandboxRef) -> Spec {
        let preset = self.preset.clone();
        Spec {
            labels: Labels::from([("mcp".to_owned(), "session".to_owned())]),
            idle_ttl_ms: Some(OWN_SANDBOX_IDLE.as_millis() as u64),
            keep_stopped_ms: Some(0),
            machine: self.machine(),
            image: preset.image,
            pull: preset.pull,
            memory_mib: preset.memory_mib,
            cpu_millis: preset.cpu_millis,
            scratch_bytes: preset.scratch_bytes,
            // Of two values of one name, the last counts.
            env: BTreeMap::from_iter(preset.env).into_iter().collect(),
            workdir: preset.workdir,
            user: preset.user,
            hostname: preset.hostname,
            egress: preset.egress,
            workspace: preset.workspace,
            secrets: preset.secrets,
            ..Spec::new(which)
        }
    }

    /// Fills in the options of a notebook's own sandbox.
    pub fn ask_notebook(&self, spec: &mut Spec) {
        spec.image.clone_from(&self.preset.image);
        spec.machine = self.machine();
    }

    /// The results that were cut.
    pub fn results(&self) -> MutexGuard<'_, Results> {
        // Nothing in them is ever half-changed.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes its own sandbox, and waits until it is gone.
    pub async fn end(&self) {
        let _making = self.making.lock().await;
        let own = self.own_slot().take();
        if let Some(which) = own {
            // Whatever is left, its time to live ends.
            let _ = self.registry.save_and_discard(&which).await;
        }
    }
}

fn reaches(caller: &Caller, namespace: &Name) -> Result<(), Refusal> {
    if caller.covers(namespace) {
        return Ok(());
    }
    let message = format!("this key does not cover the namespace {namespace}");
    Err(Refusal::new(Code::Forbidden, message).hint("use a key for that namespace"))
}

impl Drop for Session {
    fn drop(&mut self) {
        let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(which) = own.take() else { return };
        let registry = self.registry.clone();
        // Without a runtime there are no sandboxes either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { registry.save_and_discard(&which).await });
        }
    }
}
