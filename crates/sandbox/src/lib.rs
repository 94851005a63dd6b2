//! Sandboxes: named machines with a record and an output log, each owned by one task.
//!
//! ```text
//!            started                stop               machine gone
//!  creating ─────────▶ running ─────────▶ stopping ─────────────────▶ stopped{why}
//!     │ failed           │  │ machine gone, killed                       ▲
//!     ▼                  │  └────────────────────────────────────────────┤
//!  (nothing left)        │ agent does not answer        killed, gone     │
//!                        └──────────────────────▶ lost ──────────────────┘
//! ```
//!
//! From running a sandbox goes to paused and back, where its machine can: by hand, or when it is idle and
//! until the next request (`owner/sleep`). Paused it is stopped and killed as ever.
//!
//! The [`registry::Registry`] maps a name to the one task that owns it; only that task changes the
//! sandbox's state, writes its record and orders its machine about. `services`, `node` and the doors call this;
//! it knows nothing of who asks or how.

#![forbid(unsafe_code)]

mod again;
pub mod caps;
pub mod changes;
mod commit;
mod contents;
pub mod costs;
mod directories;
mod due;
pub mod durable;
pub mod event;
mod expiry;
pub mod fork;
mod granted;
pub mod host_files;
pub mod host_packages;
mod idle;
mod image;
pub mod label;
pub mod limits;
pub mod log;
mod meter;
mod mounted;
pub mod name;
pub mod names;
pub mod on_lost;
pub mod one_shot;
pub mod options;
mod owner;
mod page;
pub mod pool;
mod presence;
mod preset;
mod program_events;
pub mod record;
mod recorder;
mod recording;
pub mod refusal;
pub mod registry;
mod saver;
mod secrets;
mod shared;
pub mod snapshot;
pub mod spec;
mod startup;
pub mod state;
mod stored;
pub mod tallies;
pub mod telemetry;
pub mod template;
mod trust;
mod words;

use std::io;
use std::path::PathBuf;

pub use self::image::root_of;
pub use changes::Changes;
pub use durable::{Durability, DurableLogs};
pub use event::{Event, EventSink, Facts, Kind, Subject, WorkspaceEvent};
pub use fork::{Ancestor, ForkRequest, Forked};
pub use host_files::HostFiles;
pub use idle::OnIdle;
pub use label::{InvalidLabel, Labels, Selector};
pub use log::{find_log, find_record};
pub use name::{InvalidName, Name, SandboxRef};
pub use names::{Incarnation, NameRefused, Names};
pub use on_lost::{Followed, OnLost, Returning};
pub use one_shot::{OneShot, OneShotOptions, one_shot, one_shot_with};
pub use page::{Filter, Page};
pub use presence::Activity;
pub use preset::Preset;
pub use record::Record;
pub use recorder::HOLDER as RECORDED_HOLDER;
pub use recording::RecordPolicy;
pub use registry::{
    Import, ListedSnapshot, Registry, RegistryOptions, TemplateInfo, Until, Update, Visit,
};
pub use saver::CarriedContexts;
pub use shared::{SharedTemplates, TemplateRefused};
pub use snapshot::retention::{Amount, Excess, Removal, Retention};
pub use snapshot::{Export, Snapshot, archive::ArchiveError};
pub use spec::Spec;
pub use startup::{START_SESSION, StartupError};
pub use state::{ExpiryKind, Phase, State, StopReason, UnknownPhase};
pub use stored::image_users;
pub use template::{Template, TemplateName, TemplateOptions, TemplateRef};
pub use words::UnknownWord;

pub use commit::CommitError;
use egress::{EgressError, RuleError};

use crate::limits::{
    SANDBOXES_MAX, SNAPSHOTS_BYTES_MAX, SNAPSHOTS_MAX, TEMPLATE_COMMAND_BYTES_MAX, TEMPLATES_MAX,
    TEMPLATES_PER_NAMESPACE_MAX, USER_BYTES_MAX, WORKDIR_BYTES_MAX,
};
use ::image::ImageError;
use host::secret::SecretError;
use host::units::human_bytes;
pub use machine::{Confinement, MachineKind, SandboxId, ScratchPlace, ScratchPolicy, Users};
use machine::{MachineError, NoDisk};
pub use protocol::boot::IDS_PER_SANDBOX;
use workspace::WorkspaceError;
use workspace::volume::{InvalidMount, VolumeError};

/// Why something could not be done with a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the name {which} is taken: {id} is {state}")]
    NameTaken { which: SandboxRef, id: SandboxId, state: State },
    #[error("{which}: {refused}")]
    NameRefused { which: SandboxRef, refused: NameRefused },
    #[error(transparent)]
    TemplateRefused(Box<TemplateRefused>),
    #[error("{} cannot be {durability}: {why}", options::called("durability"))]
    NotDurable { durability: Durability, why: String },
    #[error("{} cannot be {value} here: this bridge is in no fleet", options::called(option))]
    NoFleet { option: &'static str, value: &'static str },
    #[error("{} cannot be {on_lost}: only this host has {what}", options::called("on_lost"))]
    OfThisHost { on_lost: OnLost, what: &'static str },
    #[error(
        "{} selects nodes of a fleet, and this bridge is in none",
        options::called("node_labels")
    )]
    NoNodes,
    #[error("there is no sandbox {which}")]
    NotFound { which: SandboxRef },
    #[error("{which} is {state}")]
    StillRunning { which: SandboxRef, state: State },
    #[error("{which} is not running: {state}")]
    NotRunning { which: SandboxRef, state: State },
    #[error(
        "{which} was killed, but its machine still exists after {seconds} s: a process in it hangs \
        in the kernel"
    )]
    WillNotDie { which: SandboxRef, seconds: u64 },
    #[error(
        "the bridge already counts the use of as many namespaces and keys as it can today; try \
        again tomorrow"
    )]
    TooManyMetered,
    #[error(
        "a process sandbox needs an image here: this bridge gives none the host's files; give an \
        image, or set root in [process] of its configuration (\"/\" is the host's own root)"
    )]
    NoRoot,
    #[error(
        "this bridge gives no sandbox the host's own root: give an image, or set root = \"/\" in \
        [process] of its configuration"
    )]
    HostRoot,
    #[error("there are {SANDBOXES_MAX} sandboxes, which is the limit; remove stopped ones")]
    TooMany,
    #[error(
        "{name:?} cannot be the name of an environment variable: a name is text without '=' or \
        zero bytes"
    )]
    Environment { name: String },
    #[error(
        "{hostname:?} is not a host name: use 1 to 63 letters, digits, '_' and '-', beginning with \
        a letter or digit"
    )]
    Hostname { hostname: String },
    #[error(
        "{workdir:?} cannot be a working directory: use an absolute path of at most \
        {WORKDIR_BYTES_MAX} bytes"
    )]
    Workdir { workdir: String },
    #[error(
        "{user:?} cannot be a user: use NAME, NAME:GROUP, UID or UID:GID, of at most \
        {USER_BYTES_MAX} bytes"
    )]
    User { user: String },
    #[error("the values of {} are not kept, and {which} was started with them", names.join(", "))]
    ValuesMissing { which: SandboxRef, names: Vec<String> },
    #[error("the packages of {which} are no longer in {}, since nothing ran with them", directory.display())]
    PackagesGone { which: SandboxRef, directory: PathBuf },
    #[error("the creation of {which} was cancelled while its {during}")]
    CreationEnded { which: SandboxRef, during: &'static str },
    #[error(
        "the creation of {which} was cancelled: its namespace or its key has used all that it may \
        use today"
    )]
    CreationSpent { which: SandboxRef },
    #[error("{which} could not be forked: {source}")]
    Fork { which: SandboxRef, source: Box<CommitError> },
    #[error("no image could be made of {which}: {source}")]
    Commit { which: SandboxRef, source: Box<CommitError> },
    #[error(
        "{} must be from {} to {}, not {}", options::called(what), options::amount(what, *min),
        options::amount(what, *max), options::amount(what, *value)
    )]
    OutOfRange { what: &'static str, value: u64, min: u64, max: u64 },
    #[error(
        "{} must be at most {}, not {}: the writable layer is in memory, and may take three quarters of \
        the {} that {} allows; it cannot be on disk: {no_disk}", options::called("scratch_bytes"),
        human_bytes(*max), human_bytes(*requested), human_bytes(*memory), options::called("memory_mib")
    )]
    ScratchBeyondMemory { requested: u64, max: u64, memory: u64, no_disk: String },
    #[error("the configuration wants writable layers on disk (scratch in [process]), and {0}")]
    NoDisk(NoDisk),
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    #[error("egress: {0}")]
    Rule(#[from] RuleError),
    #[error("its egress cannot be set up: {0}")]
    Egress(#[from] EgressError),
    #[error("{what} is not supported: {why}")]
    Unsupported { what: &'static str, why: &'static str, hint: &'static str },
    #[error(
        "the {scope} may use {allowed} of {cap}: {used} are in use, and this call asks for {requested} more"
    )]
    CapExceeded { scope: caps::Scope, cap: &'static str, used: u64, requested: u64, allowed: u64 },
    #[error("the {scope} may use {allowed} of {cap}, and has used all of it today")]
    DaySpent { scope: caps::Scope, cap: &'static str, used: u64, allowed: u64 },
    #[error(
        "the {scope} has a cap on {what}, so each sandbox must set a limit on it: give {}",
        options::called(what)
    )]
    Unbounded { scope: caps::Scope, what: &'static str },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    VolumeMount(#[from] InvalidMount),
    #[error("the volume {name:?} could not be mounted at {path:?}: {source}")]
    VolumeNotMounted { name: String, path: String, source: io::Error },
    #[error("{which} has secrets, and a snapshot would write its memory with the secrets to disk")]
    HoldsSecrets { which: SandboxRef },
    #[error("the agent of {which} no longer answers: {reason}")]
    Lost { which: SandboxRef, reason: String },
    #[error("{which} is paused")]
    Paused { which: SandboxRef },
    #[error(
        "{which} cannot go on now: its node could not renew its lease in the fleet, and its sandboxes are paused until it can"
    )]
    Held { which: SandboxRef },
    #[error("{which} was paused while it was idle, and did not wake: {why}")]
    NotWoken { which: SandboxRef, why: String },
    #[error("on_idle (--on-idle) cannot be {then} here: {why}")]
    CannotSleep { then: OnIdle, why: String },
    #[error(
        "on_idle (--on-idle) is {then}, and idle_ttl_ms (--idle) does not say after how long: give both"
    )]
    NeverIdle { then: OnIdle },
    #[error("{which} is already being paused, resumed, snapshotted or committed")]
    Busy { which: SandboxRef },
    #[error("there is no snapshot {snapshot}")]
    NoSnapshot { snapshot: SandboxRef },
    #[error("the snapshot {snapshot} already exists")]
    SnapshotTaken { snapshot: SandboxRef },
    #[error("the {what} comes from the snapshot {snapshot} and cannot be changed")]
    SnapshotFixes { snapshot: SandboxRef, what: &'static str },
    #[error("there are {SNAPSHOTS_MAX} snapshots, which is the limit; remove some")]
    TooManySnapshots,
    #[error(
        "the snapshots take {bytes} bytes, and this one could take them over the limit of \
        {SNAPSHOTS_BYTES_MAX}; remove some"
    )]
    SnapshotsTooLarge { bytes: u64 },
    #[error("the archive of the snapshot is refused: {0}")]
    Archive(#[source] Box<ArchiveError>),
    #[error("there is no template {template}")]
    NoTemplate { template: TemplateRef },
    #[error("the template {template} comes from the configuration, and no call changes it")]
    TemplateConfigured { template: TemplateRef },
    #[error(
        "the namespace {namespace} has {TEMPLATES_PER_NAMESPACE_MAX} templates or all namespaces have \
        {TEMPLATES_MAX}, which is the limit; remove some"
    )]
    TooManyTemplates { namespace: Name },
    #[error(
        "the {what} command must be a script of 1 to {TEMPLATE_COMMAND_BYTES_MAX} bytes without zero bytes"
    )]
    TemplateCommand { what: &'static str },
    #[error(
        "{what} is set by the template {template}: leave it out, or start without the template"
    )]
    TemplateFixes { template: TemplateRef, what: &'static str },
    #[error("{which} did not become ready by the commands of its template: {source}")]
    NotReady { which: SandboxRef, source: Box<StartupError> },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("{which} has notebooks with unsaved runs: {what}")]
    Unsaved { which: SandboxRef, what: String },
    /// The request was carried out, but the next bridge would not know about it.
    #[error(
        "{which} is {state}, but its record could not be written: {source}; it is written as soon as \
        it can be"
    )]
    NotRecorded { which: SandboxRef, state: State, source: io::Error },
    #[error("could not {action} {path:?}: {source}")]
    Files { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot make a random id: {0}")]
    Draw(io::Error),
    #[error("the bridge is stopping")]
    Stopping,
}

impl From<ArchiveError> for SandboxError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(Box::new(error))
    }
}
