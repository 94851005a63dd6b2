//! What `COPY` and `ADD` bring into an image, and what they leave out.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn files_come_as_the_recipe_says() {
    let Some(place) = place() else { return };
    for name in
        ["src/a.txt", "src/b.txt", "src/c.md", "src/deep/d.txt", "logs/x", "logs/keep/y", "n"]
    {
        place.write(name, name);
    }
    place.write(".dockerignore", "# comment\n**/*.md\nlogs\n!logs/keep\n/n\n");
    symlink("a.txt", place.context.join("src/link")).unwrap();
    fs::set_permissions(place.context.join("src/a.txt"), fs::Permissions::from_mode(0o640))
        .unwrap();
    let recipe = "FROM base\nCOPY src/*.txt src/link /one/\nCOPY src /two\nCOPY src/a.txt /three\n\
        COPY src/a.txt /etc\nCOPY [\"src/b.txt\", \"/lib/with space\"]\nADD logs /logs\nCOPY . /all/\n";
    place.built(recipe, &[]);
    let found = place.sh(
        "cd /one && ls; cd /two && find . | while read x; do echo $x; done; cat /three /etc/a.txt",
    );
    let mut lines: Vec<_> = found.lines().collect();
    lines.sort_unstable();
    let mut expected = vec![
        "a.txt",
        "b.txt",
        "link",
        ".",
        "./a.txt",
        "./b.txt",
        "./deep",
        "./deep/d.txt",
        "./link",
        "src/a.txtsrc/a.txt",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert_eq!(place.sh("stat -c '%a %u' /three; cat '/usr/lib/with space'"), "640 0\nsrc/b.txt");
    assert_eq!(
        place.sh("ls -d /lib/. /logs/*; ls /all"),
        "/lib/.\n/logs/keep\nDockerfile\nlogs\nsrc\n"
    );
    // The link of the image is one still.
    assert_eq!(place.sh("test -L /lib && echo link"), "link\n");
    let devices = Command::new("tar")
        .args(["--transform=s,^dev/,,", "-cf"])
        .arg(place.context.join("bad.tar"))
        .args(["-C", "/", "dev/null"])
        .status();
    assert!(devices.unwrap().success());
    for (line, wanted) in [
        ("COPY n /n", "cannot copy \"n\": it does not exist"),
        ("COPY nothing* /n", "nothing*"),
        ("COPY src/a.txt src/b.txt /new", "end it with '/'"),
        ("COPY src /etc/passwd", "is a file"),
        ("ADD https://example.org/x /x", "RUN with --egress"),
        ("ADD x.tar.gz /x", "cannot copy \"x.tar.gz\": it does not exist"),
        ("ADD bad.tar /x", "cannot be unpacked"),
        ("COPY <<END /new/\nx", "<<END is not closed"),
    ] {
        let message = place.refused(&format!("FROM base\n{line}\n"), &[]);
        assert!(message.contains("Dockerfile:2:") && message.contains(wanted), "{line}: {message}");
    }
}

#[test]
fn what_an_instruction_excludes_is_left_out_of_that_copy_alone() {
    let Some(place) = place() else { return };
    for name in [
        "app/a.txt",
        "app/b.md",
        "app/deep/c.md",
        "app/deep/d.txt",
        "app/logs/e.txt",
        "app/logs/f.txt",
        "app/ignored",
        "home.txt",
        "home.md",
    ] {
        place.write(name, name);
    }
    place.write(".dockerignore", "app/ignored\n");
    symlink("app", place.context.join("other")).unwrap();
    let recipe = "FROM base AS first\nENV END=md\n\
        COPY --exclude=*.md app /top/\nCOPY --exclude=**/*.$END app /all/\n\
        COPY --exclude=logs --exclude=!logs/f.txt --exclude=**/*.md other /some/\n\
        COPY --exclude=*.txt hom* /files/\n\
        ADD --exclude=deep --exclude=logs [\"app\", \"/added/\"]\n\
        FROM base\nCOPY --from=first --exclude=deep --exclude=logs /all /image\nCOPY --from=first / /first/\n";
    let (_, digest) = place.built(recipe, &[]);
    let files = |directory: &str| {
        let found =
            place.sh(&format!("cd /{directory} && find . | while read x; do echo $x; done"));
        let mut files: Vec<_> = found.lines().map(str::to_owned).collect();
        files.sort_unstable();
        files[1..].join(" ")
    };
    for (directory, expected) in [
        ("first/top", "./a.txt ./deep ./deep/c.md ./deep/d.txt ./logs ./logs/e.txt ./logs/f.txt"),
        ("first/all", "./a.txt ./deep ./deep/d.txt ./logs ./logs/e.txt ./logs/f.txt"),
        ("first/some", "./a.txt ./deep ./deep/d.txt ./logs ./logs/f.txt"),
        ("first/files", "./home.md"),
        ("first/added", "./a.txt ./b.md"),
        ("image", "./a.txt"),
    ] {
        assert_eq!(files(directory), expected, "{directory}");
    }
    // What is left out is no part of the step's key; the pattern is.
    place.write("home.txt", "changed");
    let (output, again) = place.built(recipe, &[]);
    assert!(output.contains("/files/\n  cached") && again == digest, "{output}");
    let (output, _) = place.built(&recipe.replace("*.txt hom", "*.md hom"), &[]);
    assert!(!output.contains("/files/\n  cached"), "{output}");
    assert_eq!(files("first/files"), "./home.txt");
    for (line, expected) in [
        ("COPY --exclude=home.md home.md /x", "or --exclude leaves it out"),
        ("COPY --exclude home.md /x", "takes a pattern after --exclude="),
    ] {
        let message = place.refused(&format!("FROM base\n{line}\n"), &[]);
        assert!(message.contains("Dockerfile:2:") && message.contains(expected), "{message}");
    }
}

#[test]
fn archives_are_unpacked_by_add_and_files_of_the_recipe_are_written() {
    let Some(place) = place() else { return };
    place.write("tree/lib/inner", "inner\n");
    place.write("tree/own", "own\n");
    fs::hard_link(place.context.join("tree/own"), place.context.join("tree/twin")).unwrap();
    fs::set_permissions(place.context.join("tree/own"), fs::Permissions::from_mode(0o4750))
        .unwrap();
    let tar = |more: &[&str], name: &str| {
        let mut tar = Command::new("tar");
        tar.args(["--owner=7", "--group=9", "--numeric-owner"]).args(more).arg("-cf");
        tar.arg(place.context.join(name)).arg("-C").arg(place.context.join("tree")).arg(".");
        assert!(tar.status().unwrap().success());
    };
    // Names say nothing of what is in a file.
    tar(&[], "plain.txt");
    tar(&["-z"], "packed");
    place.write("text.tar.gz", "no archive\n");
    let recipe = "FROM base\nENV WHO=you\nADD plain.txt /\nADD --chown=app --chmod=711 packed /opt/in\n\
        ADD text.tar.gz /opt/\nCOPY packed /opt/copied\n\
        COPY <<END /opt/one\nhello \"$WHO\" \\$WHO ${NOBODY:-none}\nEND\n\
        COPY --chown=7:8 --chmod=755 <<'a.sh' <<-\"b.sh\" text.tar.gz /opt/two/\n#!/bin/sh\necho $1\na.sh\n\
        \t# no $WHO here\n\tb.sh\nWORKDIR /opt\nADD <<last ./\nthe end\nlast\n";
    let (_, digest) = place.built(recipe, &[]);
    assert_eq!(place.sh("cat /usr/lib/inner /own /opt/in/lib/inner"), "inner\nown\ninner\n");
    assert_eq!(place.sh("test /own -ef /twin && test -L /lib && echo yes"), "yes\n");
    if nix::unistd::geteuid().is_root() {
        let looks = place.sh("stat -c '%u %g %a' /own /opt/in/own /opt/two/a.sh /opt/one");
        assert_eq!(looks, "7 9 4750\n7 8 711\n7 8 755\n0 0 644\n");
    }
    assert_eq!(place.sh("cat /opt/text.tar.gz /opt/one"), "no archive\nhello \"you\" $WHO none\n");
    assert_eq!(place.sh("/opt/two/a.sh x; cat /opt/two/b.sh"), "x\n# no $WHO here\n");
    assert_eq!(place.sh("cat /opt/last; ls /opt/two"), "the end\na.sh\nb.sh\ntext.tar.gz\n");
    assert_eq!(place.sh("test -f /opt/copied && echo file"), "file\n");
    // What is the same is not done again, and what a text says is part of its step.
    assert_eq!(place.built(recipe, &[]).1, digest);
    let (output, other) = place.built(&recipe.replace("hello", "bye"), &[]);
    assert!(output.contains("ADD text.tar.gz /opt/\n  cached") && other != digest, "{output}");
    // Nothing is below it, as of most images that begin so.
    place.built("FROM scratch\nADD packed /\nCOPY --from=base /bin /bin/\n", &[]);
    assert_eq!(place.sh("cat /own /lib/inner"), "own\ninner\n");
}

#[test]
fn nothing_outside_of_a_context_or_an_image_gets_into_an_image() {
    let Some(place) = place() else { return };
    let secret = place.burrow.scratch().join("secret");
    fs::write(&secret, "the host's").unwrap();
    symlink(&secret, place.context.join("absolute")).unwrap();
    symlink("../secret", place.context.join("relative")).unwrap();
    symlink("..", place.context.join("up")).unwrap();
    fs::create_dir(place.context.join("inside")).unwrap();
    symlink(&secret, place.context.join("inside/kept")).unwrap();
    for source in ["../secret", "inside/../../secret", "absolute", "relative", "up/secret", "up/*"]
    {
        let output = place.build(&format!("FROM base\nCOPY {source} /x/\n"), &[]);
        if output.status.success() {
            // A link upwards is looked up within the context, and leads to that itself.
            assert_eq!(source, "up/*");
            assert!(!place.sh("ls -R /x").contains("the host's"));
        }
    }
    // In a directory a link is a link, which leads where programs of the image are led.
    place.built("FROM base\nCOPY inside /in\n", &[]);
    assert!(
        !place.burrow.run(&["run", "--image", "made", "--", "cat", "/in/kept"]).status.success()
    );
    // An image that is copied from, or to, leads nowhere else either.
    let host = place.burrow.scratch().to_str().unwrap();
    let recipe = format!(
        "FROM base AS evil\nRUN ln -s {host} /host || busybox ln -s {host} /host\n\
         FROM base\nCOPY --from=evil /host/secret /stolen\n"
    );
    assert!(place.refused(&recipe, &[]).contains("Dockerfile:4:"));
    let recipe =
        format!("FROM base\nRUN busybox ln -s {host} /host\nCOPY Dockerfile /host/written\n");
    let _ = place.build(&recipe, &[]);
    assert!(!place.burrow.scratch().join("written").exists());
    fs::write(place.context.join("inside/.wh.etc"), "").unwrap();
    assert!(place.refused("FROM base\nCOPY inside /\n", &[]).contains(".wh.etc"));
}
