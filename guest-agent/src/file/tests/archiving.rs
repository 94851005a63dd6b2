use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use archive::{Decoder, Entry, Event, Kind};
use protocol::requests::TarGet;
use protocol::{Fault, FaultCode, StreamId, Text};

use super::super::limits::TREE_DEPTH_MAX;
use super::super::tar_get;
use super::client::{Download, run};
use super::{Scratch, SmallDisk, is_root, text};

type Member = (Entry, Vec<u8>);

async fn archive(path: Text, follow: bool) -> Result<Vec<u8>, Fault> {
    let mut download = Download::from(0);
    let ask = TarGet { path, stream: StreamId(1), follow };
    tar_get(ask, download.outlet.clone()).await?;
    download.all().await
}

/// The members of a whole archive, in the order of their names.
fn members(archive: &[u8]) -> Vec<Member> {
    let mut decoder = Decoder::new();
    let mut members: Vec<Member> = Vec::new();
    let mut rest = archive;
    while let Some(event) = decoder.next_event(&mut rest).unwrap() {
        match event {
            Event::Entry(entry) => members.push((entry, Vec::new())),
            Event::Content(content) => members.last_mut().unwrap().1.extend(content),
            Event::EndOfEntry | Event::EndOfArchive => {}
        }
    }
    decoder.finish().unwrap();
    members.sort_by(|one, other| one.0.path.cmp(&other.0.path));
    members
}

fn names(members: &[Member]) -> Vec<String> {
    members.iter().map(|(entry, _)| String::from_utf8(entry.path.clone()).unwrap()).collect()
}

fn member<'a>(members: &'a [Member], name: &str) -> &'a Member {
    members.iter().find(|(entry, _)| entry.path == name.as_bytes()).expect("it is archived")
}

#[test]
fn a_tree_is_archived_from_its_last_component_on() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("above/tree/a/f", "hello");
        scratch.write("above/tree/large", vec![b'x'; 700_001]);
        symlink("../elsewhere", scratch.at("above/tree/link")).unwrap();
        nix::unistd::mkfifo(&scratch.at("above/tree/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(scratch.at("above/tree/s")).unwrap();
        fs::set_permissions(scratch.at("above/tree/a/f"), PermissionsExt::from_mode(0o4711))
            .unwrap();
        let members = members(&archive(scratch.text("above/tree"), false).await.unwrap());
        assert_eq!(
            names(&members),
            ["tree", "tree/a", "tree/a/f", "tree/fifo", "tree/large", "tree/link"],
        );
        let (file, content) = member(&members, "tree/a/f");
        let status = scratch.at("above/tree/a/f").metadata().unwrap();
        assert_eq!((file.mode, content.as_slice()), (0o4711, b"hello".as_slice()));
        assert_eq!((file.mtime_s, i64::from(file.mtime_ns)), (status.mtime(), status.mtime_nsec()));
        assert_eq!((file.uid, file.gid), (status.uid(), status.gid()));
        assert_eq!(member(&members, "tree/large").1, vec![b'x'; 700_001]);
        let target = b"../elsewhere".to_vec();
        assert_eq!(member(&members, "tree/link").0.kind, Kind::Symlink { target });
    });
}

#[test]
fn a_single_file_and_the_name_that_is_none_can_be_archived() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("d/f", "x");
        let one = members(&archive(scratch.text("d/f"), false).await.unwrap());
        assert_eq!(names(&one), ["f"]);
        let inside = members(&archive(scratch.text("d/../d/.."), false).await.unwrap());
        assert_eq!(names(&inside), [".", "./d", "./d/f"]);
        assert_eq!(
            archive(scratch.text("none"), false).await.unwrap_err().code,
            FaultCode::NotFound
        );
    });
}

#[test]
fn symlinks_to_the_root_of_the_archive_are_followed_only_on_request() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("real/f", "x");
        symlink("real", scratch.at("link")).unwrap();
        let link = members(&archive(scratch.text("link"), false).await.unwrap());
        assert_eq!(link[0].0.kind, Kind::Symlink { target: b"real".to_vec() });
        let tree = members(&archive(scratch.text("link"), true).await.unwrap());
        assert_eq!(names(&tree), ["link", "link/f"]);
        let fault = archive(scratch.text("link/f"), false).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Denied, "{fault}");
        assert_eq!(names(&members(&archive(scratch.text("link/f"), true).await.unwrap())), ["f"]);
    });
}

#[test]
fn hard_links_within_the_tree_stay_hard_links() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("tree/first", "content");
        fs::hard_link(scratch.at("tree/first"), scratch.at("tree/second")).unwrap();
        scratch.write("outside", "other");
        fs::hard_link(scratch.at("outside"), scratch.at("tree/third")).unwrap();
        let members = members(&archive(scratch.text("tree"), false).await.unwrap());
        let links: Vec<_> = members
            .iter()
            .filter_map(|(entry, _)| match &entry.kind {
                Kind::HardLink { target } => Some((entry.path.clone(), target.clone())),
                _ => None,
            })
            .collect();
        let [(name, target)] = links.as_slice() else { panic!("{links:?}") };
        let mut both = [name.as_slice(), target.as_slice()];
        both.sort_unstable();
        assert_eq!(both, [b"tree/first".as_slice(), b"tree/second"]);
        assert_eq!(member(&members, "tree/third").1, b"other");
    });
}

#[test]
fn a_file_that_changes_its_size_keeps_the_one_in_its_header() {
    run(async {
        for new_size in [10, 9_000_000] {
            let scratch = Scratch::new();
            scratch.write("f", vec![b'x'; 4_000_000]);
            let mut download = Download::from(0);
            let ask = TarGet { path: scratch.text("f"), stream: StreamId(1), follow: false };
            tar_get(ask, download.outlet.clone()).await.unwrap();
            let mut all = download.next().await.unwrap().unwrap();
            File::options().write(true).open(scratch.at("f")).unwrap().set_len(new_size).unwrap();
            all.extend(download.all().await.unwrap());
            let members = members(&all);
            let content = &members[0].1;
            assert_eq!(content.len(), 4_000_000);
            let is_cut = content.ends_with(&[0; 512]);
            assert_eq!(is_cut, new_size == 10);
        }
    });
}

#[test]
fn a_tree_that_is_too_deep_ends_with_a_fault_that_names_it() {
    run(async {
        let scratch = Scratch::new();
        let mut deep = scratch.at("tree");
        for _ in 0..TREE_DEPTH_MAX {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        let fault = archive(scratch.text("tree"), false).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Limit);
        fs::remove_dir(&deep).unwrap();
        let members = members(&archive(scratch.text("tree"), false).await.unwrap());
        assert_eq!(members.len(), TREE_DEPTH_MAX);
    });
}

#[test]
fn made_up_file_systems_are_empty_directories_and_others_are_entered() {
    run(async {
        use nix::mount::{MsFlags, mount, umount};
        let scratch = Scratch::new();
        let disk = scratch.at("tree/disk");
        let Some(_mounted) = SmallDisk::mount(&disk, 64 * 1024) else { return };
        fs::write(disk.join("f"), "x").unwrap();
        let proc = scratch.at("tree/proc");
        fs::create_dir(&proc).unwrap();
        let none = None::<&str>;
        if let Err(errno) = mount(Some("proc"), &proc, Some("proc"), MsFlags::empty(), none) {
            println!("skipped: cannot mount procfs: {errno}");
            return;
        }
        let archived = archive(scratch.text("tree"), false).await;
        umount(&proc).unwrap();
        let members = members(&archived.unwrap());
        assert_eq!(names(&members), ["tree", "tree/disk", "tree/disk/f", "tree/proc"]);
    });
}

#[test]
fn devices_are_entries() {
    run(async {
        let members = members(&archive("/dev/null".into(), true).await.unwrap());
        assert_eq!(members[0].0.kind, Kind::CharDevice { major: 1, minor: 3 });
    });
}

#[test]
fn an_entry_that_cannot_be_read_ends_the_stream_with_its_name() {
    if is_root() {
        println!("skipped: root can read everything");
        return;
    }
    run(async {
        let scratch = Scratch::new();
        scratch.write("tree/secret", "x");
        fs::set_permissions(scratch.at("tree/secret"), PermissionsExt::from_mode(0o0)).unwrap();
        let fault = archive(scratch.text("tree"), false).await.unwrap_err();
        assert!(fault.message.contains("/tree/secret\": Permission denied"), "{fault}");
    });
}

#[test]
fn an_archived_tree_unpacks_to_the_same() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("tree/d/f", "hello");
        scratch.write("tree/d/\u{e4}\u{20ac}", "name");
        fs::hard_link(scratch.at("tree/d/f"), scratch.at("tree/g")).unwrap();
        symlink("d/f", scratch.at("tree/link")).unwrap();
        fs::set_permissions(scratch.at("tree/d"), PermissionsExt::from_mode(0o2750)).unwrap();
        let archived = archive(scratch.text("tree"), false).await.unwrap();
        fs::create_dir(scratch.at("copy")).unwrap();
        super::unpacking::unpack(text(&scratch.at("copy")), &archived).await.unwrap();
        let again = archive(scratch.text("copy/tree"), false).await.unwrap();
        let comparable = |archive: &[u8]| {
            let mut members = members(archive);
            // Which name of a file comes first is up to the file system.
            members.retain(|(entry, _)| !matches!(entry.path.as_slice(), b"tree/g" | b"tree/d/f"));
            members
        };
        assert_eq!(comparable(&archived), comparable(&again));
        let inode = |name: &str| scratch.at(name).metadata().unwrap().ino();
        assert_eq!(inode("copy/tree/g"), inode("copy/tree/d/f"));
        assert_eq!(scratch.read("copy/tree/link"), "hello");
    });
}
