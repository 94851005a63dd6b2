//! A fleet on this machine: a real NATS server with streams, and bridges that are its nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::http::Client;
use crate::server::Server;
use crate::small_disk::{Filler, SmallDisk};
use crate::{Burrow, eventually, skip, workspace};

/// How long nodes of tests go without NATS, so that a test of the end does not take a minute. The lease lives for six
/// seconds then.
pub const GRACE: &str = "fleet.grace=3s";

/// The program, from `BURROW_TEST_NATS` or where the recipe `_nats` puts it. `None`: there is none, and the test is
/// skipped.
pub fn nats_program() -> Option<PathBuf> {
    let installed = workspace().join("target/nats/nats-server");
    let named = std::env::var_os("BURROW_TEST_NATS").map(PathBuf::from);
    let found = named.or(Some(installed)).filter(|program| program.exists());
    if found.is_none() {
        skip("no nats-server: `just _nats` installs it, or BURROW_TEST_NATS names it");
    }
    found
}

/// A NATS server on loopback, in a directory that goes with it.
pub struct Nats {
    program: PathBuf,
    /// Of its streams, if it is one that can be filled. It goes before the directory.
    disk: Option<SmallDisk>,
    dir: TempDir,
    child: Option<Child>,
    port: u16,
    scheme: &'static str,
    /// Of its own, if it has one.
    configuration: Option<PathBuf>,
}

impl Nats {
    /// `None`: there is no such program here, and the test is skipped.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start() -> Option<Self> {
        Self::start_as("nats", None, None)
    }

    /// With its streams on a disk of this size. `None`: that cannot be tried here.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_on_a_small_disk(kib: u32) -> Option<Self> {
        Self::start_as("nats", None, Some(kib))
    }

    /// Leaves no room on its disk.
    ///
    /// # Panics
    /// When it has none that can be filled.
    pub fn fill_disk(&self) -> Filler {
        self.disk.as_ref().expect("a small disk").fill()
    }

    /// With more configuration, which may want TLS; the same otherwise.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with(scheme: &'static str, configuration: &str) -> Option<Self> {
        Self::start_as(scheme, Some(configuration), None)
    }

    fn start_as(
        scheme: &'static str,
        configuration: Option<&str>,
        disk_kib: Option<u32>,
    ) -> Option<Self> {
        let program = nats_program()?;
        let dir = TempDir::with_prefix("burrow-nats-").expect("a directory");
        let configuration = configuration.map(|text| {
            let path = dir.path().join("nats-server.conf");
            fs::write(&path, text).expect("a configuration");
            path
        });
        let disk = match disk_kib {
            Some(kib) => Some(SmallDisk::mount_or_skip(&dir.path().join("store"), kib)?),
            None => None,
        };
        let mut nats = Self { program, disk, dir, child: None, port: 0, scheme, configuration };
        nats.start_again();
        Some(nats)
    }

    /// At the same port, after the first time, and with what it has stored.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        let ports = self.dir.path().join("ports");
        fs::remove_dir_all(&ports).ok();
        fs::create_dir(&ports).expect("a directory");
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", &port, "-js", "-sd"]);
        command.arg(self.dir.path().join("store")).arg("--ports_file_dir").arg(&ports);
        if let Some(path) = &self.configuration {
            command.arg("-c").arg(path);
        }
        let log = fs::File::create(self.dir.path().join("log")).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("nats-server starts");
        self.child = Some(child);
        let mut found = None;
        eventually("nats-server says where it listens", || {
            found = read_port(&ports);
            found.is_some()
        });
        self.port = found.expect("it was said");
    }

    /// Ends it at once.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it was ours");
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// The server writes its ports to a file when it listens.
fn read_port(ports: &Path) -> Option<u16> {
    let file = fs::read_dir(ports).ok()?.flatten().next()?;
    let text = fs::read_to_string(file.path()).ok()?;
    let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
    let listed = ["nats", "tls"].into_iter().find_map(|kind| ports[kind][0].as_str());
    listed?.rsplit(':').next()?.parse().ok()
}

/// A bridge that is a node.
pub struct Member {
    pub name: String,
    pub server: Server,
    pub client: Client,
}

impl Member {
    /// Joins, and waits until it is in the fleet.
    ///
    /// # Panics
    /// When it does not join.
    pub fn join(nats: &Nats, name: &str, options: &[&str]) -> Self {
        Self::join_in(Burrow::new(), nats, name, options)
    }

    /// With a bridge that asks for no keys.
    pub fn open(nats: &Nats, name: &str) -> Self {
        Self::join(nats, name, &["--dev"])
    }

    /// In directories that were prepared for it.
    ///
    /// # Panics
    /// When it does not join.
    pub fn join_in(burrow: Burrow, nats: &Nats, name: &str, options: &[&str]) -> Self {
        let (url, node) = (nats.url(), format!("fleet.node={name}"));
        let own = ["--fleet", &url, "--set", &node, "--set", GRACE];
        let server = Server::start_in(burrow, &[&own[..], options].concat());
        let client = Client::new(server.url());
        let member = Self { name: name.to_owned(), server, client };
        eventually("it is in the fleet", || {
            member.nodes().iter().any(|node| node["here"] == true && node["trouble"].is_null())
        });
        member
    }

    /// The nodes that it knows.
    ///
    /// # Panics
    /// When it does not say.
    pub fn nodes(&self) -> Vec<serde_json::Value> {
        let listed = self.server.ok(&["node", "ls", "--json"]);
        serde_json::from_str(&listed).expect("a list of nodes")
    }

    /// Starts a sandbox at this node, whichever has most room.
    pub fn start(&self, options: &[&str]) -> String {
        let own = format!("node={}", self.name);
        self.server.ok(&[&["start", "--node-label", &own][..], options].concat())
    }

    /// Waits until it knows so many.
    pub fn knows(&self, count: usize) {
        eventually("it knows the others", || self.nodes().len() == count);
    }

    /// Sends its bridge a signal.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        kill(self.server.daemon_pid(), signal).expect("it is ours");
    }
}

/// So many bridges without keys that know each other.
///
/// # Panics
/// When they do not join.
pub fn open(nats: &Nats, count: usize) -> Vec<Member> {
    let members: Vec<_> =
        (1..=count).map(|number| Member::open(nats, &format!("n{number}"))).collect();
    for member in &members {
        member.knows(count);
    }
    members
}

/// Does something while the other nodes take no sandboxes, so that what is made is made at this one.
///
/// # Panics
/// When the others do not change.
pub fn at<T>(members: &[Member], at: usize, make: impl FnOnce(&Member) -> T) -> T {
    let own = &members[at];
    let mark = |readiness: &str| {
        for other in members.iter().filter(|other| other.name != own.name) {
            own.server.ok(&[
                "node",
                if readiness == "ready" { "ready" } else { "cordon" },
                &other.name,
            ]);
            let is_it = |node: &serde_json::Value| {
                node["name"] == other.name.as_str() && node["readiness"] == readiness
            };
            for member in members {
                eventually("it is known", || member.nodes().iter().any(is_it));
            }
        }
    };
    mark("cordoned");
    let made = make(own);
    mark("ready");
    made
}

/// A bridge that was killed is gone with its directories; a bridge that was stopped would not end.
impl Drop for Member {
    fn drop(&mut self) {
        kill(self.server.daemon_pid(), Signal::SIGCONT).ok();
    }
}
