//! A program in a sandbox that listens on a port, for tests of what reaches it.

use std::io::Read;
use std::process::{Child, Stdio};

use crate::server::Server;

/// Such a program; it ends with the test.
pub struct Listening {
    pub port: u16,
    child: Child,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Starts a Python program that prints its port.
///
/// # Panics
/// When it does not.
pub fn listen(server: &Server, program: &str) -> Listening {
    listen_in(server, "box", program)
}

/// The same in a sandbox of another name.
///
/// # Panics
/// When it does not.
pub fn listen_in(server: &Server, sandbox: &str, program: &str) -> Listening {
    let mut command = server.command(&["exec", sandbox, "--", "python3", "-c", program]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the bridge starts");
    let mut port = String::new();
    let mut stdout = child.stdout.take().expect("piped");
    while !port.ends_with('\n') {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("a port is received");
        port.push(char::from(byte[0]));
    }
    Listening { port: port.trim().parse().expect("a port"), child }
}
