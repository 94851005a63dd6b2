//! `create_manim_animation`: renders code as a film, with the manim of the sandbox.

use std::time::Duration;

use protocol::exit::Cause;
use protocol::requests::{self, MakeDirectory, Remove};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::Inside;
use crate::capture::Capture;
use crate::forms::artifacts::{KeptArtifact, LeftOut};
use crate::mcp::captured;
use crate::mcp::progress::Progress;
use crate::mcp::tool::{Answer, Effect, Entered, Entry, Work, tool};
use crate::render::{Rendered, Rendering, Step};
use access::keys::Access;
use agent_client::guest::{FileTarget, Guest};
use agent_client::program::{Program, draw_session};
use sandbox::refusal::{Code, Refusal};
use services::artifact::Scene;

/// The end of the log that is shown with a failure: a traceback of some screens.
const LOG_CHARS_MAX: usize = 6000;
/// How wide manim may take its lines to be.
const LOG_COLUMNS: &str = "400";
/// What becomes an artifact of all that manim writes.
const OUTPUTS: [&str; 6] =
    ["**/*.mp4", "**/*.webm", "**/*.mov", "**/*.gif", "**/*.png", "**/*.svg"];
/// What manim asks when there are several scenes and none is named.
const ASKS_WHICH: &str = "Choose number corresponding to desired scene";
/// What Python says of a module that is not there.
const MISSING: &str = "No module named manim";
/// How to have one that is.
const INSTALL: &str = "make a sandbox from an image that has manim: in an image with pip (such as \
the recipes `full` and `science` of rootfs), install libcairo2-dev, libpango1.0-dev, pkg-config \
and a C compiler, then run `pip install manim`, which brings its own video encoder. LaTeX text \
also needs texlive-latex-extra. Pass the image to `sandbox_create`, then name the new sandbox in \
`sandbox`";

pub fn entries() -> Vec<Entry> {
    vec![tool(
        "create_manim_animation",
        "Render an animation",
        "Renders a manim scene and keeps the video as an artifact. The code is a complete Python \
        file that defines a Scene class. The sandbox must have manim.",
        Access::Run,
        Effect::Runs,
        create_manim_animation,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateManimAnimation {
    /// The Python code, a complete file.
    code: String,
    /// `medium_quality` by default.
    #[serde(default)]
    quality: Quality,
    /// The class of the scene; needed if the code has several.
    #[serde(default)]
    scene_name: Option<String>,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// Seconds until it is ended; usually 240 by default.
    #[serde(default)]
    #[schemars(range(max = 86_400))]
    timeout: Option<f64>,
}

/// The resolution and frame rate of the video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
enum Quality {
    /// 480p, 15 fps.
    #[serde(rename = "low_quality")]
    Low,
    /// 720p, 30 fps.
    #[serde(rename = "medium_quality")]
    #[default]
    Medium,
    /// 1080p, 60 fps.
    #[serde(rename = "high_quality")]
    High,
    /// 2160p, 60 fps.
    #[serde(rename = "fourk_quality")]
    Fourk,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Animation {
    sandbox: String,
    success: bool,
    /// Why there is no video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    exit_code: i32,
    duration_seconds: f64,
    /// The end of manim's output.
    log: String,
    /// The video, and pictures if there are any.
    artifacts: Vec<KeptArtifact>,
    artifacts_left_out: Vec<LeftOut>,
}

impl Quality {
    fn flag(self) -> &'static str {
        match self {
            Self::Low => "-ql",
            Self::Medium => "-qm",
            Self::High => "-qh",
            Self::Fourk => "-qk",
        }
    }
}

async fn create_manim_animation(
    work: Work,
    request: CreateManimAnimation,
) -> Result<Answer<Animation>, Refusal> {
    let limit = work.time_limit(request.timeout)?;
    let scene = request.scene_name.as_deref().filter(|name| !name.is_empty());
    if scene.is_some_and(|name| !is_class(name)) {
        let message = "scene_name must be the name of a class: letters, digits and `_`";
        return Err(Refusal::invalid(message));
    }
    let Entered { inside, note } = work.enter(request.sandbox.as_deref()).await?;
    let _permit = work.api.admission().admit(&work.caller.label())?;
    let directory = format!("/tmp/manim-{}", draw_session()?);
    write(&inside.guest, &directory, request.code).await?;
    let rendered = render(&work, &inside, &directory, request.quality, scene, limit).await;
    // What is worth keeping is kept; whatever stays in spite of this goes with the sandbox.
    let remove = Remove { path: directory.as_str().into(), recursive: true };
    let _ = inside.guest.remove(remove).await;
    conclude(&work, &inside.which.to_string(), note, scene, rendered?).await
}

fn is_class(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    name.len() <= 255
        && name.chars().all(is_part)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

async fn write(guest: &Guest, directory: &str, code: String) -> Result<(), Refusal> {
    let make = MakeDirectory { path: directory.into(), permissions: Some(0o700), parents: false };
    guest.make_directory(make).await?;
    let mut upload = guest.write_file(FileTarget::replace(format!("{directory}/scene.py")))?;
    upload.write(code.as_bytes()).await?;
    upload.finish().await?;
    Ok(())
}

async fn render(
    work: &Work,
    inside: &Inside,
    directory: &str,
    quality: Quality,
    scene: Option<&str>,
    limit: Duration,
) -> Result<Rendered, Refusal> {
    let mut argv: Vec<String> =
        ["python3", "-m", "manim", "render", quality.flag(), "--progress_bar", "display"]
            .map(str::to_owned)
            .to_vec();
    argv.extend(["--media_dir", "media", "scene.py"].map(str::to_owned));
    argv.extend(scene.map(str::to_owned));
    let mut program = Program::new(draw_session()?, requests::Program::argv(argv));
    program.start.cwd = Some(directory.into());
    // Its log is as wide as a terminal, and must not break the words that are looked for.
    program.start.env = vec![("COLUMNS".into(), LOG_COLUMNS.into())];
    program.start.deadline_ms = Some(limit.as_millis() as u64);
    let outputs = OUTPUTS.map(str::to_owned).to_vec();
    // Nothing else than its own directory is its to keep.
    let workdir = Some(directory.into());
    let scene = Scene { workdir: workdir.clone(), artifacts_dir: workdir, outputs, user: None };
    let capture = Capture::begin(&work.api, inside, scene).await?;
    let progress = Progress::begin(&work.context, limit);
    let mut rendering = Rendering::new(program.begin(&inside.guest)?, capture);
    loop {
        let step = tokio::select! {
            step = rendering.next() => step?,
            () = work.context.ct.cancelled() => {
                let message = "the call was cancelled, and the rendering was stopped";
                return Err(Refusal::new(Code::Gone, message));
            }
        };
        match step {
            Step::Progress(reading) => {
                let label = reading.label.unwrap_or_else(|| "rendering".to_owned());
                progress.say(format!("{label}: {:.0} %", reading.done * 100.0));
            }
            Step::Ended(rendered) => return Ok(*rendered),
        }
    }
}

async fn conclude(
    work: &Work,
    sandbox: &str,
    note: Option<String>,
    scene: Option<&str>,
    rendered: Rendered,
) -> Result<Answer<Animation>, Refusal> {
    let Rendered { record, log, captured, .. } = rendered;
    let captured = captured::result(&work.api, captured).await;
    let exit_code = record.cause.shell_code();
    // Of a scene that it does not find manim takes another, when there is but one.
    let is_film = |made: &KeptArtifact| scene.is_none_or(|scene| made.name.starts_with(scene));
    let has_film = captured.captured.artifacts.iter().any(is_film);
    let error = failure(&record.cause, &log, scene, has_film);
    let log = tail(&log);
    let mut content = Vec::new();
    if let Some(error) = &error {
        content.push(ContentBlock::text(error.clone()));
        content.push(ContentBlock::text(format!("[the end of the log]\n{log}")));
    }
    content.extend(captured.pictures);
    let place = format!("exit code {exit_code}, sandbox {sandbox}");
    let notes = [note, captured.words].into_iter().flatten().chain([place]);
    let notes: Vec<_> = notes.map(|line| format!("[{line}]")).collect();
    content.push(ContentBlock::text(notes.join("\n")));
    let is_error = error.is_some();
    let structured = Animation {
        sandbox: sandbox.to_owned(),
        success: !is_error,
        error,
        exit_code,
        duration_seconds: Duration::from_micros(record.duration_us).as_secs_f64(),
        log,
        artifacts: captured.captured.artifacts,
        artifacts_left_out: captured.captured.left_out,
    };
    Ok(Answer { content, structured, is_error })
}

/// Why there is no film, if there is none.
fn failure(cause: &Cause, log: &str, scene: Option<&str>, has_film: bool) -> Option<String> {
    let is_done = matches!(cause, Cause::Exited { code: 0 });
    if is_done && has_film {
        return None;
    }
    Some(match (cause, scene) {
        (Cause::TimedOut { limit_ms }, _) => {
            let seconds = Duration::from_millis(*limit_ms).as_secs_f64();
            format!(
                "timeout: it was ended after {seconds} s. Set a longer `timeout` or a lower `quality`"
            )
        }
        _ if log.contains(MISSING) => {
            format!("this sandbox has no manim, and this tool does not install it: {INSTALL}")
        }
        (_, None) if log.contains(ASKS_WHICH) => {
            "the code has several scenes: choose one with `scene_name`".to_owned()
        }
        (_, Some(name)) if log.contains(&format!("{name} is not in the script")) => {
            format!("the code has no scene {name}")
        }
        _ if log.contains("There are no scenes inside that module") => {
            "the code defines no Scene class".to_owned()
        }
        (Cause::Exited { code: 0 }, Some(name)) => format!("the code has no scene {name}"),
        (Cause::Exited { code: 0 }, None) => "manim succeeded but made no video".to_owned(),
        (Cause::SpawnFailed { .. }, _) => "this sandbox has no python3".to_owned(),
        _ => "the code has failed".to_owned(),
    })
}

/// The end of a log, whole characters.
fn tail(log: &str) -> String {
    let count = log.chars().count();
    log.chars().skip(count.saturating_sub(LOG_CHARS_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_to_do_about_it() {
        let failed = Cause::Exited { code: 1 };
        let words = |log: &str, scene| failure(&failed, log, scene, false).expect("a failure");
        assert!(
            words("/usr/bin/python3: No module named manim", None).contains("pip install manim")
        );
        assert!(
            words("Choose number corresponding to desired scene/arguments", None)
                .contains("`scene_name`")
        );
        assert!(words("Nope is not in the script", Some("Nope")).contains("no scene Nope"));
        assert!(words("ZeroDivisionError", None).contains("failed"));
        let done = Cause::Exited { code: 0 };
        assert_eq!(failure(&done, "", None, true), None);
        assert!(failure(&done, "", None, false).is_some());
        let other = failure(&done, "", Some("Nope"), false).expect("another scene");
        assert!(other.contains("no scene Nope"), "{other}");
    }

    #[test]
    fn a_scene_is_called_as_a_class_is_and_no_option() {
        assert!(is_class("Circle2") && is_class("_X") && is_class("Ü"));
        for wrong in ["-a", "a b", "2D", "a;b", "../x"] {
            assert!(!is_class(wrong), "{wrong}");
        }
    }
}
