use super::*;

fn known(state: ContextState, interpreters: u64) -> ContextInfo {
    ContextInfo {
        context: "python".parse().unwrap(),
        language: "python".to_owned(),
        state,
        interpreter: None,
        interpreters,
        runs: 0,
        running: None,
        queued: 0,
        opened_at_ms: 0,
        cwd: None,
        lost: None,
        warnings: Vec::new(),
    }
}

#[test]
fn each_interpreter_gets_the_code_once_it_is_known_to_live() {
    let prepared = Prepared::default();
    let id: SandboxId = "0123456789ab".parse().unwrap();
    let name: ContextName = "python".parse().unwrap();
    let asks =
        |known: Option<&ContextInfo>| prepared.code_for(&id, (&name, "python"), known).is_some();
    assert!(asks(None));
    assert!(asks(Some(&known(ContextState::Cold, 0))));
    assert!(asks(Some(&known(ContextState::Idle, 1))));
    assert!(!asks(Some(&known(ContextState::Running, 1))));
    assert!(asks(Some(&known(ContextState::Idle, 2))), "another interpreter");
    assert!(prepared.code_for(&id, (&name, "node"), None).is_none());
}

#[test]
fn the_code_has_the_forms_as_a_text_of_ascii() {
    assert!(CODE.is_ascii() && CODE.starts_with("FORMS = \""));
    for mime in [CHART, TABLE] {
        assert!(include_str!("forms.py").contains(mime), "{mime}");
    }
}
