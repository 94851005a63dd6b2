//! Starts a sandbox, runs a program in it, and runs Python whose variables live on, without a server:
//! `cargo run --release -p host-bridge --example twenty_lines`. Needs the agent that `./do build` makes.

#![expect(clippy::print_stdout, reason = "an example shows what it has got")]

use host_bridge::{Bridge, BridgeError, Paths, Spec};

#[tokio::main]
async fn main() -> Result<(), BridgeError> {
    let bridge = Bridge::open(Paths::from_environment()?).await?;
    let sandbox = bridge.start(Spec::new("twenty-lines".parse()?)).await?;

    let listed = sandbox.exec(["ls", "-l", "/"]).await?;
    print!("{}", listed.stdout_text());

    sandbox.run("python", "answer = 41").await?;
    let ran = sandbox.run("python", "print(answer + 1)").await?;
    print!("{}", String::from_utf8_lossy(&ran.stdout()));

    sandbox.remove().await?;
    Ok(())
}
