//! Three NATS servers that keep each record three times and write it to the disk before they say so.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fleet::nats::Place;
use rustix::process::{Pid, Signal, kill_process};

use crate::server::found_program;

pub(crate) const SERVERS: usize = 3;

pub(crate) struct Cluster {
    program: PathBuf,
    dir: PathBuf,
    ports: [u16; SERVERS],
    children: [Option<Child>; SERVERS],
}

/// Ports that nobody has at the moment. All are held until all are known.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

impl Cluster {
    /// `None`: there is no such program here, and the test is skipped.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let program = found_program()?;
        let unique = format!("{name}-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique);
        std::fs::create_dir_all(&dir).expect("a directory");
        let [a, b, c, routes @ ..] = free_ports::<6>();
        let ports = [a, b, c];
        for (at, port) in ports.iter().enumerate() {
            let all: Vec<_> =
                routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            let text = format!(
                "server_name: s{at}\nlisten: 127.0.0.1:{port}\n\
                 jetstream {{ store_dir: \"{store}\", sync_interval: always }}\n\
                 cluster {{ name: burrow, listen: 127.0.0.1:{route}, routes: {all:?} }}\n",
                store = dir.join(format!("store{at}")).display(),
                route = routes[at],
            );
            std::fs::write(dir.join(format!("s{at}.conf")), text).expect("a configuration");
        }
        let mut cluster = Self { program, dir, ports, children: [None, None, None] };
        for at in 0..SERVERS {
            cluster.start_again(at);
        }
        Some(cluster)
    }

    pub(crate) fn start_again(&mut self, at: usize) {
        let log = self.dir.join(format!("s{at}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.dir.join(format!("s{at}.conf")));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("nats-server starts");
        self.children[at] = Some(child);
    }

    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.children[at].take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    pub(crate) fn signal(&self, at: usize, signal: Signal) {
        if let Some(child) = &self.children[at] {
            kill_process(Pid::from_child(child), signal).expect("it runs");
        }
    }

    pub(crate) fn place(&self) -> Place {
        let servers: Vec<_> =
            self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        Place { servers: servers.join(","), replicas: SERVERS, ..Place::default() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..SERVERS).for_each(|at| self.kill(at));
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
