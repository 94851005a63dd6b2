//! The program `rootfs`: its library's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    rootfs::cli::main()
}
