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
}

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
        let program = found_program()?;
        let name = std::thread::current().name().unwrap_or("a test").replace("::", "-");
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut server = Self { program, dir, child: None, port: 0 };
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
        command.args(["-a", "127.0.0.1", "-p", &port, "-js", "-sd"]).arg(self.dir.join("store"));
        command.arg("--ports_file_dir").arg(&ports);
        let log = std::fs::File::create(self.dir.join("log")).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("nats-server starts");
        self.child = Some(child);
        self.port = read_port(&ports);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    pub(crate) fn place(&self) -> Place {
        let servers = format!("nats://127.0.0.1:{}", self.port);
        Place { servers, replicas: 1, ..Place::default() }
    }
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
