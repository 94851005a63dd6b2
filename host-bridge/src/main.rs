//! The program `host-bridge`: its library's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    host_bridge::cli::main()
}
