//! All options: the only list of them. What is documented, what may be set by which name, and how
//! each value is shown, comes from here.

use std::time::Duration;

use super::limits::{
    AUDIT_FILE_BYTES_MAX, AUDIT_FILE_BYTES_MIN, BODY_BYTES_MAX, CONNECTION_IDLE_MIN, MEMORY_MIB_MAX,
};
use super::listen::Listen;
use super::registries::REGISTRIES;
use super::shown::{quote, quote_all, quote_duration, quote_path, show_cpus};
use super::value::{Given, OFF, Wrong, show_duration, show_size};
use super::{BoxesAtEnd, LogFormat, LogLevel, Settings};

/// A group of options.
pub struct Section {
    pub name: &'static str,
    pub about: &'static str,
    pub options: &'static [Choice],
}

/// One option.
pub struct Choice {
    pub key: &'static str,
    /// What it may be, for people.
    pub values: &'static str,
    pub about: &'static str,
    pub set: fn(&mut Settings, &Given) -> Result<(), Wrong>,
    /// The value as TOML.
    pub show: fn(&Settings) -> String,
}

/// The section that has names of the user's choice instead of options.
pub const IMAGES: &str = "images";
pub const IMAGES_ABOUT: &str = "Names that clients give for an image, and the directory that is \
    the root of such a sandbox: `\"python:3.12\" = \"/srv/images/python312\"`. What is written here \
    is added to the names that there are; `\"off\"` takes one away. On the process machine `/` is \
    the host's own root, read-only below a layer of the sandbox's own.";

/// The section of secrets, each with a table of its own.
pub const SECRETS: &str = "secrets";
pub const SECRETS_ABOUT: &str = "What sandboxes may ask for by name, in the file alone: a table \
    `[secrets.NAME]` each, with `namespaces` (a list of those that may use it, or `\"*\"`), one of \
    `env = \"VARIABLE\"`, `file = \"/path\"`, `credential = \"name\"` (of systemd) and \
    `command = [\"/program\", \"argument\"]`, and `as = \"VARIABLE\"` for the variable that \
    programs find it in, which is the name in capitals otherwise. Values are read for each sandbox \
    and kept nowhere.";

/// The sections that have names of the user's choice.
pub const NAMED: [&str; 3] = [IMAGES, SECRETS, REGISTRIES];

const DURATION: &str = "a duration";
const DURATION_OR_OFF: &str = "a duration, or `\"off\"`";
const SECOND: Duration = Duration::from_secs(1);

/// The kinds of machine that a bridge starts by itself.
const STARTED: [&str; 4] = ["process", "qemu", "firecracker", "cloud-hypervisor"];

pub const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        about: "The door for programs: JSON-RPC and the native API.",
        options: &[
            Choice {
                key: "listen",
                values: "an address and port, `\"unix:/path\"`, a list of them, or `\"off\"`",
                about: "Where it listens. Port 0 lets the kernel choose one.",
                set: |settings, given| {
                    let wrong = |text: &str| Wrong::Listen(text.to_owned());
                    let parse = |text: &str| text.parse::<Listen>().map_err(|_| wrong(text));
                    settings.server.listen =
                        given.texts()?.into_iter().map(parse).collect::<Result<_, _>>()?;
                    Ok(())
                },
                show: |settings| {
                    let listen = &settings.server.listen;
                    if listen.is_empty() { quote(OFF) } else { quote_all(listen) }
                },
            },
            Choice {
                key: "dev",
                values: "`true` or `false`",
                about: "Ask for no key. Refused unless all addresses are loopback or Unix sockets: \
                        whoever reaches the server may do everything.",
                set: |settings, given| put(&mut settings.server.dev, given.truth()),
                show: |settings| settings.server.dev.to_string(),
            },
            Choice {
                key: "tls_certificate",
                values: "a path, or `\"off\"`",
                about: "The chain of certificates in PEM, the server's own first. With it, TCP \
                        addresses speak TLS alone. Needs `tls_key`.",
                set: |settings, given| {
                    put(&mut settings.server.tls_certificate, given.path_or_off())
                },
                show: |settings| quote_path(settings.server.tls_certificate.as_ref()),
            },
            Choice {
                key: "tls_key",
                values: "a path, or `\"off\"`",
                about: "The private key of that certificate in PEM.",
                set: |settings, given| put(&mut settings.server.tls_key, given.path_or_off()),
                show: |settings| quote_path(settings.server.tls_key.as_ref()),
            },
            Choice {
                key: "allowed_hosts",
                values: "a list of host names",
                about: "Names that a request's `Host` may have beside `localhost` and the addresses \
                        that are listened on. The check keeps a web page whose name was pointed \
                        here from driving the server.",
                set: |settings, given| {
                    put(&mut settings.server.allowed_hosts, checked(given, is_host, Wrong::Host))
                },
                show: |settings| quote_all(&settings.server.allowed_hosts),
            },
            Choice {
                key: "allowed_origins",
                values: "a list of origins",
                about: "Web pages that may call the server from a browser, as their `Origin` says. \
                        Without it none may.",
                set: |settings, given| {
                    let origins = checked(given, is_origin, Wrong::WebOrigin);
                    put(&mut settings.server.allowed_origins, origins)
                },
                show: |settings| quote_all(&settings.server.allowed_origins),
            },
            Choice {
                key: "body_bytes_max",
                values: "a size, 1KiB to 1GiB",
                about: "The largest body of a JSON request; a larger one is answered with 413. \
                        Uploads of files are streamed and not bounded by this.",
                set: |settings, given| {
                    put(&mut settings.server.body_bytes_max, given.bytes(1024, BODY_BYTES_MAX))
                },
                show: |settings| quote(show_size(settings.server.body_bytes_max)),
            },
            Choice {
                key: "connections_max",
                values: "1 to 1000000",
                about: "Connections at once; for one more, the one that has been idle longest is closed.",
                set: |settings, given| {
                    put_usize(&mut settings.server.connections_max, given.whole(1, 1_000_000))
                },
                show: |settings| settings.server.connections_max.to_string(),
            },
            Choice {
                key: "connection_idle",
                values: "a duration, 20s or more",
                about: "How long a connection on which nothing is asked stays open. Longer than \
                        clients keep theirs, so that no request meets a closing connection.",
                set: |settings, given| {
                    put(&mut settings.server.connection_idle, given.duration(CONNECTION_IDLE_MIN))
                },
                show: |settings| quote(show_duration(settings.server.connection_idle)),
            },
            Choice {
                key: "header_timeout",
                values: DURATION,
                about: "How long a client may take to send the head of a request.",
                set: |settings, given| {
                    put(&mut settings.server.header_timeout, given.duration(SECOND))
                },
                show: |settings| quote(show_duration(settings.server.header_timeout)),
            },
            Choice {
                key: "runs_max",
                values: "1 to 100000",
                about: "Runs and commands in progress at once, over all sandboxes; more are answered \
                        with 503 and `Retry-After`.",
                set: |settings, given| {
                    put_usize(&mut settings.server.runs_max, given.whole(1, 100_000))
                },
                show: |settings| settings.server.runs_max.to_string(),
            },
            Choice {
                key: "runs_per_key_max",
                values: "1 to 100000",
                about: "The same for one key, answered with 429.",
                set: |settings, given| {
                    put_usize(&mut settings.server.runs_per_key_max, given.whole(1, 100_000))
                },
                show: |settings| settings.server.runs_per_key_max.to_string(),
            },
            Choice {
                key: "requests_per_second",
                values: "0 to 1000000",
                about: "Requests of one key per second, on average; more are answered with 429 and \
                        `Retry-After`. 0 is no limit.",
                set: |settings, given| {
                    put_u32(&mut settings.server.requests_per_second, given.whole(0, 1_000_000))
                },
                show: |settings| settings.server.requests_per_second.to_string(),
            },
            Choice {
                key: "requests_burst",
                values: "1 to 1000000",
                about: "Requests of one key at once, before `requests_per_second` holds.",
                set: |settings, given| {
                    put_u32(&mut settings.server.requests_burst, given.whole(1, 1_000_000))
                },
                show: |settings| settings.server.requests_burst.to_string(),
            },
            Choice {
                key: "run_deadline",
                values: DURATION,
                about: "The deadline of a run or command over JSON-RPC that names none. The \
                        published clients wait 300 s and send none.",
                set: |settings, given| {
                    put(&mut settings.server.run_deadline, given.duration(SECOND))
                },
                show: |settings| quote(show_duration(settings.server.run_deadline)),
            },
            Choice {
                key: "shutdown_grace",
                values: DURATION,
                about: "How long requests in progress may take to finish after the signal that ends \
                        the bridge. A second signal ends it at once.",
                set: |settings, given| {
                    put(&mut settings.server.shutdown_grace, given.duration(Duration::ZERO))
                },
                show: |settings| quote(show_duration(settings.server.shutdown_grace)),
            },
            Choice {
                key: "boxes_at_end",
                values: "`\"keep\"` or `\"stop\"`",
                about: "What becomes of running sandboxes when the bridge ends: they run on and the \
                        next bridge takes them over, or they are stopped.",
                set: |settings, given| {
                    settings.server.boxes_at_end = match given.choice(&["keep", "stop"])? {
                        "stop" => BoxesAtEnd::Stop,
                        _ => BoxesAtEnd::Keep,
                    };
                    Ok(())
                },
                show: |settings| {
                    quote(match settings.server.boxes_at_end {
                        BoxesAtEnd::Keep => "keep",
                        BoxesAtEnd::Stop => "stop",
                    })
                },
            },
        ],
    },
    Section {
        name: "log",
        about: "What the bridge says on stderr.",
        options: &[
            Choice {
                key: "format",
                values: "`\"text\"` or `\"json\"`",
                about: "Lines for people, or one JSON object per line.",
                set: |settings, given| {
                    settings.log.format = match given.choice(&["text", "json"])? {
                        "json" => LogFormat::Json,
                        _ => LogFormat::Text,
                    };
                    Ok(())
                },
                show: |settings| {
                    quote(match settings.log.format {
                        LogFormat::Text => "text",
                        LogFormat::Json => "json",
                    })
                },
            },
            Choice {
                key: "level",
                values: "`\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"` or `\"trace\"`",
                about: "The least important events that are said.",
                set: |settings, given| {
                    let name = given.choice(&LogLevel::NAMES)?;
                    let found = LogLevel::ALL.into_iter().find(|level| level.as_str() == name);
                    settings.log.level = found.unwrap_or(LogLevel::Info);
                    Ok(())
                },
                show: |settings| quote(settings.log.level.as_str()),
            },
        ],
    },
    Section {
        name: "audit",
        about: "The audit log: a line of JSON for each operation of each door, in `audit/` of the \
                state directory. `host-bridge audit` shows it.",
        options: &[
            Choice {
                key: "enabled",
                values: "`true` or `false`",
                about: "Whether there is one.",
                set: |settings, given| put(&mut settings.audit.enabled, given.truth()),
                show: |settings| settings.audit.enabled.to_string(),
            },
            Choice {
                key: "reads",
                values: "`true` or `false`",
                about: "Record operations that only look, too: lists, logs, metrics. Those that a \
                        key may not do are recorded anyway.",
                set: |settings, given| put(&mut settings.audit.reads, given.truth()),
                show: |settings| settings.audit.reads.to_string(),
            },
            Choice {
                key: "arguments",
                values: "`true` or `false`",
                about: "Record the arguments of programs beside their names. Arguments may be \
                        secrets. Code is never recorded.",
                set: |settings, given| put(&mut settings.audit.arguments, given.truth()),
                show: |settings| settings.audit.arguments.to_string(),
            },
            Choice {
                key: "chain",
                values: "`true` or `false`",
                about: "Have each record say the digest of the one before it, so that \
                        `host-bridge audit verify` finds what was changed or taken away.",
                set: |settings, given| put(&mut settings.audit.chain, given.truth()),
                show: |settings| settings.audit.chain.to_string(),
            },
            Choice {
                key: "on_failure",
                values: "`\"continue\"` or `\"refuse\"`",
                about: "What becomes of operations while the log cannot be written, as on a full \
                        disk: they are carried out, and records that find no place are counted in \
                        one of their own; or they are refused with 503.",
                set: |settings, given| {
                    let choice = given.choice(&["continue", "refuse"])?;
                    settings.audit.refuse_on_failure = choice == "refuse";
                    Ok(())
                },
                show: |settings| {
                    quote(if settings.audit.refuse_on_failure { "refuse" } else { "continue" })
                },
            },
            Choice {
                key: "file_bytes_max",
                values: "a size, 256KiB to 1GiB",
                about: "How large a file becomes before another is begun.",
                set: |settings, given| {
                    let bytes = given.bytes(AUDIT_FILE_BYTES_MIN, AUDIT_FILE_BYTES_MAX);
                    put(&mut settings.audit.file_bytes_max, bytes)
                },
                show: |settings| quote(show_size(settings.audit.file_bytes_max)),
            },
            Choice {
                key: "files_max",
                values: "2 to 10000",
                about: "How many files are kept; the oldest gives way. The first line of each says \
                        how many records there were before it.",
                set: |settings, given| {
                    put_usize(&mut settings.audit.files_max, given.whole(2, 10_000))
                },
                show: |settings| settings.audit.files_max.to_string(),
            },
            Choice {
                key: "age_max",
                values: DURATION_OR_OFF,
                about: "How old the newest record of a file may become before the file is removed; \
                        looked at when another is begun.",
                set: |settings, given| {
                    put(&mut settings.audit.age_max, given.duration_or_off(SECOND))
                },
                show: |settings| quote_duration(settings.audit.age_max),
            },
        ],
    },
    Section {
        name: "defaults",
        about: "What a sandbox has whose maker does not say otherwise.",
        options: &[
            Choice {
                key: "machine",
                values: "`\"process\"`, `\"qemu\"`, `\"firecracker\"` or `\"cloud-hypervisor\"`",
                about: "What it runs in. On a virtual machine an image is one of the kit: the names \
                        that clients give are known, and `[images]` may name a file.",
                set: |settings, given| put(&mut settings.defaults.machine, given.choice(&STARTED)),
                show: |settings| quote(settings.defaults.machine),
            },
            Choice {
                key: "memory_mib",
                values: "1 to 67108864",
                about: "Memory in MiB.",
                set: |settings, given| {
                    put(&mut settings.defaults.memory_mib, given.whole(1, MEMORY_MIB_MAX))
                },
                show: |settings| settings.defaults.memory_mib.to_string(),
            },
            Choice {
                key: "cpus",
                values: "0.001 to 4096",
                about: "CPUs; fractions are shares of one.",
                set: |settings, given| put(&mut settings.defaults.cpu_millis, given.cpu_millis()),
                show: |settings| show_cpus(settings.defaults.cpu_millis),
            },
            Choice {
                key: "ttl",
                values: DURATION_OR_OFF,
                about: "The age at which a sandbox is stopped, whatever it does.",
                set: |settings, given| {
                    put(&mut settings.defaults.ttl, given.duration_or_off(SECOND))
                },
                show: |settings| quote_duration(settings.defaults.ttl),
            },
            Choice {
                key: "idle_ttl",
                values: DURATION_OR_OFF,
                about: "How long a sandbox in which nothing runs is left alone before it is stopped.",
                set: |settings, given| {
                    put(&mut settings.defaults.idle_ttl, given.duration_or_off(SECOND))
                },
                show: |settings| quote_duration(settings.defaults.idle_ttl),
            },
            Choice {
                key: "keep_stopped",
                values: DURATION_OR_OFF,
                about: "How long record and logs of a stopped sandbox are kept. Without it, until \
                        somebody removes them.",
                set: |settings, given| {
                    put(&mut settings.defaults.keep_stopped, given.duration_or_off(SECOND))
                },
                show: |settings| quote_duration(settings.defaults.keep_stopped),
            },
        ],
    },
    Section {
        name: "egress",
        about: "What holds for every sandbox that may reach something: which hosts, its maker says. \
                Each bound is of one sandbox.",
        options: &[
            Choice {
                key: "dns",
                values: "an address and port, or `\"off\"`",
                about: "The name server that is asked for their addresses. Without it the host's own \
                        resolver is.",
                set: |settings, given| {
                    let text = given.text()?;
                    settings.egress.dns = match text {
                        OFF => None,
                        _ => Some(text.parse().map_err(|_| Wrong::Address(text.to_owned()))?),
                    };
                    Ok(())
                },
                show: |settings| match settings.egress.dns {
                    Some(address) => quote(address.to_string()),
                    None => quote(OFF),
                },
            },
            Choice {
                key: "allow_private",
                values: "a list of ranges of addresses",
                about: "Addresses that hosts may have although they are not of the internet, as in \
                        `10.1.2.0/24`: private ones, loopback, the host's own. Without it none may.",
                set: |settings, given| {
                    let ranges = checked(given, is_range, Wrong::AddressRange);
                    put(&mut settings.egress.allow_private, ranges)
                },
                show: |settings| quote_all(&settings.egress.allow_private),
            },
            Choice {
                key: "connections_max",
                values: "1 to 512",
                about: "Connections at once.",
                set: |settings, given| {
                    put_usize(&mut settings.egress.connections_max, given.whole(1, 512))
                },
                show: |settings| settings.egress.connections_max.to_string(),
            },
            Choice {
                key: "connections_per_second",
                values: "1 to 100000",
                about: "New connections, with a burst of four seconds' worth.",
                set: |settings, given| {
                    let rate = given.whole(1, 100_000);
                    put_u32(&mut settings.egress.connections_per_second, rate)
                },
                show: |settings| settings.egress.connections_per_second.to_string(),
            },
            Choice {
                key: "bytes_per_second",
                values: "a size; 0 for no limit",
                about: "Bytes of all connections, both ways together.",
                set: |settings, given| {
                    put(&mut settings.egress.bytes_per_second, given.bytes(0, u64::MAX))
                },
                show: |settings| quote(show_size(settings.egress.bytes_per_second)),
            },
            Choice {
                key: "bytes_max",
                values: "a size; 0 for no limit",
                about: "The same altogether, counted anew by each bridge that serves the sandbox.",
                set: |settings, given| {
                    put(&mut settings.egress.bytes_max, given.bytes(0, u64::MAX))
                },
                show: |settings| quote(show_size(settings.egress.bytes_max)),
            },
            Choice {
                key: "idle",
                values: "a duration, 1s or more",
                about: "A connection on which nothing moves for so long is ended.",
                set: |settings, given| put(&mut settings.egress.idle, given.duration(SECOND)),
                show: |settings| quote(show_duration(settings.egress.idle)),
            },
        ],
    },
    Section {
        name: "pool",
        about: "Machines that are started before anybody asks for them. Whoever asks for one like an \
                entry (kind, image, memory, CPUs, writable layer, nothing else hidden) gets it within \
                milliseconds; name, environment, labels and times to live are that sandbox's own.",
        options: &[
            Choice {
                key: "entries",
                values: "a list of `\"IMAGE=COUNT\"` with, behind it and divided by spaces, \
                         `machine=KIND`, `memory_mib=N`, `cpus=N`, `scratch=SIZE`, \
                         `contexts=LANGUAGE+LANGUAGE`; or `\"off\"`",
                about: "What is kept ready, and how much of it: \
                        `\"python=4 contexts=python memory_mib=256\"`. Without them, machine, \
                        memory and CPUs are those of `[defaults]`, and `off` is no bound; `contexts` \
                        are interpreters that are started ahead.",
                set: |settings, given| {
                    settings.pool.entries =
                        given.texts()?.into_iter().map(str::parse).collect::<Result<_, _>>()?;
                    Ok(())
                },
                show: |settings| {
                    let entries = &settings.pool.entries;
                    if entries.is_empty() { quote(OFF) } else { quote_all(entries) }
                },
            },
            Choice {
                key: "age_max",
                values: DURATION_OR_OFF,
                about: "How old a machine may become that nobody has claimed, before another takes its \
                        place.",
                set: |settings, given| {
                    put(&mut settings.pool.age_max, given.duration_or_off(SECOND))
                },
                show: |settings| quote_duration(settings.pool.age_max),
            },
            Choice {
                key: "check_every",
                values: "a duration, 1s or more",
                about: "How often each ready machine is asked whether it still answers. That it has \
                        ended is noticed at once.",
                set: |settings, given| put(&mut settings.pool.check_every, given.duration(SECOND)),
                show: |settings| quote(show_duration(settings.pool.check_every)),
            },
            Choice {
                key: "starts_at_once",
                values: "1 to 16",
                about: "How many machines are started at the same time, over all entries. More fill \
                        the pool sooner and leave less of the host to those who work on it.",
                set: |settings, given| {
                    put_usize(&mut settings.pool.starts_at_once, given.whole(1, 16))
                },
                show: |settings| settings.pool.starts_at_once.to_string(),
            },
        ],
    },
    Section {
        name: "image_policy",
        about: "Which images of this host's store sandboxes may have. What `[images]` names, and the \
                images of the kit, are the operator's own and always allowed.",
        options: &[
            Choice {
                key: "allow",
                values: "a list of names, in which `*` stands for any characters, with a digest \
                         behind an `@` or without; or `\"off\"` for all",
                about: "The images that may be used: `\"docker.io/library/*\"`, \
                        `\"team/app@sha256:…\"`. A pattern with a digest allows that content, \
                        whatever it is called here.",
                set: |settings, given| {
                    let texts = given.texts()?.into_iter().map(str::to_owned).collect();
                    settings.image_policy.allow = texts;
                    Ok(())
                },
                show: |settings| {
                    let allow = &settings.image_policy.allow;
                    if allow.is_empty() { quote(OFF) } else { quote_all(allow) }
                },
            },
            Choice {
                key: "require_digest",
                values: "`true` or `false`",
                about: "Refuse an image that is not asked for by its digest: a name may mean \
                        another content tomorrow.",
                set: |settings, given| {
                    put(&mut settings.image_policy.require_digest, given.truth())
                },
                show: |settings| settings.image_policy.require_digest.to_string(),
            },
        ],
    },
];

fn put<T>(place: &mut T, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *place = value?;
    Ok(())
}

fn put_usize(place: &mut usize, value: Result<u64, Wrong>) -> Result<(), Wrong> {
    put(place, value.map(|value| value as usize))
}

fn put_u32(place: &mut u32, value: Result<u64, Wrong>) -> Result<(), Wrong> {
    put(place, value.map(|value| value as u32))
}

fn checked(
    given: &Given,
    is_good: fn(&str) -> bool,
    wrong: fn(String) -> Wrong,
) -> Result<Vec<String>, Wrong> {
    let check = |text: &str| {
        if is_good(text) { Ok(text.to_ascii_lowercase()) } else { Err(wrong(text.to_owned())) }
    };
    given.texts()?.into_iter().map(check).collect()
}

/// A name or an address; a port would be compared with nothing.
fn is_host(text: &str) -> bool {
    let is_address = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    is_address || (!text.is_empty() && text.bytes().all(letter))
}

fn is_range(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, "0"));
    let bits_max =
        address.parse::<std::net::IpAddr>().map(|ip| if ip.is_ipv4() { 32 } else { 128 });
    bits_max.is_ok_and(|max| bits.parse::<u8>().is_ok_and(|bits| bits <= max))
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(letter)
    })
}
