//! The doors that speak another server's protocol and take a path: E2B's envd, Daytona's toolbox; and the sandboxes that are made of others: templates, forks, tries.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::io::Read as _;

use serde_json::{Value, json};
use tests::door::BOX;
use tests::http::Answer;

use super::http::{below, prepare};
use super::others::command;
use super::{DIRECTORY, Door, FILE, Host, Outcome, ended, outcome};

/// Where envd listens in a sandbox of E2B's.
const ENVD_PORT: &str = "49983";
/// Basic authentication of `root`, who is in every sandbox.
const AS_ROOT: &str = "Basic cm9vdDo=";
/// The envelope `{"start":{}}`.
const FIRST_BYTES: usize = 5 + 12;

pub(super) const ENVD: &[Door] = &[
    ("envd reads", FILE, |host, path| {
        outcome(&envd(host, "GET", &format!("/files?path={path}&username=root"), &[], OCTETS))
    }),
    ("envd writes below", DIRECTORY, |host, path| {
        let file = format!("/files?path={path}/burrow-attack-envd&username=root");
        outcome(&envd(host, "POST", &file, b"attack", OCTETS))
    }),
    ("envd stats below", DIRECTORY, |host, path| {
        files(host, "Stat", &json!({ "path": format!("{path}/file") }))
    }),
    ("envd lists", DIRECTORY, |host, path| {
        files(host, "ListDir", &json!({ "path": path, "depth": 1 }))
    }),
    ("envd makes a directory below", DIRECTORY, |host, path| {
        let made = format!("{}-envd-directory", below(path));
        files(host, "MakeDir", &json!({ "path": made }))?;
        files(host, "Remove", &json!({ "path": made }))
    }),
    ("envd moves from below", DIRECTORY, |host, path| {
        prepare(host);
        let to = "/tmp/innocent/moved-envd";
        files(host, "Move", &json!({ "source": below(path), "destination": to }))
    }),
    ("envd moves below", DIRECTORY, |host, path| {
        prepare(host);
        let to = format!("{}-moved-envd", below(path));
        files(host, "Move", &json!({ "source": below(DIRECTORY), "destination": to }))
    }),
    ("envd removes below", DIRECTORY, |host, path| {
        prepare(host);
        let gone = below(path);
        files(host, "Stat", &json!({ "path": gone }))?;
        files(host, "Remove", &json!({ "path": gone }))
    }),
    ("envd keeps a watch", DIRECTORY, |host, path| {
        let made = rpc(host, "filesystem.Filesystem/CreateWatcher", &json!({ "path": path }));
        outcome(&made)?;
        let watcher = json!({ "watcherId": made.json()["watcherId"] });
        files(host, "RemoveWatcher", &watcher)
    }),
    ("envd streams a watch", DIRECTORY, |host, path| {
        let ask = enveloped(&json!({ "path": path }));
        let call = "/filesystem.Filesystem/WatchDir";
        let headers = headers(host, STREAM);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // The first message of a watch says that it has begun; what follows has no end.
        let mut answer = host.client.open("POST", call, &headers, &ask);
        let mut first = [0; FIRST_BYTES];
        answer.read_exact(&mut first).unwrap();
        if first.ends_with(b"{\"start\":{}}") {
            return Ok(());
        }
        let mut words = first.to_vec();
        answer.read_to_end(&mut words).unwrap();
        Err(String::from_utf8_lossy(&words).into_owned())
    }),
    ("envd starts a program in a directory", DIRECTORY, |host, path| {
        let process = json!({ "cmd": "/bin/true", "args": [], "cwd": path });
        let ask = enveloped(&json!({ "process": process }));
        let answer = envd(host, "POST", "/process.Process/Start", &ask, STREAM);
        let words = String::from_utf8_lossy(&answer.body).into_owned();
        let is_done = words.contains("exit status 0");
        if is_done { Ok(()) } else { Err(words) }
    }),
];

pub(super) const DAYTONA: &[Door] = &[
    ("daytona lists", DIRECTORY, |host, path| toolbox(host, "GET", &at("files", path))),
    ("daytona stats below", DIRECTORY, |host, path| {
        toolbox(host, "GET", &at("files/info", &format!("{path}/file")))
    }),
    ("daytona downloads", FILE, |host, path| toolbox(host, "GET", &at("files/download", path))),
    ("daytona uploads below", DIRECTORY, upload),
    ("daytona makes a directory below", DIRECTORY, |host, path| {
        let made = format!("{}-daytona-directory", below(path));
        toolbox(host, "POST", &(at("files/folder", &made) + "&mode=755"))?;
        toolbox(host, "DELETE", &(at("files", &made) + "&recursive=true"))
    }),
    ("daytona moves from below", DIRECTORY, |host, path| {
        prepare(host);
        let ends = format!("source={}&destination=/tmp/innocent/moved-daytona", below(path));
        toolbox(host, "POST", &format!("files/move?{ends}"))?;
        host.shell("rm /tmp/innocent/moved-daytona");
        Ok(())
    }),
    ("daytona removes below", DIRECTORY, |host, path| {
        prepare(host);
        toolbox(host, "DELETE", &at("files", &below(path)))
    }),
    ("daytona sets rights below", DIRECTORY, |host, path| {
        let of = at("files/permissions", &format!("{path}/file"));
        toolbox(host, "POST", &(of + "&mode=644"))
    }),
    ("daytona finds", DIRECTORY, |host, path| {
        toolbox(host, "GET", &(at("files/find", path) + "&pattern=innocent"))
    }),
    ("daytona searches", DIRECTORY, |host, path| {
        toolbox(host, "GET", &(at("files/search", path) + "&pattern=*"))
    }),
    ("daytona runs in a directory", DIRECTORY, |host, path| {
        let ask = json!({ "command": "true", "cwd": path });
        let ran = tool(host, "POST", "process/execute", Some(&ask));
        outcome(&ran)?;
        if ran.json()["exitCode"] == 0 { Ok(()) } else { Err(ran.text()) }
    }),
    ("daytona opens a terminal in a directory", DIRECTORY, |host, path| {
        // The name of a terminal that could not begin is not given again.
        let id = format!("p{}", path.replace(['/', '.'], "_"));
        let ask = json!({ "id": id, "cwd": path });
        outcome(&tool(host, "POST", "process/pty", Some(&ask)))?;
        toolbox(host, "DELETE", &format!("process/pty/{id}"))
    }),
    ("daytona opens a context in a directory", DIRECTORY, |host, path| {
        let made = tool(host, "POST", "process/interpreter/context", Some(&json!({ "cwd": path })));
        outcome(&made)?;
        let context = made.json()["id"].as_str().unwrap().to_owned();
        toolbox(host, "DELETE", &format!("process/interpreter/context/{context}"))
    }),
];

pub(super) const MADE: &[Door] = &[
    ("a template in a directory", "/usr", |host, path| {
        let template = "/v1/templates/default/attack";
        let ask = json!({ "workdir": path, "start": "exec sleep 600" });
        outcome(&host.client.send_json("PUT", template, &ask))?;
        let made = json!({ "name": "other", "template": "attack" });
        let done = start_of(&host.client.post("/v1/sandboxes", &made)).and_then(|()| {
            let ran =
                ended(&host.client.post(&format!("{OTHER}/exec"), &json!({ "argv": ["true"] })));
            remove_other(host);
            ran
        });
        outcome(&host.client.delete(template))?;
        done
    }),
    ("a fork runs in a directory", DIRECTORY, |host, path| {
        outcome(&host.client.post(&format!("{BOX}/fork"), &json!({ "names": ["other"] })))?;
        let ask = json!({ "argv": ["true"], "cwd": path });
        let ran = ended(&host.client.post(&format!("{OTHER}/exec"), &ask));
        remove_other(host);
        ran
    }),
    ("try -w", DIRECTORY, |host, path| command(host, &["try", "-w", path, "box", "--", "true"])),
];

pub(super) const FILES_OF_SSH: &[Door] = &[
    ("sftp gets", FILE, |host, path| sftp(host, &format!("get {path} got"))),
    ("sftp puts below", DIRECTORY, |host, path| {
        sftp(host, &format!("put known_hosts {path}/burrow-attack-sftp"))
    }),
    ("sftp enters", DIRECTORY, |host, path| sftp(host, &format!("cd {path}"))),
    ("sftp makes a directory below", DIRECTORY, |host, path| {
        let made = format!("{}-sftp-directory", below(path));
        sftp(host, &format!("mkdir {made}\nrmdir {made}"))
    }),
    ("sftp renames from below", DIRECTORY, |host, path| {
        prepare(host);
        sftp(host, &format!("rename {} /tmp/innocent/moved-sftp", below(path)))?;
        host.shell("rm /tmp/innocent/moved-sftp");
        Ok(())
    }),
    ("sftp removes below", DIRECTORY, |host, path| {
        prepare(host);
        sftp(host, &format!("rm {}", below(path)))
    }),
    ("sftp sets rights below", DIRECTORY, |host, path| {
        sftp(host, &format!("chmod 644 {path}/file"))
    }),
    ("scp from", FILE, |host, path| scp(host, &[&format!("box@burrow:{path}"), "got"])),
    ("scp to below", DIRECTORY, |host, path| {
        scp(host, &["known_hosts", &format!("box@burrow:{path}/burrow-attack-scp")])
    }),
];

const OTHER: &str = "/v1/sandboxes/default/other";
const OCTETS: &str = "application/octet-stream";
const JSON: &str = "application/json";
const STREAM: &str = "application/connect+json";

fn remove_other(host: &Host) {
    host.client.delete(&format!("{OTHER}?force=true")).expect(200);
}

/// What a start says, which may be the server's word for a program that could not be started.
fn start_of(answer: &Answer) -> Outcome {
    match answer.status {
        200..=299 => Ok(()),
        _ => Err(answer.text()),
    }
}

fn headers(host: &Host, kind: &str) -> [(&'static str, String); 4] {
    [
        ("e2b-sandbox-id", host.id.clone()),
        ("e2b-sandbox-port", ENVD_PORT.to_owned()),
        ("authorization", AS_ROOT.to_owned()),
        ("content-type", kind.to_owned()),
    ]
}

fn envd(host: &Host, method: &str, call: &str, body: &[u8], kind: &str) -> Answer {
    let headers = headers(host, kind);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    host.client.send(method, call, &headers, body)
}

fn rpc(host: &Host, call: &str, ask: &Value) -> Answer {
    envd(host, "POST", &format!("/{call}"), ask.to_string().as_bytes(), JSON)
}

fn files(host: &Host, call: &str, ask: &Value) -> Outcome {
    outcome(&rpc(host, &format!("filesystem.Filesystem/{call}"), ask))
}

/// A message of a stream of Connect's.
fn enveloped(ask: &Value) -> Vec<u8> {
    let message = ask.to_string();
    let bytes = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &bytes, message.as_bytes()].concat()
}

fn at(call: &str, path: &str) -> String {
    format!("{call}?path={path}")
}

fn tool(host: &Host, method: &str, call: &str, ask: Option<&Value>) -> Answer {
    let path = format!("/daytona/toolbox/{}/{call}", host.id);
    match ask {
        Some(ask) => host.client.send_json(method, &path, ask),
        None => host.client.send(method, &path, &[], &[]),
    }
}

fn toolbox(host: &Host, method: &str, call: &str) -> Outcome {
    outcome(&tool(host, method, call, None))
}

fn upload(host: &Host, path: &str) -> Outcome {
    let part = |name: &str, more: &str, content: &str| {
        let head = format!("content-disposition: form-data; name=\"{name}\"{more}");
        format!("--edge\r\n{head}\r\n\r\n{content}\r\n")
    };
    let body = part("files[0].path", "", &format!("{path}/burrow-attack-daytona"))
        + &part("files[0].file", "; filename=\"file\"", "attack")
        + "--edge--\r\n";
    let call = format!("/daytona/toolbox/{}/files/bulk-upload", host.id);
    let kind = [("content-type", "multipart/form-data; boundary=edge")];
    outcome(&host.client.send("POST", &call, &kind, body.as_bytes()))
}

fn sftp(host: &Host, lines: &str) -> Outcome {
    let ssh = host.ssh();
    std::fs::write(ssh.path("batch"), lines).unwrap();
    ssh_outcome(ssh.program("sftp", &["-b", "batch", "box@burrow"]))
}

fn scp(host: &Host, words: &[&str]) -> Outcome {
    ssh_outcome(host.ssh().program("scp", words))
}

fn ssh_outcome(mut program: std::process::Command) -> Outcome {
    let output = program.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
