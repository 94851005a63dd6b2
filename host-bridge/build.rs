//! Embeds the agent in the bridge, if it is built: `just build` builds it first. A bridge without one looks
//! for the file `guest-agent` (`host::agent`).

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The file that `main` includes.
const COPY: &str = "guest-agent";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(carries_agent)");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let built = Path::new(&format!("{arch}-unknown-linux-musl")).join("release/guest-agent");
    // The directory of all targets is some levels above, more of them where a target is named.
    let agent = out.ancestors().map(|above| above.join(&built)).find(|agent| agent.is_file());
    if let Some(agent) = agent {
        println!("cargo::rerun-if-changed={}", agent.display());
        fs::copy(&agent, out.join(COPY)).expect("the agent can be copied");
        println!("cargo::rustc-cfg=carries_agent");
    } else {
        // One that is not there is looked for at each build.
        println!("cargo::rerun-if-changed={}", out.join(COPY).display());
        if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
            println!("cargo::warning=the agent is not built, so this bridge carries none");
        }
    }
}
