//! A server of S3's on loopback with buckets whose objects are files of a directory, `curl` as another who
//! works on them, and a bridge that has them as workspaces.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::own_port::OwnPort;
use crate::server::Server;
use crate::{Burrow, eventually, have_or_skip, workspaces};

const PROGRAM: &str = "s3s-fs";
/// Its keys. Only the bridge has the second.
pub const ACCESS_KEY: &str = "AKIABURROWTESTS";
pub const SECRET_KEY: &str = "canary/of+the=secret-key-of-the-bucket";
/// The bucket that is there.
const BUCKET: &str = "data";

/// Whether the tools for these tests are there; prints a skip if not.
pub fn is_here() -> bool {
    [PROGRAM, "curl"].iter().all(|program| have_or_skip(program))
}

/// The server. It ends with this.
pub struct Store {
    dir: TempDir,
    child: Option<Child>,
    port: OwnPort,
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Store {
    /// With an empty bucket.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start() -> Self {
        let dir = TempDir::with_prefix("burrow-store-").expect("a directory");
        fs::create_dir(dir.path().join(BUCKET)).expect("a bucket");
        let mut store = Self { dir, child: None, port: OwnPort::claim() };
        store.start_again();
        store
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// Starts it at the same address, with its data.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let port = self.port();
        let mut command = Command::new(PROGRAM);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]);
        command.arg(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.child.insert(command.spawn().expect("it starts"));
        eventually("the store answers", || {
            let ended = child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "the store ended at once: {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The file of an object.
    pub fn path(&self, key: &str) -> PathBuf {
        self.dir.path().join(BUCKET).join(key)
    }

    /// An object's content; none where there is none.
    pub fn read(&self, key: &str) -> Option<String> {
        fs::read(self.path(key)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All objects by their keys, in order.
    pub fn keys(&self) -> Vec<String> {
        let root = self.path("");
        let (mut keys, mut waiting) = (Vec::new(), vec![root.clone()]);
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    waiting.push(path);
                } else if let Ok(key) = path.strip_prefix(&root) {
                    keys.push(key.to_string_lossy().into_owned());
                }
            }
        }
        keys.sort();
        keys
    }

    /// Parts of uploads.
    pub fn parts(&self) -> usize {
        self.count(".upload_id-")
    }

    /// Uploads that are neither whole nor given up. One whose last word was cut off is none, and the
    /// server may keep its parts.
    pub fn uploads(&self) -> usize {
        self.count(".upload-")
    }

    fn count(&self, prefix: &str) -> usize {
        let all = fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count()
    }

    /// Pauses it: connections are accepted, and nothing is answered.
    ///
    /// # Panics
    /// When it does not run.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Resumes it.
    ///
    /// # Panics
    /// When it does not run.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill(Pid::from_raw(child.id() as i32), signal).expect("it is ours");
    }

    /// Whether it has unread bytes.
    pub fn has_unanswered(&self) -> bool {
        let connections = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let here = format!("0100007F:{:04X}", self.port());
        connections.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let waiting = words.get(4).and_then(|queues| queues.split(':').nth(1));
            // A listening socket counts connections there.
            words.get(1) == Some(&here.as_str())
                && words.get(3) == Some(&"01")
                && waiting.is_some_and(|bytes| bytes != "00000000")
        })
    }

    /// Writes an object as another program would.
    ///
    /// # Panics
    /// When it is not taken.
    pub fn put(&self, key: &str, content: &str) {
        let from = self.dir.path().join(".content");
        fs::write(&from, content).expect("written");
        self.curl(key, &["-T", &from.to_string_lossy()]);
    }

    /// Removes one.
    ///
    /// # Panics
    /// When it is not taken.
    pub fn delete(&self, key: &str) {
        self.curl(key, &["-X", "DELETE"]);
    }

    fn curl(&self, key: &str, arguments: &[&str]) {
        let output = Command::new("curl")
            .args(["-sS", "--fail", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-1:s3"])
            .args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")])
            .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .args(arguments)
            .arg(format!("http://127.0.0.1:{}/{BUCKET}/{key}", self.port()))
            .output()
            .expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A bridge that has the bucket as `b`, and as `wrong` with another secret key, as `none` one that is not
/// there.
pub struct Scene {
    pub store: Store,
    pub server: Server,
}

impl Scene {
    pub fn usual() -> Self {
        Self::with(Store::start(), "")
    }

    /// With more keys for the workspace `b`.
    pub fn with(store: Store, keys: &str) -> Self {
        let burrow = Burrow::new();
        let config = Self::configure(burrow.scratch(), store.port(), keys);
        let options = ["--dev", "--config", config.to_str().expect("text")];
        Self { server: Server::start_in(burrow, &options), store }
    }

    /// Writes a configuration, and the keys beside it.
    pub fn configure(place: &Path, port: u16, keys: &str) -> PathBuf {
        let secret = |name: &str, value: &str| {
            let path = place.join(name);
            fs::write(&path, value).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("made private");
            format!("[secrets.{name}]\nfile = \"{}\"\nnamespaces = []\n", path.display())
        };
        let workspace = |name: &str, bucket: &str, secret: &str, keys: &str| {
            format!(
                "[workspaces.{name}]\nbucket = \"{bucket}\"\nendpoint = \"http://127.0.0.1:{port}\"\n\
                 access_key = \"id\"\nsecret_key = \"{secret}\"\nnamespaces = [\"default\"]\n{keys}\n"
            )
        };
        let text = [
            secret("id", ACCESS_KEY),
            secret("key", SECRET_KEY),
            secret("bad", "another"),
            workspace("b", BUCKET, "key", keys),
            workspace("wrong", BUCKET, "bad", ""),
            workspace("none", "nosuchbucket", "key", ""),
        ];
        let config = place.join("burrow.toml");
        fs::write(&config, text.concat()).expect("written");
        config
    }

    pub fn start(&self, name: &str) {
        self.server.ok(&["start", "--name", name, "--workspace", "b"]);
    }

    pub fn sh(&self, name: &str, script: &str) -> String {
        workspaces::sh(&self.server, name, script)
    }

    pub fn sync(&self, name: &str) -> Value {
        workspaces::sync(&self.server, name)
    }

    pub fn warnings(&self, name: &str) -> String {
        workspaces::warnings(&self.server, name)
    }
}
