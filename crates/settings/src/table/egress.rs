//! `[egress]`: limits for connections of sandboxes to other hosts.

use super::{ConfigOption, SECOND, Section, checked, is_range, put, put_u32, put_usize};
use crate::shown::{quote, quote_all, quote_paths};
use crate::value::{InvalidValue, OFF, show_duration, show_size};

pub const SECTION: Section = Section {
    name: "egress",
    about: "Limits for each sandbox that may connect to other hosts. The hosts themselves are \
            set when the sandbox is created.",
    options: &[
        ConfigOption {
            key: "dns",
            values: "an address and port, or `\"off\"`",
            about: "The name server that resolves the hosts. With `off`, the host's own \
                    resolver.",
            set: |settings, given| {
                let text = given.text()?;
                settings.egress.dns = match text {
                    OFF => None,
                    _ => Some(text.parse().map_err(|_| InvalidValue::Address(text.to_owned()))?),
                };
                Ok(())
            },
            show: |settings| match settings.egress.dns {
                Some(address) => quote(address.to_string()),
                None => quote(OFF),
            },
        },
        ConfigOption {
            key: "allow_private",
            values: "a list of ranges of addresses",
            about: "Address ranges that hosts may resolve to although they are not public, as \
                    in `10.1.2.0/24`: private ranges, loopback, the host's own addresses. Empty \
                    means none.",
            set: |settings, given| {
                let ranges = checked(given, is_range, InvalidValue::AddressRange);
                put(&mut settings.egress.allow_private, ranges)
            },
            show: |settings| quote_all(&settings.egress.allow_private),
        },
        ConfigOption {
            key: "ca",
            values: "a list of paths",
            about: "Files of certificates (PEM) that are trusted in addition to the host's own: \
                    by programs in sandboxes with egress, and by the bridge where it inserts a \
                    secret.",
            set: |settings, given| put(&mut settings.egress.ca, given.paths()),
            show: |settings| quote_paths(&settings.egress.ca),
        },
        ConfigOption {
            key: "connections_max",
            values: "1 to 512",
            about: "Simultaneous connections.",
            set: |settings, given| {
                put_usize(&mut settings.egress.connections_max, given.whole(1, 512))
            },
            show: |settings| settings.egress.connections_max.to_string(),
        },
        ConfigOption {
            key: "connections_per_second",
            values: "1 to 100000",
            about: "New connections per second. A burst may use four seconds' worth.",
            set: |settings, given| {
                let rate = given.whole(1, 100_000);
                put_u32(&mut settings.egress.connections_per_second, rate)
            },
            show: |settings| settings.egress.connections_per_second.to_string(),
        },
        ConfigOption {
            key: "bytes_per_second",
            values: "a size; 0 for no limit",
            about: "Bytes per second over all connections, both directions together.",
            set: |settings, given| {
                put(&mut settings.egress.bytes_per_second, given.bytes(0, u64::MAX))
            },
            show: |settings| quote(show_size(settings.egress.bytes_per_second)),
        },
        ConfigOption {
            key: "bytes_max",
            values: "a size; 0 for no limit",
            about: "Total bytes over all connections, both directions together. The count \
                    restarts when another bridge takes the sandbox over.",
            set: |settings, given| put(&mut settings.egress.bytes_max, given.bytes(0, u64::MAX)),
            show: |settings| quote(show_size(settings.egress.bytes_max)),
        },
        ConfigOption {
            key: "idle",
            values: "a duration, 1s or more",
            about: "How long a connection may be idle before it is closed.",
            set: |settings, given| put(&mut settings.egress.idle, given.duration(SECOND)),
            show: |settings| quote(show_duration(settings.egress.idle)),
        },
    ],
};
