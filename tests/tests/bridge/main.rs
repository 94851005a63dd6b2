//! The bridge as a daemon: restarts, crashes, limits, metrics and the audit log.

mod audit;
mod audit_subjects;
mod caps;
mod claims;
mod crashes;
mod daemon;
mod damage;
mod events;
mod forks;
mod full_disks;
mod layers;
mod metrics;
mod otel;
mod playback;
mod provenance;
mod recording;
mod telemetry;
mod templates;
mod timeline;
mod volumes;
mod webhooks;
