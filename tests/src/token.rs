//! A token server like those that registries send their clients to: it signs tokens with `openssl`
//! that `docker-registry` accepts.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tempfile::TempDir;

/// Who gets tokens; nobody else does.
pub const USER_AND_PASSWORD: (&str, &str) = ("bob", "hunter2");
/// The same as base64 has it.
const AUTHORIZATION: &str = "Basic Ym9iOmh1bnRlcjI=";
const ISSUER: &str = "tests";
const SERVICE: &str = "registry of tests";
const REPOSITORY: &str = "team/app";

pub struct TokenServer {
    dir: TempDir,
    port: u16,
    requests: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl TokenServer {
    /// # Panics
    /// When it does not come up.
    pub fn start() -> Self {
        let dir = TempDir::with_prefix("burrow-tokens-").expect("a directory");
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=tests",
            ])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(dir.path())
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{made:?}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (requests, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let keys = dir.path().to_owned();
        let (asked_of, ended_of) = (Arc::clone(&requests), Arc::clone(&ended));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended_of.load(Ordering::SeqCst) {
                    return;
                }
                asked_of.fetch_add(1, Ordering::SeqCst);
                answer(&keys, stream.expect("a connection"));
            }
        });
        Self { dir, port, requests, ended }
    }

    /// How often a token was requested.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The name that it has in the answers of registries.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The registry's configuration to trust it.
    pub fn registry_auth(&self) -> String {
        let certificate = self.dir.path().join("cert.pem");
        format!(
            "auth: {{ token: {{ realm: \"http://127.0.0.1:{}/token\", service: \"{SERVICE}\", \
             issuer: {ISSUER}, rootcertbundle: {} }} }}\n",
            self.port,
            certificate.display()
        )
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The thread checks this when a connection arrives.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One request, one answer, one connection.
fn answer(keys: &Path, mut stream: TcpStream) {
    let mut is_known = false;
    let reader = BufReader::new(stream.try_clone().expect("a handle"));
    let lines = reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap_or_default();
        is_known |= name.eq_ignore_ascii_case("authorization") && value == AUTHORIZATION;
    }
    let (status, body) = if is_known {
        let body = json!({ "token": token(keys), "expires_in": 300 });
        ("200 OK", body.to_string())
    } else {
        ("401 Unauthorized", r#"{"details":"hunter2"}"#.to_owned())
    };
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
}

/// A JWT that lets its holder read and write the one repository.
fn token(keys: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let pem = fs::read_to_string(keys.join("cert.pem")).expect("a certificate");
    let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let header = json!({ "typ": "JWT", "alg": "RS256", "x5c": [der] });
    let claims = json!({
        "iss": ISSUER, "sub": USER_AND_PASSWORD.0, "aud": SERVICE, "jti": now.to_string(),
        "iat": now, "nbf": now - 10, "exp": now + 300,
        "access": [{ "type": "repository", "name": REPOSITORY, "actions": ["pull", "push"] }],
    });
    let encode = |bytes: &[u8]| encode(bytes, keys);
    let signed = format!(
        "{}.{}",
        encode(header.to_string().as_bytes()),
        encode(claims.to_string().as_bytes())
    );
    let key: PathBuf = keys.join("key.pem");
    let sign = ["dgst", "-sha256", "-sign", key.to_str().expect("text")];
    let signature = openssl(&sign, signed.as_bytes(), keys);
    format!("{signed}.{}", encode(&signature))
}

fn openssl(arguments: &[&str], input: &[u8], dir: &Path) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(arguments).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("openssl runs");
    child.stdin.take().expect("piped").write_all(input).expect("it reads");
    child.wait_with_output().expect("it ends").stdout
}

/// Base64 as it is in addresses.
fn encode(bytes: &[u8], dir: &Path) -> String {
    let text = String::from_utf8(openssl(&["base64", "-A"], bytes, dir)).expect("base64");
    text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_")
}
