//! Hosts of a test's own with a cable between each of them and a switch: network namespaces, which nothing outside of
//! them reaches.
//!
//! ```text
//!  host 0: 10.77.0.1 ──┐
//!  host 1: 10.77.0.2 ──┼── switch, 10.77.0.254: the test
//!  host 2: 10.77.0.3 ──┘
//! ```
//!
//! No namespace has a name. The kernel removes one, with its cables, when its last process and this value are gone,
//! however the test ends.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::internet::ip;
use crate::{have, skip};

/// The namespace of the thread that opens it.
const OWN: &str = "/proc/thread-self/ns/net";

/// How often the kernel repeats what gets no answer. With this host's number, a connection that was cut for half a minute
/// would go on half a minute after that; with a small one it is given up, and made again.
const RETRIES: &str = "/proc/sys/net/ipv4/tcp_retries2";

/// See the module's description.
pub struct Wired {
    switch: File,
    hosts: Vec<File>,
}

impl Wired {
    /// The calling thread, and what it starts from here on, is at the switch for good. If that is impossible, the test
    /// prints a skip.
    pub fn or_skip(count: u8) -> Option<Self> {
        Self::wire(count).map_err(|why| skip(&why)).ok()
    }

    fn wire(count: u8) -> Result<Self, String> {
        if !have("ip") {
            return Err("there is no ip here".to_owned());
        }
        if !nix::unistd::Uid::effective().is_root() {
            return Err("only root may make a network namespace".to_owned());
        }
        let switch = enter_new()?;
        ip("link add switch type bridge")?;
        ip("addr add 10.77.0.254/24 dev switch")?;
        ip("link set switch up")?;
        let mut wired = Self { switch, hosts: Vec::new() };
        for at in 0..count {
            let host = thread::spawn(enter_new).join().expect("it does not fail")?;
            let far = format!("/proc/{}/fd/{}", std::process::id(), host.as_raw_fd());
            wired.hosts.push(host);
            ip(&format!("link add cable{at} type veth peer name eth0 netns {far}"))?;
            ip(&format!("link set cable{at} master switch up"))?;
            let address = Self::address(at.into());
            wired.inside(at.into(), || {
                fs::write(RETRIES, "5").map_err(|why| format!("{RETRIES}: {why}"))?;
                ip(&format!("addr add {address}/24 dev eth0"))?;
                ip("link set eth0 up")
            })?;
        }
        Ok(wired)
    }

    /// Of a host.
    ///
    /// # Panics
    /// When there can be no such host.
    pub fn address(at: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, u8::try_from(at + 1).expect("few hosts"))
    }

    /// Does something at a host: what it starts or connects is there.
    ///
    /// # Panics
    /// When it fails.
    pub fn inside<T: Send>(&self, at: usize, act: impl FnOnce() -> T + Send) -> T {
        Self::at(&self.hosts[at], act)
    }

    fn at<T: Send>(place: &File, act: impl FnOnce() -> T + Send) -> T {
        let there = move || {
            setns(place, CloneFlags::CLONE_NEWNET).expect("root may");
            act()
        };
        thread::scope(|scope| scope.spawn(there).join().expect("it does not fail"))
    }

    /// Nothing reaches the host from here on, and nothing comes from it. Packets get lost, and no connection is closed.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn cut(&self, at: usize) {
        self.set(at, "down");
    }

    /// # Panics
    /// When there is no such host.
    pub fn heal(&self, at: usize) {
        self.set(at, "up");
    }

    fn set(&self, at: usize, state: &str) {
        Self::at(&self.switch, || ip(&format!("link set cable{at} {state}"))).expect("it is ours");
    }
}

/// Moves the calling thread into a new namespace.
fn enter_new() -> Result<File, String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|why| format!("no network namespace: {why}"))?;
    ip("link set lo up")?;
    File::open(OWN).map_err(|why| format!("{OWN}: {why}"))
}
