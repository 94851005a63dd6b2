//! A small agent for tests: the protocol's own agent half over Unix sockets, with made-up sessions
//! and files, and links that can be cut at any byte.
//!
//! Outputs and files are patterns: the byte at an offset is known, so that a reader can check every
//! one. What a guest should never do is not here but in [`super::raw`].

mod world;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use protocol::SessionId;
use protocol::codec::FrameBuffer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

use crate::link::Address;

pub use world::{World, pattern, welcome};

use world::Outlets;

/// See the module's description. Clones are the same agent.
#[derive(Clone)]
pub struct Agent(Arc<Inner>);

struct Inner {
    pub path: PathBuf,
    world: Mutex<World>,
    wake: Notify,
    /// Grows with every cut; a link that sees it change ends.
    cuts: watch::Sender<u64>,
}

static AGENTS: AtomicU32 = AtomicU32::new(0);

impl Agent {
    /// An agent that listens on its own socket.
    pub fn listen() -> Self {
        let number = AGENTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("burrow-link-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::remove_file(&path).ok();
        let listener = UnixListener::bind(&path).unwrap();
        let agent = Self::new(path);
        let served = agent.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(stream));
            }
        });
        agent
    }

    /// An agent at the other end of one socket.
    pub fn pair() -> (Self, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let agent = Self::new(PathBuf::new());
        tokio::spawn(agent.clone().serve(UnixStream::from_std(ours).unwrap()));
        (agent, theirs)
    }

    fn new(path: PathBuf) -> Self {
        let (cuts, _) = watch::channel(0);
        Self(Arc::new(Inner { path, world: Mutex::new(World::new()), wake: Notify::new(), cuts }))
    }

    pub fn address(&self) -> Address {
        Address::Unix { path: self.0.path.clone() }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap()
    }

    /// Cuts all links at once.
    pub fn cut(&self) {
        self.0.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends a session with `code`.
    pub fn exit(&self, session: &str, code: i32) {
        let id: SessionId = session.parse().unwrap();
        let mut world = self.world();
        world.sessions.get_mut(&id).unwrap().exit = Some(code);
        world.answer_waits();
        drop(world);
        self.0.wake.notify_one();
    }

    /// Acknowledges everything from now on.
    pub fn read_on(&self) {
        let mut world = self.world();
        world.reads = true;
        let at: Vec<_> = world.inlets.iter().map(|(id, inlet)| (*id, inlet.at)).collect();
        for (id, at) in at {
            world.mux.consumed(id, at);
        }
        drop(world);
        self.0.wake.notify_one();
    }

    async fn serve(self, stream: UnixStream) {
        let mut frames = FrameBuffer::new();
        let mut cuts = self.0.cuts.subscribe();
        let mut out = Vec::new();
        let mut sent_in_all = 0;
        let mut greeted = false;
        loop {
            let mut left_to_send = usize::MAX;
            if greeted {
                let mut world = self.world();
                let World { mux, outlets, .. } = &mut *world;
                if out.len() < 16 * 1024 {
                    mux.transmit(&mut Outlets(outlets), &mut out, 128 * 1024);
                }
                if let Some(max) = world.link_bytes_max {
                    left_to_send = max.saturating_sub(sent_in_all);
                }
            }
            if left_to_send == 0 {
                return;
            }
            let writable = out.len().min(left_to_send);
            if writable > 0 {
                match stream.try_write(&out[..writable]) {
                    Ok(count) => {
                        out.drain(..count);
                        sent_in_all += count;
                        if out.is_empty() {
                            continue;
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
            tokio::select! {
                () = self.0.wake.notified(), if greeted => {}
                _ = cuts.changed() => return,
                _ = stream.writable(), if !out.is_empty() => {}
                _ = stream.readable() => {
                    match stream.try_read(frames.space()) {
                        Ok(0) => return,
                        Ok(count) => frames.filled(count),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => return,
                    }
                    let mut world = self.world();
                    while let Some(frame) = frames.take().unwrap() {
                        if greeted {
                            world.accept(frame);
                        } else {
                            world.greet(frame, &mut out);
                            greeted = true;
                        }
                    }
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}
