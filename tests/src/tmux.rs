//! A person at a terminal: a tmux of the test's own with one shell in it, keys that are typed and a
//! screen that is looked at.
//!
//! The shell knows the bridge as `hb`, with the directories of a [`Burrow`].

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Instant;

use nix::unistd::Pid;
use tempfile::TempDir;

use crate::{Burrow, PATIENCE, children, eventually, have, skip};

/// One terminal with a shell. Both end with it.
pub struct Tmux {
    dir: TempDir,
}

impl Tmux {
    /// Of 80 columns and 24 rows; `None`, with a printed skip, without tmux.
    pub fn open(burrow: &Burrow) -> Option<Self> {
        Self::of_size(burrow, 80, 24)
    }

    pub fn of_size(burrow: &Burrow, columns: u16, rows: u16) -> Option<Self> {
        if !have("tmux") {
            skip("tmux is not installed");
            return None;
        }
        let dir = TempDir::with_prefix("burrow-tmux-").expect("a temporary directory");
        write_bridge_script(burrow, &dir);
        let tmux = Self { dir };
        let path = std::env::var("PATH").unwrap_or_default();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let started = tmux
            .command()
            .args(["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "--"])
            .args(["sh", "-i"])
            .env("PATH", format!("{}:{path}", tmux.dir.path().display()))
            // A prompt that shows that a shell is ready, and ignores all profiles.
            .env("PS1", "ready> ")
            .env_remove("ENV")
            .output()
            .expect("tmux runs");
        assert!(started.status.success(), "tmux: {}", String::from_utf8_lossy(&started.stderr));
        tmux.wait_for("ready>");
        Some(tmux)
    }

    /// Types a line.
    pub fn line(&self, text: &str) {
        self.tell(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Types characters unchanged.
    pub fn text(&self, text: &str) {
        self.tell(&["send-keys", "-l", text]);
    }

    /// Pastes a text, however long, as it is.
    pub fn paste(&self, text: &str) {
        let path = self.dir.path().join("paste");
        std::fs::write(&path, text).expect("written");
        self.tell(&["load-buffer", path.to_str().expect("UTF-8")]);
        self.tell(&["paste-buffer", "-r"]);
    }

    /// Presses keys by tmux's names for them: `C-c`, `Escape`, `Space`.
    pub fn keys(&self, keys: &[&str]) {
        self.tell(&[&["send-keys"], keys].concat());
    }

    /// The visible text: wrapped lines joined, without trailing blanks.
    pub fn screen(&self) -> String {
        let shown = self.tell(&["capture-pane", "-p", "-J"]);
        let mut screen = String::new();
        for line in shown.lines() {
            writeln!(screen, "{}", line.trim_end()).expect("a string takes all");
        }
        screen
    }

    /// Waits until `text` is visible.
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen is as it should be, and returns it.
    ///
    /// # Panics
    /// When it is not within [`PATIENCE`]; the screen is shown then.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}\n{screen}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Clears the screen, so that earlier output cannot match the next wait. Only while the shell
    /// waits for a command.
    pub fn clear(&self) {
        self.line("clear");
        self.wait_until("a screen with only a prompt", |screen| screen.trim() == "ready>");
    }

    /// Gives the window another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tell(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// The mode of the terminal, as `stty -g` writes it; read from outside, so that no shell can
    /// put it in order before we look.
    pub fn mode(&self) -> String {
        let terminal = self.ask("#{pane_tty}");
        let output = Command::new("stty").args(["-F", &terminal, "-g"]).output().expect("stty");
        assert!(output.status.success(), "stty: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Waits until the terminal has this mode again.
    pub fn wait_for_mode(&self, mode: &str) {
        eventually("the terminal is restored", || self.mode() == mode);
    }

    /// The program that the shell runs.
    pub fn program(&self) -> Pid {
        let shell: i32 = self.ask("#{pane_pid}").parse().expect("a number");
        let mut found = Vec::new();
        eventually("the shell runs something", || {
            found = children(Pid::from_raw(shell));
            !found.is_empty()
        });
        found[0]
    }

    /// Closes the window, as a person does who clicks on its cross.
    pub fn close(self) {
        drop(self);
    }

    fn ask(&self, format: &str) -> String {
        self.tell(&["display-message", "-p", format]).trim().to_owned()
    }

    fn tell(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } =
            self.command().args(arguments).output().expect("tmux runs");
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.dir.path().join("socket"));
        command.env_remove("TMUX").env_remove("TMUX_PANE").env("TERM", "xterm-256color");
        command
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // If it is gone already, that is fine.
        self.command().arg("kill-server").output().ok();
    }
}

/// The bridge under a short name, which leaves the lines that are typed readable.
fn write_bridge_script(burrow: &Burrow, dir: &TempDir) {
    let command = burrow.command(&[]);
    let mut script = "#!/bin/sh\n".to_owned();
    for (name, value) in command.get_envs() {
        let (name, value) = (name.to_string_lossy(), value.unwrap_or_default().to_string_lossy());
        writeln!(script, "export {name}='{value}'").expect("a string takes all");
    }
    let program = command.get_program().to_string_lossy();
    writeln!(script, "exec '{program}' \"$@\"").expect("a string takes all");
    let path = dir.path().join("hb");
    std::fs::write(&path, script).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
}
