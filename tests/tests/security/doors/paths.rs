//! Paths that lead the agent where the sandbox may not go, through every door that takes a path: HTTP,
//! JSON-RPC, MCP, the command line, SSH and the protocols of E2B and Daytona. What each request does to such paths is in `crate::paths`.
//!
//! Where the tests run as root, each runs once more as an ordinary user.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod http;
mod others;
mod protocols;

use std::fmt::Write as _;
use std::fs;
use std::ops::Deref;

use serde_json::{Value, json};
use tests::agent_path;
use tests::door::BOX;
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::ssh::Ssh;

use self::http::HTTP;
use self::others::{COMMANDS, OTHERS};
use self::protocols::{DAYTONA, ENVD, FILES_OF_SSH, MADE};
use crate::ordinary;

/// What every door may reach, and what a link of `/proc` would lead to.
pub(super) const DIRECTORY: &str = "/tmp/innocent";
pub(super) const FILE: &str = "/tmp/innocent/file";
pub(super) const PROGRAM: &str = "/tmp/innocent/bin/python";
/// What is in that file, and what would be in one that was written.
const CONTENT: &str = "innocent";
/// The name of what the attacks make.
pub(super) const ATTACK: &str = "burrow-attack";

/// Where nothing of the sandbox's is. The first are tried at the doors that take long, too.
const HOSTILE: [&str; 30] = [
    "/proc/1/root/tmp/innocent",
    "/proc/1/root/tmp/innocent/file",
    "/proc/1/root/tmp/innocent/bin/python",
    "/proc/1/fd/4/..",
    "/proc/self/exe",
    "/proc/1/mem",
    "/proc/1/maps",
    "/sys/fs/cgroup/cgroup.procs",
    "/proc/1/fd/0",
    "/proc/1/fd/3",
    "/proc/1/fd/4",
    "/proc/1/fd/5",
    "/proc/1/fd/6",
    "/proc/1/fd/4/../cgroup.kill",
    "/proc/1/fd/5/cgroup.procs",
    "/proc/1/root",
    "/proc/1/root/etc",
    "/proc/1/cwd",
    "/proc/1/exe",
    "/proc/1/environ",
    "/proc/1/ns/mnt",
    "/proc/1/task/1/root/tmp/innocent",
    "/proc/self/cwd",
    "/proc/self/root/tmp/innocent",
    "/proc/thread-self/root/tmp/innocent",
    "/proc/sys/kernel/core_pattern",
    "/tmp/../proc/1/root/tmp/innocent",
    "/sys/fs/cgroup",
    "/dev/fd/3",
    "/dev/stdin",
];
/// How many of them, and of the links to them, the slow doors are tried with.
const HOSTILE_SLOW: usize = 8;

/// What a door says: nothing of what it did, or why it refused.
pub(super) type Outcome = Result<(), String>;

/// A door: its name, a path that it takes, and the request.
pub(super) type Door = (&'static str, &'static str, fn(&Host, &str) -> Outcome);

/// A server, which may have a door for SSH.
pub(super) enum Home {
    Plain(Server),
    Ssh(Box<Ssh>),
}

impl Deref for Home {
    type Target = Server;

    fn deref(&self) -> &Server {
        match self {
            Self::Plain(server) => server,
            Self::Ssh(ssh) => ssh,
        }
    }
}

/// A server with a sandbox, and clients of it.
pub(super) struct Host {
    pub(super) server: Home,
    pub(super) client: Client,
    /// The sandbox, as the clients of other servers name it.
    pub(super) id: String,
}

impl Host {
    fn start() -> Self {
        let (server, client) = tests::door::open();
        Self::plant(Home::Plain(server), client)
    }

    /// The same with a door for SSH; `None`, with a printed skip, without OpenSSH's client.
    fn start_with_ssh() -> Option<Self> {
        let ssh = Ssh::open()?;
        let client = Client::new(ssh.url());
        Some(Self::plant(Home::Ssh(Box::new(ssh)), client))
    }

    pub(super) fn ssh(&self) -> &Ssh {
        match &self.server {
            Home::Ssh(ssh) => ssh,
            Home::Plain(_) => panic!("the server has no door for SSH"),
        }
    }

    fn plant(server: Home, client: Client) -> Self {
        let shown = client.get(BOX).expect(200).json();
        let id = shown["id"].as_str().unwrap().to_owned();
        let host = Self { server, client, id };
        let mut script = format!(
            "mkdir -p {DIRECTORY}/bin /tmp/planted && echo {CONTENT} > {FILE} && \
             ln -s $(command -v python3) {PROGRAM}\n"
        );
        for (number, path) in HOSTILE.iter().enumerate() {
            writeln!(script, "ln -s {path} {}", planted(number)).expect("a string");
        }
        assert_eq!(host.shell(&script), "");
        host
    }

    /// What a script in the sandbox prints.
    pub(super) fn shell(&self, script: &str) -> String {
        let ran = self.client.post(&format!("{BOX}/shell"), &json!({ "script": script }));
        let ran = ran.expect(200).json();
        assert_eq!(ran["success"], true, "{script}: {ran}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    /// Every path and the link to it is refused at these doors, and a path of the sandbox's own is not.
    fn attack(&self, doors: &[Door], tried: usize) {
        let links: Vec<_> = (0..tried).map(planted).collect();
        let paths = HOSTILE[..tried].iter().copied().chain(links.iter().map(String::as_str));
        let paths: Vec<_> = paths.collect();
        let mut wrong = Vec::new();
        for (name, innocent, ask) in doors {
            if let Err(refusal) = ask(self, innocent) {
                wrong.push(format!("{name} {innocent}: {refusal}"));
            }
            for path in &paths {
                match ask(self, path) {
                    Ok(()) => wrong.push(format!("{name} {path}: it was done")),
                    Err(why) if is_clear(&why) => {}
                    Err(why) => wrong.push(format!("{name} {path}: {why}")),
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        self.assert_untouched();
    }

    /// Nothing was written anywhere, and the sandbox and its agent are as they were.
    fn assert_untouched(&self) {
        assert_eq!(self.shell(&format!("cat {FILE}")), format!("{CONTENT}\n"));
        let made = self.shell(&format!(
            "find / /tmp -xdev -name '{ATTACK}*' ! -path '{DIRECTORY}/*' 2>/dev/null; true"
        ));
        assert_eq!(made, "");
    }
}

/// Where the link to the path of this number is.
fn planted(number: usize) -> String {
    format!("/tmp/planted/{number}")
}

/// Whether a refusal says what was wrong.
fn is_clear(why: &str) -> bool {
    const REASONS: [&str; 18] = [
        "kernel file system",
        "a link of /proc to what a process has open",
        "it has no name of its own",
        "no such file",
        "No such file",
        "not found",
        "there is no",
        "no such program",
        "has no directory",
        "not a directory",
        "Not a directory",
        "is a directory",
        "permission denied",
        "Permission denied",
        "symbolic link",
        "symlink",
        // What a door that makes what is missing above says of a link.
        "File exists",
        // SFTP has no other word for a refusal.
        ": Failure",
    ];
    REASONS.iter().any(|reason| why.contains(reason))
}

/// The outcome of an answer of the API. A fault of the server is one of the test.
pub(super) fn outcome(answer: &Answer) -> Outcome {
    match answer.status {
        200..=299 => Ok(()),
        400..=499 => Err(answer.json()["message"].as_str().unwrap_or_default().to_owned()),
        _ => panic!("{} {}", answer.status, answer.text()),
    }
}

/// The same where the answer tells how a program ended.
pub(super) fn ended(answer: &Answer) -> Outcome {
    outcome(answer)?;
    let json = answer.json();
    if json["success"] == true { Ok(()) } else { Err(json.to_string()) }
}

#[test]
fn no_path_of_the_http_api_leads_out_of_a_sandbox() {
    Host::start().attack(HTTP, HOSTILE.len());
}

#[test]
fn no_path_of_the_http_api_leads_an_ordinary_user_out_either() {
    ordinary::again("doors::paths::no_path_of_the_http_api_leads_out_of_a_sandbox");
}

#[test]
fn no_path_of_json_rpc_mcp_notebooks_and_apps_leads_out_of_a_sandbox() {
    Host::start().attack(OTHERS, HOSTILE_SLOW);
}

#[test]
fn no_path_of_json_rpc_mcp_notebooks_and_apps_leads_an_ordinary_user_out_either() {
    ordinary::again(
        "doors::paths::no_path_of_json_rpc_mcp_notebooks_and_apps_leads_out_of_a_sandbox",
    );
}

#[test]
fn no_path_of_a_command_leads_out_of_a_sandbox() {
    let before = fs::metadata(agent_path()).unwrap();
    Host::start().attack(COMMANDS, HOSTILE_SLOW);
    let after = fs::metadata(agent_path()).unwrap();
    assert_eq!((before.len(), before.permissions()), (after.len(), after.permissions()));
}

#[test]
fn no_path_of_a_command_leads_an_ordinary_user_out_either() {
    ordinary::again("doors::paths::no_path_of_a_command_leads_out_of_a_sandbox");
}

#[test]
fn no_path_of_envd_leads_out_of_a_sandbox() {
    Host::start().attack(ENVD, HOSTILE.len());
}

#[test]
fn no_path_of_envd_leads_an_ordinary_user_out_either() {
    ordinary::again("doors::paths::no_path_of_envd_leads_out_of_a_sandbox");
}

#[test]
fn no_path_of_daytonas_toolbox_leads_out_of_a_sandbox() {
    Host::start().attack(DAYTONA, HOSTILE.len());
}

#[test]
fn no_path_of_daytonas_toolbox_leads_an_ordinary_user_out_either() {
    ordinary::again("doors::paths::no_path_of_daytonas_toolbox_leads_out_of_a_sandbox");
}

#[test]
fn no_path_of_a_template_a_fork_or_a_try_leads_out_of_a_sandbox() {
    Host::start().attack(MADE, HOSTILE_SLOW);
}

#[test]
fn no_path_of_a_template_a_fork_or_a_try_leads_an_ordinary_user_out_either() {
    ordinary::again("doors::paths::no_path_of_a_template_a_fork_or_a_try_leads_out_of_a_sandbox");
}

#[test]
fn no_path_of_sftp_and_scp_leads_out_of_a_sandbox() {
    let Some(host) = Host::start_with_ssh() else { return };
    host.attack(FILES_OF_SSH, HOSTILE_SLOW);
}

#[test]
fn no_path_of_sftp_and_scp_leads_an_ordinary_user_out_either() {
    ordinary::again("doors::paths::no_path_of_sftp_and_scp_leads_out_of_a_sandbox");
}

#[test]
fn artifacts_are_taken_from_no_directory_of_a_process() {
    let host = Host::start();
    let captured = |directory: &str| -> Value {
        let body = json!({
            "script": format!("mkdir -p {DIRECTORY}/made && echo $$ > {DIRECTORY}/made/output.txt"),
            "cwd": "/tmp/planted",
            "env": { "BURROW_ARTIFACTS_DIR": directory },
            "artifacts": true,
        });
        let ran = host.client.post(&format!("{BOX}/shell"), &body).expect(200).json();
        assert_eq!(ran["success"], true, "{ran}");
        ran["captured"]["artifacts"].clone()
    };
    assert_eq!(captured(&format!("{DIRECTORY}/made")).as_array().unwrap().len(), 1);
    let made = |path: &str| [path.to_owned(), format!("{path}/made")];
    let links = (0..HOSTILE_SLOW).flat_map(|number| made(&planted(number)));
    for path in HOSTILE[..HOSTILE_SLOW].iter().flat_map(|path| made(path)).chain(links) {
        let artifacts = captured(&path);
        assert!(artifacts.as_array().is_none_or(Vec::is_empty), "{path}: {artifacts}");
    }
    host.assert_untouched();
}

#[test]
fn artifacts_are_taken_from_none_of_an_ordinary_users_either() {
    ordinary::again("doors::paths::artifacts_are_taken_from_no_directory_of_a_process");
}
