//! The documented set-ups of clients: each is taken from the text as that client takes it, and what it
//! starts, or where it leads, is used.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tests::http::Client;
use tests::mcp::{Lines, VERSION, Web};
use tests::server::Server;
use tests::{Burrow, agent_path, bridge_path};

/// Where a server is in what is written, and what stands for its key.
const WRITTEN_URL: &str = "http://127.0.0.1:5555";
const WRITTEN_KEY: &str = "msb_…";
/// What `BURROW_KEY` stands for in a shell.
const KEY_VARIABLE: &str = "BURROW_KEY";
/// Clients that are configured in a shell.
const SHELL_CLIENTS: [&str; 4] = ["claude", "code", "codex", "gemini"];

/// Clients that read a file: where servers are in it, how an address is called, and whether each entry
/// says its kind.
const FILE_CLIENTS: [(&str, &str, Option<&str>, bool); 6] = [
    ("Claude Desktop", "mcpServers", None, false),
    ("Cursor", "mcpServers", Some("url"), false),
    ("VS Code", "servers", Some("url"), true),
    ("Windsurf", "mcpServers", Some("serverUrl"), false),
    ("Zed", "context_servers", Some("url"), false),
    ("Gemini CLI", "mcpServers", Some("httpUrl"), false),
];

/// What a client makes of a set-up.
#[derive(Debug, PartialEq, Eq)]
enum Launch {
    Program { command: String, arguments: Vec<String> },
    Address { url: String, headers: BTreeMap<String, String> },
}

/// A client's name and its set-up.
type Setup = (String, String);

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    fs::read_to_string(root.join(path)).expect("a text")
}

/// The rows of the tables of clients.
fn tabled() -> Vec<Setup> {
    let text = read("docs/howto/mcp.md");
    let section = text.split("## Setting it up").nth(1).expect("a section");
    let section = section.split("\n## ").next().expect("it ends");
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').splitn(3, " | ").map(str::trim).collect();
        let [client, _, what] = cells[..] else { panic!("{row} has no three cells") };
        (client.to_owned(), what.trim_matches('`').to_owned())
    })
    .collect()
}

/// The set-ups that the first page and the tutorial have in their text and blocks.
fn first_pages() -> Vec<String> {
    let texts = ["README.md", "docs/tutorial/first-figure.md"].map(read);
    let found = texts.iter().flat_map(|text| {
        let lines = text.lines().filter(|line| line.starts_with("claude "));
        let spans = text.split('`').skip(1).step_by(2);
        let is_setup = |span: &&str| !span.contains('\n') && span.contains(" mcp add ");
        lines.chain(spans.filter(is_setup))
    });
    found.map(str::to_owned).collect()
}

/// A directory of programs: the bridge, and stand-ins for the clients that print their arguments.
fn programs(dir: &Path) -> PathBuf {
    let place = dir.join("bin");
    fs::create_dir_all(&place).expect("a directory");
    symlink(bridge_path(), place.join("host-bridge")).expect("a link");
    // Where the tutorial puts it.
    let built = dir.join(".local/bin");
    fs::create_dir_all(&built).expect("a directory");
    symlink(bridge_path(), built.join("host-bridge")).expect("a link");
    for client in SHELL_CLIENTS {
        let path = place.join(client);
        fs::write(&path, "#!/bin/sh\nprintf '%s\\0' \"$0\" \"$@\"\n").expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    place
}

/// The little that clients hand on, and where this test's sandboxes are.
fn surroundings(mut command: Command, burrow: &Burrow, programs: &Path) -> Command {
    let path = std::env::var("PATH").expect("a path");
    command
        .env_clear()
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", burrow.scratch())
        .env("BURROW_RUNTIME_DIR", burrow.runtime())
        .env("BURROW_STATE_DIR", burrow.state())
        .env("BURROW_AGENT", agent_path());
    command
}

/// What a shell hands to a client.
fn replaced(line: &str, burrow: &Burrow, programs: &Path) -> Vec<String> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(burrow.scratch());
    let output = surroundings(command, burrow, programs).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    let mut words = stdout.split_terminator('\0');
    let client = words.next().and_then(|path| path.rsplit('/').next()).expect("a client");
    [client].into_iter().chain(words).map(str::to_owned).collect()
}

/// As the command lines of clients are read.
fn of_words(words: &[String]) -> Launch {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (client, rest) = match words[..] {
        ["code", "--add-mcp", entry] => {
            let entry: Value = serde_json::from_str(entry).expect("JSON");
            assert!(entry["name"].is_string(), "{entry}");
            return of_entry(&entry, Some("url"));
        }
        [client, "mcp", "add", ref rest @ ..] => (client, rest),
        _ => panic!("{words:?}"),
    };
    let (mut plain, mut headers, mut url) = (Vec::new(), BTreeMap::new(), None);
    let mut is_remote = false;
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let mut value = || *rest.next().expect("a value");
        match (client, *word) {
            ("claude" | "gemini", "--transport") => is_remote = value() == "http",
            ("claude" | "gemini", "--header") => {
                let (name, value) = value().split_once(": ").expect("a header");
                headers.insert(name.to_owned(), value.to_owned());
            }
            ("codex", "--url") => url = Some(value().to_owned()),
            ("codex", "--bearer-token-env-var") => {
                assert_eq!(value(), KEY_VARIABLE);
                headers.insert("Authorization".to_owned(), format!("Bearer {WRITTEN_KEY}"));
            }
            ("claude" | "codex", "--") => plain.extend(rest.by_ref().copied()),
            (_, option) if option.starts_with('-') => panic!("{client} knows no {option}"),
            (_, word) => plain.push(word),
        }
    }
    assert_eq!(plain.remove(0), "burrow", "the name of the server");
    if is_remote {
        url = Some(plain.remove(0).to_owned());
    }
    if let Some(url) = url {
        assert!(plain.is_empty(), "{words:?}");
        return Launch::Address { url, headers };
    }
    let command = plain.remove(0).to_owned();
    Launch::Program { command, arguments: plain.into_iter().map(str::to_owned).collect() }
}

/// As one server in a client's file is read.
fn of_entry(entry: &Value, url_field: Option<&str>) -> Launch {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    if let Some(url) = url_field.and_then(|field| entry.get(field)) {
        let headers = entry["headers"].as_object().expect("headers");
        let headers = headers.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        return Launch::Address { url: text(url), headers };
    }
    let arguments = entry["args"].as_array().expect("arguments").iter().map(text).collect();
    Launch::Program { command: text(&entry["command"]), arguments }
}

/// As a file is read by the client of that name, or by all whose file looks so.
fn of_file(client: Option<&str>, written: &str) -> Launch {
    let file: Value = serde_json::from_str(written).expect("JSON");
    let is_it = |name: &str, root: &str| match client {
        Some(client) => client == name,
        None => file.get(root).is_some(),
    };
    let row = FILE_CLIENTS.iter().find(|(name, root, ..)| is_it(name, root));
    let (name, root, url_field, says_kind) = row.unwrap_or_else(|| panic!("{client:?}: {written}"));
    let entry = file.get(root).unwrap_or_else(|| panic!("{name} looks in {root}"));
    let launch = of_entry(&entry["burrow"], *url_field);
    let kind = match launch {
        Launch::Program { .. } => "stdio",
        Launch::Address { .. } => "http",
    };
    assert!(!says_kind || entry["burrow"]["type"] == kind, "{name}: {written}");
    launch
}

fn launch(client: Option<&str>, written: &str, burrow: &Burrow, programs: &Path) -> Launch {
    if written.starts_with('{') {
        return of_file(client, written);
    }
    of_words(&replaced(written, burrow, programs))
}

/// Starts what a client would, or goes where it would, and uses it.
fn exercise(launch: Launch, burrow: &Burrow, programs: &Path) {
    let body = json!({ "code": "6 * 7" });
    let (listed, ran) = match launch {
        Launch::Program { command, arguments } => {
            let mut command = Command::new(command);
            command.args(arguments);
            let mut lines = Lines::of(surroundings(command, burrow, programs));
            assert_eq!(lines.initialize(VERSION)["serverInfo"]["name"], "burrow");
            (lines.ask("tools/list", &json!({})), lines.call("execute", &body))
        }
        Launch::Address { url, headers } => {
            let key = headers["Authorization"].strip_prefix("Bearer ").expect("a bearer");
            let root = url.strip_suffix("/mcp").expect("where MCP is");
            let mut web = Web::open(Client::new(root).key(key), VERSION);
            (web.ask("tools/list", &json!({})), web.call("execute", &body))
        }
    };
    assert!(listed["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
    assert_eq!(ran["structuredContent"]["value"], "42", "{ran}");
}

#[test]
fn every_documented_setup_works() {
    let server = Server::with_keys();
    let key = server.ok(&["keygen"]).trim().to_owned();
    let programs = programs(server.scratch());
    let mut clients = BTreeMap::new();
    for (client, written) in tabled() {
        let written = written.replace(WRITTEN_URL, server.url());
        let launch = launch(Some(&client), &written, &server, &programs);
        let launch = match launch {
            Launch::Address { url, mut headers } => {
                let real = |value: &mut String| *value = value.replace(WRITTEN_KEY, &key);
                headers.values_mut().for_each(real);
                Launch::Address { url, headers }
            }
            program @ Launch::Program { .. } => program,
        };
        let count = clients.entry(client.split(',').next().expect("a name").to_owned());
        let (programs_count, addresses_count) = count.or_insert((0, 0));
        match &launch {
            Launch::Program { .. } => *programs_count += 1,
            Launch::Address { .. } => *addresses_count += 1,
        }
        exercise(launch, &server, &programs);
    }
    assert_eq!(clients.len(), 8, "{clients:?}");
    assert!(clients.values().all(|(programs, _)| *programs > 0), "{clients:?}");
    let local: Vec<_> = clients.iter().filter(|(_, (_, addresses))| *addresses == 0).collect();
    assert_eq!(local, [(&"Claude Desktop".to_owned(), &(1, 0))], "it knows no addresses");
}

#[test]
fn the_documented_client_setup_works_without_a_daemon() {
    let burrow = Burrow::new();
    let programs = programs(burrow.scratch());
    let setups = first_pages();
    assert_eq!(setups.len(), 2, "{setups:?}");
    for written in setups {
        exercise(launch(None, &written, &burrow, &programs), &burrow, &programs);
    }
}
