//! A server on loopback that answers as a test says, and the image that it has by default.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::digest::Digest;

/// A request's head as it came.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) path: String,
    /// In lower case.
    head: String,
    pub(super) body: String,
}

impl ReceivedRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn is_blob(&self, of: &[u8]) -> bool {
        self.path.ends_with(&format!("/blobs/{}", Digest::of(of)))
    }
}

/// An answer, and what happens to the connection afterwards.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// It stays open.
    Whole(Vec<u8>),
    /// It is closed.
    Cut(Vec<u8>),
    /// It stays open, and nothing more comes.
    Silent(Vec<u8>),
    /// Repeats the last part forever, with a pause between.
    Endless(Vec<u8>, Vec<u8>, Duration),
}

/// An answer with a length.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    Reply::Whole(message(status, headers, body))
}

pub(super) fn message(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

type Play = dyn Fn(&ReceivedRequest, usize) -> Reply + Send + Sync;

/// It goes away with its test.
pub(super) struct Server {
    pub(super) port: u16,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// `play` answers each request; it gets the number of earlier ones.
    pub(super) async fn start(
        play: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, play): (Arc<Mutex<Vec<ReceivedRequest>>>, Arc<Play>) =
            (Arc::default(), Arc::new(play));
        let all = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&all), Arc::clone(&play)));
            }
        });
        Self { port, requests, _tasks: tasks }
    }

    pub(super) fn name(&self, rest: &str) -> String {
        format!("localhost:{}/{rest}", self.port)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn count(&self, is: impl Fn(&ReceivedRequest) -> bool) -> usize {
        self.requests().iter().filter(|request| is(request)).count()
    }
}

async fn serve(mut stream: TcpStream, all: Arc<Mutex<Vec<ReceivedRequest>>>, play: Arc<Play>) {
    while let Some(request) = read(&mut stream).await {
        let before = {
            let mut all = all.lock().unwrap();
            all.push(request.clone());
            all.len() - 1
        };
        match play(&request, before) {
            Reply::Whole(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Reply::Cut(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Silent(bytes) => {
                let _ = stream.write_all(&bytes).await;
                // Until the other end has enough of it.
                let _ = stream.read(&mut [0]).await;
                return;
            }
            Reply::Endless(first, again, pause) => {
                let _ = stream.write_all(&first).await;
                while stream.write_all(&again).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
                return;
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).unwrap();
    let mut words = text.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    // The case of values matters; that of names does not.
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
        None => line.to_owned(),
    });
    let head = lines.collect::<Vec<_>>().join("\n");
    let mut request = ReceivedRequest { method, path, head, body: String::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.body = String::from_utf8(body).unwrap();
    Some(request)
}

/// An image with one layer, or two that are the same.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) config: Vec<u8>,
    pub(super) layer: Vec<u8>,
    pub(super) manifest: Vec<u8>,
}

pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

impl Image {
    pub(super) fn new(layer: Vec<u8>) -> Self {
        let config = br#"{"os":"linux","architecture":"amd64"}"#.to_vec();
        let one = Self::descriptor("application/vnd.oci.image.layer.v1.tar", &layer);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
            "config": Self::descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [one, one],
        });
        let manifest = manifest.to_string().into_bytes();
        Self { config, layer, manifest }
    }

    pub(super) fn small() -> Self {
        Self::new(b"a layer".to_vec())
    }

    /// Bytes that do not repeat.
    pub(super) fn of_bytes(count: u32) -> Self {
        Self::new((0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect())
    }

    fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
        json!({ "mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len() })
    }

    /// The answer of a good registry.
    pub(super) fn reply(&self, request: &ReceivedRequest) -> Reply {
        for blob in [&self.config, &self.layer] {
            if request.is_blob(blob) {
                return blob_reply(blob, request);
            }
        }
        if request.path.contains("/manifests/") {
            let digest = Digest::of(&self.manifest).to_string();
            let headers = [("content-type", MANIFEST_TYPE), ("docker-content-digest", &digest)];
            return answer(200, &headers, &self.manifest);
        }
        answer(404, &[], br#"{"errors":[{"code":"NAME_UNKNOWN","message":"never heard of it"}]}"#)
    }
}

fn blob_reply(blob: &[u8], request: &ReceivedRequest) -> Reply {
    let Some(from) = offset(request) else { return answer(200, &[], blob) };
    let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
    answer(206, &[("content-range", &range)], &blob[from..])
}

/// From where on the bytes are wanted.
pub(super) fn offset(request: &ReceivedRequest) -> Option<usize> {
    request.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}
