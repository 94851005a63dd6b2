//! The agent as a sealed copy in memory, from which every sandbox of this bridge is started. It is copied
//! from the agent's file, or from the binary that the bridge contains.
//!
//! A program in a sandbox can reach the file that it was executed from (`/proc/<pid>/exe`). It cannot write
//! to this copy or change it for others: the copy is sealed, and is no file of the host. Before
//! Linux 6.3 a seal does not hold the mode, so a copy whose mode was changed is used for no other sandbox.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use host::agent::Agent;
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fstat, memfd_create};
use rustix::io::Errno;
use tokio::process::Command;

use crate::limits::SEAL_TRIES;

/// The name of the copy.
const NAME: &str = "guest-agent";

/// How a file begins that the kernel itself can execute. A script is executed by its path instead, because
/// its interpreter opens it again.
const ELF: [u8; 4] = *b"\x7fELF";

/// Seals the permission to execute too, since Linux 6.3.
const SEAL_EXEC: SealFlags = SealFlags::from_bits_retain(0x20);

/// The mode of a copy. Only the bridge's user can execute or read it; root of a sandbox with its own users
/// cannot.
const MODE: u32 = 0o500;

/// The source of a copy: the file as it was then, or the bridge's own content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Original {
    File { path: PathBuf, device: u64, inode: u64, bytes: u64, changed: (i64, i64) },
    Carried,
}

impl Original {
    fn of(agent: &Agent) -> io::Result<Self> {
        let Some(path) = agent.path() else { return Ok(Self::Carried) };
        let found = fs::metadata(path)?;
        Ok(Self::File {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// The copy, made when it is first needed and again when the file has changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Sealed {
    latest: Arc<Mutex<Option<Latest>>>,
}

#[derive(Debug)]
struct Latest {
    original: Original,
    source: Source,
}

/// The program that is executed.
#[derive(Clone, Debug)]
enum Source {
    Copy(Arc<OwnedFd>),
    /// A script, by its path, because its interpreter opens it again.
    Script,
    /// The agent's file, because this host allows no program in memory (`vm.memfd_noexec`).
    File,
}

impl Source {
    /// Whether it is still as it was made.
    fn is_intact(&self) -> bool {
        match self {
            Self::Copy(copy) => fstat(copy).is_ok_and(|status| status.st_mode & 0o7777 == MODE),
            Self::Script | Self::File => true,
        }
    }
}

/// A command that executes the agent, and what must stay open until it has started.
pub(super) struct Launch {
    pub(super) command: Command,
    /// The host's file that is executed, if there can be no copy.
    pub(super) exposed: Option<PathBuf>,
    _source: Source,
}

impl Sealed {
    pub(super) fn command(&self, agent: &Agent) -> io::Result<Launch> {
        let source = self.source(agent)?;
        let program = match &source {
            Source::Copy(copy) => format!("/proc/self/fd/{}", copy.as_raw_fd()).into(),
            Source::Script | Source::File => agent.file()?,
        };
        let mut command = Command::new(&program);
        // For those who look at the host's processes.
        command.arg0(agent.name());
        let exposed = matches!(source, Source::File).then_some(program);
        Ok(Launch { command, exposed, _source: source })
    }

    fn source(&self, agent: &Agent) -> io::Result<Source> {
        let original = Original::of(agent)?;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(latest) = &*latest
            && latest.original == original
            && latest.source.is_intact()
        {
            return Ok(latest.source.clone());
        }
        let source = seal(agent)?;
        *latest = Some(Latest { original, source: source.clone() });
        Ok(source)
    }
}

/// Copies the agent into memory, if it can be executed there.
fn seal(agent: &Agent) -> io::Result<Source> {
    let file = match agent {
        Agent::At(path) => {
            let mut file = File::open(path)?;
            let mut begin = [0; ELF.len()];
            if file.read_exact(&mut begin).is_err() || begin != ELF {
                return Ok(Source::Script);
            }
            file.seek(SeekFrom::Start(0))?;
            Some(file)
        }
        Agent::Carried(_) => None,
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 every one can be executed.
        Err(Errno::INVAL) => memfd_create(NAME, flags),
        other => other,
    };
    let mut copy = match made {
        Err(Errno::ACCESS) => return Ok(Source::File),
        other => File::from(other?),
    };
    match (file, agent) {
        (Some(mut file), _) => {
            io::copy(&mut file, &mut copy)?;
        }
        (None, Agent::Carried(program)) => copy.write_all(program)?,
        (None, Agent::At(_)) => unreachable!("its file is open"),
    }
    fchmod(&copy, Mode::from_raw_mode(MODE))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    match add_seals(&copy, seals | SEAL_EXEC) {
        Err(Errno::INVAL) => add_seals(&copy, seals)?,
        other => other?,
    }
    fcntl_add_seals(&copy, SealFlags::SEAL)?;
    Ok(Source::Copy(Arc::new(copy.into())))
}

/// Adds seals once nobody holds a page of the file. On a busy host the kernel itself does so for a while,
/// as when it moves pages. It waits for some 150 ms by itself, and then says that the file is in use.
fn add_seals(file: &File, seals: SealFlags) -> Result<(), Errno> {
    for _ in 1..SEAL_TRIES {
        match fcntl_add_seals(file, seals) {
            Err(Errno::BUSY) => {}
            other => return other,
        }
    }
    fcntl_add_seals(file, seals)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn copied(sealed: &Sealed, agent: &Agent) -> Arc<OwnedFd> {
        let Source::Copy(copy) = sealed.source(agent).unwrap() else { panic!("it is no copy") };
        copy
    }

    fn place(copy: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", copy.as_raw_fd())
    }

    #[test]
    fn a_copy_cannot_be_changed_and_follows_its_file() {
        let path = std::env::temp_dir().join(format!("burrow-sealed-{}", std::process::id()));
        fs::copy("/proc/self/exe", &path).unwrap();
        let (sealed, agent) = (Sealed::default(), Agent::At(path.clone()));
        let copy = copied(&sealed, &agent);
        assert_eq!(fs::read(place(&copy)).unwrap(), fs::read(&path).unwrap());
        let written = File::options()
            .write(true)
            .open(place(&copy))
            .and_then(|mut file| file.write_all(b"x"));
        assert!(written.is_err(), "it was written to");
        assert!(Arc::ptr_eq(&copy, &copied(&sealed, &agent)), "it is made once");
        fs::remove_file(&path).unwrap();
        fs::copy("/proc/self/exe", &path).unwrap();
        assert!(!Arc::ptr_eq(&copy, &copied(&sealed, &agent)), "it is out of date");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_page_that_the_kernel_holds_for_a_while_delays_the_seals() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create(NAME, flags).unwrap());
        file.write_all(&[1; 4096]).unwrap();
        // What is sent into a pipe is the page itself.
        let (mut held, pipe) = io::pipe().unwrap();
        rustix::fs::sendfile(pipe, &file, Some(&mut 0), 4096).unwrap();
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::BUSY));
        let reader = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            held.read_to_end(&mut Vec::new())
        });
        add_seals(&file, SealFlags::WRITE).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 4096);
    }

    #[test]
    fn a_copy_whose_mode_was_changed_is_used_no_more() {
        let (sealed, agent) = (Sealed::default(), Agent::Carried(b"\x7fELF and more"));
        let copy = copied(&sealed, &agent);
        // A sandbox that reached it through `/proc/self/exe`. Since Linux 6.3 it cannot change the permission
        // to execute, but still the others.
        let no_more = fs::Permissions::from_mode(0o100);
        fs::set_permissions(place(&copy), no_more).unwrap();
        let next = copied(&sealed, &agent);
        assert!(!Arc::ptr_eq(&copy, &next), "it is used again");
        assert_eq!(fs::metadata(place(&next)).unwrap().permissions().mode() & 0o7777, MODE);
        assert!(Arc::ptr_eq(&next, &copied(&sealed, &agent)), "the next is made once");
    }

    #[test]
    fn a_script_is_executed_by_its_path() {
        let path = std::env::temp_dir().join(format!("burrow-script-{}", std::process::id()));
        fs::write(&path, "#!/bin/sh\n").unwrap();
        let launch = Sealed::default().command(&Agent::At(path.clone())).unwrap();
        assert_eq!(launch.command.as_std().get_program(), path);
        assert_eq!(launch.exposed, None);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_carried_agent_is_copied_once() {
        let program: &'static [u8] = b"\x7fELF and more";
        let (sealed, agent) = (Sealed::default(), Agent::Carried(program));
        let copy = copied(&sealed, &agent);
        assert_eq!(fs::read(place(&copy)).unwrap(), program);
        assert!(Arc::ptr_eq(&copy, &copied(&sealed, &agent)), "it is made once");
    }
}
