//! A bridge that serves its API on its own loopback port, in its own directories. Tests of the
//! server and load programs start one each; dropping it ends it.
//!
//! It speaks no HTTP itself; each test brings its own client.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use crate::{Burrow, bridge_path, eventually};

/// What the bridge prints before its address, and how that begins.
const LISTENING: &str = "listening on ";
const SCHEME: &str = "http://";
/// Lines of its output that a failed test shows.
const SHOWN_LINES: usize = 30;

/// See the module's description. It is also a [`Burrow`].
pub struct Server {
    burrow: Burrow,
    options: Vec<String>,
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
        Self::start_in(Burrow::new(), options)
    }

    /// In directories that were prepared for it.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn start_in(mut burrow: Burrow, options: &[&str]) -> Self {
        let options = [&["--listen", "127.0.0.1:0"], options].concat();
        burrow.serve_with(&options);
        let url = await_url(&burrow);
        Self { burrow, options: options.into_iter().map(str::to_owned).collect(), url }
    }

    /// Kills the bridge, and starts another in its place. The output of the first is lost, and the
    /// address changes.
    pub fn kill_and_serve_again(&mut self) {
        self.burrow.kill_daemon();
        self.serve_again();
    }

    /// With an action while there is none.
    pub fn kill_daemon_for_a_moment(&mut self, meanwhile: impl FnOnce()) {
        self.burrow.kill_daemon();
        meanwhile();
        self.serve_again();
    }

    /// Asks the bridge to end, and returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.burrow.end_daemon()
    }

    /// For one that may end in order.
    pub fn end_and_serve_again(&mut self) {
        self.burrow.end_daemon();
        self.serve_again();
    }

    /// For one that ends in order, and whose place another file of the program takes.
    pub fn upgrade(&mut self, program: PathBuf) {
        self.burrow.end_daemon();
        self.burrow.set_program(program);
        self.serve_again();
    }

    /// Starts another bridge in the place of one that has ended.
    pub fn serve_again(&mut self) {
        fs::remove_file(log_of(&self.burrow)).ok();
        let options: Vec<_> = self.options.iter().map(String::as_str).collect();
        self.burrow.serve_with(&options);
        self.url = await_url(&self.burrow);
    }

    /// `http://127.0.0.1:` and the port that the kernel chose.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its output.
    pub fn log(&self) -> PathBuf {
        log_of(&self.burrow)
    }

    /// What a test in another language needs to know about it.
    pub fn environment(&self) -> [(&'static str, PathBuf); 7] {
        [
            ("MSB_SERVER_URL", self.url.clone().into()),
            ("BURROW_TEST_BRIDGE", bridge_path()),
            ("BURROW_TEST_LOG", self.log()),
            ("BURROW_TEST_PID", self.daemon_pid().to_string().into()),
            ("BURROW_RUNTIME_DIR", self.runtime()),
            ("BURROW_STATE_DIR", self.state()),
            ("BURROW_NO_DAEMON", "1".into()),
        ]
    }
}

/// Shows the end of its output to those who look why a test has failed.
impl Drop for Server {
    #[expect(clippy::print_stdout, reason = "the harness shows it where a test fails")]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let said = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        println!("the bridge at last:\n{}", last.join("\n"));
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

fn await_url(burrow: &Burrow) -> String {
    let mut url = None;
    eventually("the server says where it listens", || {
        url = read_url(burrow);
        url.is_some()
    });
    url.expect("it was said")
}

fn read_url(burrow: &Burrow) -> Option<String> {
    let output = fs::read_to_string(log_of(burrow)).ok()?;
    // A line is whole when another one can begin.
    let whole = &output[..=output.rfind('\n')?];
    let mut places = whole.lines().filter_map(|line| Some(line.split_once(LISTENING)?.1));
    // The other place is the control socket.
    places.find(|place| place.starts_with(SCHEME)).map(|url| url.trim_end().to_owned())
}
