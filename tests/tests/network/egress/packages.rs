//! What fetches packages, from indexes that stand in for the public ones, each with its files on another
//! host as theirs have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::have_or_skip;
use tests::internet::Internet;

use super::{PROXY, Scene};

const RULES: [&str; 2] = ["index.example.com", "*.example.net"];
const WAYS: [&[(&str, &str)]; 2] = [&[], &PROXY];

/// Runs a script of the test's own.
pub(super) fn make(place: &Path, script: &str) -> String {
    fs::create_dir_all(place).unwrap();
    let ran = Command::new("sh").args(["-ec", script]).current_dir(place).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Puts a package of Python into an index at `/simple`, its file on another host.
pub(super) fn publish_wheel(internet: &Internet, files: &str) {
    let code = r#"
import hashlib, os, zipfile
os.makedirs("simple/carried")
name = "carried-1.0-py3-none-any.whl"
with zipfile.ZipFile(name, "w") as wheel:
    wheel.writestr("carried.py", "print('carried by pip')\n")
    wheel.writestr("carried-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
    wheel.writestr("carried-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("carried-1.0.dist-info/RECORD", "carried.py,,\n")
digest = hashlib.sha256(open(name, "rb").read()).hexdigest()
link = f'<a href="https://FILES/{name}#sha256={digest}">{name}</a>'
open("simple/carried/index.html", "w").write(f"<!DOCTYPE html><html><body>{link}</body></html>")
"#;
    let code = code.replace("FILES", files);
    make(&internet.served(), &format!("python3 - <<'END'\n{code}END\n"));
}

/// Puts a package of Node.js into a registry, likewise.
pub(super) fn publish_tarball(internet: &Internet, files: &str) {
    let script = r#"
mkdir package carried
echo '{"name": "carried", "version": "1.0.0", "main": "index.js"}' > package/package.json
echo 'console.log("carried by npm")' > package/index.js
tar czf carried-1.0.0.tgz package
integrity=sha512-$(openssl dgst -sha512 -binary carried-1.0.0.tgz | base64 -w 0)
cat > carried/index.html <<END
{"name": "carried", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
  "name": "carried", "version": "1.0.0", "main": "index.js",
  "dist": {"tarball": "https://FILES/carried-1.0.0.tgz", "integrity": "$integrity"}}}}
END
"#;
    make(&internet.served(), &script.replace("FILES", files));
}

#[test]
fn pip_installs_from_an_index() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    if !have_or_skip("pip") {
        return;
    }
    publish_wheel(&scene.internet, "files.example.net");
    for (number, variables) in WAYS.iter().enumerate() {
        let script = format!(
            "pip install -q --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
             --target /var/p{number} --index-url https://index.example.com/simple/ carried && \
             PYTHONPATH=/var/p{number} python3 -c 'import carried'"
        );
        assert_eq!(scene.run_in("a", &script, variables).ok(), "carried by pip\n");
    }
    scene.only_the_internet_was_reached();
}

#[test]
fn npm_installs_from_a_registry() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    if !have_or_skip("npm") {
        return;
    }
    publish_tarball(&scene.internet, "files.example.net");
    for (number, variables) in WAYS.iter().enumerate() {
        let script = format!(
            "mkdir /var/n{number} && cd /var/n{number} && echo '{{}}' > package.json && \
             npm install --silent --no-audit --no-fund --cache /var/n{number}/cache \
             --registry https://index.example.com/ carried && node -e 'require(\"carried\")'"
        );
        let output = scene.run_in("a", &script, variables).ok();
        assert!(output.ends_with("carried by npm\n"), "{output}");
    }
    scene.only_the_internet_was_reached();
}

#[test]
fn git_clones_a_repository() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    if !have_or_skip("git") {
        return;
    }
    let script = "export GIT_CONFIG_GLOBAL=/dev/null; git init -q work; cd work; echo 'carried by git' > README; \
                  git add README; git -c user.name=a -c user.email=a@example.com commit -q -m first; \
                  cd ..; git clone -q --bare work carried.git; cd carried.git; git update-server-info; \
                  git -C ../work rev-parse HEAD";
    let commit = make(&scene.internet.served(), script);
    for (number, variables) in WAYS.iter().enumerate() {
        for host in ["index.example.com", "git.example.net"] {
            let script = format!(
                "cd /var && git clone -q https://{host}/carried.git g{number}-{host} && \
                 cat g{number}-{host}/README && git -C g{number}-{host} rev-parse HEAD"
            );
            let output = scene.run_in("a", &script, variables).ok();
            assert_eq!(output, format!("carried by git\n{commit}"));
        }
    }
    scene.run("git clone -q https://example.com/carried.git /var/refused").fails();
    scene.only_the_internet_was_reached();
}

/// Makes a repository to which nobody has pushed yet, and says where it is.
pub(super) fn empty_repository(scene: &Scene) -> PathBuf {
    let place = scene.internet.repositories();
    make(&place, "git init -q --bare -b main work.git");
    place.join("work.git")
}

/// Clones `from`, adds a file of more bytes than are sent in one piece, pushes it, and clones again what is there
/// then: prints the commits of both, which are the same.
pub(super) fn works_with(from: &str, at: &str) -> String {
    format!(
        "set -e; export GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0; mkdir -p /var/{at}; cd /var/{at}\n\
         git clone -q {from} one 2>clone.log || {{ cat clone.log >&2; exit 1; }}; cd one; git checkout -q -B main\n\
         head -c 4000000 /dev/urandom > {at}; git add {at}\n\
         git -c user.name=a -c user.email=a@example.com commit -q -m {at}\n\
         git push -q origin main; git rev-parse HEAD\n\
         git clone -q {from} ../two; git -C ../two rev-parse HEAD; cmp {at} ../two/{at}"
    )
}

#[test]
fn git_clones_and_pushes_to_a_server_of_its_own_kind() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    if !have_or_skip("git") {
        return;
    }
    let repository = empty_repository(&scene);
    for (number, variables) in WAYS.iter().enumerate() {
        for scheme in ["http", "https"] {
            let from = format!("{scheme}://git.example.net/git/work.git");
            let script = works_with(&from, &format!("{scheme}{number}"));
            let ran = scene.run_in("a", &script, variables);
            assert_eq!(ran.code, Some(0), "{from} {variables:?}: {ran:?}");
            let output = ran.ok();
            let commits: Vec<_> = output.lines().collect();
            let there = make(&repository, "git rev-parse main");
            assert_eq!(commits, [there.trim_end(); 2], "{from}");
        }
    }
    assert_eq!(make(&repository, "git rev-list --count main"), "4\n");
    scene.run("git ls-remote https://example.com/git/work.git").fails();
    scene.only_the_internet_was_reached();
}

/// The names for registries, and the hosts that are theirs.
const PRESETS: [(&str, &[&str]); 4] = [
    ("@pypi", &["pypi.org", "files.pythonhosted.org"]),
    ("@npm", &["registry.npmjs.org"]),
    ("@crates", &["index.crates.io", "static.crates.io", "crates.io"]),
    ("@debian", &["deb.debian.org", "security.debian.org"]),
];

#[test]
fn each_name_for_a_registry_leads_to_its_hosts_and_to_no_other() {
    let Some(scene) = Scene::or_skip(&[]) else { return };
    let unknown = scene.server.run(&["start", "--egress", "@nosuch"]);
    let known = PRESETS.map(|(name, _)| name).join(", ");
    let stderr = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(stderr.contains(&format!("these are: {known}")), "{stderr}");
    for (at, (name, hosts)) in PRESETS.iter().enumerate() {
        let sandbox = name.trim_start_matches('@');
        scene.create(sandbox, &[name]);
        let get = |host: &str| format!("curl -sS --max-time 20 https://{host}/hello");
        for host in *hosts {
            let stderr = scene.run_in(sandbox, &get(host), &[]).ok();
            assert_eq!(stderr, format!("hello from {host}\n"), "{name}");
        }
        let other = PRESETS[(at + 1) % PRESETS.len()].1[0];
        scene.run_in(sandbox, &get(other), &[]).fails();
    }
    scene.only_the_internet_was_reached();
}
