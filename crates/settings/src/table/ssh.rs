//! `[ssh]`: the door for SSH.

use std::net::SocketAddr;

use super::{ConfigOption, Section, put, put_usize};
use crate::limits::{SSH_CONNECTIONS_MAX, SSH_IDLE_MIN};
use crate::listen::Listen;
use crate::shown::{quote, quote_duration, quote_path};
use crate::value::{InvalidValue, OFF, RawValue};

pub const SECTION: Section = Section {
    name: "ssh",
    about: "SSH and SFTP into sandboxes, for those whose SSH keys `host-bridge keys add-ssh` has added.",
    options: &[
        ConfigOption {
            key: "listen",
            values: "an address and port, or `\"off\"`",
            about: "Where it listens. With port 0 the kernel chooses a port.",
            set: |settings, given| put(&mut settings.ssh.listen, listen(given)),
            show: |settings| {
                quote(settings.ssh.listen.map_or_else(|| OFF.to_owned(), |on| on.to_string()))
            },
        },
        ConfigOption {
            key: "host_key",
            values: "a path, or `\"off\"`",
            about: "The file of the host's private key, as `ssh-keygen -t ed25519` makes it, for this user \
                    alone. With `\"off\"` one is made in the state directory when the door first opens.",
            set: |settings, given| put(&mut settings.ssh.host_key, given.path_or_off()),
            show: |settings| quote_path(settings.ssh.host_key.as_ref()),
        },
        ConfigOption {
            key: "connections_max",
            values: "1 to 100000",
            about: "Simultaneous connections; one more is closed at once.",
            set: |settings, given| {
                put_usize(&mut settings.ssh.connections_max, given.whole(1, SSH_CONNECTIONS_MAX))
            },
            show: |settings| settings.ssh.connections_max.to_string(),
        },
        ConfigOption {
            key: "connections_per_key_max",
            values: "1 to 100000",
            about: "Simultaneous connections of one key; one more is refused and closed.",
            set: |settings, given| {
                let given = given.whole(1, SSH_CONNECTIONS_MAX);
                put_usize(&mut settings.ssh.connections_per_key_max, given)
            },
            show: |settings| settings.ssh.connections_per_key_max.to_string(),
        },
        ConfigOption {
            key: "idle",
            values: "a duration, 5s or more, or `\"off\"`",
            about: "How long a connection may be without a program, a file session or a forwarded \
                    connection before it is closed.",
            set: |settings, given| put(&mut settings.ssh.idle, given.duration_or_off(SSH_IDLE_MIN)),
            show: |settings| quote_duration(settings.ssh.idle),
        },
    ],
};

fn listen(given: &RawValue) -> Result<Option<SocketAddr>, InvalidValue> {
    match given.text()? {
        OFF => Ok(None),
        text => match text.parse() {
            Ok(Listen::Tcp(address)) => Ok(Some(address)),
            _ => Err(InvalidValue::SshListen(text.to_owned())),
        },
    }
}
