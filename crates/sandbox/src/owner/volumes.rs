//! Mounts the volumes of a new sandbox, before anything runs in it. The mounts end with its machine.

use std::io;
use std::sync::Arc;

use super::Owner;
use crate::SandboxError;
use ::workspace::volume::VolumeMount;
use ::workspace::volume::limits::DIRECTORY_MODE;
use machine::{Bind, Running};
use protocol::requests::MakeDirectory;

impl Owner {
    /// Gives a machine its volumes. Ending the sandbox does not wait for that.
    pub(super) async fn mount_volumes(
        &mut self,
        running: &Arc<dyn Running>,
    ) -> Result<(), SandboxError> {
        for mount in self.stored.record.volumes.clone() {
            let namespace = self.stored.record.namespace.clone();
            let volume = self.place.volumes.find(namespace.as_str(), &mount.name)?;
            let bind = Bind {
                directory: self.place.volumes.directory_of(&volume),
                target: mount.path.clone(),
                read_only: false,
                write: Vec::new(),
            };
            let mounted =
                self.unless_ended(attach(running, &bind), "volumes were being mounted").await?;
            mounted.map_err(|source| {
                let VolumeMount { name, path } = mount;
                SandboxError::VolumeNotMounted { name, path, source }
            })?;
        }
        Ok(())
    }
}

async fn attach(running: &Arc<dyn Running>, bind: &Bind) -> io::Result<()> {
    let guest = running.guest().ok_or_else(|| io::Error::other("its agent did not answer"))?;
    let (path, permissions) = (bind.target.as_str().into(), Some(DIRECTORY_MODE));
    let made = guest.make_directory(MakeDirectory { path, permissions, parents: true }).await;
    made.map_err(io::Error::other)?;
    running.bind(bind).await
}
