//! `ssh-config`: print what OpenSSH needs to know of the door for SSH.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use sandbox::SandboxRef;
use settings::{Overrides, Settings};

/// The usual address of the door.
pub const ADDRESS_DEFAULT: &str = "127.0.0.1:2222";

/// Print a block for OpenSSH's configuration
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge ssh-config                   for ssh NAME@burrow
  host-bridge ssh-config work >> ~/.ssh/config
  host-bridge ssh-config --address 192.0.2.7:2222

With SANDBOX, `ssh work.burrow` needs no user. The last line is for ~/.ssh/known_hosts, without its #.
`host-bridge serve --ssh` opens the door, and `host-bridge keys add-ssh` lets a key in.")]
pub struct SshConfig {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: Option<SandboxRef>,

    /// Set the address that clients connect to (default: `ssh.listen`, or 127.0.0.1:2222)
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,
}

impl SshConfig {
    pub fn run(&self, context: &Context) -> Result<Exit> {
        let settings = Settings::load(None, &Overrides::default())?.ssh;
        let usual = || ADDRESS_DEFAULT.parse().expect("a constant address");
        let mut address = self.address.or(settings.listen).unwrap_or_else(usual);
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let key = settings.host_key.unwrap_or_else(|| context.paths.ssh_host_key());
        let public = std::fs::read_to_string(key.with_added_extension("pub"));
        output::print(&block(self.which.as_ref(), address, public.ok().as_deref()))?;
        Ok(Exit::SUCCESS)
    }
}

fn block(which: Option<&SandboxRef>, address: SocketAddr, public: Option<&str>) -> String {
    let host = which.map_or_else(|| "burrow".to_owned(), |which| format!("{}.burrow", which.name));
    let (ip, port) = (address.ip(), address.port());
    let mut block = format!("Host {host}\n    HostName {ip}\n    Port {port}\n");
    if let Some(SandboxRef { namespace, name }) = which {
        // Infallible: it is a string.
        let _ = writeln!(block, "    User {namespace}.{name}");
    }
    block += "    HostKeyAlias burrow\n    HostKeyAlgorithms ssh-ed25519\n";
    let words = public.map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    // Infallible as well.
    let _ = match words {
        Some(key) => writeln!(block, "# burrow {key}"),
        None => writeln!(block, "# the host's key is made when the door first opens"),
    };
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_the_host_and_its_key() {
        let address = "[::1]:22".parse().unwrap();
        assert_eq!(
            block(Some(&"team/work".parse().unwrap()), address, Some("ssh-ed25519 AAAA burrow\n")),
            "Host work.burrow\n    HostName ::1\n    Port 22\n    User team.work\n    \
             HostKeyAlias burrow\n    HostKeyAlgorithms ssh-ed25519\n# burrow ssh-ed25519 AAAA\n"
        );
        assert!(!block(None, address, None).contains("User"));
    }
}
