//! Images by recipes: built on this host, run in sandboxes, and refused where they should be.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod copies;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tests::images::{busybox, write_root};
use tests::{Burrow, skip};

const TOOLS: [&str; 15] = [
    "sh", "cat", "ls", "id", "pwd", "env", "echo", "stat", "mkdir", "rm", "test", "touch", "find",
    "wget", "nc",
];

/// A bridge whose store has the image `base`, and a context to build from.
struct BuildDirectory {
    burrow: Burrow,
    context: PathBuf,
}

fn place() -> Option<BuildDirectory> {
    let busybox = busybox()?;
    let burrow = Burrow::new();
    let root = burrow.scratch().join("base");
    write_root(&root, &busybox, &TOOLS);
    fs::create_dir_all(root.join("usr/lib")).unwrap();
    symlink("usr/lib", root.join("lib")).unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\napp:x:7:8::/:/bin/sh\n").unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nstaff:x:9:\n").unwrap();
    burrow.ok(&["image", "import", root.to_str().unwrap(), "--name", "base"]);
    let context = burrow.scratch().join("context");
    fs::create_dir(&context).unwrap();
    Some(BuildDirectory { burrow, context })
}

impl BuildDirectory {
    fn write(&self, name: &str, text: &str) {
        let path = self.context.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn build(&self, recipe: &str, more: &[&str]) -> Output {
        self.write("Dockerfile", recipe);
        let context = self.context.to_str().unwrap();
        self.burrow.run(&[&["image", "build", "-t", "made"], more, &[context]].concat())
    }

    /// What a build that works says of itself, and the image's digest.
    fn built(&self, recipe: &str, more: &[&str]) -> (String, String) {
        let output = self.build(recipe, more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{recipe}\n{stderr}");
        (stderr, String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    fn refused(&self, recipe: &str, more: &[&str]) -> String {
        let output = self.build(recipe, more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{recipe}\n{stderr}");
        assert!(half_made(&self.burrow).is_empty(), "{recipe}: something is left");
        stderr
    }

    fn run(&self, command: &[&str]) -> String {
        self.burrow.ok(&[&["run", "--image", "made"], command].concat())
    }

    fn sh(&self, script: &str) -> String {
        self.run(&["--", "sh", "-c", script])
    }

    /// The configuration as it is written.
    fn config(&self) -> Value {
        let shown = self.burrow.ok(&["image", "inspect", "made"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let digest = shown["config"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
        let blob = self.burrow.state().join("images/sha256").join(digest);
        serde_json::from_slice(&fs::read(blob).unwrap()).unwrap()
    }
}

fn half_made(burrow: &Burrow) -> Vec<PathBuf> {
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let images = burrow.state().join("images");
    let all = ["", "imports", "layers", "roots", "known", "steps"].map(|kind| images.join(kind));
    let names = all.iter().flat_map(|path| list(path)).map(|entry| entry.path());
    names.filter(|path| path.extension().is_some_and(|end| end == "new")).collect()
}

#[test]
fn files_copied_to_mount_points_are_visible_to_commands() {
    let Some(place) = place() else { return };
    place.write("list", "one\n");
    let recipe = "FROM base\n\
        COPY list /tmp/list\n\
        WORKDIR /tmp/work\n\
        RUN cat /tmp/list > /read && echo x > here\n\
        RUN rm /tmp/list && mkdir -p /run/server\n";
    place.built(recipe, &[]);
    assert_eq!(
        place.sh("cat /read; ls /tmp /tmp/work /run"),
        "one\n/run:\nserver\n\n/tmp:\nwork\n\n/tmp/work:\nhere\n"
    );
    // What its sandbox needed of an image that has neither is in no layer.
    place.built("FROM base\nRUN true\n", &[]);
    let archive = place.burrow.scratch().join("made.tar");
    place.burrow.ok(&["image", "save", "made", "-o", archive.to_str().unwrap()]);
    let saved = fs::read(archive).unwrap();
    let has = |name: &[u8]| saved.windows(name.len()).any(|found| found == name);
    assert!(has(b"bin/busybox") && !has(b"tmp/\0") && !has(b"run/\0"));
}

#[test]
fn files_that_are_one_elsewhere_come_with_the_content_that_they_have() {
    let Some(place) = place() else { return };
    place.write("x/f", "XF\n");
    place.write("y/f", "YF\n");
    fs::hard_link(place.context.join("x/f"), place.context.join("z")).unwrap();
    // The second takes the first's place, and the third is still the first's.
    place.built("FROM base\nCOPY x/f y/f z /d/\nRUN echo AB > /ab && chmod 4755 /ab\n", &[]);
    assert_eq!(place.sh("cat /d/f /d/z"), "YF\nXF\n");
    let recipe = "FROM base AS one\n\
        RUN mkdir /srv && echo AB > /srv/ab && echo AC > /srv/ac && chown 7:8 /srv/ab && chmod 4755 /srv/ab\n\
        FROM base\n\
        COPY --from=one /srv/ab /srv/a* /d/\n\
        COPY --from=one --chown=9:9 /srv/ab /e/\n";
    place.built(recipe, &[]);
    assert_eq!(place.sh("cat /d/ab /d/ac"), "AB\nAC\n");
    if nix::unistd::geteuid().is_root() {
        let looks = place.sh("stat -c '%u:%g %a' /d/ab /d/ac /e/ab");
        assert_eq!(looks, "7:8 4755\n0:0 644\n9:9 755\n");
    }
}

#[test]
fn stage_settings_are_inherited_and_a_users_workdir_belongs_to_that_user() {
    let Some(place) = place() else { return };
    let recipe = "FROM base AS one\nARG V=1\nFROM one\nUSER app\nWORKDIR /work/deep\n\
        RUN echo $V > here && id -u >> here\n";
    place.built(recipe, &[]);
    let user = if nix::unistd::geteuid().is_root() { "1\n7\n" } else { "1\n0\n" };
    assert_eq!(place.sh("cat /work/deep/here"), user);
    // What a command may reach is part of its key.
    let recipe = "FROM base\nRUN test -s /etc/resolv.conf && cat /etc/resolv.conf > /seen\n";
    place.built(recipe, &[]);
    let alone = place.sh("cat /seen");
    place.built(recipe, &["--egress", "example.org"]);
    assert_ne!(place.sh("cat /seen"), alone);
}

#[test]
fn a_recipe_is_a_file_of_its_context() {
    let Some(place) = place() else { return };
    let path = place.context.join("Dockerfile");
    let build = || {
        let context = place.context.to_str().unwrap();
        let output = place.burrow.run(&["image", "build", "-t", "made", context]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(build().contains("regular file"));
    fs::remove_file(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    let text = build();
    assert!(
        text.contains("a symlink points outside of the context") && !text.contains("root:"),
        "{text}"
    );
    fs::remove_file(&path).unwrap();
    place.write("docker/recipe", "FROM base\n");
    symlink("docker/recipe", &path).unwrap();
    place.burrow.ok(&["image", "build", "-t", "made", place.context.to_str().unwrap()]);
}

#[test]
fn a_recipe_may_come_from_stdin_and_an_image_have_several_names() {
    let Some(place) = place() else { return };
    place.write("Dockerfile", "FROM nobody/knows\n");
    place.write(".dockerignore", "left\n");
    place.write("left", "out");
    let context = place.context.to_str().unwrap().to_owned();
    let build = |recipe: &str, more: &[&str]| {
        let arguments = [&["image", "build", "-f", "-"], more, &[&context]].concat();
        let mut command = place.burrow.command(&arguments);
        command.env("BUILD_WORD", "of the host").env_remove("BUILD_NOBODYS");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let sent = child.stdin.take().unwrap().write_all(recipe.as_bytes());
        // A build whose words are refused does not wait for its recipe.
        assert!(sent.map_or_else(|error| error.kind() == ErrorKind::BrokenPipe, |()| true));
        child.wait_with_output().unwrap()
    };
    let recipe = "FROM base\nARG BUILD_WORD=none\nARG BUILD_NOBODYS=own\nARG GIVEN\n\
                  ENV SAID=\"$BUILD_WORD/$BUILD_NOBODYS/$GIVEN\"\nCOPY . /in\n";
    let given =
        ["--build-arg", "BUILD_WORD", "--build-arg", "BUILD_NOBODYS", "--build-arg", "GIVEN=a=b"];
    let output = build(recipe, &[&["-t", "made", "-t", "team/made:2"], &given[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.sh("echo $SAID; ls /in"), "of the host/own/a=b\nDockerfile\n");
    let text = place.burrow.ok(&["run", "--image", "team/made:2", "--", "sh", "-c", "echo $SAID"]);
    assert_eq!(text, "of the host/own/a=b\n");
    let output = build("FROM base\nFLY\n", &["-t", "made"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("-:2"), "{text}");
    let output = build("FROM base\n", &["--build-arg", "=x"]);
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn onbuild_instructions_run_once_and_are_not_passed_on() {
    let Some(place) = place() else { return };
    let saved = place.burrow.scratch().join("saved");
    fs::create_dir(&saved).unwrap();
    let base = place.burrow.scratch().join("base");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(saved.join("layer.tar")).arg("-C").arg(base).arg(".");
    assert!(tar.status().unwrap().success());
    let sum = Command::new("sha256sum").arg(saved.join("layer.tar")).output().unwrap().stdout;
    let digest = String::from_utf8(sum).unwrap();
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": machine, "os": "linux", "config": { "OnBuild": ["COPY . /app", "RUN make"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", &digest[..64])] },
    });
    fs::write(saved.join("config.json"), config.to_string()).unwrap();
    let list =
        json!([{ "Config": "config.json", "RepoTags": ["wanting:1"], "Layers": ["layer.tar"] }]);
    fs::write(saved.join("manifest.json"), list.to_string()).unwrap();
    place.burrow.ok(&["image", "import", saved.to_str().unwrap()]);
    let (output, _) = place.built("FROM wanting:1\nENV X=1\n", &[]);
    assert!(output.contains("wanting:1") && output.contains("COPY . /app"), "{output}");
    assert!(output.contains("RUN make"), "{output}");
    let config = place.config();
    assert!(config["config"]["OnBuild"].is_null(), "{config}");
    assert_eq!(config["config"]["Env"], json!(["X=1"]));
}

#[test]
fn a_recipes_instructions_are_executed() {
    let Some(place) = place() else { return };
    place.write("app/main.sh", "echo main $0 $1; id -u; pwd; echo $GREETING\n");
    let recipe = "# syntax=anything\n\
        ARG WHICH=base\n\
        FROM ${WHICH} AS made\n\
        ARG GREETING_OF=world\n\
        ENV GREETING=\"hello ${GREETING_OF:-nobody}\" \\\n    # a comment in between\n    OTHER=x\n\
        LABEL a=b \"c d\"='e f'\n\
        EXPOSE 80 9000-9001/udp\n\
        VOLUME /data\n\
        STOPSIGNAL SIGINT\n\
        WORKDIR /srv\n\
        WORKDIR app\n\
        COPY --chown=app:staff --chmod=750 app/ .\n\
        RUN echo $GREETING > made && test $GREETING_OF = you && \\\n    touch /gone && rm /gone\n\
        USER app\n\
        ENTRYPOINT [\"sh\", \"/srv/app/main.sh\"]\n\
        CMD [\"usual\"]\n";
    let (output, digest) =
        place.built(recipe, &["--build-arg", "GREETING_OF=you", "--label", "z=1"]);
    assert!(output.contains("[1/14] FROM ${WHICH} AS made"), "{output}");
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        assert_eq!(place.run(&[]), "main /srv/app/main.sh usual\n7\n/srv/app\nhello you\n");
        let looks = place.sh("stat -c '%u %g %a' main.sh made");
        assert_eq!(looks, "7 9 750\n0 0 644\n");
    }
    assert_eq!(place.sh("cat made"), "hello you\n");
    let config = place.config();
    let words = &config["config"];
    assert_eq!(words["WorkingDir"], "/srv/app");
    assert_eq!(words["User"], "app");
    assert_eq!(words["Labels"], serde_json::json!({ "a": "b", "c d": "e f", "z": "1" }));
    let ports: Vec<_> = words["ExposedPorts"].as_object().unwrap().keys().collect();
    assert_eq!(ports, ["80/tcp", "9000/udp", "9001/udp"]);
    assert_eq!(words["Volumes"], serde_json::json!({ "/data": {} }));
    assert_eq!(words["StopSignal"], "SIGINT");
    let history = config["history"].as_array().unwrap();
    let made = history.iter().filter(|one| one["empty_layer"] != true).count();
    assert_eq!(made, config["rootfs"]["diff_ids"].as_array().unwrap().len());
    assert!(!place.burrow.ok(&["image", "inspect", &digest]).is_empty());
}

#[test]
fn a_stage_gives_its_files_to_another_and_what_nobody_needs_is_not_built() {
    let Some(place) = place() else { return };
    let recipe = "FROM base AS tools\nRUN mkdir /out && echo built > /out/file && cd /out && ln -s file link\n\
        FROM base AS unneeded\nRUN exit 1\n\
        FROM scratch\nCOPY --from=tools /out /there/\nCOPY --from=base /bin /bin/\nCOPY --from=0 /out/link /followed\n";
    place.built(recipe, &[]);
    let listed = place.sh("cat /there/file /there/link /followed; ls /");
    assert!(listed.starts_with("built\nbuilt\nbuilt\n"), "{listed}");
    assert!(!listed.contains("etc/passwd"), "{listed}");
    let message = place.refused(recipe, &["--target", "unneeded"]);
    assert!(message.contains("Dockerfile:4:") && message.contains("exit code 1"), "{message}");
    place.built(recipe, &["--target", "tools"]);
    let message = place.refused("FROM base\nCOPY --from=scratch /x /y\n", &["--pull", "missing"]);
    assert!(
        message.contains("Dockerfile:2:") && message.contains("cannot copy \"/x\""),
        "{message}"
    );
    assert!(place.refused(recipe, &["--target", "nobody"]).contains("tools, unneeded"));
}

#[test]
fn cached_steps_are_not_repeated() {
    let Some(place) = place() else { return };
    place.write("a", "one");
    // Different output proves two runs: no two sandboxes have the same random numbers.
    let recipe = "FROM base\nCOPY a /a\nRUN cat /proc/sys/kernel/random/uuid > /drawn\nENV X=1\n";
    let (_, first) = place.built(recipe, &[]);
    let drawn = place.sh("cat /drawn");
    let (output, second) = place.built(recipe, &[]);
    assert_eq!(
        (first.as_str(), output.matches("  cached").count()),
        (second.as_str(), 2),
        "{output}"
    );
    // Times of files do not count.
    fs::File::open(place.context.join("a")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(place.built(recipe, &[]).1, first);
    // Steps after a change are repeated, and those before it are not.
    let (_, other) = place.built(&recipe.replace("X=1", "X=2"), &[]);
    assert_ne!(other, first);
    assert_eq!(place.sh("cat /drawn"), drawn);
    place.write("a", "two");
    place.built(recipe, &[]);
    assert_ne!(place.sh("cat /drawn"), drawn);
    place.write("a", "one");
    assert_eq!(place.built(recipe, &[]).1, first);
    assert_ne!(place.built(recipe, &["--no-cache"]).1, first);
    // Steps are images without a name, and go as such.
    place.burrow.ok(&["image", "prune"]);
    let steps = place.burrow.state().join("images/steps");
    let left = fs::read_dir(&steps).unwrap().count();
    place.burrow.ok(&["image", "rm", "made"]);
    assert!(left <= 2 && fs::read_dir(&steps).unwrap().count() == 0, "{left}");
    assert!(!place.built(recipe, &[]).0.contains("  cached"));
}

#[test]
fn a_command_that_fails_says_where_and_how_and_leaves_nothing() {
    let Some(place) = place() else { return };
    let message = place.refused("FROM base\n\nRUN echo before; \\\n  exit 7\n", &[]);
    assert!(message.contains("before\n") && message.contains("Dockerfile:3:"), "{message}");
    assert!(message.contains("exit code 7"), "{message}");
    assert!(!place.burrow.run(&["image", "inspect", "made"]).status.success());
    let message = place.refused("FROM base\nRUN [\"/no/such\"]\n", &[]);
    assert!(message.contains("Dockerfile:2:"), "{message}");
    assert!(place.refused("FROM scratch\nRUN true\n", &[]).contains("empty image"));
    assert!(place.refused("FROM not/here:1\n", &[]).contains("--pull missing"));
    let message = place.refused("FROM --platform=plan9/mips base\n", &[]);
    assert!(message.contains("plan9/mips"), "{message}");
    // A sandbox that builds has no network.
    let message =
        place.refused("FROM base\nRUN test $(ls /sys/class/net | busybox wc -l) -gt 1\n", &[]);
    assert!(message.contains("exit code 1"), "{message}");
}

#[test]
fn a_build_that_is_ended_takes_its_command_along_and_the_next_goes_on() {
    use nix::sys::signal::{Signal, kill};
    let Some(place) = place() else { return };
    place.write("a", "one");
    for (number, signal) in
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL].into_iter().enumerate()
    {
        // A number that nobody else sleeps for.
        let seconds = 700_000 + std::process::id() * 10 + number as u32;
        let recipe = format!("FROM base\nCOPY a /a\nRUN busybox sleep {seconds}\n");
        place.write("Dockerfile", &recipe);
        let context = place.context.to_str().unwrap();
        let mut command = place.burrow.command(&["image", "build", "-t", "made", context]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let sleeps = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let mut lines = all.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
            lines.any(|line| line.ends_with(format!("\0{seconds}\0").as_bytes()))
        };
        tests::eventually("the command runs", sleeps);
        kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
        let ended = child.wait().unwrap();
        assert!(!ended.success(), "{signal}");
        tests::eventually("the command is gone", || !sleeps());
        if signal == Signal::SIGKILL {
            // Only the next opening of the store could remove it.
            tests::eventually("nothing is left", || {
                place.burrow.ok(&["image", "ls"]);
                half_made(&place.burrow).is_empty()
            });
        }
        assert!(half_made(&place.burrow).is_empty(), "{signal}");
        let (output, _) = place.built(&recipe.replace("busybox sleep", "echo"), &[]);
        assert!(output.contains("COPY a /a\n  cached"), "{output}");
        assert!(half_made(&place.burrow).is_empty(), "{signal}");
    }
}

#[test]
fn what_single_steps_have_made_is_listed_where_all_is_asked_for() {
    let Some(place) = place() else { return };
    place.built("FROM base\nRUN touch /a\nRUN touch /b\n", &[]);
    let rows = |options: &[&str]| -> Vec<String> {
        let listed = place.burrow.ok(&[&["image", "ls"], options].concat());
        listed.lines().skip(1).map(str::to_owned).collect()
    };
    let (usual, all) = (rows(&[]), rows(&["-a"]));
    assert_eq!(usual.len(), 2, "base and what is made of it: {usual:?}");
    assert!(
        usual.iter().all(|row| all.contains(row) && !row.starts_with('-')),
        "{usual:?} {all:?}"
    );
    assert!(all.iter().any(|row| row.starts_with('-')), "{all:?}");
}

#[test]
fn texts_for_a_shell_and_other_shells_are_taken() {
    let Some(place) = place() else { return };
    let recipe = "# escape=`\nFROM base\nRUN <<END\necho one > /one\necho 'two $x' > /two\nEND\n\
        RUN cat > /three <<-'STOP' && `\n  echo more > /four\n\tthree # kept\n\tSTOP\n\
        SHELL [\"/bin/sh\", \"-e\", \"-c\"]\nCMD cat /one /two /three /four\n";
    place.built(recipe, &[]);
    assert_eq!(place.run(&[]), "one\ntwo $x\nthree # kept\nmore\n");
    assert_eq!(place.config()["config"]["Cmd"][1], "-e");
}

/// Gives files attributes, or tells those of files, by the host's own Python.
fn attributes(arguments: &[&str]) -> String {
    const SCRIPT: &str = "import os, sys
capability = bytes.fromhex('0100000200200000' + '0' * 24)
for path in sys.argv[2:]:
    if sys.argv[1] == 'set':
        os.setxattr(path, 'user.note', b'said\\n=so')
        os.path.isdir(path) or os.setxattr(path, 'security.capability', capability)
    else:
        for name in sorted(os.listxattr(path)):
            value = os.getxattr(path, name)
            print(name, value == capability or value)
";
    let output = Command::new("python3").args(["-c", SCRIPT]).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Not supported") || stderr.contains("not permitted") {
        return String::new();
    }
    assert!(output.status.success(), "{stderr}");
    format!("{}.", String::from_utf8(output.stdout).unwrap())
}

#[test]
fn attributes_of_files_come_with_them_and_rights_not_for_others() {
    let Some(place) = place() else { return };
    let base = place.burrow.scratch().join("base");
    place.write("in/ping", "ping");
    place.write("in/sub/x", "x");
    let files = [
        base.join("bin/busybox"),
        base.join("etc"),
        place.context.join("in/ping"),
        place.context.join("in/sub"),
    ];
    let files = files.iter().map(|path| path.to_str().unwrap());
    if attributes(&[&["set"], files.collect::<Vec<_>>().as_slice()].concat()).is_empty() {
        return skip("files have no attributes here, or nobody may give them such");
    }
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "-cf"]).arg(place.context.join("packed.tar"));
    assert!(tar.arg("-C").arg(place.context.join("in")).arg("ping").status().unwrap().success());
    place.burrow.ok(&["image", "import", base.to_str().unwrap(), "--name", "base"]);
    let recipe = "FROM base AS one\nCOPY in /in\nADD packed.tar /added/\n\
                  COPY --chown=7:8 in/ping /given\nRUN touch /in/new\n\
                  FROM base\nCOPY --from=one /in /in\nCOPY --from=one /added/ping /given /\n";
    let (_, digest) = place.built(recipe, &[]);
    let digest = digest.trim_start_matches("sha256:");
    let tree = place.burrow.state().join("images/roots").join(digest).join("tree");
    let of = |path: &str| attributes(&["get", tree.join(path).to_str().unwrap()]);
    let (note, capability) = ("user.note b'said\\n=so'\n", "security.capability True\n");
    for file in ["bin/busybox", "in/ping", "ping"] {
        assert_eq!(of(file), format!("{capability}{note}."), "{file}");
    }
    for file in ["etc", "in/sub", "given"] {
        assert_eq!(of(file), format!("{note}."), "{file}");
    }
    assert_eq!(of("in/new") + &of("in/sub/x"), "..");
}

/// A regression: only `run` reported what its sandbox was refused to reach.
#[test]
fn a_host_that_a_step_was_refused_to_reach_is_reported() {
    let Some(place) = place() else { return };
    // By the proxy, because a static busybox cannot look names up.
    let recipe = "FROM base\nRUN printf 'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n' | nc 198.18.0.1 3128\n";
    let (stderr, _) = place.built(recipe, &["--egress", "good.example"]);
    let refused = "egress to evil.example:443 was refused: no rule allows it";
    assert!(stderr.contains(refused), "{stderr}");
    let asked = ["audit", "--operation", "egress.connection", "--outcome", "refused", "--json"];
    assert!(place.burrow.ok(&asked).contains("evil.example"));
}
