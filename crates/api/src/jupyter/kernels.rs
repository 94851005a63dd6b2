//! Kernels over REST, and where they are found.
//!
//! A kernel is a context. By default the door makes a sandbox for it, which says so in a label: a bridge
//! that starts finds the kernels of the one before. `KERNEL_BURROW_SANDBOX` names a sandbox that is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::{Method, StatusCode};
use protocol::repl::OpenContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::kernel::Kernel;
use super::life::{end, interrupt, restart};
use super::limits::{IDLE, KERNELS_MAX, VARIABLE_CHARS_SHOWN};
use super::specs::KernelSpec;
use crate::Api;
use crate::body::json_response;
use crate::call::Call;
use crate::creation::{namespace_of, permitted};
use crate::forward::forward;
use crate::gather::{self, Order, Part};
use crate::placing;
use crate::route::{Operation, operation};
use crate::shape::{Done, MaybeJson, Nothing, Raw};
use crate::whereabouts::{self, Subject};
use agent_client::guest::contexts::open;
use host::id::random_bytes;
use node::Placed;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, SandboxRef, Spec};

/// The label of the door's own sandboxes: which kernel is in it.
const LABEL: &str = "jupyter.kernel";
/// What the names of these sandboxes, and of kernels' contexts, begin with.
const PREFIX: &str = "jupyter-";
/// Variables that say what the kernel is made of, and are not its own.
const SANDBOX: &str = "KERNEL_BURROW_SANDBOX";
const IMAGE: &str = "KERNEL_BURROW_IMAGE";
/// What the names of both begin with.
const OWN_VARIABLES: &str = "KERNEL_BURROW_";

/// The kernels that this bridge knows. Two namespaces may have one of the same id.
#[derive(Default)]
pub struct Kernels(Mutex<Vec<Arc<Kernel>>>);

impl Kernels {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Kernel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self, kernel: &Kernel) {
        self.lock().retain(|known| !known.is(kernel));
    }

    /// This kernel, as it is known already or from now on.
    fn add(&self, api: &Api, kernel: Kernel) -> Result<Arc<Kernel>, Refusal> {
        let mut kernels = self.lock();
        if let Some(known) = kernels.iter().find(|known| known.is(&kernel)) {
            return Ok(Arc::clone(known));
        }
        let namespace = &kernel.which.namespace;
        kernels.retain(|other| other.which.namespace != *namespace || is_there(api, other));
        let count = kernels.iter().filter(|other| other.which.namespace == *namespace).count();
        if count >= KERNELS_MAX {
            let message =
                format!("the namespace {namespace} has {count} kernels, which is the limit");
            return Err(Refusal::new(Code::LimitReached, message).hint("shut some down"));
        }
        let kernel = Arc::new(kernel);
        kernels.push(Arc::clone(&kernel));
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
    let kernels = &call.api.jupyter().kernels;
    let is_meant =
        |kernel: &&Arc<Kernel>| kernel.id == id && call.caller.covers(&kernel.which.namespace);
    let known = || kernels.lock().iter().find(is_meant).map(Arc::clone);
    let found = match known() {
        None => adopt(call).map(|()| known())?,
        found => found,
    };
    let missing = || Refusal::not_found(format!("there is no kernel {id:?}"));
    let kernel = found.ok_or_else(missing)?;
    if !is_there(&call.api, &kernel) {
        kernels.forget(&kernel);
        kernel.close("the sandbox of the kernel has ended");
        return Err(missing());
    }
    call.trail.sandbox(&kernel.which);
    Ok(kernel)
}

/// Whether this bridge has a kernel, whosever it is.
pub fn has_kernel(api: &Api, id: &str) -> bool {
    if api.jupyter().kernels.lock().iter().any(|kernel| kernel.id == id) {
        return true;
    }
    let name = format!("{PREFIX}{id}");
    let records = api.registry().list(None);
    records.iter().any(|record| record.name.as_str() == name && record.labels.contains_key(LABEL))
}

fn is_there(api: &Api, kernel: &Kernel) -> bool {
    api.registry().get(&kernel.which).is_ok_and(|record| !record.state.is_over())
}

/// Takes up the kernels of own sandboxes that the caller reaches, which an earlier bridge may have made. A
/// label that is not ours is passed over.
fn adopt(call: &Call) -> Result<(), Refusal> {
    for record in call.api.registry().list(call.caller.only_namespace()) {
        let name = record.name.as_str();
        let spec = record.labels.get(LABEL).and_then(|spec| KernelSpec::named(Some(spec)).ok());
        let (Some(spec), Some(id), Ok(context)) = (spec, name.strip_prefix(PREFIX), name.parse())
        else {
            continue;
        };
        if call.caller.covers(&record.namespace) && !record.state.is_over() {
            let context = open(context, spec.language.name);
            let kernel = Kernel::new(id.to_owned(), spec, record.which(), context, true);
            call.api.jupyter().kernels.add(&call.api, kernel)?;
        }
    }
    Ok(())
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    adopt(&call)?;
    let mut kernels: Vec<_> = call.api.jupyter().kernels.lock().iter().map(Arc::clone).collect();
    kernels.retain(|kernel| {
        call.caller.covers(&kernel.which.namespace) && is_there(&call.api, kernel)
    });
    kernels.sort_by(|one, other| one.id.cmp(&other.id));
    let entries = kernels.iter().map(|kernel| (kernel.id.clone(), kernel.shown())).collect();
    let here = Part { entries, is_cut: false };
    // There are no pages: each namespace has a bound.
    let answer = |all: Part<Value>| {
        let kernels: Vec<Value> = all.entries.into_iter().map(|(_, kernel)| kernel).collect();
        json_response(StatusCode::OK, &kernels)
    };
    Ok(Raw(gather::listed(&call, here, Order::Ascending, usize::MAX, answer).await?))
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
    mut call: Call,
    _: Nothing,
    MaybeJson(mut ask): MaybeJson<Create>,
) -> Result<Raw, Refusal> {
    let spec = KernelSpec::named(ask.name.as_deref())?;
    // A request that goes on to another node makes the sandbox there that it was placed for.
    let which = placing::name(&call, || {
        let name = format!("{PREFIX}{}", new_id()?).parse();
        let name = name.expect("hexadecimal digits behind letters are a name");
        Ok(SandboxRef { namespace: namespace_of(&call.caller, None), name })
    })?;
    let id = which.name.as_str().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    let given = (ask.env.remove(SANDBOX), ask.env.remove(IMAGE));
    if let Some(unknown) = ask.env.keys().find(|name| name.starts_with(OWN_VARIABLES)) {
        let shown: String = unknown.chars().take(VARIABLE_CHARS_SHOWN).collect();
        let message = format!("{shown:?} is no variable of this server");
        return Err(Refusal::invalid(message).hint(format!("there are {SANDBOX} and {IMAGE}")));
    }
    let context = which.name.as_str().parse();
    let context = context.expect("hexadecimal digits behind letters are a name");
    let env = ask.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let context = OpenContext { env, ..open(context, spec.language.name) };
    let (which, owns) = match given {
        (Some(_), Some(_)) => {
            let message = format!(
                "{SANDBOX} and {IMAGE} are both set: a sandbox that is there has its image"
            );
            return Err(Refusal::invalid(message).hint("set one of them"));
        }
        (Some(sandbox), None) => {
            let which = named(&call, &sandbox)?;
            // A kernel is where its sandbox is.
            let subject = Subject::Sandbox(which.clone());
            if let Some(to) = whereabouts::elsewhere(&call, &subject).await? {
                let body = call.was_read.take();
                return Ok(Raw(Box::pin(forward(&mut call, &to, body)).await?));
            }
            (which, false)
        }
        (None, image) => {
            let own = own_sandbox(&call, which, spec, image)?;
            let placed = match placing::place(&call, &own).await? {
                Placed::Here(placed) => placed,
                Placed::There(to) => return Ok(Raw(placing::sent_on(call, &to).await?)),
            };
            let making = call.api.registry().create_placed(own, placed);
            (call.trail.making(making).await?.which(), true)
        }
    };
    let kernel = Kernel::new(id, spec, which, context, owns);
    let which = kernel.which.clone();
    match begin(&call, kernel).await {
        Ok(kernel) => Ok(shown(StatusCode::CREATED, &kernel)),
        Err(refusal) => {
            if owns {
                // Why there is no kernel matters more than what is left of it.
                drop(call.api.registry().remove(&which, true).await);
            }
            Err(refusal)
        }
    }
}

/// Starts the interpreter.
async fn begin(call: &Call, kernel: Kernel) -> Result<Arc<Kernel>, Refusal> {
    call.trail.sandbox(&kernel.which);
    call.trail.fact("kernel", kernel.id.as_str());
    let inside = call.enter(kernel.which.clone()).await?;
    inside.guest.open_context(&kernel.context).await?;
    call.api.jupyter().kernels.add(&call.api, kernel)
}

/// The sandbox that a variable names: `name`, or `namespace/name`.
fn named(call: &Call, text: &str) -> Result<SandboxRef, Refusal> {
    let parse = |text: &str| -> Result<Name, Refusal> {
        text.parse().map_err(|error| Refusal::invalid(format!("{SANDBOX}: {error}")))
    };
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(parse(namespace)?), name),
        None => (None, text),
    };
    let which = SandboxRef { namespace: namespace_of(&call.caller, namespace), name: parse(name)? };
    call.reaches(&which.namespace)?;
    Ok(call.api.registry().resolve(which))
}

/// The sandbox of a kernel that names none.
fn own_sandbox(
    call: &Call,
    which: SandboxRef,
    kernel: &KernelSpec,
    image: Option<String>,
) -> Result<Spec, Refusal> {
    call.reaches(&which.namespace)?;
    let mut spec = Spec::new(which);
    spec.image = image;
    spec.idle_ttl_ms = Some(IDLE.as_millis() as u64);
    spec.keep_stopped_ms = Some(0);
    spec.labels.insert(LABEL.to_owned(), kernel.name.to_owned());
    let spec = permitted(&call.api, &call.caller, spec)?;
    call.trail.creation(&spec);
    Ok(spec)
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

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::options::{Door, names_at};

    #[test]
    fn a_kernels_sandbox_has_the_options_that_the_table_says() {
        // It is a variable of the kernel's environment, as Jupyter's provisioners have theirs.
        assert_eq!(names_at(Door::Jupyter).collect::<Vec<_>>(), [IMAGE]);
    }
}
