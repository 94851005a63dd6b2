//! Kernels over REST, and where they are found.
//!
//! A kernel is a context. By default the door makes a sandbox for it, which says so in a label: a bridge
//! that starts finds the kernels of the one before. `KERNEL_BURROW_SANDBOX` names a sandbox that is there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::{Method, StatusCode};
use protocol::repl::OpenContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::kernel::Kernel;
use super::life::{end, interrupt, restart};
use super::limits::{IDLE, KERNELS_MAX};
use super::specs::KernelSpec;
use crate::Api;
use crate::body::json_response;
use crate::call::Call;
use crate::creation::{namespace_of, permitted};
use crate::route::{Operation, operation};
use crate::shape::{Done, MaybeJson, Nothing, Raw};
use agent_client::guest::contexts::open;
use host::id::random_bytes;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, Record, SandboxRef, Spec};

/// The label of the door's own sandboxes: which kernel is in it.
const LABEL: &str = "jupyter.kernel";
/// What the names of these sandboxes, and of kernels' contexts, begin with.
const PREFIX: &str = "jupyter-";
/// Variables that say what the kernel is made of, and are not its own.
const SANDBOX: &str = "KERNEL_BURROW_SANDBOX";
const IMAGE: &str = "KERNEL_BURROW_IMAGE";

/// The kernels that this bridge knows, by their ids.
#[derive(Default)]
pub struct Kernels(Mutex<HashMap<String, Arc<Kernel>>>);

impl Kernels {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Kernel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// The kernel of that id: this one, unless it is known already.
    fn add(&self, api: &Api, kernel: Kernel) -> Result<Arc<Kernel>, Refusal> {
        let mut kernels = self.lock();
        if let Some(known) = kernels.get(&kernel.id) {
            return Ok(Arc::clone(known));
        }
        if kernels.len() >= KERNELS_MAX {
            kernels.retain(|_, kernel| is_there(api, kernel));
        }
        if kernels.len() >= KERNELS_MAX {
            let message = format!("this server has {KERNELS_MAX} kernels, which is the limit");
            return Err(Refusal::new(Code::LimitReached, message).hint("shut some down"));
        }
        let kernel = Arc::new(kernel);
        kernels.insert(kernel.id.clone(), Arc::clone(&kernel));
        Ok(kernel)
    }
}

pub fn operations() -> Vec<Operation> {
    let (all, one) = ("/api/kernels", "/api/kernels/{kernel}");
    let (get, post) = (Method::GET, Method::POST);
    [
        operation(get.clone(), all, "jupyter_list", "List kernels.", list),
        operation(post.clone(), all, "jupyter_create", "Start a kernel.", create).run(),
        operation(get, one, "jupyter_get", "One kernel.", get_one),
        operation(Method::DELETE, one, "jupyter_end", "Shut a kernel down.", remove).run(),
        operation(
            post.clone(),
            "/api/kernels/{kernel}/interrupt",
            "jupyter_interrupt",
            "Interrupt a kernel.",
            interrupt_one,
        )
        .run(),
        operation(
            post,
            "/api/kernels/{kernel}/restart",
            "jupyter_restart",
            "Restart a kernel.",
            restart_one,
        )
        .run(),
    ]
    .to_vec()
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    name: Option<String>,
    env: BTreeMap<String, String>,
}

fn shown(status: StatusCode, kernel: &Kernel) -> Raw {
    Raw(json_response(status, &kernel.shown()))
}

/// The kernel that the path names, if the key reaches it and its sandbox is there.
pub fn find(call: &Call) -> Result<Arc<Kernel>, Refusal> {
    let id: String = call.parameter("kernel")?;
    let known = call.api.jupyter().kernels.lock().get(&id).map(Arc::clone);
    let found = match known {
        Some(kernel) => Some(kernel),
        None => owned(call)
            .into_iter()
            .find(|record| id_of(record) == Some(&id))
            .and_then(|record| adopted(call, &record).transpose())
            .transpose()?,
    };
    let missing = || Refusal::not_found(format!("there is no kernel {id:?}"));
    let kernel = found.filter(|kernel| call.caller.covers(&kernel.which.namespace));
    let kernel = kernel.ok_or_else(missing)?;
    if !is_there(&call.api, &kernel) {
        call.api.jupyter().kernels.forget(&id);
        kernel.close("the sandbox of the kernel has ended");
        return Err(missing());
    }
    call.trail.sandbox(&kernel.which);
    Ok(kernel)
}

fn is_there(api: &Api, kernel: &Kernel) -> bool {
    api.registry().get(&kernel.which).is_ok_and(|record| !record.state.is_over())
}

/// The door's own sandboxes that the caller reaches.
fn owned(call: &Call) -> Vec<Record> {
    let mut records = call.api.registry().list(call.caller.only_namespace());
    records.retain(|record| {
        id_of(record).is_some() && call.caller.covers(&record.namespace) && !record.state.is_over()
    });
    records
}

/// The kernel that a sandbox was made for.
fn id_of(record: &Record) -> Option<&str> {
    record.labels.get(LABEL)?;
    record.name.as_str().strip_prefix(PREFIX)
}

/// The kernel of an own sandbox, which an earlier bridge may have made. `None` for a label that is not ours.
fn adopted(call: &Call, record: &Record) -> Result<Option<Arc<Kernel>>, Refusal> {
    let spec = record.labels.get(LABEL).and_then(|name| KernelSpec::named(Some(name)).ok());
    let (Some(id), Some(spec)) = (id_of(record), spec) else { return Ok(None) };
    let Ok(context) = record.name.as_str().parse() else { return Ok(None) };
    let context = open(context, spec.language.name);
    let kernel = Kernel::new(id.to_owned(), spec, record.which(), context, true);
    call.api.jupyter().kernels.add(&call.api, kernel).map(Some)
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    for record in owned(&call) {
        adopted(&call, &record)?;
    }
    let mut kernels: Vec<_> = call.api.jupyter().kernels.lock().values().map(Arc::clone).collect();
    kernels.retain(|kernel| {
        call.caller.covers(&kernel.which.namespace) && is_there(&call.api, kernel)
    });
    kernels.sort_by(|one, other| one.id.cmp(&other.id));
    let kernels: Vec<Value> = kernels.iter().map(|kernel| kernel.shown()).collect();
    Ok(Raw(json_response(StatusCode::OK, &kernels)))
}

async fn get_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    Ok(shown(StatusCode::OK, &*find(&call)?))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    end(&call.api, &*find(&call)?).await?;
    Ok(Done)
}

async fn interrupt_one(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    interrupt(&call.api, &*find(&call)?).await?;
    Ok(Done)
}

async fn restart_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let kernel = find(&call)?;
    restart(&call.api, &kernel).await?;
    Ok(shown(StatusCode::OK, &kernel))
}

async fn create(
    call: Call,
    _: Nothing,
    MaybeJson(mut ask): MaybeJson<Create>,
) -> Result<Raw, Refusal> {
    let spec = KernelSpec::named(ask.name.as_deref())?;
    let id = new_id()?;
    let name = format!("{PREFIX}{id}");
    let given = (ask.env.remove(SANDBOX), ask.env.remove(IMAGE));
    let context = name.parse().expect("hexadecimal digits behind letters are a name");
    let env = ask.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let context = OpenContext { env, ..open(context, spec.language.name) };
    let (which, owns) = match given {
        (Some(_), Some(_)) => {
            let message = format!(
                "{SANDBOX} and {IMAGE} are both set: a sandbox that is there has its image"
            );
            return Err(Refusal::invalid(message).hint("set one of them"));
        }
        (Some(sandbox), None) => (named(&call, &sandbox)?, false),
        (None, image) => (make(&call, &name, spec, image).await?, true),
    };
    let kernel = Kernel::new(id, spec, which, context, owns);
    match begin(&call, &kernel).await {
        Ok(()) => {}
        Err(refusal) => {
            if owns {
                // Why there is no kernel matters more than what is left of it.
                drop(call.api.registry().remove(&kernel.which, true).await);
            }
            return Err(refusal);
        }
    }
    let kernel = call.api.jupyter().kernels.add(&call.api, kernel)?;
    Ok(shown(StatusCode::CREATED, &kernel))
}

/// Starts the interpreter.
async fn begin(call: &Call, kernel: &Kernel) -> Result<(), Refusal> {
    call.trail.sandbox(&kernel.which);
    call.trail.fact("kernel", kernel.id.as_str());
    let inside = call.enter(kernel.which.clone()).await?;
    inside.guest.open_context(&kernel.context).await?;
    Ok(())
}

/// The sandbox that a variable names: `name`, or `namespace/name`.
fn named(call: &Call, text: &str) -> Result<SandboxRef, Refusal> {
    let unreadable =
        |error: &dyn std::error::Error| Refusal::invalid(format!("{SANDBOX}: {error}"));
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => {
            let namespace: Name = namespace.parse().map_err(|error| unreadable(&error))?;
            (Some(namespace), name)
        }
        None => (None, text),
    };
    let namespace = namespace_of(&call.caller, namespace);
    call.reaches(&namespace)?;
    let name = name.parse().map_err(|error| unreadable(&error))?;
    Ok(SandboxRef { namespace, name })
}

/// Makes a sandbox for a kernel.
async fn make(
    call: &Call,
    name: &str,
    kernel: &KernelSpec,
    image: Option<String>,
) -> Result<SandboxRef, Refusal> {
    let name = name.parse().expect("hexadecimal digits behind letters are a name");
    let which = SandboxRef { namespace: namespace_of(&call.caller, None), name };
    call.reaches(&which.namespace)?;
    let mut spec = Spec::new(which);
    spec.image = image;
    spec.idle_ttl_ms = Some(IDLE.as_millis() as u64);
    spec.keep_stopped_ms = Some(0);
    spec.labels.insert(LABEL.to_owned(), kernel.name.to_owned());
    let spec = permitted(&call.api, &call.caller, spec)?;
    call.trail.creation(&spec);
    Ok(call.api.registry().create(spec).await?.which())
}

/// An id in the form that Jupyter's servers expect: a UUID of random bits.
fn new_id() -> Result<String, Refusal> {
    let mut bytes: [u8; 16] =
        random_bytes().map_err(|error| Refusal::of(Code::Internal, &error))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = host::hex::digits(&bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
    Ok(parts.join("-"))
}
