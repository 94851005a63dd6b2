//! The capabilities of one thread.
//!
//! `run` calls it for the threads that work on files for clients. The kernel has separate
//! capabilities for each thread, and checks a thread's calls with its own; the C library has no
//! call that changes only one thread.

use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits, in two halves.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`. Process 0 is the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`: one half of the three sets, the lower one first.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The set of the capabilities with these numbers.
pub const fn set_of(numbers: &[u32]) -> u64 {
    let mut set = 0;
    let mut at = 0;
    while at < numbers.len() {
        set |= 1 << numbers[at];
        at += 1;
    }
    set
}

/// The calling thread keeps only its capabilities in `set`. It cannot be undone.
pub fn retain(set: u64) -> io::Result<()> {
    let left = permitted()? & set;
    assign(left, left)
}

/// Limits the calling thread's effective capabilities to `set`.
///
/// They stay permitted, which protects the thread: root in the sandbox may trace a thread that is
/// permitted no more than itself, and would so reach the memory that all threads share.
pub fn act_with(set: u64) -> io::Result<()> {
    let permitted = permitted()?;
    assign(permitted & set, permitted)
}

/// The calling thread's permitted capabilities.
fn permitted() -> io::Result<u64> {
    let [low, high] = read()?;
    Ok(u64::from(low.permitted) | u64::from(high.permitted) << 32)
}

fn read() -> io::Result<[Half; 2]> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut halves = [Half::default(); 2];
    // SAFETY: the kernel writes to the header and to the two halves that its version has.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(halves) }
}

fn assign(effective: u64, permitted: u64) -> io::Result<()> {
    clear_ambient()?;
    let half = |shift: u32| Half {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: 0,
    };
    let halves = [half(0), half(32)];
    let header = Header { version: VERSION, pid: 0 };
    // SAFETY: the kernel reads a header and the two halves that its version has.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ambient capabilities would come back with the next program that is executed.
fn clear_ambient() -> io::Result<()> {
    // SAFETY: the operation takes numbers and touches no memory.
    let result = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0_usize, 0_usize, 0_usize)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOWN: u64 = set_of(&[0]);

    fn effective() -> u64 {
        let [low, high] = read().unwrap();
        u64::from(low.effective) | u64::from(high.effective) << 32
    }

    #[test]
    fn a_set_has_the_bits_of_its_numbers() {
        assert_eq!(set_of(&[]), 0);
        assert_eq!(set_of(&[0, 3, 31, 40]), 1 | 1 << 3 | 1 << 31 | 1 << 40);
    }

    #[test]
    fn a_thread_keeps_what_it_is_left_and_others_keep_everything() {
        let before = permitted().unwrap();
        let lessened = std::thread::spawn(|| {
            retain(CHOWN).unwrap();
            let left = permitted().unwrap();
            retain(u64::MAX).unwrap();
            assert_eq!(permitted().unwrap(), left, "what was given up came back");
            left
        });
        assert_eq!(lessened.join().unwrap(), before & CHOWN);
        assert_eq!(permitted().unwrap(), before);
    }

    #[test]
    fn a_thread_that_acts_with_less_is_judged_by_less_and_permitted_as_before() {
        let before = permitted().unwrap();
        std::thread::spawn(move || {
            act_with(CHOWN).unwrap();
            assert_eq!((effective(), permitted().unwrap()), (before & CHOWN, before));
        })
        .join()
        .unwrap();
    }
}
