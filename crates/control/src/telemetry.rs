//! The telemetry that the settings ask for. The journal and the daemon share it.

use host::id::RandomId;
use host::secret::Secrets;
use otel::{Attributes, Options, Otel};
use settings::Settings;

/// Keeps spans and records from here on, if that is configured; the daemon sends them.
pub fn telemetry(settings: &Settings) -> Otel {
    let set = &settings.otel;
    if !set.enabled {
        return Otel::default();
    }
    Otel::new(Options {
        origin: set.endpoint.origin.clone(),
        path: set.endpoint.path.clone(),
        headers: set.headers.clone(),
        secrets: Secrets::new(settings.secrets.clone()),
        ca: set.ca.clone(),
        signals: set.signals.clone(),
        interval: set.interval,
        sample_percent: u8::try_from(set.sample_percent).unwrap_or(100),
        resource: resource(settings),
    })
}

/// Who sends. What the operator has set wins over what is found out.
fn resource(settings: &Settings) -> Attributes {
    let mut resource = Attributes::default();
    resource.set("service.name", settings.otel.service_name.as_str());
    resource.set("service.version", env!("CARGO_PKG_VERSION"));
    resource.set_if("service.instance.id", RandomId::draw().ok().map(|id| id.to_string()));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    resource.set_if("host.name", host.as_deref().map(str::trim));
    resource.set("process.pid", u64::from(std::process::id()));
    for entry in &settings.otel.resource {
        if let Some((key, value)) = entry.split_once('=') {
            resource.set(key.to_owned(), value);
        }
    }
    resource
}
