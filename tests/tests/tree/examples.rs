//! Runs the programs of `examples/` unchanged, and checks what they print and leave.
//!
//! The Rust one is run where it is built: `host-bridge/tests/integration/library.rs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::server::Server;
use tests::{Burrow, bridge_path, have_or_skip};

/// Every example, and what runs it.
const EXAMPLES: &[(&str, &str)] = &[
    ("curl/sandbox.sh", "tests/tests/tree/examples.rs"),
    ("mcp/agent.py", "tests/tests/tree/examples.rs"),
    ("mcp/figure.py", "tests/tests/tree/examples.rs"),
    ("python/sandbox.py", "tests/tests/tree/examples.rs"),
    ("rust/twenty_lines.rs", "host-bridge/tests/integration/library.rs"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

fn example(name: &str) -> PathBuf {
    root().join("examples").join(name)
}

/// Runs a program, which must succeed, and returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{failed}", output.status);
    stdout
}

#[test]
fn every_example_has_a_test_and_a_line_in_the_list() {
    let list = fs::read_to_string(example("README.md")).expect("a list");
    let mut found = Vec::new();
    for part in fs::read_dir(root().join("examples")).expect("a directory").flatten() {
        let Ok(inside) = fs::read_dir(part.path()) else { continue };
        let files = inside.flatten().filter(|file| file.path().is_file());
        let below =
            |path: &Path| path.strip_prefix(root().join("examples")).expect("below").to_owned();
        found.extend(files.map(|file| below(&file.path()).display().to_string()));
    }
    found.sort();
    let tested: Vec<_> = EXAMPLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, tested);
    for (name, test) in EXAMPLES {
        assert!(list.contains(&format!("({name})")), "{name} is not in examples/README.md");
        let file = name.rsplit('/').next().expect("a name");
        let text = fs::read_to_string(root().join(test)).expect("a test");
        assert!(text.contains(file), "{test} does not run {name}");
    }
}

#[test]
fn the_curl_example_shows_each_call_of_a_sandbox_and_leaves_none() {
    if !have_or_skip("curl") {
        return;
    }
    let server = Server::with_keys();
    let key = server.ok(&["keygen"]).trim().to_owned();
    let mut command = Command::new("sh");
    command.arg(example("curl/sandbox.sh"));
    command.env("BURROW_URL", server.url()).env("BURROW_API_KEY", key);
    let output = run(&mut command);
    for part in [
        r#""stdout":"hello\n""#,
        r#""exit_code":3"#,
        r#"{"type":"stdout","offset":4,"text":"3\n"}"#,
        "\nbytes\n",
        r#""stdout":"42\n""#,
    ] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    assert_eq!(server.ok(&["ps", "--all", "--quiet"]), "");
}

#[test]
fn the_python_example_prints_what_its_sandbox_said() {
    if !have_or_skip("python3") {
        return;
    }
    let server = Server::dev();
    let mut command = Command::new("python3");
    command.arg(example("python/sandbox.py"));
    command.env("PYTHONPATH", root().join("clients/python/src"));
    command.env("BURROW_URL", server.url()).env("BURROW_API_KEY", "");
    let output = run(&mut command);
    let rest = output.split_once('\n').expect("lines").1;
    assert_eq!(rest, "output: 1\noutput: 2\noutput: 3\nexit code: 3\nsum: 42\n");
    assert_eq!(server.ok(&["ps", "--all", "--quiet"]), "");
}

/// A path on which `host-bridge` is the one that is tested.
fn path_with_bridge(dir: &Path) -> String {
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).expect("a directory");
    symlink(bridge_path(), bin.join("host-bridge")).expect("a link");
    format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"))
}

/// Whether these are the bytes of a figure of either kind.
fn is_figure(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG") || bytes.starts_with(b"<svg ")
}

#[test]
fn the_agent_of_the_mcp_example_brings_home_a_figure() {
    if !have_or_skip("python3") {
        return;
    }
    let burrow = Burrow::new();
    let figures = burrow.scratch().join("figures");
    // For its directories; the program is another.
    let surroundings = burrow.command(&[]);
    let mut command = Command::new("python3");
    command.arg(example("mcp/agent.py")).arg(&figures);
    for (name, value) in surroundings.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PATH", path_with_bridge(burrow.scratch()));
    let output = run(&mut command);
    assert!(output.contains("variables live on between calls: 42\n"), "{output}");
    let left: Vec<_> = fs::read_dir(&figures).expect("a directory").flatten().collect();
    assert_eq!(left.len(), 1, "{output}");
    assert!(is_figure(&fs::read(left[0].path()).expect("a file")), "{output}");
}

#[test]
fn the_figure_is_displayed_at_a_terminal_too() {
    if !have_or_skip("python3") {
        return;
    }
    let burrow = Burrow::new();
    let figures = burrow.scratch().join("figures");
    let dir = figures.to_str().expect("UTF-8");
    let program = example("mcp/figure.py");
    let output = burrow.ok(&["repl", "--save-displays", dir, program.to_str().expect("UTF-8")]);
    assert!(output.contains("drawn with"), "{output}");
    let left: Vec<_> = fs::read_dir(&figures).expect("a directory").flatten().collect();
    assert_eq!(left.len(), 1, "{output}");
    assert!(is_figure(&fs::read(left[0].path()).expect("a file")), "{output}");
}
