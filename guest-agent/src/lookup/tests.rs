use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};

use super::*;

/// A directory of one test, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("burrow-lookup-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn found(path: &Path) -> Result<OwnedFd, Refused> {
    open(path, OFlag::O_PATH, Way::Follow)
}

fn read(path: &Path) -> Result<String, Unfit> {
    let (mut file, _) = open_regular(ABSOLUTE, path, OFlag::O_RDONLY, Way::Follow)?;
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn a_link_of_proc_is_never_followed() {
    let scratch = Scratch::new("magic");
    let held = File::open(&scratch.0).unwrap();
    let number = held.as_raw_fd();
    for path in [
        "/proc/self/root".into(),
        "/proc/self/cwd".into(),
        "/proc/self/exe".into(),
        "/proc/self/root/etc".into(),
        "/proc/thread-self/root".into(),
        format!("/proc/self/fd/{number}"),
        format!("/proc/self/fd/{number}/.."),
        format!("/proc/{}/fd/{number}", std::process::id()),
        format!("/dev/fd/{number}"),
        "/proc/self/ns/mnt".into(),
    ] {
        let link = scratch.at("link");
        fs::remove_file(&link).ok();
        symlink(&path, &link).unwrap();
        for path in [Path::new(&path), &link] {
            let refused = found(path).expect_err("it is followed");
            assert_eq!(refused, Refused::Errno(Errno::ELOOP), "{}", path.display());
        }
    }
}

#[test]
fn files_of_kernel_file_systems_are_refused_by_name() {
    let scratch = Scratch::new("kernel");
    symlink("/proc/self", scratch.at("link")).unwrap();
    for (path, name) in [
        ("/proc", "proc"),
        ("/proc/self/mem", "proc"),
        ("/proc/1/status", "proc"),
        ("/sys/kernel", "sysfs"),
        ("/dev/pts", "devpts"),
    ] {
        assert_eq!(found(Path::new(path)).unwrap_err(), Refused::KernelFileSystem(name), "{path}");
    }
    let refused = found(&scratch.at("link/status")).unwrap_err();
    assert_eq!(refused, Refused::KernelFileSystem("proc"));
    let root = open("/", DIRECTORY, Way::Follow).unwrap();
    let refused = open_at(&root, "proc/self/fdinfo", DIRECTORY, Way::Beneath).unwrap_err();
    assert_eq!(refused, Refused::Errno(Errno::ELOOP), "`self` is a symlink");
    let refused = open_at(&root, "proc/1", DIRECTORY, Way::Beneath).unwrap_err();
    assert_eq!(refused, Refused::KernelFileSystem("proc"));
    // On the way it does no harm.
    found(Path::new("/proc/../etc")).unwrap();
}

#[test]
fn links_of_the_sandbox_are_followed_as_the_way_says() {
    let scratch = Scratch::new("links");
    fs::write(scratch.at("f"), "x").unwrap();
    symlink("f", scratch.at("link")).unwrap();
    symlink(".", scratch.at("here")).unwrap();
    assert_eq!(read(&scratch.at("here/link")).unwrap(), "x");
    let kind = |way| {
        let found = open(&scratch.at("here/link"), OFlag::O_PATH, way)?;
        Ok::<_, Refused>(kind_bits(&fstat(found)?))
    };
    assert_eq!(kind(Way::Follow), Ok(SFlag::S_IFREG));
    assert_eq!(kind(Way::KeepLast), Ok(SFlag::S_IFLNK));
    assert_eq!(kind(Way::Unlinked), Err(Refused::Errno(Errno::ELOOP)));
    let root = open(&scratch.0, DIRECTORY, Way::Follow).unwrap();
    let beneath = |path: &str| open_at(&root, path, OFlag::O_PATH, Way::Beneath).map(drop);
    assert_eq!(beneath("f"), Ok(()));
    assert_eq!(beneath("link"), Err(Refused::Errno(Errno::ELOOP)));
    assert_eq!(beneath("../f"), Err(Refused::Errno(Errno::EXDEV)));
}

#[test]
fn only_a_regular_file_is_opened_as_one_and_nothing_is_waited_for() {
    let scratch = Scratch::new("kinds");
    nix::unistd::mkfifo(&scratch.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [scratch.at("fifo"), scratch.0.clone(), "/dev/zero".into()] {
        assert!(matches!(read(&path), Err(Unfit::Kind(_))), "{}", path.display());
    }
    let directory = open(&scratch.0, DIRECTORY, Way::Follow).unwrap();
    let fifo = open_fifo(&directory, "fifo").unwrap();
    assert!(fifo.metadata().unwrap().file_type().is_fifo());
    fs::write(scratch.at("f"), "").unwrap();
    assert!(matches!(open_fifo(&directory, "f"), Err(Unfit::Kind(_))));
}

#[test]
fn a_file_that_the_agent_needs_has_a_largest_size_and_is_no_device() {
    let scratch = Scratch::new("bounded");
    let path = scratch.at("passwd");
    let text = || read_regular(path.to_str().unwrap(), 4);
    fs::write(&path, "1234").unwrap();
    assert_eq!(text().unwrap(), b"1234");
    fs::write(&path, "12345").unwrap();
    assert_eq!(text().unwrap_err().raw_os_error(), Some(libc::EFBIG));
    fs::remove_file(&path).unwrap();
    assert_eq!(text().unwrap_err().kind(), io::ErrorKind::NotFound);
    symlink("/dev/zero", &path).unwrap();
    assert_eq!(text().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    fs::remove_file(&path).unwrap();
    symlink("/proc/self/environ", &path).unwrap();
    assert!(text().unwrap_err().to_string().contains("kernel file system (proc)"));
}

#[test]
fn a_device_is_known_by_its_number() {
    let scratch = Scratch::new("devices");
    let open = |path: &str| {
        let path = std::ffi::CString::new(path).unwrap();
        rule::open_device(&path, (1, 3), OFlag::O_RDONLY).map(drop)
    };
    assert_eq!(open("/dev/null"), Ok(()));
    assert_eq!(open("/dev/zero"), Err(Errno::ENODEV));
    nix::unistd::mkfifo(&scratch.at("null"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(open(scratch.at("null").to_str().unwrap()), Err(Errno::ENODEV));
}

#[test]
fn of_procfs_only_what_the_bridge_asks_for_is_public() {
    let public =
        |path: &str| open_public(Path::new(path), OFlag::O_PATH).map(|opened| opened.is_ok());
    assert_eq!(public("/proc/net/tcp"), Some(true));
    assert_eq!(public(&format!("/proc/{}", std::process::id())), Some(true));
    assert_eq!(public("/proc/4294967295"), Some(false));
    for path in
        ["/proc/1/mem", "/proc/self", "/proc/", "/proc", "/proc/net/unix", "/proc/1/../self"]
    {
        assert_eq!(public(path), None, "{path}");
    }
}
