//! The tables with other versions of Node, which npm fetches once.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tests::sandbox::Sandbox;

use super::{ends, plain, wrong};

/// Where Node of this version is, or why it is nowhere.
fn find(version: u32) -> Result<PathBuf, String> {
    let prefix = tests::kept_for_boxes(&format!("node/{version}"))?;
    let program = prefix.join("node_modules/node/bin/node");
    if program.exists() {
        return Ok(program);
    }
    let installed = Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--fetch-retries=0"])
        .args(["--fetch-timeout=20000", "--prefix"])
        .arg(&prefix)
        .arg(format!("node@{version}"))
        .stdin(Stdio::null())
        .output();
    match installed {
        Err(error) => Err(format!("npm, which would fetch Node {version}, is not here: {error}")),
        Ok(_) if program.exists() => Ok(program),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let stderr = stderr.lines().next().unwrap_or_default();
            Err(format!("npm cannot fetch Node {version}: {stderr}"))
        }
    }
}

async fn check(version: u32) {
    let program = match find(version) {
        Ok(program) => program,
        Err(reason) => return tests::skip(&reason),
    };
    let program = program.to_str().expect("UTF-8").to_owned();
    let mut all = Vec::new();
    let big = |name: &str| name.contains("MB") || name.contains("at a time");
    let mut plain_rows = plain::values();
    plain_rows.extend(plain::sources());
    plain_rows.extend(plain::output());
    plain_rows.extend(plain::modules());
    plain_rows.extend(plain::children());
    plain_rows.retain(|row| !big(row.name));
    for rows in [plain_rows, ends::errors(), ends::exits(), ends::endless()] {
        let sandbox = Sandbox::start().await;
        let open =
            |ask: &mut protocol::repl::OpenContext| ask.program = Some(program.as_str().into());
        let found = wrong(&sandbox.guest, open, plain::PROJECT, &rows).await;
        let ran = tests::contexts::run(&sandbox.guest, "node", "process.version").await;
        let version_is = tests::contexts::value(&ran).unwrap_or_default();
        assert!(version_is.starts_with(&format!("'v{version}.")), "{version_is}");
        sandbox.end().await;
        all.extend(found);
    }
    assert!(all.is_empty(), "Node {version}:\n{}", all.join("\n"));
}

#[tokio::test]
async fn node_18() {
    check(18).await;
}

#[tokio::test]
async fn node_22() {
    check(22).await;
}

#[tokio::test]
async fn node_24() {
    check(24).await;
}
