//! Who logs in where: an SSH key that stands for an issued key, and a name of a user that is a sandbox.

use russh::keys::PublicKey;

use access::keys::{Access, Grant, Keyring, Namespaces, SshKey};
use sandbox::{Name, SandboxRef};

/// Between the namespace and the name of a sandbox. No name contains it.
const SEPARATOR: char = '.';

/// A connection that may do what a key allows, in one sandbox.
#[derive(Clone, Debug)]
pub struct Login {
    ssh_key: SshKey,
    pub grant: Grant,
    pub which: SandboxRef,
}

impl Login {
    /// `None` for a client that may not come in. Unknown keys, and keys that do not reach the sandbox, are the same.
    pub fn of(keyring: &Keyring, user: &str, key: &PublicKey) -> Option<Self> {
        let ssh_key: SshKey = key.to_openssh().ok()?.parse().ok()?;
        let grant = admitted(keyring, &ssh_key)?;
        let which = sandbox_of(user, &grant.namespace)?;
        grant.covers(&which.namespace).then_some(Self { ssh_key, grant, which })
    }

    /// The key that it stands for, by what it is called.
    pub fn key(&self) -> String {
        let Grant { id, fingerprint, .. } = &self.grant;
        id.as_ref().map_or_else(|| format!("{fingerprint:?}"), ToString::to_string)
    }

    /// Whether the key still lets it in.
    pub fn is_valid(&self, keyring: &Keyring) -> bool {
        let grant = admitted(keyring, &self.ssh_key);
        grant.is_some_and(|grant| grant.id == self.grant.id && grant.covers(&self.which.namespace))
    }
}

fn admitted(keyring: &Keyring, ssh_key: &SshKey) -> Option<Grant> {
    keyring.of_ssh_key(ssh_key).filter(|grant| grant.may(Access::Run))
}

/// `NAME` in the namespace of the key, and in the default one for a key of all; or `NAMESPACE.NAME`.
fn sandbox_of(user: &str, own: &Namespaces) -> Option<SandboxRef> {
    let (namespace, name) = match (user.split_once(SEPARATOR), own) {
        (Some((namespace, name)), _) => (namespace.parse().ok()?, name),
        (None, Namespaces::One(own)) => (own.clone(), user),
        (None, Namespaces::All) => (Name::default_namespace(), user),
    };
    Some(SandboxRef { namespace, name: name.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_sandbox_of_the_keys_namespace_or_of_the_one_that_it_names() {
        let team = Namespaces::One("team".parse().unwrap());
        let found = |user, own| sandbox_of(user, own).map(|which| which.to_string());
        let expected = |text: &str| Some(text.parse::<SandboxRef>().unwrap().to_string());
        assert_eq!(found("work", &team), expected("team/work"));
        assert_eq!(found("work", &Namespaces::All), expected("work"));
        assert_eq!(found("other.work", &team), expected("other/work"));
        for user in ["", ".", "a.", ".a", "a.b.c", "../x", "root@x", "-x"] {
            assert_eq!(found(user, &team), None, "{user}");
        }
    }
}
