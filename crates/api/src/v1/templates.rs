//! Templates: kept, listed, shown, removed. `POST /v1/sandboxes` with `template` makes a sandbox of one.

use std::collections::BTreeMap;

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Json, Nothing, Query, Reply};
use crate::creation::settled_template;
use crate::forms::files::PATH;
use crate::forms::machine::Machine;
use crate::forms::ranges::{CPUS_MAX, cpu_millis};
use crate::forms::sandboxes::{LABEL_KEY, LIFETIME_MS_MAX, NAME};
use machine::limits::SCRATCH_BYTES_MIN;
use sandbox::limits::{
    LABELS_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN, READY_TIMEOUT_MAX, TEMPLATE_COMMAND_BYTES_MAX,
    TEMPLATE_ENV_MAX, TEMPLATE_WARM_MAX, WORKDIR_BYTES_MAX,
};
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, OnIdle, TemplateInfo, TemplateName, TemplateOptions, TemplateRef};

const READY_TIMEOUT_MS_MAX: u64 = READY_TIMEOUT_MAX.as_millis() as u64;
const WARM_MAX: u64 = TEMPLATE_WARM_MAX as u64;

pub fn operations() -> Vec<Operation> {
    let one = "/v1/templates/{namespace}/{name}";
    [
        operation(
            Method::PUT,
            one,
            "put_template",
            "Keep a template, in the place of one with its name.",
            put,
        )
        .run()
        .about(
            "`name` may have a tag, as in `app:v2`. The template is kept when the call answers; in a fleet by all \
            nodes, the others a moment later. Sandboxes that were made of it stay as they are. `POST /v1/sandboxes` with \
            `template` makes one of it, and answers when its ready command has exited with 0.",
        )
        .problems(&[Code::Conflict, Code::Unsupported, Code::LimitReached, Code::Unavailable]),
        operation(Method::GET, "/v1/templates", "list_templates", "List the templates.", list)
            .about("Ordered by namespace and name."),
        operation(Method::GET, one, "get_template", "One template.", get),
        operation(Method::DELETE, one, "remove_template", "Remove a template.", remove)
            .run()
            .about("Sandboxes made of it do not need it.")
            .problems(&[Code::Conflict, Code::Unavailable]),
    ]
    .map(|operation| operation.tag("templates"))
    .to_vec()
}

/// What sandboxes are made of. Each option is that of a sandbox, which takes precedence.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutTemplate {
    /// As for a sandbox; its meaning is settled now, and an image must be allowed to the caller.
    #[serde(default)]
    pub image: Option<String>,
    #[serde(default)]
    pub machine: Option<Machine>,
    #[serde(default)]
    #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
    pub memory_mib: Option<u64>,
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    pub cpus: Option<f64>,
    #[serde(default)]
    #[schemars(range(min = SCRATCH_BYTES_MIN))]
    pub scratch_bytes: Option<u64>,
    /// Kept with the template, on the server's disk. The values are never shown.
    #[serde(default)]
    #[schemars(extend("maxProperties" = TEMPLATE_ENV_MAX))]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    #[schemars(regex(pattern = PATH), length(max = WORKDIR_BYTES_MAX))]
    pub workdir: Option<String>,
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub user: Option<String>,
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub egress: Option<Vec<String>>,
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
    /// What happens when a sandbox has been idle for that long.
    #[serde(default)]
    pub on_idle: Option<OnIdle>,
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub keep_stopped_ms: Option<u64>,
    /// A script for `/bin/sh`, which runs as the session `template-start` of each sandbox.
    #[serde(default)]
    #[schemars(length(min = 1, max = TEMPLATE_COMMAND_BYTES_MAX))]
    pub start: Option<String>,
    /// A script for `/bin/sh`, which is run until it exits with 0. Only then is a sandbox handed out.
    #[serde(default)]
    #[schemars(length(min = 1, max = TEMPLATE_COMMAND_BYTES_MAX))]
    pub ready: Option<String>,
    /// How long that may take; a minute by default. A sandbox that is not ready then is ended.
    #[serde(default)]
    #[schemars(range(min = 1, max = READY_TIMEOUT_MS_MAX))]
    pub ready_timeout_ms: Option<u64>,
    /// How many sandboxes are kept started and ready; in a fleet by each node that has the image. They count for no cap,
    /// so this needs the scope `admin`.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 0, max = WARM_MAX))]
    pub warm: u64,
}

/// A template.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub namespace: String,
    pub name: String,
    /// Another for each time that the template was put.
    pub revision: String,
    pub created_at_ms: u64,
    /// It is from the server's configuration, and no call changes it.
    pub configured: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Machine")]
    pub machine: Option<Machine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub scratch_bytes: Option<u64>,
    /// Only the names, because values may be secrets.
    pub env_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub user: Option<String>,
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub egress: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnIdle")]
    pub on_idle: Option<OnIdle>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub keep_stopped_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub ready: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ready_timeout_ms: Option<u64>,
    pub warm: u64,
    /// How many are ready now.
    pub warm_ready: u64,
    /// Why the last one did not become ready, while none has since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub warm_failure: Option<String>,
}

/// All templates that a key reaches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateList {
    pub templates: Vec<Template>,
}

/// Which templates.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplatesQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
}

impl From<TemplateInfo> for Template {
    fn from(info: TemplateInfo) -> Self {
        let TemplateOptions { image, machine, memory_mib, cpu_millis, .. } = info.options;
        let TemplateOptions { scratch_bytes, workdir, user, labels, egress, .. } = info.options;
        let TemplateOptions { ttl_ms, idle_ttl_ms, on_idle, keep_stopped_ms, .. } = info.options;
        let TemplateOptions { start, ready, ready_timeout_ms, warm, .. } = info.options;
        let stock = info.stock.as_ref();
        Self {
            namespace: info.namespace.to_string(),
            name: info.name.to_string(),
            revision: info.revision,
            created_at_ms: info.created_at_ms,
            configured: info.configured,
            image,
            machine: machine.map(Machine),
            memory_mib,
            cpus: cpu_millis.map(|millis| f64::from(millis) / 1000.0),
            scratch_bytes,
            env_names: info.env_names,
            workdir,
            user,
            labels,
            egress,
            ttl_ms,
            idle_ttl_ms,
            on_idle,
            keep_stopped_ms,
            start,
            ready,
            ready_timeout_ms,
            warm: warm as u64,
            warm_ready: stock.map_or(0, |stock| stock.ready as u64),
            warm_failure: stock.and_then(|stock| stock.failure.clone()),
        }
    }
}

/// The template that the path names, if the key reaches it.
fn named(call: &Call) -> Result<TemplateRef, Refusal> {
    let namespace: Name = call.parameter("namespace")?;
    let name: TemplateName = call.parameter("name")?;
    call.reaches(&namespace)?;
    let which = TemplateRef { namespace, name };
    call.trail.fact("template", which.to_string());
    Ok(which)
}

async fn put(
    call: Call,
    _: Nothing,
    Json(request): Json<PutTemplate>,
) -> Result<Reply<Template>, Refusal> {
    let which = named(&call)?;
    let options = TemplateOptions {
        machine: request.machine.map(|Machine(kind)| kind),
        image: request.image,
        memory_mib: request.memory_mib,
        cpu_millis: request.cpus.map(cpu_millis).transpose()?,
        scratch_bytes: request.scratch_bytes,
        env: request.env,
        workdir: request.workdir,
        user: request.user,
        labels: request.labels,
        egress: request.egress,
        ttl_ms: request.ttl_ms,
        idle_ttl_ms: request.idle_ttl_ms,
        on_idle: request.on_idle,
        keep_stopped_ms: request.keep_stopped_ms,
        start: request.start,
        ready: request.ready,
        ready_timeout_ms: request.ready_timeout_ms,
        warm: usize::try_from(request.warm).unwrap_or(usize::MAX),
    };
    let options = settled_template(&call.api, &call.caller, &which, options)?;
    call.trail.image(options.image.clone(), None);
    Ok(Reply(call.api.registry().put_template(which, options).await?.into()))
}

async fn list(
    call: Call,
    Query(query): Query<TemplatesQuery>,
    _: Nothing,
) -> Result<Reply<TemplateList>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    let templates = call.api.registry().templates(namespace.as_ref());
    Ok(Reply(TemplateList { templates: templates.into_iter().map(Template::from).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Template>, Refusal> {
    Ok(Reply(call.api.registry().get_template(&named(&call)?)?.into()))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Template>, Refusal> {
    Ok(Reply(call.api.registry().remove_template(&named(&call)?).await?.into()))
}
