//! Debian's `docker-registry` on loopback, images that `skopeo` pushes into it, and a line to it that
//! can be cut.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use image::digest::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::own_port::OwnPort;
use crate::{eventually, have_or_skip};

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// Whether the tools for these tests are there; prints a skip if not.
pub fn is_here() -> bool {
    ["docker-registry", "skopeo", "tar", "gzip"].iter().all(|program| have_or_skip(program))
}

/// A registry with its own storage, which is removed with it.
pub struct Registry {
    dir: TempDir,
    child: Child,
    port: OwnPort,
}

impl Registry {
    /// `more` is added to its configuration.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start(more: &str) -> Self {
        let dir = TempDir::with_prefix("burrow-registry-").expect("a directory");
        let own = OwnPort::claim();
        let port = own.number();
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\n\
             storage: {{ filesystem: {{ rootdirectory: {} }} }}\n\
             http: {{ addr: \"127.0.0.1:{port}\", secret: tests{} }}\n{}",
            dir.path().join("storage").display(),
            if more.starts_with("tls:") { format!(", {}", more.trim()) } else { String::new() },
            if more.starts_with("tls:") { "" } else { more },
        );
        let path = dir.path().join("config.yml");
        fs::write(&path, config).expect("written");
        let log = fs::File::create(dir.path().join("log")).expect("a log");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("it starts");
        let mut registry = Self { dir, child, port: own };
        eventually("the registry answers", || {
            let ended = registry.child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "the registry ended at once: {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        registry
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn host(&self) -> String {
        format!("localhost:{}", self.port())
    }

    /// Copies an image in, with `arguments` for `skopeo copy`.
    ///
    /// # Panics
    /// When that fails.
    pub fn push(&self, image: &Layout, name: &str, arguments: &[&str]) {
        let output = Command::new("skopeo")
            .args(["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests"])
            .arg("--dest-tls-verify=false")
            .args(arguments)
            .arg(format!("oci:{}:latest", image.path().display()))
            .arg(format!("docker://localhost:{}/{name}", self.port()))
            .output()
            .expect("skopeo runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }

    /// The path of a blob on its disk.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let blobs = self.dir.path().join("storage/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An OCI layout on disk, which goes away with it.
pub struct Layout {
    dir: TempDir,
    /// For the first platform's image.
    pub manifest: Digest,
    pub layers: Vec<Digest>,
}

impl Layout {
    /// An image with layers of so many bytes that cannot be packed.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn image(layer_bytes: &[u64]) -> Self {
        Self::for_platforms(&["linux/amd64"], layer_bytes)
    }

    /// An image for each platform, with an index if there are several.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn for_platforms(platforms: &[&str], layer_bytes: &[u64]) -> Self {
        let dir = TempDir::with_prefix("burrow-layout-").expect("a directory");
        fs::create_dir_all(dir.path().join("blobs/sha256")).expect("made");
        fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .expect("written");
        let layers: Vec<_> = layer_bytes.iter().map(|&bytes| layer(dir.path(), bytes)).collect();
        let mut manifests = Vec::new();
        for platform in platforms {
            let mut words = platform.split('/');
            let platform = json!({ "os": words.next(), "architecture": words.next() });
            let diffs: Vec<_> = layers.iter().map(|(_, diff)| diff.to_string()).collect();
            let config = json!({
                "os": platform["os"], "architecture": platform["architecture"],
                "config": { "Cmd": ["/bin/true"] },
                "rootfs": { "type": "layers", "diff_ids": diffs },
            });
            let config = keep(dir.path(), CONFIG_TYPE, config.to_string().as_bytes());
            let layers: Vec<&Value> = layers.iter().map(|(layer, _)| layer).collect();
            let manifest = json!({
                "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers,
            });
            let mut manifest = keep(dir.path(), MANIFEST_TYPE, manifest.to_string().as_bytes());
            manifest["platform"] = platform;
            manifests.push(manifest);
        }
        let digest =
            |value: &Value| value["digest"].as_str().expect("text").parse().expect("a digest");
        let manifest = digest(&manifests[0]);
        let mut named = if let [only] = &manifests[..] {
            only.clone()
        } else {
            let index =
                json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests });
            keep(dir.path(), INDEX_TYPE, index.to_string().as_bytes())
        };
        named["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [named] });
        fs::write(dir.path().join("index.json"), index.to_string()).expect("written");
        let layers = layers.iter().map(|(layer, _)| digest(layer)).collect();
        Self { dir, manifest, layers }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Keeps a blob and describes it.
fn keep(layout: &Path, media_type: &str, bytes: &[u8]) -> Value {
    let digest = Digest::of(bytes);
    fs::write(layout.join("blobs/sha256").join(digest.hex()), bytes).expect("written");
    json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
}

/// A layer with one random file, and the digest of the uncompressed archive.
fn layer(layout: &Path, bytes: u64) -> (Value, Digest) {
    let scratch = TempDir::new().expect("a directory");
    let mut noise = fs::File::open("/dev/urandom").expect("noise").take(bytes);
    let mut file = fs::File::create(scratch.path().join("noise")).expect("a file");
    std::io::copy(&mut noise, &mut file).expect("written");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(scratch.path()).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{program}: {output:?}");
        output.stdout
    };
    let tar = run("tar", &["-cf", "-", "noise"]);
    fs::write(scratch.path().join("layer.tar"), &tar).expect("written");
    let packed = run("gzip", &["-1", "-n", "-c", "layer.tar"]);
    (keep(layout, LAYER_TYPE, &packed), Digest::of(&tar))
}

/// A relay to a port of this host, which counts the bytes that come back and can be cut.
pub struct Line {
    pub port: u16,
    state: Arc<LineState>,
}

struct LineState {
    target: u16,
    /// Bytes that have come back, over all connections.
    came: AtomicU64,
    /// At how many of them every connection is cut.
    cut_at: AtomicU64,
    ended: AtomicBool,
}

impl Line {
    /// # Panics
    /// When there is no port.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (came, cut_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let state = Arc::new(LineState { target, came, cut_at, ended: AtomicBool::new(false) });
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming() {
                if of_thread.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (near, state) = (near.expect("a connection"), Arc::clone(&of_thread));
                thread::spawn(move || state.carry(near));
            }
        });
        Self { port, state }
    }

    /// Cuts every connection once so many bytes have come from now on.
    pub fn cut_after(&self, bytes: u64) {
        self.state.cut_at.store(self.came() + bytes, Ordering::SeqCst);
    }

    pub fn mend(&self) {
        self.state.cut_at.store(u64::MAX, Ordering::SeqCst);
    }

    pub fn came(&self) -> u64 {
        self.state.came.load(Ordering::SeqCst)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        // The listener's thread checks this when a connection arrives.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl LineState {
    fn carry(&self, mut near: TcpStream) {
        let Ok(mut far) = TcpStream::connect(("127.0.0.1", self.target)) else { return };
        let (mut asking, mut asked_by) =
            (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
        thread::spawn(move || {
            let _ = std::io::copy(&mut asking, &mut asked_by);
            let _ = asked_by.shutdown(Shutdown::Write);
        });
        let mut piece = [0; 16 * 1024];
        while let Ok(count) = far.read(&mut piece) {
            let came = self.came.fetch_add(count as u64, Ordering::SeqCst);
            let is_cut = came + count as u64 > self.cut_at.load(Ordering::SeqCst);
            if count == 0 || is_cut || near.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
    }
}
