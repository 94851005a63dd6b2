//! QEMU's command line. Pure.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Accelerator;
use super::board::{Board, Slots};
use crate::MachineError;
use crate::vmm::{Beside, GUEST_CID, ORDERS, Plan, Programs};

/// The vsock device, and the connection to its relay. Its place on the bus is fixed. A machine
/// restored from a snapshot gets the device later, and all others must be where they were.
///
/// It has no event indexes: with them, a guest whose signal to the relay is lost while its processors stop, or while
/// its vsock begins, gives no other one, and nothing that it sends is read until the host sends something.
pub const VSOCK_DEVICE: &str = "vhost-user-vsock";
pub const VSOCK: &str = "vsock";
pub const VHOST: &str = "vhost";
pub const VSOCK_ADDRESS: &str = "0x1e";

/// The device by which a guest has a directory of the host, and the name by which the agent knows that.
pub const SHARE_DEVICE: &str = "vhost-user-fs";
const SHARE_TAG: &str = "virtiofs";

/// The name by which the agent finds the serial port of a machine without a vsock.
const PORT_NAME: &str = "burrow.0";

/// The warning about a machine with a serial port.
const ALONE: &str = "the machine has a serial port instead of a vsock, which serves one client at a time; \
    `host-bridge doctor` says what a vsock needs";

/// The command line of a kernel that has a console but nobody to wait for.
const KERNEL_WORDS: &str = "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests \
    no_timer_check noreplace-smp random.trust_cpu=on rdinit=/init";

/// The words for a machine of this plan.
pub fn programs(
    program: PathBuf,
    relay: Option<PathBuf>,
    sharer: Option<Beside>,
    accelerator: Accelerator,
    board: Board,
    plan: &Plan,
) -> Result<Programs, MachineError> {
    let vhost = plan.directory.join("vhost");
    let mut arguments = plan.clone();
    if relay.is_none() {
        arguments.words.push(format!("burrow.serial={PORT_NAME}"));
    }
    let mut machine = basics(program, accelerator, board, &arguments)?;
    let mut slots = Slots::of(board);
    let mut word = |text: String| machine.push(OsString::from(text));
    word("-chardev".to_owned());
    if relay.is_some() {
        word(format!("socket,id={VHOST},path={}", escape(&vhost)));
        word("-device".to_owned());
        let device = slots.device(VSOCK_DEVICE, Some(VSOCK_ADDRESS));
        word(format!("{device},id={VSOCK},chardev={VHOST},event_idx=off"));
    } else {
        word(format!("socket,id=port,path={},server=on,wait=off", escape(&plan.serial())));
        word("-device".to_owned());
        word(format!("{},max_ports=2", slots.device("virtio-serial", None)));
        word("-device".to_owned());
        word(format!("virtserialport,chardev=port,name={PORT_NAME}"));
    }
    for (number, disk) in plan.disks.iter().enumerate() {
        word("-drive".to_owned());
        word(format!(
            "if=none,id=disk{number},format=raw,file={},readonly={}",
            escape(&disk.path),
            if disk.read_only { "on" } else { "off" }
        ));
        word("-device".to_owned());
        word(format!("{},drive=disk{number}", slots.device("virtio-blk", None)));
    }
    // After the disks, which the guest counts from the first.
    if let Some(Beside { socket, .. }) = &sharer {
        board.words_to_share().iter().for_each(|text| word((*text).to_owned()));
        word("-chardev".to_owned());
        word(format!("socket,id=share,path={}", escape(socket)));
        word("-device".to_owned());
        word(format!("{},chardev=share,tag={SHARE_TAG}", slots.device(SHARE_DEVICE, None)));
    }
    word("-chardev".to_owned());
    word(format!("socket,id=monitor,path={},server=on,wait=off", escape(&plan.monitor())));
    word("-mon".to_owned());
    word("chardev=monitor,mode=control".to_owned());
    word("-chardev".to_owned());
    word(format!(
        "socket,id=orders,path={},server=on,wait=off",
        escape(&plan.directory.join(ORDERS))
    ));
    word("-mon".to_owned());
    word("chardev=orders,mode=control".to_owned());
    let value = format!(
        "guest-cid={GUEST_CID},socket={},uds-path={}",
        vhost.display(),
        plan.vsock().display()
    );
    let mut warnings = warnings(accelerator);
    let Some(relay) = relay else {
        warnings.push(ALONE.to_owned());
        let (serial, beside) = (Some(plan.serial()), sharer.into_iter().collect());
        return Ok(Programs { beside, machine, serial, warnings, ..Programs::default() });
    };
    let relay = Beside { program: relay, option: "--vm", value: value.into(), socket: vhost };
    let beside = [relay].into_iter().chain(sharer).collect();
    Ok(Programs { beside, machine, warnings, ..Programs::default() })
}

/// The arguments for a machine that is restored from a snapshot: it has no vsock until it runs.
pub fn awaiting(machine: Vec<OsString>) -> Vec<OsString> {
    let mut words = Vec::with_capacity(machine.len() + 2);
    let mut rest = machine.into_iter().peekable();
    let (chardev, device) = (format!("socket,id={VHOST},"), format!("{VSOCK_DEVICE}-"));
    while let Some(word) = rest.next() {
        let is_vsocks = |next: &OsString| {
            let next = next.to_string_lossy();
            next.starts_with(&chardev) || next.starts_with(&device)
        };
        if rest.next_if(is_vsocks).is_none() {
            words.push(word);
        }
    }
    words.extend(["-incoming", "defer"].map(OsString::from));
    words
}

/// The arguments of every machine, the probe's too.
pub fn basics(
    program: PathBuf,
    accelerator: Accelerator,
    board: Board,
    plan: &Plan,
) -> Result<Vec<OsString>, MachineError> {
    let memory_mib = plan.memory_bytes.div_ceil(1024 * 1024);
    let (accelerate, processor) = match accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        // 6.12 guests panic at random with cx16 emulated; rdrand spares a second's wait for entropy.
        Accelerator::Tcg => ("tcg,thread=multi", "qemu64,-cx16,+rdrand"),
    };
    let mut words = vec![program.into_os_string()];
    let texts = [
        "-M".to_owned(),
        format!("{},memory-backend=memory", board.machine()),
        "-object".to_owned(),
        format!("memory-backend-memfd,id=memory,size={memory_mib}M,share=on"),
        "-m".to_owned(),
        memory_mib.to_string(),
        "-smp".to_owned(),
        plan.cpus.to_string(),
        "-accel".to_owned(),
        accelerate.to_owned(),
        "-cpu".to_owned(),
        processor.to_owned(),
        "-nodefaults".to_owned(),
        "-no-user-config".to_owned(),
        "-display".to_owned(),
        "none".to_owned(),
        "-no-reboot".to_owned(),
        "-chardev".to_owned(),
        format!("socket,id=console,path={},server=on,wait=off", escape(&plan.console())),
        "-serial".to_owned(),
        "chardev:console".to_owned(),
        "-append".to_owned(),
        [KERNEL_WORDS.to_owned()]
            .into_iter()
            .chain(board.kernel_word(accelerator))
            .chain(plan.words.iter().cloned())
            .collect::<Vec<_>>()
            .join(" "),
    ];
    words.extend(texts.map(OsString::from));
    for (flag, path) in [("-kernel", board.kernel(&plan.kit)?), ("-initrd", plan.kit.initramfs()?)]
    {
        words.extend([OsString::from(flag), path.into_os_string()]);
    }
    Ok(words)
}

fn warnings(accelerator: Accelerator) -> Vec<String> {
    match accelerator {
        Accelerator::Kvm => Vec::new(),
        Accelerator::Tcg => vec![
            "this host's hypervisor runs no guests, so the machine is emulated, some ten times slower"
                .to_owned(),
        ],
    }
}

/// A path as the value of an option: its commas are doubled.
fn escape(path: &std::path::Path) -> String {
    path.display().to_string().replace(',', ",,")
}
