use std::path::Path;

use super::*;
use crate::{Origin as From, Overrides, Settings, SettingsError};

fn resolve(text: &str, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).into())
    };
    Settings::resolve(Some((Path::new("/b.toml"), text)), &variable, &Overrides::default())
}

fn refused(text: &str) -> String {
    resolve(text, &[]).unwrap_err().to_string()
}

#[test]
fn a_section_is_read_as_it_is_shown() {
    let text = "[otel]\nenabled = true\nendpoint = \"https://otel.example.org:4318/in/\"\n\
                signals = [\"logs\", \"traces\"]\ninterval = \"15s\"\nsample_percent = 5\n\
                headers = [\"X-Tenant=a=b\", \"authorization=secret:collector\"]\n\
                resource = [\"deployment.environment.name=test\"]\nservice_name = \"b\"\n\
                ca = [\"/etc/ca.pem\"]\n[secrets.collector]\nfile = \"/s\"\nnamespaces = []\n";
    let settings = resolve(text, &[]).unwrap();
    let otel = &settings.otel;
    assert_eq!(show_endpoint(&otel.endpoint), "https://otel.example.org:4318/in");
    assert_eq!(otel.signals, [Signal::Logs, Signal::Traces]);
    assert_eq!(otel.headers[0].value, HeaderText::Plain("a=b".to_owned()));
    assert_eq!(otel.secrets().collect::<Vec<_>>(), ["collector"]);
    let again = resolve(&settings.to_toml(), &[]).unwrap();
    assert_eq!(show_endpoint(&again.otel.endpoint), show_endpoint(&otel.endpoint));
    assert_eq!(
        (again.otel.headers, again.otel.resource),
        (otel.headers.clone(), otel.resource.clone())
    );
    assert_eq!(show_endpoint(&Otel::default().endpoint), "http://127.0.0.1:4318");
}

#[test]
fn credentials_are_secrets_and_are_in_no_message() {
    for name in ["authorization", "x-api-key", "Api-Token", "x-honeycomb-team-key", "cookie"] {
        let message = refused(&format!("[otel]\nheaders = [\"{name}=hunter2\"]"));
        assert!(message.contains("secret:"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let message = refused("[otel]\nheaders = [\"authorization=secret:none\"]");
    assert!(message.contains("[secrets.none]"), "{message}");
    for header in ["host=a", "=a", "a b=c", "x-a", "x-a=", "x-a=\u{e9}", "content-type=text/plain"]
    {
        let message = refused(&format!("[otel]\nheaders = [\"{header}\"]"));
        assert!(message.contains("otel.headers"), "{message}");
    }
}

#[test]
fn what_is_no_value_is_refused_with_the_option_that_has_it() {
    for (line, part) in [
        ("endpoint = \"localhost:4318\"", "http://127.0.0.1:4318"),
        ("endpoint = \"http://a/?b\"", "otel.endpoint"),
        ("signals = [\"trace\"]", "did you mean \"traces\""),
        ("interval = \"10ms\"", "otel.interval"),
        ("sample_percent = 101", "0 to 100"),
        ("resource = [\"=a\"]", "otel.resource"),
        ("service_name = \"\"", "otel.service_name"),
    ] {
        let message = refused(&format!("[otel]\n{line}"));
        assert!(message.contains(part), "{line}: {message}");
    }
}

#[test]
fn standard_variables_count_only_where_it_is_on_and_nothing_else_says_so() {
    let standard = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://10.0.0.1:4318"),
        ("OTEL_SERVICE_NAME", "them"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b%20c, d=e,"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2"),
    ];
    let off = resolve("", &standard).unwrap();
    assert_eq!(off.otel, Otel::default());
    let on = resolve("[otel]\nenabled = true\nservice_name = \"us\"", &standard).unwrap();
    assert_eq!(show_endpoint(&on.otel.endpoint), "http://10.0.0.1:4318");
    assert_eq!((on.otel.service_name.as_str(), on.otel.headers.len()), ("us", 0));
    assert_eq!(on.otel.resource, ["a=b c", "d=e"]);
    let variable = "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned();
    assert_eq!(on.origin("otel.endpoint"), From::Environment { variable });
    let own =
        [("BURROW_OTEL_ENABLED", "true"), ("BURROW_OTEL_ENDPOINT", "http://[::1]:1"), standard[0]];
    assert_eq!(show_endpoint(&resolve("", &own).unwrap().otel.endpoint), "http://[::1]:1");
    let bad =
        resolve("[otel]\nenabled = true", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "x")]).unwrap_err();
    assert!(bad.to_string().contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{bad}");
}

#[test]
fn telemetry_that_travels_in_the_clear_is_warned_of() {
    let warned = |text: &str| {
        let settings = resolve(text, &[]).unwrap();
        settings.warnings().iter().any(|line| line.contains("otel.endpoint"))
    };
    assert!(warned("[otel]\nenabled = true\nendpoint = \"http://10.0.0.1:4318\""));
    assert!(!warned("[otel]\nenabled = true"));
    assert!(!warned("[otel]\nenabled = true\nendpoint = \"https://10.0.0.1:4318\""));
    assert!(!warned("[otel]\nendpoint = \"http://10.0.0.1:4318\""));
}
