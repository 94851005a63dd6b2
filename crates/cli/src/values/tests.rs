use super::*;

#[test]
fn sizes_are_powers_of_1024() {
    let cases = [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512M", 512 << 20),
        ("1.5G", 3 << 29),
        ("10MiB", 10 << 20),
        ("10 mb", 10 << 20),
        ("7b", 7),
        ("2t", 2 << 40),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "M", "-1", "1X", "1.", ".5G", "1..5G", "99999999T", "1e3", "1.2.3K"] {
        assert_eq!(parse_size(text), Err(ValueError::Size(text.to_owned())), "{text}");
    }
}

#[test]
fn memory_is_in_mebibytes_unless_a_unit_is_given() {
    for (text, mib) in [("512", 512), ("512M", 512), ("2G", 2048), ("1K", 1)] {
        assert_eq!(parse_memory_mib(text), Ok(mib), "{text}");
    }
    for text in ["", "-1", "M", "x"] {
        assert_eq!(parse_memory_mib(text), Err(ValueError::Memory(text.to_owned())), "{text}");
    }
}

#[test]
fn processors_are_counted_in_thousandths() {
    for (text, millis) in [("0", 0), ("2", 2000), ("0.5", 500), ("1.25", 1250), ("0.0004", 0)] {
        assert_eq!(parse_cpu_millis(text), Ok(millis), "{text}");
    }
    for text in ["", "-1", ".5", "1e3", "9999999999"] {
        assert_eq!(parse_cpu_millis(text), Err(ValueError::Cpus(text.to_owned())), "{text}");
    }
}

#[test]
fn durations_have_units_and_may_be_composed() {
    let cases = [
        ("0", 0),
        ("90", 90_000),
        ("1.5", 1_500),
        ("500ms", 500),
        ("1.5m", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
    ];
    for (text, ms) in cases {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
    }
    for text in ["", "s", "1m30", "-1s", "1y", "1 s", "99999999999d", "1s-"] {
        assert_eq!(parse_duration(text), Err(ValueError::Duration(text.to_owned())), "{text}");
    }
}

#[test]
fn since_is_an_age_or_a_point_in_time() {
    let now_ms = 1_795_190_400_000;
    let resolve = |text: &str| text.parse::<Since>().map(|since| since.resolve(now_ms));
    assert_eq!(resolve("10m"), Ok(now_ms - 600_000));
    assert_eq!(resolve("30"), Ok(now_ms - 30_000));
    assert_eq!(resolve("1795190400"), Ok(now_ms));
    assert_eq!(resolve("2026-11-20T15:00:00Z"), Ok(now_ms - 3_600_000));
    assert_eq!(resolve("30000d"), Ok(0));
    assert_eq!(resolve("noon"), Err(ValueError::Since("noon".to_owned())));
}

#[test]
fn signals_have_names_and_numbers() {
    for text in ["TERM", "SIGTERM", "term", "sigterm", "15"] {
        assert_eq!(parse_signal(text), Ok(15), "{text}");
    }
    assert_eq!(parse_signal("64"), Ok(64));
    for text in ["", "0", "65", "-9", "NOPE", "SIG"] {
        assert_eq!(parse_signal(text), Err(ValueError::Signal(text.to_owned())), "{text}");
    }
    assert_eq!((signal_name(9), signal_name(40)), ("SIGKILL".to_owned(), "signal 40".to_owned()));
}

#[test]
fn variables_may_come_from_our_environment() {
    let ours = |name: &str| (name == "HERE").then(|| "yes".to_owned());
    let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
    assert_eq!(resolve_variable("A=b=c", ours), Ok(pair("A", "b=c")));
    assert_eq!(resolve_variable("A=", ours), Ok(pair("A", "")));
    assert_eq!(resolve_variable("HERE", ours), Ok(pair("HERE", "yes")));
    assert_eq!(resolve_variable("GONE", ours), Ok(None));
    assert!(resolve_variable("=x", ours).is_err() && resolve_variable("", ours).is_err());

    let file = "# a comment\n\nA=1\n  B=two words \nHERE\nGONE\n";
    let variables = resolve_variables("f", file, ours).expect("a good file");
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, variables[1].1.as_str()), (vec!["A", "B", "HERE"], "two words "));
    assert_eq!(
        resolve_variables("f", "A=1\n=2", ours),
        Err(ValueError::VariableLine { path: "f".to_owned(), line: 2, text: "=2".to_owned() })
    );
}

#[test]
fn forwardings_have_one_to_three_parts() {
    let forwarding = |bind: &str, host_port, sandbox_port| {
        Ok(Forwarding { bind: bind.to_owned(), host_port, sandbox_port })
    };
    assert_eq!("80".parse(), forwarding("127.0.0.1", 80, 80));
    assert_eq!("8080:80".parse(), forwarding("127.0.0.1", 8080, 80));
    assert_eq!("0:80".parse(), forwarding("127.0.0.1", 0, 80));
    assert_eq!("0.0.0.0:8080:80".parse(), forwarding("0.0.0.0", 8080, 80));
    assert_eq!("[::1]:8080:80".parse(), forwarding("::1", 8080, 80));
    for text in ["", "0", "x:80", "80:0", ":8080:80", "1:2:x", "70000:80"] {
        assert!(text.parse::<Forwarding>().is_err(), "{text}");
    }
}

#[test]
fn people_read_sizes_and_durations() {
    assert_eq!(human_bytes(1023), "1023 B");
    assert_eq!(human_bytes(1536), "1.5 KiB");
    assert_eq!(human_bytes(u64::MAX), "16384.0 PiB");
    let durations = [
        (350, "350ms"),
        (1_500, "1.5s"),
        (12_900, "12s"),
        (600_000, "10m"),
        (7_200_000, "2h"),
        (600_000_000, "6d"),
    ];
    for (ms, text) in durations {
        assert_eq!(human_duration(Duration::from_millis(ms)), text);
    }
}
