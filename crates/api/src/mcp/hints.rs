//! Hints for models, in terms of the tools.

use sandbox::refusal::Hint;

pub fn words(hint: &Hint) -> Option<String> {
    let words = match hint {
        Hint::ListSandboxes => "`sandbox_list` lists the sandboxes",
        Hint::ListNotebooks => "`session_list` lists the sessions",
        Hint::ListApps => "`list_web_apps` lists the apps",
        Hint::ListArtifacts => "`list_artifacts` lists the artifacts",
        Hint::ListForwards => "`list_ports` lists the forwarded ports",
        Hint::OtherSandboxName => {
            "choose another name, or remove that sandbox first with `sandbox_remove`"
        }
        Hint::ListSnapshots => "`sandbox_list` with `kind` `snapshots` lists them",
        Hint::ListTemplates => "`sandbox_list` with `kind` `templates` lists them",
        Hint::OtherSnapshotName => {
            "choose another name, or remove that snapshot first with `sandbox_remove`"
        }
        Hint::OtherAppName => "choose another name, or end that app first with `stop_web_app`",
        Hint::OtherHostPort => "choose another port, or leave `host_port` out for any free port",
        Hint::AnyHostPort => "leave `host_port` out for any free port",
        Hint::StopSandbox => "end it with `sandbox_stop`, or remove it with `sandbox_remove`",
        Hint::DropNotebooks => "try again; `sandbox_remove` drops them",
        Hint::ReplaceSandbox => "`sandbox_create` makes another",
        Hint::RemoveLost => "`sandbox_remove` removes it, and `sandbox_create` makes another",
        Hint::ResumeSandbox => "`host-bridge resume` resumes it; `sandbox_create` makes another",
        Hint::ResetNotebook => "`session_remove` removes it, and the next run starts empty",
        Hint::EndApp => "end an app with `stop_web_app`",
        _ => return hint.words(),
    };
    Some(words.to_owned())
}
