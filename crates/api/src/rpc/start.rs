//! `sandbox.start` and `sandbox.stop`. Both may be repeated: starting a running sandbox and
//! stopping one that is gone succeed.

use super::failure::Failure;
use super::limits::START_TRIES_MAX;
use super::params::{Params, shown};
use super::written::Written;
use super::{Work, which};
use crate::call::Call;
use crate::creation::permitted;
use crate::placing;
use node::Placed;
use sandbox::host_files::HOST_ROOT;
use sandbox::options::{self, Door};
use sandbox::refusal::{Code, Refusal};
use sandbox::{Registry, SandboxError, SandboxRef, Spec, State, Until};
use workspace::volume::InvalidMount;

/// The largest number of processors that can be meant.
const CPUS_MAX: f64 = 1024.0;
/// The same of MiB of memory; the sandbox's own bounds are tighter.
const MEMORY_MIB_MAX: f64 = (1_u64 << 40) as f64;

/// What the native API takes and this call does not, or calls otherwise.
fn elsewhere() -> impl Iterator<Item = &'static str> {
    let others = [Door::Http, Door::Library].into_iter().flat_map(options::names_at);
    let own = |name: &&str| options::names_at(Door::Rpc).all(|taken| taken != *name);
    // It says whose sandbox it is at the top, and its key is that of the call.
    others.filter(own).filter(|name| !["name", "namespace", "key"].contains(name))
}

/// `is_alone`: it is no part of a batch, whose other requests may be about the sandbox and have to find it here.
pub async fn start(
    (call, trail): Work<'_>,
    mut params: Params,
    is_alone: bool,
) -> Result<Written, Failure> {
    let which = which(call, &mut params)?;
    let config = params.part("config", "config.")?;
    call.reaches(&which.namespace)?;
    let asked = spec(which.clone(), config)?;
    make((call, trail), &which, asked, is_alone && call.sent_for.is_none()).await?;
    // A name of an image may stand for that by the operator's word, and the client learns it.
    let is_over_host = call.api.registry().get(&which).is_ok_and(|record| {
        record.machine.sees_host() && record.image.as_deref() == Some(HOST_ROOT)
    });
    let over = if is_over_host { ", over the host's own root" } else { "" };
    Ok(Written::of(&format!("the sandbox {which} is running{over}")))
}

pub async fn stop(call: &Call, mut params: Params) -> Result<Written, Failure> {
    let which = which(call, &mut params)?;
    call.reaches(&which.namespace)?;
    remove(call.api.registry(), &which).await?;
    Ok(Written::of(&format!("the sandbox {which} is stopped")))
}

fn spec(which: SandboxRef, mut config: Params) -> Result<Spec, Failure> {
    let mut spec = Spec::new(which);
    let pull = config.maybe_text("pull")?.map(|pull| pull.parse()).transpose();
    spec.pull = pull.map_err(|error| Failure::params(format!("config.pull: {error}")))?;
    spec.image = config.maybe_text("image")?.filter(|image| !image.is_empty());
    let memory_mib = config.amount("memory")?.filter(|mib| *mib > 0.0);
    if memory_mib.is_some_and(|mib| mib > MEMORY_MIB_MAX) {
        return Err(Failure::params("config.memory is too large: it is in MiB"));
    }
    spec.memory_mib = memory_mib.map(|mib| mib.ceil() as u64);
    spec.cpu_millis = match config.amount("cpus")? {
        Some(cpus) if cpus > CPUS_MAX => {
            return Err(Failure::params(format!("config.cpus: the limit is {CPUS_MAX}")));
        }
        // 0 is what 0.4 has been rounded to on the way: the smallest share.
        Some(cpus) => Some((cpus * 1000.0).round() as u32),
        None => None,
    };
    spec.env = config.environment("envs")?;
    spec.env.extend(config.environment("env")?);
    spec.workdir = config.maybe_text("workdir")?.filter(|workdir| !workdir.is_empty());
    spec.user = config.maybe_text("user")?.filter(|user| !user.is_empty());
    spec.secrets = config.texts("secrets")?;
    spec.egress = config.maybe_texts("egress")?;
    spec.workspace = config.maybe_text("workspace")?.filter(|name| !name.is_empty());
    spec.labels = config.environment("labels")?.into_iter().collect();
    let volumes = config.pairs("volumes")?.into_iter().map(|text| text.parse());
    let volumes: Result<_, InvalidMount> = volumes.collect();
    spec.volumes = volumes.map_err(|error| Failure::params(format!("config.{error}")))?;
    spec.ports = config.pairs("ports")?;
    match config.rest() {
        Some(name) if elsewhere().any(|other| other == name) => Err(Failure::params(format!(
            "this call does not take config.{name}; `create_sandbox` of the HTTP API does"
        ))),
        Some(name) => {
            Err(Failure::params(format!("this call does not take config.{}", shown(name))))
        }
        None => Ok(spec),
    }
}

/// Makes the sandbox, or finds that it runs. What was left of one of that name gives way.
async fn make(
    (call, trail): Work<'_>,
    which: &SandboxRef,
    asked: Spec,
    is_placed: bool,
) -> Result<(), Failure> {
    let registry = call.api.registry();
    let spec = permitted(&call.api, &call.caller, asked.clone())?;
    for _ in 0..START_TRIES_MAX {
        // In a fleet the name of one that is here is refused before the registry looks.
        let found = call.api.node().and_then(|_| registry.get(which).ok());
        let state = match found {
            Some(record) => record.state,
            None => match make_new((call, trail), &spec, &asked, is_placed).await? {
                Some(state) => state,
                None => return Ok(()),
            },
        };
        match state {
            State::Running => return Ok(()),
            // A client that starts a sandbox wants it to run.
            State::Paused { .. } => return passed_over(registry.resume(which).await),
            // The first call makes it for both. If that fails, this one tries for itself.
            State::Creating => passed_over(registry.wait(which, Until::Created).await)?,
            State::Stopping => passed_over(registry.wait(which, Until::Stopped).await)?,
            State::Stopped { .. } => match registry.remove(which, false).await {
                // Another start was quicker, and what runs now is new.
                Err(SandboxError::StillRunning { .. }) => {}
                removed => passed_over(removed)?,
            },
            State::Lost { .. } | State::Damaged { .. } => remove(registry, which).await?,
        }
    }
    let message = format!("other clients keep making and removing {which}; try again");
    Err(Refusal::new(Code::Conflict, message).into())
}

/// Makes it here, or at the node that has room. The state of one that is here already, if there is one.
async fn make_new(
    (call, trail): Work<'_>,
    spec: &Spec,
    asked: &Spec,
    is_placed: bool,
) -> Result<Option<State>, Failure> {
    let placed = if is_placed {
        placing::place_for(&call.api, spec, &placing::drawn()?).await?
    } else {
        Placed::Here(None)
    };
    let life = match placed {
        Placed::Here(life) => life,
        Placed::There(to) => {
            trail.fact("node", to.node.as_str());
            placing::make_there(&call.api, (&call.caller, false), &to, asked).await?;
            return Ok(None);
        }
    };
    match trail.making(call.api.registry().create_placed(spec.clone(), life)).await {
        Ok(_) => Ok(None),
        Err(SandboxError::NameTaken { state, .. }) => Ok(Some(state)),
        Err(error) => Err(error.into()),
    }
}

async fn remove(registry: &Registry, which: &SandboxRef) -> Result<(), Failure> {
    passed_over(registry.save_and_discard(which).await)
}

/// A sandbox that is gone is as good as one that was removed.
fn passed_over<T>(outcome: Result<T, SandboxError>) -> Result<(), Failure> {
    match outcome {
        Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
