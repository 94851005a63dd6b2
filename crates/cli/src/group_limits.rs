//! Limits on one program or interpreter of a sandbox, as flags of the verbs that start one.

use clap::Args;
use protocol::requests::GroupLimits;

use super::values::{ValueError, parse_cpu_millis, parse_memory_mib};

const MIB: u64 = 1024 * 1024;

/// Limits on what is started, with all its child processes. The sandbox's own limits hold besides.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct GroupLimitArguments {
    /// Limit its memory, as in 512M or 2G (default: the sandbox's limit)
    #[arg(long, value_name = "SIZE", value_parser = parse_some_memory)]
    memory: Option<u64>,

    /// Limit its processors, as in 2 or 0.5 (default: the sandbox's limit)
    #[arg(long, value_name = "N", value_parser = parse_cpu_millis)]
    cpus: Option<u32>,

    /// Limit its processes and threads (default: the sandbox's limit)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    processes: Option<u64>,
}

impl GroupLimitArguments {
    pub fn limits(&self) -> GroupLimits {
        // Without any share it would never run.
        let cpus = self.cpus.map(|millis| millis.max(sandbox::limits::CPU_MILLIS_MIN));
        GroupLimits {
            memory_bytes: self.memory.map(|mib| mib.saturating_mul(MIB)),
            processes: self.processes,
            cpu_millis: cpus.map(u64::from),
        }
    }
}

/// Nothing runs in no memory at all.
fn parse_some_memory(text: &str) -> Result<u64, ValueError> {
    match parse_memory_mib(text)? {
        0 => Err(ValueError::Memory(text.to_owned())),
        mib => Ok(mib),
    }
}
