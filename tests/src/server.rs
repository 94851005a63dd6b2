//! A bridge that serves its API on a loopback port of its own, in directories of its own. Tests of
//! the server and load programs start one each; it ends with what it is started in.
//!
//! It speaks no HTTP itself; each test brings its own client.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use crate::{Burrow, bridge_path, eventually};

/// What the bridge says before its address, and where that begins.
const LISTENING: &str = "listening on ";
const SCHEME: &str = "http://";

/// See the module's description. It is a [`Burrow`] besides.
pub struct Server {
    burrow: Burrow,
    url: String,
}

impl Server {
    /// Which lets in everybody who reaches it.
    pub fn dev() -> Self {
        Self::start(&["--dev"])
    }

    /// Which wants a key.
    pub fn with_keys() -> Self {
        Self::start(&[])
    }

    /// With options of `serve`.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn start(options: &[&str]) -> Self {
        let burrow = Burrow::serving_with(&[&["--listen", "127.0.0.1:0"], options].concat());
        let mut url = None;
        eventually("the server says where it listens", || {
            url = read_url(&burrow);
            url.is_some()
        });
        Self { burrow, url: url.expect("it was said") }
    }

    /// `http://127.0.0.1:` and the port that the kernel chose.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it has said.
    pub fn log(&self) -> PathBuf {
        log_of(&self.burrow)
    }

    /// What a test in another language needs to know of it.
    pub fn environment(&self) -> [(&'static str, PathBuf); 6] {
        [
            ("MSB_SERVER_URL", self.url.clone().into()),
            ("BURROW_TEST_BRIDGE", bridge_path()),
            ("BURROW_TEST_LOG", self.log()),
            ("BURROW_TEST_PID", self.daemon_pid().to_string().into()),
            ("BURROW_RUNTIME_DIR", self.runtime()),
            ("BURROW_STATE_DIR", self.state()),
        ]
    }
}

impl Deref for Server {
    type Target = Burrow;

    fn deref(&self) -> &Burrow {
        &self.burrow
    }
}

fn log_of(burrow: &Burrow) -> PathBuf {
    burrow.scratch().join("serve.log")
}

fn read_url(burrow: &Burrow) -> Option<String> {
    let said = fs::read_to_string(log_of(burrow)).ok()?;
    // A line is whole when another one can begin.
    let whole = &said[..=said.rfind('\n')?];
    let mut places = whole.lines().filter_map(|line| Some(line.split_once(LISTENING)?.1));
    // The other place is the control socket.
    places.find(|place| place.starts_with(SCHEME)).map(|url| url.trim_end().to_owned())
}
