//! Stages, step by step.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::blocking::block;
use super::config::ImageConfig;
use super::plan::From;
use super::{BuildError, BuildEvent, BuildOptions, Plan, StepError, run};
use image::copy::{self, CopyError, Root, Task};
use image::digest::Digest;
use image::dockerfile::pattern::Ignore;
use image::dockerfile::{Command, Copy, Fault, Instruction, Step, Text, words};
use image::document::Platform;
use image::store::Lease;
use image::{Image, ImageError, Images};

/// Part of every step's key: changing it invalidates cached steps.
const VERSION: u32 = 1;
/// The users and groups of an image, and how much of these files is read.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;

/// The current state of a stage.
#[derive(Clone)]
struct State {
    base: Option<Arc<Lease>>,
    config: ImageConfig,
    args: BTreeMap<String, String>,
    /// Whether this recipe has set the command, not its base image.
    is_cmd_own: bool,
}

/// Builds the stages of a plan, in their order.
pub(super) async fn build_all(plan: &Plan, options: &BuildOptions) -> Result<Image, BuildError> {
    let stages = &plan.recipe.stages;
    let of = plan.stages.iter().map(|at| stages[*at].steps.len() + 1).sum();
    let mut done: BTreeMap<usize, State> = BTreeMap::new();
    let mut number = 0;
    for name in plan.unused() {
        let text = format!("--build-arg {name}: the recipe has no such ARG");
        options.report(BuildEvent::Warning(text)).await;
    }
    let mut last = None;
    for &at in &plan.stages {
        let stage = &stages[at];
        number += 1;
        options.report(BuildEvent::Step { number, of, text: stage.text.clone() }).await;
        let begun = begin(plan, options, at, &done).await;
        let mut state = begun.map_err(|source| plan.wrong(stage.line, source))?;
        for step in &stage.steps {
            number += 1;
            options.report(BuildEvent::Step { number, of, text: step.text.clone() }).await;
            let current = CurrentStep { plan, options, at, done: &done, step };
            let stepped = current.carry_out(&mut state).await;
            stepped.map_err(|source| plan.wrong(step.line, source))?;
        }
        last = Some((at, state.clone()));
        done.insert(at, state);
    }
    let (at, state) = last.expect("the target is always built");
    let finished = finish(plan, options, state).await;
    finished.map_err(|source| plan.wrong(stages[at].line, source))
}

async fn begin(
    plan: &Plan,
    options: &BuildOptions,
    at: usize,
    done: &BTreeMap<usize, State>,
) -> Result<State, StepError> {
    let args = BTreeMap::new();
    Ok(match &plan.from[at] {
        // Settings of a stage apply to stages that continue from it.
        From::Stage(at) => State { is_cmd_own: false, ..done[at].clone() },
        From::Scratch => {
            let Platform { architecture, os } = Platform::host();
            let config = ImageConfig::empty(&architecture, &os);
            State { base: None, config, args, is_cmd_own: false }
        }
        From::Image(name) => {
            let (lease, mut config) = find(&options.images, name).await?;
            for trigger in config.take_triggers() {
                let text = format!(
                    "{name} has the trigger `{trigger}` for builds on it, which is not run"
                );
                options.report(BuildEvent::Warning(text)).await;
            }
            State { base: Some(Arc::new(lease)), config, args, is_cmd_own: false }
        }
    })
}

/// An image of the store, held.
async fn find(images: &Images, name: &str) -> Result<(Lease, ImageConfig), StepError> {
    let (images, name) = (images.clone(), name.to_owned());
    block(move || {
        let image = images.find(&name).map_err(|error| match error {
            ImageError::NotFound { .. } => StepError::NoImage { image: name },
            error => error.into(),
        })?;
        let lease = images.lease(&image)?;
        let config = ImageConfig::of(images.document(&image)?, image.layers.len());
        Ok((lease, config))
    })
    .await
}

async fn finish(plan: &Plan, options: &BuildOptions, mut state: State) -> Result<Image, StepError> {
    for (name, value) in &plan.request.labels {
        state.config.insert("Labels", name, json!(value));
    }
    let (images, names) = (options.images.clone(), plan.request.names.clone());
    let source = format!("build of {}", plan.request.context.display());
    block(move || {
        let base = state.base.as_ref().map(|lease| &lease.image);
        let (bench, document) = (images.workbench()?, state.config.0);
        let lease = images.put_on(&bench, base, None, document, &names, &source)?;
        Ok(lease.image.clone())
    })
    .await
}

/// A step that is being carried out.
struct CurrentStep<'a> {
    plan: &'a Plan,
    options: &'a BuildOptions,
    /// The stage.
    at: usize,
    done: &'a BTreeMap<usize, State>,
    step: &'a Step,
}

impl CurrentStep<'_> {
    async fn carry_out(&self, state: &mut State) -> Result<(), StepError> {
        match &self.step.what {
            Instruction::Run(command) => return self.run(state, command).await,
            Instruction::Copy(copy) => return self.copy(state, copy).await,
            Instruction::Workdir(to) => return self.workdir(state, to).await,
            Instruction::Arg(all) => {
                for (name, usual) in all {
                    let usual = usual.as_ref().map(|text| self.expand(state, text)).transpose()?;
                    let before = || self.plan.before.get(name).cloned();
                    let value = self.plan.argument(name).or(usual).or_else(before);
                    if let Some(value) = value {
                        state.args.insert(name.clone(), value);
                    }
                }
            }
            Instruction::Env(all) => {
                // An instruction sees only the variables from before it.
                let before = state.clone();
                for (name, value) in all {
                    let name = self.expand(&before, name)?;
                    state.config.set_env(&name, &self.expand(&before, value)?);
                }
            }
            Instruction::Label(all) => {
                for (name, value) in all {
                    let (name, value) = (self.expand(state, name)?, self.expand(state, value)?);
                    state.config.insert("Labels", &name, json!(value));
                }
            }
            Instruction::User(user) => {
                let user = self.expand(state, user)?;
                state.config.set("User", user);
            }
            Instruction::StopSignal(text) => {
                let value = self.expand(state, text)?;
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '-';
                if value.is_empty() || !value.chars().all(is_word) {
                    return Err(StepError::Value { what: "signal", value });
                }
                state.config.set("StopSignal", value);
            }
            Instruction::Expose(ports) => {
                for port in ports {
                    let port = self.expand(state, port)?;
                    state.config.expose(&port)?;
                }
            }
            Instruction::Volume(all) => {
                for volume in all {
                    let volume = self.expand(state, volume)?;
                    state.config.insert("Volumes", &volume, json!({}));
                }
            }
            Instruction::Shell(shell) => state.config.set("Shell", shell.clone()),
            Instruction::Cmd(command) => {
                let argv = state.config.argv(command);
                state.config.set("Cmd", argv);
                state.is_cmd_own = true;
            }
            Instruction::Entrypoint(command) => {
                let argv = state.config.argv(command);
                state.config.set("Entrypoint", argv);
                // The arguments of another program are no use to this one.
                if !state.is_cmd_own {
                    state.config.set("Cmd", json!(null));
                }
            }
        }
        state.config.add_history(&self.step.text, false);
        Ok(())
    }

    fn expand(&self, state: &State, text: &str) -> Result<String, Fault> {
        words::expand(text, self.plan.recipe.escape, &known(state))
    }

    /// Where in an image a path relative to the working directory is.
    fn place(&self, state: &State, text: &str) -> Result<String, Fault> {
        let to = self.expand(state, text)?;
        Ok(if to.starts_with('/') { to } else { format!("{}/{to}", state.config.workdir()) })
    }

    /// A file of the recipe with its variables filled in.
    fn text(&self, state: &State, text: &Text) -> Result<copy::Text, Fault> {
        let content = if text.expands {
            words::expand_text(&text.content, self.plan.recipe.escape, &known(state))?
        } else {
            text.content.clone()
        };
        Ok(copy::Text { name: text.name.clone(), content })
    }

    /// The key of a step: the previous image, the environment, the instruction, and its input.
    fn key(&self, state: &State, what: &serde_json::Value) -> Digest {
        let base = state.base.as_ref().map(|lease| lease.image.digest.to_string());
        let all = json!([VERSION, base, state.config.0, self.step.text, what]);
        Digest::of(all.to_string().as_bytes())
    }

    async fn workdir(&self, state: &mut State, to: &str) -> Result<(), StepError> {
        let to = copy::clean(&self.place(state, to)?);
        state.config.set("WorkingDir", to.clone());
        let user = state.config.user();
        let layer = move |root: &Root, file: &Path| {
            if root.has_directory(&to)? {
                return Ok(None);
            }
            let whose = user.map_or(Ok((0, 0)), |user| owner(root, &user))?;
            let mut layer = copy::Layer::new(root, file)?;
            layer.directory(&to, whose)?;
            Ok(Some(layer.finish()?))
        };
        self.layer(state, layer).await
    }

    async fn copy(&self, state: &mut State, copy: &Copy) -> Result<(), StepError> {
        let plan = self.plan;
        let expand = |text: &String| self.expand(state, text);
        let sources = copy.sources.iter().map(expand).collect::<Result<Vec<_>, _>>()?;
        let to = self.place(state, &copy.to)?;
        let texts = copy.texts.iter().map(|text| self.text(state, text));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let unpacks = copy.adds;
        let exclude = copy.exclude.iter().map(expand).collect::<Result<Vec<_>, _>>()?;
        let exclude = Ignore::new(exclude.iter().map(String::as_str))?;
        let chown = copy.chown.as_ref().map(expand).transpose()?;
        let mode = copy.chmod.as_ref().map(expand).transpose()?;
        let bad = |value: &String| StepError::Value { what: "mode", value: value.clone() };
        let parse = |text: &String| {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
            mode.ok_or_else(|| bad(text))
        };
        let mode = mode.as_ref().map(parse).transpose()?;
        let from = copy.from.as_ref().map(|name| plan.source(self.at, name));
        let (held, ignore) = match from {
            None => (None, Some(Arc::clone(&plan.ignore))),
            Some(From::Image(name)) => {
                (Some(Arc::new(find(&self.options.images, &name).await?.0)), None)
            }
            Some(From::Stage(at)) => (self.done[&at].base.clone(), None),
            Some(From::Scratch) => (None, None),
        };
        let place = match (&held, &ignore) {
            (Some(lease), _) => lease.root.clone(),
            (None, Some(_)) => plan.request.context.clone(),
            (None, None) => {
                let path = sources.first().cloned().unwrap_or_default();
                return Err(CopyError::NoSource { path }.into());
            }
        };
        let layer = move |root: &Root, file: &Path| {
            let _held = held;
            let owner = chown.as_ref().map(|text| owner(root, text)).transpose()?;
            let from = Root::open(&place)?;
            let (sources, to) = (sources.as_slice(), to.as_str());
            let mut layer = copy::Layer::new(root, file)?;
            let ignore = ignore.as_deref();
            let (from, texts, exclude) = (&from, texts.as_slice(), &exclude);
            let task = Task { from, ignore, exclude, sources, to, texts, owner, mode, unpacks };
            layer.copy(&task)?;
            Ok(Some(layer.finish()?))
        };
        self.layer(state, layer).await
    }

    /// Adds the layer that `write` makes of the root, unless an earlier build has made it.
    async fn layer(
        &self,
        state: &mut State,
        write: impl FnOnce(&Root, &Path) -> Result<Option<Digest>, StepError> + Send + 'static,
    ) -> Result<(), StepError> {
        let (images, before) = (self.options.images.clone(), state.clone());
        let (no_cache, text) = (self.plan.request.no_cache, self.step.text.clone());
        let base = state.base.clone();
        let written = block(move || {
            let bench = images.workbench()?;
            let empty = bench.path().join("empty");
            std::fs::create_dir(&empty).map_err(CopyError::Write)?;
            let root = Root::open(base.as_ref().map_or(&empty, |lease| &lease.root))?;
            let file = bench.path().join("layer.tar");
            let key = write(&root, &file)?;
            Ok(key.map(|key| (bench, file, key)))
        });
        let Some((bench, file, files)) = written.await? else {
            state.config.add_history(&self.step.text, false);
            return Ok(());
        };
        let key = self.key(&before, &json!(files));
        if !no_cache && self.known(state, key).await? {
            return Ok(());
        }
        let mut config = state.config.clone();
        config.add_history(&text, true);
        let (images, base) = (self.options.images.clone(), state.base.clone());
        let put = block(move || {
            let base = base.as_ref().map(|lease| &lease.image);
            let lease = images.put_on(&bench, base, Some(&file), config.0.clone(), &[], &text)?;
            images.step_is(&key, &lease.image)?;
            Ok(lease)
        });
        let lease = put.await?;
        self.continue_with(state, lease).await
    }

    /// Continues with an image and its configuration: keys of later steps depend on it, whether it was made
    /// now or before.
    async fn continue_with(&self, state: &mut State, lease: Lease) -> Result<(), StepError> {
        let images = self.options.images.clone();
        let read = block(move || {
            let config = ImageConfig::of(images.document(&lease.image)?, lease.image.layers.len());
            Ok((lease, config))
        });
        let (lease, config) = read.await?;
        (state.base, state.config) = (Some(Arc::new(lease)), config);
        Ok(())
    }

    /// Continues with the cached result of the step.
    async fn known(&self, state: &mut State, key: Digest) -> Result<bool, StepError> {
        let images = self.options.images.clone();
        let found = block(move || Ok(images.step_done(&key)?));
        let Some(lease) = found.await? else { return Ok(false) };
        self.continue_with(state, lease).await?;
        self.options.report(BuildEvent::Known).await;
        Ok(true)
    }

    async fn run(&self, state: &mut State, command: &Command) -> Result<(), StepError> {
        let base = state.base.clone().ok_or(StepError::Empty)?;
        let argv = state.config.argv(command);
        let mut env = state.config.env();
        let is_set = |name: &String| env.iter().any(|(known, _)| known == name);
        let args = state.args.iter().filter(|(name, _)| !is_set(name));
        let args: Vec<_> = args.map(|(name, value)| (name.clone(), value.clone())).collect();
        let egress = &self.plan.request.egress;
        let key = self.key(state, &json!([argv, args, egress]));
        if !self.plan.request.no_cache && self.known(state, key).await? {
            return Ok(());
        }
        env.extend(args);
        let mut config = state.config.clone();
        let (cwd, user) = (config.workdir(), config.user());
        config.add_history(&self.step.text, true);
        let program = run::Command { argv, env, cwd, user, egress: egress.clone() };
        let text = self.step.text.clone();
        let document = config.0.clone();
        let lease = run::run(self.options, base, program, document, text, key).await?;
        self.continue_with(state, lease).await
    }
}

/// The values of variables: the image's environment, then the build's arguments.
fn known(state: &State) -> impl Fn(&str) -> Option<String> + '_ {
    let env = state.config.env();
    move |name| {
        let set = env.iter().find(|(known, _)| known == name);
        set.map(|(_, value)| value.clone()).or_else(|| state.args.get(name).cloned())
    }
}

/// The ids of `user:group` in an image.
fn owner(root: &Root, text: &str) -> Result<(u32, u32), StepError> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let field = |file: &str, name: &str, at: usize| {
        let text = root.read(file, ACCOUNTS_BYTES_MAX)?;
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(at)?.parse::<u32>().ok()
    };
    let unknown = |what, name: &str| StepError::Account { what, name: name.to_owned() };
    let uid = user.parse().ok().or_else(|| field(USERS, user, 2));
    let uid = uid.ok_or_else(|| unknown("user", user))?;
    let gid = match group {
        Some(group) => group.parse().ok().or_else(|| field(GROUPS, group, 2)),
        // A number alone is that of both.
        None if user.parse::<u32>().is_ok() => Some(uid),
        None => field(USERS, user, 3),
    };
    Ok((uid, gid.ok_or_else(|| unknown("group", group.unwrap_or(user)))?))
}
