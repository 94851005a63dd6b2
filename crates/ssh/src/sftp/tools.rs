//! What the guest's calls for files cannot do: attributes of files that are there, and new symlinks. The programs
//! that every image with a shell has do it, as the owner of all files.

use protocol::Text;
use protocol::requests::Program as Command;

use agent_client::guest::Guest;
use agent_client::program::{Outputs, Program, Unlimited, draw_session};

use super::packet::{Attributes, Status};
use super::refusal::refused;
use crate::limits::TOOL_BYTES_MAX;

/// Who owns all files of a sandbox.
const OWNER: &str = "0:0";
/// What a shell reports for a program that it does not find.
const NOT_FOUND: i32 = 127;

/// Changes attributes, one after the other, as far as it goes.
pub async fn set_attributes(
    guest: &Guest,
    path: &Text,
    attributes: Attributes,
) -> Result<(), Status> {
    let Attributes { bytes, owner, permissions, times } = attributes;
    let mut script = vec!["set -e".to_owned()];
    script.extend(bytes.map(|bytes| format!("truncate -s {bytes} -- \"$1\"")));
    script.extend(owner.map(|(uid, gid)| format!("chown {uid}:{gid} -- \"$1\"")));
    script.extend(permissions.map(|bits| format!("chmod {bits:o} -- \"$1\"")));
    if let Some((read, changed)) = times {
        script.push(format!("touch -c -a -d @{read} -- \"$1\""));
        script.push(format!("touch -c -m -d @{changed} -- \"$1\""));
    }
    guest.stat(path.clone(), true).await.map_err(|error| refused(&error))?;
    if script.len() == 1 {
        return Ok(());
    }
    run(guest, &script.join("\n"), &[path]).await.map(drop)
}

pub async fn make_link(guest: &Guest, target: &Text, path: &Text) -> Result<(), Status> {
    match guest.stat(path.clone(), false).await.map_err(|error| refused(&error)) {
        Ok(_) => Err(Status::Failure(format!("{path} is there already"))),
        Err(Status::NoSuchFile(_)) => {
            run(guest, "ln -s -- \"$1\" \"$2\"", &[target, path]).await.map(drop)
        }
        Err(status) => Err(status),
    }
}

/// The directory that programs begin in.
pub async fn directory(guest: &Guest) -> Result<Text, Status> {
    let mut path = run(guest, "pwd", &[]).await?;
    path.truncate(path.trim_ascii_end().len());
    Ok(path.into())
}

/// Runs a script with its arguments, and returns the beginning of what it has written.
async fn run(guest: &Guest, script: &str, arguments: &[&Text]) -> Result<Vec<u8>, Status> {
    let words = ["/bin/sh", "-c", script, "sh"].map(Text::from);
    let argv = words.into_iter().chain(arguments.iter().map(|text| (*text).clone()));
    let ran = async {
        let mut program = Program::new(draw_session()?, Command::argv(argv));
        if !arguments.is_empty() {
            program.start.user = Some(OWNER.to_owned());
        }
        let mut outputs = Outputs::new(TOOL_BYTES_MAX, Unlimited);
        let ended = program.begin(guest)?.collect(b"", &mut outputs).await?;
        Ok((ended, outputs))
    };
    let (ended, outputs) = ran.await.map_err(|error| refused(&error))?;
    let why = || String::from_utf8_lossy(outputs.stderr.bytes()).trim().to_owned();
    match ended.shell_code() {
        0 => Ok(outputs.stdout.into_bytes()),
        NOT_FOUND => Err(Status::Unsupported(why())),
        _ => Err(Status::Failure(why())),
    }
}
