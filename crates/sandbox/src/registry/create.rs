//! Makes sandboxes, in two steps: first everything that can be refused is checked and the name is taken,
//! then the machine starts. Several can so be refused together before any of them costs anything.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Registry;
use super::claimed::{Claimed, names_lost};
use crate::contents::Contents;
use crate::fork::Origin;
use crate::options::Defaults;
use crate::owner::{Filling, Owner, PoolRequest};
use crate::pool::{Personal, Shape};
use crate::record::StoredRecord;
use crate::snapshot::Hold;
use crate::startup::Startup;
use crate::stored::RequestedImage;
use crate::{
    HostFiles, Incarnation, Record, SandboxError, SandboxRef, Spec, mounted, secrets, trust,
};
use host::instant::now_ms;
use machine::{MachineSpec, SandboxId};

/// A sandbox whose name is taken and whose machine has not begun. Dropping it gives the name back.
pub(super) struct Prepared {
    which: SandboxRef,
    owner: Owner,
    machine: MachineSpec,
    wanted: Option<RequestedImage>,
    ahead: Option<PoolRequest>,
    startup: Option<Startup>,
    claimed: Option<Claimed>,
    /// The snapshot that it starts from.
    hold: Option<Hold>,
}

impl Registry {
    pub(super) async fn create_over(
        &self,
        files: &HostFiles,
        defaults: &Defaults,
        spec: Spec,
    ) -> Result<Record, SandboxError> {
        self.create_named(files, defaults, spec, None).await
    }

    pub(super) async fn create_named(
        &self,
        files: &HostFiles,
        defaults: &Defaults,
        spec: Spec,
        placed: Option<Incarnation>,
    ) -> Result<Record, SandboxError> {
        let prepared = self.prepare(files, defaults, spec, placed, None).await?;
        self.begin(prepared, None).await
    }

    /// Checks what is asked for and takes the name.
    pub(super) async fn prepare(
        &self,
        files: &HostFiles,
        defaults: &Defaults,
        mut spec: Spec,
        placed: Option<Incarnation>,
        origin: Option<&Origin>,
    ) -> Result<Prepared, SandboxError> {
        let placed = self.placed(&spec, placed)?;
        self.suits(&spec)?;
        let asked = self.as_asked(files, &spec)?;
        if let Some(snapshot) = spec.follows.as_ref().and_then(|lost| lost.snapshot.clone()) {
            spec.begin_with(snapshot);
        }
        let template = self.fill_from_template(&mut spec)?;
        // Sandboxes of a template are the same for clients and for the operator.
        let (files, defaults) =
            if template.is_some() { (&self.0.files, &self.0.defaults) } else { (files, defaults) };
        defaults.fill(&mut spec);
        let mut hold = None;
        if let Some(name) = spec.snapshot.clone() {
            let which = SandboxRef { namespace: spec.namespace.clone(), name };
            hold = Some(self.0.snapshots.hold(&which));
            self.0.snapshots.get(&which)?.fill(&mut spec)?;
        }
        self.can_be_durable(&spec).await?;
        files.settle(&mut spec)?;
        files.settle_scratch(&mut spec, self.store_paths()).await?;
        spec.settle_workdir();
        self.bound(&mut spec)?;
        spec.settle_egress(self.0.egress_default.of(spec.namespace.as_str()))?;
        spec.check()?;
        let workspace = mounted::find(&spec, &self.0.workspaces, &self.0.own_directories())?;
        self.find_volumes(&spec)?;
        let id = SandboxId::draw().map_err(SandboxError::Draw)?;
        let mut record = Record::new(id.clone(), &spec, now_ms());
        record.mounted = workspace.as_ref().is_some_and(|workspace| workspace.policy.mount);
        record.env_names.extend(secrets::variables(&self.0.secrets, &spec, &spec.rules()?)?);
        if let Some(origin) = origin {
            origin.mark(&mut record);
        }
        let which = record.which();
        let claimed = match placed {
            Some(claimed) => Some(claimed),
            None => self.claim(&record).await?,
        };
        record.incarnation = claimed.as_ref().map(|claimed| claimed.incarnation.clone());
        Self::keep_returning(claimed.as_ref(), asked, &record).await?;
        let mut stored = StoredRecord::new(record);
        stored.note_due();
        let mut owner = self.seat(stored, true)?;
        // Again after the name is taken: from here on a removal sees this sandbox.
        self.find_volumes(&spec)?;
        // After the name is taken: a provider costs the host something.
        let given = secrets::resolve(&self.0.secrets, &spec, &self.0.events).await?;
        let mut secrets = trust::variables(&spec, &given, &self.0.egress);
        secrets.extend(given.variables);
        let is_injected = !given.injections.is_empty();
        owner.inject(given.injections);
        let directories = self.0.directories(&id);
        let mut machine_spec = match &self.0.hidden_of_alone {
            Some(outer) => spec.machine_spec(id, outer, &self.0.files, None),
            None => spec.machine_spec(id, &self.0.paths, &self.0.files, Some(directories)),
        };
        if let Some(restore) = origin.and_then(Origin::restore) {
            machine_spec.restore = Some(restore);
        }
        machine_spec.bind = mounted::at_boot(&spec, workspace.as_ref());
        let wanted = self.wanted_image(&spec);
        // Pooled machines have directories or files as roots. They also have interpreters, which
        // run as the agent's user and have already read the trusted certificates.
        let is_plain = template.is_some() || (wanted.is_none() && spec.user.is_none());
        let is_usual = origin.is_none() && is_plain && !is_injected;
        let shape = is_usual.then(|| Shape::of(&spec, &machine_spec)).flatten();
        let revision = template.as_ref().map(|template| template.revision.clone());
        let shape = shape.map(|shape| shape.of_template(revision));
        let startup = template
            .and_then(|template| Startup::of(&template.options))
            .filter(|_| origin.is_none());
        let ahead = shape.map(|shape| {
            let hostname = machine_spec.hostname.clone();
            let env = spec.environment();
            let (secrets, workdir) = (secrets.clone(), spec.workdir);
            let personal = Personal { hostname, env, secrets, workdir };
            PoolRequest { pool: Arc::clone(&self.0.pool), shape, personal }
        });
        machine_spec.secrets = secrets;
        let machine = machine_spec;
        Ok(Prepared { which, owner, machine, wanted, ahead, startup, claimed, hold })
    }

    /// Starts its machine, and puts what it begins with into it.
    pub(super) async fn begin(
        &self,
        prepared: Prepared,
        contents: Option<Contents>,
    ) -> Result<Record, SandboxError> {
        let Prepared { which, owner, machine, wanted, ahead, startup, claimed, hold } = prepared;
        let (reply, answer) = oneshot::channel();
        let held = claimed.map(Claimed::keep);
        let filling = Filling { contents, startup };
        tokio::spawn(owner.create(machine, wanted, ahead, filling, hold, reply));
        let record = answer.await.unwrap_or(Err(SandboxError::Stopping))?;
        if let Some((names, incarnation)) = held
            && !names.holds(&incarnation)
        {
            let _ = self.discard(&which).await;
            return Err(names_lost(which));
        }
        Ok(record)
    }
}
