use std::fs::File;
use std::os::unix::fs::symlink;

use protocol::limits::ENTRIES_PAGE_MAX;
use protocol::message::{Entries, FileInfo, FileKind, Reply};
use protocol::requests::{List, ReadFile};
use protocol::{Fault, FaultCode, StreamId, Text};

use super::super::{list, read_file, stat};
use super::Scratch;
use super::client::{Download, run};

fn ask(path: Text) -> ReadFile {
    ReadFile { path, stream: StreamId(1), offset: 0, length: None }
}

async fn read(ask: ReadFile) -> Result<(Option<u64>, Vec<u8>), Fault> {
    let mut download = Download::from(ask.offset);
    let reply = read_file(ask, download.outlet.clone()).await?;
    let Reply::Reading { bytes, .. } = reply else { panic!("{reply:?}") };
    Ok((bytes, download.all().await?))
}

async fn refused(path: Text) -> Fault {
    read(ask(path)).await.expect_err("this cannot be read")
}

#[test]
fn a_file_comes_whole_with_its_length() {
    run(async {
        let scratch = Scratch::new();
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        scratch.write("f", &content);
        assert_eq!(read(ask(scratch.text("f"))).await.unwrap(), (Some(3_000_000), content));
    });
}

#[test]
fn an_offset_and_a_length_choose_a_part() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "0123456789");
        let part = |offset, length| ReadFile { offset, length, ..ask(scratch.text("f")) };
        assert_eq!(read(part(3, Some(4))).await.unwrap(), (Some(4), b"3456".to_vec()));
        assert_eq!(read(part(8, Some(9))).await.unwrap(), (Some(2), b"89".to_vec()));
        assert_eq!(read(part(3, None)).await.unwrap(), (Some(7), b"3456789".to_vec()));
        assert_eq!(read(part(3, Some(0))).await.unwrap(), (Some(0), vec![]));
        assert_eq!(read(part(11, Some(u64::MAX))).await.unwrap(), (Some(0), vec![]));
        assert_eq!(read(part(u64::MAX, None)).await.unwrap_err().code, FaultCode::Invalid);
    });
}

#[test]
fn an_empty_file_and_one_that_the_kernel_makes_up_are_read_to_their_ends() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("empty", "");
        assert_eq!(read(ask(scratch.text("empty"))).await.unwrap().1, b"");
        let (bytes, content) = read(ask("/proc/net/tcp".into())).await.unwrap();
        assert_eq!(bytes, None, "procfs says 0, which is not true");
        assert!(!content.is_empty());
    });
}

#[test]
fn special_files_are_refused_without_blocking() {
    run(async {
        let scratch = Scratch::new();
        let fifo = scratch.at("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(scratch.at("socket")).unwrap();
        symlink("fifo", scratch.at("link")).unwrap();
        for name in ["fifo", "socket", "link", ""] {
            let fault = refused(scratch.text(name)).await;
            assert_eq!(fault.code, FaultCode::Invalid, "{fault}");
        }
        assert_eq!(refused("/dev/zero".into()).await.code, FaultCode::Invalid);
    });
}

#[test]
fn paths_that_are_none_are_refused_by_name() {
    run(async {
        let long = "/".repeat(4097);
        for path in ["", "relative", "/a\0b", long.as_str()] {
            assert_eq!(refused(path.into()).await.code, FaultCode::Invalid);
        }
        let fault = refused("/no/such/file".into()).await;
        assert_eq!(fault.code, FaultCode::NotFound);
        assert_eq!(fault.message, "cannot open \"/no/such/file\": No such file or directory");
        let long = format!("/{}", "x".repeat(4000));
        assert!(refused(long.as_str().into()).await.message.ends_with("too long"));
    });
}

#[test]
fn a_file_that_shrinks_while_it_is_read_ends_early() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", vec![b'x'; 4_000_000]);
        let mut download = Download::from(0);
        read_file(ask(scratch.text("f")), download.outlet.clone()).await.unwrap();
        download.next().await.unwrap().expect("there is a beginning");
        File::options().write(true).open(scratch.at("f")).unwrap().set_len(10).unwrap();
        assert!(download.all().await.unwrap().len() < 4_000_000 - 65_536);
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_reading() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", vec![b'x'; 4_000_000]);
        let download = Download::from(0);
        read_file(ask(scratch.text("f")), download.outlet.clone()).await.unwrap();
        download.abandon();
        while !download.outlet.is_closed() {
            tokio::task::yield_now().await;
        }
        assert_eq!(download.client.fault(), None);
    });
}

async fn info(path: Text, follow: bool) -> FileInfo {
    let reply = stat(path, follow).await.unwrap();
    let Reply::Stat(info) = reply else { panic!("{reply:?}") };
    info
}

#[test]
fn stat_tells_a_symlink_from_what_it_points_to() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "hello");
        symlink("f", scratch.at("link")).unwrap();
        let link = info(scratch.text("link"), false).await;
        assert_eq!((link.kind, link.target), (FileKind::Symlink, Some("f".into())));
        assert_eq!(link.name, "link".into());
        let file = info(scratch.text("link"), true).await;
        assert_eq!((file.kind, file.bytes, file.target), (FileKind::File, 5, None));
        assert!(file.modified_ms > 1_500_000_000_000);
        assert_eq!(info("/".into(), false).await.name, "/".into());
        assert_eq!(stat(scratch.text("none"), true).await.unwrap_err().code, FaultCode::NotFound);
    });
}

async fn page(path: Text, after: Option<Text>) -> Entries {
    let reply = list(List { path, after }).await.unwrap();
    let Reply::Entries(entries) = reply else { panic!("{reply:?}") };
    entries
}

/// All pages, and how many there were.
async fn pages(path: Text) -> (Vec<FileInfo>, usize) {
    let mut all: Vec<FileInfo> = Vec::new();
    let mut count = 0;
    loop {
        let entries = page(path.clone(), all.last().map(|entry| entry.name.clone())).await;
        all.extend(entries.entries);
        count += 1;
        if !entries.more {
            return (all, count);
        }
    }
}

#[test]
fn a_large_directory_comes_in_pages_in_byte_order() {
    run(async {
        let scratch = Scratch::new();
        let mut names: Vec<_> = (0..2 * ENTRIES_PAGE_MAX + 7).map(|n| format!("f{n}")).collect();
        for name in &names {
            scratch.write(name, "");
        }
        names.sort();
        let (entries, count) = pages(scratch.text("")).await;
        assert_eq!(count, 3);
        let listed: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(listed, names);
    });
}

#[test]
fn a_page_of_long_symlinks_still_fits_a_frame() {
    run(async {
        let scratch = Scratch::new();
        let target = "t".repeat(4000);
        for number in 0..500 {
            symlink(&target, scratch.at(&format!("link{number}"))).unwrap();
        }
        let first = page(scratch.text(""), None).await;
        assert!(first.more);
        let mut encoded = Vec::new();
        let kind = protocol::frame::Kind::Reply;
        protocol::codec::encode_message(kind, 1, &Reply::Entries(first), &mut encoded);
        assert!(encoded.len() < protocol::limits::FRAME_BYTES_MAX);
        assert_eq!(pages(scratch.text("")).await.0.len(), 500);
    });
}

#[test]
fn an_empty_directory_has_one_empty_page_and_a_file_has_none() {
    run(async {
        let scratch = Scratch::new();
        assert_eq!(page(scratch.text(""), None).await, Entries { entries: vec![], more: false });
        scratch.write("f", "");
        let fault = list(List { path: scratch.text("f"), after: None }).await.unwrap_err();
        assert!(fault.message.ends_with("Not a directory"), "{fault}");
    });
}
