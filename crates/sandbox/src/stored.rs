//! An image of this host's store as the root of a machine: found by what was asked for, made into a
//! root if that has not been done, and held as long as the machine has it.

use std::fs;
use std::path::Path;

use super::record::StoredRecord;
use super::{MachineKind, SandboxError, Spec};
use host::paths::Paths;
use image::reference::Reference;
use image::store::{ListedImage, User, describe_lost};
use image::{ImageError, Images, Lease, Policy, Pull, Puller};
use machine::MachineSpec;
use machine::kind::Root;
use machine::vmm::Kit;

/// How a digest begins.
const DIGEST_PREFIX: &str = "sha256:";

/// An image that is to be the root.
pub(super) struct RequestedImage {
    paths: Paths,
    /// Opened when it is needed, where nobody has before.
    images: Option<Images>,
    name: String,
    machine: MachineKind,
    policy: Policy,
    pull: Pull,
    puller: Option<Puller>,
}

impl RequestedImage {
    /// The image that a sandbox asks for, unless that is a directory, a file or one of the kit.
    pub fn of(spec: &Spec, paths: &Paths, images: Option<&Images>) -> Option<Self> {
        let name = spec.image.as_deref().filter(|name| !name.starts_with('/'))?;
        let is_stored = match spec.machine.profile().root {
            Root::Host => true,
            Root::Own => false,
            // An image of the kit comes before one of the store.
            Root::Kit(_) => Kit::find().is_ok_and(|kit| kit.image(name).is_err()),
        };
        is_stored.then(|| Self {
            paths: paths.clone(),
            images: images.cloned(),
            name: name.to_owned(),
            machine: spec.machine,
            policy: Policy::default(),
            pull: spec.pull.unwrap_or_default(),
            puller: None,
        })
    }

    /// The same where images can be pulled; `asked` comes before what the operator has set.
    pub fn pulled_by(self, puller: Option<&Puller>, asked: Option<Pull>) -> Self {
        let pull = asked.or_else(|| puller.map(Puller::usual)).unwrap_or_default();
        Self { pull, puller: puller.cloned(), ..self }
    }

    /// Pulls the image, if that is to be done.
    pub async fn fetch(&self) -> Result<(), ImageError> {
        let Some(puller) = self.puller.as_ref().filter(|_| self.pull != Pull::Never) else {
            return Ok(());
        };
        // A digest alone does not say where it is to be had.
        let parsed = self.name.parse::<Reference>().ok();
        let Some(name) = parsed.filter(|_| !self.name.starts_with(DIGEST_PREFIX)) else {
            return Ok(());
        };
        let (images, text) = (self.images.clone(), self.name.clone());
        let finding = tokio::task::spawn_blocking(move || images.map(|images| images.find(&text)));
        match finding.await.unwrap_or(Some(Err(ImageError::Busy))) {
            // What a digest means does not change.
            Some(Ok(_)) if self.pull == Pull::Missing || name.digest.is_some() => return Ok(()),
            None | Some(Ok(_) | Err(ImageError::NotFound { .. })) => {}
            Some(Err(error)) => return Err(error),
        }
        self.policy.check_pull(&self.name, &name)?;
        puller.pull(&name).await.map(drop)
    }

    /// The same where an operator decides what may be used.
    pub fn allowed_by(self, policy: &Policy) -> Self {
        Self { policy: policy.clone(), ..self }
    }

    /// Makes the machine one of this image. `None` where the store has none of the name and the
    /// machine knows better what to say of it.
    pub async fn furnish(self, spec: &mut MachineSpec) -> Result<Option<HeldImage>, SandboxError> {
        let machine = self.machine;
        let making = tokio::task::spawn_blocking(move || self.hold());
        let held = match making.await.unwrap_or(Err(ImageError::Busy)) {
            Err(ImageError::NotFound { .. } | ImageError::Name(_)) if machine.is_virtual() => {
                return Ok(None);
            }
            held => held?,
        };
        let (lease, file) = held;
        match file {
            Some(file) => spec.image = Some(file),
            None => spec.root.clone_from(&lease.root),
        }
        // The caller's environment comes over the image's.
        let own: Vec<_> = spec.env.drain(..).collect();
        let is_own = |name: &str| own.iter().any(|(known, _)| known == name);
        let usual = lease.image.process.env.iter().filter(|(name, _)| !is_own(name));
        spec.env = usual.cloned().chain(own.iter().cloned()).collect();
        Ok(Some(HeldImage { lease }))
    }

    fn hold(self) -> Result<(Lease, Option<String>), ImageError> {
        let images = match self.images {
            Some(images) => images,
            None => Images::open(&self.paths)?,
        };
        let ListedImage { image, names } = images.inspect(&self.name)?;
        let names: Vec<_> = names.into_iter().map(|named| named.name).collect();
        self.policy.check(&self.name, &image.digest, &names)?;
        let lease = images.lease(&image)?;
        let file = self.machine.is_virtual().then(|| images.erofs(&lease)).transpose()?;
        Ok((lease, file.map(|path| path.to_string_lossy().into_owned())))
    }
}

/// The image that a machine has as its root.
#[derive(Debug)]
pub struct HeldImage {
    pub lease: Lease,
}

impl HeldImage {
    /// Puts down what follows from the image: where programs begin, and what does not hold.
    pub(super) fn describe(&self, kept: &mut StoredRecord) {
        let record = &mut kept.record;
        let process = &self.lease.image.process;
        record.image_digest = Some(self.lease.image.digest);
        let own = process.env.iter().map(|(name, _)| name.clone());
        record.env_names.extend(own);
        record.env_names.sort();
        record.env_names.dedup();
        record.workdir = record.workdir.take().or_else(|| process.workdir.clone());
        record.user = record.user.take().or_else(|| self.user().map(str::to_owned));
    }

    /// What of the image does not hold here.
    pub fn warnings(&self) -> Vec<String> {
        describe_lost(self.lease.lost).into_iter().collect()
    }

    /// The user that the image names, unless that is root.
    pub fn user(&self) -> Option<&str> {
        let user = self.lease.image.process.user.as_deref();
        user.filter(|user| !matches!(*user, "root" | "0" | "0:0" | "root:root"))
    }
}

/// Who has images as roots, by the records of all bridges that this state has known: sandboxes that
/// are not over, and snapshots that are gone on from.
pub fn image_users(paths: &Paths) -> Vec<User> {
    let mut users = Vec::new();
    for directory in subdirectories(&paths.state_boxes()) {
        let Ok(StoredRecord { record, .. }) = StoredRecord::read(&directory) else { continue };
        if let (Some(digest), false) = (record.image_digest, record.state.is_over()) {
            users.push(User { digest, name: record.which().to_string() });
        }
    }
    for namespace in subdirectories(&paths.snapshots()) {
        for directory in subdirectories(&namespace) {
            let snapshot = super::snapshot::Snapshot::read(&directory);
            let image = snapshot.as_ref().and_then(|snapshot| snapshot.image.as_deref());
            if let (Some(snapshot), Some(digest)) =
                (&snapshot, image.and_then(|image| image.parse().ok()))
            {
                let name = format!("the snapshot {}/{}", snapshot.namespace, snapshot.name);
                users.push(User { digest, name });
            }
        }
    }
    users
}

fn subdirectories(path: &Path) -> Vec<std::path::PathBuf> {
    let listed = fs::read_dir(path).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
