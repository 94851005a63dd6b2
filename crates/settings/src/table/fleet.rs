//! `[fleet]`: many hosts behind one door.

use super::{ConfigOption, Section, put, put_u32, put_usize};
use crate::fleet::{DROP_OLDEST, WAIT, is_bridge, is_label, is_nats, is_node, is_quota};
use crate::limits::{
    FLEET_GRACE_MIN, FLEET_LABELS_MAX, FLEET_LOG_AGE_MIN, FLEET_LOG_BYTES_MIN, FLEET_QUOTAS_MAX,
    FLEET_SERVERS_MAX,
};
use crate::shown::{quote, quote_all, quote_path, show_cpus};
use crate::value::{InvalidValue, OFF, RawValue, show_duration, show_size};

/// A list of which each entry must be good.
fn list(
    given: &RawValue,
    entries_max: usize,
    is_good: fn(&str) -> bool,
    wrong: fn(String) -> InvalidValue,
) -> Result<Vec<String>, InvalidValue> {
    let texts = given.texts()?;
    if texts.len() > entries_max {
        return Err(InvalidValue::TooMany { entries_max });
    }
    let check = |text: &str| {
        if is_good(text) { Ok(text.to_owned()) } else { Err(wrong(text.to_owned())) }
    };
    texts.into_iter().map(check).collect()
}

/// A text that must be good, or `off`.
fn text_or_off(
    given: &RawValue,
    is_good: fn(&str) -> bool,
    wrong: fn(String) -> InvalidValue,
) -> Result<Option<String>, InvalidValue> {
    match given.text()? {
        OFF => Ok(None),
        text if is_good(text) => Ok(Some(text.to_owned())),
        text => Err(wrong(text.to_owned())),
    }
}

fn quote_or_off(text: Option<&String>) -> String {
    quote(text.map_or(OFF, String::as_str))
}

pub const SECTION: Section = Section {
    name: "fleet",
    about: "Many hosts behind one door, with NATS JetStream (2.11 or newer) between them: see \
            [the fleet](../explanation/fleet.md). Without `servers` this bridge stands alone.",
    options: &[
        ConfigOption {
            key: "servers",
            values: "a list of addresses as in `\"nats://10.0.0.1:4222\"`, or `\"off\"`",
            about: "Where NATS is; with `tls://` the connection is encrypted. All of one cluster.",
            set: |settings, given| {
                let servers = list(given, FLEET_SERVERS_MAX, is_nats, InvalidValue::Nats);
                put(&mut settings.fleet.servers, servers)
            },
            show: |settings| {
                let servers = &settings.fleet.servers;
                let shown: Vec<_> = servers.iter().map(|server| without_password(server)).collect();
                if servers.is_empty() { quote(OFF) } else { quote_all(&shown) }
            },
        },
        ConfigOption {
            key: "node",
            values: "1 to 63 letters, digits, `_` and `-`, or `\"off\"`",
            about: "The name of this node in the fleet. With `off`, the host's name.",
            set: |settings, given| {
                put(&mut settings.fleet.node, text_or_off(given, is_node, InvalidValue::Node))
            },
            show: |settings| quote_or_off(settings.fleet.node.as_ref()),
        },
        ConfigOption {
            key: "address",
            values: "an address as in `\"https://node1.example.org:5555\"`, or `\"off\"`",
            about: "Where the other bridges reach this one. With `off`, the first address that it \
                    listens on.",
            set: |settings, given| {
                let address = text_or_off(given, is_bridge, InvalidValue::BridgeAddress);
                put(&mut settings.fleet.address, address)
            },
            show: |settings| quote_or_off(settings.fleet.address.as_ref()),
        },
        ConfigOption {
            key: "credentials",
            values: "a path, or `\"off\"`",
            about: "The credentials file of NATS that this node has.",
            set: |settings, given| put(&mut settings.fleet.credentials, given.path_or_off()),
            show: |settings| quote_path(settings.fleet.credentials.as_ref()),
        },
        ConfigOption {
            key: "ca",
            values: "a path, or `\"off\"`",
            about: "Certificates (PEM) of who has signed those of NATS and of the other bridges, \
                    where the host does not trust them.",
            set: |settings, given| put(&mut settings.fleet.ca, given.path_or_off()),
            show: |settings| quote_path(settings.fleet.ca.as_ref()),
        },
        ConfigOption {
            key: "certificate",
            values: "a path, or `\"off\"`",
            about: "This node's certificate, which it shows to NATS and to the other bridges where they ask for \
                    one. Requires `key`.",
            set: |settings, given| put(&mut settings.fleet.certificate, given.path_or_off()),
            show: |settings| quote_path(settings.fleet.certificate.as_ref()),
        },
        ConfigOption {
            key: "key",
            values: "a path, or `\"off\"`",
            about: "The private key of that certificate in PEM.",
            set: |settings, given| put(&mut settings.fleet.key, given.path_or_off()),
            show: |settings| quote_path(settings.fleet.key.as_ref()),
        },
        ConfigOption {
            key: "mutual_tls",
            values: "`true` or `false`",
            about: "Whether other bridges must show a certificate that `ca` has signed and that is for the host \
                    name of their address, so that none speaks for another. Requires `ca`, `certificate`, and \
                    `tls_certificate` in `[server]`.",
            set: |settings, given| put(&mut settings.fleet.mutual_tls, given.truth()),
            show: |settings| settings.fleet.mutual_tls.to_string(),
        },
        ConfigOption {
            key: "labels",
            values: "a list of labels as in `\"zone=a\"`",
            about: "What this node says of itself.",
            set: |settings, given| {
                let labels = list(given, FLEET_LABELS_MAX, is_label, InvalidValue::NodeLabel);
                put(&mut settings.fleet.labels, labels)
            },
            show: |settings| quote_all(&settings.fleet.labels),
        },
        ConfigOption {
            key: "grace",
            values: "a duration, 3s or more",
            about: "How long this node may go without NATS before its sandboxes are ended and \
                    their names become free. NATS changes a leader in 5 to 8 seconds: below 20s \
                    that may cost sandboxes.",
            set: |settings, given| put(&mut settings.fleet.grace, given.duration(FLEET_GRACE_MIN)),
            show: |settings| quote(show_duration(settings.fleet.grace)),
        },
        ConfigOption {
            key: "replicas",
            values: "1 to 5",
            about: "How many servers of NATS keep each record. 3 survives the loss of one.",
            set: |settings, given| put_usize(&mut settings.fleet.replicas, given.whole(1, 5)),
            show: |settings| settings.fleet.replicas.to_string(),
        },
        ConfigOption {
            key: "memory",
            values: "a size, or `\"off\"`",
            about: "Memory that sandboxes may be promised together. With `off`, the host's.",
            set: |settings, given| {
                settings.fleet.memory_bytes =
                    if given.text() == Ok(OFF) { None } else { Some(given.bytes(1, u64::MAX)?) };
                Ok(())
            },
            show: |settings| match settings.fleet.memory_bytes {
                Some(bytes) => quote(show_size(bytes)),
                None => quote(OFF),
            },
        },
        ConfigOption {
            key: "cpus",
            values: "a number, or `\"off\"`",
            about: "CPUs that sandboxes may be promised together. With `off`, eight times the \
                    host's, because few are busy at once.",
            set: |settings, given| {
                settings.fleet.cpu_millis =
                    if given.text() == Ok(OFF) { None } else { Some(given.cpu_millis()?) };
                Ok(())
            },
            show: |settings| match settings.fleet.cpu_millis {
                Some(millis) => show_cpus(millis),
                None => quote(OFF),
            },
        },
        ConfigOption {
            key: "sandboxes_max",
            values: "1 to 1024",
            about: "Sandboxes that this node takes.",
            set: |settings, given| put_u32(&mut settings.fleet.sandboxes_max, given.whole(1, 1024)),
            show: |settings| settings.fleet.sandboxes_max.to_string(),
        },
        ConfigOption {
            key: "quotas",
            values: "a list of quotas as in `\"team=50\"`",
            about: "How many sandboxes a namespace may have in the whole fleet; `*` is every \
                    namespace that is not in the list. A create over it is refused with 429. \
                    Write the same list at every node: each enforces what it has.",
            set: |settings, given| {
                let quotas = list(given, FLEET_QUOTAS_MAX, is_quota, InvalidValue::NamespaceQuota);
                put(&mut settings.fleet.quotas, quotas)
            },
            show: |settings| quote_all(&settings.fleet.quotas),
        },
        ConfigOption {
            key: "log_age",
            values: "a duration, 1s or more",
            about: "How long the fleet's log keeps the output of sandboxes whose `durability` is \
                    not `off`. Write the same at every node.",
            set: |settings, given| {
                put(&mut settings.fleet.log_age, given.duration(FLEET_LOG_AGE_MIN))
            },
            show: |settings| quote(show_duration(settings.fleet.log_age)),
        },
        ConfigOption {
            key: "log_size",
            values: "a size, 4M or more",
            about: "How much of it the log keeps, of all sandboxes together. It is spread over four \
                    streams, and each may have a quarter. Write the same at every node.",
            set: |settings, given| {
                put(&mut settings.fleet.log_bytes, given.bytes(FLEET_LOG_BYTES_MIN, u64::MAX))
            },
            show: |settings| quote(show_size(settings.fleet.log_bytes)),
        },
        ConfigOption {
            key: "log_full",
            values: "`\"drop_oldest\"` or `\"wait\"`",
            about: "What happens when it is full: the oldest output of all goes, or nothing is \
                    added, so that programs under `sync` wait until something is removed or too old. \
                    Write the same at every node.",
            set: |settings, given| {
                put(&mut settings.fleet.log_full, given.choice(&[DROP_OLDEST, WAIT]))
            },
            show: |settings| quote(settings.fleet.log_full),
        },
    ],
};

/// An address of NATS as it is shown: with its user, and without its password or its token.
fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let Some((who, host)) = rest.rsplit_once('@') else { return address.to_owned() };
    let user = who.split_once(':').map_or(String::new(), |(user, _)| format!("{user}:"));
    format!("{scheme}://{user}***@{host}")
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (address, shown) in [
            ("nats://10.0.0.1:4222", "nats://10.0.0.1:4222"),
            ("nats://host1:secret@nats:4222", "nats://host1:***@nats:4222"),
            ("tls://host1:se@cret@nats", "tls://host1:***@nats"),
            ("tls://token@nats", "tls://***@nats"),
        ] {
            assert_eq!(without_password(address), shown);
        }
    }
}
