//! The limits of settings, and the defaults whose numbers need a reason.

use std::time::Duration;

/// A configuration file; the documented example has a few kilobytes.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Entries of a list, and of the table of images.
pub const ENTRIES_MAX: usize = 1024;
/// Labels that are in the figures, and the values that each may have.
pub const METRIC_LABELS_MAX: usize = 16;
pub const METRIC_VALUES_MAX: u64 = 10_000;
/// Teams, environments and the like are fewer; a label with more values is a name of something.
pub const METRIC_VALUES_DEFAULT: usize = 50;
/// Mirrors of one registry: each may be asked for every image.
pub const MIRRORS_MAX: usize = 16;

/// How long the published clients wait for an answer, whatever it is.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(300);
/// The deadline of a run that names none: its end is sent, with the partial output, while the
/// client still listens.
pub const RUN_DEADLINE_DEFAULT: Duration = Duration::from_secs(240);
/// The published clients keep an idle connection for 15 s, and proxies often for 60 s. To keep it
/// longer than they do means that it is never this end that closes one under a request.
pub const CONNECTION_IDLE_DEFAULT: Duration = Duration::from_secs(75);
/// The same for the shortest that may be set.
pub const CONNECTION_IDLE_MIN: Duration = Duration::from_secs(20);
/// How long a daemon that a verb started stays when nothing needs it: longer than a person thinks.
pub const IDLE_END_DEFAULT: Duration = Duration::from_secs(600);
/// Connections of SSH: each is one descriptor and a few tasks.
pub const SSH_CONNECTIONS_DEFAULT: usize = 512;
/// Those of one key, so that one tenant does not take the places of all.
pub const SSH_CONNECTIONS_PER_KEY_DEFAULT: usize = 128;
/// The most of both: a process has some hundred thousand descriptors.
pub const SSH_CONNECTIONS_MAX: u64 = 100_000;
/// How long a connection of SSH may be without a channel. A client that shares one keeps it open in between.
pub const SSH_IDLE_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// The shortest: a client may take some seconds from its login to its first channel.
pub const SSH_IDLE_MIN: Duration = Duration::from_secs(5);
/// The largest body of a request that is held in memory. The largest that clients are known to send
/// is some megabytes of code and files.
pub const BODY_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// As much may be allowed: every run of `runs_max` may hold one.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// What all calls may hold in memory: sixteen of the largest bodies or so.
pub const CALLS_MEMORY_DEFAULT: u64 = 1024 * 1024 * 1024;
/// The least: a key has a quarter of it, and some megabytes of output must fit that.
pub const CALLS_MEMORY_MIN: u64 = 64 * 1024 * 1024;
/// The most; a host with a terabyte for its sandboxes needs no more for calls.
pub const CALLS_MEMORY_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// Durations that may be set at most: ten years, which no monotonic clock overflows with.
pub const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The most memory that may be asked for, 64 TiB: what no host has.
pub const MEMORY_MIB_MAX: u64 = 64 * 1024 * 1024;
/// Machines of one entry of the pool. What all entries may have together is the pool's own bound.
pub const POOL_COUNT_MAX: usize = 256;
/// An unclaimed machine is replaced once an hour, so that what is updated in its image in place, and
/// whatever leaks in an idle machine, is not kept forever.
pub const POOL_AGE_DEFAULT: Duration = Duration::from_secs(3600);
/// A file of the audit log: some ten thousand records, which is read in an instant.
pub const AUDIT_FILE_BYTES_DEFAULT: u64 = 16 * 1024 * 1024;
/// The smallest, which the longest line fits in.
pub const AUDIT_FILE_BYTES_MIN: u64 = 256 * 1024;
/// The largest: a query reads whole files.
pub const AUDIT_FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// How long a node of a fleet may go without NATS: longer than NATS takes to change a leader.
pub const FLEET_GRACE_DEFAULT: Duration = Duration::from_secs(20);
/// A renewal is sent each second: below this one that is late would end sandboxes.
pub const FLEET_GRACE_MIN: Duration = Duration::from_secs(3);
/// Servers of NATS in one list: more than a cluster has.
pub const FLEET_SERVERS_MAX: usize = 16;
/// Labels of a node: each is in the description that every member has of it.
pub const FLEET_LABELS_MAX: usize = 32;
/// Quotas of namespaces in one list: each is read from the store for a scrape of the figures.
pub const FLEET_QUOTAS_MAX: usize = 64;
/// The largest quota: as many sandboxes as a fleet is made for.
pub const FLEET_QUOTA_MAX: u32 = 1_000_000;
/// How long durable output of a fleet is kept: long enough to look at what was lost over a weekend, and a holiday.
pub const FLEET_LOG_AGE_DEFAULT: Duration = Duration::from_hours(7 * 24);
/// NATS removes old messages each second.
pub const FLEET_LOG_AGE_MIN: Duration = Duration::from_secs(1);
/// How much of it: some thousand long builds.
pub const FLEET_LOG_BYTES_DEFAULT: u64 = 10 * 1024 * 1024 * 1024;
/// Each of the streams that share it has room for some flights.
pub const FLEET_LOG_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Attempts at one event of a webhook: some four minutes.
pub const WEBHOOK_ATTEMPTS_DEFAULT: u32 = 10;
/// The most, which take an hour and a half: an event that is tried for longer holds up all others.
pub const WEBHOOK_ATTEMPTS_MAX: u32 = 100;
/// Headers of requests to a collector, and attributes of the resource: each is in every request.
pub const OTEL_HEADERS_MAX: usize = 32;
pub const OTEL_RESOURCE_MAX: usize = 32;
/// How often metrics are sent: as often as OpenTelemetry's own programs do.
pub const OTEL_INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
/// The port of collectors for OTLP over HTTP.
pub const OTEL_PORT: u16 = 4318;
/// The most CPUs.
pub const CPUS_MAX: u32 = 4096;

const _: () = assert!(
    RUN_DEADLINE_DEFAULT.as_secs() + 30 <= CLIENT_PATIENCE.as_secs(),
    "a client hears of its deadline"
);
const _: () = assert!(CONNECTION_IDLE_MIN.as_secs() > 15, "longer than the published clients");
