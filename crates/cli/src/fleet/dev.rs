//! `fleet dev`: a NATS server and some bridges on this machine, which end with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use futures_util::StreamExt as _;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;

use super::child;
use crate::exit::Exit;
use crate::output;
use control::{Client, NodeRow, Request};
use host::id::RandomId;
use host::paths::{Paths, make_private_directory};

/// Where the program is, if it is not on `PATH`.
const NATS_VARIABLE: &str = "BURROW_NATS_SERVER";
const NATS_PROGRAM: &str = "nats-server";
/// The first release whose keys run out by themselves.
const NATS_VERSION_MIN: (u32, u32) = (2, 11);
/// Nodes that one machine is asked for: each is a bridge.
const NODES_MAX: u8 = 16;
/// How long everything may take to be there.
const START_MAX: Duration = Duration::from_secs(60);
/// How long the bridges may take to end, with their sandboxes.
const END_MAX: Duration = Duration::from_secs(30);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// See `fleet dev --help`.
#[derive(Debug, Args)]
pub struct Dev {
    /// Set the number of bridges
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES_MAX)))]
    nodes: u8,

    /// Print one line of JSON when all is there
    #[arg(long)]
    json: bool,
}

/// What there is, for programs.
#[derive(Debug, Serialize)]
struct Started {
    nats: String,
    directory: PathBuf,
    nodes: Vec<StartedNode>,
}

#[derive(Debug, Serialize)]
struct StartedNode {
    name: String,
    address: String,
    /// With these, the other commands are about this node.
    runtime_dir: PathBuf,
    state_dir: PathBuf,
}

/// A process that was started, and what it is to people.
struct Running {
    name: String,
    child: std::process::Child,
    log: PathBuf,
}

impl Running {
    /// An error if it has ended, with the end of its log.
    fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        bail!("{} has ended ({status}):\n{}", self.name, output::printable(&last))
    }

    fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        // One that has ended was not reaped yet, so the number is its own.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    }
}

/// All of it. Dropping it ends what runs at once and removes the directory.
struct Fleet {
    directory: PathBuf,
    nats: Vec<Running>,
    bridges: Vec<Running>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for running in self.bridges.iter_mut().chain(&mut self.nats) {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Dev {
    pub async fn run(self) -> Result<Exit> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let program = find_nats()?;
        let directory = std::env::temp_dir().join(format!("burrow-fleet-{}", RandomId::draw()?));
        make_private_directory(&directory)?;
        let mut fleet = Fleet { directory, nats: Vec::new(), bridges: Vec::new() };
        let code = tokio::select! {
            served = self.serve(&mut fleet, &program) => { served?; Exit::SUCCESS }
            signal = signals.next() => Exit::signalled(signal.unwrap_or(SIGTERM)),
        };
        fleet.end().await;
        // To end it is what a person does with it.
        Ok(if code == Exit::signalled(SIGINT) || code == Exit::signalled(SIGTERM) {
            Exit::SUCCESS
        } else {
            code
        })
    }

    /// Starts everything, says so, and returns only when something has ended by itself.
    async fn serve(&self, fleet: &mut Fleet, program: &Path) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        let nats = fleet.start_nats(program, deadline).await?;
        let names: Vec<_> = (1..=self.nodes).map(|number| format!("node{number}")).collect();
        for name in &names {
            fleet.start_bridge(name, &nats)?;
        }
        let mut nodes = Vec::new();
        for name in &names {
            let paths = fleet.paths(name);
            let address = fleet.joined(&paths, names.len(), deadline).await?;
            let (runtime_dir, state_dir) = (paths.runtime, paths.state);
            nodes.push(StartedNode { name: name.clone(), address, runtime_dir, state_dir });
        }
        let started = Started { nats, directory: fleet.directory.clone(), nodes };
        if self.json {
            output::print_line(&serde_json::to_string(&started)?)?;
        } else {
            output::print_line(&format!("NATS    {}", started.nats))?;
            for node in &started.nodes {
                output::print_line(&format!("{}   {}", node.name, node.address))?;
            }
            let first = started.nodes.first().map_or("", |node| node.address.as_str());
            output::note(&format!(
                "any of them answers for all: curl {first}/v1/nodes; ctrl-c ends them and removes {}",
                started.directory.display()
            ));
        }
        loop {
            fleet.check()?;
            tokio::time::sleep(PAUSE * 10).await;
        }
    }
}

impl Fleet {
    fn paths(&self, name: &str) -> Paths {
        let own = self.directory.join(name);
        Paths { runtime: own.join("run"), state: own.join("state") }
    }

    /// A command that ends with this process.
    fn command(program: &Path) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg(child::VERB).arg(std::process::id().to_string()).arg(program);
        command.stdin(Stdio::null());
        command
    }

    fn spawn(&self, name: &str, mut command: Command) -> Result<Running> {
        let log = self.directory.join(format!("{name}.log"));
        let file = fs::File::create(&log)?;
        // A group of its own: ctrl-c is for this process, which ends it in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.stdout(file.try_clone()?).stderr(file).spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        Ok(Running { name: name.to_owned(), child, log })
    }

    async fn start_nats(&mut self, program: &Path, deadline: Instant) -> Result<String> {
        let ports = self.directory.join("ports");
        make_private_directory(&ports)?;
        let mut command = Self::command(program);
        command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]);
        command.arg(self.directory.join("nats")).arg("--ports_file_dir").arg(&ports);
        let running = self.spawn(NATS_PROGRAM, command)?;
        self.nats.push(running);
        loop {
            self.check()?;
            if let Some(url) = read_url(&ports) {
                return Ok(url);
            }
            wait(deadline, "nats-server does not say where it listens").await?;
        }
    }

    fn start_bridge(&mut self, name: &str, nats: &str) -> Result<()> {
        let paths = self.paths(name);
        let mut command = Self::command(Path::new("/proc/self/exe"));
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--stop-sandboxes"]);
        command.args(["--fleet", nats, "--set", &format!("fleet.node={name}")]);
        command.env("BURROW_RUNTIME_DIR", &paths.runtime).env("BURROW_STATE_DIR", &paths.state);
        let running = self.spawn(name, command)?;
        self.bridges.push(running);
        Ok(())
    }

    /// Waits until a bridge is in the fleet and knows the others; answers with its address.
    async fn joined(&mut self, paths: &Paths, count: usize, deadline: Instant) -> Result<String> {
        loop {
            self.check()?;
            let rows = rows(paths).await.unwrap_or_default();
            let here = rows.iter().find(|row| row.here && row.trouble.is_none());
            if let Some(here) = here.filter(|_| rows.len() == count) {
                return Ok(here.address.clone());
            }
            wait(deadline, "a bridge does not come into the fleet").await?;
        }
    }

    fn check(&mut self) -> Result<()> {
        self.nats.iter_mut().chain(&mut self.bridges).try_for_each(Running::check)
    }

    /// Ends the bridges in order, which end their sandboxes; then NATS.
    async fn end(&mut self) {
        for part in [&mut self.bridges, &mut self.nats] {
            part.iter().for_each(Running::terminate);
            let deadline = Instant::now() + END_MAX;
            let runs = |one: &mut Running| matches!(one.child.try_wait(), Ok(None));
            while Instant::now() < deadline && part.iter_mut().any(runs) {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn rows(paths: &Paths) -> Result<Vec<NodeRow>> {
    Ok(Client::connect(paths).await?.ask(&Request::Nodes {}).await?)
}

async fn wait(deadline: Instant, what: &str) -> Result<()> {
    if Instant::now() > deadline {
        bail!("{what} within {} s", START_MAX.as_secs());
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

fn read_url(ports: &Path) -> Option<String> {
    let file = fs::read_dir(ports).ok()?.flatten().next()?;
    let ports: serde_json::Value = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
    ports["nats"][0].as_str().map(str::to_owned)
}

/// The program of NATS, new enough.
fn find_nats() -> Result<PathBuf> {
    const HOW: &str = "put nats-server 2.11 or newer on PATH, or set BURROW_NATS_SERVER to its path: \
        https://github.com/nats-io/nats-server/releases has it, and so has the Python package embedded-nats";
    let named = std::env::var_os(NATS_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let found = match named {
        Some(path) if path.is_file() => path,
        Some(path) => bail!("{NATS_VARIABLE} is {}, which is no file; {HOW}", path.display()),
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let mut places = std::env::split_paths(&path).map(|place| place.join(NATS_PROGRAM));
            let Some(found) = places.find(|place| place.is_file()) else {
                bail!("there is no nats-server here; {HOW}");
            };
            found
        }
    };
    let output = Command::new(&found).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}; {HOW}", found.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match version(&text) {
        Some(version) if version >= NATS_VERSION_MIN => Ok(found),
        Some((major, minor)) => {
            bail!("{} is {major}.{minor}, which is too old; {HOW}", found.display())
        }
        None => bail!("{} says {:?} and no version; {HOW}", found.display(), text.trim()),
    }
}

/// Of a text as in `nats-server: v2.15.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, version) = text.trim().rsplit_once('v')?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_nats_is_read_from_what_it_prints() {
        assert_eq!(version("nats-server: v2.15.0\n"), Some((2, 15)));
        assert_eq!(version("nats-server: v2.11.0-RC.1\n"), Some((2, 11)));
        assert_eq!(version("something else"), None);
        assert!((2, 9) < NATS_VERSION_MIN && (3, 0) > NATS_VERSION_MIN);
    }
}
