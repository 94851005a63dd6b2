use serde_json::{Value, json};

use super::*;

fn digest(of: &str) -> String {
    Digest::of(of.as_bytes()).to_string()
}

fn wanted() -> Platform {
    "linux/amd64".parse().unwrap()
}

fn read(document: &Value, content_type: Option<&str>) -> Result<Document, UnsupportedImage> {
    parse_document(document.to_string().as_bytes(), content_type, &wanted())
}

fn image(layers: &Value) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": { "mediaType": CONFIGS[0], "digest": digest("config"), "size": 7 },
        "layers": layers,
    })
}

fn layer_of(media_type: &str) -> Value {
    json!([{ "mediaType": media_type, "digest": digest("layer"), "size": 5 }])
}

#[test]
fn the_manifests_of_oci_and_docker_are_the_same_image() {
    let oci = image(&layer_of("application/vnd.oci.image.layer.v1.tar+zstd"));
    let Document::Manifest(found) = read(&oci, Some(OCI_MANIFEST)).unwrap() else {
        panic!("index")
    };
    assert_eq!(found.config, Config { digest: Digest::of(b"config"), bytes: 7 });
    let layer = Layer { digest: Digest::of(b"layer"), bytes: 5, compression: Compression::Zstd };
    assert_eq!(found.layers, [layer]);
    let mut docker = image(&layer_of("application/vnd.docker.image.rootfs.diff.tar.gzip"));
    docker["mediaType"] = json!(DOCKER_MANIFEST);
    docker["config"]["mediaType"] = json!(CONFIGS[1]);
    let read =
        read(&docker, Some("application/vnd.docker.distribution.manifest.v2+json; charset=x"));
    let Document::Manifest(found) = read.unwrap() else { panic!("index") };
    assert_eq!(found.layers[0].compression, Compression::Gzip);
}

#[test]
fn a_document_that_is_no_image_names_its_type() {
    let good = layer_of("application/vnd.oci.image.layer.v1.tar");
    let with = |key: &str, value: Value| {
        let mut document = image(&good);
        document[key] = value;
        document
    };
    assert!(read(&image(&good), None).is_ok());
    assert_eq!(read(&with("schemaVersion", json!(1)), None), Err(UnsupportedImage::Schema1));
    assert_eq!(
        read(&json!({ "schemaVersion": 1, "fsLayers": [] }), None),
        Err(UnsupportedImage::Schema1)
    );
    assert_eq!(read(&json!({}), Some(SCHEMA1[1])), Err(UnsupportedImage::Schema1));
    let chart = json!({ "mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest("x"), "size": 1 });
    assert!(matches!(read(&with("config", chart), None), Err(UnsupportedImage::NotAnImage { .. })));
    for foreign in [
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    ] {
        let read = read(&image(&layer_of(foreign)), None);
        assert!(matches!(read, Err(UnsupportedImage::Foreign { .. })), "{foreign}: {read:?}");
    }
    let elsewhere = json!([{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest("x"),
        "size": 1, "urls": ["https://elsewhere"] }]);
    assert!(matches!(read(&image(&elsewhere), None), Err(UnsupportedImage::Foreign { .. })));
    assert!(matches!(
        read(&image(&layer_of("text/plain")), None),
        Err(UnsupportedImage::Layer { .. })
    ));
    // The same bytes as an image and as an index: two readers would see different images.
    assert!(matches!(read(&image(&good), Some(OCI_INDEX)), Err(UnsupportedImage::Manifest(_))));
    assert!(matches!(
        read(&with("manifests", json!([])), None),
        Err(UnsupportedImage::Manifest(_))
    ));
    for size in [json!(-1), json!(u64::MAX), json!("5"), json!(1.5)] {
        let layers = json!([{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest("x"), "size": size }]);
        assert!(read(&image(&layers), None).is_err(), "{size}");
    }
    let many: Vec<_> = (0..=LAYERS_MAX).map(|_| good[0].clone()).collect();
    assert!(matches!(read(&image(&json!(many)), None), Err(UnsupportedImage::Layers { .. })));
    let sha512 = json!([{ "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": format!("sha512:{}", "0".repeat(128)), "size": 1 }]);
    assert!(read(&image(&sha512), None).unwrap_err().to_string().contains("sha512"));
}

fn index(platforms: &[&str]) -> Value {
    let entry = |platform: &&str| {
        let mut words = platform.split('/');
        json!({
            "mediaType": OCI_MANIFEST, "digest": digest(platform), "size": 9,
            "platform": { "os": words.next(), "architecture": words.next(), "variant": words.next() },
        })
    };
    let manifests: Vec<_> = platforms.iter().map(entry).collect();
    json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests })
}

#[test]
fn of_several_platforms_the_one_that_runs_here_is_chosen() {
    let chosen = |platforms: &[&str]| match read(&index(platforms), None) {
        Ok(Document::Index(chosen)) => Ok(chosen.digest),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    let of = |platform: &str| Ok(Digest::of(platform.as_bytes()));
    assert_eq!(chosen(&["linux/arm64/v8", "linux/amd64", "windows/amd64"]), of("linux/amd64"));
    assert_eq!(chosen(&["linux/amd64/v3", "linux/amd64/v1"]), of("linux/amd64/v1"));
    let there = vec!["linux/arm64/v8".to_owned(), "linux/s390x".to_owned()];
    let error = chosen(&["linux/arm64/v8", "unknown/unknown", "linux/s390x"]).unwrap_err();
    assert_eq!(error, UnsupportedImage::Platform { wanted: wanted(), there });
    assert!(error.to_string().ends_with("only for linux/arm64/v8, linux/s390x"), "{error}");
    let mut only = index(&["x/y"]);
    only["manifests"][0].as_object_mut().unwrap().remove("platform");
    assert!(matches!(read(&only, None), Ok(Document::Index(_))));
    let two = only["manifests"][0].clone();
    only["manifests"].as_array_mut().unwrap().push(two);
    assert!(matches!(read(&only, None), Err(UnsupportedImage::Platform { .. })));
}

#[test]
fn a_configuration_for_another_platform_is_refused() {
    assert_eq!(check_config(br#"{"os":"linux","architecture":"amd64"}"#, &wanted()), Ok(()));
    assert_eq!(check_config(b"{}", &wanted()), Ok(()));
    let other = check_config(br#"{"os":"linux","architecture":"arm64"}"#, &wanted());
    assert!(matches!(other, Err(UnsupportedImage::Platform { .. })));
    assert!(check_config(b"no json", &wanted()).is_err());
}

proptest::proptest! {
    #[test]
    fn documents_of_strangers_never_panic(text in "\\{(\"(schemaVersion|config|layers|manifests|mediaType)\":(\\[\\]|\\{\\}|1|\"x\"),?){0,5}\\}") {
        let _ = parse_document(text.as_bytes(), None, &wanted());
    }
}
