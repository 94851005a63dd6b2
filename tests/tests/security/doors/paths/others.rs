//! The doors that take a path and start something for it, or have a protocol of their own: contexts,
//! notebooks, apps, new sandboxes, JSON-RPC, MCP, and commands.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;

use serde_json::{Value, json};
use tests::door::BOX;
use tests::http::Client;
use tests::mcp::{VERSION, Web, text};

use super::{DIRECTORY, Door, FILE, Host, Outcome, PROGRAM, ended, outcome};

pub(super) const OTHERS: &[Door] = &[
    ("open a context in a directory", DIRECTORY, |host, path| {
        context(host, &json!({ "language": "python", "cwd": path }))
    }),
    ("open a context by its interpreter", PROGRAM, |host, path| {
        context(host, &json!({ "language": "python", "program": path }))
    }),
    ("open a context in an environment", DIRECTORY, |host, path| {
        context(host, &json!({ "language": "python", "venv": path }))
    }),
    ("start an app in a directory", DIRECTORY, app),
    ("make a sandbox in a directory", "/usr", |host, path| {
        let made = json!({ "name": "other", "workdir": path });
        outcome(&host.client.post("/v1/sandboxes", &made))?;
        let other = "/v1/sandboxes/default/other";
        let ran = ended(&host.client.post(&format!("{other}/exec"), &json!({ "argv": ["true"] })));
        host.client.delete(&format!("{other}?force=true")).expect(200);
        ran
    }),
    ("run a notebook in a directory", "/usr", |host, path| {
        let one = "/v1/notebooks/default/attack";
        let spec = json!({ "name": "attack", "spec": { "workdir": path } });
        outcome(&host.client.post("/v1/notebooks", &spec))?;
        let ran = host.client.post(&format!("{one}/run"), &json!({ "code": "1" }));
        let done = outcome(&ran).and_then(|()| {
            let outcome_of = ran.json();
            if outcome_of["status"] == "ok" { Ok(()) } else { Err(outcome_of.to_string()) }
        });
        host.client.delete(one);
        done
    }),
    ("JSON-RPC in a directory", DIRECTORY, |host, path| {
        let params = json!({ "command": "true", "working_directory": path });
        rpc(host, "sandbox.command.run", params)
    }),
    ("JSON-RPC with a program", PROGRAM, |host, path| {
        rpc(host, "sandbox.command.run", json!({ "command": path, "args": ["--version"] }))
    }),
    ("MCP reads", FILE, |host, path| mcp(host, "read_file", json!({ "path": path }))),
    ("MCP lists", DIRECTORY, |host, path| mcp(host, "list_files", json!({ "path": path }))),
    ("MCP writes below", DIRECTORY, |host, path| {
        let path = format!("{path}/burrow-attack-mcp");
        mcp(host, "write_file", json!({ "path": path, "content": "attack" }))
    }),
    ("MCP runs in a directory", DIRECTORY, |host, path| {
        mcp(host, "shell_execute", json!({ "command": "true", "working_directory": path }))
    }),
    ("MCP runs code in an environment", DIRECTORY, |host, path| {
        mcp(host, "execute", json!({ "code": "1", "context": "attack", "venv": path }))?;
        host.client.delete(&format!("{BOX}/contexts/attack")).expect(204);
        Ok(())
    }),
    ("MCP reads a resource", FILE, |host, path| {
        let uri = format!("burrow://sandboxes/box/files{path}");
        let answer = web(host).ask("resources/read", &json!({ "uri": uri }));
        match &answer["error"] {
            Value::Null => Ok(()),
            error => Err(error.to_string()),
        }
    }),
];

pub(super) const COMMANDS: &[Door] = &[
    ("cp from", FILE, |host, path| {
        let to = host.server.scratch().join("copied");
        let done = command(host, &["cp", &format!("box:{path}"), to.to_str().unwrap()]);
        assert!(done.is_ok() || !to.exists(), "{path} was copied");
        fs::remove_file(to).ok();
        done
    }),
    ("cp an archive from", DIRECTORY, |host, path| {
        command(host, &["cp", "--tar", &format!("box:{path}"), "-"])
    }),
    ("cp to below", DIRECTORY, |host, path| {
        let from = host.server.scratch().join("burrow-attack-copied");
        fs::write(&from, "attack").unwrap();
        command(host, &["cp", from.to_str().unwrap(), &format!("box:{path}/")])
    }),
    ("cp an archive to below", DIRECTORY, |host, path| {
        let words = ["cp", "--parents", "--tar", "-", &format!("box:{path}/burrow-attack-archive")];
        outcome_of(&host.server.feed(&words, &[0; 1024]))
    }),
    ("exec -w", DIRECTORY, |host, path| command(host, &["exec", "-w", path, "box", "--", "true"])),
    ("exec a program", PROGRAM, |host, path| {
        command(host, &["exec", "box", "--", path, "--version"])
    }),
    ("run -w", "/usr", |host, path| command(host, &["run", "-w", path, "--", "true"])),
    ("start --workdir", "/usr", |host, path| {
        command(host, &["start", "--name", "started", "--workdir", path])?;
        let ran = command(host, &["exec", "started", "--", "true"]);
        host.server.ok(&["rm", "--force", "started"]);
        ran
    }),
    ("context open -w", DIRECTORY, |host, path| {
        command(host, &["context", "open", "-w", path, "box", "bash"])?;
        command(host, &["context", "close", "box", "bash"])
    }),
    ("repl --program", PROGRAM, |host, path| {
        let words = ["repl", "box", "--context", "attack", "--lang", "python", "--program", path];
        command(host, &[&words[..], &["-c", "1"]].concat())?;
        command(host, &["context", "close", "box", "attack"])
    }),
];

fn context(host: &Host, how: &Value) -> Outcome {
    let mut body = how.clone();
    body["context"] = json!("attack");
    outcome(&host.client.post(&format!("{BOX}/contexts"), &body))?;
    host.client.delete(&format!("{BOX}/contexts/attack")).expect(204);
    Ok(())
}

fn app(host: &Host, path: &str) -> Outcome {
    let body = json!({ "name": "attack", "type": "command", "workdir": path,
        "command": "exec python3 -m http.server --bind 127.0.0.1 $PORT" });
    outcome(&host.client.post(&format!("{BOX}/apps"), &body))?;
    host.client.delete(&format!("{BOX}/apps/attack")).expect(204);
    Ok(())
}

fn rpc(host: &Host, method: &str, mut params: Value) -> Outcome {
    params["sandbox"] = json!("box");
    params["namespace"] = json!("default");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let answer = host.client.post("/api/v1/rpc", &body).json();
    let done = answer["error"].is_null() && answer["result"]["success"] == true;
    if done { Ok(()) } else { Err(answer.to_string()) }
}

fn web(host: &Host) -> Web {
    Web::open(Client::new(host.server.url()), VERSION)
}

fn mcp(host: &Host, tool: &str, mut arguments: Value) -> Outcome {
    arguments["sandbox"] = json!("box");
    let result = web(host).call(tool, &arguments);
    if result["isError"] == false { Ok(()) } else { Err(text(&result)) }
}

pub(super) fn command(host: &Host, words: &[&str]) -> Outcome {
    outcome_of(&host.server.run(words))
}

fn outcome_of(output: &std::process::Output) -> Outcome {
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
