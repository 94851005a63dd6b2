//! The board that QEMU emulates, and how devices are plugged into it. Pure, except for reading the
//! environment and the host's processor.
//!
//! Everything works on `pc`. `q35` is for guests that want PCI Express. `microvm` has no PCI and starts
//! soonest, but its devices cannot be removed, so it cannot be saved as a snapshot.

use std::path::PathBuf;
use std::str::FromStr;

use super::Accelerator;
use crate::MachineError;
use crate::vmm::{Kit, KitError};

/// Chooses the board of all machines that are started.
const VARIABLE: &str = "BURROW_QEMU_BOARD";

/// See the module's description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Board {
    #[default]
    Pc,
    Q35,
    Microvm,
}

impl Board {
    const ALL: [Self; 3] = [Self::Pc, Self::Q35, Self::Microvm];

    fn name(self) -> &'static str {
        match self {
            Self::Pc => "pc",
            Self::Q35 => "q35",
            Self::Microvm => "microvm",
        }
    }

    /// The one that the environment asks for.
    pub fn asked_for() -> Result<Self, MachineError> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => name.parse(),
            _ => Ok(Self::default()),
        }
    }

    /// The value of `-M`.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Pc => "pc",
            Self::Q35 => "q35",
            // Only ACPI reports its power button and its devices.
            Self::Microvm => "microvm,acpi=on,pcie=off,rtc=on",
        }
    }

    /// Extra arguments for a machine with a directory of the host: the daemon accepts no device from before
    /// virtio 1.0, and the devices of a board without PCI are older unless message otherwise.
    pub fn words_to_share(self) -> &'static [&'static str] {
        match self {
            Self::Pc | Self::Q35 => &[],
            Self::Microvm => &["-global", "virtio-mmio.force-legacy=false"],
        }
    }

    /// The kernel that this board starts soonest.
    pub fn kernel(self, kit: &Kit) -> Result<PathBuf, KitError> {
        match self {
            Self::Pc | Self::Q35 => kit.kernel(),
            // Its firmware passes the ACPI tables to no other kind of kernel.
            Self::Microvm => kit.packed_kernel(),
        }
    }

    /// Additional words of the kernel's command line.
    pub fn kernel_word(self, accelerator: Accelerator) -> Option<String> {
        match (self, accelerator) {
            // There is no other timer against which an emulated guest could measure its clock. Beside
            // interrupts, which a busy host delivers late or never, it would take its clock for the
            // one that is wrong, and count them instead.
            (Self::Microvm, Accelerator::Tcg) => {
                let khz = processor_khz(&std::fs::read_to_string("/proc/cpuinfo").ok()?)?;
                Some(format!("tsc_early_khz={khz} tsc=reliable"))
            }
            _ => None,
        }
    }
}

impl FromStr for Board {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, MachineError> {
        let known = Self::ALL.into_iter().find(|board| board.name() == text);
        known.ok_or_else(|| MachineError::Board { variable: VARIABLE, requested: text.to_owned() })
    }
}

/// The frequency of the host's first processor, as its kernel reports it.
fn processor_khz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
    let (whole, part) = line.split_once(':')?.1.trim().split_once('.')?;
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    Some(whole.parse::<u64>().ok()? * 1000 + part.parse::<u64>().ok()?)
}

/// The last of a microvm's 24 places, which its guest counts from there. The interrupts of the first
/// do not arrive.
const MMIO_LAST: u32 = 23;

/// The devices of one machine, in the order in which its guest counts them.
pub struct Slots {
    board: Board,
    taken: u32,
}

impl Slots {
    pub fn of(board: Board) -> Self {
        Self { board, taken: 0 }
    }

    /// The name of a virtio device, in its place. `fixed` is that of one that may be taken away.
    pub fn device(&mut self, kind: &str, fixed: Option<&str>) -> String {
        let number = self.taken;
        self.taken += 1;
        match (self.board, fixed) {
            (Board::Pc, Some(place)) => format!("{kind}-pci,addr={place}"),
            (Board::Pc | Board::Q35, _) => format!("{kind}-pci"),
            (Board::Microvm, _) => {
                format!("{kind}-device,bus=virtio-mmio-bus.{}", MMIO_LAST.saturating_sub(number))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_are_known_by_name_and_others_are_refused_with_all_names() {
        for board in Board::ALL {
            assert_eq!(board.name().parse::<Board>().unwrap(), board);
        }
        let message = "virt".parse::<Board>().unwrap_err().to_string();
        assert!(message.contains("\"virt\"") && message.contains(VARIABLE), "{message}");
        assert!(Board::ALL.iter().all(|board| message.contains(board.name())), "{message}");
    }

    #[test]
    fn the_processors_rate_is_read_to_the_kilohertz() {
        assert_eq!(processor_khz("processor: 0\ncpu MHz\t\t: 2596.144\n"), Some(2_596_144));
        assert_eq!(processor_khz("cpu MHz : 3000.5\n"), Some(3_000_500));
        assert_eq!(processor_khz("model name: none\n"), None);
    }

    #[test]
    fn devices_are_counted_as_they_are_named() {
        let mut slots = Slots::of(Board::Microvm);
        assert_eq!(
            slots.device("virtio-blk", Some("0x1e")),
            "virtio-blk-device,bus=virtio-mmio-bus.23"
        );
        assert_eq!(slots.device("virtio-blk", None), "virtio-blk-device,bus=virtio-mmio-bus.22");
        assert_eq!(
            Slots::of(Board::Pc).device("virtio-blk", Some("0x1e")),
            "virtio-blk-pci,addr=0x1e"
        );
        assert_eq!(Slots::of(Board::Q35).device("virtio-blk", Some("0x1e")), "virtio-blk-pci");
    }
}
