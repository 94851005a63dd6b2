//! The options that a caller may use for a new sandbox: each door fills in a [`Spec`] from its own
//! fields, by the table of `sandbox::options`.

use tokio::time::timeout;

use super::Api;
use super::caller::Caller;
use super::images::workspace_of;
use super::limits::INSTALL_DEADLINE;
use access::keys::Access;
use host::id::RandomId;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, Registry, SandboxRef, Spec, TemplateName, TemplateOptions, TemplateRef};
use services::build::packages::{self, HostPackages, Packages};
use services::build::{BuildOptions, StepSandbox};
use services::notebook::limits::SANDBOX_IDLE;
use services::notebook::{NotebookSandbox, own_sandbox};

/// A name that no other sandbox has, behind that of its door.
pub fn drawn_name(door: &str) -> Result<Name, Refusal> {
    let drawn = RandomId::draw().map_err(|error| Refusal::of(Code::Internal, &error))?;
    let name = format!("{door}-{}", drawn.as_str()).parse();
    Ok(name.expect("hexadecimal digits behind letters are a name"))
}

/// Sets what a sandbox is made of: a template, a snapshot or an image of that name.
pub fn make_of(registry: &Registry, spec: &mut Spec, asked: String) {
    let template = asked.parse().ok().filter(|name: &TemplateName| {
        let which = TemplateRef { namespace: spec.namespace.clone(), name: name.clone() };
        registry.get_template(&which).is_ok()
    });
    let snapshot = asked.parse().ok().filter(|name: &Name| {
        let which = SandboxRef { namespace: spec.namespace.clone(), name: name.clone() };
        registry.get_snapshot(&which).is_ok()
    });
    if template.is_some() {
        spec.template = template;
    } else if snapshot.is_some() {
        spec.snapshot = snapshot;
    } else {
        spec.image = Some(asked);
    }
}

/// Installs packages for the sandbox of a specification. It takes a place among the runs, because it is one.
/// What comes back keeps them until the sandbox is made.
pub async fn install(
    api: &Api,
    caller: &Caller,
    spec: &mut Spec,
    packages: Option<Packages>,
) -> Result<Option<HostPackages>, Refusal> {
    let Some(packages) = packages.filter(|packages| !packages.is_empty()) else { return Ok(None) };
    let registry = api.registry();
    let Some(images) = registry.images() else {
        let message = "packages: this server has no store of images";
        return Err(Refusal::new(Code::Unsupported, message));
    };
    let images = images.of_namespace(Some(spec.namespace.as_str()));
    let _permit = api.admission().admit(&caller.label())?;
    let paths = registry.store_paths().clone();
    // What was judged is what is built on.
    let judged = registry.base_image(spec).await?.map(|digest| digest.to_string());
    let base = judged.as_deref().or(spec.image.as_deref());
    let (events, _) = tokio::sync::mpsc::channel(1);
    let mut files = registry.host_files().clone();
    if !matches!(caller, Caller::Local) {
        // What is installed over the host's root is on the host's disk, and for its own user.
        files.root = None;
    }
    let step = StepSandbox::like(spec, registry.defaults(), files);
    let decisions = registry.decisions_before(spec)?;
    let egress = registry.egress_settings().clone();
    let options = BuildOptions { paths, images, egress, decisions, step, events };
    let installing = timeout(INSTALL_DEADLINE, packages::install(&packages, base, options)).await;
    let built = match installing {
        Ok(Ok(built)) => built,
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => {
            let seconds = INSTALL_DEADLINE.as_secs();
            let message = format!("packages: they were not installed within {seconds} s");
            return Err(Refusal::new(Code::StartFailed, message));
        }
    };
    Ok(match built.give(spec) {
        // Nobody else reads the records of a registry that ends with this process.
        Some(packages) if registry.is_alone() => {
            packages.hold_until_exit();
            None
        }
        packages => packages,
    })
}

/// The namespace of a new sandbox whose caller names none.
pub fn namespace_of(caller: &Caller, requested: Option<Name>) -> Name {
    requested.or_else(|| caller.only_namespace().cloned()).unwrap_or_else(Name::default_namespace)
}

/// Checks that a caller may have what is asked for, and settles what the server decides: the kind of
/// machine, the root of an image, whether it is pulled. The registry sets the rest.
pub fn permitted(api: &Api, caller: &Caller, mut spec: Spec) -> Result<Spec, Refusal> {
    spec.key = caller.key();
    spec.check_everywhere()?;
    if let Some(kind) = spec.machine.filter(|kind| !kind.is_started()) {
        let message = format!("machine: this call does not start {kind} machines");
        return Err(Refusal::new(Code::Unsupported, message)
            .hint(format!("`host-bridge start --machine {kind}` connects to one")));
    }
    // A name of an image means one on this kind of machine.
    let registry = api.registry();
    let of_template = spec.machine.or(registry.template_machine(&spec)?);
    let machine = of_template.unwrap_or(registry.defaults().machine);
    let pull = api.pull_of(caller, spec.pull)?;
    spec.pull = Some(pull);
    let root = |image: String| api.root_of(caller, machine, &image, pull);
    spec.image = spec.image.map(root).transpose()?;
    if spec.snapshot.is_some() && spec.machine.is_some() {
        return Err(Refusal::invalid("machine: the snapshot sets it; leave it out"));
    }
    spec.machine = Some(machine);
    let workspace = |name: String| workspace_of(caller, name);
    spec.workspace = spec.workspace.map(workspace).transpose()?;
    Ok(spec)
}

/// Checks that a caller may have what sandboxes of a template would have, and settles what its image means.
pub fn settled_template(
    api: &Api,
    caller: &Caller,
    which: &TemplateRef,
    mut options: TemplateOptions,
) -> Result<TemplateOptions, Refusal> {
    if options.warm > 0 && !caller.may(Access::Admin) {
        let message =
            "warm: only an admin key may have sandboxes kept ready: they count for no cap";
        return Err(Refusal::new(Code::Forbidden, message).hint("leave it out"));
    }
    let base = which.name.base.clone();
    let mut spec = Spec::new(SandboxRef { namespace: which.namespace.clone(), name: base });
    spec.machine = options.machine;
    spec.image = options.image.take();
    let spec = permitted(api, caller, spec)?;
    // What the name of an image means is for one kind of machine.
    options.machine = options.machine.or(spec.machine.filter(|_| spec.image.is_some()));
    options.image = spec.image;
    Ok(options)
}

/// The own sandbox of a notebook of that name, in which `ask` fills in what is asked for.
pub fn notebook_sandbox(
    api: &Api,
    caller: &Caller,
    (namespace, id): (&Name, &Name),
    ask: impl FnOnce(&mut Spec) -> Result<(), Refusal>,
) -> Result<NotebookSandbox, Refusal> {
    let mut spec = Spec::new(own_sandbox(namespace, id)?);
    spec.idle_ttl_ms = Some(SANDBOX_IDLE.as_millis() as u64);
    ask(&mut spec)?;
    Ok(NotebookSandbox::own(permitted(api, caller, spec)?)?)
}
