//! `[egress]`: what sandboxes with rules may do.

use super::{Choice, SECOND, Section, checked, is_range, put, put_u32, put_usize};
use crate::shown::{quote, quote_all, quote_path};
use crate::value::{OFF, Wrong, show_duration, show_size};

pub const SECTION: Section = Section {
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
            key: "authorities",
            values: "a path, or `\"off\"`",
            about: "A file of certificates (PEM) that are believed besides this host's own, where \
                    the bridge puts a secret into what is sent to a host.",
            set: |settings, given| put(&mut settings.egress.authorities, given.path_or_off()),
            show: |settings| quote_path(settings.egress.authorities.as_ref()),
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
            set: |settings, given| put(&mut settings.egress.bytes_max, given.bytes(0, u64::MAX)),
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
};
