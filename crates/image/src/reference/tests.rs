use proptest::prelude::*;

use super::*;

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn parsed(text: &str) -> Reference {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> InvalidReference {
    text.parse::<Reference>().err().unwrap_or_else(|| panic!("{text} is taken"))
}

#[test]
fn missing_parts_get_defaults() {
    for (text, whole, short) in [
        ("python", "docker.io/library/python:latest", "python:latest"),
        ("python:3.11-slim", "docker.io/library/python:3.11-slim", "python:3.11-slim"),
        ("docker.io/python:3", "docker.io/library/python:3", "python:3"),
        ("index.docker.io/library/python:3", "docker.io/library/python:3", "python:3"),
        ("team/app", "docker.io/team/app:latest", "team/app:latest"),
        ("library/team/app", "docker.io/library/team/app:latest", "library/team/app:latest"),
        ("ghcr.io/team/app:v1", "ghcr.io/team/app:v1", "ghcr.io/team/app:v1"),
        ("docker.io/a.b/c:1", "docker.io/a.b/c:1", "docker.io/a.b/c:1"),
        ("docker.io/localhost/c:1", "docker.io/localhost/c:1", "docker.io/localhost/c:1"),
        ("localhost/app", "localhost/app:latest", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest", "localhost:5000/app:latest"),
        ("[::1]:5000/a/b:c", "[::1]:5000/a/b:c", "[::1]:5000/a/b:c"),
        (
            "127.0.0.1:5000/a__b/c---d.e:X",
            "127.0.0.1:5000/a__b/c---d.e:X",
            "127.0.0.1:5000/a__b/c---d.e:X",
        ),
        ("Registry/app", "registry/app:latest", "registry/app:latest"),
        (
            "REGISTRY.Example.org/app",
            "registry.example.org/app:latest",
            "registry.example.org/app:latest",
        ),
    ] {
        let reference = parsed(text);
        assert_eq!(
            (reference.to_string().as_str(), reference.short().as_str()),
            (whole, short),
            "{text}"
        );
    }
}

#[test]
fn a_digest_stands_alone_or_beside_a_tag() {
    let alone = parsed(&format!("python@{DIGEST}"));
    assert_eq!((alone.tag.as_ref(), alone.digest), (None, Some(DIGEST.parse().unwrap())));
    assert_eq!(alone.short(), format!("python@{DIGEST}"));
    let both = parsed(&format!("localhost:5000/x:v1@{DIGEST}"));
    assert_eq!(both.to_string(), format!("localhost:5000/x:v1@{DIGEST}"));
    assert_eq!(both.at(Digest::of(b"other")).tag, None);
}

#[test]
fn an_invalid_name_has_a_reason() {
    let digits = DIGEST.trim_start_matches("sha256:");
    assert_eq!(refused(""), InvalidReference::Empty);
    assert!(matches!(refused(digits), InvalidReference::BareDigest(_)));
    assert!(matches!(refused("x@sha512:00"), InvalidReference::Digest(_)));
    assert!(matches!(refused("x@latest"), InvalidReference::Digest(_)));
    assert!(refused("Python:3").to_string().contains("did you mean \"python\""));
    for text in [
        "a//b",
        "/a",
        "a/",
        "-a",
        "a-",
        "a..b",
        "a___b",
        "a._b",
        "a b",
        "é",
        "docker.io/",
        ".",
        "a.b/",
        "https://x/y",
    ] {
        let error = refused(text);
        assert!(
            matches!(error, InvalidReference::Repository(_) | InvalidReference::Host(_)),
            "{text}: {error}"
        );
    }
    for text in ["a:", "a:.b", "a:-b", "a:b c", "a:b:c", &format!("a:{}", "x".repeat(129))] {
        assert!(matches!(refused(text), InvalidReference::Tag(_)), "{text}");
    }
    for text in
        ["a.b:0/c", "a.b:65536/c", "a.b:x/c", "-a.b/c", "a..b/c", "[::1/c", "[z:z]/c:d", ".a/b"]
    {
        assert!(matches!(refused(text), InvalidReference::Host(_)), "{text}: {}", refused(text));
    }
    assert!(matches!(
        refused(&"a/".repeat(127).replace("a/", "ab/")),
        InvalidReference::TooLong(_)
    ));
    assert!(matches!(refused(&format!("{}/x", "a".repeat(254))), InvalidReference::TooLong(_)));
}

#[test]
fn hosts_know_their_port_and_whether_they_are_here() {
    let host = |text: &str| text.parse::<Host>().unwrap();
    assert_eq!(
        (host("localhost:5000").name(), host("localhost:5000").port()),
        ("localhost", Some(5000))
    );
    assert_eq!((host("[::1]").name(), host("[::1]").port()), ("::1", None));
    for here in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "127.9.9.9:80",
        "[::1]:5000",
        "[::ffff:127.0.0.1]",
    ] {
        assert!(host(here).is_loopback(), "{here}");
    }
    for there in
        ["docker.io", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "[::2]"]
    {
        assert!(!host(there).is_loopback(), "{there}");
    }
}

proptest! {
    #[test]
    fn strangers_names_never_panic_and_good_ones_stay_themselves(text in "\\PC{0,60}") {
        if let Ok(reference) = text.parse::<Reference>() {
            prop_assert_eq!(&reference, &reference.to_string().parse().unwrap());
        }
    }

    #[test]
    fn whole_and_short_names_mean_the_same(
        host in "(([a-zA-Z0-9]{1,5}\\.){1,3}[a-z]{2}|localhost|\\[::1\\])(:[1-9][0-9]{0,3})?/|docker\\.io/|",
        path in "[a-z0-9]{1,5}((_|__|-{1,3})[a-z0-9]{1,5}){0,2}(/[a-z0-9]{1,4}([._][a-z0-9])?){0,3}",
        tag in "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,20})?",
        has_digest in any::<bool>(),
    ) {
        let digest = if has_digest { format!("@{DIGEST}") } else { String::new() };
        let text = format!("{host}{path}{tag}{digest}");
        let reference: Reference = text.parse().unwrap();
        prop_assert_eq!(&reference, &reference.to_string().parse().unwrap());
        prop_assert_eq!(&reference, &reference.short().parse().unwrap());
        prop_assert!(reference.tag.is_some() || reference.digest.is_some());
    }
}
