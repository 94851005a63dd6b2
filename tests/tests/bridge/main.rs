//! The bridge as a daemon: restarts, crashes, limits, metrics and the audit log.

mod audit;
mod audit_subjects;
mod caps;
mod crashes;
mod daemon;
mod metrics;
