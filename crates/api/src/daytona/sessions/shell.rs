//! The scripts around the commands of a session: each command begins where the last one has ended, with the
//! variables that it has left. Pure.
//!
//! A directory is one of [`SessionPlace`](super::place::SessionPlace): its path needs no quotes.

/// Makes the directory of a session. The first argument is that of all of them.
pub const MAKE: &str = r#"mkdir -p -m 700 "$1" && mkdir -m 700 "$1/$2""#;

/// With bash: variables, functions and the directory are kept. Variables that are the shell's own cannot be set
/// again, which is no fault.
pub fn bash(directory: &str) -> String {
    format!(
        "if [ -r {directory}/state ]; then . {directory}/state; fi 2>/dev/null\n\
         trap '{{ declare -p; declare -f; printf \"cd -- %q\\n\" \"$PWD\"; }} \
         >{directory}/state.$$ 2>/dev/null && mv -f {directory}/state.$$ {directory}/state' EXIT\n\
         eval \"$1\""
    )
}

/// With any other shell: exported variables and the directory are.
pub fn sh(directory: &str) -> String {
    format!(
        "if [ -r {directory}/state ]; then . {directory}/state; fi 2>/dev/null\n\
         if [ -r {directory}/cwd ]; then cd \"$(cat {directory}/cwd)\"; fi 2>/dev/null\n\
         trap 'export -p >{directory}/state.$$ && mv -f {directory}/state.$$ {directory}/state; \
         pwd >{directory}/cwd' EXIT\n\
         eval \"$1\""
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Runs commands one after the other, and returns what the last one has written and its exit code.
    fn run(shell: &str, script: fn(&str) -> String, commands: &[&str]) -> (String, Option<i32>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte)));
        let mut last = (String::new(), None);
        for command in commands {
            let ran = Command::new(shell)
                .args(["-c", &script(path), "daytona", command])
                .current_dir("/")
                .output()
                .unwrap();
            last = (String::from_utf8(ran.stdout).unwrap(), ran.status.code());
        }
        last
    }

    #[test]
    fn a_command_begins_where_the_last_one_has_ended() {
        let scripts: [fn(&str) -> String; 2] = [bash, sh];
        let shells = ["/bin/bash", "/bin/sh"].into_iter().zip(scripts);
        for (shell, script) in shells.filter(|(shell, _)| Path::new(shell).exists()) {
            let first = "cd /usr/bin; export A='it'\"'\"'s one\ntwo'";
            let commands = [first, "exit 3", "false", r#"pwd; printf %s "$A""#];
            assert_eq!(
                run(shell, script, &commands),
                ("/usr/bin\nit's one\ntwo".to_owned(), Some(0)),
                "{shell}"
            );
            assert_eq!(run(shell, script, &["exit 7"]).1, Some(7), "{shell}");
            assert_eq!(run(shell, script, &["echo \"$X\" )"]).0, "", "{shell}");
        }
        if Path::new("/bin/bash").exists() {
            let commands = ["f() { echo f \"$B\"; }; B=b", "f"];
            assert_eq!(run("/bin/bash", bash, &commands).0, "f b\n");
        }
    }
}
