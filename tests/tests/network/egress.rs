//! What a sandbox may reach, and what it cannot: real programs in real sandboxes, whose bridge is in an
//! internet of the test's own. What is reached is seen at the servers' end, and not only in what a
//! program in the sandbox says of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod asleep;
mod bounds;
mod changes;
mod defaults;
mod flow;
mod host_packages;
mod life;
mod lookups;

mod machines;
mod packages;
mod programs;
mod requests;
mod secrets;
mod trust;
mod unreached;

use std::process::Output;

use serde_json::{Value, json};
use tests::eventually;
use tests::http::Client;
use tests::internet::Internet;
use tests::server::Server;

/// Where the sandbox has the certificate of the web's authority.
const AUTHORITY: &str = "/var/authority.pem";
/// What programs call the place of that.
const ITS_VARIABLES: [&str; 7] = [
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "GIT_SSL_CAINFO",
];
const NAME: &str = "a";

/// An internet, a bridge in it, and sandboxes.
struct Scene {
    server: Server,
    internet: Internet,
}

/// A program's output, and how it ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Self { code: output.status.code(), stdout, stderr }
    }
}

impl Ran {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    #[track_caller]
    fn fails(self) -> Self {
        assert_ne!(self.code, Some(0), "{self:?}");
        self
    }
}

impl Scene {
    /// With one sandbox that may reach this, if there can be an internet here.
    fn or_skip(rules: &[&str]) -> Option<Self> {
        Self::with(rules, &[])
    }

    /// The same with options of the bridge.
    fn with(rules: &[&str], options: &[&str]) -> Option<Self> {
        let internet = Internet::or_skip()?;
        let scene = Self { server: internet.bridge(options), internet };
        scene.create(NAME, rules);
        Some(scene)
    }

    fn client(&self) -> Client {
        Client::new(self.server.url())
    }

    fn create(&self, name: &str, rules: &[&str]) {
        self.client().post("/v1/sandboxes", &json!({ "name": name, "egress": rules })).expect(201);
        self.keep_authority(name);
    }

    /// Gives a sandbox the certificate of the web's authority.
    fn keep_authority(&self, name: &str) {
        let keep = ["exec", "-i", name, "--", "sh", "-c", &format!("cat > {AUTHORITY}")];
        let stored = self.server.feed(&keep, &self.internet.authority());
        assert!(stored.status.success(), "{stored:?}");
    }

    /// Runs a script in a sandbox.
    fn run(&self, script: &str) -> Ran {
        self.run_in(NAME, script, &[])
    }

    fn run_in(&self, name: &str, script: &str, variables: &[(&str, &str)]) -> Ran {
        let arguments = arguments(name, script, variables);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.server.run(&arguments).into()
    }

    /// The same with `code` for Python on its standard input.
    fn python(&self, code: &str) -> Ran {
        self.python_in(NAME, code)
    }

    fn python_in(&self, name: &str, code: &str) -> Ran {
        let mut arguments = arguments(name, "exec python3 -", &[]);
        arguments.insert(1, "-i".to_owned());
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.server.feed(&arguments, code.as_bytes()).into()
    }

    /// The records of what was decided.
    fn audited(&self) -> Vec<Value> {
        let output = self.server.ok(&["audit", "--json", "-n", "100000"]);
        output
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|record| {
                record["operation"].as_str().is_some_and(|what| what.starts_with("egress."))
            })
            .collect()
    }

    /// Waits for a record that is like this.
    #[track_caller]
    fn is_audited(&self, what: &str, mut is_it: impl FnMut(&Value) -> bool) {
        eventually(&format!("it is audited: {what}"), || self.audited().iter().any(&mut is_it));
    }

    /// A refusal of this host is audited, whose reason has these words.
    #[track_caller]
    fn is_refused(&self, host: &str, why: &str) {
        self.is_audited(&format!("{host} is refused: {why}"), |record| {
            record["outcome"] == "refused"
                && record["facts"]["host"] == host
                && record["facts"]["why"].as_str().is_some_and(|output| output.contains(why))
        });
    }

    /// Nothing else was reached than what is on the internet.
    #[track_caller]
    fn only_the_internet_was_reached(&self) {
        for address in self.internet.reached() {
            assert!(
                address.starts_with("93.184.216.") || address.starts_with("2606:2800:"),
                "{address} was reached: {:?}",
                self.internet.requests()
            );
        }
    }
}

fn arguments(name: &str, script: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let of_authority = ITS_VARIABLES.iter().map(|variable| format!("{variable}={AUTHORITY}"));
    let more = variables.iter().map(|(variable, value)| format!("{variable}={value}"));
    let mut arguments = vec!["exec".to_owned()];
    for variable in of_authority.chain(more) {
        arguments.extend(["-e".to_owned(), variable]);
    }
    arguments.extend([name, "--", "sh", "-c", script].map(str::to_owned));
    arguments
}

/// The variables that name the proxy to programs.
const PROXY: [(&str, &str); 4] = [
    ("http_proxy", "http://198.18.0.1:3128"),
    ("https_proxy", "http://198.18.0.1:3128"),
    // Node's own client looks for it only on request.
    ("NODE_USE_ENV_PROXY", "1"),
    ("npm_config_proxy", "http://198.18.0.1:3128"),
];
