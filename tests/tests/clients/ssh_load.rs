//! Many connections at the door for SSH, and the limits that the operator sets. The load is a light client's; that
//! what happens is right for users, OpenSSH's own says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::ChannelMsg;
use russh::client::{Config, Handle, Handler, connect};
use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use tests::ssh::Ssh;
use tests::{Burrow, PATIENCE, eventually, resident_bytes};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections that are open at once.
const CONNECTIONS: usize = 1000;
/// Of which so many run a program, one after another.
const PROGRAMS: usize = 50;
/// Logins at a time: the door lets in 128 that have not logged in.
const LOGINS: usize = 32;
/// What one connection may cost the bridge while nothing is done over it.
const CONNECTION_BYTES_MAX: u64 = 256 * 1024;

struct Light;

impl Handler for Light {
    type Error = russh::Error;

    /// The address is the test's own.
    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

async fn log_in(address: &str, key: PrivateKeyWithHashAlg) -> Result<Handle<Light>, russh::Error> {
    let mut session = connect(Arc::new(Config::default()), address, Light).await?;
    let answer = session.authenticate_publickey("box", key).await?;
    assert!(answer.success(), "{answer:?}");
    Ok(session)
}

/// Runs a command to its end.
async fn say(session: &Handle<Light>, command: &str) -> (String, Option<u32>) {
    let mut channel = session.channel_open_session().await.unwrap();
    channel.exec(true, command).await.unwrap();
    let (mut text, mut code) = (Vec::new(), None);
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => text.extend_from_slice(&data),
            ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
            _ => {}
        }
    }
    (String::from_utf8(text).unwrap(), code)
}

fn limited(limits: &[(&str, &str)]) -> Option<Ssh> {
    let burrow = limits.iter().fold(Burrow::new(), |burrow, (name, value)| {
        burrow.variable(&format!("BURROW_SSH_{name}"), value)
    });
    let ssh = Ssh::of(burrow, &[])?;
    ssh.ok(&["start", "--name", "box"]);
    Some(ssh)
}

#[test]
#[expect(clippy::async_yields_async, reason = "a session could be awaited, for its end")]
fn a_thousand_connections_are_open_at_once_and_programs_run_over_them() {
    let count = CONNECTIONS.to_string();
    // One place is for OpenSSH's client.
    let all = (CONNECTIONS + 1).to_string();
    let Some(ssh) = limited(&[("CONNECTIONS_MAX", &all), ("CONNECTIONS_PER_KEY_MAX", &all)]) else {
        return;
    };
    ssh.say("true");
    let before = resident_bytes(ssh.daemon_pid()).unwrap();
    let key = Arc::new(load_secret_key(ssh.path("id"), None).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let sessions = runtime.block_on(async {
        let (mut logins, places) = (JoinSet::new(), Arc::new(Semaphore::new(LOGINS)));
        for _ in 0..CONNECTIONS {
            let key = PrivateKeyWithHashAlg::new(Arc::clone(&key), None);
            let (address, places) = (ssh.address().to_owned(), Arc::clone(&places));
            logins.spawn(async move {
                let _place = places.acquire().await.unwrap();
                log_in(&address, key).await.unwrap()
            });
        }
        logins.join_all().await
    });
    assert_eq!(sessions.len().to_string(), count);
    let grown = resident_bytes(ssh.daemon_pid()).unwrap().saturating_sub(before);
    assert!(grown < CONNECTIONS as u64 * CONNECTION_BYTES_MAX, "{grown} bytes");
    runtime.block_on(async {
        for (number, session) in sessions.iter().step_by(CONNECTIONS / PROGRAMS).enumerate() {
            let (text, code) = say(session, &format!("echo {number}; exit 7")).await;
            assert_eq!((text, code), (format!("{number}\n"), Some(7)));
        }
    });
    // Another's client is served beside them, and one more than there is room for is closed.
    assert_eq!(ssh.say("echo beside"), "beside\n");
    let mut last = None;
    eventually("the last place is taken", || {
        let key = PrivateKeyWithHashAlg::new(Arc::clone(&key), None);
        last = runtime.block_on(log_in(ssh.address(), key)).ok();
        last.is_some()
    });
    assert!(!ssh.run("true").status.success(), "there was one place too many");
    drop(last);
    assert!(sessions.iter().all(|session| !session.is_closed()), "one was closed");
    eventually("there is room again", || ssh.run("true").status.success());
    drop(sessions);
    eventually("all are gone", || ssh_connections(&ssh) < LOGINS);
}

/// Connections that the kernel has at the door.
fn ssh_connections(ssh: &Ssh) -> usize {
    let port: u16 = ssh.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The second word is the local address, the fourth the state.
    let (local, established) = (format!(":{port:04X}"), "01");
    let is_here = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(1).is_some_and(|own| own.ends_with(&local)) && words.get(3) == Some(&established)
    };
    table.lines().filter(is_here).count()
}

#[test]
fn a_key_has_so_many_connections_as_the_operator_says() {
    let Some(ssh) = limited(&[("CONNECTIONS_PER_KEY_MAX", "1")]) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let key = Arc::new(load_secret_key(ssh.path("id"), None).unwrap());
    let key = PrivateKeyWithHashAlg::new(key, None);
    let held = runtime.block_on(log_in(ssh.address(), key)).unwrap();
    let words = String::from_utf8_lossy(&ssh.run("true").stderr).into_owned();
    assert!(words.contains("this key has too many connections"), "{words}");
    drop(held);
    eventually("there is room again", || ssh.run("true").status.success());
}

#[test]
fn a_connection_over_which_nothing_is_done_is_closed_and_one_with_a_program_is_not() {
    let Some(ssh) = limited(&[("IDLE", "5s")]) else { return };
    let since = Instant::now();
    let working = ssh.ssh(&[], "sleep 8; echo done").stdout(std::process::Stdio::piped()).spawn();
    let mut unused = ssh.program("ssh", &["-N", "box@burrow"]).spawn().unwrap();
    eventually("the unused one is closed", || unused.try_wait().unwrap().is_some());
    assert!((Duration::from_secs(5)..PATIENCE).contains(&since.elapsed()));
    let output = working.unwrap().wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}
