use super::*;

fn workspaces() -> Workspaces {
    let entry = |reach| Entry {
        path: "/srv/project".into(),
        bucket: None,
        reach,
        policy: Policy::default(),
    };
    Workspaces::new(
        BTreeMap::from([
            ("all".to_owned(), entry(Reach::All)),
            ("team".to_owned(), entry(Reach::These(vec!["team".to_owned()]))),
        ]),
        Secrets::default(),
    )
}

#[test]
fn one_of_another_namespace_is_as_unknown_as_one_that_is_not_there() {
    let workspaces = workspaces();
    assert_eq!(workspaces.find("any", "all").unwrap().path, Path::new("/srv/project"));
    workspaces.find("team", "team").unwrap();
    let error = |name| workspaces.find("other", name).unwrap_err().to_string();
    assert_eq!(error("team").replace("team", "none"), error("none"));
}

#[test]
fn a_path_is_itself_and_a_name_never_is_one() {
    let found = workspaces().find("any", "/srv/other").unwrap();
    assert_eq!((found.path.as_path(), found.policy), (Path::new("/srv/other"), Policy::default()));
    assert!(!is_path("srv") && is_path("/") && !is_name("/srv") && is_name("srv.1"));
}
