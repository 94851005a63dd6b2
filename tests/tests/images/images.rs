//! Images as the root of sandboxes: made by hand in all their forms, and by the programs that others
//! make theirs with.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tests::http::Client;
use tests::images::{busybox, tar, write_root, write_saved};
use tests::server::Server;
use tests::{Burrow, registry, skip};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// What a command that works prints.
fn output_of(burrow: &Burrow, arguments: &[&str]) -> String {
    let output = burrow.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).trim_end().to_owned()
}

/// The message of one that does not.
fn refused(burrow: &Burrow, arguments: &[&str]) -> String {
    let output = burrow.run(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr).to_owned()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// An image of busybox under `small:1`.
fn small(burrow: &Burrow, busybox: &Path) -> String {
    let root = burrow.scratch().join("small");
    write_root(&root, busybox, &["sh", "cat", "ls", "id", "pwd", "env", "sleep", "touch", "stat"]);
    fs::create_dir_all(root.join("etc")).expect("etc");
    fs::write(root.join("etc/motd"), "from the image\n").expect("a file");
    let root = root.display().to_string();
    output_of(burrow, &["image", "import", &root, "--name", "small:1"])
}

#[test]
fn a_directory_becomes_an_image_and_the_root_of_a_sandbox() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let digest = small(&burrow, &busybox);
    for image in ["small:1", "docker.io/library/small:1", &digest, &digest[7..19]] {
        let script = "cat /etc/motd; touch /etc/new && ls /etc";
        let output = output_of(&burrow, &["run", "--image", image, "--", "sh", "-c", script]);
        assert!(output.starts_with("from the image\n"), "{image}: {output}");
        assert!(output.contains("new"), "{image}: {output}");
    }
    // Files of one sandbox are not in the next.
    let again = output_of(&burrow, &["run", "--image", "small:1", "--", "ls", "/etc"]);
    assert!(!again.contains("new"), "{again}");
}

#[test]
fn an_image_may_have_no_shell_no_users_and_no_directories() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let root = burrow.scratch().join("bare");
    fs::create_dir_all(&root).expect("a root");
    fs::copy(&busybox, root.join("cat")).expect("one program");
    let root = root.display().to_string();
    output_of(&burrow, &["image", "import", &root, "--name", "bare"]);
    let output = output_of(&burrow, &["run", "--image", "bare", "--", "/cat", "/proc/self/comm"]);
    assert_eq!(output, "cat");
    let output = output_of(
        &burrow,
        &["run", "--image", "bare", "-u", "7:8", "--", "/cat", "/proc/self/status"],
    );
    if is_root() {
        assert!(output.contains("Uid:\t7\t7\t7\t7"), "{output}");
    }
    let message = refused(&burrow, &["run", "--image", "bare"]);
    assert!(message.contains("no command"), "{message}");
}

#[test]
fn links_where_something_is_mounted_lead_nobody_out_of_a_sandbox() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let canary = burrow.scratch().join("canary");
    fs::create_dir(&canary).expect("a directory of the host");
    let look = format!(
        "for root in / /.. /proc/self/root /../host /host; do \
           ls $root/../host $root/host 2>/dev/null; echo x > $root{0}/f; echo x > $root/../host{0}/f; \
         done 2>/dev/null; cat /proc/self/comm; test -c /dev/null && echo device; \
         (: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo writable; test -d /p && ls /p",
        canary.display()
    );
    // The names under which a root is furnished before it is one are no secret.
    for (place, leads_to) in [
        ("tmp", "/"),
        ("tmp", "/host"),
        ("tmp", "../../../../../.."),
        ("run", "/"),
        ("run", "/host/etc"),
        ("run", "/nowhere"),
        ("proc", "/"),
        ("proc", "/root/p"),
        ("sys", "/"),
        ("sys", "/host/sys"),
        ("dev", "/"),
        ("dev", "/host/dev"),
    ] {
        let root = burrow.scratch().join("linked");
        write_root(&root, &busybox, &["sh", "cat", "ls", "test", "true"]);
        fs::create_dir(root.join("p")).expect("a directory");
        symlink(leads_to, root.join(place)).expect("a link");
        let name = root.display().to_string();
        output_of(&burrow, &["image", "import", &name, "--name", "linked"]);
        for image in ["linked", &name] {
            let output = output_of(&burrow, &["run", "--image", image, "--", "sh", "-c", &look]);
            assert_eq!(output, "cat\ndevice", "{place} -> {leads_to}, {image}");
        }
        fs::remove_dir_all(root).expect("it goes");
    }
    assert_eq!(fs::read_dir(canary).expect("a directory").count(), 0);
    assert!(!Path::new("/etc/lock").exists(), "something was made on the host");
}

#[test]
fn an_images_run_and_tmp_are_visible_and_the_hosts_are_not() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let root = burrow.scratch().join("pages");
    write_root(&root, &busybox, &["sh", "cat", "ls", "stat", "readlink"]);
    fs::create_dir_all(root.join("run/server")).expect("a directory");
    fs::create_dir_all(root.join("var/tmp")).expect("a directory");
    fs::write(root.join("var/tmp/page"), "page\n").expect("a file");
    symlink("/var/tmp", root.join("tmp")).expect("a link");
    let root = root.display().to_string();
    output_of(&burrow, &["image", "import", &root, "--name", "pages"]);
    let look = "ls /run; cat /tmp/page; readlink /tmp; echo x > /tmp/new && ls /var/tmp";
    let output = output_of(&burrow, &["run", "--image", "pages", "--", "sh", "-c", look]);
    assert_eq!(output, "server\npage\n/var/tmp\nnew\npage");
    // Missing parts of an image are made as programs expect them.
    small(&burrow, &busybox);
    let look = ["run", "--image", "small:1", "--", "stat", "-c", "%n %a", "/tmp", "/run"];
    assert_eq!(output_of(&burrow, &look), "/tmp 1777\n/run 755");
}

#[test]
fn an_images_program_settings_apply_unless_overridden() {
    let Some(busybox) = busybox() else { return };
    if !is_root() {
        return skip("other users can be had by root alone");
    }
    let mut burrow = Burrow::new();
    let (root, place) = (burrow.scratch().join("root"), burrow.scratch().to_owned());
    write_root(&root, &busybox, &["sh", "id", "pwd"]);
    fs::create_dir_all(root.join("srv/app")).expect("a directory");
    let layer = place.join("layer.tar");
    tar(&root, &layer, &[]);
    let config = serde_json::json!({
        "Env": ["FROM_IMAGE=yes", "BOTH=image", "PATH=/bin"], "WorkingDir": "/srv/app", "User": "1000:1001",
        "Entrypoint": ["sh", "-c"], "Cmd": ["echo $FROM_IMAGE $BOTH $(pwd) $(id -u):$(id -g)"],
    });
    let archive = write_saved(&place, "app:2", &[layer], &config).display().to_string();
    output_of(&burrow, &["image", "import", &archive]);
    assert_eq!(output_of(&burrow, &["run", "--image", "app:2"]), "yes image /srv/app 1000:1001");
    let own = [
        "run",
        "--image",
        "app:2",
        "-e",
        "BOTH=mine",
        "-w",
        "/",
        "-u",
        "0",
        "--",
        "sh",
        "-c",
        "echo $BOTH $(pwd) $(id -u)",
    ];
    assert_eq!(output_of(&burrow, &own), "mine / 0");
    burrow.serve();
    output_of(&burrow, &["start", "--name", "kept", "--image", "app:2"]);
    assert_eq!(output_of(&burrow, &["exec", "kept", "--", "pwd"]), "/srv/app");
    assert_eq!(output_of(&burrow, &["exec", "-w", "/srv", "kept", "--", "pwd"]), "/srv");
}

#[test]
fn layers_take_away_replace_and_keep_what_is_below() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let place = burrow.scratch();
    let (below, above) = (place.join("below"), place.join("above"));
    write_root(&below, &busybox, &["sh", "cat", "ls"]);
    fs::create_dir_all(below.join("data/sub")).expect("data");
    for (file, content) in [("data/a", "old"), ("data/b", "b"), ("data/sub/c", "c")] {
        fs::write(below.join(file), content).expect("a file");
    }
    fs::create_dir_all(above.join("data/sub")).expect("data");
    for (file, content) in
        [("data/a", "new"), ("data/.wh.b", ""), ("data/sub/.wh..wh..opq", ""), ("data/sub/d", "d")]
    {
        fs::write(above.join(file), content).expect("a file");
    }
    fs::set_permissions(above.join("data"), fs::Permissions::from_mode(0o711)).expect("a mode");
    let (lower, upper) = (place.join("lower.tar"), place.join("upper.tar.gz"));
    tar(&below, &lower, &[]);
    let plain = place.join("upper.tar");
    tar(&above, &plain, &[]);
    // The layers of such archives are named by what is in them.
    fs::rename(&plain, &upper).expect("a name");
    let archive = write_saved(place, "layers", &[lower, upper], &Value::Null).display().to_string();
    output_of(&burrow, &["image", "import", &archive]);
    let script = "cat /data/a; echo; ls /data /data/sub";
    let output = output_of(&burrow, &["run", "--image", "layers", "--", "sh", "-c", script]);
    assert_eq!(output, "new\n/data:\na\nsub\n\n/data/sub:\nd");
}

#[test]
fn a_sandbox_that_stays_holds_its_image_and_says_which() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::serving();
    let digest = small(&burrow, &busybox);
    output_of(&burrow, &["start", "--name", "web", "--image", "small:1"]);
    assert_eq!(output_of(&burrow, &["exec", "web", "--", "cat", "/etc/motd"]), "from the image");
    let record: Value =
        serde_json::from_str(&output_of(&burrow, &["inspect", "web", "--json"])).expect("JSON");
    let found = record.to_string();
    assert!(found.contains(&digest) && found.contains("small:1"), "{found}");

    let message = refused(&burrow, &["image", "rm", "small:1"]);
    assert!(message.contains("in use by web"), "{message}");
    output_of(&burrow, &["image", "prune"]);
    assert_eq!(output_of(&burrow, &["exec", "web", "--", "cat", "/etc/motd"]), "from the image");

    output_of(&burrow, &["stop", "web"]);
    assert!(output_of(&burrow, &["image", "rm", "small:1"]).contains(&digest));
    let left = fs::read_dir(burrow.state().join("images/layers")).expect("the store").count();
    assert_eq!(left, 0);
    let message = refused(&burrow, &["start", "--image", "small:1"]);
    assert!(message.contains("small:1") && message.contains("image ls"), "{message}");
}

/// An image whose programs run as `app`, which is 7 in its group 8.
fn write_app(burrow: &Burrow, busybox: &Path) {
    let root = burrow.scratch().join("root");
    write_root(&root, busybox, &["id", "sh"]);
    fs::create_dir_all(root.join("etc")).expect("etc");
    let accounts = "root:x:0:0::/root:/bin/sh\napp:x:7:8::/home/app:/bin/sh\n";
    fs::write(root.join("etc/passwd"), accounts).expect("users");
    fs::write(root.join("etc/group"), "root:x:0:\napp:x:8:\nmore:x:9:app\n").expect("groups");
    let layer = burrow.scratch().join("layer.tar");
    tar(&root, &layer, &[]);
    let config = serde_json::json!({"User": "app", "WorkingDir": "bin", "Env": ["PATH=/bin"]});
    let archive = write_saved(burrow.scratch(), "app", &[layer], &config).display().to_string();
    output_of(burrow, &["image", "import", &archive]);
}

#[test]
fn programs_of_a_sandbox_run_as_its_images_user_unless_the_caller_says_otherwise() {
    let Some(busybox) = busybox() else { return };
    if !is_root() {
        return skip("other users can be had by root alone");
    }
    let server = Server::dev();
    write_app(&server, &busybox);
    let start = ["start", "--name", "web", "--image", "app", "--json"];
    let record: Value = serde_json::from_str(&output_of(&server, &start)).expect("JSON");
    assert_eq!((&record["workdir"], &record["user"]), (&"/bin".into(), &"app".into()), "{record}");
    assert!(!record["warnings"].to_string().contains("root"), "{record}");
    assert_eq!(output_of(&server, &["exec", "web", "--", "id", "-u"]), "7");
    assert_eq!(output_of(&server, &["exec", "web", "--", "id", "-G"]), "8 9");
    assert_eq!(output_of(&server, &["exec", "-u", "0", "web", "--", "id", "-u"]), "0");
    assert_eq!(output_of(&server, &["run", "--image", "app", "--", "id", "-u"]), "7");
    let client = Client::new(server.url());
    let exec = |body: Value| {
        let ran = client.post("/v1/sandboxes/default/web/exec", &body).expect(200).json();
        ran["stdout"].as_str().expect("text").trim().to_owned()
    };
    assert_eq!(exec(serde_json::json!({"argv": ["id", "-u"]})), "7");
    assert_eq!(exec(serde_json::json!({"argv": ["id", "-u"], "user": "root"})), "0");
    let shown = client.get("/v1/sandboxes/default/web").expect(200).json();
    assert_eq!(shown["user"], "app");
    // It may write where artifacts belong, and cannot remove others' files there.
    let leave = |script: &str, user: Option<&str>| {
        let mut body = serde_json::json!({"argv": ["sh", "-c", script], "artifacts": true});
        body["user"] = user.into();
        let ran = client.post("/v1/sandboxes/default/web/exec", &body).expect(200).json();
        ran["captured"]["artifacts"].as_array().expect("a list").len()
    };
    assert_eq!(leave("id -u > /artifacts/own", None), 1);
    assert_eq!(leave("id -u > /artifacts/other", Some("5:6")), 1);
    assert_eq!(leave("echo > /artifacts/other", None), 0);
    // The creator's setting takes precedence over the image's.
    output_of(&server, &["start", "--name", "other", "--image", "app", "--user", "5:6"]);
    assert_eq!(output_of(&server, &["exec", "other", "--", "id", "-u"]), "5");
}

#[test]
fn interpreters_run_as_the_user_of_their_sandbox() {
    if !is_root() {
        return skip("other users can be had by root alone");
    }
    let server = Server::dev();
    let client = Client::new(server.url());
    let body = serde_json::json!({"name": "web", "user": "65534:65534"});
    client.post("/v1/sandboxes", &body).expect(201);
    let run = |place: &str, body: Value| {
        let path = format!("/v1/sandboxes/default/web{place}/run");
        let ran = client.post(&path, &body).expect(200).json();
        ran["stdout"].as_str().expect("text").trim().to_owned()
    };
    let code = serde_json::json!({"code": "id -u"});
    assert_eq!(run("", serde_json::json!({"language": "bash", "code": "id -u"})), "65534");
    // A context that was opened differently is used as it is.
    let open = serde_json::json!({"context": "own", "language": "bash", "user": "0"});
    client.post("/v1/sandboxes/default/web/contexts", &open).expect(201);
    assert_eq!(run("/contexts/own", code.clone()), "0");
    let open = serde_json::json!({"context": "usual", "language": "bash"});
    client.post("/v1/sandboxes/default/web/contexts", &open).expect(201);
    assert_eq!(run("/contexts/usual", code), "65534");
    let repl = ["repl", "--lang", "bash", "-c", "id -u", "web"];
    assert_eq!(output_of(&server, &repl), "65534");
    let refused = client.post("/v1/sandboxes", &serde_json::json!({"name": "b", "user": ""}));
    assert_eq!(refused.expect(400).code(), "invalid");
}

#[test]
fn names_are_listed_moved_and_removed() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let digest = small(&burrow, &busybox);
    let root = burrow.scratch().join("small").display().to_string();
    output_of(&burrow, &["image", "import", &root, "--name", "registry.example:5000/team/x:v1"]);
    let listed = output_of(&burrow, &["image", "ls"]);
    assert!(
        listed.contains("small:1") && listed.contains("registry.example:5000/team/x:v1"),
        "{listed}"
    );
    let listed: Value =
        serde_json::from_str(&output_of(&burrow, &["image", "ls", "--json"])).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["digest"], digest.as_str());
    assert_eq!(output_of(&burrow, &["image", "rm", "small:1"]), "docker.io/library/small:1");
    let inspected = output_of(&burrow, &["image", "inspect", &digest]);
    assert!(!inspected.contains("small:1"), "{inspected}");
    assert!(refused(&burrow, &["image", "inspect", "small:1"]).contains("small:1"));
}

#[test]
fn a_hostile_archive_is_refused_and_leaves_nothing() {
    let burrow = Burrow::new();
    let place = burrow.scratch();
    let root = place.join("evil");
    fs::create_dir_all(&root).expect("a directory");
    fs::write(root.join("f"), "evil").expect("a file");
    for (name, transform) in [("climb", "s,^./f,../../../f,"), ("absolute", "s,^./f,/tmp/f,")] {
        let archive = place.join(format!("{name}.tar"));
        tar(&root, &archive, &["-P", "--transform", transform]);
        let archive = write_saved(place, name, &[archive], &Value::Null).display().to_string();
        let message = refused(&burrow, &["image", "import", &archive]);
        assert!(message.contains("path"), "{name}: {message}");
    }
    if is_root() {
        nix::sys::stat::mknod(
            &root.join("null"),
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::from_bits_truncate(0o666),
            nix::sys::stat::makedev(1, 3),
        )
        .expect("a device");
        let archive = place.join("device.tar");
        tar(&root, &archive, &[]);
        let archive = write_saved(place, "device", &[archive], &Value::Null).display().to_string();
        let message = refused(&burrow, &["image", "import", &archive]);
        assert!(message.contains("device"), "{message}");
    }
    for kind in ["layers", "roots", "known", "sha256", "partial", "imports"] {
        let path = burrow.state().join("images").join(kind);
        let left: Vec<_> = fs::read_dir(&path).expect(kind).flatten().collect();
        assert!(left.is_empty(), "{kind}: {left:?}");
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    let Some(busybox) = busybox() else { return };
    if !is_root() {
        return skip("only root can mount a small disk");
    }
    let burrow = Burrow::new();
    let root = burrow.scratch().join("small");
    write_root(&root, &busybox, &["sh"]);
    fs::write(root.join("big"), vec![7; 6 << 20]).expect("a file");
    // Too little for the content, and too little for what is unpacked of it.
    for size in ["12m", "20m"] {
        import_into(&burrow, &root, size);
    }
}

/// Imports a root into a store on a disk of this size, in a mount namespace that goes with it.
fn import_into(burrow: &Burrow, root: &Path, size: &str) {
    let script = format!(
        "mkdir -p {state}/images && mount -t tmpfs -o size={size} none {state}/images && \
         {bridge} image import {root} --name small; code=$?; \
         find {state}/images -type f -o -name '*.new' | grep -v -e lock; exit $code",
        state = burrow.state().display(),
        bridge = tests::bridge_path().display(),
        root = root.display(),
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("BURROW_STATE_DIR", burrow.state())
        .env("BURROW_RUNTIME_DIR", burrow.runtime())
        .output()
        .expect("unshare runs");
    let message = text(&output.stderr);
    let is_full = message.contains("space") || message.contains("disk is full");
    assert!(!output.status.success() && is_full, "{size}: {message}");
    assert_eq!(text(&output.stdout), "", "{size}: something was left");
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

#[test]
fn layouts_and_archives_of_others_are_taken() {
    let Some(busybox) = busybox() else { return };
    if !has("umoci") || !has("skopeo") {
        return;
    }
    let burrow = Burrow::new();
    let layout = burrow.scratch().join("layout");
    let image = format!("{}:one", layout.display());
    let bundle = burrow.scratch().join("bundle");
    ran(Command::new("umoci").arg("init").arg("--layout").arg(&layout));
    ran(Command::new("umoci").args(["new", "--image", &image]));
    // Two layers, the upper one with a whiteout that umoci itself has made.
    ran(Command::new("umoci").args(["unpack", "--rootless", "--image", &image]).arg(&bundle));
    write_root(&bundle.join("rootfs"), &busybox, &["sh", "cat", "ls"]);
    fs::write(bundle.join("rootfs/gone"), "x").expect("a file");
    ran(Command::new("umoci").args(["repack", "--image", &image]).arg(&bundle));
    fs::remove_dir_all(&bundle).expect("the bundle");
    ran(Command::new("umoci").args(["unpack", "--rootless", "--image", &image]).arg(&bundle));
    fs::remove_file(bundle.join("rootfs/gone")).expect("a file");
    fs::write(bundle.join("rootfs/here"), "here").expect("a file");
    ran(Command::new("umoci").args(["repack", "--image", &image]).arg(&bundle));
    ran(Command::new("umoci").args([
        "config",
        "--image",
        &image,
        "--config.cmd",
        "cat",
        "--config.cmd",
        "/here",
    ]));

    let from = format!("oci:{image}");
    let insecure = ["--insecure-policy", "copy", "-q", &from];
    let docker =
        format!("docker-archive:{}:other:1", burrow.scratch().join("docker.tar").display());
    ran(Command::new("skopeo").args(insecure).arg(&docker));
    let archive = format!("oci-archive:{}:one", burrow.scratch().join("oci.tar").display());
    ran(Command::new("skopeo").args(insecure).arg(&archive));
    for (file, name) in [("layout", "first"), ("docker.tar", "other:1"), ("oci.tar", "third")] {
        let path = burrow.scratch().join(file).display().to_string();
        output_of(&burrow, &["image", "import", &path, "--name", name]);
        assert_eq!(output_of(&burrow, &["run", "--image", name]), "here", "{name}");
        let listed = output_of(&burrow, &["run", "--image", name, "--", "ls", "/"]);
        assert!(!listed.contains("gone"), "{listed}");
    }
}

#[test]
fn an_image_of_a_registry_is_pulled_and_runs() {
    let Some(busybox) = busybox() else { return };
    if !registry::is_here() {
        return;
    }
    let burrow = Burrow::new();
    let (tree, layer) = (burrow.scratch().join("tree"), burrow.scratch().join("layer.tar"));
    write_root(&tree, &busybox, &["sh", "echo"]);
    tar(&tree, &layer, &[]);
    let config = serde_json::json!({"Cmd": ["sh", "-c", "echo $WORD"], "Env": ["WORD=pulled"]});
    let saved = write_saved(burrow.scratch(), "app:1", &[layer], &config);
    let registry = registry::Registry::start("");
    let name = format!("{}/team/app", registry.host());
    ran(Command::new("skopeo")
        .args(["--insecure-policy", "copy", "-q", "--dest-tls-verify=false"])
        .arg(format!("docker-archive:{}", saved.display()))
        .arg(format!("docker://{name}:1")));

    let digest = output_of(&burrow, &["image", "pull", "--quiet", &format!("{name}:1")]);
    assert_eq!(output_of(&burrow, &["run", "--image", &format!("{name}:1")]), "pulled");
    let pinned = format!("{name}@{digest}");
    assert_eq!(output_of(&burrow, &["image", "pull", "--quiet", &pinned]), digest);
    assert_eq!(output_of(&burrow, &["run", "--image", &pinned]), "pulled");
    let unknown = refused(&burrow, &["image", "pull", &format!("{name}:2")]);
    assert!(unknown.contains("no manifest \"2\" of team/app"), "{unknown}");
    // An image that is here needs no registry.
    drop(registry);
    assert_eq!(output_of(&burrow, &["run", "--image", &format!("{name}:1")]), "pulled");
    let away = refused(&burrow, &["image", "pull", &format!("{name}:1")]);
    assert!(away.contains("localhost"), "{away}");
}

#[test]
fn an_image_becomes_the_disk_of_a_virtual_machine() {
    let Some(busybox) = busybox() else { return };
    if !tests::machines::machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    small(&burrow, &busybox);
    let line = ["run", "--machine", "qemu", "--image", "small:1", "--", "sh", "-c"];
    let script = "cat /etc/motd; id -u; touch /etc/new && ls -l /bin/sh";
    let output = output_of(&burrow, &[&line[..], &[script]].concat());
    assert!(output.starts_with("from the image\n0\n") && output.contains("busybox"), "{output}");
    // The second machine has the same disk.
    let disks = || {
        let listed = fs::read_dir(burrow.state().join("images/erofs")).expect("the store");
        listed.flatten().map(|one| fs::metadata(one.path()).expect("a disk").ino()).collect()
    };
    let before: Vec<u64> = disks();
    output_of(&burrow, &[&line[..], &["true"]].concat());
    assert_eq!((before.len(), disks()), (1, before));
}

#[test]
fn the_api_lists_images_and_makes_sandboxes_of_them() {
    let Some(busybox) = busybox() else { return };
    let server = Server::dev();
    let client = Client::new(server.url());
    assert_eq!(client.get("/v1/images").expect(200).json(), serde_json::json!({"images": []}));
    let digest = small(&server, &busybox);
    let listed = client.get("/v1/images").expect(200).json();
    assert_eq!(listed["images"][0]["digest"], digest.as_str());
    assert_eq!(listed["images"][0]["names"][0], "docker.io/library/small:1");
    let one = format!("/v1/images/{digest}");
    assert_eq!(client.get(&one).expect(200).json(), listed["images"][0]);

    let body = serde_json::json!({"name": "web", "image": "small:1"});
    let made = client.post("/v1/sandboxes", &body).expect(201).json();
    assert_eq!(
        (made["image"].as_str(), made["image_digest"].as_str()),
        (Some("small:1"), Some(&*digest))
    );
    let body = serde_json::json!({"argv": ["cat", "/etc/motd"]});
    let ran = client.post("/v1/sandboxes/default/web/exec", &body).expect(200).text();
    assert!(ran.contains("from the image"), "{ran}");
    assert!(client.delete(&one).expect(409).text().contains("in use by web"));
    client.post("/v1/sandboxes/default/web/kill", &serde_json::json!({})).expect(200);
    let _ = client.delete(&one).expect(200);
    let _ = client.get(&one).expect(404);
    let unknown =
        client.post("/v1/sandboxes", &serde_json::json!({"name": "x", "image": "small:1"}));
    assert!(unknown.text().contains("small:1"), "{}", unknown.text());
}

#[test]
fn an_operator_decides_which_images_there_may_be() {
    let Some(busybox) = busybox() else { return };
    let set = ["--dev", "--set", "image_policy.allow=docker.io/library/other*,registry.example/*"];
    let server = Server::start(&set);
    let digest = small(&server, &busybox);
    let client = Client::new(server.url());
    let create = |name: &str, image: &str| {
        client.post("/v1/sandboxes", &serde_json::json!({"name": name, "image": image}))
    };
    for image in ["small:1", digest.as_str()] {
        let answer = create("refused", image);
        assert!(
            answer.status >= 400 && answer.text().contains("image_policy"),
            "{}",
            answer.text()
        );
        let message = refused(&server, &["start", "--image", image]);
        assert!(message.contains("image_policy"), "{message}");
    }
    // A name that is allowed does not let in what was never called so.
    for name in ["other", "other:1", "registry.example/team/x"] {
        let answer = create("borrowed", &format!("{name}@{digest}"));
        assert!(answer.status >= 400, "{name}: {}", answer.text());
    }
    let root = server.scratch().join("small").display().to_string();
    output_of(&server, &["image", "import", &root, "--name", "registry.example/team/x"]);
    let _ = create("pinned", &format!("registry.example/team/x@{digest}")).expect(201);
    let _ = create("allowed", "registry.example/team/x").expect(201);
}

#[test]
fn configured_image_names_are_checked_before_a_server_starts() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::new();
    let check = |target: &str| {
        let file = burrow.scratch().join("burrow.toml");
        fs::write(&file, format!("[images]\n\"team/python\" = \"{target}\"\n")).expect("a file");
        let file = file.display().to_string();
        burrow.run(&["serve", "--check-config", "--config", &file])
    };
    let output = check("Not:A:Name");
    let message = text(&output.stderr);
    assert!(!output.status.success() && message.contains("team/python"), "{message}");
    let output = check("small:1");
    let message = text(&output.stderr);
    assert!(output.status.success() && message.contains("there is no such image"), "{message}");
    assert!(!burrow.state().join("images").exists(), "a look makes no store");
    small(&burrow, &busybox);
    let output = check("small:1");
    let message = text(&output.stderr);
    assert!(output.status.success() && !message.contains("small:1"), "{message}");
}
