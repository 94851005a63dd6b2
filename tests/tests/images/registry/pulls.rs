//! What is in a registry is here afterwards.

use image::digest::Digest;
use image::registry::{Compression, Mirror, PullError, Registry as Particular, UnsupportedImage};
use tests::own_port::OwnPort;
use tests::registry::{Layout, Registry, is_here};

use super::scene::Scene;

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    if !is_here() {
        return;
    }
    let (registry, scene) = (Registry::start(""), Scene::new());
    let image = Layout::image(&[3 * MIB, 100, MIB]);
    registry.push(&image, "team/app:v1", &[]);
    let pulled = scene.pull(&format!("{}/team/app:v1", registry.host())).await.unwrap();
    assert_eq!((pulled.manifest, pulled.index), (image.manifest, None));
    let layers: Vec<_> = pulled.layers.iter().map(|layer| layer.digest).collect();
    assert_eq!(layers, image.layers);
    for layer in &pulled.layers {
        assert_eq!(layer.compression, Compression::Gzip);
        assert_eq!(scene.blobs.size(&layer.digest).unwrap(), layer.bytes);
        let bytes = std::fs::read(scene.blobs.path(&layer.digest)).unwrap();
        assert_eq!(Digest::of(&bytes), layer.digest);
    }
    assert_eq!(Digest::of(&scene.blobs.read(&pulled.manifest).unwrap()), pulled.manifest);
    assert!(scene.blobs.read(&pulled.config).unwrap().starts_with(b"{"));
    assert_eq!((scene.blobs.list().unwrap().len(), scene.partials()), (5, 0));
    let progress = scene.progress.borrow().clone();
    assert!(progress.layers.len() == 3 && progress.layers.iter().all(|layer| layer.is_whole));
    assert_eq!(progress.bytes(), progress.size());
    assert!(pulled.fetched_bytes > progress.size());
    // All of it is here: nothing but the manifest travels.
    let name = format!("{}/team/app@{}", registry.host(), image.manifest);
    let again = scene.pull(&name).await.unwrap();
    assert!(again.fetched_bytes < 4096, "{}", again.fetched_bytes);
    assert_eq!(again.layers, pulled.layers);
}

#[tokio::test]
async fn of_an_index_the_image_for_this_platform_is_pulled() {
    if !is_here() {
        return;
    }
    let (registry, mut scene) = (Registry::start(""), Scene::new());
    let image = Layout::for_platforms(&["linux/amd64", "linux/arm64", "linux/s390x"], &[1000]);
    registry.push(&image, "multi", &[]);
    let name = format!("{}/multi", registry.host());
    let pulled = scene.pull(&name).await.unwrap();
    assert_eq!(pulled.manifest, image.manifest);
    let index = pulled.index.unwrap();
    assert!(scene.blobs.has(&index) && index != pulled.manifest);
    scene.options.platform = "linux/arm64".parse().unwrap();
    let other = scene.pull(&name).await.unwrap();
    assert_ne!(other.manifest, pulled.manifest);
    scene.options.platform = "linux/riscv64".parse().unwrap();
    let error = scene.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Unusable(UnsupportedImage::Platform { .. })), "{error}");
    let message = error.to_string();
    assert!(message.ends_with("only for linux/amd64, linux/arm64, linux/s390x"), "{message}");
}

#[tokio::test]
async fn an_image_for_another_platform_is_refused_before_its_layers_travel() {
    if !is_here() {
        return;
    }
    let (registry, scene) = (Registry::start(""), Scene::new());
    registry.push(&Layout::for_platforms(&["linux/arm64"], &[MIB]), "arm", &[]);
    let error = scene.pull(&format!("{}/arm", registry.host())).await.unwrap_err();
    assert!(matches!(error, PullError::Unusable(UnsupportedImage::Platform { .. })), "{error}");
    assert_eq!(scene.blobs.list().unwrap().len(), 1);
}

#[tokio::test]
async fn two_pulls_at_once_fetch_once() {
    if !is_here() {
        return;
    }
    let (registry, scene) = (Registry::start(""), Scene::new());
    let image = Layout::image(&[8 * MIB, 4 * MIB]);
    registry.push(&image, "app", &[]);
    let name = format!("{}/app", registry.host());
    let (one, two) = tokio::join!(scene.pull(&name), scene.pull(&name));
    let fetched = one.unwrap().fetched_bytes + two.unwrap().fetched_bytes;
    assert!(fetched < 13 * MIB, "{fetched}");
    assert_eq!(scene.partials(), 0);
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_done_without_when_it_fails() {
    if !is_here() {
        return;
    }
    let (registry, mirror) = (Registry::start(""), Registry::start(""));
    let image = Layout::image(&[1000]);
    registry.push(&image, "team/app", &[]);
    mirror.push(&image, "hub/team/app", &[]);
    let nobodys = OwnPort::claim();
    let dead = format!("http://localhost:{}", nobodys.number());
    let with = |mirrors: &[&str]| {
        let mut scene = Scene::new();
        let mirrors = mirrors.iter().map(|mirror| Mirror::parse(mirror).unwrap()).collect();
        let particular = Particular { mirrors, ..Particular::default() };
        scene.options.registries.insert(registry.host().parse().unwrap(), particular);
        scene
    };
    let name = format!("{}/team/app", registry.host());
    let good = format!("{}/hub", mirror.host());
    let pulled = with(&[&dead, &good]).pull(&name).await.unwrap();
    assert_eq!(pulled.source, format!("http://{}", mirror.host()));
    // It does not have it there.
    let pulled = with(&[&mirror.host()]).pull(&name).await.unwrap();
    assert_eq!(pulled.source, format!("http://{}", registry.host()));
    let error = with(&[&dead, &good]).pull(&format!("{}/nothing", registry.host())).await;
    let error = error.unwrap_err();
    let PullError::Everywhere { reasons, .. } = &error else { panic!("{error}") };
    assert!(matches!(reasons[0].1, PullError::Unreachable { .. }), "{error}");
    assert!(matches!(reasons[1].1, PullError::NotFound { .. }), "{error}");
    assert!(matches!(reasons[2].1, PullError::NotFound { .. }), "{error}");
    assert!(error.to_string().contains(&dead), "{error}");
}
