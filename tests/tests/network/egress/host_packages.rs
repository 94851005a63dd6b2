//! Packages for sandboxes over the host's own root, by the real package managers, from indexes that stand in for
//! the public ones at their own names.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::internet::{Internet, NAME_SERVER};
use tests::mcp::Lines;
use tests::server::Server;
use tests::{Burrow, have, kept_for_boxes, skip};

use super::packages::{make, publish_tarball, publish_wheel};
use super::{Ran, Scene};

const IMPORT: [&str; 3] = ["python3", "-c", "import carried"];
const BY_PIP: &str = "carried by pip\n";
const BY_NPM: &str = "carried by npm\n";
const PIP: [&str; 2] = ["--pip", "carried"];

struct PackageScene {
    scene: Scene,
    cache: TempDir,
}

/// Whether the programs are there that a sandbox over the host's root finds.
fn has_managers() -> bool {
    let mut pip = Command::new("/usr/bin/python3");
    let has_pip = pip.args(["-m", "pip", "--version"]).output().is_ok_and(|it| it.status.success());
    if !has_pip || !have("npm") {
        skip("there is no pip of the host's own Python, or no npm");
    }
    has_pip && have("npm")
}

/// An internet with both packages, a server in it, and a cache that sandboxes see.
fn place_or_skip(options: &[&str]) -> Option<PackageScene> {
    if !has_managers() {
        return None;
    }
    let internet = Internet::or_skip()?;
    publish_wheel(&internet, "files.pythonhosted.org");
    publish_tarball(&internet, "registry.npmjs.org");
    let above = match kept_for_boxes("packages") {
        Ok(above) => above,
        Err(reason) => {
            skip(&reason);
            return None;
        }
    };
    fs::create_dir_all(&above).unwrap();
    let cache = TempDir::new_in(above).unwrap();
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut burrow = Burrow::new();
    for (name, value) in variables(&internet, cache.path()) {
        burrow = burrow.variable(name, &value);
    }
    let server = Server::start_in(burrow, options);
    Some(PackageScene { scene: Scene { server, internet }, cache })
}

fn variables(internet: &Internet, cache: &Path) -> [(&'static str, String); 3] {
    [
        ("BURROW_EGRESS_CA", internet.authority_file().display().to_string()),
        ("BURROW_EGRESS_DNS", format!("{NAME_SERVER}:53")),
        ("BURROW_CACHE_DIR", cache.join("cache").display().to_string()),
    ]
}

impl PackageScene {
    fn command(&self, parts: &[&[&str]]) -> Command {
        let mut command = self.scene.server.command(&parts.concat());
        command.envs(variables(&self.scene.internet, self.cache.path()));
        command
    }

    fn run(&self, parts: &[&[&str]]) -> Ran {
        self.command(parts).output().unwrap().into()
    }

    fn requests(&self) -> usize {
        self.scene.internet.requests().len()
    }
}

/// How many sets of packages are kept, or being made.
fn sets(place: &PackageScene) -> usize {
    let listed = fs::read_dir(place.cache.path().join("cache/packages")).unwrap();
    listed.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
}

#[test]
fn packages_are_installed_over_the_hosts_root_once() {
    let Some(place) = place_or_skip(&["--dev"]) else { return };
    let first = place.run(&[&["run"], &PIP, &["--"], &IMPORT]);
    assert!(!first.stderr.contains("cached"), "{first:?}");
    assert_eq!(first.ok(), BY_PIP);
    let count = place.requests();
    let again = place.run(&[&["run"], &PIP, &["--"], &IMPORT]);
    assert!(again.stderr.contains("cached"), "{again:?}");
    assert_eq!(again.ok(), BY_PIP);
    assert_eq!(place.run(&[&["repl"], &PIP, &["-c", "import carried"]]).ok(), BY_PIP);
    place.run(&[&["start", "--name", "work"], &PIP]).ok();
    assert_eq!(place.run(&[&["exec", "work", "--"], &IMPORT]).ok(), BY_PIP);
    assert_eq!(place.requests(), count, "the index was asked again");
    // Nothing of it is anywhere else, and no sandbox changes it for another.
    place.run(&[&["run", "--"], &IMPORT]).fails();
    let spoil = "f=$(python3 -c 'import carried; print(carried.__file__)' | tail -n 1); echo > $f";
    place.run(&[&["run"], &PIP, &["--", "sh", "-c", spoil]]);
    assert_eq!(place.run(&[&["run"], &PIP, &["--"], &IMPORT]).ok(), BY_PIP);
    let node = ["--", "node", "-e", "require('carried')"];
    assert_eq!(place.run(&[&["run", "--npm", "carried"], &node]).ok(), BY_NPM);
}

/// What the image `python` is: this host's Python with its pip and the libraries that they load.
const ROOT: &str = r#"
mkdir -p root/tmp root/etc && cd root
python=$(readlink -f /usr/bin/python3)
stdlib=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
pip=$("$python" -c 'import os, pip; print(os.path.dirname(pip.__file__))')
tar c -P --exclude=test --exclude=__pycache__ "$python" "$stdlib" "$pip" | tar x -C .
cp -L --parents /usr/bin/env /bin/sh --target-directory .
{ ldd "$python"; ldd /usr/bin/env; ldd "$stdlib"/lib-dynload/*.so; } | grep -o '/[^ :]*' | sort -u | grep -v lib-dynload |
    xargs cp -L --parents --target-directory .
ln -s "$python" usr/bin/python3
"#;

#[test]
fn packages_are_installed_on_a_named_image_by_its_own_pip() {
    let Some(place) = place_or_skip(&["--dev"]) else { return };
    let scratch = place.scene.server.scratch().to_owned();
    make(&scratch, ROOT);
    let root = scratch.join("root");
    place.run(&[&["image", "import", root.to_str().unwrap(), "--name", "python"]]).ok();
    let on_image = [&["--image", "python"][..], &PIP].concat();
    let first = place.run(&[&["run"], &on_image, &["--"], &IMPORT]);
    assert_eq!(first.ok(), BY_PIP);
    let count = place.requests();
    place.run(&[&["start", "--name", "work"], &on_image]).ok();
    assert_eq!(place.run(&[&["exec", "work", "--"], &IMPORT]).ok(), BY_PIP);
    assert_eq!(place.run(&[&["restart", "work"]]).ok(), "work\n");
    assert_eq!(place.run(&[&["exec", "work", "--"], &IMPORT]).ok(), BY_PIP);
    assert_eq!(place.requests(), count, "the index was asked again");
    // The image itself has none.
    place.run(&[&["run", "--image", "python", "--"], &IMPORT]).fails();
}

#[test]
fn packages_stay_as_long_as_a_sandbox_has_them_and_no_longer() {
    let Some(place) = place_or_skip(&["--dev"]) else { return };
    let sets = || sets(&place);
    let prune = || place.run(&[&["image", "prune", "--json"]]).ok();
    place.run(&[&["start", "--name", "work"], &PIP]).ok();
    assert!(prune().contains("\"packages\": 0"));
    // It comes with them without being named again.
    assert_eq!(place.run(&[&["restart", "work"]]).ok(), "work\n");
    assert_eq!(place.run(&[&["exec", "work", "--"], &IMPORT]).ok(), BY_PIP);
    let mut command = place.command(&[&["run"], &PIP, &["--", "sh", "-c", "echo up; sleep 60"]]);
    let mut one_shot = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut up = String::new();
    BufReader::new(one_shot.stdout.take().unwrap()).read_line(&mut up).unwrap();
    assert_eq!(up, "up\n");
    assert!(place.run(&[&["doctor"]]).stdout.contains("1 set of"));
    place.run(&[&["rm", "--force", "work"]]).ok();
    assert_eq!((prune().contains("\"packages\": 0"), sets()), (true, 1));
    one_shot.kill().unwrap();
    one_shot.wait().unwrap();
    let removed = prune();
    assert!(removed.contains("\"packages\": 1"), "{removed}");
    assert_eq!(sets(), 0);
}

#[test]
fn a_package_that_is_not_there_is_refused_in_the_managers_words_and_leaves_nothing() {
    let Some(place) = place_or_skip(&["--dev"]) else { return };
    let refused = place.run(&[&["run", "--pip", "nowhere", "--"], &IMPORT]);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("No matching distribution found for nowhere"), "{refused:?}");
    assert_eq!(sets(&place), 0);
}

#[test]
fn clients_of_a_server_without_keys_have_packages_over_the_hosts_root() {
    let Some(place) = place_or_skip(&["--dev"]) else { return };
    let packages = json!({ "pip": ["carried"], "npm": ["carried"] });
    let body = json!({ "name": "http", "packages": packages });
    place.scene.client().post("/v1/sandboxes", &body).expect(201);
    assert_eq!(place.run(&[&["exec", "http", "--"], &IMPORT]).ok(), BY_PIP);
    let code = format!(
        "from burrow.sync import SandboxClient\n\
         with SandboxClient('{}') as client:\n\
         \u{20}with client.create('python', packages={{'pip': ['carried']}}) as sandbox:\n\
         \u{20} print(sandbox.exec('python3', ['-c', 'import carried']).check().stdout, end='')\n",
        place.scene.server.url()
    );
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("clients/python/src");
    let mut python = Command::new("python3");
    python.args(["-c", &code]).env("PYTHONPATH", sources).env("MSB_API_KEY", "");
    assert_eq!(Ran::from(python.output().unwrap()).ok(), BY_PIP);
    let mut lines = Lines::begin(place.command(&[&["mcp"], &PIP]));
    let run = json!({ "command": IMPORT.map(|word| format!("'{word}'")).join(" ") });
    assert_eq!(lines.ok("shell_execute", &run)["stdout"], BY_PIP);
    lines.ok("sandbox_create", &json!({ "name": "tool", "packages": packages }));
    assert_eq!(place.run(&[&["exec", "tool", "--"], &IMPORT]).ok(), BY_PIP);
}

#[test]
fn a_session_of_tools_has_its_packages_without_a_daemon() {
    let Some(place) = place_or_skip(&["--dev"]) else { return };
    let own = Burrow::new();
    let mut command = own.command(&["mcp", "--npm", "carried"]);
    command.envs(variables(&place.scene.internet, place.cache.path()));
    let run = json!({ "command": "node -e 'require(\"carried\")'" });
    assert_eq!(Lines::begin(command).ok("shell_execute", &run)["stdout"], BY_NPM);
}

#[test]
fn holders_of_keys_get_packages_on_images_alone() {
    let Some(place) = place_or_skip(&[]) else { return };
    let key: Value = serde_json::from_str(&place.scene.server.ok(&["keygen", "--json"])).unwrap();
    let client = place.scene.client().key(key["key"].as_str().unwrap());
    let body = json!({ "name": "a", "packages": { "pip": ["carried"] } });
    let refused = client.post("/v1/sandboxes", &body);
    assert!(refused.status >= 400, "{}", refused.text());
    assert!(refused.text().contains("packages need an image from the store"), "{}", refused.text());
}
