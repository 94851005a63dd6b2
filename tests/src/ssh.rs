//! A bridge with a door for SSH, one sandbox named `box`, and OpenSSH's clients set up for it.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::server::Server;
use crate::{Burrow, eventually, have_or_skip};

const LISTENING: &str = "listening on ssh://";

/// See the module's description. It is also a [`Server`].
pub struct Ssh {
    server: Server,
    address: String,
    key: String,
}

impl Ssh {
    /// `None`, with a printed skip, without OpenSSH's client.
    pub fn open() -> Option<Self> {
        let ssh = Self::without_sandbox(&[])?;
        ssh.ok(&["start", "--name", "box"]);
        Some(ssh)
    }

    /// The same with more options, and without a sandbox.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn without_sandbox(options: &[&str]) -> Option<Self> {
        Self::of(Burrow::new(), options)
    }

    /// The same with a bridge that was prepared for it.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn of(burrow: Burrow, options: &[&str]) -> Option<Self> {
        if !have_or_skip("ssh") || !have_or_skip("ssh-keygen") {
            return None;
        }
        let options = [&["--dev", "--ssh", "127.0.0.1:0"], options].concat();
        let server = Server::start_in(burrow, &options);
        let mut address = None;
        eventually("the server says where its door for SSH is", || {
            let log = fs::read_to_string(server.log()).expect("a log");
            address = log.lines().find_map(|line| Some(line.split_once(LISTENING)?.1.to_owned()));
            address.is_some()
        });
        let mut ssh = Self { server, address: address.expect("an address"), key: String::new() };
        ssh.key = ssh.add_key("id", &[]);
        ssh.write_config();
        Some(ssh)
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The id of the key that the clients use.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A path for a test's own file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch().join(name)
    }

    /// A new pair of keys under a name, which nobody knows.
    pub fn draw_key(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&path)
            .output()
            .expect("ssh-keygen runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        path
    }

    /// The same for a new key of the bridge, whose id is returned.
    pub fn add_key(&self, name: &str, options: &[&str]) -> String {
        let path = self.draw_key(name).with_extension("pub");
        let issued = self.ok(&[&["keygen", "--json"], options].concat());
        let issued: Value = serde_json::from_str(&issued).expect("JSON");
        let id = issued["id"].as_str().expect("an id").to_owned();
        self.ok(&["keys", "add-ssh", &id, path.to_str().expect("UTF-8")]);
        id
    }

    /// What `ssh-config` prints, with the keys of this test.
    fn write_config(&self) {
        let block = self.ok(&["ssh-config", "--address", &self.address]);
        let known = block.lines().find_map(|line| line.strip_prefix("# ")).expect("a hint");
        fs::write(self.path("known_hosts"), format!("{known}\n")).expect("written");
        let options = [
            ("IdentityFile", self.path("id")),
            ("IdentitiesOnly", "yes".into()),
            ("UserKnownHostsFile", self.path("known_hosts")),
            ("GlobalKnownHostsFile", "/dev/null".into()),
            ("StrictHostKeyChecking", "yes".into()),
            ("BatchMode", "yes".into()),
            ("LogLevel", "ERROR".into()),
        ];
        let more = options.map(|(name, value)| format!("    {name} {}\n", value.display()));
        fs::write(self.path("config"), block + &more.concat()).expect("written");
    }

    /// The configuration of the clients.
    pub fn config(&self) -> PathBuf {
        self.path("config")
    }

    /// One of OpenSSH's programs with its configuration, not started.
    pub fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.arg("-F").arg(self.config()).args(arguments);
        command.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null()).current_dir(self.scratch());
        command
    }

    /// `ssh box@burrow`, with options before and the command after.
    pub fn ssh(&self, options: &[&str], command: &str) -> Command {
        self.program("ssh", &[options, &["box@burrow", command]].concat())
    }

    /// Runs a command in the sandbox to its end.
    pub fn run(&self, command: &str) -> Output {
        self.ssh(&[], command).output().expect("ssh runs")
    }

    /// The same, which must succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn say(&self, command: &str) -> String {
        succeeded(&self.run(command))
    }

    /// Runs one of OpenSSH's programs, which must succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn do_with(&self, program: &str, arguments: &[&str]) -> String {
        succeeded(&self.program(program, arguments).output().expect("it runs"))
    }

    /// A file of so many mebibytes, which repeat nowhere.
    pub fn big_file(&self, name: &str, mebibytes: u32) -> PathBuf {
        let path = self.path(name);
        let script = format!("head -c {mebibytes}M /dev/urandom > {}", path.display());
        assert!(Command::new("sh").args(["-c", &script]).status().expect("sh").success());
        path
    }
}

impl Deref for Ssh {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn succeeded(output: &Output) -> String {
    let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{:?}\n{}", output.status, said(&output.stderr));
    said(&output.stdout)
}

/// The digest of a file, as `sha256sum` has it.
///
/// # Panics
/// When there is none.
pub fn digest(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum runs");
    let text = succeeded(&output);
    text.split_whitespace().next().expect("a digest").to_owned()
}

/// Ended with the test.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
