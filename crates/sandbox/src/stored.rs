//! An image of this host's store as the root of a machine: resolved by its name, made into a root
//! if that was not done, and held while the machine uses it.

use std::fs;
use std::path::Path;

use super::record::{Record, StoredRecord};
use super::{MachineKind, SandboxError, Spec};
use host::paths::Paths;
use image::digest::Digest;
use image::reference::Reference;
use image::store::{ListedImage, User, describe_lost};
use image::{Image, ImageError, Images, Lease, Policy, Pull, Puller};
use machine::MachineSpec;
use machine::kind::Root;
use machine::vmm::Kit;

/// The prefix of a digest.
const DIGEST_PREFIX: &str = "sha256:";

/// What images of this host's store are found and pulled with.
pub(super) struct ImageSource {
    pub paths: Paths,
    pub images: Option<Images>,
    pub policy: Policy,
    pub puller: Option<Puller>,
}

impl ImageSource {
    /// The image that a sandbox asks for, if it is one of the store.
    pub fn wanted(&self, spec: &Spec) -> Option<RequestedImage> {
        let wanted = RequestedImage::of(spec, &self.paths, self.images.as_ref())?;
        Some(wanted.allowed_by(&self.policy).pulled_by(self.puller.as_ref(), spec.pull))
    }
}

/// The image for the root.
pub(super) struct RequestedImage {
    paths: Paths,
    /// Opened when needed, unless it is open already.
    images: Option<Images>,
    name: String,
    /// The image that it was made from, if the policy applies to that.
    base: Option<String>,
    machine: MachineKind,
    policy: Policy,
    pull: Pull,
    puller: Option<Puller>,
    /// The requester.
    namespace: String,
}

impl RequestedImage {
    /// The image that a sandbox asks for, unless that is a directory, a file or one of the kit.
    pub fn of(spec: &Spec, paths: &Paths, images: Option<&Images>) -> Option<Self> {
        let name = spec.image.as_deref().filter(|name| !name.starts_with('/'))?;
        let is_stored = match spec.machine().profile().root {
            Root::Host => true,
            Root::Own => false,
            // An image of the kit comes before one of the store.
            Root::Kit(_) => Kit::find().is_ok_and(|kit| kit.image(name).is_err()),
        };
        is_stored.then(|| Self {
            paths: paths.clone(),
            images: images.cloned(),
            name: name.to_owned(),
            base: spec.base.clone(),
            machine: spec.machine(),
            policy: Policy::default(),
            pull: spec.pull.unwrap_or_default(),
            puller: None,
            namespace: spec.namespace.to_string(),
        })
    }

    /// Enables pulling; `asked` takes precedence over the operator's setting.
    pub fn pulled_by(self, puller: Option<&Puller>, requested: Option<Pull>) -> Self {
        let pull = requested.or_else(|| puller.map(Puller::usual)).unwrap_or_default();
        Self { pull, puller: puller.cloned(), ..self }
    }

    /// Pulls the image, if necessary.
    pub async fn fetch(&self) -> Result<(), ImageError> {
        let Some(puller) = self.puller.as_ref().filter(|_| self.pull != Pull::Never) else {
            return Ok(());
        };
        // A digest alone does not name a registry.
        let parsed = self.name.parse::<Reference>().ok();
        let Some(name) = parsed.filter(|_| !self.name.starts_with(DIGEST_PREFIX)) else {
            return Ok(());
        };
        let (images, text, shown) = (self.images.clone(), self.name.clone(), name.clone());
        let namespace = self.namespace.clone();
        let find = move |images: Images| {
            let found = images.find(&text)?;
            images.of_namespace(Some(&namespace)).show(&shown)?;
            Ok(found)
        };
        let finding = tokio::task::spawn_blocking(move || images.map(find));
        match finding.await.unwrap_or(Some(Err(ImageError::Busy))) {
            // The meaning of a digest does not change.
            Some(Ok(_)) if self.pull == Pull::Missing || name.digest.is_some() => return Ok(()),
            None | Some(Ok(_) | Err(ImageError::NotFound { .. })) => {}
            Some(Err(error)) => return Err(error),
        }
        self.policy.check_pull(&self.name, &name)?;
        puller.pull(&name, Some(&self.namespace)).await.map(drop)
    }

    /// Applies an operator's policy.
    pub fn allowed_by(self, policy: &Policy) -> Self {
        Self { policy: policy.clone(), ..self }
    }

    /// Makes this image the machine's root. `None` if the store has no such image and the machine
    /// can report it better.
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

    /// The image of this name, if the policy allows it.
    fn judged(&self, images: &Images, name: &str) -> Result<Image, ImageError> {
        let ListedImage { image, names } = images.inspect(name)?;
        let names: Vec<_> = names.into_iter().map(|named| named.name).collect();
        self.policy.check(name, &image.digest, &names)?;
        Ok(image)
    }

    /// The image itself, if the policy allows what it was made from.
    fn usable(&self, images: &Images) -> Result<Image, ImageError> {
        let Some(base) = &self.base else { return self.judged(images, &self.name) };
        match self.judged(images, base) {
            // What was made from it has its layers.
            Err(ImageError::NotFound { .. }) if self.policy.allows_all() => {}
            judged => drop(judged?),
        }
        images.find(&self.name)
    }

    /// Pulls the image if necessary, and returns it if the policy allows it.
    pub async fn resolve(self) -> Result<Digest, ImageError> {
        self.fetch().await?;
        let finding = tokio::task::spawn_blocking(move || {
            let images = match &self.images {
                Some(images) => images.clone(),
                None => Images::open(&self.paths)?,
            };
            Ok(self.usable(&images)?.digest)
        });
        finding.await.unwrap_or(Err(ImageError::Busy))
    }

    fn hold(self) -> Result<(Lease, Option<String>), ImageError> {
        let images = match &self.images {
            Some(images) => images.clone(),
            None => Images::open(&self.paths)?,
        };
        let image = self.usable(&images)?;
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
    /// Records what follows from the image: the working directory, and what is not enforced.
    pub(super) fn describe(&self, stored: &mut StoredRecord) {
        let record = &mut stored.record;
        let process = &self.lease.image.process;
        record.image_digest = Some(self.lease.image.digest);
        let own = process.env.iter().map(|(name, _)| name.clone());
        record.env_names.extend(own);
        record.env_names.sort();
        record.env_names.dedup();
        record.workdir = record.workdir.take().or_else(|| process.workdir.clone());
        record.user = record.user.take().or_else(|| self.user().map(str::to_owned));
    }

    /// What of the image is not enforced here.
    pub fn warnings(&self) -> Vec<String> {
        describe_lost(self.lease.lost).into_iter().collect()
    }

    /// The user that the image names, unless that is root.
    pub fn user(&self) -> Option<&str> {
        let user = self.lease.image.process.user.as_deref();
        user.filter(|user| !matches!(*user, "root" | "0" | "0:0" | "root:root"))
    }
}

/// The users of images as roots, by the records of all bridges that this state has known: sandboxes
/// that have not ended, templates and snapshots.
pub fn image_users(paths: &Paths) -> Vec<User> {
    let mut users = Vec::new();
    for record in records(paths) {
        if let (Some(digest), false) = (record.image_digest, record.state.is_over()) {
            users.push(User { digest, name: record.which().to_string() });
        }
    }
    for template in crate::template::stored(&paths.templates()) {
        let image = template.options.image.as_deref();
        if let Some(digest) = image.and_then(|image| image.parse().ok()) {
            users.push(User { digest, name: format!("the template {}", template.which()) });
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

/// The records of sandboxes that can be read.
pub(super) fn records(paths: &Paths) -> impl Iterator<Item = Record> {
    let directories = subdirectories(&paths.state_boxes()).into_iter();
    directories.filter_map(|directory| Some(StoredRecord::read(&directory).ok()?.record))
}

fn subdirectories(path: &Path) -> Vec<std::path::PathBuf> {
    let listed = fs::read_dir(path).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
