//! The boot frame: the first message from a host to an agent, which configures it.
//!
//! Each kind of machine, and the configuration drive, makes it here. Pure.

use protocol::boot::BootConfig;
use protocol::codec::encode_message;
use protocol::frame::{HEADER_BYTES, Kind};
use protocol::limits::FRAME_BYTES_MAX;

use super::MachineError;

/// Encodes the frame, if it fits. The encoder's own length check is for programming errors, but an
/// environment comes from a person.
pub fn frame(config: &BootConfig) -> Result<Vec<u8>, MachineError> {
    let bytes = estimate_bytes(config);
    if bytes > FRAME_BYTES_MAX {
        return Err(MachineError::TooLarge { bytes, bytes_max: FRAME_BYTES_MAX });
    }
    let mut frame = Vec::new();
    encode_message(Kind::Boot, 0, config, &mut frame);
    Ok(frame)
}

/// A lower bound of the frame's size: each text has at most five bytes of MessagePack before it.
pub(super) fn estimate_bytes(config: &BootConfig) -> usize {
    const PER_TEXT: usize = 5;
    const FIELD_NAMES_BYTES: usize = 256;
    let env = config.env.iter().map(|(name, value)| name.len() + value.len() + 3 * PER_TEXT);
    let hide = config.hide.iter().map(|path| path.len() + PER_TEXT);
    let names =
        config.root.len() + config.hostname.len() + config.sandbox.len() + config.group.len();
    HEADER_BYTES + FIELD_NAMES_BYTES + names + env.sum::<usize>() + hide.sum::<usize>()
}
