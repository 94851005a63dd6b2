//! Builds a template: its steps as a recipe, on an image that the caller may have, and the result as templates of
//! its namespace, one for each tag. The call answers when that has begun; the rest goes on behind it.

use std::fs;
use std::io;

use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer::CONTROL;
use super::builds::Target;
use super::connect::Message;
use super::control::draw;
use super::forms::lacking;
use super::limits::{BUILD_DEADLINE, BUILD_EVENTS_WAITING_MAX, BUILD_STEPS_MAX};
use super::recipe::{self, Recipe, StartBuild, upload_file};
use super::{templates, uploads};
use crate::Api;
use crate::body::json_response;
use crate::call::Call;
use crate::creation::permitted;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use image::Image;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Spec, Template, TemplateName, TemplateOptions, TemplateRef};
use services::build::{
    BuildError, BuildEvent, BuildOptions, BuildRequest, Plan, StepSandbox, build,
};

/// What the clients build on that name no image: E2B's own.
const BASE: &str = "e2bdev/base";

pub fn operations() -> Vec<Operation> {
    let path = "/v2/templates/{template}/builds/{build}";
    let start = operation(Method::POST, path, "e2b_build", "Build a template.", start);
    vec![start.run().refusing(CONTROL)]
}

async fn start(call: Call, _: Nothing, Message(ask): Message<StartBuild>) -> Result<Raw, Refusal> {
    let which = templates::template(&call)?;
    let (id, _) = templates::build(&call)?;
    if ask.from_image_registry.is_some() {
        let what = "credentials of a registry from a client; its operator sets [registries]";
        return Err(lacking(what));
    }
    if ask.steps.len() > BUILD_STEPS_MAX {
        return Err(Refusal::invalid(format!("steps: there are more than {BUILD_STEPS_MAX}")));
    }
    let mut spec = Spec::new(draw(&call)?);
    spec.image = Some(base(&call, &ask, &which)?);
    let spec = permitted(&call.api, &call.caller, spec)?;
    let registry = call.api.registry();
    let Some(images) = registry.images() else {
        return Err(lacking("builds: this bridge has no store of images"));
    };
    let images = images.of_namespace(Some(which.namespace.as_str()));
    let digest = registry.base_image(&spec).await?;
    let digest = digest.ok_or_else(|| {
        lacking(
            "a build on a directory of the host; name an image that `host-bridge image ls` lists",
        )
    })?;
    let (finding, name) = (images.clone(), digest.to_string());
    let found = tokio::task::spawn_blocking(move || finding.find(&name)).await;
    let found = found.map_err(|error| Refusal::of(Code::Internal, &error))??;
    let user = found.process.user.clone().unwrap_or_else(|| "root".to_owned());
    let recipe = recipe::write(&digest.to_string(), &user, &ask.steps)?;
    let options = TemplateOptions {
        start: ask.start_cmd.clone().filter(|command| !command.trim().is_empty()),
        ready: ask.ready_cmd.clone().filter(|command| !command.trim().is_empty()),
        ..TemplateOptions::default()
    };
    // Wrong commands are refused before anything is built.
    Template::new(which.clone(), options.clone())?.check()?;
    let permit = call.api.admission().admit(&call.caller.label())?;
    let target = call.api.e2b().builds.begin(&id, &which.namespace, &which.name.base)?;
    call.trail.image(spec.image.clone(), Some(digest.to_string()));
    let (events, progress) = mpsc::channel(BUILD_EVENTS_WAITING_MAX);
    let build_options = BuildOptions {
        paths: registry.store_paths().clone(),
        images,
        egress: registry.egress_settings().clone(),
        decisions: registry.decisions_before(&spec)?,
        step: StepSandbox::like(&spec, registry.defaults(), registry.host_files().clone()),
        events,
    };
    let files: Vec<_> = recipe
        .uploads
        .iter()
        .map(|hash| (upload_file(hash), uploads::place(&call, &which.namespace, hash)))
        .collect();
    let work = Work {
        api: call.api.clone(),
        id,
        which,
        target,
        recipe,
        options,
        files,
        no_cache: ask.force || ask.steps.iter().any(|step| step.force),
    };
    tokio::spawn(async move {
        let _permit = permit;
        work.carry_out(build_options, progress).await;
    });
    Ok(Raw(json_response(StatusCode::ACCEPTED, &json!({}))))
}

/// The image to build on.
fn base(call: &Call, ask: &StartBuild, which: &TemplateRef) -> Result<String, Refusal> {
    let api = &call.api;
    if let Some(name) = &ask.from_template {
        let parsed = name.parse::<TemplateName>().ok();
        let found = parsed.and_then(|name| {
            let from = TemplateRef { namespace: which.namespace.clone(), name };
            api.registry().get_template(&from).ok()
        });
        return Ok(match found {
            Some(info) => info
                .options
                .image
                .ok_or_else(|| lacking("a build on a template without an image of its own"))?,
            // A template of these clients may be an image, too.
            None => name.clone(),
        });
    }
    let name = ask.from_image.clone().unwrap_or_else(|| BASE.to_owned());
    let is_here = |name: &str| {
        let stored = api.registry().images();
        api.images().contains_key(name) || stored.is_some_and(|images| images.find(name).is_ok())
    };
    if name.starts_with(BASE) && !is_here(&name) {
        return Err(lacking(
            "E2B's own base image; build from_image another one, or have the operator give one this name in \
             [images]",
        ));
    }
    Ok(name)
}

/// A build under way.
struct Work {
    api: Api,
    id: String,
    which: TemplateRef,
    target: Target,
    recipe: Recipe,
    options: TemplateOptions,
    /// Uploads by their names in the context.
    files: Vec<(String, std::path::PathBuf)>,
    no_cache: bool,
}

/// Why there is no template, and at which step it ended.
struct Failure {
    message: String,
    step: Option<String>,
}

impl Failure {
    fn of(error: &impl ToString) -> Self {
        Self { message: error.to_string(), step: None }
    }
}

impl Work {
    async fn carry_out(self, options: BuildOptions, events: mpsc::Receiver<BuildEvent>) {
        let building = async {
            timeout(BUILD_DEADLINE, self.make(options)).await.unwrap_or_else(|_| {
                let seconds = BUILD_DEADLINE.as_secs();
                Err(Failure::of(&format!("the build was not done within {seconds} s")))
            })
        };
        // The log ends when the build has dropped its end of it.
        let (made, ()) = tokio::join!(building, self.log(events));
        let made = match made {
            Ok(image) => self.keep(&image).await,
            Err(failure) => Err(failure),
        };
        let builds = &self.api.e2b().builds;
        if let Err(Failure { message, step }) = &made {
            builds.say(&self.id, "error", message, step.as_deref());
        }
        builds.end(&self.id, made.err().map(|failure| (failure.message, failure.step)));
    }

    async fn make(&self, options: BuildOptions) -> Result<Image, Failure> {
        let images = options.images.clone();
        let bench = tokio::task::spawn_blocking(move || images.workbench()).await;
        let bench =
            bench.map_err(|error| Failure::of(&error))?.map_err(|error| Failure::of(&error))?;
        let context = bench.path().join("context");
        fs::create_dir(&context).map_err(|error| Failure::of(&error))?;
        for (name, upload) in &self.files {
            // It is the same file, and nobody writes to it.
            fs::hard_link(upload, context.join(name)).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Failure::of(&"files of a COPY were not uploaded"),
                _ => Failure::of(&error),
            })?;
        }
        let request = BuildRequest {
            context,
            text: Some(self.recipe.text.clone()),
            no_cache: self.no_cache,
            egress: self.api.registry().egress_default(&self.which.namespace).to_vec(),
            ..BuildRequest::default()
        };
        let plan = Plan::read(request).map_err(|error| self.failure(&error))?;
        let image = build(&plan, &options).await.map_err(|error| self.failure(&error))?;
        drop(bench);
        Ok(image)
    }

    fn failure(&self, error: &BuildError) -> Failure {
        let (line, message) = match error {
            BuildError::Step { line, source, .. } => (Some(*line), source.to_string()),
            BuildError::Recipe { wrong, .. } => (Some(wrong.line), wrong.fault.to_string()),
            error => (None, error.to_string()),
        };
        let step = line.and_then(|line| self.recipe.step_at(line)).map(|step| step.to_string());
        Failure { message, step }
    }

    async fn log(&self, mut events: mpsc::Receiver<BuildEvent>) {
        let builds = &self.api.e2b().builds;
        while let Some(event) = events.recv().await {
            match event {
                BuildEvent::Step { number, of, text } => {
                    builds.say(&self.id, "info", &format!("[{number}/{of}] {text}"), None);
                }
                BuildEvent::Known => builds.say(&self.id, "info", "done before", None),
                BuildEvent::Output(bytes) => {
                    for line in String::from_utf8_lossy(&bytes).lines() {
                        builds.say(&self.id, "info", line, None);
                    }
                }
                BuildEvent::Warning(text) => builds.say(&self.id, "warn", &text, None),
            }
        }
    }

    /// Keeps the result as a template for each tag.
    async fn keep(&self, image: &Image) -> Result<(), Failure> {
        let options = TemplateOptions {
            image: Some(image.digest.to_string()),
            cpu_millis: self.target.cpu_millis,
            memory_mib: self.target.memory_mib,
            ..self.options.clone()
        };
        let mut all = Vec::new();
        for tag in &self.target.tags {
            let name = TemplateName::tagged(self.target.template.clone(), tag);
            let name = name.map_err(|error| Failure::of(&error))?;
            let which = TemplateRef { namespace: self.which.namespace.clone(), name };
            let template =
                Template::new(which, options.clone()).map_err(|error| Failure::of(&error))?;
            all.push(Template { revision: self.id.clone(), ..template });
        }
        let kept = self.api.registry().put_templates(all).await;
        kept.map(drop).map_err(|error| Failure::of(&error))
    }
}
