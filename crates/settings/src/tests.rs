use std::collections::HashMap;
use std::ffi::OsString;

use super::*;

const FILE: &str = "/etc/burrow.toml";

fn nothing(_: &str) -> Option<OsString> {
    None
}

fn parsed(text: &str) -> Result<Settings, SettingsError> {
    Settings::resolve(Some((Path::new(FILE), text)), &nothing, &Overrides::default())
}

fn refused(text: &str) -> String {
    parsed(text).unwrap_err().to_string()
}

fn with(
    text: &str,
    variables: &[(&str, &str)],
    flags: &[(&str, &str, &str)],
) -> Result<Settings, SettingsError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    let variable = |name: &str| variables.get(name).map(OsString::from);
    let mut overrides = Overrides::default();
    for (flag, name, text) in flags {
        overrides.text(flag, name, *text);
    }
    Settings::resolve(Some((Path::new(FILE), text)), &variable, &overrides)
}

#[test]
fn an_empty_file_changes_nothing() {
    let settings = parsed("# nothing\n").unwrap();
    assert_eq!(settings.server, Settings::default().server);
    assert_eq!(settings.server.listen, ["127.0.0.1:5555".parse().unwrap()]);
    assert_eq!(settings.server.run_deadline, Duration::from_secs(240));
    assert!(settings.images.is_empty(), "no name means the host's root by itself");
    assert_eq!(settings.warnings(), Vec::<String>::new());
}

#[test]
fn every_kind_of_value_is_read() {
    let settings = parsed(
        r#"
        [server]
        listen = ["0.0.0.0:80", "[::1]:81", "unix:/run/x.sock", "localhost:82"]
        tls_certificate = "/c.pem"
        tls_key = "/k.pem"
        allowed_hosts = ["Burrow.Example.org"]
        allowed_origins = "https://app.example.org"
        body_bytes_max = "8MiB"
        runs_max = 0x10
        run_deadline = 90
        boxes_at_end = "stop"
        [log]
        format = "json"
        level = "trace"
        [defaults]
        cpus = 0.5
        ttl = "1h30m"
        idle_ttl = "off"
        [images]
        "team/base:1" = "/srv/base"
        node = "off"
        "#,
    )
    .unwrap();
    let listen: Vec<_> = settings.server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["0.0.0.0:80", "[::1]:81", "unix:/run/x.sock", "127.0.0.1:82"]);
    assert_eq!(settings.server.tls(), Some((Path::new("/c.pem"), Path::new("/k.pem"))));
    assert_eq!(settings.server.allowed_hosts, ["burrow.example.org"]);
    assert_eq!(settings.server.allowed_origins, ["https://app.example.org"]);
    assert_eq!(settings.server.body_bytes_max, 8 << 20);
    assert_eq!(settings.server.runs_max, 16);
    assert_eq!(settings.server.run_deadline, Duration::from_secs(90));
    assert_eq!(settings.server.boxes_at_end, BoxesAtEnd::Stop);
    assert_eq!(settings.log, Log { format: LogFormat::Json, level: LogLevel::Trace });
    assert_eq!(settings.defaults.cpu_millis, 500);
    assert_eq!(settings.defaults.ttl, Some(Duration::from_secs(5400)));
    assert_eq!(settings.defaults.idle_ttl, None);
    assert_eq!(settings.images["team/base:1"], Path::new("/srv/base"));
    assert!(!settings.images.contains_key("node") && !settings.images.contains_key("python"));
    let settings = parsed("[process]\nroot = \"/srv\"\n[images]\nnode = \"off\"\n").unwrap();
    assert_eq!(settings.images["microsandbox/python"], Path::new("/srv"));
    assert!(!settings.images.contains_key("node"));
    assert!(parsed("[server]\nlisten = \"off\"").unwrap().server.listen.is_empty());
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cases = [
        (
            "[server]\nruns_max = 0",
            "/etc/burrow.toml:2:12: server.runs_max: 0 is out of range: 1 to 100000",
        ),
        ("[server]\n  dev = \"yes\"", ":2:9: server.dev: \"yes\" is not true or false"),
        (
            "[server]\nlisten = [\"127.0.0.1:1\",\n \"here\"]",
            ":2:10: server.listen: \"here\" is not an address",
        ),
        (
            "[server]\nrun_deadline = \"5 minutes\"",
            ":2:16: server.run_deadline: \"5 minutes\" is not a duration",
        ),
        ("[server]\nheader_timeout = -1", "is not a duration"),
        ("[server]\nconnection_idle = \"5s\"", "5s is out of range: 20s to 3650d"),
        ("[server]\nbody_bytes_max = \"64MB\"", "is not a size"),
        ("[server]\nbody_bytes_max = 1", "1 is out of range"),
        ("[server]\nruns_max = 99999999999999999999", "so large a number is not a whole number"),
        ("[server]\nruns_max = 1.5", "1.5 is not a whole number"),
        ("[server]\nallowed_hosts = [\"a:80\"]", "\"a:80\" is not a host name"),
        ("[server]\nallowed_origins = [\"a.org\"]", "\"a.org\" is not an origin"),
        ("[server]\ntls_key = \"k.pem\"", "\"k.pem\" is not an absolute path"),
        ("[log]\nlevel = \"infos\"", "did you mean \"info\"?"),
        ("[log]\nlevel = 1979-05-27", "a date is not a string"),
        ("[defaults]\ncpus = nan", "out of range"),
        ("[images]\n\"a b\" = \"/\"", "is not a name of an image"),
        ("[images]\nbase = \"./srv\"", ":2:8: images.base: \"./srv\" is not an absolute path"),
    ];
    for (text, expected) in cases {
        let message = refused(text);
        assert!(message.contains(expected), "{text}\n{message}");
        assert!(message.starts_with("/etc/burrow.toml:2:"), "{message}");
    }
}

#[test]
fn a_word_that_nobody_knows_is_guessed_at() {
    let cases = [
        ("[server]\nlisen = 1", ":2:1: [server] has no key \"lisen\"; did you mean \"listen\"?"),
        ("[sever]\nlisten = 1", ":1:2: there is no section [sever]; did you mean \"server\"?"),
        ("runs_max = 1", ":1:1: \"runs_max\" belongs in the section [server]"),
        ("[server]\nlevel = \"info\"", ":2:1: \"level\" belongs in the section [log]"),
        ("server = 1", ":1:1: \"server\" is a section"),
        ("[[server]]", "\"server\" is a section"),
        ("[server]\nqqqqqqqq = 1", "[server] has no key \"qqqqqqqq\""),
        ("[server.tls]\nkey = \"/k\"", "[server] has no key \"tls\""),
        ("server.runs_maxx = 3", "did you mean \"runs_max\"?"),
    ];
    for (text, expected) in cases {
        let message = refused(text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
    assert!(!refused("[server]\nqqqqqqqq = 1").contains("did you mean"));
}

#[test]
fn the_first_mistake_of_a_file_is_reported_first() {
    let message = refused("[server]\nzzz = 1\n[log]\naaa = 1\n");
    assert!(message.contains(":2:1") && message.contains("zzz"), "{message}");
}

#[test]
fn what_is_not_toml_is_reported_with_its_line() {
    let message = refused("[server]\n# ä\nä = é\n");
    assert!(message.starts_with("/etc/burrow.toml:3:"), "{message}");
    let message = refused("[server]\ndev = \n");
    assert!(
        message.starts_with("/etc/burrow.toml:2:") && message.contains("\"dev =\""),
        "{message}"
    );
    let message = refused("[server]\ndev = true\ndev = false\n");
    assert!(
        message.starts_with("/etc/burrow.toml:3:1") && message.contains("dev = false"),
        "{message}"
    );
}

#[test]
fn columns_are_counted_in_characters() {
    let message = refused("[images]\n\"ääää\" = 5");
    assert!(message.starts_with("/etc/burrow.toml:2:10: "), "{message}");
}

#[test]
fn flags_beat_variables_and_variables_beat_the_file() {
    let text = "[server]\nruns_max = 1\nconnections_max = 1\nheader_timeout = \"1s\"\n";
    let variables =
        [("BURROW_SERVER_RUNS_MAX", "2"), ("BURROW_SERVER_CONNECTIONS_MAX", "2"), ("HOME", "/h")];
    let flags = [("--runs", "server.runs_max", "3")];
    let settings = with(text, &variables, &flags).unwrap();
    let server = &settings.server;
    assert_eq!((server.runs_max, server.connections_max), (3, 2));
    assert_eq!(server.header_timeout, Duration::from_secs(1));
    assert_eq!(settings.origin("server.runs_max").to_string(), "--runs");
    assert_eq!(
        settings.origin("server.connections_max").to_string(),
        "BURROW_SERVER_CONNECTIONS_MAX"
    );
    assert_eq!(settings.origin("server.header_timeout").to_string(), "/etc/burrow.toml:4:18");
    assert_eq!(settings.origin("server.dev"), Origin::Default);
}

#[test]
fn a_bad_variable_or_flag_is_named() {
    let message = with("", &[("BURROW_SERVER_DEV", "maybe")], &[]).unwrap_err().to_string();
    assert_eq!(message, "BURROW_SERVER_DEV: server.dev: \"maybe\" is not true or false");
    let message = with("", &[], &[("--listen", "server.listen", "x")]).unwrap_err().to_string();
    assert!(message.starts_with("--listen: server.listen: \"x\" is not an address"), "{message}");
    let mut overrides = Overrides::default();
    overrides.set("server.runs_mx=3").unwrap();
    let error = Settings::resolve(None, &nothing, &overrides).unwrap_err().to_string();
    assert!(error.contains("did you mean \"server.runs_max\"?"), "{error}");
    assert!(overrides.set("server.runs_max").is_err());
}

#[test]
fn lists_come_from_repeated_flags_and_from_commas() {
    let mut overrides = Overrides::default();
    overrides.list("--listen", "server.listen", &["127.0.0.1:1".into(), "unix:/x".into()]);
    overrides.list("--allow-host", "server.allowed_hosts", &[]);
    overrides.set("images.mine=/srv").unwrap();
    let variable = |name: &str| {
        (name == "BURROW_SERVER_ALLOWED_HOSTS").then(|| OsString::from("a.org, b.org"))
    };
    let settings = Settings::resolve(None, &variable, &overrides).unwrap();
    assert_eq!(settings.server.listen.len(), 2);
    assert_eq!(settings.server.allowed_hosts, ["a.org", "b.org"]);
    assert_eq!(settings.images["mine"], Path::new("/srv"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let half = refused("[server]\ntls_key = \"/k\"");
    assert_eq!(half, "/etc/burrow.toml:2:11: server.tls_key needs server.tls_certificate");
    let open = refused("[server]\nlisten = \"0.0.0.0:5555\"\ndev = true\n");
    assert!(open.starts_with("/etc/burrow.toml:3:7: server.dev"), "{open}");
    for local in ["127.0.0.2:1", "[::1]:1", "unix:/x", "[::ffff:127.0.0.1]:1"] {
        assert!(parsed(&format!("[server]\nlisten = \"{local}\"\ndev = true")).is_ok(), "{local}");
    }
}

#[test]
fn a_registry_has_a_section_of_its_own() {
    let text = "[registries.\"ghcr.io\"]\nmirror = [\"mirror.example:5000/hub\", \"https://b.example\"]\n\
                ca = \"/ca.pem\"\n[registries.\"lan.example:5000\"]\ninsecure = true\n";
    let settings = parsed(text).unwrap();
    let ghcr = &settings.registries["ghcr.io"];
    assert_eq!(ghcr.mirror, ["mirror.example:5000/hub", "https://b.example"]);
    assert_eq!((ghcr.ca.as_deref(), ghcr.insecure), (Some(Path::new("/ca.pem")), false));
    assert!(settings.registries["lan.example:5000"].insecure);
    let warnings = settings.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("lan.example:5000"), "{warnings:?}");
    let printed = settings.to_toml();
    assert!(printed.contains("ca = \"/ca.pem\" # /etc/burrow.toml:3:6"), "{printed}");
    assert_eq!(parsed(&printed).unwrap().registries, settings.registries);
    let flag = [("--set", "registries.ghcr.io.mirror", "c.example, d.example/x")];
    let settings = with(text, &[], &flag).unwrap();
    assert_eq!(settings.registries["ghcr.io"].mirror, ["c.example", "d.example/x"]);
    for (wrong, why) in [
        (
            "[registries.\"ghcr.io\"]\nmirrors = []",
            ":2:1: [registries] has no key \"mirrors\"; did you mean \"mirror\"?",
        ),
        ("[registries.\"a b\"]\ninsecure = true", "\"a b\" is not a registry"),
        (
            "[registries.\"x\"]\ninsecure = 1",
            ":2:12: registries.x.insecure: 1 is not true or false",
        ),
        ("[registries.\"x\"]\nmirror = \"ftp://y\"", "\"ftp://y\" is not a mirror"),
        ("[registries.\"x\"]\nca = \"ca.pem\"", "\"ca.pem\" is not an absolute path"),
        ("[registries]\nx = true", "there is no option \"registries.x\""),
    ] {
        let message = refused(wrong);
        assert!(message.contains(why), "{wrong}: {message}");
    }
}

#[test]
fn authorities_are_lists_of_files() {
    let text = "[images]\nca = [\"/a.pem\", \"/b.pem\"]\nnode = \"/srv/node\"\n[egress]\nca = \"/c.pem\"\n";
    let settings = parsed(text).unwrap();
    assert_eq!(settings.images_ca, [PathBuf::from("/a.pem"), "/b.pem".into()]);
    assert_eq!(settings.egress.ca, [PathBuf::from("/c.pem")]);
    assert_eq!(settings.images.keys().collect::<Vec<_>>(), ["node"]);
    let variable = |name: &str| (name == "BURROW_IMAGES_CA").then(|| "/d.pem,/e.pem".into());
    let settings = Settings::resolve(None, &variable, &Overrides::default()).unwrap();
    assert_eq!(settings.images_ca, [PathBuf::from("/d.pem"), "/e.pem".into()]);
    assert!(refused("[egress]\nca = [\"relative.pem\"]\n").contains("egress.ca"));
    // What it was called before holds on.
    let before = parsed("[egress]\nauthorities = \"/c.pem\"\n").unwrap();
    assert_eq!(before.egress.ca, [PathBuf::from("/c.pem")]);
}

#[test]
fn probable_mistakes_are_reported() {
    let open = parsed("[server]\nlisten = \"0.0.0.0:5555\"").unwrap().warnings();
    assert!(open.len() == 1 && open[0].contains("unencrypted"), "{open:?}");
    let late = parsed("[server]\nrun_deadline = \"5m\"").unwrap().warnings();
    assert!(late.len() == 1 && late[0].contains("300 s"), "{late:?}");
}

#[test]
fn what_is_printed_says_the_same_and_where_it_comes_from() {
    let text = "[server]\nlisten = [\"unix:/a\\\"b\", \"127.0.0.1:0\"]\nrun_deadline = \"90s\"\n\
                [defaults]\ncpus = 0.25\nttl = \"36h\"\n[images]\n\"x y\" = \"/\"\n";
    assert!(parsed(text).is_err());
    let text = text.replace("x y", "x.y/z:1");
    let settings = with(&text, &[("BURROW_LOG_FORMAT", "json")], &[]).unwrap();
    let printed = settings.to_toml();
    for line in [
        "run_deadline = \"90s\" # /etc/burrow.toml:3:16",
        "format = \"json\" # BURROW_LOG_FORMAT",
        "runs_max = 1024 # default",
        "ttl = \"36h\" # /etc/burrow.toml:6:7",
        "\"x.y/z:1\" = \"/\" # /etc/burrow.toml:8:13",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
    let again = parsed(&printed).unwrap();
    assert_eq!((&again.server, &again.log), (&settings.server, &settings.log));
    assert_eq!((&again.defaults, &again.images), (&settings.defaults, &settings.images));
}

/// What a page of the tree must be. `BURROW_WRITE_CONFIGURATION=1` writes it instead.
fn hold(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("BURROW_WRITE_CONFIGURATION").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "{} is not what `just configuration` writes", path.display());
}

#[test]
fn the_manual_and_the_example_are_what_the_table_says() {
    hold("docs/reference/configuration.md", &reference());
    hold("dist/burrow.toml", &example());
    assert!(reference().lines().all(|line| line.starts_with('|') || line.chars().count() < 1000));
}

#[test]
fn the_example_is_true() {
    let commented = example();
    assert_eq!(parsed(&commented).unwrap().server, Settings::default().server);
    let lines = commented.lines().map(|line| match line.strip_prefix('#') {
        Some(line) if !line.starts_with(' ') => line,
        _ => line,
    });
    let lines: Vec<_> = lines.collect();
    let settings = parsed(&lines.join("\n")).unwrap();
    assert_eq!(settings.server, Settings::default().server);
    assert_eq!(settings.images, Settings::default().images);
    assert_ne!(settings.origin("server.runs_max"), Origin::Default);
}

#[test]
fn a_file_is_found_where_it_is_documented() {
    let home = std::env::temp_dir().join(format!("burrow-settings-{}", std::process::id()));
    std::fs::create_dir_all(home.join("burrow")).unwrap();
    let file = home.join("burrow/burrow.toml");
    std::fs::write(&file, "[server]\nruns_max = 7\n").unwrap();
    let load = |explicit: Option<&Path>, variables: &[(&str, &Path)]| {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(OsString::from);
        Settings::load_from(explicit, &Overrides::default(), &variable, 7)
    };
    let found = load(None, &[("XDG_CONFIG_HOME", &home)]).unwrap();
    assert_eq!((found.server.runs_max, found.file.as_ref()), (7, Some(&file)));
    assert_eq!(load(None, &[("BURROW_CONFIG", &file)]).unwrap().server.runs_max, 7);
    assert_eq!(load(Some(&file), &[]).unwrap().server.runs_max, 7);
    assert_eq!(load(None, &[("HOME", &home)]).unwrap().file, None);
    // A file that is named must exist.
    let missing = home.join("missing.toml");
    assert!(matches!(load(Some(&missing), &[]), Err(SettingsError::Unreadable { .. })));
    let error = load(None, &[("BURROW_CONFIG", &missing)]).unwrap_err();
    assert!(error.to_string().contains("missing.toml"), "{error}");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(matches!(load(Some(&file), &[]), Err(SettingsError::Unreadable { .. })));
    std::fs::write(&file, "#".repeat(2 << 20)).unwrap();
    assert!(matches!(load(Some(&file), &[]), Err(SettingsError::TooLarge { .. })));
    std::fs::remove_dir_all(home).unwrap();
}

proptest::proptest! {
    #[test]
    fn files_of_strangers_never_panic(text in "(\\[(server|log|images|secrets|caps|registries|registries.x)\\]\n)?[a-z_.]{0,9} ?= ?\\PC{0,20}\n\\PC{0,20}") {
        let _ = parsed(&text);
    }
}

#[test]
fn labels_of_figures_are_keys_that_stay_apart() {
    let settings =
        parsed("[metrics]\nlabels = [\"team\", \"a.b/c\"]\nlabel_values_max = 7").unwrap();
    assert_eq!(settings.metrics.labels, ["team", "a.b/c"]);
    assert_eq!(parsed(&settings.to_toml()).unwrap().metrics, settings.metrics);
    for (text, expected) in [
        ("labels = [\"-a\"]", "is not a label key"),
        ("labels = [\"a-b\", \"a.b\"]", "becomes the same name"),
        ("label_values_max = 0", "out of range"),
    ] {
        let message = refused(&format!("[metrics]\n{text}"));
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn a_namespace_may_have_rules_of_its_own_for_creators_who_name_none() {
    let settings = parsed(
        "[defaults]\negress = [\"a.org\"]\n[namespaces.ci]\negress = [\"b.org\", \"*.c.org:8080\"]\n\
         [namespaces.shut]\negress = [\"none\"]",
    );
    let settings = settings.unwrap();
    assert_eq!(settings.namespaces["ci"].egress.as_deref().unwrap(), ["b.org", "*.c.org:8080"]);
    assert_eq!(settings.namespaces["shut"].egress.as_deref().unwrap(), [""; 0]);
    assert_eq!(parsed(&settings.to_toml()).unwrap().namespaces, settings.namespaces);
    for (text, expected) in [
        ("[namespaces.a]\negres = []", "did you mean \"egress\"?"),
        ("[namespaces.a]\negress = [\"127.0.0.1\"]", "egress"),
        ("[namespaces.\"a b\"]\negress = []", "\"a b\" is not a name of a namespace"),
        ("[namespaces]\na = 1", "namespaces.a"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn caps_are_tables_of_namespaces_and_keys() {
    let settings = parsed(
        "[caps.per_key]\nsandboxes = 2\n[caps.namespace.ci]\nmemory_mib = 4096\ncpus = 1.5\n\
         disk = \"4GiB\"\nttl = \"1h\"\nrun_time_per_day = \"30m\"\noutput_per_day = \"1MiB\"\n[caps.key.0123456789ab]\nsandboxes = 0",
    );
    let settings = settings.unwrap();
    assert_eq!(settings.caps.per_key.sandboxes, Some(2));
    assert_eq!(settings.caps.namespaces["ci"].cpu_millis, Some(1500));
    assert_eq!(settings.caps.keys["0123456789ab"].sandboxes, Some(0));
    assert_eq!(parsed(&settings.to_toml()).unwrap().caps, settings.caps);
    for (text, expected) in [
        ("[caps]\nsandboxes = 2", "there is no key \"sandboxes\""),
        ("[caps.per_ky]\nsandboxes = 2", "did you mean \"per_key\"?"),
        ("[caps.per_key]\nsandbox = 2", "did you mean \"sandboxes\"?"),
        ("[caps.namespace.a]\nttl = \"x\"", "a: ttl: \"x\" is not a duration"),
        ("[caps.key]\na = 1", "a: 1 is not a table"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn secrets_say_where_they_are_and_who_may_use_them() {
    let settings = parsed(
        "[secrets.npm-token]\nfile = \"/run/npm\"\nnamespaces = [\"team\"]\n\
         [secrets.vault]\ncommand = [\"/usr/bin/vault\", \"read\"]\nas = \"V\"\nnamespaces = \"*\"",
    );
    let settings = settings.unwrap();
    let lines = secrets::show(&settings.secrets["npm-token"]);
    let expected =
        ["file = \"/run/npm\"", "as = \"NPM_TOKEN\"", "namespaces = [\"team\"]"].map(str::to_owned);
    assert_eq!(lines, expected);
    // What is shown means the same.
    assert_eq!(parsed(&settings.to_toml()).unwrap().secrets, settings.secrets);
    for (text, expected) in [
        ("[secrets]\na = \"x\"", "\"x\" is not a table"),
        ("[secrets.a]\nnamespaces = \"*\"", "write one of env, file, credential and command"),
        ("[secrets.a]\nenv = \"A\"\nfile = \"/a\"\nnamespaces = \"*\"", "env and file both set"),
        ("[secrets.a]\nenv = \"A\"", "those that may use it"),
        ("[secrets.a]\nenv = \"A=B\"", "env: \"A=B\" is not a name of a variable"),
        ("[secrets.a]\nfile = \"a\"", "file: \"a\" is not an absolute path"),
        ("[secrets.a]\ncredential = \"../a\"", "is not a name of a credential"),
        ("[secrets.a]\ncommand = \"echo a\"", "a command must be a list"),
        ("[secrets.a]\ncommand = [\"echo\"]", "an absolute path for the program"),
        ("[secrets.a]\nenv = \"A\"\nnamespaces = [\"a/b\"]", "is not a name of a namespace"),
        ("[secrets.a]\nflie = \"/a\"", "there is no key \"flie\"; did you mean \"file\"?"),
        ("[secrets.\"a b\"]\nenv = \"A\"", "is not a name of a secret"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn workspaces_say_which_directory_it_is_and_what_comes_back() {
    let settings = parsed(
        "[workspaces.project]\npath = \"/srv/project\"\nnamespaces = [\"team\"]\n\
         write = [\"outputs/\", \"a/b\"]\nfile_bytes_max = \"1MiB\"\n\
         [workspaces.all]\npath = \"/srv\"\nnamespaces = \"*\"\nread_only = true\n\
         [workspaces.open]\nbucket = \"abc\"\nnamespaces = \"*\"\n\
         [secrets.k]\nenv = \"K\"\nnamespaces = []\n\
         [workspaces.s3]\nbucket = \"abc\"\nendpoint = \"http://127.0.0.1:9000\"\nprefix = \"a/b\"\n\
         access_key = \"k\"\nsecret_key = \"k\"\nsession_token = \"k\"\nca = \"/ca.pem\"\n\
         region = \"eu-west-1\"\nnamespaces = \"*\"",
    )
    .unwrap();
    let bucket = settings.workspaces["s3"].bucket.as_ref().unwrap();
    assert!(bucket.path_style && bucket.prefix == "a/b/");
    assert!(!settings.workspaces["open"].bucket.as_ref().unwrap().path_style);
    let entry = &settings.workspaces["project"];
    assert_eq!((entry.policy.write[0].as_str(), entry.policy.file_bytes_max), ("outputs", 1 << 20));
    assert_eq!(parsed(&settings.to_toml()).unwrap().workspaces, settings.workspaces);
    for (text, word) in [
        ("[workspaces.a]\nnamespaces = \"*\"", "set path to a directory"),
        ("[workspaces.a]\npath = \"/a\"", "those that may use it"),
        ("[workspaces.a]\npath = \"a\"\nnamespaces = \"*\"", "path: \"a\" is not an absolute path"),
        ("[workspaces.a]\npath = \"/a\"\nwrite = [\"../b\"]", "is not a path in a workspace"),
        (
            "[workspaces.a]\npath = \"/a\"\nbucket = \"abc\"\nnamespaces = \"*\"",
            "path and bucket are both set",
        ),
        ("[workspaces.a]\nregion = \"eu\"\nnamespaces = \"*\"", "region needs a bucket"),
        ("[workspaces.a]\nbucket = \"A\"", "is not the name of a bucket"),
        ("[workspaces.a]\nbucket = \"abc\"\nendpoint = \"here\"", "is not an endpoint"),
        ("[workspaces.a]\nbucket = \"abc\"\nsecret_key = \"s\"", "must be set together"),
        (
            "[workspaces.a]\nbucket = \"abc\"\nnamespaces = \"*\"\naccess_key = \"a\"\nsecret_key = \"s\"",
            "no [secrets.a]",
        ),
        ("[workspaces.a]\nptah = \"/a\"", "did you mean \"path\"?"),
        ("[workspaces.\"a/b\"]\npath = \"/a\"", "is not a name of a workspace"),
    ] {
        let message = parsed(text).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn the_values_of_the_default_machine_are_the_kinds_that_a_bridge_starts() {
    let defaults = table::SECTIONS.iter().find(|section| section.name == "defaults").unwrap();
    let machine = defaults.options.iter().find(|option| option.key == "machine").unwrap();
    let words: Vec<_> = machine.values.split('`').skip(1).step_by(2).collect();
    let kinds = sandbox::MachineKind::STARTED_NAMES.map(|kind| format!("\"{kind}\""));
    assert_eq!(words, kinds);
    for kind in sandbox::MachineKind::STARTED_NAMES {
        let settings = parsed(&format!("[defaults]\nmachine = \"{kind}\"\n")).unwrap();
        assert_eq!(settings.defaults.machine, kind);
    }
}

#[test]
fn the_defaults_are_what_the_table_of_options_says() {
    use sandbox::options::{Door, names_at};
    let defaults = table::SECTIONS.iter().find(|section| section.name == "defaults").unwrap();
    let mut keys: Vec<_> = defaults.options.iter().map(|option| option.key).collect();
    let mut named: Vec<_> = names_at(Door::Defaults).collect();
    keys.sort_unstable();
    named.sort_unstable();
    assert_eq!(keys, named);
}
