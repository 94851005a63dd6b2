//! What a sandbox was made of, from its record: its specification, to make it again, and its machine, to restore
//! it from its own snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use crate::stored::{HeldImage, ImageSource, RequestedImage};
use crate::{HostFiles, Record, SandboxError, Spec};
use host::paths::Paths;
use image::Pull;
use machine::{Capability, Directories, MachineSpec};

/// What the machine of a recorded sandbox is made with.
#[derive(Clone)]
pub(super) struct Remaking {
    pub paths: Paths,
    pub files: HostFiles,
    pub source: Arc<ImageSource>,
}

impl Remaking {
    /// The machine, restored from a snapshot of itself. Its environment is in its memory.
    pub async fn restored(
        &self,
        record: &Record,
        directories: Directories,
        from: PathBuf,
    ) -> Result<(MachineSpec, Option<HeldImage>), SandboxError> {
        let mut spec = again(record, Vec::new());
        if let Some(digest) = &record.image_digest {
            // Its name may be another image's by now.
            spec.image = Some(digest.to_string());
        }
        spec.pull = Some(Pull::Never);
        let id = record.id.clone();
        let mut machine = spec.machine_spec(id, &self.paths, &self.files, Some(directories));
        let wanted = RequestedImage::of(&spec, &self.source.paths, self.source.images.as_ref());
        let image = match wanted {
            Some(wanted) => wanted.furnish(&mut machine).await?,
            None => None,
        };
        machine.restore = Some(from);
        machine.env.clear();
        Ok((machine, image))
    }
}

/// The specification, as far as the record has it: everything but the values of the environment.
pub(super) fn again(record: &Record, env: Vec<(String, String)>) -> Spec {
    // The address of a machine that is started here is chosen at each start.
    let is_elsewhere = !record.machine.is_started();
    let is_path = record.workspace.as_ref().is_some_and(|workspace| workspace.starts_with('/'));
    Spec {
        machine: Some(record.machine),
        image: record.image.clone(),
        base: record.base.clone(),
        template: record.template.clone(),
        packages: record.packages.clone(),
        address: record.address.clone().filter(|_| is_elsewhere),
        env,
        hostname: Some(record.hostname.clone()),
        scratch_bytes: record.machine.can(Capability::Scratch).then_some(record.scratch_bytes),
        hide: record.hide.clone(),
        memory_mib: record.memory_mib,
        cpu_millis: record.cpu_millis,
        workdir: record.workdir.clone(),
        user: record.user.clone(),
        labels: record.labels.clone(),
        ttl_ms: record.ttl_ms,
        idle_ttl_ms: record.idle_ttl_ms,
        on_idle: (!record.on_idle.is_stop()).then_some(record.on_idle),
        durability: (!record.durability.is_off()).then_some(record.durability),
        record: (!record.record.is_on()).then_some(record.record),
        on_lost: (!record.on_lost.is_lose()).then_some(record.on_lost),
        follows: record.follows.clone(),
        keep_stopped_ms: record.keep_stopped_ms,
        egress: Some(record.egress.clone()),
        workspace: record.workspace.clone(),
        // A workspace of the configuration is specified there.
        mount: record.mounted && is_path,
        volumes: record.volumes.clone(),
        secrets: record.secrets.clone(),
        key: record.key.clone(),
        ..Spec::new(record.which())
    }
}

#[cfg(test)]
mod tests {
    use machine::MachineKind;

    use crate::{Durability, OnIdle, OnLost, RecordPolicy};

    use super::*;

    #[test]
    fn a_record_says_all_that_was_asked_for_but_values() {
        let mut spec = Spec::new("team/web".parse().unwrap());
        spec.machine = Some(MachineKind::Process);
        spec.image = Some("alpine:3".to_owned());
        spec.base = Some("alpine:2".to_owned());
        spec.template = Some("app:v1".parse().unwrap());
        spec.packages = Some("/var/cache/burrow/packages/k".into());
        spec.hostname = Some("other".to_owned());
        spec.env = vec![("A".to_owned(), "1".to_owned())];
        spec.hide = Some(vec!["/srv".to_owned()]);
        spec.scratch_bytes = Some(64 * 1024 * 1024);
        (spec.memory_mib, spec.cpu_millis) = (Some(512), Some(500));
        (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms) = (Some(1), Some(2), Some(3));
        spec.on_idle = Some(OnIdle::Pause);
        spec.durability = Some(Durability::Sync);
        spec.record = Some(RecordPolicy::Input);
        spec.on_lost = Some(OnLost::Restart);
        (spec.workdir, spec.user) = (Some("/srv".to_owned()), Some("web".to_owned()));
        spec.labels.insert("team".to_owned(), "a".to_owned());
        spec.egress = Some(vec!["pypi.org".to_owned()]);
        (spec.workspace, spec.mount) = (Some("/home/me".to_owned()), true);
        spec.volumes = vec!["data:/srv/data".parse().unwrap()];
        spec.secrets = vec!["token".to_owned()];
        let record = Record::new("0123456789ab".parse().unwrap(), &spec, 7);
        assert_eq!(again(&record, spec.env.clone()), spec);
    }
}
