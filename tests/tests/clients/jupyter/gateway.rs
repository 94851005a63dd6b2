//! Jupyter's own server with `--gateway-url`, and its own clients: the suites in `tests/jupyter/`. The packages
//! come from `PyPI` into a directory below `target/`, once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::environment::{assert_succeeded, installed_or_skip, workspace};

use tests::server::Server;

/// Jupyter's server in front of one that asks for keys, and a notebook through it.
#[test]
fn a_notebook_runs_through_jupyters_server() {
    let Some(home) = home() else { return };
    let server = Server::with_keys();
    let key = server.ok(&["keygen", "--namespace", "a", "--scope", "run"]);
    assert_succeeded(&run(&home, &server, "server.py", key.trim()), &server);
}

/// `nbclient` with the kernel manager that asks a gateway itself. That sends no key for the socket.
#[test]
fn a_notebook_runs_by_nbclient() {
    let Some(home) = home() else { return };
    let server = Server::dev();
    assert_succeeded(&run(&home, &server, "notebook.py", ""), &server);
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

fn home() -> Option<PathBuf> {
    installed_or_skip("jupyter", &sources().join("install"), "Jupyter")
}

fn sources() -> PathBuf {
    Path::new(workspace()).join("tests/jupyter")
}
