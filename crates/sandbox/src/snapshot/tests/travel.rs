//! Archives of snapshots, right ones and hostile ones. The snapshots are files of a test: whether a machine
//! starts from one is tested with real machines.

use std::os::unix::fs::FileExt;

use ::archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry, padding};
use image::digest::Digest;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::archive::{ArchiveError, ArchiveManifest};
use super::super::*;
use crate::limits::{SNAPSHOT_EXTENTS_MAX, SNAPSHOT_HOLE_BYTES_MIN, SNAPSHOT_MANIFEST_BYTES_MAX};
use egress::NAMES_FILE;
use machine::vmm::{MEMORY, Manifest};

const MIB: u64 = 1 << 20;
const SCRATCH_BYTES: u64 = 64 * MIB;

struct Scene {
    path: PathBuf,
    snapshots: Snapshots,
    which: SandboxRef,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn machine() -> Manifest {
    let digests = [("kernel", "aa"), ("initramfs", "bb"), ("image", "cc")];
    Manifest {
        format: 1,
        kind: MachineKind::Qemu,
        monitor: "QEMU emulator version 7.2".to_owned(),
        memory_bytes: 128 * MIB,
        cpus: 1,
        words: vec!["qemu".to_owned()],
        digests: digests.map(|(name, digest)| (name.to_owned(), digest.to_owned())).into(),
        has_scratch: true,
        processor: None,
        agent: "agent".to_owned(),
        taken_at_ms: 7,
    }
}

/// A bridge's snapshots, and one of them: a memory, a sparse disk, and names.
fn scene(name: &str) -> Scene {
    let path = std::env::temp_dir().join(format!("burrow-travel-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    let snapshots = Snapshots::open(path.clone()).unwrap();
    let mut spec = Spec::new("team/web".parse().unwrap());
    spec.machine = Some(MachineKind::Qemu);
    (spec.memory_mib, spec.scratch_bytes) = (Some(128), Some(SCRATCH_BYTES));
    spec.key = Some("key".to_owned());
    let record = Record::new("0123456789ab".parse().unwrap(), &spec, 7);
    let draft = snapshots.begin(&record, &path, "base".parse().unwrap()).unwrap();
    let text = serde_json::to_vec(&machine()).unwrap();
    fs::write(draft.machine().join(MANIFEST), text).unwrap();
    let memory: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(draft.machine().join(MEMORY), memory).unwrap();
    let disk = File::create_new(draft.machine().join(SCRATCH)).unwrap();
    disk.set_len(SCRATCH_BYTES).unwrap();
    disk.write_all_at(&[1; 8192], 0).unwrap();
    disk.write_all_at(&[2; 5000], 40 * MIB + 4096).unwrap();
    fs::write(draft.machine().parent().unwrap().join(NAMES_FILE), "example.org\n").unwrap();
    let which = draft.finish().unwrap().which();
    Scene { path, snapshots, which }
}

fn exported(scene: &Scene) -> Vec<u8> {
    let export = scene.snapshots.export(&scene.which).unwrap();
    let mut archive = Vec::new();
    export.write(&mut archive).unwrap();
    assert_eq!(archive.len() as u64, export.bytes());
    archive
}

/// Imports an archive that comes in pieces of this size, without the question whether its machine fits here.
fn imported(scene: &Scene, archive: &[u8], piece: usize) -> Result<Snapshot, SandboxError> {
    let (send, pieces) = mpsc::channel(4);
    let archive = archive.to_vec();
    let feeding = std::thread::spawn(move || {
        for piece in archive.chunks(piece) {
            // One that is refused is not read to its end.
            if send.blocking_send(piece.to_vec().into()).is_err() {
                return;
            }
        }
    });
    let import = || {
        let mut reader = ArchiveReader::new(pieces);
        let manifest = reader.manifest()?;
        let to: SandboxRef = "other/copy".parse().unwrap();
        let draft = scene.snapshots.begin_import(&to, Some("theirs".to_owned()), &manifest)?;
        draft.receive(&mut reader, &manifest)
    };
    let done = import();
    feeding.join().unwrap();
    done
}

fn refusal(scene: &Scene, archive: &[u8]) -> ArchiveError {
    let refused = imported(scene, archive, 10_000);
    let left: Vec<_> =
        fs::read_dir(&scene.path).unwrap().flatten().map(|one| one.file_name()).collect();
    assert!(left.iter().all(|name| name == "team" || name == "other"), "{left:?} is left");
    assert!(scene.snapshots.drafts().is_empty());
    match refused {
        Err(SandboxError::Archive(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// The manifest of an archive, changed by hand, with the right digest and the same parts.
fn with_manifest(archive: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut members = members(archive);
    let mut manifest: Value = serde_json::from_slice(&members[0].1).unwrap();
    change(&mut manifest);
    members[0].1 = serde_json::to_vec(&manifest).unwrap();
    members[1].1 = Digest::of(&members[0].1).to_string().into_bytes();
    packed(&members)
}

type Member = (String, Vec<u8>);

fn members(archive: &[u8]) -> Vec<Member> {
    let (mut decoder, mut rest, mut found) = (::archive::Decoder::new(), archive, Vec::new());
    while let Some(event) = decoder.next_event(&mut rest).unwrap() {
        match event {
            ::archive::Event::Entry(entry) => {
                found.push((String::from_utf8(entry.path).unwrap(), Vec::new()));
            }
            ::archive::Event::Content(bytes) => found.last_mut().unwrap().1.extend(bytes),
            ::archive::Event::EndOfEntry => {}
            ::archive::Event::EndOfArchive => break,
        }
    }
    found
}

fn packed(members: &[Member]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in members {
        add(&mut archive, name, Kind::File { size: content.len() as u64 });
        archive.extend(content);
        archive.extend(padding(content.len() as u64));
    }
    archive.extend(END_OF_ARCHIVE);
    archive
}

fn add(archive: &mut Vec<u8>, name: &str, kind: Kind) {
    let path = name.as_bytes().to_vec();
    let entry = Entry { path, kind, mode: 0o644, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 };
    encode_entry(&entry, archive).unwrap();
}

#[test]
fn an_imported_snapshot_has_the_files_of_the_original_with_their_holes() {
    let scene = scene("whole");
    let archive = exported(&scene);
    assert!((archive.len() as u64) < 2 * MIB, "{} bytes for the holes, too", archive.len());
    for piece in [512, 10_000, archive.len()] {
        let copy = imported(&scene, &archive, piece).unwrap();
        let original = scene.snapshots.get(&scene.which).unwrap();
        assert_eq!(copy.which().to_string(), "other/copy");
        assert_eq!((copy.key.as_deref(), original.key.as_deref()), (Some("theirs"), Some("key")));
        assert_eq!((&copy.sandbox, &copy.id), (&original.sandbox, &original.id));
        assert_eq!((copy.created_at_ms, copy.memory_mib), (original.created_at_ms, Some(128)));
        assert!(copy.imported_at_ms.is_some() && original.imported_at_ms.is_none());
        assert_eq!(copy, scene.snapshots.get(&copy.which()).unwrap());
        let (from, to) = (scene.snapshots.path(&scene.which), scene.snapshots.path(&copy.which()));
        for file in ["machine/memory", "machine/scratch.img", NAMES_FILE] {
            assert_eq!(
                fs::read(from.join(file)).unwrap(),
                fs::read(to.join(file)).unwrap(),
                "{file}"
            );
        }
        assert_eq!(Manifest::read(&to.join(MACHINE)).unwrap(), machine());
        assert!(copy.bytes < 2 * MIB, "{} bytes of holes", copy.bytes);
        // Whose it was is nobody's business elsewhere.
        let text = String::from_utf8(members(&archive)[0].1.clone()).unwrap();
        assert!(!text.contains("\"key\""), "{text}");
        scene.snapshots.remove(&copy.which()).unwrap();
    }
    let taken = SandboxError::SnapshotTaken { snapshot: "other/copy".parse().unwrap() }.to_string();
    imported(&scene, &archive, 512).unwrap();
    assert_eq!(imported(&scene, &archive, 512).unwrap_err().to_string(), taken);
}

#[test]
fn a_snapshot_that_is_removed_while_it_is_exported_is_exported_whole() {
    let scene = scene("removed");
    let archive = exported(&scene);
    let export = scene.snapshots.export(&scene.which).unwrap();
    assert!(!scene.snapshots.remove_unused(&scene.which).unwrap(), "it is in use");
    scene.snapshots.remove(&scene.which).unwrap();
    let mut again = Vec::new();
    export.write(&mut again).unwrap();
    assert!(again == archive);
    drop(export);
    assert!(scene.snapshots.held().is_empty());
}

#[test]
fn no_flipped_bit_and_no_cut_goes_unseen() {
    let scene = scene("flipped");
    let archive = exported(&scene);
    imported(&scene, &archive, archive.len()).unwrap();
    let copy = "other/copy".parse().unwrap();
    let path = scene.snapshots.path(&copy);
    let files = ["machine/memory", "machine/scratch.img", "machine/manifest.json", NAMES_FILE];
    let content = || files.map(|file| fs::read(path.join(file)).unwrap());
    let right = content();
    let mut unseen = 0;
    for at in (0..archive.len()).step_by(1999) {
        scene.snapshots.remove(&copy).ok();
        let mut wrong = archive.clone();
        wrong[at] ^= 1 << (at % 8);
        if imported(&scene, &wrong, 100_000).is_ok() {
            // Bits between members mean nothing.
            assert!(content() == right, "the bit at {at}");
            unseen += 1;
        }
    }
    assert!(unseen < 10, "{unseen} bits mean nothing");
    scene.snapshots.remove(&copy).ok();
    for bytes in (0..archive.len() - END_OF_ARCHIVE.len()).step_by(20_011) {
        let error = refusal(&scene, &archive[..bytes]);
        assert!(matches!(error, ArchiveError::Truncated), "{bytes} bytes: {error}");
    }
    for part in [MEMORY, SCRATCH, "names"] {
        let mut members = members(&archive);
        let (_, content) = members.iter_mut().find(|(name, _)| name == part).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        let error = refusal(&scene, &packed(&members)).to_string();
        assert!(error.contains(part) && error.contains("sha256:"), "{error}");
    }
}

#[test]
fn members_that_are_doubled_missing_misplaced_or_foreign_are_refused() {
    let scene = scene("members");
    let archive = exported(&scene);
    let all = members(&archive);
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["manifest.json", "manifest.sha256", "memory", "scratch.img", "names"]);
    for (at, name) in names.iter().enumerate() {
        let error = |members: &[Member]| refusal(&scene, &packed(members)).to_string();
        let (mut without, mut doubled, mut swapped) = (all.clone(), all.clone(), all.clone());
        without.remove(at);
        doubled.insert(at, all[at].clone());
        swapped.swap(at, (at + 1) % all.len());
        for (what, members) in [("missing", &without), ("doubled", &doubled), ("moved", &swapped)] {
            let error = error(members);
            assert!(error.contains("must be"), "{what} {name}: {error}");
        }
        for foreign in ["../memory", "/memory", "machine/../../memory", "./memory"] {
            let mut renamed = all.clone();
            renamed[at].0 = foreign.to_owned();
            assert!(error(&renamed).contains("must be"), "{foreign} for {name}");
        }
    }
    let mut more = all.clone();
    more.push(("../../escaped".to_owned(), b"x".to_vec()));
    assert!(refusal(&scene, &packed(&more)).to_string().contains("escaped"));
    for kind in [Kind::Directory, Kind::Symlink { target: b"/etc/passwd".to_vec() }] {
        let mut archive = packed(&all[..2]);
        archive.truncate(archive.len() - END_OF_ARCHIVE.len());
        add(&mut archive, MEMORY, kind);
        archive.extend(END_OF_ARCHIVE);
        assert!(refusal(&scene, &archive).to_string().contains("no file"));
    }
    let nothing = refusal(&scene, END_OF_ARCHIVE).to_string();
    assert!(nothing.contains("its end"), "{nothing}");
    assert!(matches!(refusal(&scene, b"no archive at all"), ArchiveError::Truncated));
    assert!(matches!(refusal(&scene, &[7; 2048]), ArchiveError::Tar(_)));
}

#[test]
fn a_manifest_that_lies_is_refused_before_a_part_is_read() {
    let scene = scene("manifest");
    let archive = exported(&scene);
    let refused = |change: fn(&mut Value)| refusal(&scene, &with_manifest(&archive, change));
    assert!(matches!(refused(|m| m["format"] = json!(2)), ArchiveError::Format { found: 2 }));
    assert!(matches!(refused(|m| m["more"] = json!(1)), ArchiveError::Manifest(_)));
    let foreign = refused(|m| m["snapshot"]["image"] = json!("/dev/sda"));
    assert!(matches!(foreign, ArchiveError::ForeignImage { .. }), "{foreign}");
    // The state of these monitors names files, and could name any.
    let kinds: [fn(&mut Value); 4] = [
        |m| m["snapshot"]["machine"] = json!("process"),
        |m| m["snapshot"]["machine"] = json!("firecracker"),
        |m| m["snapshot"]["machine"] = json!("cloud-hypervisor"),
        |m| m["snapshot"]["machine"] = json!("external"),
    ];
    for change in kinds {
        let refusal = refused(change);
        assert!(matches!(refusal, ArchiveError::Kind { .. }), "{refusal}");
        assert!(refusal.to_string().contains("do not travel"), "{refusal}");
    }
    let contradictions: [fn(&mut Value); 9] = [
        |m| m["machine"]["kind"] = json!("process"),
        |m| m["machine"]["has_scratch"] = json!(false),
        |m| drop(m["parts"].as_array_mut().unwrap().remove(0)),
        |m| m["parts"][1]["name"] = json!("memory"),
        |m| m["parts"][1]["extents"][1] = json!([0, 10]),
        |m| m["parts"][1]["extents"][1] = json!([67_108_864, 1]),
        |m| m["parts"][1]["extents"][1] = json!([u64::MAX, 2]),
        |m| m["parts"][1]["extents"][1] = json!([41_943_040, 0]),
        |m| m["parts"][0]["extents"] = json!([[0, 100]]),
    ];
    for (at, change) in contradictions.into_iter().enumerate() {
        let error = refused(change);
        assert!(matches!(error, ArchiveError::Contradiction { .. }), "{at}: {error}");
    }
    let large: [fn(&mut Value); 4] = [
        |m| m["parts"][0]["bytes"] = json!(u64::MAX),
        |m| m["parts"][1]["bytes"] = json!(SCRATCH_BYTES + 1),
        |m| m["parts"][2]["bytes"] = json!(65 * MIB),
        |m| {
            let extents = (0..=SNAPSHOT_EXTENTS_MAX as u64).map(|at| json!([at * 2, 1]));
            m["parts"][1]["extents"] = Value::Array(extents.collect());
        },
    ];
    for (at, change) in large.into_iter().enumerate() {
        let error = refused(change);
        assert!(error.is_too_large(), "{at}: {error}");
    }
    // Of one that says that it is large, nothing is read.
    let mut archive = Vec::new();
    add(&mut archive, "manifest.json", Kind::File { size: SNAPSHOT_MANIFEST_BYTES_MAX + 1 });
    assert!(refusal(&scene, &archive).is_too_large());
    let mut wrong = members(&exported(&scene));
    wrong[1].1 = b"sha256:none".to_vec();
    assert!(matches!(refusal(&scene, &packed(&wrong)), ArchiveError::ManifestDigest(_)));
}

#[test]
fn short_holes_travel_as_zeros_and_are_holes_again() {
    let count = 500;
    let scene = scene("holes");
    let path = scene.snapshots.path(&scene.which).join("machine/scratch.img");
    let disk = File::options().write(true).open(path).unwrap();
    disk.set_len(0).unwrap();
    disk.set_len(SCRATCH_BYTES).unwrap();
    let step = SCRATCH_BYTES / count;
    for at in 0..count {
        disk.write_all_at(b"x", at * step).unwrap();
    }
    let archive = exported(&scene);
    let manifest = ArchiveManifest::parse(&members(&archive)[0].1).unwrap();
    let extents = &manifest.parts[1].extents;
    assert!(step < SNAPSHOT_HOLE_BYTES_MIN && extents.len() == 1, "short holes are bytes");
    let copy = imported(&scene, &archive, 100_000).unwrap();
    let files = [&scene.which, &copy.which()]
        .map(|which| scene.snapshots.path(which).join("machine/scratch.img"));
    assert!(fs::read(&files[0]).unwrap() == fs::read(&files[1]).unwrap());
    // And are holes again.
    let taken = |path: &PathBuf| fs::metadata(path).unwrap().blocks() * 512;
    assert!(taken(&files[1]) <= taken(&files[0]), "{files:?}");
}

/// What a bridge leaves that dies while it imports, or while it writes for a bucket.
#[test]
fn what_is_half_imported_is_removed_by_the_next_bridge() {
    let scene = scene("half");
    let archive = exported(&scene);
    let manifest = ArchiveManifest::parse(&members(&archive)[0].1).unwrap();
    let to: SandboxRef = "other/copy".parse().unwrap();
    let draft = scene.snapshots.begin_import(&to, None, &manifest).unwrap();
    let spool = scene.snapshots.spool().unwrap();
    let (begun, spooled) = (draft.machine(), spool.path.clone());
    // Nobody drops what a dead bridge has.
    std::mem::forget((draft, spool));
    assert!(begun.exists() && spooled.exists());
    let next = Snapshots::open(scene.path.clone()).unwrap();
    assert!(!begun.exists() && !spooled.exists());
    assert_eq!(next.list(None).len(), 1);
}
