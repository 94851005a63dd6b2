//! Random bytes from the kernel, and input for its generator. Ids and tokens are drawn here.

use std::io;
use std::os::fd::AsRawFd;

use nix::fcntl::OFlag;
use protocol::limits::ENTROPY_BYTES_MAX;

use super::lookup::open_device;

/// Fills `bytes` from the kernel's generator, waiting until it has been seeded.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: `rest` is writable for its whole length, which is the length given.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match count {
            1.. => filled += count as usize,
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// The argument of RNDADDENTROPY: `struct rand_pool_info` with room for as much as we ever add.
#[repr(C)]
struct Pool {
    entropy_bits: libc::c_int,
    buffer_bytes: libc::c_int,
    buffer: [u8; ENTROPY_BYTES_MAX],
}

/// The number of the kernel's generator as a device.
const GENERATOR: (u64, u64) = (1, 9);

/// Mixes secret random bytes into the kernel's generator, and makes it use them at once. Only the init of a
/// machine may. Bytes beyond [`ENTROPY_BYTES_MAX`] are ignored.
pub fn mix(bytes: &[u8]) -> io::Result<()> {
    const ADD_ENTROPY: libc::Ioctl = 0x4008_5203;
    const RESEED: libc::Ioctl = 0x5207;
    let count = bytes.len().min(ENTROPY_BYTES_MAX);
    let mut pool = Pool {
        entropy_bits: 8 * count as libc::c_int,
        buffer_bytes: count as libc::c_int,
        buffer: [0; ENTROPY_BYTES_MAX],
    };
    pool.buffer[..count].copy_from_slice(&bytes[..count]);
    let generator = open_device(c"/dev/urandom", GENERATOR, OFlag::O_WRONLY)?;
    // SAFETY: the kernel reads a `rand_pool_info`, which `pool` begins like, and `buffer_bytes` of its
    // buffer, which has at least as many.
    let added = unsafe { libc::ioctl(generator.as_raw_fd(), ADD_ENTROPY, &raw const pool) };
    if added != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this request takes no argument.
    match unsafe { libc::ioctl(generator.as_raw_fd(), RESEED) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
