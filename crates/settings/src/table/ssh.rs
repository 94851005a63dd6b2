//! `[ssh]`: the door for SSH.

use std::net::SocketAddr;

use super::{ConfigOption, Section, put};
use crate::listen::Listen;
use crate::shown::{quote, quote_path};
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
