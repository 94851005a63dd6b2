//! One image: layers composed into a tree, the tree written, the manifest beside it.

use anyhow::{Result, bail};

use super::{BuildContext, BuildResult, bytecode, layers, packages, time_s};
use crate::compose::{compose, set_id_files};
use crate::erofs;
use crate::listing;
use crate::lock::Lock;
use crate::manifest::{ImageManifest, Output, SetId};
use crate::recipe::Recipe;
use crate::tree::Content;

/// The bytes of a MiB.
pub(super) const MIB: u64 = 1 << 20;

pub(super) fn build(
    site: &BuildContext,
    name: &str,
    recipe: &Recipe,
    say: &mut dyn FnMut(&str),
) -> Result<BuildResult> {
    // Without packages there is nothing to lock.
    let lock = if recipe.packages.is_empty() { Lock::default() } else { site.lock(name)? };
    let time_s = time_s(lock.date_s)?;
    let key = site.with_agent(site.key(recipe, &lock, time_s));
    let manifest_file = format!("{name}.json");
    if let Some(known) = site.manifest::<ImageManifest>(&manifest_file)
        && known.key == key
        && site.has(&known.image)
    {
        return Ok(BuildResult { name: name.to_owned(), changed: false, bytes: known.image.bytes });
    }
    let mut layers = layers::layers(&site.cache, &recipe.suite, &lock, say)?;
    say(&format!("writing {name}"));
    let agent = Content::from_file(&site.agent_path)?;
    let mut tree = compose(recipe, &layers, agent.clone(), time_s)?;
    if recipe.bytecode
        && let Some(compiled) = bytecode::layer(&site.cache, &tree, time_s, say)?
    {
        layers.push(compiled);
        tree = compose(recipe, &layers, agent, time_s)?;
    }
    let set_id: Vec<SetId> = set_id_files(&tree)
        .into_iter()
        .map(|(path, mode)| SetId { path, mode: format!("{mode:o}") })
        .collect();
    if let Some(stray) = set_id.iter().find(|found| !recipe.set_id.contains(&found.path)) {
        bail!("{} is set-id, which the recipe does not allow", stray.path);
    }
    // Everything that can be refused is refused before the image gets its name.
    let agent = site.agent()?;
    let (files, files_sha256) = listing::digest(&tree)?;
    let uuid = uuid_of(files_sha256.0);
    let file = format!("{name}.erofs");
    let options = erofs::Options { time_s, uuid, label: name };
    let size_max_bytes = recipe.size_max_mib * MIB;
    let written = site.write(&file, |out| {
        let written = erofs::write(&tree, &options, out)?;
        if written.bytes > size_max_bytes {
            bail!("{name} has {} bytes, but its recipe allows {size_max_bytes}", written.bytes);
        }
        Ok(written)
    })?;
    let manifest = ImageManifest {
        recipe: name.to_owned(),
        summary: recipe.summary.clone(),
        key,
        image: Output { file, bytes: written.bytes, sha256: written.sha256 },
        format: "erofs".to_owned(),
        uuid: uuid_text(&uuid),
        time_s,
        agent,
        size_max_bytes,
        programs: recipe.programs.clone(),
        set_id,
        files,
        files_sha256,
        packages: packages(&lock),
    };
    site.write_manifest(&manifest_file, &manifest)?;
    Ok(BuildResult { name: name.to_owned(), changed: true, bytes: written.bytes })
}

/// A UUID of version 8, which may be derived from anything, from a digest.
fn uuid_of(digest: [u8; 32]) -> [u8; 16] {
    let mut uuid: [u8; 16] = digest[..16].try_into().expect("half of a digest");
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits = |bytes: &[u8]| -> String { bytes.iter().copied().flat_map(hexadecimal).collect() };
    let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    parts.map(digits).join("-")
}

fn hexadecimal(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(u32::from(digit), 16).expect("below 16"))
}
