//! The hosts of the fleet under chaos: real bridges with directories of their own, each behind cables that can be cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tests::Burrow;
use tests::cable::Cable;
use tests::cluster::{Cluster, SERVERS, free_ports};
use tests::small_disk::{Filler, SmallDisk};
use tests::wall_clock::{self, WallClock};

/// Sandboxes of a namespace of this name are limited to so many.
pub(super) const QUOTA: (&str, usize) = ("quota", 4);
/// There may be any number in this one.
pub(super) const FREE: &str = "free";
/// Where clients make sandboxes.
pub(super) const NAMESPACES: [&str; 2] = [QUOTA.0, FREE];
/// The workspace in which commands count themselves.
pub(super) const SHARED: &str = "shared";
/// Longer than a change of NATS's leader takes as a rule, so that most leases outlive one.
const GRACE: &str = "fleet.grace=7s";
/// Of the host whose disk gets full: what a bridge and a few small sandboxes need.
const DISK_KIB: u32 = 128 * 1024;

/// A host with its bridge. The order of the fields is the one in which they go.
pub(super) struct Host {
    pub name: String,
    child: Option<Child>,
    pub burrow: Burrow,
    pub port: u16,
    /// From its bridge to each of the NATS servers.
    pub to_nats: [Cable; SERVERS],
    /// From the other bridges to its bridge.
    pub from_others: Cable,
    /// If it can be set.
    clock: Option<WallClock>,
    /// Both only of a host whose disk gets full.
    filler: Option<Filler>,
    disk: Option<SmallDisk>,
    _place: TempDir,
}

impl Host {
    /// `shared` is the directory in which commands count themselves.
    pub(super) fn new(
        cluster: &Cluster,
        name: &str,
        shared: &Path,
        clock: Option<WallClock>,
        is_small: bool,
    ) -> Self {
        let place = TempDir::with_prefix("bc-").expect("a directory");
        let disk = if is_small { SmallDisk::mount_or_skip(place.path(), DISK_KIB) } else { None };
        let burrow = Burrow::new_in(place.path());
        let [port] = free_ports();
        let text = format!(
            "[workspaces.{SHARED}]\npath = \"{}\"\nnamespaces = \"*\"\nmount = true\n",
            shared.display()
        );
        fs::write(burrow.scratch().join("burrow.toml"), text).expect("a configuration");
        let mut host = Self {
            name: name.to_owned(),
            child: None,
            burrow,
            port,
            to_nats: cluster.ports().map(Cable::to),
            from_others: Cable::to(port),
            clock,
            filler: None,
            disk,
            _place: place,
        };
        host.start();
        host
    }

    pub(super) fn is_up(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Starts its bridge unless it runs. That it comes up is not waited for: it may have no disk.
    pub(super) fn start(&mut self) {
        if self.is_up() {
            return;
        }
        self.kill();
        let config = self.burrow.scratch().join("burrow.toml");
        let config = config.to_str().expect("UTF-8").to_owned();
        let listen = format!("127.0.0.1:{}", self.port);
        let set = [
            format!("fleet.servers={}", self.nats_urls()),
            format!("fleet.node={}", self.name),
            format!("fleet.address=http://127.0.0.1:{}", self.from_others.port()),
            format!("fleet.replicas={SERVERS}"),
            format!("fleet.quotas={}={}", QUOTA.0, QUOTA.1),
            GRACE.to_owned(),
        ];
        let mut arguments = vec!["serve", "--dev", "--config", &config, "--listen", &listen];
        for option in &set {
            arguments.extend(["--set", option]);
        }
        let log = fs::File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = self.burrow.command(&arguments);
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        command.envs(self.clock.iter().flat_map(WallClock::variables));
        self.child = Some(command.spawn().expect("the bridge starts"));
    }

    /// Beside the small disk, which may be full. It stays for who reads a failure.
    fn log(&self) -> PathBuf {
        std::env::temp_dir().join(format!("burrow-chaos-{}-{}.log", std::process::id(), self.name))
    }

    fn nats_urls(&self) -> String {
        let urls: Vec<_> =
            self.to_nats.iter().map(|cable| format!("nats://127.0.0.1:{}", cable.port())).collect();
        urls.join(",")
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Its guardian may have been quicker.
            let _ = child.kill();
            child.wait().expect("it was ours");
            wall_clock::sweep_after(child.id());
        }
    }

    /// Sets its wall clock to so many seconds after the right time. Says whether it can be set.
    pub(super) fn set_clock(&self, seconds: i64) -> bool {
        self.clock.as_ref().map(|clock| clock.set(seconds)).is_some()
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        // One that has ended and was not waited for has its number still.
        if let Some(child) = &self.child {
            let _ = kill(Pid::from_raw(child.id() as i32), signal);
        }
    }

    pub(super) fn cut_from_nats(&self, both: bool) {
        for cable in &self.to_nats {
            if both { cable.cut() } else { cable.cut_back() }
        }
    }

    pub(super) fn heal_cables(&self) {
        for cable in self.to_nats.iter().chain([&self.from_others]) {
            cable.heal();
        }
    }

    /// Whether it has a disk that can be filled.
    pub(super) fn fill_disk(&mut self) -> bool {
        if let Some(disk) = self.disk.as_ref().filter(|_| self.filler.is_none()) {
            self.filler = Some(disk.fill());
        }
        self.filler.is_some()
    }

    pub(super) fn free_disk(&mut self) {
        if let Some(filler) = self.filler.take() {
            filler.remove();
        }
    }

    pub(super) fn state(&self) -> PathBuf {
        self.burrow.state()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.free_disk();
        self.heal_cables();
        self.signal(Signal::SIGCONT);
        self.kill();
        if !std::thread::panicking() {
            let _ = fs::remove_file(self.log());
        }
    }
}
