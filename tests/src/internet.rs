//! An internet for one test: a network namespace in which ordinary public addresses lead to the test's
//! servers, and nothing leads anywhere else.
//!
//! ```text
//!  the test's thread, its bridge and every server are in one namespace, whose only interface is lo:
//!    93.184.216.0/24, 2606:2800::/32   the internet; a name server, the web, a server that speaks first
//!    169.254.169.254, 127.0.0.1, …     the same servers, which nobody of a sandbox may ever reach
//! ```
//!
//! The addresses are routed and not on the interface, so that they are not the host's own. The web records
//! each request with the address that was asked, so a test knows what was reached.

pub mod names;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use tempfile::TempDir;

use crate::server::Server;
use crate::{Burrow, have, skip};
use names::Names;

/// The addresses of the web and of the name server.
pub const WEB: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
pub const WEB_V6: &str = "2606:2800:220:1:248:1893:25c8:1946";
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 53);
/// A server that speaks first is at this port.
pub const SPEAKS_FIRST: u16 = 5432;

/// Addresses that lead to the servers here.
const ROUTES: [&str; 3] = ["93.184.216.0/24", "169.254.169.254/32", "10.1.2.0/24"];
const ROUTE_V6: &str = "2606:2800::/32";
/// The names that the web's certificate is for, each with all below it: the last are registries' and what the
/// pages name.
const CERTIFIED: [&str; 10] = [
    "example.com",
    "example.org",
    "example.net",
    "pypi.org",
    "pythonhosted.org",
    "npmjs.org",
    "crates.io",
    "debian.org",
    "docker.io",
    "github.com",
];

/// See the module's description.
pub struct Internet {
    pub names: Names,
    directory: TempDir,
    web: Child,
}

impl Internet {
    /// Moves the calling thread into a namespace for good; if that is impossible, the test prints a skip.
    ///
    /// # Panics
    /// When the servers do not start.
    pub fn or_skip() -> Option<Self> {
        if let Err(why) = enter() {
            skip(&why);
            return None;
        }
        let directory = TempDir::with_prefix("burrow-internet-").expect("a directory");
        certify(directory.path());
        fs::create_dir(directory.path().join("served")).expect("a directory");
        let mut web = Command::new("python3")
            .args(["-c", include_str!("internet/web.py")])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut stdout = BufReader::new(web.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it is ours");
        assert_eq!(line, "ready\n", "the web does not serve");
        Some(Self { names: Names::serve(NAME_SERVER), directory, web })
    }

    /// A bridge in here that asks the name server, with more options.
    pub fn bridge(&self, options: &[&str]) -> Server {
        let dns = format!("egress.dns={NAME_SERVER}:53");
        let options = [&["--dev", "--set", &dns], options].concat();
        Server::start_in(Burrow::new(), &options)
    }

    /// The certificate of the web's authority.
    pub fn authority(&self) -> Vec<u8> {
        fs::read(self.authority_file()).expect("it was made")
    }

    pub fn authority_file(&self) -> std::path::PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// git's own server serves repositories in this directory, and accepts pushes.
    pub fn repositories(&self) -> std::path::PathBuf {
        self.directory.path().join("git")
    }

    /// Files in this directory are served unchanged, below its path.
    pub fn served(&self) -> std::path::PathBuf {
        self.directory.path().join("served")
    }

    /// From now on nothing listens at the web's address.
    pub fn close_web(&mut self) {
        self.web.kill().ok();
        self.web.wait().ok();
    }

    /// All requests to the web, in order.
    pub fn requests(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.directory.path().join("asked")).unwrap_or_default();
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("a line of ours")).collect()
    }

    /// The addresses at which the web was reached, each once.
    pub fn reached(&self) -> Vec<String> {
        let mut reached: Vec<String> =
            self.requests().iter().filter_map(|one| Some(one["at"].as_str()?.to_owned())).collect();
        reached.sort();
        reached.dedup();
        reached
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.close_web();
    }
}

fn enter() -> Result<(), String> {
    for program in ["ip", "openssl", "python3", "curl"] {
        if !have(program) {
            return Err(format!("there is no {program} here"));
        }
    }
    if !nix::unistd::Uid::effective().is_root() {
        return Err("only root may make a network namespace".to_owned());
    }
    unshare(CloneFlags::CLONE_NEWNET).map_err(|why| format!("no network namespace: {why}"))?;
    ip("link set lo up")?;
    for route in ROUTES {
        ip(&format!("route add local {route} dev lo"))?;
    }
    ip(&format!("-6 route add local {ROUTE_V6} dev lo"))
}

/// Runs `ip` where the calling thread is.
pub(crate) fn ip(words: &str) -> Result<(), String> {
    let ran = Command::new("ip").args(words.split(' ')).output().expect("ip runs");
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&ran.stderr).trim()))
}

/// Makes an authority, and certificates for the web: a valid one, an expired one, and one of an unknown
/// authority.
fn certify(place: &Path) {
    const NEW: &str = "req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
    let names: Vec<_> = CERTIFIED.iter().map(|name| format!("DNS:{name},DNS:*.{name}")).collect();
    let names = format!("subjectAltName={}", names.join(","));
    let authority = |name: &str| {
        let files = format!("{NEW} -subj /CN={name} -keyout {name}.key -out {name}.pem");
        format!("{files} -addext keyUsage=critical,keyCertSign")
    };
    let of = |name: &str, authority: &str| {
        let files = format!("{NEW} -subj /CN={name} -keyout {name}.key -out {name}.pem");
        let signed = format!("-CA {authority}.pem -CAkey {authority}.key");
        format!("{files} {signed} -addext {names} -addext basicConstraints=CA:FALSE")
    };
    // Only the command that signs others' requests can backdate a certificate.
    let asks = format!("req -new -key web.key -subj /CN=expired -addext {names} -out expired.csr");
    let over = "x509 -req -in expired.csr -CA ca.pem -CAkey ca.key -set_serial 7 -days -1 \
                -copy_extensions copy -out expired.pem";
    let good = [authority("ca"), of("web", "ca")];
    let others = [asks, over.to_owned(), authority("nobody"), of("strange", "nobody")];
    for words in good.iter().chain(&others) {
        let made = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(place)
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{words}: {}", String::from_utf8_lossy(&made.stderr));
    }
}
