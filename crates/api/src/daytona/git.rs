//! Repositories in a sandbox, by the `git` that is in it. A call is one command or two of it, and its refusal has
//! git's own words.
//!
//! Names that clients give are words of a command, and never options of it. A password is a variable of the
//! command's environment, not one of its words, which every program of the sandbox could read.

mod failure;
mod status;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::{Method, StatusCode};
use protocol::Text;
use protocol::requests::Program;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::TOOLBOX;
use super::limits::{GIT_MAX, OUTPUT_BYTES_MAX};
use super::run::{Asked, run_to_end};
use super::seat::{self, path};
use crate::body::json_response;
use crate::call::{Call, Inside};
use crate::route::{Operation, operation};
use crate::shape::{Done, Json, Nothing, Query, Raw};
use sandbox::refusal::Refusal;

pub fn operations() -> Vec<Operation> {
    let post = || Method::POST;
    let get = || Method::GET;
    let branches = "/daytona/toolbox/{sandbox}/git/branches";
    let remotes = "/daytona/toolbox/{sandbox}/git/remotes";
    let config = "/daytona/toolbox/{sandbox}/git/config";
    [
        operation(post(), "/daytona/toolbox/{sandbox}/git/clone", "daytona_clone", "Clone.", clone),
        operation(get(), "/daytona/toolbox/{sandbox}/git/status", "daytona_status", "S.", status),
        operation(post(), "/daytona/toolbox/{sandbox}/git/add", "daytona_add", "Add.", add),
        operation(
            post(),
            "/daytona/toolbox/{sandbox}/git/commit",
            "daytona_commit",
            "Commit.",
            commit,
        ),
        operation(post(), "/daytona/toolbox/{sandbox}/git/push", "daytona_push", "Push.", push),
        operation(post(), "/daytona/toolbox/{sandbox}/git/pull", "daytona_pull", "Pull.", pull),
        operation(get(), branches, "daytona_branches", "List branches.", list_branches),
        operation(post(), branches, "daytona_make_branch", "Make a branch.", make_branch),
        operation(
            Method::DELETE,
            branches,
            "daytona_remove_branch",
            "Remove a branch.",
            remove_branch,
        ),
        operation(
            post(),
            "/daytona/toolbox/{sandbox}/git/checkout",
            "daytona_checkout",
            "Check out.",
            checkout,
        ),
        operation(post(), "/daytona/toolbox/{sandbox}/git/init", "daytona_init", "Init.", init),
        operation(post(), "/daytona/toolbox/{sandbox}/git/reset", "daytona_reset", "R.", reset),
        operation(
            post(),
            "/daytona/toolbox/{sandbox}/git/restore",
            "daytona_restore",
            "Restore.",
            restore,
        ),
        operation(get(), remotes, "daytona_remotes", "List remotes.", list_remotes),
        operation(post(), remotes, "daytona_add_remote", "Add a remote.", add_remote),
        operation(get(), config, "daytona_get_config", "Read a setting.", get_config),
        operation(post(), config, "daytona_set_config", "Set a setting.", set_config),
        operation(
            post(),
            "/daytona/toolbox/{sandbox}/git/config/user",
            "daytona_git_user",
            "Say who commits.",
            configure_user,
        ),
        operation(
            post(),
            "/daytona/toolbox/{sandbox}/git/credentials",
            "daytona_git_credentials",
            "Keep a password.",
            authenticate,
        ),
    ]
    .map(|operation| operation.counted().refusing(TOOLBOX))
    .to_vec()
}

/// One command of git, as it is put together.
struct Git {
    words: Vec<String>,
    env: Vec<(Text, Text)>,
    input: Vec<u8>,
}

impl Git {
    fn new(words: &[&str]) -> Self {
        let words = ["git"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        // Its words are read, and nobody answers a question.
        let env = [("LC_ALL", "C"), ("GIT_TERMINAL_PROMPT", "0")];
        let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
        Self { words, env, input: Vec::new() }
    }

    /// In a repository.
    fn at(repository: &str, words: &[&str]) -> Self {
        let mut all = vec!["-C", repository];
        all.extend(words);
        Self::new(&all)
    }

    fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    fn option(self, is_wanted: Option<bool>, word: &str) -> Self {
        if is_wanted == Some(true) { self.word(word) } else { self }
    }

    /// A name that a client has given: no option may look like one.
    fn name(self, what: &str, name: &str) -> Result<Self, Refusal> {
        check_name(what, name)?;
        Ok(self.word(name))
    }

    fn maybe_name(self, what: &str, name: Option<&String>) -> Result<Self, Refusal> {
        match name {
            Some(name) => self.name(what, name),
            None => Ok(self),
        }
    }

    /// What follows is files alone.
    fn files(mut self, files: &[String]) -> Self {
        self.words.push("--".to_owned());
        self.words.extend_from_slice(files);
        self
    }

    /// A setting of this command that no program of the sandbox reads from its words.
    fn secretly(mut self, key: &str, value: &str) -> Self {
        let own =
            [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", key), ("GIT_CONFIG_VALUE_0", value)];
        self.env.extend(own.map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// With a name and a password for whom it speaks to.
    fn for_user(self, user: Option<&String>, password: Option<&String>) -> Self {
        let Some(password) = password.filter(|password| !password.is_empty()) else { return self };
        let user = user.map_or("", String::as_str);
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        self.secretly("http.extraHeader", &format!("Authorization: Basic {encoded}"))
    }

    /// Its exit code and what it has written.
    async fn try_run(self, call: &Call, inside: &Inside) -> Result<(i32, String, String), Refusal> {
        let Self { words, env, input } = self;
        let limit = Some(GIT_MAX);
        let asked = Asked { env, input, limit, ..Asked::of(Program::argv(words)) };
        let ran = run_to_end(call, inside, asked, OUTPUT_BYTES_MAX).await?;
        let (stdout, stderr) = (ran.outputs.stdout.into_text(), ran.outputs.stderr.into_text());
        Ok((ran.ended.shell_code(), stdout, stderr))
    }

    /// What it has written, if it has not failed.
    async fn run(self, call: &Call, inside: &Inside) -> Result<String, Refusal> {
        match self.try_run(call, inside).await? {
            (0, stdout, _) => Ok(stdout),
            (_, stdout, stderr) => Err(failure::refusal(&stdout, &stderr)),
        }
    }
}

fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.starts_with('-') || name.contains('\0') {
        return Err(Refusal::invalid(format!("{what}: {name:?} is no name")));
    }
    Ok(())
}

fn nothing(status: StatusCode) -> Raw {
    Raw(json_response(status, &Value::Null))
}

/// The bodies of calls about a repository, with its path.
macro_rules! body {
    ($name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        #[derive(Debug, Deserialize, JsonSchema)]
        struct $name {
            path: String,
            $($field: $kind,)*
        }
    };
}

body!(Clone {
    url: String,
    branch: Option<String>,
    username: Option<String>,
    password: Option<String>,
    commit_id: Option<String>,
    insecure_skip_tls: Option<bool>,
    depth: Option<u32>,
});
body!(Add { files: Vec<String> });
body!(Commit { message: String, author: String, email: String, allow_empty: Option<bool> });
body!(Push {
    username: Option<String>,
    password: Option<String>,
    branch: Option<String>,
    remote: Option<String>,
    set_upstream: Option<bool>,
});
body!(Named { name: String });
body!(Branch { branch: String });
body!(Init { bare: Option<bool>, initial_branch: Option<String> });
body!(Reset { mode: Option<String>, target: Option<String>, files: Option<Vec<String>> });
body!(Restore {
    files: Vec<String>,
    staged: Option<bool>,
    worktree: Option<bool>,
    source: Option<String>,
});
body!(Remote { name: String, url: String, fetch: Option<bool>, overwrite: Option<bool> });
body!(Repository {});

#[derive(Debug, Deserialize, JsonSchema)]
struct Setting {
    path: Option<String>,
    key: String,
    value: String,
    scope: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AskedSetting {
    path: Option<String>,
    key: String,
    scope: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct User {
    path: Option<String>,
    name: String,
    email: String,
    scope: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Credentials {
    username: String,
    password: String,
    host: Option<String>,
    protocol: Option<String>,
}

/// The sandbox of a call, and a path in it.
async fn at(call: &Call, text: &str) -> Result<(Inside, String), Refusal> {
    let inside = seat::inside(call).await?;
    let path = path(call, &inside, text).await?;
    Ok((inside, path))
}

async fn clone(call: Call, _: Nothing, Json(ask): Json<Clone>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    check_name("url", &ask.url)?;
    let mut git = match ask.insecure_skip_tls {
        Some(true) => Git::new(&["-c", "http.sslVerify=false", "clone"]),
        _ => Git::new(&["clone"]),
    };
    if let Some(branch) = ask.branch.as_ref().filter(|branch| !branch.is_empty()) {
        check_name("branch", branch)?;
        git = git.word(format!("--branch={branch}")).word("--single-branch");
    }
    if let Some(depth) = ask.depth.filter(|depth| *depth > 0) {
        git = git.word(format!("--depth={depth}"));
    }
    let git = git.for_user(ask.username.as_ref(), ask.password.as_ref());
    git.files(&[ask.url, path.clone()]).run(&call, &inside).await?;
    if let Some(commit) = ask.commit_id.as_ref().filter(|commit| !commit.is_empty()) {
        let git = Git::at(&path, &["checkout", "--quiet"]).name("commit_id", commit)?;
        git.word("--").run(&call, &inside).await?;
    }
    Ok(nothing(StatusCode::OK))
}

async fn status(call: Call, Query(ask): Query<Repository>, _: Nothing) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let words = ["status", "--porcelain=v2", "--branch", "-z"];
    let said = Git::at(&path, &words).run(&call, &inside).await?;
    Ok(Raw(json_response(StatusCode::OK, &status::shown(&said))))
}

async fn add(call: Call, _: Nothing, Json(ask): Json<Add>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    Git::at(&path, &["add"]).files(&ask.files).run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

async fn commit(call: Call, _: Nothing, Json(ask): Json<Commit>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let (name, email) = (format!("user.name={}", ask.author), format!("user.email={}", ask.email));
    let words = ["-c", &name, "-c", &email, "commit", "--quiet", "--message"];
    let git = Git::at(&path, &words).word(ask.message).option(ask.allow_empty, "--allow-empty");
    git.run(&call, &inside).await?;
    let hash = Git::at(&path, &["rev-parse", "HEAD"]).run(&call, &inside).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "hash": hash.trim() }))))
}

async fn push(call: Call, _: Nothing, Json(ask): Json<Push>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let git = Git::at(&path, &["push"]).option(ask.set_upstream, "--set-upstream");
    exchange(git, &ask)?.run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

async fn pull(call: Call, _: Nothing, Json(ask): Json<Push>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    exchange(Git::at(&path, &["pull"]), &ask)?.run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

/// With whom, and which branch. A branch alone is one of the usual remote.
fn exchange(git: Git, ask: &Push) -> Result<Git, Refusal> {
    const REMOTE_DEFAULT: &str = "origin";
    let git = git.for_user(ask.username.as_ref(), ask.password.as_ref());
    let needs_remote = ask.branch.is_some() || ask.set_upstream == Some(true);
    let git = match &ask.remote {
        Some(remote) => git.name("remote", remote)?,
        None if needs_remote => git.word(REMOTE_DEFAULT),
        None => git,
    };
    match &ask.branch {
        Some(branch) => git.name("branch", branch),
        // Git has no branch to follow yet.
        None if ask.set_upstream == Some(true) => Ok(git.word("HEAD")),
        None => Ok(git),
    }
}

async fn list_branches(
    call: Call,
    Query(ask): Query<Repository>,
    _: Nothing,
) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let words = ["branch", "--format=%(HEAD)%(refname:short)"];
    let said = Git::at(&path, &words).run(&call, &inside).await?;
    let lines = said.lines().filter_map(|line| line.split_at_checked(1));
    // A commit without a branch is in brackets.
    let lines: Vec<_> = lines.filter(|(_, name)| !name.starts_with('(')).collect();
    let branches: Vec<&str> = lines.iter().map(|(_, name)| *name).collect();
    let current = lines.iter().find(|(mark, _)| *mark == "*").map(|(_, name)| *name);
    let answer = json!({ "branches": branches, "current": current });
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

async fn make_branch(call: Call, _: Nothing, Json(ask): Json<Named>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let git = Git::at(&path, &["checkout", "--quiet", "-b"]).name("name", &ask.name)?;
    git.run(&call, &inside).await?;
    Ok(nothing(StatusCode::CREATED))
}

async fn remove_branch(call: Call, _: Nothing, Json(ask): Json<Named>) -> Result<Done, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let git = Git::at(&path, &["branch", "-D"]).name("name", &ask.name)?;
    git.run(&call, &inside).await?;
    Ok(Done)
}

async fn checkout(call: Call, _: Nothing, Json(ask): Json<Branch>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let git = Git::at(&path, &["checkout", "--quiet"]).name("branch", &ask.branch)?;
    git.word("--").run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

async fn init(call: Call, _: Nothing, Json(ask): Json<Init>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let mut git = Git::new(&["init", "--quiet"]).option(ask.bare, "--bare");
    if let Some(branch) = &ask.initial_branch {
        check_name("initial_branch", branch)?;
        git = git.word(format!("--initial-branch={branch}"));
    }
    git.files(&[path]).run(&call, &inside).await?;
    Ok(nothing(StatusCode::CREATED))
}

async fn reset(call: Call, _: Nothing, Json(ask): Json<Reset>) -> Result<Raw, Refusal> {
    const MODES: [&str; 5] = ["soft", "mixed", "hard", "merge", "keep"];
    let (inside, path) = at(&call, &ask.path).await?;
    let mut git = Git::at(&path, &["reset", "--quiet"]);
    if let Some(mode) = &ask.mode {
        if !MODES.contains(&mode.as_str()) {
            let message = format!("mode: {mode:?} must be one of {}", MODES.join(", "));
            return Err(Refusal::invalid(message));
        }
        git = git.word(format!("--{mode}"));
    }
    let git = git.maybe_name("target", ask.target.as_ref())?;
    git.files(&ask.files.unwrap_or_default()).run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

async fn restore(call: Call, _: Nothing, Json(ask): Json<Restore>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let git = Git::at(&path, &["restore"]).option(ask.staged, "--staged");
    let mut git = git.option(ask.worktree, "--worktree");
    if let Some(source) = &ask.source {
        check_name("source", source)?;
        git = git.word(format!("--source={source}"));
    }
    git.files(&ask.files).run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

/// The addresses of remotes, by their names.
async fn remotes(
    call: &Call,
    inside: &Inside,
    path: &str,
) -> Result<BTreeMap<String, String>, Refusal> {
    let said = Git::at(path, &["remote", "-v"]).run(call, inside).await?;
    let lines = said.lines().filter_map(|line| line.strip_suffix(" (fetch)")?.split_once('\t'));
    Ok(lines.map(|(name, url)| (name.to_owned(), url.to_owned())).collect())
}

async fn list_remotes(
    call: Call,
    Query(ask): Query<Repository>,
    _: Nothing,
) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    let found = remotes(&call, &inside, &path).await?;
    let shown = found.iter().map(|(name, url)| json!({ "name": name, "url": url }));
    let remotes: Vec<Value> = shown.collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "remotes": remotes }))))
}

async fn add_remote(call: Call, _: Nothing, Json(ask): Json<Remote>) -> Result<Raw, Refusal> {
    let (inside, path) = at(&call, &ask.path).await?;
    check_name("name", &ask.name)?;
    let is_there = remotes(&call, &inside, &path).await?.contains_key(&ask.name);
    let what = if is_there && ask.overwrite == Some(true) { "set-url" } else { "add" };
    let names = [ask.name.clone(), ask.url];
    Git::at(&path, &["remote", what]).files(&names).run(&call, &inside).await?;
    if ask.fetch == Some(true) {
        Git::at(&path, &["fetch", "--quiet"]).files(&[ask.name]).run(&call, &inside).await?;
    }
    Ok(nothing(StatusCode::CREATED))
}

/// A command about settings, of a scope.
async fn settings(
    call: &Call,
    scope: Option<&String>,
    repository: Option<&String>,
) -> Result<(Inside, Git), Refusal> {
    let inside = seat::inside(call).await?;
    let scope = scope.map_or("global", String::as_str);
    let git = match (scope, repository) {
        ("global", _) => Git::new(&["config", "--global"]),
        ("system", _) => Git::new(&["config", "--system"]),
        ("local", Some(text)) => {
            let path = path(call, &inside, text).await?;
            Git::at(&path, &["config", "--local"])
        }
        ("local", None) => {
            return Err(Refusal::invalid("path is missing: a local setting is a repository's"));
        }
        (other, _) => {
            let message = format!("scope: {other:?} must be global, local or system");
            return Err(Refusal::invalid(message));
        }
    };
    Ok((inside, git))
}

async fn get_config(
    call: Call,
    Query(ask): Query<AskedSetting>,
    _: Nothing,
) -> Result<Raw, Refusal> {
    /// What git ends with where there is no such setting.
    const NONE: i32 = 1;
    let (inside, git) = settings(&call, ask.scope.as_ref(), ask.path.as_ref()).await?;
    let git = git.word("--get").name("key", &ask.key)?;
    let value = match git.try_run(&call, &inside).await? {
        (0, value, _) => Some(value.trim_end_matches('\n').to_owned()),
        (NONE, _, _) => None,
        (_, stdout, stderr) => return Err(failure::refusal(&stdout, &stderr)),
    };
    Ok(Raw(json_response(StatusCode::OK, &json!({ "value": value }))))
}

async fn set_config(call: Call, _: Nothing, Json(ask): Json<Setting>) -> Result<Raw, Refusal> {
    let (inside, git) = settings(&call, ask.scope.as_ref(), ask.path.as_ref()).await?;
    git.name("key", &ask.key)?.word(ask.value).run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

async fn configure_user(call: Call, _: Nothing, Json(ask): Json<User>) -> Result<Raw, Refusal> {
    for (key, value) in [("user.name", ask.name), ("user.email", ask.email)] {
        let (inside, git) = settings(&call, ask.scope.as_ref(), ask.path.as_ref()).await?;
        git.word(key).word(value).run(&call, &inside).await?;
    }
    Ok(nothing(StatusCode::OK))
}

async fn authenticate(
    call: Call,
    _: Nothing,
    Json(ask): Json<Credentials>,
) -> Result<Raw, Refusal> {
    let (protocol, host) = (ask.protocol.as_deref(), ask.host.as_deref());
    let fields = [
        ("protocol", protocol.unwrap_or("https")),
        ("host", host.unwrap_or("github.com")),
        ("username", &ask.username),
        ("password", &ask.password),
    ];
    if let Some((name, _)) = fields.iter().find(|(_, value)| value.contains(['\n', '\0'])) {
        return Err(Refusal::invalid(format!("{name} has more than one line")));
    }
    let (inside, git) = settings(&call, None, None).await?;
    git.word("credential.helper").word("store").run(&call, &inside).await?;
    let lines: String = fields.map(|(name, value)| format!("{name}={value}\n")).concat();
    let mut git = Git::new(&["credential", "approve"]);
    git.input = format!("{lines}\n").into_bytes();
    git.run(&call, &inside).await?;
    Ok(nothing(StatusCode::OK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_an_option_and_no_password_a_word() {
        for bad in ["", "-x", "--upload-pack=touch /x", "a\0b"] {
            assert!(Git::new(&["push"]).name("remote", bad).is_err(), "{bad:?}");
        }
        let git = Git::new(&["push"]).for_user(Some(&"me".to_owned()), Some(&"secret".to_owned()));
        assert_eq!(git.words, ["git", "push"]);
        let value = git.env.last().map(|(_, value)| value.to_string());
        assert_eq!(value.as_deref(), Some("Authorization: Basic bWU6c2VjcmV0"));
        let none = Git::new(&["push"]).for_user(Some(&"me".to_owned()), None);
        assert_eq!(none.env.len(), 2);
    }

    #[test]
    fn a_branch_alone_is_one_of_the_usual_remote() {
        let words = |text: &str| {
            let ask: Push = serde_json::from_str(text).unwrap();
            exchange(Git::new(&["push"]), &ask).unwrap().words[2..].join(" ")
        };
        assert_eq!(words(r#"{"path":"/r"}"#), "");
        assert_eq!(words(r#"{"path":"/r","branch":"b"}"#), "origin b");
        assert_eq!(words(r#"{"path":"/r","remote":"up","branch":"b"}"#), "up b");
        assert_eq!(words(r#"{"path":"/r","set_upstream":true}"#), "origin HEAD");
    }
}
