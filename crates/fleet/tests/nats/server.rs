//! A real NATS server with streams, for one test: on loopback, in a directory that goes with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::nats::Place;

pub(crate) struct Server {
    program: PathBuf,
    dir: PathBuf,
    child: Option<Child>,
    port: u16,
    /// Whether it asks who a client is, by the configuration that we give to operators.
    is_guarded: bool,
}

/// Of every user of that configuration here.
const PASSWORD: &str = "secret";

/// The program, from `BURROW_TEST_NATS` or where the recipe `_nats` puts it; it must know TTLs of keys, which begins
/// with 2.11.
fn program() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats/nats-server");
    let named = std::env::var_os("BURROW_TEST_NATS").map(PathBuf::from);
    named.or(Some(installed)).filter(|program| program.exists())
}

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn skip(reason: &str) {
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("SKIP {name}: {reason}");
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/skips.log");
    let log = std::env::var_os("BURROW_TEST_SKIPS").map_or(log, PathBuf::from);
    let mut log = std::fs::File::options().create(true).append(true).open(log).expect("skips.log");
    writeln!(log, "{name}: {reason}").expect("skips.log can be written");
}

/// `None`: the test is skipped, with its reason.
pub(crate) fn found_program() -> Option<PathBuf> {
    let found = program();
    if found.is_none() {
        skip("no nats-server: `just _nats` installs it, or BURROW_TEST_NATS names it");
    }
    found
}

impl Server {
    /// `None`: there is no such program here, and the test is skipped.
    pub(crate) fn start() -> Option<Self> {
        Self::start_as(false)
    }

    /// The same with `dist/nats-server.conf`, whose users are `host1` to `host3`.
    pub(crate) fn start_guarded() -> Option<Self> {
        Self::start_as(true)
    }

    fn start_as(is_guarded: bool) -> Option<Self> {
        let program = found_program()?;
        let name = std::thread::current().name().unwrap_or("a test").replace("::", "-");
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut server = Self { program, dir, child: None, port: 0, is_guarded };
        server.start_again();
        Some(server)
    }

    /// With the same port, after the first time, and what it has stored.
    pub(crate) fn start_again(&mut self) {
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        let ports = self.dir.join("ports");
        let _ = std::fs::remove_dir_all(&ports);
        std::fs::create_dir(&ports).expect("a directory");
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", &port]).arg("--ports_file_dir").arg(&ports);
        let store = self.dir.join("store");
        if self.is_guarded {
            command.arg("-c").arg(self.write_configuration(&store));
            for user in ["HOST1", "HOST2", "HOST3"] {
                command.env(format!("{user}_PASSWORD"), PASSWORD);
            }
        } else {
            command.args(["-js", "-sd"]).arg(store);
        }
        let log = std::fs::File::create(self.dir.join("log")).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("nats-server starts");
        self.child = Some(child);
        self.port = read_port(&ports);
    }

    /// What operators get, with a store of this test.
    fn write_configuration(&self, store: &Path) -> PathBuf {
        let given = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/nats-server.conf");
        let given = std::fs::read_to_string(given).expect("the configuration");
        let store = store.to_str().expect("a path in UTF-8");
        let own = given.replace("/var/lib/nats", store);
        assert_ne!(own, given, "it names no store");
        let path = self.dir.join("nats-server.conf");
        std::fs::write(&path, own).expect("a configuration");
        path
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    /// The bytes that it has resident, and those that it has stored.
    pub(crate) fn weighs(&self) -> (u64, u64) {
        let pid = self.child.as_ref().expect("it runs").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        (kib * 1024, size_of(&self.dir.join("store")))
    }

    pub(crate) fn place(&self) -> Place {
        let servers = format!("nats://127.0.0.1:{}", self.port);
        Place { servers, replicas: 1, ..Place::default() }
    }

    /// For one user of a guarded server.
    pub(crate) fn place_of(&self, user: &str) -> Place {
        let servers = format!("nats://{user}:{PASSWORD}@127.0.0.1:{}", self.port);
        Place { servers, replicas: 1, ..Place::default() }
    }
}

fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => size_of(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// The server writes its ports to a file when it listens.
fn read_port(ports: &Path) -> u16 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let file = std::fs::read_dir(ports).expect("a directory").flatten().next();
        let text =
            file.and_then(|file| std::fs::read_to_string(file.path()).ok()).unwrap_or_default();
        if let Ok(ports) = serde_json::from_str::<serde_json::Value>(&text) {
            let address = ports["nats"][0].as_str().expect("an address");
            let port = address.rsplit(':').next().expect("a port");
            return port.parse().expect("a port");
        }
        assert!(Instant::now() < deadline, "nats-server does not say where it listens");
        // Polled until the deadline.
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
