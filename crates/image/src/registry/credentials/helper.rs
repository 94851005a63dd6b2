//! Programs that keep credentials, as docker calls them: `docker-credential-NAME get`, the registry on
//! stdin, JSON on stdout.

use std::io;
use std::process::Stdio;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::CredentialsError;
use crate::registry::limits::{HELPER_BYTES_MAX, HELPER_DEADLINE};
use crate::registry::secret::Credential;

/// What they say when they know nothing, and end with an error.
const NOT_FOUND: &str = "credentials not found";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// None when the program knows nothing of the registry. It is killed when nobody waits any more.
pub(super) async fn ask(name: &str, server: &str) -> Result<Option<Credential>, CredentialsError> {
    let program = format!("docker-credential-{name}");
    let failed = |source| CredentialsError::HelperStart { program: program.clone(), source };
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
    let slow =
        |_| CredentialsError::HelperSlow { program: program.clone(), limit: HELPER_DEADLINE };
    let answered = timeout(HELPER_DEADLINE, converse(&mut child, server)).await.map_err(slow)?;
    let (said, code) = answered.map_err(failed)?;
    if code != Some(0) {
        if String::from_utf8_lossy(&said).contains(NOT_FOUND) {
            return Ok(None);
        }
        let server = server.to_owned();
        return Err(CredentialsError::HelperFailed { program, server, code });
    }
    let answer = serde_json::from_slice::<Answer>(&said);
    let answer = answer.map_err(|_| CredentialsError::HelperAnswer { program })?;
    Ok(Some(Credential::of(&answer.username, &answer.secret)))
}

/// What it says, as much as is taken, and how it ends.
async fn converse(child: &mut Child, server: &str) -> io::Result<(Vec<u8>, Option<i32>)> {
    let mut said = Vec::new();
    if let Some(mut stdin) = child.stdin.take() {
        // One that answers without reading is nobody's loss.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    if let Some(stdout) = child.stdout.take() {
        stdout.take(HELPER_BYTES_MAX).read_to_end(&mut said).await?;
    }
    Ok((said, child.wait().await?.code()))
}
