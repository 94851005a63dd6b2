//! Packages put together: merged directories, rules, quarrels, hostile links.

use super::*;
use crate::digest::Sha256;

fn layer(package: &str, contents: &Path, entries: &[(&str, Packed)]) -> Layer {
    let entries = entries.iter().map(|(path, kind)| Entry {
        path: (*path).to_owned(),
        mode: 0o755,
        uid: 0,
        gid: 0,
        kind: kind.clone(),
    });
    Layer { package: package.to_owned(), entries: entries.collect(), contents: contents.into() }
}

fn file(text: &[u8]) -> Packed {
    Packed::File { offset: 0, bytes: text.len() as u64, sha256: Sha256::of(text) }
}

fn symlink(target: &str) -> Packed {
    Packed::Symlink { target: target.to_owned() }
}

fn composed(recipe: &Recipe, layers: &[Layer]) -> Result<Tree, ComposeError> {
    compose(recipe, layers, Content::from_bytes("the agent"), 7)
}

#[test]
fn the_skeleton_has_the_agent_accounts_and_places_to_mount_on() {
    let tree = composed(&Recipe::default(), &[]).expect("a tree");
    assert_eq!(tree.resolve(b"sbin/init").ok(), tree.find(AGENT_PATH.as_bytes()));
    for (path, mode) in [("tmp", 0o1777), ("workspace", 0o755), ("etc/shadow", 0o600)] {
        let id = tree.find(path.as_bytes()).expect("there");
        assert_eq!(tree.node(id).metadata.mode, mode, "{path}");
    }
    assert!(tree.walk_all().iter().all(|(_, id)| tree.node(*id).metadata.mtime_s == 7));
    assert_eq!(dangling_links(&tree), Vec::<Vec<u8>>::new());
}

#[test]
fn bin_and_lib_of_packages_land_below_usr() {
    let contents = Path::new("/nonexistent");
    let entries =
        [("lib", Packed::Directory), ("lib/x/y", file(b"y")), ("bin/sh", symlink("dash"))];
    let dash = [
        ("usr/bin/dash", file(b"d")),
        ("usr/bin/twin", Packed::HardLink { target: "bin/dash".into() }),
    ];
    let layers = [layer("b", contents, &dash), layer("c", contents, &entries)];
    let tree = composed(&Recipe::default(), &layers).expect("a tree");
    assert!(tree.find(b"usr/lib/x/y").is_some());
    assert_eq!(tree.resolve(b"bin/sh").ok(), tree.find(b"usr/bin/dash"));
    assert_eq!(tree.find(b"usr/bin/twin"), tree.find(b"usr/bin/dash"));
}

#[test]
fn exclusions_take_links_to_what_is_gone_with_them() {
    let recipe = Recipe {
        exclude: vec!["/usr/share/doc".to_owned()],
        keep: vec!["/usr/share/doc/*/copyright".to_owned()],
        links: [
            ("/usr/bin/vi".to_owned(), "tiny".to_owned()),
            ("/usr/bin/none".to_owned(), "no".to_owned()),
        ]
        .into(),
        ..Recipe::default()
    };
    let entries = [
        ("usr/share/doc/a/readme", file(b"r")),
        ("usr/share/doc/a/copyright", file(b"c")),
        ("usr/readme", symlink("share/doc/a/readme")),
        ("usr/chain", symlink("readme")),
        ("usr/runtime", symlink("/run/x")),
        ("usr/bin/tiny", file(b"t")),
    ];
    let tree =
        composed(&recipe, &[layer("a", Path::new("/nonexistent"), &entries)]).expect("a tree");
    for (path, expected) in [
        ("usr/share/doc/a/readme", false),
        ("usr/share/doc/a/copyright", true),
        ("usr/readme", false),
        ("usr/chain", false),
        ("usr/runtime", true),
        ("usr/bin/vi", true),
        ("usr/bin/none", false),
    ] {
        assert_eq!(tree.find(path.as_bytes()).is_some(), expected, "{path}");
    }
}

#[test]
fn certificates_become_one_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let contents = directory.path().join("contents");
    std::fs::write(&contents, b"onetwo").expect("a file");
    let two = Packed::File { offset: 3, bytes: 3, sha256: Sha256::of(b"two") };
    let entries = [
        ("usr/share/ca-certificates/mozilla/B.crt", two),
        ("usr/share/ca-certificates/mozilla/A.crt", file(b"one")),
    ];
    let tree = composed(&Recipe::default(), &[layer("ca", &contents, &entries)]).expect("a tree");
    let bundle = tree.resolve(b"usr/lib/ssl/cert.pem").expect("a link to the bundle");
    let Kind::File(content) = &tree.node(bundle).kind else { panic!("no file") };
    assert_eq!(crate::tree::ContentReader::new().read(content).expect("readable"), b"onetwo");
}

#[test]
fn two_packages_with_different_files_of_one_name_are_reported() {
    let contents = Path::new("/nonexistent");
    let one = layer("one", contents, &[("usr/x", file(b"1"))]);
    let same = layer("same", contents, &[("usr/x", file(b"1"))]);
    let other = layer("two", contents, &[("usr/x", file(b"2"))]);
    assert!(composed(&Recipe::default(), &[one.clone(), same]).is_ok());
    let error = composed(&Recipe::default(), &[one, other]).expect_err("a conflict");
    assert_eq!(error.to_string(), "two and one both have usr/x with different content");
}

#[test]
fn a_package_cannot_write_through_a_link_that_it_made() {
    let entries = [("usr/evil", symlink("/etc")), ("usr/evil/passwd", file(b"root::0:0"))];
    let result =
        composed(&Recipe::default(), &[layer("evil", Path::new("/nonexistent"), &entries)]);
    assert!(matches!(
        result,
        Err(ComposeError::Package { source: TreeError::ThroughSymlink { .. }, .. })
    ));
}
