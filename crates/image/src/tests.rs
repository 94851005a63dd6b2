//! What the tests of images share: hand-made layers and images, in their own store.

mod add;
mod compose;
mod hostile;
mod import;
mod store;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry, padding};
use serde_json::json;

use super::digest::Digest;
use super::store::{ImageError, Images};
use host::paths::Paths;

/// A directory of a test's own with a store in it, gone at its end.
struct TestStore {
    path: PathBuf,
    images: Images,
}

impl TestStore {
    fn new(name: &str) -> Self {
        let own = format!("burrow-images-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(own);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("files")).expect("a directory for the test");
        fs::write(path.join("precious"), "untouched").expect("a file for the test");
        let images = Images::open(&paths(&path)).expect("a store");
        Self { path, images }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join("files").join(name)
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let listed = fs::read_dir(self.path.join("state/images").join(kind)).expect("the store");
        let mut names: Vec<_> = listed
            .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    /// Checks that a refused layer leaves nothing.
    fn assert_empty(&self) {
        for kind in ["layers", "roots", "known", "sha256", "partial", "imports"] {
            assert_eq!(self.names(kind), [""; 0], "{kind}");
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        let precious = fs::read_to_string(self.path.join("precious"));
        let _ = fs::remove_dir_all(&self.path);
        if !std::thread::panicking() {
            assert_eq!(precious.ok().as_deref(), Some("untouched"));
        }
    }
}

fn paths(path: &Path) -> Paths {
    Paths { runtime: path.join("run"), state: path.join("state") }
}

/// An archive that is built entry by entry.
#[derive(Clone, Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn put(mut self, path: &str, kind: Kind, mode: u32, content: &[u8]) -> Self {
        let (uid, gid, mtime_s, mtime_ns) = (0, 0, 1_000, 0);
        let entry = Entry { path: path.into(), kind, mode, uid, gid, mtime_s, mtime_ns };
        encode_entry(&entry, &mut self.0).expect("an entry that can be written");
        self.0.extend_from_slice(content);
        self.0.extend_from_slice(padding(content.len() as u64));
        self
    }

    fn dir(self, path: &str) -> Self {
        self.put(path, Kind::Directory, 0o755, b"")
    }

    fn file(self, path: &str, content: &str) -> Self {
        let size = content.len() as u64;
        self.put(path, Kind::File { size }, 0o644, content.as_bytes())
    }

    fn link(self, path: &str, target: &str) -> Self {
        self.put(path, Kind::Symlink { target: target.into() }, 0o777, b"")
    }

    fn hard(self, path: &str, target: &str) -> Self {
        self.put(path, Kind::HardLink { target: target.into() }, 0o644, b"")
    }

    /// A pax header with one record for the entry that follows.
    fn pax(mut self, key: &str, value: &[u8]) -> Self {
        let fixed = key.len() + value.len() + 3;
        let length =
            (fixed..fixed + 9).find(|n| *n == fixed + n.to_string().len()).expect("a length");
        let mut body = format!("{length} {key}=").into_bytes();
        body.extend_from_slice(value);
        body.push(b'\n');
        let at = self.0.len();
        self = self.put("pax", Kind::File { size: body.len() as u64 }, 0o644, &body);
        self.0[at + 156] = b'x';
        self.seal(at);
        self
    }

    /// Writes the checksum of a header that was changed.
    fn seal(&mut self, at: usize) {
        let header = &mut self.0[at..at + 512];
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(END_OF_ARCHIVE);
        self.0
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A layer in its stored form.
#[derive(Clone)]
struct TestLayer {
    blob: Vec<u8>,
    diff_id: Digest,
}

impl TestLayer {
    fn plain(archive: Archive) -> Self {
        let blob = archive.end();
        let diff_id = Digest::of(&blob);
        Self { blob, diff_id }
    }

    fn packed(archive: Archive, pack: fn(&[u8]) -> Vec<u8>) -> Self {
        let plain = Self::plain(archive);
        Self { blob: pack(&plain.blob), ..plain }
    }
}

/// Writes an OCI layout of one image; `config` has the settings for programs.
fn write_layout(to: &Path, layers: &[TestLayer], config: &serde_json::Value) -> Digest {
    let blobs = to.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("a layout");
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).expect("a blob");
        json!({"mediaType": "application/octet-stream", "digest": digest, "size": bytes.len()})
    };
    let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id).collect();
    let document = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = put(document.to_string().as_bytes());
    let layers: Vec<_> = layers.iter().map(|layer| put(&layer.blob)).collect();
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
    let descriptor = put(manifest.as_bytes());
    let index = json!({"schemaVersion": 2, "manifests": [descriptor]});
    fs::write(to.join("index.json"), index.to_string()).expect("an index");
    fs::write(to.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("a layout");
    Digest::of(manifest.as_bytes())
}

impl TestStore {
    /// Adds an image of these layers, the lowest first, and returns its root.
    async fn root(&self, layers: &[TestLayer]) -> Result<PathBuf, ImageError> {
        let _ = fs::remove_dir_all(self.file("layout"));
        write_layout(&self.file("layout"), layers, &json!({}));
        self.import("layout", Some("test")).await?;
        Ok(self.images.lease(&self.images.find("test")?)?.root)
    }

    async fn import(&self, file: &str, name: Option<&str>) -> Result<(), ImageError> {
        let (images, path) = (self.images.clone(), self.file(file));
        let name = name.map(|name| name.parse().expect("a name"));
        let import = move || images.import(&path, name.as_ref()).map(drop);
        tokio::task::spawn_blocking(import).await.expect("no panic")
    }
}
