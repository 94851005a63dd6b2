//! The files in `dist` that start a fleet, read by the tools that will read them: Helm's linter and renderer, the schemas
//! of Kubernetes, `nats-server`, `systemd-analyze`, and the bridge itself. Nomad is not to be had freely: its job is parsed
//! as HCL, and what it gives a bridge is held against the bridge.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tests::fleet::nats_program;
use tests::{Burrow, bridge_path, have_or_skip, skip};

use crate::documents::root;

/// The tools, made if need be; without them the test says that it does nothing.
fn python() -> Option<PathBuf> {
    let home = root().join("target/dist-tools");
    let made = Command::new(root().join("tests/dist/install")).arg(&home).output();
    match made {
        Ok(output) if output.status.success() => Some(home.join("bin/python")),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            skip(&format!("Helm is not to be had: {}", stderr.lines().last().unwrap_or("")));
            None
        }
        Err(error) => {
            skip(&format!("Helm cannot be installed: {error}"));
            None
        }
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The bridge takes what it is given by its environment, on a host with these addresses.
fn check_environment(given: &Value, what: &str) {
    let burrow = Burrow::new();
    let mut command = burrow.command(&["serve", "--check-config"]);
    let mut count = 0;
    for (name, value) in given.as_object().expect("a table") {
        let value = value.as_str().expect("a text");
        // Files of hosts are not here, and the directories are this test's.
        if !name.starts_with("BURROW_") || value.starts_with('/') {
            continue;
        }
        let value = value
            .replace("$(NODE_IP)", "127.0.0.2")
            .replace("$(NATS_PASSWORD)", "secret")
            .replace("${NOMAD_IP_api}", "127.0.0.2")
            .replace("${node.unique.name}", "host1")
            .replace("${attr.unique.hostname}", "host1.example.org")
            .replace(
                "${var.nats_servers}",
                "tls://nats1.example.org:4222,tls://nats2.example.org:4222",
            );
        assert!(!value.contains('$'), "{what}: {name} is {value}");
        command.env(name, value);
        count += 1;
    }
    assert!(count >= 5, "{what}: only {count} settings");
    let output = command.output().expect("the bridge runs");
    assert!(output.status.success(), "{what}: {}", words(&output));
    // A name that the bridge does not know would pass: each is one of its page.
    let page = fs::read_to_string(root().join("docs/reference/configuration.md")).expect("a page");
    for name in given.as_object().expect("a table").keys() {
        let is_known = !name.starts_with("BURROW_") || page.contains(&format!("`{name}`"));
        assert!(is_known, "{what}: no setting {name}");
    }
}

#[test]
fn the_chart_its_manifests_and_the_job_are_what_their_tools_take() {
    let Some(python) = python() else { return };
    let place = TempDir::new().expect("a directory");
    let made = place.path().join("burrow.yaml");
    let mut check = Command::new(python);
    check.arg(root().join("tests/dist/check.py")).arg(root().join("dist")).arg(&made);
    let output = check.output().expect("it runs");
    assert!(output.status.success(), "{}", words(&output));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for what in ["bridge", "bridge_with_all", "nomad"] {
        check_environment(&found[what], what);
    }

    let head = "# The chart in dist/helm without any value, for who has no Helm: `just manifests` writes it.\n---\n";
    let made = head.to_owned() + &fs::read_to_string(made).expect("the manifests");
    let kept = root().join("dist/kubernetes/burrow.yaml");
    if std::env::var_os("BURROW_WRITE_MANIFESTS").is_some() {
        fs::write(&kept, &made).expect("the manifests are written");
    }
    let kept = fs::read_to_string(kept).expect("the manifests");
    assert!(
        kept == made,
        "dist/kubernetes/burrow.yaml is not what the chart makes: `just manifests`"
    );

    let Some(nats) = nats_program() else { return };
    let config = place.path().join("nats-server.conf");
    fs::write(&config, found["nats"].as_str().expect("a text")).expect("a file");
    let mut nats = Command::new(nats);
    nats.arg("-t").arg("-c").arg(config).env("POD_NAME", "nats-0").env("NATS_PASSWORD", "secret");
    let output = nats.output().expect("nats-server runs");
    assert!(output.status.success(), "{}", words(&output));
}

#[test]
fn systemd_takes_the_units() {
    if !have_or_skip("systemd-analyze") {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let drop_in = place.path().join("burrow.service.d");
    fs::create_dir(&drop_in).expect("a directory");
    fs::copy(root().join("dist/systemd/burrow.service.d/fleet.conf"), drop_in.join("fleet.conf"))
        .expect("the drop-in");
    let bridge = bridge_path();
    // What is installed at these places is here elsewhere.
    for (unit, program, here) in [
        ("burrow.service", "/usr/local/bin/host-bridge", bridge.to_str().expect("UTF-8")),
        ("systemd/nats-server.service", "/usr/local/bin/nats-server", "/bin/true"),
    ] {
        let text = fs::read_to_string(root().join("dist").join(unit)).expect("the unit");
        assert!(text.contains(program), "{unit} starts no {program}");
        let name = unit.rsplit('/').next().expect("a name");
        fs::write(place.path().join(name), text.replace(program, here)).expect("a unit");
    }
    let verify = |unit: &str| {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(place.path().join(unit));
        words(&verify.output().expect("it runs"))
    };
    for unit in ["burrow.service", "nats-server.service"] {
        // It may know other units of this host, and says so with their names.
        let said = verify(unit);
        let own: Vec<_> = said
            .lines()
            .filter(|line| line.contains(unit) || line.contains("fleet.conf"))
            // Settings of newer versions, which the unit's own comments explain.
            .filter(|line| !line.contains("DelegateSubgroup"))
            .collect();
        assert!(own.is_empty(), "{}", own.join("\n"));
    }
    // One that is wrong is seen.
    let wrong = place.path().join("nats-server.service");
    let text = fs::read_to_string(&wrong).expect("a unit");
    fs::write(&wrong, text.replace("Restart=always", "Restart=perhaps")).expect("a unit");
    assert!(verify("nats-server.service").contains("nats-server.service"), "nothing is seen");
}
