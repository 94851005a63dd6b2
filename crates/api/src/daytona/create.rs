//! A sandbox as Daytona's clients ask for it, and the specification that it is.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::answer::lacking;
use super::labels::{EPHEMERAL, OWN_LABELS, SNAPSHOT, TARGET};
use super::limits::{AUTO_STOP_MINUTES_DEFAULT, IDLE_FOREVER_MS, MINUTE_MS};
use super::volumes::Mount;
use crate::call::Call;
use crate::creation::{drawn_name, make_of, namespace_of};
use crate::placing;
use sandbox::refusal::Refusal;
use sandbox::{OnIdle, SandboxRef, Spec};

const MIB_PER_GIB: u64 = 1024;
const GIB: u64 = 1024 * 1024 * 1024;
/// One processor in thousandths.
const CPU_MILLIS: u32 = 1000;

/// The body of a creation. A field that it does not know is refused: it may ask for something.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    name: Option<String>,
    snapshot: Option<String>,
    user: Option<String>,
    env: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
    public: Option<bool>,
    network_block_all: Option<bool>,
    network_allow_list: Option<String>,
    domain_allow_list: Option<String>,
    target: Option<String>,
    cpu: Option<u32>,
    gpu: Option<u32>,
    gpu_type: Option<Vec<Value>>,
    memory: Option<u64>,
    disk: Option<u64>,
    auto_stop_interval: Option<u64>,
    auto_pause_interval: Option<u64>,
    auto_archive_interval: Option<u64>,
    auto_delete_interval: Option<i64>,
    ttl_minutes: Option<u64>,
    build_info: Option<Build>,
    volumes: Option<Vec<Mount>>,
    secrets: Option<Vec<Value>>,
    kvm: Option<bool>,
    spot: Option<bool>,
    outbound_proxy_url: Option<String>,
    otel_endpoint_override: Option<String>,
    linked_sandbox: Option<String>,
    /// Nothing waits for a place here.
    #[serde(rename = "queueTimeout")]
    _queue_timeout: Option<Value>,
}

/// What a sandbox may reach.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Reach {
    network_block_all: Option<bool>,
    network_allow_list: Option<String>,
    domain_allow_list: Option<String>,
}

impl Reach {
    /// The rules of egress that come of it; none for the operator's own.
    pub fn egress(&self) -> Option<Vec<String>> {
        rules(self.network_block_all, [&self.network_allow_list, &self.domain_allow_list])
    }
}

fn rules(blocks_all: Option<bool>, lists: [&Option<String>; 2]) -> Option<Vec<String>> {
    if blocks_all == Some(true) {
        return Some(Vec::new());
    }
    let rules = lists.into_iter().flatten().flat_map(|list| list.split(','));
    let rules = rules.map(str::trim).filter(|rule| !rule.is_empty()).map(str::to_owned);
    let rules: Vec<String> = rules.collect();
    (!rules.is_empty()).then_some(rules)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Build {
    dockerfile_content: String,
}

impl Create {
    pub fn into_spec(self, call: &Call) -> Result<Spec, Refusal> {
        self.check()?;
        let name = match self.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => {
                name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?
            }
            None => drawn_name("daytona")?,
        };
        let namespace = namespace_of(&call.caller, None);
        let which = placing::name(call, || Ok(SandboxRef { namespace, name }))?;
        call.reaches(&which.namespace)?;
        let mut spec = Spec::new(which);
        self.set_life(&mut spec)?;
        spec.egress = self.egress();
        spec.volumes = Mount::resolve(self.volumes.unwrap_or_default(), call)?;
        spec.user = self.user.filter(|user| !user.is_empty());
        spec.cpu_millis = self.cpu.map(|cpus| cpus.saturating_mul(CPU_MILLIS));
        spec.memory_mib = self.memory.map(|gib| gib.saturating_mul(MIB_PER_GIB));
        spec.scratch_bytes = self.disk.map(|gib| gib.saturating_mul(GIB));
        spec.env = self.env.unwrap_or_default().into_iter().collect();
        let own = [(TARGET, self.target), (SNAPSHOT, self.snapshot.clone())];
        let own = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        spec.labels.extend(own);
        for (key, value) in self.labels.unwrap_or_default() {
            if key.starts_with(OWN_LABELS) {
                return Err(Refusal::invalid(format!("labels: {key:?} is this server's own")));
            }
            spec.labels.insert(key, value);
        }
        if let Some(build) = &self.build_info {
            spec.image = Some(only_image(&build.dockerfile_content)?.to_owned());
        } else if let Some(snapshot) = self.snapshot.as_deref().filter(|name| !name.is_empty()) {
            make_of(call.api.registry(), &mut spec, snapshot.to_owned());
        }
        Ok(spec)
    }

    /// How long it lives, and what happens when nothing is at work in it.
    fn set_life(&self, spec: &mut Spec) -> Result<(), Refusal> {
        let is_ephemeral = match self.auto_delete_interval {
            None => false,
            Some(minutes) => delete_interval(minutes)?,
        };
        let stop = self.auto_stop_interval.or(self.auto_pause_interval);
        let minutes = match (self.auto_stop_interval, self.auto_pause_interval) {
            (Some(0), Some(pause)) => Some(pause),
            _ => stop,
        };
        let minutes = minutes.unwrap_or(AUTO_STOP_MINUTES_DEFAULT);
        // What happens when it is idle is settled here, also for one that may be idle forever until its client
        // names another time.
        let idle_ms = minutes.saturating_mul(MINUTE_MS);
        spec.idle_ttl_ms = Some(if minutes == 0 { IDLE_FOREVER_MS } else { idle_ms });
        spec.on_idle = Some(if is_ephemeral { OnIdle::Stop } else { OnIdle::Pause });
        // A sandbox that has ended is not there to Daytona's clients.
        spec.keep_stopped_ms = Some(0);
        let ttl_minutes = self.ttl_minutes.filter(|minutes| *minutes > 0);
        spec.ttl_ms = ttl_minutes.map(|minutes| minutes.saturating_mul(MINUTE_MS));
        if is_ephemeral {
            spec.labels.insert(EPHEMERAL.to_owned(), String::new());
        }
        Ok(())
    }

    fn egress(&self) -> Option<Vec<String>> {
        rules(self.network_block_all, [&self.network_allow_list, &self.domain_allow_list])
    }

    /// Refuses what no machine of this server does.
    fn check(&self) -> Result<(), Refusal> {
        let some = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let many = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let asked = [
            (
                self.public == Some(true),
                "public sandboxes: the operator says which ports are public",
            ),
            (self.gpu.is_some_and(|count| count > 0) || many(&self.gpu_type), "GPUs"),
            (
                self.auto_archive_interval.is_some_and(|minutes| minutes > 0),
                "archives; a sandbox that has stopped stays on the disk of its host",
            ),
            (many(&self.secrets), "secrets by their names in Daytona"),
            (self.kvm == Some(true), "kvm"),
            (self.spot == Some(true), "spot sandboxes"),
            (some(&self.outbound_proxy_url), "outbound_proxy_url"),
            (some(&self.otel_endpoint_override), "otel_endpoint_override"),
            (some(&self.linked_sandbox), "linked sandboxes"),
        ];
        match asked.into_iter().find(|(is_asked, _)| *is_asked) {
            Some((_, what)) => Err(lacking(what)),
            None => Ok(()),
        }
    }
}

/// Whether a sandbox is removed when it stops. There is no other time after which one is removed that has
/// stopped: it is paused, and kept until somebody deletes it.
pub fn delete_interval(minutes: i64) -> Result<bool, Refusal> {
    match minutes {
        0 => Ok(true),
        ..0 => Ok(false),
        _ => Err(lacking(
            "a deletion some minutes after a stop; use 0 (at the stop), -1 (never) or ttl_minutes",
        )),
    }
}

/// The image of a recipe that has nothing but its first line.
fn only_image(recipe: &str) -> Result<&str, Refusal> {
    let lines = recipe.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let image = lines.next().and_then(|line| line.strip_prefix("FROM ")).map(str::trim);
    match (image, lines.next()) {
        (Some(image), None) if !image.is_empty() && !image.contains(' ') => Ok(image),
        (Some(_), Some(_)) => {
            Err(lacking("images with steps; build one with `host-bridge image build`, and name it"))
        }
        _ => Err(Refusal::invalid("buildInfo.dockerfileContent must be one line, FROM IMAGE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox_options::assert_form;
    use sandbox::options::Door;
    use sandbox::refusal::Code;

    #[test]
    fn a_creation_has_the_options_that_the_table_says() {
        // Those are refused, or say what this server does by itself.
        let own = [
            "public",
            "target",
            "gpu",
            "gpuType",
            "autoArchiveInterval",
            "queueTimeout",
            "secrets",
            "kvm",
            "spot",
            "outboundProxyUrl",
            "otelEndpointOverride",
            "linkedSandbox",
        ];
        assert_form::<Create>(Door::Daytona, &own);
    }

    #[test]
    fn a_field_that_nobody_knows_is_refused() {
        for body in [r#"{"class":"large"}"#, r#"{"idleTimeout":5}"#] {
            assert!(serde_json::from_str::<Create>(body).is_err(), "{body}");
        }
        let check = |body| serde_json::from_str::<Create>(body).unwrap().check();
        assert_eq!(check(r#"{"autoArchiveInterval":60}"#).unwrap_err().code, Code::Unsupported);
        assert!(check(r#"{"autoArchiveInterval":0,"queueTimeout":60}"#).is_ok());
    }

    #[test]
    fn an_image_is_the_one_line_of_a_recipe() {
        assert_eq!(only_image("FROM python:3.12\n").unwrap(), "python:3.12");
        assert_eq!(only_image("# one\n\nFROM  a/b \n").unwrap(), "a/b");
        assert_eq!(only_image("FROM a\nRUN true\n").unwrap_err().code, Code::Unsupported);
        for broken in ["", "RUN true", "FROM a AS b", "FROM "] {
            assert_eq!(only_image(broken).unwrap_err().code, Code::Invalid, "{broken}");
        }
    }

    #[test]
    fn a_sandbox_reaches_what_its_lists_name_or_the_operators_own() {
        let read = |text| serde_json::from_str::<Create>(text).unwrap().egress();
        let rules = |list: &[&str]| Some(list.iter().map(|rule| (*rule).to_owned()).collect());
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"networkAllowList":"","domainAllowList":null}"#), None);
        assert_eq!(read(r#"{"networkBlockAll":true,"domainAllowList":"a.example"}"#), rules(&[]));
        let both = r#"{"networkAllowList":"10.0.0.0/8, 192.0.2.1","domainAllowList":"a.example"}"#;
        assert_eq!(read(both), rules(&["10.0.0.0/8", "192.0.2.1", "a.example"]));
    }

    #[test]
    fn only_at_its_stop_or_never_is_a_stopped_sandbox_removed() {
        assert_eq!(delete_interval(0), Ok(true));
        assert_eq!(delete_interval(-1), Ok(false));
        assert_eq!(delete_interval(5).unwrap_err().code, Code::Unsupported);
    }
}
