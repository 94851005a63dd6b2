//! `[server]`: the API server.

use super::{
    ConfigOption, DURATION, DURATION_OR_OFF, SECOND, Section, checked, is_host, is_origin, put,
    put_u32, put_usize,
};
use crate::BoxesAtEnd;
use crate::limits::{BODY_BYTES_MAX, CALLS_MEMORY_MAX, CALLS_MEMORY_MIN, CONNECTION_IDLE_MIN};
use crate::listen::Listen;
use crate::shown::{quote, quote_all, quote_duration, quote_path};
use crate::value::{InvalidValue, OFF, show_duration, show_size};
use std::time::Duration;

pub const SECTION: Section = Section {
    name: "server",
    about: "The API server: JSON-RPC and the native API.",
    options: &[
        ConfigOption {
            key: "listen",
            values: "an address and port, `\"unix:/path\"`, a list of them, or `\"off\"`",
            about: "Where it listens. With port 0 the kernel chooses a port.",
            set: |settings, given| {
                let wrong = |text: &str| InvalidValue::Listen(text.to_owned());
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
        ConfigOption {
            key: "dev",
            values: "`true` or `false`",
            about: "Require no key. Refused unless all addresses are loopback or Unix sockets, \
                    because everybody who reaches the server may do everything.",
            set: |settings, given| put(&mut settings.server.dev, given.truth()),
            show: |settings| settings.server.dev.to_string(),
        },
        ConfigOption {
            key: "tls_certificate",
            values: "a path, or `\"off\"`",
            about: "The certificate chain in PEM, the server's own certificate first. With it, \
                    TCP addresses accept only TLS. Requires `tls_key`.",
            set: |settings, given| put(&mut settings.server.tls_certificate, given.path_or_off()),
            show: |settings| quote_path(settings.server.tls_certificate.as_ref()),
        },
        ConfigOption {
            key: "tls_key",
            values: "a path, or `\"off\"`",
            about: "The private key of that certificate in PEM.",
            set: |settings, given| put(&mut settings.server.tls_key, given.path_or_off()),
            show: |settings| quote_path(settings.server.tls_key.as_ref()),
        },
        ConfigOption {
            key: "allowed_hosts",
            values: "a list of host names",
            about: "Names that a request's `Host` may have besides `localhost` and the \
                    addresses that the server listens on. This check stops a web page that \
                    points its own name at this server.",
            set: |settings, given| {
                put(&mut settings.server.allowed_hosts, checked(given, is_host, InvalidValue::Host))
            },
            show: |settings| quote_all(&settings.server.allowed_hosts),
        },
        ConfigOption {
            key: "allowed_origins",
            values: "a list of origins",
            about: "Web pages that may call the server from a browser, by their `Origin`. Empty \
                    means none.",
            set: |settings, given| {
                let origins = checked(given, is_origin, InvalidValue::WebOrigin);
                put(&mut settings.server.allowed_origins, origins)
            },
            show: |settings| quote_all(&settings.server.allowed_origins),
        },
        ConfigOption {
            key: "console",
            values: "`true` or `false`",
            about: "Serve the console, a page for browsers, at `/`. Without it `/` leads to `/docs`.",
            set: |settings, given| put(&mut settings.server.console, given.truth()),
            show: |settings| settings.server.console.to_string(),
        },
        ConfigOption {
            key: "body_bytes_max",
            values: "a size, 1KiB to 1GiB",
            about: "The largest body of a JSON request; larger ones are answered with 413. File \
                    uploads are streamed and not limited by this.",
            set: |settings, given| {
                put(&mut settings.server.body_bytes_max, given.bytes(1024, BODY_BYTES_MAX))
            },
            show: |settings| quote(show_size(settings.server.body_bytes_max)),
        },
        ConfigOption {
            key: "connections_max",
            values: "1 to 1000000",
            about: "Simultaneous connections; when one more arrives, the one that has been idle \
                    longest is closed.",
            set: |settings, given| {
                put_usize(&mut settings.server.connections_max, given.whole(1, 1_000_000))
            },
            show: |settings| settings.server.connections_max.to_string(),
        },
        ConfigOption {
            key: "connection_idle",
            values: "a duration, 20s or more",
            about: "How long an idle connection stays open. It must be longer than clients keep \
                    theirs, so that no request meets a closing connection.",
            set: |settings, given| {
                put(&mut settings.server.connection_idle, given.duration(CONNECTION_IDLE_MIN))
            },
            show: |settings| quote(show_duration(settings.server.connection_idle)),
        },
        ConfigOption {
            key: "header_timeout",
            values: DURATION,
            about: "How long a client may take to send the head of a request.",
            set: |settings, given| put(&mut settings.server.header_timeout, given.duration(SECOND)),
            show: |settings| quote(show_duration(settings.server.header_timeout)),
        },
        ConfigOption {
            key: "runs_max",
            values: "1 to 100000",
            about: "Simultaneous runs and commands over all sandboxes; more are answered with \
                    503 and `Retry-After`.",
            set: |settings, given| {
                put_usize(&mut settings.server.runs_max, given.whole(1, 100_000))
            },
            show: |settings| settings.server.runs_max.to_string(),
        },
        ConfigOption {
            key: "runs_per_key_max",
            values: "1 to 100000",
            about: "The same for one key; more are answered with 429.",
            set: |settings, given| {
                put_usize(&mut settings.server.runs_per_key_max, given.whole(1, 100_000))
            },
            show: |settings| settings.server.runs_per_key_max.to_string(),
        },
        ConfigOption {
            key: "memory_bytes_max",
            values: "a size, 64MiB to 1024GiB",
            about: "Memory that all calls in progress may hold together for bodies, for the output \
                    of programs as it is kept and as it is sent, and for clients that read slowly. \
                    One key may hold a quarter of it; a call beyond that is answered with 429. \
                    Never more than an eighth of the host's memory, nor less than two of the \
                    largest bodies.",
            set: |settings, given| {
                let size = given.bytes(CALLS_MEMORY_MIN, CALLS_MEMORY_MAX);
                put(&mut settings.server.memory_bytes_max, size)
            },
            show: |settings| quote(show_size(settings.server.memory_bytes_max)),
        },
        ConfigOption {
            key: "requests_per_second",
            values: "0 to 1000000",
            about: "Average requests per second for one key; more are answered with 429 and \
                    `Retry-After`. 0 means no limit.",
            set: |settings, given| {
                put_u32(&mut settings.server.requests_per_second, given.whole(0, 1_000_000))
            },
            show: |settings| settings.server.requests_per_second.to_string(),
        },
        ConfigOption {
            key: "requests_burst",
            values: "1 to 1000000",
            about: "Requests of one key in a burst, before `requests_per_second` applies.",
            set: |settings, given| {
                put_u32(&mut settings.server.requests_burst, given.whole(1, 1_000_000))
            },
            show: |settings| settings.server.requests_burst.to_string(),
        },
        ConfigOption {
            key: "run_deadline",
            values: DURATION,
            about: "The deadline of a run or command over JSON-RPC that sets none. The \
                    published clients wait 300 s and set none.",
            set: |settings, given| put(&mut settings.server.run_deadline, given.duration(SECOND)),
            show: |settings| quote(show_duration(settings.server.run_deadline)),
        },
        ConfigOption {
            key: "shutdown_grace",
            values: DURATION,
            about: "How long requests in progress may take to finish after the signal that ends \
                    the bridge. A second signal ends it at once.",
            set: |settings, given| {
                put(&mut settings.server.shutdown_grace, given.duration(Duration::ZERO))
            },
            show: |settings| quote(show_duration(settings.server.shutdown_grace)),
        },
        ConfigOption {
            key: "boxes_at_end",
            values: "`\"keep\"` or `\"stop\"`",
            about: "What happens to running sandboxes when the bridge ends: they keep running \
                    and the next bridge takes them over, or they are stopped.",
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
        ConfigOption {
            key: "idle_end",
            values: DURATION_OR_OFF,
            about: "How long a daemon that a verb started by itself stays when no sandbox runs and \
                    nobody asks it anything. With `off`, until somebody ends it. A daemon that \
                    keeps a pool, and one that `serve` started, stay.",
            set: |settings, given| {
                let shortest = Duration::from_millis(1);
                put(&mut settings.server.idle_end, given.duration_or_off(shortest))
            },
            show: |settings| quote_duration(settings.server.idle_end),
        },
    ],
};
