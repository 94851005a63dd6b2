//! What shells are offered: the program is asked as their scripts ask it.

use crate::Burrow;

/// What bash is offered for the last word.
///
/// # Panics
/// When the program fails.
pub fn offered(burrow: &Burrow, words: &[&str]) -> Vec<String> {
    let mut command = burrow.command(&["--"]);
    command.arg("host-bridge").args(words).env("HOST_BRIDGE_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect()
}
