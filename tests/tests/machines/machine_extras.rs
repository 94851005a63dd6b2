//! Machines that are started by hand, as other servers do: a link over a serial port, hot-plugged
//! parts, a configuration drive, an init.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent_client::guest::{Address, Guest, Options};
use agent_client::program::collect;
use machine::drive::Drive;
use protocol::exit::Cause;
use protocol::requests::Stdio as Pipes;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::sandbox::start;
use tests::{have_or_skip, skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream as Line};

/// How long a machine may take to come up on a busy host that emulates it.
const BOOT_MAX: Duration = Duration::from_secs(60);
/// How long what was added may take to be noticed.
const NOTICED_MAX: Duration = Duration::from_secs(30);

const QEMU: &str = "qemu-system-x86_64";
const MIB: u64 = 1024 * 1024;

/// A machine whose agent is at a serial port, so that it needs no relay.
struct Vm {
    qemu: Child,
    directory: TempDir,
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Where the kernel and the images are, or the reason why there is nothing to boot.
fn kit() -> Option<PathBuf> {
    if !have_or_skip(QEMU) || !have_or_skip("mkfs.ext4") {
        return None;
    }
    let kit = tests::machines::kit();
    let missing = ["vmlinux", "initramfs.cpio", "python.erofs"]
        .into_iter()
        .find(|name| !kit.join(name).exists());
    if let Some(name) = missing {
        skip(&format!("{} has no {name}: `just images` makes it", kit.display()));
        return None;
    }
    Some(kit)
}

/// A disk with an ext4 file system of this size, holding what is in `tree`.
fn disk(path: &Path, bytes: u64, tree: Option<&Path>) {
    File::create(path).and_then(|file| file.set_len(bytes)).expect("a file for a disk");
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F"]);
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    assert!(command.arg(path).status().expect("mkfs.ext4 runs").success());
}

impl Vm {
    /// Starts a machine with the python image as its first disk, and `disks` as the next.
    fn start(kit: &Path, directory: TempDir, words: &str, disks: &[&str], more: &[&str]) -> Self {
        let at = |name: &str| directory.path().join(name).display().to_string();
        let mut command = Command::new(QEMU);
        command
            .args(["-M", "pc", "-m", "256,slots=2,maxmem=1G", "-smp", "1,maxcpus=2"])
            .args(["-accel", "tcg,thread=multi", "-cpu", "qemu64,-cx16,+rdrand"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-serial", &format!("file:{}", at("console"))])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", at("monitor"))])
            .args(["-chardev", &format!("socket,id=port,path={},server=on,wait=off", at("port"))])
            .args(["-device", "virtio-serial-pci", "-device"])
            .arg("virtserialport,chardev=port,name=burrow.0")
            .arg("-kernel")
            .arg(kit.join("vmlinux"))
            .arg("-initrd")
            .arg(kit.join("initramfs.cpio"))
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests no_timer_check \
                 noreplace-smp random.trust_cpu=on rdinit=/init burrow.root=/dev/vda \
                 burrow.serial=burrow.0 {words}"
            ));
        let image = kit.join("python.erofs").display().to_string();
        for (number, path) in
            [image].into_iter().chain(disks.iter().map(|name| at(name))).enumerate()
        {
            let read_only = if number == 0 { "on" } else { "off" };
            command
                .arg("-drive")
                .arg(format!("if=none,id=disk{number},format=raw,file={path},readonly={read_only}"))
                .args(["-device", &format!("virtio-blk-pci,drive=disk{number}")]);
        }
        let qemu = command.args(more).stdin(Stdio::null()).spawn().expect("QEMU starts");
        Self { qemu, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The agent, once the machine is up.
    async fn guest(&self, port: &str) -> Guest {
        let options = Options { connect_deadline: BOOT_MAX, ..Options::named("test") };
        let options = Options { welcome_deadline: BOOT_MAX, ..options };
        let address = Address::Serial { path: self.path(port) };
        let until = Instant::now() + BOOT_MAX;
        while !self.path("port").exists() {
            assert!(Instant::now() < until, "QEMU has made no socket");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match Guest::connect(address, options).await {
            Ok(guest) => guest,
            Err(error) => {
                let console = std::fs::read_to_string(self.path("console")).unwrap_or_default();
                panic!("the machine does not come up: {error}; its console says:\n{console}");
            }
        }
    }

    /// Gives the monitor an order.
    fn order(&self, command: &str, arguments: &Value) {
        let stream = UnixStream::connect(self.path("monitor")).expect("the monitor");
        let mut answers = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        answers.next();
        for order in [
            json!({ "execute": "qmp_capabilities" }),
            json!({ "execute": command, "arguments": arguments }),
        ] {
            writeln!(&stream, "{order}").expect("the monitor listens");
            let answer = answers
                .by_ref()
                .map(|line| line.expect("the monitor answers"))
                .find(|line| !line.contains("\"event\""));
            let answer = answer.expect("an answer");
            assert!(answer.contains("\"return\""), "{order}: {answer}");
        }
    }
}

/// What a shell in the machine says.
async fn say(guest: &Guest, session: &str, script: &str) -> String {
    let mut output = Vec::new();
    let start = start(session, &["sh", "-c", script]);
    let hear = |bytes: &[u8]| output.extend_from_slice(bytes);
    let finished = collect(guest, &start, &[], hear, |_| {}).await.expect("the script is run");
    assert!(matches!(finished.record.cause, Cause::Exited { code: 0 }), "{script}: {finished:?}");
    String::from_utf8(output).expect("text").trim().to_owned()
}

fn directory() -> TempDir {
    TempDir::with_prefix("burrow-").expect("a directory")
}

/// Between a client and the port: cuts each connection after so many bytes of the agent's, which is in
/// the middle of something.
async fn cut_again_and_again(listener: UnixListener, port: PathBuf, cuts: Vec<usize>) {
    let mut cuts = cuts.into_iter();
    while let Ok((client, _)) = listener.accept().await {
        // Its socket has a name a moment before it takes anybody.
        let until = Instant::now() + BOOT_MAX;
        let agent = loop {
            match Line::connect(&port).await {
                Ok(agent) => break agent,
                Err(error) => assert!(Instant::now() < until, "the port: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let budget = cuts.next().unwrap_or(usize::MAX);
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_agent, mut to_agent) = agent.into_split();
        let down = async {
            let mut left = budget;
            let mut buffer = vec![0; 64 * 1024];
            while left > 0 {
                let most = left.min(buffer.len());
                let Ok(count @ 1..) = from_agent.read(&mut buffer[..most]).await else { return };
                if to_client.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
                left -= count;
            }
        };
        tokio::select! {
            () = down => {}
            // Odd pieces, so that records are cut too.
            () = async {
                let mut buffer = vec![0; 4999];
                while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                    if to_agent.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            } => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serial_port_loses_nothing_although_it_is_cut_again_and_again() {
    let Some(kit) = kit() else { return };
    let vm = Vm::start(&kit, directory(), "", &[], &[]);
    let listener = UnixListener::bind(vm.path("proxy")).expect("a socket");
    let cuts = vec![2_000_003, 777_777, 3_333_333, 5_000, 6_000_001];
    tokio::spawn(cut_again_and_again(listener, vm.path("port"), cuts));
    let guest = vm.guest("proxy").await;

    // What goes up comes down again, byte for byte.
    let mut echo = start("echo", &["cat"]);
    echo.stdio = Pipes::Pipes { stdin: true };
    let input: Vec<u8> =
        (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut echoed = Vec::new();
    collect(&guest, &echo, &input, |bytes| echoed.extend_from_slice(bytes), |_| {})
        .await
        .expect("the echo survives the cuts");
    assert!(echoed == input, "{} bytes of {} came back", echoed.len(), input.len());

    let (mut zeros, mut others) = (0_u64, 0_u64);
    let flood = start("flood", &["head", "-c", "50000000", "/dev/zero"]);
    let count = |bytes: &[u8]| {
        let all_zero = bytes.iter().all(|byte| *byte == 0);
        *if all_zero { &mut zeros } else { &mut others } += bytes.len() as u64;
    };
    collect(&guest, &flood, &[], count, |_| {}).await.expect("the flood comes");
    assert_eq!((zeros, others), (50_000_000, 0));
}

/// Looks until it holds.
async fn until(what: &str, guest: &Guest, script: &str, holds: impl Fn(u64) -> bool) {
    let deadline = Instant::now() + NOTICED_MAX;
    for turn in 0_u32.. {
        let session = format!("look-{}-{turn}", what.replace(' ', "-"));
        let output = say(guest, &session, script).await;
        if holds(output.parse().expect("a number")) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: still {output}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const DISK_KIB: &str = "df -k --output=size / | tail -n 1 | tr -d ' '";
const MEMORY_KIB: &str = "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo";

#[tokio::test]
async fn a_machine_notices_its_network_and_what_is_added_to_it() {
    let Some(kit) = kit() else { return };
    let directory = directory();
    let path = directory.path().join("scratch");
    disk(&path, 64 * MIB, None);
    // It has grown since it was formatted.
    File::options().write(true).open(&path).and_then(|file| file.set_len(96 * MIB)).expect("room");
    let vm = Vm::start(
        &kit,
        directory,
        "burrow.scratch=/dev/vdb burrow.net=eth0,10.0.2.15/24,10.0.2.2 burrow.dns=10.0.2.3",
        &["scratch"],
        &[
            "-netdev",
            "user,id=net",
            "-device",
            "virtio-net-pci,netdev=net",
            "-device",
            "virtio-balloon-pci",
        ],
    );
    let guest = vm.guest("port").await;
    assert_eq!(say(&guest, "dns", "cat /etc/resolv.conf").await, "nameserver 10.0.2.3");
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of ours");
    let port = server.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        let (mut caller, _) = server.accept().expect("a caller");
        caller.write_all(b"hello").expect("it listens");
    });
    let script = format!(
        "python3 -c 'import socket; print(socket.create_connection((\"10.0.2.2\", {port})).recv(5))'"
    );
    assert_eq!(say(&guest, "net", &script).await, "b'hello'");

    until("the disk has grown before", &guest, DISK_KIB, |kib| kib > 80 * 1024).await;
    vm.order("block_resize", &json!({ "device": "disk1", "size": 256 * MIB }));
    until("the disk grows", &guest, DISK_KIB, |kib| kib > 200 * 1024).await;

    let (before, cpus) = (guest.newest_metrics(true).await.expect("metrics"), guest.info().cpus);
    assert_eq!((cpus, before.cpus), (1, 1));
    let cpu =
        json!({ "driver": "qemu64-x86_64-cpu", "socket-id": 0, "core-id": 1, "thread-id": 0 });
    vm.order("device_add", &cpu);
    until("a processor comes", &guest, "nproc", |count| count == 2).await;
    let bank = json!({ "qom-type": "memory-backend-ram", "id": "bank", "size": 128 * MIB });
    vm.order("object-add", &bank);
    vm.order("device_add", &json!({ "driver": "pc-dimm", "memdev": "bank" }));
    until("memory comes", &guest, MEMORY_KIB, |kib| kib > 260 * 1024).await;
    let memory = |samples: &agent_client::guest::metrics::Samples| {
        samples.newest().and_then(|sample| sample.memory_bytes_max).expect("a machine knows")
    };
    let (deadline, mut seen) = (Instant::now() + NOTICED_MAX, before.seen());
    loop {
        let after = guest.metrics(seen, true).await.expect("metrics");
        assert_eq!(after.cpus, 2);
        if memory(&after) > memory(&before) + 100 * MIB {
            break;
        }
        assert!(Instant::now() < deadline, "the metrics still say {}", memory(&after));
        seen = after.seen();
    }

    vm.order("balloon", &json!({ "value": 160 * MIB }));
    until("the balloon takes memory", &guest, MEMORY_KIB, |kib| kib < 200 * 1024).await;
}

#[tokio::test]
async fn a_drive_says_what_a_machine_becomes() {
    let Some(kit) = kit() else { return };
    let directory = directory();
    let drive = Drive {
        hostname: "driven".to_owned(),
        env: vec![("GREETING".to_owned(), "hello there".to_owned())],
        ..Drive::default()
    };
    std::fs::write(directory.path().join("drive"), drive.encode().expect("it fits"))
        .expect("a file");
    let vm = Vm::start(&kit, directory, "burrow.config=/dev/vdb", &["drive"], &[]);
    let guest = vm.guest("port").await;
    assert_eq!(say(&guest, "who", "echo $(hostname) $GREETING").await, "driven hello there");
}

/// Makes a disk with this program as the init of a machine, and starts the machine with it.
fn with_an_init(kit: &Path, script: &str) -> Vm {
    let directory = directory();
    let tree = directory.path().join("tree");
    let program = tree.join("upper/opt/init");
    std::fs::create_dir_all(program.parent().expect("it has one")).expect("a directory");
    std::fs::write(&program, script).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("its mode");
    disk(&directory.path().join("scratch"), 64 * MIB, Some(&tree));
    let words = "burrow.scratch=/dev/vdb burrow.init=/opt/init";
    Vm::start(kit, directory, words, &["scratch"], &[])
}

/// Waits until the machine is off.
async fn until_off(vm: &mut Vm) {
    let until = Instant::now() + NOTICED_MAX;
    while vm.qemu.try_wait().expect("it is ours").is_none() {
        assert!(Instant::now() < until, "the machine is still on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_init_of_its_own_has_the_machine_with_the_agent_beside_it() {
    let Some(kit) = kit() else { return };
    let mut vm = with_an_init(&kit, "#!/bin/sh\nwhile :; do sleep 1; done\n");
    let guest = vm.guest("port").await;
    let info = guest.info();
    assert!(!info.init && info.machine && info.pid != 1, "{info:?}");
    assert_eq!(say(&guest, "init", "tr '\\0' ' ' < /proc/1/cmdline").await, "/bin/sh /opt/init");
    assert_eq!(say(&guest, "group", "cat /proc/1/cgroup").await, "0::/");
    // This init does not know how, so that the agent does it in the end.
    guest.shutdown(Some(Duration::from_secs(1))).await.expect("it stops");
    until_off(&mut vm).await;
}

/// Ends the machine when the agent asks for it, slowly, or when something else does.
const INIT: &str = "#!/usr/bin/python3
import os, signal, time
def say(text):
    with open('/dev/console', 'w') as console:
        print(text, file=console)
def end(number, frame):
    if number == signal.SIGUSR1:
        say('a reboot of its own')
        os.kill(int(open('/run/agent').read()), signal.SIGTERM)
    time.sleep(6)
    say('ended in order')
    open('/proc/sysrq-trigger', 'w').write('o')
for number in [38, signal.SIGUSR1]:
    signal.signal(number, end)
while True:
    time.sleep(1)
";

/// Counts 1 when the init has a handler for signal 38.
const HANDLERS: &str = "grep 'SigCgt:.*[2367abef].........$' /proc/1/status | wc -l";

#[tokio::test]
async fn an_init_that_knows_how_to_end_the_machine_has_its_time_for_it() {
    let Some(kit) = kit() else { return };
    let mut vm = with_an_init(&kit, INIT);
    let guest = vm.guest("port").await;
    until("it is ready", &guest, HANDLERS, |found| found == 1).await;
    guest.shutdown(Some(Duration::from_secs(1))).await.expect("it stops");
    until_off(&mut vm).await;
    let console = std::fs::read_to_string(vm.path("console")).expect("a console");
    assert!(console.contains("ended in order"), "{console}");
}

#[tokio::test]
async fn an_init_that_ends_the_machine_by_itself_is_left_to_it() {
    let Some(kit) = kit() else { return };
    let mut vm = with_an_init(&kit, INIT);
    let guest = vm.guest("port").await;
    let agent = guest.info().pid;
    let script = format!("echo {agent} > /run/agent; kill -USR1 1; sleep 1000");
    until("it is ready", &guest, HANDLERS, |found| found == 1).await;
    guest.start(&start("ending", &["sh", "-c", &script])).await.expect("it starts");
    until_off(&mut vm).await;
    let console = std::fs::read_to_string(vm.path("console")).expect("a console");
    assert!(console.contains("a reboot of its own"), "{console}");
    assert!(console.contains("ended in order"), "{console}");
}
