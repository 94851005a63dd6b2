//! `[otel]`: telemetry for a collector of OpenTelemetry.

use super::{ConfigOption, SECOND, Section, put, put_u32};
use crate::limits::OTEL_RESOURCE_MAX;
use crate::shown::{quote, quote_all, quote_paths};
use crate::telemetry::{
    is_resource, read_endpoint, read_headers, read_signals, show_endpoint, show_header,
};
use crate::value::{InvalidValue, show_duration};

pub const SECTION: Section = Section {
    name: "otel",
    about: "Traces, metrics and logs for a collector of OpenTelemetry, over OTLP/HTTP with JSON. \
            [How to send telemetry](../howto/telemetry.md) has an example. Output, input, code and \
            environments of programs are never sent.",
    options: &[
        ConfigOption {
            key: "enabled",
            values: "`true` or `false`",
            about: "Whether to send. Only then `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and \
                    `OTEL_RESOURCE_ATTRIBUTES` set `endpoint`, `service_name` and `resource`, where \
                    nothing else sets them.",
            set: |settings, given| put(&mut settings.otel.enabled, given.truth()),
            show: |settings| settings.otel.enabled.to_string(),
        },
        ConfigOption {
            key: "endpoint",
            values: "a URL",
            about: "The collector's address; `/v1/traces`, `/v1/metrics` and `/v1/logs` are added to \
                    its path.",
            set: |settings, given| put(&mut settings.otel.endpoint, read_endpoint(given)),
            show: |settings| quote(show_endpoint(&settings.otel.endpoint)),
        },
        ConfigOption {
            key: "signals",
            values: "a list of `\"traces\"`, `\"metrics\"` and `\"logs\"`",
            about: "What is sent.",
            set: |settings, given| put(&mut settings.otel.signals, read_signals(given)),
            show: |settings| {
                let names = settings.otel.signals.iter().map(|signal| signal.name());
                quote_all(&names.collect::<Vec<_>>())
            },
        },
        ConfigOption {
            key: "headers",
            values: "a list of `NAME=VALUE`",
            about: "Headers of each request. The value `secret:NAME` is the value of \
                    `[secrets.NAME]`, read for each request; a header that is a credential must have \
                    such a value, as in `authorization=secret:collector`.",
            set: |settings, given| put(&mut settings.otel.headers, read_headers(given)),
            show: |settings| {
                quote_all(&settings.otel.headers.iter().map(show_header).collect::<Vec<_>>())
            },
        },
        ConfigOption {
            key: "ca",
            values: "a list of paths",
            about: "Files of certificates (PEM) that are trusted in addition to the host's own.",
            set: |settings, given| put(&mut settings.otel.ca, given.paths()),
            show: |settings| quote_paths(&settings.otel.ca),
        },
        ConfigOption {
            key: "interval",
            values: "a duration, 1s or more",
            about: "How often metrics are sent. Traces and logs are sent after a second at most.",
            set: |settings, given| put(&mut settings.otel.interval, given.duration(SECOND)),
            show: |settings| quote(show_duration(settings.otel.interval)),
        },
        ConfigOption {
            key: "sample_percent",
            values: "0 to 100",
            about: "How many of a hundred traces are sent whose callers have sent no `traceparent`. \
                    For others the caller's flag decides.",
            set: |settings, given| put_u32(&mut settings.otel.sample_percent, given.whole(0, 100)),
            show: |settings| settings.otel.sample_percent.to_string(),
        },
        ConfigOption {
            key: "service_name",
            values: "a name",
            about: "The `service.name` of all that is sent.",
            set: |settings, given| {
                let text = given.text()?;
                if text.is_empty() || text.chars().any(char::is_control) {
                    return Err(InvalidValue::ServiceName(text.to_owned()));
                }
                text.clone_into(&mut settings.otel.service_name);
                Ok(())
            },
            show: |settings| quote(&settings.otel.service_name),
        },
        ConfigOption {
            key: "resource",
            values: "a list of `KEY=VALUE`",
            about: "Further attributes of the resource, as in `deployment.environment.name=staging`.",
            set: |settings, given| {
                let texts = given.texts()?;
                if texts.len() > OTEL_RESOURCE_MAX {
                    return Err(InvalidValue::TooMany { entries_max: OTEL_RESOURCE_MAX });
                }
                if let Some(wrong) = texts.iter().find(|text| !is_resource(text)) {
                    return Err(InvalidValue::ResourceAttribute((*wrong).to_owned()));
                }
                settings.otel.resource = texts.into_iter().map(str::to_owned).collect();
                Ok(())
            },
            show: |settings| quote_all(&settings.otel.resource),
        },
    ],
};
