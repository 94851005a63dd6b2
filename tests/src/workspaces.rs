//! A directory of the host that sandboxes work on, under several names, and a bridge that has them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Burrow;
use crate::http::Client;
use crate::server::Server;

/// The workspaces `p`, `closed` (read-only) and `gone` are there. Whatever cannot be is a panic.
pub struct Scene {
    pub server: Server,
    pub project: PathBuf,
}

impl Scene {
    pub fn usual() -> Self {
        Self::with("")
    }

    /// With more keys for the workspace `p`.
    pub fn with(keys: &str) -> Self {
        Self::within(Burrow::new(), keys)
    }

    /// The same for a bridge that was prepared.
    pub fn within(burrow: Burrow, keys: &str) -> Self {
        let project = burrow.scratch().join("project");
        fs::create_dir_all(project.join("src/deep")).expect("the scene is made");
        fs::write(project.join("readme"), "hello").expect("the scene is made");
        fs::write(project.join("src/deep/code"), "one\n").expect("the scene is made");
        fs::write(project.join("src/tool"), "#!/bin/sh\necho tool\n").expect("the scene is made");
        fs::set_permissions(project.join("src/tool"), fs::Permissions::from_mode(0o755))
            .expect("the scene is made");
        symlink("readme", project.join("link")).expect("the scene is made");
        let config = burrow.scratch().join("burrow.toml");
        let path = project.display();
        let text = format!(
            "[workspaces.p]\npath = \"{path}\"\nnamespaces = [\"default\"]\n{keys}\n\
             [workspaces.closed]\npath = \"{path}\"\nnamespaces = \"*\"\nread_only = true\n\
             [workspaces.gone]\npath = \"{path}/no-such\"\nnamespaces = \"*\"\n"
        );
        fs::write(&config, text).expect("the scene is made");
        let options = ["--dev", "--config", config.to_str().expect("text")];
        Self { server: Server::start_in(burrow, &options), project }
    }

    pub fn start(&self, name: &str, workspace: &str) {
        self.server.ok(&["start", "--name", name, "--workspace", workspace]);
    }

    pub fn sh(&self, name: &str, script: &str) -> String {
        sh(&self.server, name, script)
    }

    pub fn sync(&self, name: &str) -> Value {
        sync(&self.server, name)
    }

    pub fn warnings(&self, name: &str) -> String {
        warnings(&self.server, name)
    }

    /// A sandbox that may write to this directory is refused if it is missing or behind a link; then it is
    /// made.
    ///
    /// # Panics
    /// When it is not refused, or something of it is left.
    pub fn wants_its_directory(&self, body: &Value, name: &str) {
        let client = Client::new(self.server.url());
        let path = self.project.join(name);
        for is_link in [false, true] {
            if is_link {
                symlink("/tmp", &path).expect("a link");
            }
            let refused = client.post("/v1/sandboxes", body).expect(422);
            assert_eq!(refused.code(), "workspace_failed");
            assert!(refused.text().contains(name), "{}", refused.text());
            assert_eq!(self.server.ok(&["ps", "--all", "--quiet"]), "");
        }
        fs::remove_file(&path).expect("it is a link");
        fs::create_dir(path).expect("a directory");
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project.join(path)).expect("it is there")
    }

    pub fn has(&self, path: &str) -> bool {
        self.project.join(path).symlink_metadata().is_ok()
    }

    /// Everything on the host: paths with contents, links with targets.
    pub fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        collect(&self.project, Path::new(""), &mut found);
        found
    }
}

/// The output of a script in a sandbox's workspace.
pub fn sh(server: &Server, name: &str, script: &str) -> String {
    server.ok(&["exec", name, "--", "sh", "-ec", &format!("cd /workspace; {script}")])
}

/// The report of copying its changes back.
///
/// # Panics
/// When that is no report.
pub fn sync(server: &Server, name: &str) -> Value {
    serde_json::from_str(&server.ok(&["sync", "--json", name])).expect("a report")
}

/// The warnings of its record, in one text.
pub fn warnings(server: &Server, name: &str) -> String {
    let client = Client::new(server.url());
    let record = client.get(&format!("/v1/sandboxes/default/{name}")).expect(200).json();
    record["warnings"].to_string()
}

fn collect(root: &Path, below: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let path = below.join(entry.file_name());
        let name = path.to_string_lossy().into_owned();
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.insert(format!("{name}/"), Vec::new());
            collect(root, &path, found);
        } else if kind.is_symlink() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            found.insert(name, format!("-> {}", target.display()).into_bytes());
        } else {
            // A file that is being written meanwhile may have got its name.
            found.extend(fs::read(entry.path()).ok().map(|bytes| (name, bytes)));
        }
    }
}
