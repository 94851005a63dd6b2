//! The body of a request for a program, and the request to the agent made from it.

use std::collections::BTreeMap;

use protocol::SessionId;
use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::forms::ranges::{CPUS_MAX, check_range, cpu_millis};
use sandbox::limits::MEMORY_MIB_MAX;
use sandbox::refusal::Refusal;

pub use super::limits::TIMEOUT_MS_MAX;

/// The names that sessions may have.
pub const SESSION_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$";

/// Bytes of a mebibyte.
const MIB: u64 = 1024 * 1024;
/// As many as a kernel has numbers for.
const PROCESSES_MAX: u64 = 4 * 1024 * 1024;

/// Limits on what a program and all that it starts may use. A warning names each limit that the
/// host cannot enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    #[serde(default)]
    #[schemars(range(min = 1, max = MEMORY_MIB_MAX))]
    pub memory_mib: Option<u64>,
    /// CPUs; fractions are allowed.
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    pub cpus: Option<f64>,
    #[serde(default)]
    #[schemars(range(min = 1, max = PROCESSES_MAX))]
    pub processes: Option<u64>,
}

/// All of a program but how it is connected.
#[derive(Clone, Debug)]
pub struct Described {
    pub program: Program,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub user: Option<String>,
    pub timeout_ms: Option<u64>,
    pub bounds: Bounds,
}

impl Described {
    /// Where it names no directory, it begins in that of its sandbox.
    #[must_use]
    pub fn beginning_in(mut self, workdir: Option<&str>) -> Self {
        self.cwd = self.cwd.or_else(|| workdir.map(str::to_owned));
        self
    }

    /// The request that starts it.
    pub fn start(self, session: SessionId, stdio: Stdio) -> Result<Start, Refusal> {
        check_timeout(self.timeout_ms)?;
        Ok(Start {
            session,
            program: self.program,
            cwd: self.cwd.map(Into::into),
            env: self.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            user: self.user,
            stdio,
            deadline_ms: self.timeout_ms,
            spool: SpoolSpec::default(),
            holders: Vec::new(),
            tied: false,
            limits: self.bounds.group_limits()?,
        })
    }
}

impl Bounds {
    fn group_limits(self) -> Result<GroupLimits, Refusal> {
        check_range("limits.memory_mib", self.memory_mib, 1, MEMORY_MIB_MAX)?;
        check_range("limits.processes", self.processes, 1, PROCESSES_MAX)?;
        let cpu_millis = self.cpus.map(cpu_millis).transpose()?;
        Ok(GroupLimits {
            memory_bytes: self.memory_mib.map(|mib| mib * MIB),
            processes: self.processes,
            // No share at all would mean that it never runs.
            cpu_millis: cpu_millis.map(|millis| u64::from(millis.max(CPU_MILLIS_MIN))),
        })
    }
}

/// The smallest share of a processor that a program gets: the same as a sandbox's.
const CPU_MILLIS_MIN: u32 = sandbox::limits::CPU_MILLIS_MIN;

pub fn check_timeout(timeout_ms: Option<u64>) -> Result<(), Refusal> {
    check_range("timeout_ms", timeout_ms, 1, TIMEOUT_MS_MAX)
}
