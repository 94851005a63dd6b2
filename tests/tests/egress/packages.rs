//! What fetches packages, from indexes that stand in for the public ones, each with its files on another
//! host as theirs have.

use std::fs;
use std::path::Path;
use std::process::Command;

use tests::have_or_skip;

use super::{PROXY, Scene};

const RULES: [&str; 2] = ["index.example.com", "*.example.net"];
const WAYS: [&[(&str, &str)]; 2] = [&[], &PROXY];

/// Runs a script of the test's own.
fn make(place: &Path, script: &str) -> String {
    fs::create_dir_all(place).unwrap();
    let ran = Command::new("sh").args(["-ec", script]).current_dir(place).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn pip_installs_from_an_index() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    if !have_or_skip("pip") {
        return;
    }
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
link = f'<a href="https://files.example.net/{name}#sha256={digest}">{name}</a>'
open("simple/carried/index.html", "w").write(f"<!DOCTYPE html><html><body>{link}</body></html>")
"#;
    make(&scene.internet.served(), &format!("python3 - <<'END'\n{code}END\n"));
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
    let script = r#"
mkdir package carried
echo '{"name": "carried", "version": "1.0.0", "main": "index.js"}' > package/package.json
echo 'console.log("carried by npm")' > package/index.js
tar czf carried-1.0.0.tgz package
integrity=sha512-$(openssl dgst -sha512 -binary carried-1.0.0.tgz | base64 -w 0)
cat > carried/index.html <<END
{"name": "carried", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
  "name": "carried", "version": "1.0.0", "main": "index.js",
  "dist": {"tarball": "https://files.example.net/carried-1.0.0.tgz", "integrity": "$integrity"}}}}
END
"#;
    make(&scene.internet.served(), script);
    for (number, variables) in WAYS.iter().enumerate() {
        let script = format!(
            "mkdir /var/n{number} && cd /var/n{number} && echo '{{}}' > package.json && \
             npm install --silent --no-audit --no-fund --cache /var/n{number}/cache \
             --registry https://index.example.com/ carried && node -e 'require(\"carried\")'"
        );
        let said = scene.run_in("a", &script, variables).ok();
        assert!(said.ends_with("carried by npm\n"), "{said}");
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
            let said = scene.run_in("a", &script, variables).ok();
            assert_eq!(said, format!("carried by git\n{commit}"));
        }
    }
    scene.run("git clone -q https://example.com/carried.git /var/refused").fails();
    scene.only_the_internet_was_reached();
}
