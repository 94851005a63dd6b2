//! The configuration drive of a machine that somebody else starts: it configures the agent if no host answers
//! at boot.
//!
//! `cli` writes one; the agent reads it where the kernel command line says `burrow.config=DEVICE`.

use protocol::boot::BootConfig;

use super::{MachineError, boot};

/// The settings on the drive; the kernel command line has the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drive {
    pub hostname: String,
    pub env: Vec<(String, String)>,
    /// The size of a writable layer in memory; 0 lets the kernel choose.
    pub scratch_bytes: u64,
    /// Paths that programs must not see.
    pub hide: Vec<String>,
}

/// Disks have whole sectors.
const SECTOR_BYTES: usize = 512;

impl Drive {
    /// The bytes of the drive.
    pub fn encode(self) -> Result<Vec<u8>, MachineError> {
        let config = BootConfig {
            sandbox: "machine".to_owned(),
            hostname: self.hostname,
            root: "/".to_owned(),
            scratch_bytes: self.scratch_bytes,
            env: self.env,
            hide: self.hide,
            door: true,
            // It was another time when the drive was written.
            time_us: 0,
            ids: None,
            processes_max: 0,
            group: String::new(),
            scratch_mount: String::new(),
        };
        let mut bytes = boot::frame(&config)?;
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use protocol::codec::decode_body;
    use protocol::frame::{Kind, parse_frame};
    use protocol::limits::FRAME_BYTES_MAX;

    use super::*;

    #[test]
    fn a_drive_is_a_boot_frame_in_whole_sectors() {
        let env = vec![("GREETING".to_owned(), "hello".to_owned())];
        let drive = Drive { hostname: "web".to_owned(), env: env.clone(), ..Drive::default() };
        let bytes = drive.encode().unwrap();
        assert_eq!(bytes.len() % SECTOR_BYTES, 0);
        let (frame, length) = parse_frame(&bytes).unwrap().unwrap();
        let config: BootConfig = decode_body(Kind::Boot, frame.body).unwrap();
        assert_eq!((config.hostname.as_str(), config.env), ("web", env));
        assert!(bytes[length..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_oversized_configuration_is_refused() {
        let env = vec![("LONG".to_owned(), "x".repeat(FRAME_BYTES_MAX))];
        let refused = Drive { env, ..Drive::default() }.encode();
        assert!(matches!(refused, Err(MachineError::TooLarge { .. })));
    }
}
