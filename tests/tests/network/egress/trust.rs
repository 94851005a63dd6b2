//! The authorities that programs in a sandbox trust: those of this host and of the operator, in every
//! sandbox that reaches anything, beside those of its own image.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tests::internet::{Internet, NAME_SERVER};
use tests::machines::machines_or_skip;
use tests::server::Server;
use tests::{Burrow, have};

use super::{NAME, Ran, Scene};

const RULES: [&str; 1] = ["*.example.org"];
/// A host whose certificate the authority of the operator has made.
const KNOWN: &str = "https://api.example.org/hello";
/// One whose certificate an authority has made that only an image has.
const STRANGE: &str = "https://strange.example.org/hello";
const HELLO: &str = "hello from api.example.org\n";
const OF_STRANGE: &str = "hello from strange.example.org\n";
/// Where the image with a list of its own has it.
const OWN_LIST: &str = "etc/ssl/certs/ca-certificates.crt";

/// A bridge in an internet, with the authority set by this.
fn scene_or_skip(trusts: impl FnOnce(Burrow, &str) -> Burrow) -> Option<Scene> {
    let internet = Internet::or_skip()?;
    let burrow = trusts(Burrow::new(), internet.authority_file().to_str()?);
    let dns = format!("{NAME_SERVER}:53");
    let burrow = burrow.variable("BURROW_EGRESS_DNS", &dns);
    Some(Scene { server: Server::start_in(burrow, &["--dev"]), internet })
}

/// What an operator writes in the configuration.
fn by_option(burrow: Burrow, file: &str) -> Burrow {
    burrow.variable("BURROW_EGRESS_CA", file)
}

/// What the host itself trusts.
fn by_host(burrow: Burrow, file: &str) -> Burrow {
    burrow.variable("SSL_CERT_FILE", file)
}

/// Copies a program with all that it is linked with.
fn copy_program(program: &str, root: &Path) {
    let path = tests::path_of(program);
    let listed = Command::new("ldd").arg(&path).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for path in libraries.map(Path::new).chain([path.as_path()]) {
        let to = root.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
}

impl Scene {
    /// Imports an image of little more than curl, once without a list of authorities and once with one,
    /// which has another authority than the operator's.
    fn import_images(&self) {
        let root = self.server.scratch().join("image");
        for program in ["curl", "sh", "cat"] {
            copy_program(program, &root);
        }
        let root_text = root.to_str().unwrap();
        self.server.ok(&["image", "import", root_text, "--name", "bare"]);
        let list = root.join(OWN_LIST);
        fs::create_dir_all(list.parent().unwrap()).unwrap();
        fs::copy(self.internet.authority_file().with_file_name("nobody.pem"), list).unwrap();
        self.server.ok(&["image", "import", root_text, "--name", "listed"]);
    }

    fn create_of(&self, name: &str, image: Option<&str>, env: &serde_json::Value) {
        let body = json!({ "name": name, "egress": RULES, "image": image, "env": env });
        self.client().post("/v1/sandboxes", &body).expect(201);
    }

    fn fetch(&self, name: &str, url: &str) -> Ran {
        self.server.run(&["exec", name, "--", "curl", "-sS", "-m", "20", url]).into()
    }
}

#[test]
fn programs_over_the_hosts_root_trust_whom_the_operator_trusts() {
    let Some(scene) = scene_or_skip(by_option) else { return };
    scene.create_of(NAME, None, &json!({}));
    assert_eq!(scene.fetch(NAME, KNOWN).ok(), HELLO);
    scene.fetch(NAME, STRANGE).fails();
    let python = format!(
        "import urllib.request as it; print(it.urlopen('{KNOWN}').read().decode(), end='')"
    );
    assert_eq!(scene.server.ok(&["exec", NAME, "--", "python3", "-c", &python]), HELLO);
    if have("node") {
        let node =
            format!("fetch('{KNOWN}').then(it => it.text()).then(it => process.stdout.write(it))");
        assert_eq!(scene.server.ok(&["exec", NAME, "--", "node", "-e", &node]), HELLO);
    }
}

#[test]
fn programs_over_the_hosts_root_use_the_hosts_own_files_otherwise() {
    let Some(scene) = scene_or_skip(|burrow, _| burrow) else { return };
    scene.create_of(NAME, None, &json!({}));
    assert_eq!(scene.plainly("echo $SSL_CERT_FILE; ls /etc/ssl | grep -c burrow").stdout, "\n0\n");
}

#[test]
fn an_image_trusts_the_operators_authorities_and_its_own() {
    let Some(scene) = scene_or_skip(by_option) else { return };
    scene.import_images();
    for (image, of_strange) in [("bare", None), ("listed", Some(OF_STRANGE))] {
        scene.create_of(image, Some(image), &json!({}));
        assert_eq!(scene.fetch(image, KNOWN).ok(), HELLO, "{image}");
        match of_strange {
            Some(expected) => assert_eq!(scene.fetch(image, STRANGE).ok(), expected),
            None => drop(scene.fetch(image, STRANGE).fails()),
        }
    }
    // A list that the caller names is the only one.
    let own = json!({ "CURL_CA_BUNDLE": format!("/{OWN_LIST}") });
    scene.create_of("named", Some("listed"), &own);
    assert_eq!(scene.fetch("named", STRANGE).ok(), OF_STRANGE);
    scene.fetch("named", KNOWN).fails();
}

#[test]
fn an_image_trusts_the_hosts_authorities() {
    let Some(scene) = scene_or_skip(by_host) else { return };
    scene.import_images();
    scene.create_of(NAME, Some("bare"), &json!({}));
    assert_eq!(scene.fetch(NAME, KNOWN).ok(), HELLO);
    // The same in a sandbox without a daemon.
    let line = ["run", "--image", "bare", "--egress", RULES[0], "--", "curl", "-sS", KNOWN];
    let mut command = scene.server.command(&line);
    command.env("SSL_CERT_FILE", scene.internet.authority_file());
    command.env("BURROW_EGRESS_DNS", format!("{NAME_SERVER}:53"));
    assert_eq!(Ran::from(command.output().unwrap()).ok(), HELLO);
}

#[test]
fn another_bridge_goes_on_with_whom_a_sandbox_trusts() {
    let Some(mut scene) = scene_or_skip(by_option) else { return };
    scene.import_images();
    scene.create_of(NAME, Some("bare"), &json!({}));
    scene.server.kill_and_serve_again();
    tests::eventually("it is reached again", || scene.fetch(NAME, KNOWN).code == Some(0));
}

#[test]
fn steps_of_a_build_trust_the_operators_authorities_and_leave_nothing_of_it() {
    let Some(scene) = scene_or_skip(by_option) else { return };
    scene.import_images();
    let context = scene.server.scratch().join("context");
    fs::create_dir(&context).unwrap();
    let recipe = format!("FROM bare\nRUN [\"curl\", \"-sS\", \"-o\", \"/got\", \"{KNOWN}\"]\n");
    fs::write(context.join("Dockerfile"), recipe).unwrap();
    let line = ["image", "build", "-t", "made", "--egress", RULES[0], context.to_str().unwrap()];
    let mut command = scene.server.command(&line);
    command.env("BURROW_EGRESS_CA", scene.internet.authority_file());
    command.env("BURROW_EGRESS_DNS", format!("{NAME_SERVER}:53"));
    Ran::from(command.output().unwrap()).ok();
    let show = "cat /got; test -e /etc/ssl/burrow-authorities.pem || echo none";
    let shown = scene.server.ok(&["run", "--image", "made", "--", "sh", "-c", show]);
    assert_eq!(shown, format!("{HELLO}none\n"));
}

#[test]
fn a_virtual_machine_trusts_the_operators_authorities() {
    if !machines_or_skip() {
        return;
    }
    let Some(scene) = scene_or_skip(by_option) else { return };
    let body = json!({
        "name": NAME, "egress": RULES, "machine": "qemu", "image": "python", "memory_mib": 256,
    });
    scene.client().post("/v1/sandboxes", &body).expect(201);
    let python = format!(
        "import urllib.request as it; print(it.urlopen('{KNOWN}').read().decode(), end='')"
    );
    assert_eq!(scene.server.ok(&["exec", NAME, "--", "python3", "-c", &python]), HELLO);
}
