//! Hints for clients of the native API, in terms of its calls.

use sandbox::refusal::Hint;

pub fn words(hint: &Hint) -> Option<String> {
    let words = match hint {
        Hint::ListSandboxes => "GET /v1/sandboxes lists the sandboxes",
        Hint::ListSnapshots => "GET /v1/snapshots lists the snapshots",
        Hint::ListTemplates => "GET /v1/templates lists the templates of this node",
        Hint::ListNotebooks => "GET /v1/notebooks lists the notebooks",
        Hint::ListApps => "GET …/apps lists the apps",
        Hint::ListArtifacts => "GET /v1/artifacts lists the artifacts",
        Hint::ListForwards => "GET …/ports lists the forwarded ports",
        Hint::OtherSandboxName => {
            "choose another name, or DELETE that sandbox first (force=true if it runs)"
        }
        Hint::OtherSnapshotName => "choose another name, or DELETE that snapshot first",
        Hint::OtherAppName => "choose another name, or DELETE that app first",
        Hint::OtherHostPort => "choose another port, or use `host_port: 0` for any free port",
        Hint::AnyHostPort => "use `host_port: 0` for any free port",
        Hint::StopSandbox => "stop it first, or remove it with force=true",
        Hint::DropNotebooks => "try again; POST …/kill drops them",
        Hint::ReplaceSandbox => "its logs can still be read",
        Hint::RemoveLost => "kill it, or remove it with force=true",
        Hint::ResumeSandbox => "resume it with POST …/resume",
        Hint::NameImage => "name an image: GET /v1/images lists them",
        Hint::UseLess | Hint::NextDay => {
            return hint.words().map(|words| format!("{words}; GET /v1/caps shows the use"));
        }
        Hint::ResetNotebook => "POST …/reset discards it, and the notebook starts empty",
        Hint::EndApp => "DELETE an app that has ended or is not needed",
        Hint::Text(_) => return hint.words(),
    };
    Some(words.to_owned())
}
