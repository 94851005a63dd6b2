//! The forms in which images come.

use super::*;
use crate::document::DocumentError;

fn layer() -> TestLayer {
    TestLayer::plain(Archive::default().dir("bin").file("bin/tool", "tool"))
}

fn tool(place: &TestStore, name: &str) -> String {
    let image = place.images.find(name).expect(name);
    let lease = place.images.lease(&image).expect("a lease");
    fs::read_to_string(lease.root.join("bin/tool")).expect("the tool")
}

/// The archive of a directory, made by the system's own program.
fn tar(directory: &Path, to: &Path) {
    let status = std::process::Command::new("tar")
        .args(["-C", directory.to_str().unwrap(), "-cf", to.to_str().unwrap(), "."])
        .status()
        .expect("tar runs");
    assert!(status.success());
}

#[tokio::test]
async fn layers_come_plain_or_compressed_either_way() {
    let big = "text ".repeat(50_000);
    for (name, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd), ("frames", frames)]
    {
        let place = TestStore::new(&format!("packed-{name}"));
        let layer = TestLayer::packed(Archive::default().file("bin/tool", &big), pack);
        place.root(&[layer]).await.expect(name);
        assert_eq!(tool(&place, "test"), big);
    }
}

/// Several frames with one between them that decoders skip.
fn frames(bytes: &[u8]) -> Vec<u8> {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let skipped = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    [zstd(one), skipped.clone(), zstd(other), skipped].concat()
}

#[tokio::test]
async fn a_layout_comes_as_a_directory_and_as_an_archive() {
    let place = TestStore::new("layout");
    write_layout(&place.file("layout"), &[layer()], &json!({"Env": ["A=1"]}));
    place.import("layout", Some("one")).await.expect("a layout");
    tar(&place.file("layout"), &place.file("layout.tar"));
    place.import("layout.tar", Some("two")).await.expect("an archive");
    fs::write(place.file("layout.tar.gz"), gzip(&fs::read(place.file("layout.tar")).unwrap()))
        .unwrap();
    place.import("layout.tar.gz", Some("three")).await.expect("a compressed archive");
    for name in ["one", "two", "three"] {
        assert_eq!(tool(&place, name), "tool");
        let process = place.images.find(name).unwrap().process;
        assert_eq!(process.env, [("A".to_owned(), "1".to_owned())]);
    }
    assert!(matches!(place.import("layout", None).await, Err(ImageError::Nameless { .. })));
}

#[tokio::test]
async fn docker_archives_keep_their_names() {
    let place = TestStore::new("docker");
    let (saved, layer) = (place.file("saved"), layer());
    fs::create_dir_all(saved.join("abc")).unwrap();
    fs::create_dir_all(saved.join("def")).unwrap();
    fs::write(saved.join("abc/layer.tar"), &layer.blob).unwrap();
    std::os::unix::fs::symlink("../abc/layer.tar", saved.join("def/layer.tar")).unwrap();
    let config = json!({
        "architecture": crate::document::Platform::host().architecture, "os": "linux",
        "config": {"Entrypoint": ["/bin/tool"], "Cmd": ["x"], "WorkingDir": "srv", "User": "7:8"},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
    });
    fs::write(saved.join("c.json"), config.to_string()).unwrap();
    let list =
        json!([{"Config": "c.json", "RepoTags": ["team/app:2"], "Layers": ["def/layer.tar"]}]);
    fs::write(saved.join("manifest.json"), list.to_string()).unwrap();
    tar(&saved, &place.file("saved.tar"));
    place.import("saved.tar", None).await.expect("an archive");
    assert_eq!(tool(&place, "team/app:2"), "tool");
    let process = place.images.find("team/app:2").unwrap().process;
    assert_eq!(process.command(), ["/bin/tool", "x"]);
    assert_eq!((process.workdir.as_deref(), process.user.as_deref()), (Some("/srv"), Some("7:8")));
}

#[tokio::test]
async fn a_root_comes_as_a_directory_and_as_an_archive() {
    let place = TestStore::new("root");
    let root = place.file("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(root.join("bin/tool"), "tool").unwrap();
    fs::hard_link(root.join("bin/tool"), root.join("bin/same")).unwrap();
    place.import("root", Some("one")).await.expect("a directory");
    fs::write(place.file("root.tar.gz"), gzip(&layer().blob)).unwrap();
    place.import("root.tar.gz", Some("two")).await.expect("an archive");
    assert_eq!((tool(&place, "one"), tool(&place, "two")), ("tool".into(), "tool".into()));
    assert!(matches!(place.import("root", None).await, Err(ImageError::Nameless { .. })));
    fs::write(place.file("text"), "not an image").unwrap();
    assert!(matches!(place.import("text", Some("x")).await, Err(ImageError::NoForm { .. })));
    // A file from elsewhere may be truncated.
    let whole = layer().blob;
    fs::write(place.file("cut.tar"), &whole[..whole.len() / 2]).unwrap();
    let error = place.import("cut.tar", Some("x")).await.unwrap_err();
    assert!(matches!(&error, ImageError::Archive { .. }), "{error}");
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[tokio::test]
async fn streams_can_be_imported() {
    let place = TestStore::new("once");
    let pipe = place.file("pipe");
    for (name, bytes) in [("plain", layer().blob), ("packed", gzip(&layer().blob))] {
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let to = pipe.clone();
        let writing = std::thread::spawn(move || fs::write(to, bytes));
        place.import("pipe", Some(name)).await.expect("an archive");
        writing.join().unwrap().unwrap();
        fs::remove_file(&pipe).unwrap();
        assert_eq!(tool(&place, name), "tool");
    }
}

#[tokio::test]
async fn of_several_platforms_the_hosts_is_taken() {
    let place = TestStore::new("platforms");
    let digest = write_layout(&place.file("layout"), &[layer()], &json!({}));
    let size = fs::metadata(place.file("layout/blobs/sha256").join(digest.hex())).unwrap().len();
    let host = crate::document::Platform::host();
    let entry = |architecture: &str| {
        let platform = json!({"architecture": architecture, "os": "linux"});
        json!({"mediaType": "m", "digest": digest, "size": size, "platform": platform})
    };
    let write = |entries: &[serde_json::Value]| {
        let index = json!({"schemaVersion": 2, "manifests": entries});
        fs::write(place.file("layout/index.json"), index.to_string()).unwrap();
    };
    write(&[entry("s390x"), entry(&host.architecture)]);
    place.import("layout", Some("app")).await.expect("the host's");
    write(&[entry("s390x"), entry("riscv64")]);
    let error = place.import("layout", Some("other")).await.unwrap_err();
    assert!(matches!(error, ImageError::Document(DocumentError::NoPlatform { .. })), "{error}");
    assert!(error.to_string().contains("linux/s390x, linux/riscv64"), "{error}");
}

#[tokio::test]
async fn a_layout_that_points_out_of_itself_is_refused() {
    let place = TestStore::new("points");
    write_layout(&place.file("layout"), &[layer()], &json!({}));
    let index = place.file("layout/index.json");
    fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink("../../precious", &index).unwrap();
    assert!(place.import("layout", Some("app")).await.is_err());
    place.assert_empty();
}
