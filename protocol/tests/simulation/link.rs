//! The link: two pipes of bytes that can be cut at any byte.

use crate::random::Random;

/// One direction of a link.
#[derive(Default)]
pub struct Pipe {
    under_way: Vec<u8>,
    capacity: usize,
    cut: bool,
}

impl Pipe {
    /// Whether the writer's kernel would take more.
    pub fn is_writable(&self) -> bool {
        self.under_way.len() < self.capacity
    }

    /// Bytes that are written to a cut pipe are lost silently, as with a socket.
    pub fn write(&mut self, bytes: &[u8]) {
        if !self.cut {
            self.under_way.extend_from_slice(bytes);
        }
    }

    /// Some of the bytes in transit; empty at the end of a cut pipe. `None` if there are none now.
    pub fn read(&mut self, random: &mut Random) -> Option<Vec<u8>> {
        match self.under_way.len() as u64 {
            0 => self.cut.then(Vec::new),
            waiting => {
                let slice = if random.once_in(2) { waiting } else { 1 + random.magnitude(waiting) };
                let rest = self.under_way.split_off(slice.min(waiting) as usize);
                Some(std::mem::replace(&mut self.under_way, rest))
            }
        }
    }

    fn is_quiet(&self) -> bool {
        !self.cut && self.under_way.is_empty()
    }

    fn cut(&mut self, random: &mut Random) {
        self.cut = true;
        let arrives = random.below(self.under_way.len() as u64 + 1);
        self.under_way.truncate(arrives as usize);
    }
}

/// One connection, from its dialling on.
#[derive(Default)]
pub struct Link {
    pub to_agent: Pipe,
    pub to_host: Pipe,
}

impl Link {
    pub fn new(random: &mut Random) -> Self {
        let mut pipe = || {
            let capacity = 1 + random.magnitude(256 * 1024) as usize;
            Pipe { capacity, ..Pipe::default() }
        };
        Self { to_agent: pipe(), to_host: pipe() }
    }

    /// It works, and there is nothing on it.
    pub fn is_quiet(&self) -> bool {
        self.to_agent.is_quiet() && self.to_host.is_quiet()
    }

    /// Any part of the bytes in transit may still arrive.
    pub fn cut(&mut self, random: &mut Random) {
        self.to_agent.cut(random);
        self.to_host.cut(random);
    }
}
