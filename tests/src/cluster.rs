//! Three NATS servers that keep each record three times, each of which can be killed, stopped and started again.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::fleet::nats_program;

/// How many there are.
pub const SERVERS: usize = 3;

/// See the module's description.
pub struct Cluster {
    program: PathBuf,
    dir: TempDir,
    ports: [u16; SERVERS],
    children: [Option<Child>; SERVERS],
}

/// Ports of loopback that nobody has at the moment. All are held until all are known.
///
/// # Panics
/// When there are none.
pub fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

/// Of one server of a cluster, which listens at an address for clients and at its one of `routes` for the others.
pub fn configuration(at: usize, store: &Path, listen: SocketAddr, routes: &[SocketAddr]) -> String {
    let (store, route) = (store.display(), routes[at]);
    let all: Vec<_> = routes.iter().map(|route| format!("nats://{route}")).collect();
    // Clients learn no other address than the one that they were given, which may be one that cuts.
    format!(
        "server_name: s{at}\nlisten: {listen}\n\
         jetstream {{ store_dir: \"{store}\", sync_interval: always }}\n\
         cluster {{ name: burrow, listen: {route}, no_advertise: true, routes: {all:?} }}\n"
    )
}

impl Cluster {
    /// With the directories of their records. `None`: there is no such program here, and the test is skipped.
    ///
    /// # Panics
    /// When they cannot be started.
    pub fn start(stores: [&Path; SERVERS]) -> Option<Self> {
        let program = nats_program()?;
        let dir = TempDir::with_prefix("burrow-cluster-").expect("a directory");
        let [a, b, c, routes @ ..] = free_ports::<{ 2 * SERVERS }>();
        let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let routes = routes.map(local);
        for (at, port) in [a, b, c].into_iter().enumerate() {
            let text = configuration(at, stores[at], local(port), &routes);
            fs::write(dir.path().join(format!("s{at}.conf")), text).expect("a configuration");
        }
        let mut cluster = Self { program, dir, ports: [a, b, c], children: [None, None, None] };
        (0..SERVERS).for_each(|at| cluster.start_again(at));
        Some(cluster)
    }

    /// Unless it runs.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_again(&mut self, at: usize) {
        let has_ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        if self.children[at].as_mut().is_some_and(|child| !has_ended(child)) {
            return;
        }
        let log = self.dir.path().join(format!("s{at}.log"));
        let log = fs::File::options().create(true).append(true).open(log).expect("a log");
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.dir.path().join(format!("s{at}.conf")));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("nats-server starts");
        self.children[at] = Some(child);
    }

    /// Ends one at once, if it runs.
    ///
    /// # Panics
    /// When it is not ours.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.children[at].take() {
            child.kill().expect("it is ours");
            child.wait().expect("it was ours");
        }
    }

    /// Sends one a signal, if it runs.
    pub fn signal(&self, at: usize, signal: Signal) {
        if let Some(child) = &self.children[at] {
            // It may have ended by itself, as one does whose disk is full.
            let _ = kill(Pid::from_raw(child.id() as i32), signal);
        }
    }

    pub fn ports(&self) -> [u16; SERVERS] {
        self.ports
    }

    /// All addresses, with commas between them.
    pub fn urls(&self) -> String {
        self.ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..SERVERS).for_each(|at| self.kill(at));
    }
}
