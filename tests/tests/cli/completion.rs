//! What shells are offered: the program is asked as their scripts ask it, and bash itself once.

use std::process::Command;

use tests::completion::offered;
use tests::{Burrow, bridge_path, eventually, have_or_skip};

#[test]
fn names_of_sandboxes_and_sessions_are_offered() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["start", "--name", "ci/job-7"]);
    burrow.ok(&["exec", "-d", "--session", "build", "work", "--", "sleep", "1000"]);
    assert_eq!(offered(&burrow, &["attach", "w"]), ["work"]);
    assert_eq!(offered(&burrow, &["rm", "-f", "ci"]), ["ci/job-7"]);
    assert_eq!(offered(&burrow, &["attach", "work", "--session", ""]), ["build"]);
    assert_eq!(offered(&burrow, &["kill", "work", "b"]), ["build"]);
    assert!(offered(&burrow, &["cp", "wo"]).contains(&"work".to_owned()));
    assert!(offered(&burrow, &["stop", "other"]).is_empty());
    burrow.ok(&["rm", "--force", "work", "ci/job-7"]);
}

#[test]
fn names_of_images_are_offered() {
    let burrow = Burrow::new();
    let root = burrow.scratch().join("root");
    std::fs::create_dir_all(root.join("bin")).expect("a directory");
    burrow.ok(&["image", "import", root.to_str().expect("UTF-8"), "--name", "team/app:1"]);
    for words in
        [&["run", "--image", "te"][..], &["start", "--image", "te"], &["image", "rm", "te"]]
    {
        let offered = offered(&burrow, words);
        assert!(offered.iter().any(|name| name.ends_with("team/app:1")), "{words:?}: {offered:?}");
    }
}

#[test]
fn verbs_and_options_are_offered_without_a_daemon_and_hidden_ones_are_not() {
    let burrow = Burrow::new();
    let verbs = offered(&burrow, &[""]);
    for verb in ["port-forward", "daemon", "wait"] {
        assert!(verbs.iter().any(|known| known == verb), "{verb}: {verbs:?}");
    }
    assert!(!verbs.iter().any(|verb| verb.starts_with("__")), "{verbs:?}");
    assert!(offered(&burrow, &["__"]).iter().all(|verb| !verb.starts_with("__")));
    assert!(offered(&burrow, &["serve", "--"]).iter().all(|option| option != "--unattended"));
    let without_names = offered(&burrow, &["attach", ""]);
    assert!(without_names.iter().all(|word| word.starts_with('-')), "{without_names:?}");
    assert_eq!(offered(&burrow, &["start", "--egress", "@py"]), ["@pypi"]);
    assert!(!burrow.runtime().join("control.sock").exists(), "asking starts nothing");
}

/// Reads the script as the shell does, and asks the shell for its own view of what is offered.
fn completes(shell: &str, ask: &str) {
    if !have_or_skip(shell) {
        return;
    }
    let burrow = Burrow::new();
    let script = burrow.scratch().join("script");
    std::fs::write(&script, burrow.ok(&["completions", shell])).expect("a directory");
    let parsed = Command::new(shell).arg("-n").arg(&script).output().expect("it runs");
    assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let mut command = Command::new(shell);
    command.args(["-c", ask]).env("SCRIPT", &script).env("HOME", burrow.scratch());
    let path = bridge_path().parent().expect("a directory").display().to_string();
    command.env("PATH", format!("{path}:/usr/bin:/bin"));
    let output = command.output().expect("it runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(stdout.contains("port-forward") && !stdout.contains("__bind"), "{stdout}{failed}");
}

#[test]
fn fish_completes_a_verb_with_the_script() {
    completes("fish", "source $SCRIPT; complete -C 'host-bridge port-f'");
}

#[test]
fn zsh_completes_a_verb_with_the_script() {
    // Its widgets run on a terminal alone, so what the script does with the words is asked.
    let ask = "autoload -Uz compinit && compinit -u -D; source $SCRIPT; \
               _describe() { print -l -- ${(P)2}; print -l -- ${(P)3} }; \
               compadd() { print -l -- $@ }; \
               words=(host-bridge port-f); CURRENT=2; ${_comps[host-bridge]}";
    completes("zsh", ask);
}

#[test]
fn bash_completes_a_verb_with_the_script() {
    if !have_or_skip("bash") {
        return;
    }
    let burrow = Burrow::new();
    let script = burrow.ok(&["completions", "bash"]);
    let ask = "COMP_WORDS=(host-bridge port-f); COMP_CWORD=1; COMP_LINE='host-bridge port-f'; \
               COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_KEY=9; \
               complete -p host-bridge >&2; \
               $(complete -p host-bridge | sed 's/.*-F \\([^ ]*\\).*/\\1/') host-bridge port-f host-bridge; \
               echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{script}\n{ask}")]);
    bash.env(
        "PATH",
        format!("{}:/usr/bin:/bin", bridge_path().parent().expect("a directory").display()),
    );
    let mut text = String::new();
    eventually("it is completed", || {
        let output = bash.output().expect("bash runs");
        text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("port-forward")
    });
    assert_eq!(text.trim(), "port-forward");
}
