use std::fs;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// A FIFO in the place of a file: to open it would unblock its writer.
#[test]
fn what_has_taken_a_files_place_is_not_opened() {
    let place = std::env::temp_dir().join(format!("burrow-exchanged-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    mkfifo(&place.join("fifo"), Mode::S_IRWXU).unwrap();
    let openings = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    openings.add_watch(&place.join("fifo"), AddWatchFlags::IN_OPEN).unwrap();
    let ask = TarGet {
        path: place.to_str().unwrap().into(),
        stream: protocol::StreamId(1),
        follow: false,
    };
    let mut archiver = Archiver::open(ask).unwrap();
    let directory: OwnedFd = File::open(&place).unwrap().into();
    let refused = archiver.add_file(&directory, b"fifo", b"fifo".to_vec(), false).unwrap_err();
    assert_eq!(refused.code, FaultCode::Conflict, "{refused}");
    assert_eq!(openings.read_events().unwrap_err(), Errno::EAGAIN, "it was opened");
    fs::remove_dir_all(&place).unwrap();
}
