//! Images that are hostile in what they say of programs: `WORKDIR`, `USER`, `ENV`, `VOLUME`, entry points,
//! and links or pipes where the agent looks. Whatever they say, their programs stay in the sandbox.
//!
//! Where the tests run as root, each runs once more as an ordinary user.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tests::images::{busybox, tar, write_all_saved, write_root};
use tests::{Burrow, eventually, is_v2_machine, skip, slowed};

use crate::ordinary;

/// Descriptors of the agent that images name as working directories, and as programs: it has fewer.
const DESCRIPTORS: u32 = 256;
const DESCRIPTORS_OF_PROGRAMS: u32 = 24;
/// What is in the images.
const TOOLS: [&str; 15] = [
    "sh", "cat", "find", "grep", "id", "ln", "ls", "mkdir", "mkfifo", "mv", "pwd", "readlink",
    "rm", "stat", "true",
];
/// How many images are imported together; the limit is 256.
const IMAGES_AT_ONCE: usize = 128;
/// How often a sandbox becomes an image while its links are exchanged.
const COMMITS: usize = 3;
/// How long a run of an image may take that would have the agent read without an end.
const PROMPT: Duration = Duration::from_secs(20);

/// A store, and the layer of the images that come to it.
struct Store {
    burrow: Burrow,
    layer: PathBuf,
}

impl Store {
    /// With links in the layer that lead where the sandbox may not go; `more` writes the rest of it.
    fn new(more: impl FnOnce(&PathBuf)) -> Option<Self> {
        let busybox = busybox()?;
        let burrow = Burrow::new();
        let root = burrow.scratch().join("root");
        write_root(&root, &busybox, &TOOLS);
        symlink("/proc/1/fd/4", root.join("to-descriptor")).unwrap();
        symlink("/proc/self/cwd/../../..", root.join("upwards")).unwrap();
        symlink("/proc/1/root", root.join("to-root")).unwrap();
        symlink("/proc/1/exe", root.join("bin/agent")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        more(&root);
        fs::create_dir(root.join("data")).unwrap();
        fs::write(root.join("data/word"), "word\n").unwrap();
        fs::write(root.join("data/evil"), "echo evil\n").unwrap();
        let layer = burrow.scratch().join("layer.tar");
        tar(&root, &layer, &[]);
        Some(Self { burrow, layer })
    }

    /// Takes up an image for each configuration.
    fn import(&self, configs: &[Value]) -> Output {
        let name = |number| format!("hostile{number}");
        let images: Vec<_> =
            configs.iter().enumerate().map(|(n, config)| (name(n), config.clone())).collect();
        let layer = std::slice::from_ref(&self.layer);
        let saved = write_all_saved(self.burrow.scratch(), layer, &images);
        self.burrow.run(&["image", "import", saved.to_str().unwrap()])
    }

    /// The outcome of a run of the image of this number.
    fn run_imported(&self, number: usize, command: &[&str]) -> Output {
        let name = format!("hostile{number}");
        self.burrow.run(&[&["run", "--image", &name], command].concat())
    }

    /// The outcome of a run of an image with this configuration.
    fn run(&self, config: &Value, command: &[&str]) -> Output {
        let imported = self.import(std::slice::from_ref(config));
        if imported.status.success() { self.run_imported(0, command) } else { imported }
    }

    /// What such a run prints.
    fn ok(&self, config: &Value, command: &[&str]) -> String {
        let ran = self.run(config, command);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{config}: {stderr}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Its program is not started, and the refusal says why.
    fn refused(&self, config: &Value, command: &[&str]) {
        assert_refused(config, &self.run(config, command));
    }

    /// The same of many that can be imported.
    fn all_refused(&self, configs: &[Value]) {
        for some in configs.chunks(IMAGES_AT_ONCE) {
            let imported = self.import(some);
            assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
            for (number, config) in some.iter().enumerate() {
                assert_refused(config, &self.run_imported(number, &[]));
            }
        }
    }
}

fn assert_refused(config: &Value, ran: &Output) {
    let (out, stderr) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(!ran.status.success() && out.is_empty(), "{config}: {out}{stderr}");
    assert!(stderr.contains("host-bridge: "), "{config}: {stderr}");
}

#[test]
fn a_working_directory_of_an_image_is_in_its_sandbox() {
    let Some(store) = Store::new(|_| {}) else { return };
    let links = ["/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/1/ns"];
    let planted = ["/to-descriptor", "/upwards", "/to-root", "to-root/etc"];
    let descriptors = (0..DESCRIPTORS).map(|number| format!("/proc/1/fd/{number}"));
    let all = links.iter().chain(&planted).map(|path| (*path).to_owned()).chain(descriptors);
    let configs: Vec<_> = all.map(|path| json!({ "WorkingDir": path, "Cmd": ["pwd"] })).collect();
    store.all_refused(&configs);
    // What leads upwards ends at the sandbox's own root.
    let listed = store.ok(&json!({ "WorkingDir": "/../../../..", "Cmd": ["ls"] }), &[]);
    assert!(listed.contains("to-descriptor"), "{listed}");
}

#[test]
fn a_program_of_an_image_is_in_its_sandbox() {
    let Some(store) = Store::new(|_| {}) else { return };
    let descriptors = (0..DESCRIPTORS_OF_PROGRAMS).map(|number| format!("/proc/1/fd/{number}"));
    let links = ["/proc/1/exe", "/proc/self/exe", "/dev/fd/3", "/to-root/bin/true", "agent"];
    let programs = links.map(str::to_owned).into_iter().chain(descriptors);
    let mut configs: Vec<_> =
        programs.map(|program| json!({ "Entrypoint": [program], "Env": ["PATH=/bin"] })).collect();
    for path in ["/proc/1/root/bin", "/to-root/bin", "/proc/self/root/bin", "/proc/1/fd/4"] {
        configs.push(json!({ "Env": [format!("PATH={path}")], "Cmd": ["true"] }));
    }
    store.all_refused(&configs);
    let own = json!({ "Entrypoint": ["pwd"], "Env": ["PATH=/bin"] });
    assert_eq!(store.ok(&own, &[]), "/sandbox\n");
}

#[test]
fn users_of_an_image_are_looked_up_in_files_alone() {
    let name_only = json!({ "User": "app", "Cmd": ["id"] });
    let plant: [fn(&PathBuf); 4] = [
        |root| mkfifo(&root.join("etc/passwd"), Mode::S_IRWXU).unwrap(),
        |root| symlink("/dev/zero", root.join("etc/passwd")).unwrap(),
        |root| symlink("/proc/1/environ", root.join("etc/passwd")).unwrap(),
        |root| fs::write(root.join("etc/passwd"), "app:x:".repeat(4 << 20)).unwrap(),
    ];
    for more in plant {
        let Some(store) = Store::new(more) else { return };
        let began = Instant::now();
        store.refused(&name_only, &[]);
        assert!(began.elapsed() < slowed(PROMPT), "{:?}", began.elapsed());
    }
    let Some(store) = Store::new(|_| {}) else { return };
    for user in
        ["-1", "4294967295", "4294967296", "0:4294967295", "../../etc", "root\nroot", "a:b:c"]
    {
        store.refused(&json!({ "User": user, "Cmd": ["id"] }), &[]);
    }
}

#[test]
fn volumes_of_an_image_change_nothing_around_its_program() {
    let Some(store) = Store::new(|_| {}) else { return };
    let volumes =
        ["/proc", "/dev", "/../../etc", "/to-root", "/to-descriptor", "/proc/1/root", "/"];
    let volumes: BTreeMap<_, _> = volumes.into_iter().map(|path| (path, json!({}))).collect();
    let look = "cat /proc/1/comm; stat -f -c %T /proc; ls /dev/null; ls /to-root 2>/dev/null; cat /data/word";
    let config = json!({ "Volumes": volumes, "Env": ["PATH=/bin"], "Cmd": ["sh", "-c", look] });
    assert_eq!(store.ok(&config, &[]), "guest-agent\nproc\n/dev/null\nword\n");
}

/// The variables are the program's. None of them is the agent's, or a word of how the program is started.
#[test]
fn variables_of_an_image_change_nothing_around_its_program() {
    let Some(store) = Store::new(|_| {}) else { return };
    let variables = [
        "LD_PRELOAD=/to-root/evil.so",
        "LD_LIBRARY_PATH=/proc/1/fd/4",
        "BURROW_AGENT=/to-root",
        "BASH_ENV=/data/evil",
        "ENV=/data/evil",
        "HOME=/proc/1/fd/4",
        "TMPDIR=/proc/1/root",
        "PWD=/proc/1/root",
        "IFS=/",
    ];
    for variable in variables {
        let (name, value) = variable.split_once('=').unwrap();
        let look = format!("cat /proc/1/comm; pwd; echo \"${name}\"");
        let config = json!({ "Env": ["PATH=/bin", variable], "Cmd": ["sh", "-c", look] });
        let output = store.ok(&config, &[]);
        let mut lines = output.lines();
        assert_eq!(
            (lines.next(), lines.next()),
            (Some("guest-agent"), Some("/sandbox")),
            "{variable}"
        );
        // A shell sets some of them itself.
        assert!(
            ["PWD", "IFS"].contains(&name) || lines.next() == Some(value),
            "{variable}: {output}"
        );
        // A command that is a line for the shell is not one of what the image says, nor is its first file.
        let ran = store.run_imported(0, &["--", "true"]);
        assert!(ran.status.success() && ran.stdout.is_empty(), "{variable}: {ran:?}");
    }
    let nameless = store.run(&json!({ "Env": ["PATH=/bin", "=nameless"], "Cmd": ["true"] }), &[]);
    let output = String::from_utf8_lossy(&nameless.stderr);
    assert!(nameless.status.success() || output.contains("variable"), "{output}");
    for wrong in ["A\0B=1", "A=\0"] {
        store.refused(&json!({ "Env": [wrong], "Cmd": ["true"] }), &[]);
    }
}

/// Whether programs cannot be paused here, as an ordinary user cannot without version 2, and so no image be
/// made of a sandbox.
fn is_not_frozen(output: &str) -> bool {
    let missing = output.contains("nothing can be frozen without control groups");
    if missing {
        assert!(!is_v2_machine(), "{output}");
        skip("no image can be made of a sandbox without control groups");
    }
    missing
}

/// An image that is made of a sandbox has its links as links, and nothing of what they lead to.
#[test]
fn an_image_of_a_sandbox_follows_no_link_of_it() {
    let Some(store) = Store::new(|_| {}) else { return };
    let mut burrow = store.burrow;
    let saved = write_all_saved(
        burrow.scratch(),
        std::slice::from_ref(&store.layer),
        &[("base".to_owned(), json!({ "Env": ["PATH=/bin"] }))],
    );
    burrow.ok(&["image", "import", saved.to_str().unwrap()]);
    burrow.serve();
    burrow.ok(&["start", "--name", "held", "--image", "base"]);
    let plant = "cd /data && mv word old && mkdir real && echo kept > real/word && \
                 ln -s /proc/1/fd/4 descriptor && ln -s /proc/1/root/data whole && ln -s /proc/1/maps word && \
                 mkfifo pipe && rm -rf /etc && ln -s /proc/1/root/bin /etc; \
                 (while true; do mv real away; ln -s /proc/1/root/bin real; rm real; mv away real; done) 2>/dev/null";
    burrow.ok(&["exec", "--detach", "held", "--", "sh", "-c", plant]);
    eventually("the links are planted", || {
        burrow.run(&["exec", "held", "--", "ls", "-d", "/data/pipe"]).status.success()
    });
    for round in 0..COMMITS {
        let name = format!("made:{round}");
        let made = burrow.run(&["image", "commit", "held", &name]);
        let stderr = String::from_utf8_lossy(&made.stderr);
        if is_not_frozen(&stderr) {
            return;
        }
        assert!(made.status.success(), "{stderr}");
        let look = "for link in descriptor whole word; do readlink /data/$link; done; readlink /etc; \
                    find /data | grep -c busybox; true";
        let stderr = burrow.ok(&["run", "--image", &name, "--", "sh", "-c", look]);
        let links = "/proc/1/fd/4\n/proc/1/root/data\n/proc/1/maps\n/proc/1/root/bin\n0\n";
        assert_eq!(stderr, links, "round {round}");
    }
}

#[test]
fn a_step_of_a_build_has_the_rights_of_a_sandbox_and_no_others() {
    let Some(store) = Store::new(|_| {}) else { return };
    let imported = store.import(&[json!({ "Env": ["PATH=/bin"] })]);
    assert!(imported.status.success());
    let context = store.burrow.scratch().join("context");
    fs::create_dir(&context).unwrap();
    let build = |step: &str| {
        fs::write(context.join("Dockerfile"), format!("FROM hostile0\n{step}\n")).unwrap();
        store.burrow.run(&["image", "build", "-t", "made", context.to_str().unwrap()])
    };
    let tried = "cat /proc/self/uid_map > /map; cat /proc/1/maps > /got; ls /proc/1/root/ >> /got; \
                 busybox mount -t tmpfs x /data && echo mounted >> /got; \
                 echo 1 > /proc/sys/kernel/core_pattern && echo written >> /got; true";
    let built = build(&format!("RUN {tried}"));
    let stderr = String::from_utf8_lossy(&built.stderr);
    if is_not_frozen(&stderr) {
        return;
    }
    assert!(built.status.success(), "{stderr}");
    let got = store.burrow.ok(&["run", "--image", "made", "--", "cat", "/got"]);
    assert_eq!(got, "");
    let of_build = store.burrow.ok(&["run", "--image", "made", "--", "cat", "/map"]);
    let of_run = store.burrow.ok(&["run", "--image", "made", "--", "cat", "/proc/self/uid_map"]);
    // Each has its own range, or none where there can be none.
    let length = |map: &str| map.split_whitespace().nth(2).map(str::to_owned);
    assert_eq!(length(&of_build), length(&of_run), "{of_build}{of_run}");
    for more in ["--security=insecure", "--mount=type=bind,source=/,target=/data", "--network=host"]
    {
        let refused = build(&format!("RUN {more} true"));
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && stderr.contains("Dockerfile:2"), "{more}: {stderr}");
    }
}

#[test]
fn a_step_of_an_ordinary_users_build_has_no_others_either() {
    ordinary::again("images::a_step_of_a_build_has_the_rights_of_a_sandbox_and_no_others");
}

#[test]
fn a_working_directory_is_also_for_an_ordinary_user() {
    ordinary::again("images::a_working_directory_of_an_image_is_in_its_sandbox");
}

#[test]
fn a_program_is_also_for_an_ordinary_user() {
    ordinary::again("images::a_program_of_an_image_is_in_its_sandbox");
}

#[test]
fn users_are_also_for_an_ordinary_user() {
    ordinary::again("images::users_of_an_image_are_looked_up_in_files_alone");
}

#[test]
fn volumes_change_nothing_for_an_ordinary_user_either() {
    ordinary::again("images::volumes_of_an_image_change_nothing_around_its_program");
}

#[test]
fn variables_change_nothing_for_an_ordinary_user_either() {
    ordinary::again("images::variables_of_an_image_change_nothing_around_its_program");
}

#[test]
fn an_image_of_an_ordinary_users_sandbox_follows_no_link_either() {
    ordinary::again("images::an_image_of_a_sandbox_follows_no_link_of_it");
}
