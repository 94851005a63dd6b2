//! Jupyter's own server with `--gateway-url`, and its own clients: the suites in `tests/jupyter/`. The packages
//! come from `PyPI` into a directory below `target/`, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::environment::{installed, workspace};

use tests::server::Server;

/// Jupyter's server in front of one that asks for keys, and a notebook through it.
#[test]
fn a_notebook_runs_through_jupyters_server() {
    let Some(home) = home() else { return };
    let server = Server::with_keys();
    let key = server.ok(&["keygen", "--namespace", "a", "--scope", "run"]);
    check(&run(&home, &server, "server.py", key.trim()), &server);
}

/// `nbclient` with the kernel manager that asks a gateway itself. That sends no key for the socket.
#[test]
fn a_notebook_runs_by_nbclient() {
    let Some(home) = home() else { return };
    let server = Server::dev();
    check(&run(&home, &server, "notebook.py", ""), &server);
}

fn run(home: &Path, server: &Server, script: &str, key: &str) -> Output {
    Command::new(home.join("bin/python"))
        .arg(sources().join(script))
        .current_dir(server.scratch())
        .envs(server.environment())
        .env("HOME", server.scratch())
        .env("JUPYTER_GATEWAY_URL", server.url())
        .env("JUPYTER_GATEWAY_AUTH_TOKEN", key)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs")
}

fn check(ran: &Output, server: &Server) {
    if ran.status.success() {
        return;
    }
    let said = [&ran.stdout[..], &ran.stderr[..]].concat();
    let log = fs::read_to_string(server.log()).unwrap_or_default();
    panic!("{}\nthe server said:\n{log}", String::from_utf8_lossy(&said));
}

fn home() -> Option<PathBuf> {
    match installed("jupyter", &sources().join("install")) {
        Ok(home) => Some(home),
        Err(reason) => {
            tests::skip(&format!("no Jupyter to test with: {reason}"));
            None
        }
    }
}

fn sources() -> PathBuf {
    Path::new(workspace()).join("tests/jupyter")
}
