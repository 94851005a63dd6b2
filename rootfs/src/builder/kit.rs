//! The kernel kit: `vmlinuz`, `vmlinux` and the initramfs out of the kernel's package.

use std::io::Write;

use anyhow::{Context as _, Result, anyhow, bail};

use super::image::MIB;
use super::{BuildContext, BuildResult, layers, packages, time_s};
use crate::compose::Layer;
use crate::cpio;
use crate::debian::package::{Entry, Kind};
use crate::digest::Sha256;
use crate::kernel::{self, Modules, without_signature};
use crate::manifest::{INITRAMFS, KERNEL_MANIFEST, KernelManifest, Output, VMLINUX, VMLINUZ};
use crate::recipe::Recipe;
use crate::tree::{Content, ContentReader};

pub(super) fn build(
    site: &BuildContext,
    name: &str,
    recipe: &Recipe,
    say: &mut dyn FnMut(&str),
) -> Result<BuildResult> {
    let lock = site.lock(name)?;
    let time_s = time_s(lock.date_s)?;
    let kernel_key = site.key(recipe, &lock, time_s);
    let key = site.with_agent(kernel_key);
    let known: Option<KernelManifest> = site.manifest(KERNEL_MANIFEST);
    let known = known.filter(|known| site.has(&known.vmlinuz) && site.has(&known.vmlinux));
    if let Some(known) = &known
        && known.key == key
        && site.has(&known.initramfs)
    {
        let bytes = known.vmlinuz.bytes + known.initramfs.bytes;
        return Ok(BuildResult { name: name.to_owned(), changed: false, bytes });
    }
    let layers = layers::layers(&site.cache, &recipe.suite, &lock, say)?;
    let package = KernelPackage::find(&layers, &recipe.release)?;
    say("writing the initramfs");
    let (bytes, modules) = initramfs(site, &package, recipe, time_s)?;
    let initramfs = output(INITRAMFS, &bytes);
    let mut files = vec![(INITRAMFS, bytes)];
    let known = known.filter(|known| known.kernel_key == kernel_key);
    let (vmlinuz, vmlinux) = if let Some(known) = known {
        (known.vmlinuz, known.vmlinux)
    } else {
        let (image, kernel) = kernels(&package, say)?;
        let outputs = (output(VMLINUZ, &image), output(VMLINUX, &kernel));
        files.extend([(VMLINUZ, image), (VMLINUX, kernel)]);
        outputs
    };
    let bytes = vmlinuz.bytes + initramfs.bytes;
    let size_max_bytes = recipe.size_max_mib * MIB;
    if bytes > size_max_bytes {
        bail!("kernel and initramfs have {bytes} bytes, but the recipe allows {size_max_bytes}");
    }
    let manifest = KernelManifest {
        release: package.release.to_owned(),
        key,
        kernel_key,
        agent: site.agent()?,
        vmlinuz,
        vmlinux,
        initramfs,
        modules,
        size_max_bytes,
        packages: packages(&lock),
    };
    // Everything that can be refused was refused before a file gets its name.
    for (file, bytes) in files {
        site.write(file, |out| Ok(out.write_all(&bytes)?))?;
    }
    site.write_manifest(KERNEL_MANIFEST, &manifest)?;
    Ok(BuildResult { name: name.to_owned(), changed: true, bytes })
}

/// The one package of a lock that has a kernel.
struct KernelPackage<'a> {
    release: &'a str,
    layer: &'a Layer,
}

impl<'a> KernelPackage<'a> {
    fn find(layers: &'a [Layer], prefix: &str) -> Result<Self> {
        for layer in layers {
            let release =
                layer.entries.iter().find_map(|entry| entry.path.strip_prefix("boot/vmlinuz-"));
            if let Some(release) = release {
                if !release.starts_with(prefix) {
                    bail!("the kernel is {release}; the recipe wants one of {prefix}");
                }
                return Ok(Self { release, layer });
            }
        }
        Err(anyhow!("no package of the lock has a kernel"))
    }

    fn content(&self, path: &str) -> Result<Content> {
        let entry = self.layer.entries.iter().find(|entry| entry.path == path);
        match entry {
            Some(Entry { kind: Kind::File { offset, bytes, sha256 }, .. }) => {
                let contents = self.layer.contents.clone();
                Ok(Content::from_slice(contents, *offset, *bytes, Some(*sha256)))
            }
            _ => Err(anyhow!("the kernel's package has no file {path}")),
        }
    }
}

fn initramfs(
    site: &BuildContext,
    package: &KernelPackage<'_>,
    recipe: &Recipe,
    time_s: u64,
) -> Result<(Vec<u8>, Vec<String>)> {
    let directory = format!("lib/modules/{}", package.release);
    let mut contents = ContentReader::new();
    let mut read = |path: &str| Ok::<_, anyhow::Error>(contents.read(&package.content(path)?)?);
    let built_in = read(&format!("{directory}/modules.builtin"))?;
    let paths = package.layer.entries.iter().map(|entry| entry.path.as_str());
    let modules = Modules::new(
        paths.filter(|path| path.starts_with(&directory)),
        &String::from_utf8_lossy(&built_in),
    );
    // `virtio_net@1` is wanted only for a virtio device of that number.
    let wanted: Vec<_> = recipe.modules.iter().map(|word| split_module(word)).collect();
    let names: Vec<_> = wanted.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut files = Vec::new();
    for module in modules.in_order(&names, &mut read)? {
        let bytes = read(&module.path)?;
        let content = Content::from_bytes(without_signature(&bytes));
        let device = wanted.iter().find(|(name, _)| *name == module.name);
        let device = device.and_then(|(_, device)| *device).map(str::to_owned);
        files.push(kernel::PackedModule { file: format!("{}.ko", module.name), device, content });
    }
    let names = files.iter().map(|packed| packed.file.trim_end_matches(".ko").to_owned()).collect();
    let tree = kernel::initramfs(Content::from_file(&site.agent_path)?, files, time_s)?;
    let mut archive = Vec::new();
    cpio::write(&tree, &mut archive)?;
    Ok((archive, names))
}

/// The name of a module and the number of the virtio device that it is for, if it is for one.
fn split_module(word: &str) -> (&str, Option<&str>) {
    match word.split_once('@') {
        Some((name, device)) => (name, Some(device)),
        None => (word, None),
    }
}

/// The kernel as packaged and as unpacked.
fn kernels(package: &KernelPackage<'_>, say: &mut dyn FnMut(&str)) -> Result<(Vec<u8>, Vec<u8>)> {
    say("unpacking the kernel");
    let content = package.content(&format!("boot/vmlinuz-{}", package.release))?;
    let image = ContentReader::new().read(&content)?;
    let kernel = kernel::extract(&image).context("extracting vmlinux from vmlinuz")?;
    Ok((image, kernel))
}

fn output(file: &str, bytes: &[u8]) -> Output {
    Output { file: file.to_owned(), bytes: bytes.len() as u64, sha256: Sha256::of(bytes) }
}
