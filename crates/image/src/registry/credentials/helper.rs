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

/// What helpers print when they know nothing; they also fail.
const NOT_FOUND: &str = "credentials not found";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Asks a helper; `None` if it does not know the registry. Dropping the future kills it.
pub(super) async fn ask(name: &str, server: &str) -> Result<Option<Credential>, CredentialsError> {
    let program = format!("docker-credential-{name}");
    let failed = |source| CredentialsError::HelperStart { program: program.clone(), source };
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
    let slow =
        |_| CredentialsError::HelperSlow { program: program.clone(), limit: HELPER_DEADLINE };
    let answered = timeout(HELPER_DEADLINE, converse(&mut child, server)).await.map_err(slow)?;
    let (output, code) = answered.map_err(failed)?;
    if code != Some(0) {
        if String::from_utf8_lossy(&output).contains(NOT_FOUND) {
            return Ok(None);
        }
        let server = server.to_owned();
        return Err(CredentialsError::HelperFailed { program, server, code });
    }
    let answer = serde_json::from_slice::<Answer>(&output);
    let answer = answer.map_err(|_| CredentialsError::HelperAnswer { program })?;
    Ok(Some(Credential::of(&answer.username, &answer.secret)))
}

/// Sends the request, and reads the bounded output and the exit status.
async fn converse(child: &mut Child, server: &str) -> io::Result<(Vec<u8>, Option<i32>)> {
    let mut answer = Vec::new();
    if let Some(mut stdin) = child.stdin.take() {
        // A helper may answer without reading its input.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    if let Some(stdout) = child.stdout.take() {
        stdout.take(HELPER_BYTES_MAX).read_to_end(&mut answer).await?;
    }
    Ok((answer, child.wait().await?.code()))
}
