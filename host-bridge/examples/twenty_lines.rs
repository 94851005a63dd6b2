//! A sandbox, a program in it, and an interpreter that remembers: `cargo run --example twenty_lines`.

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
