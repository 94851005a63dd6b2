//! A cable that can be cut: a port of loopback whose connections go on to another one. While it is cut, nothing comes
//! through and nothing is closed, as when hosts cannot reach each other; then it goes on where it was.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often a thread looks whether the cable is cut or gone.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    /// From who connects.
    cut_there: AtomicBool,
    /// To who connects.
    cut_back: AtomicBool,
    is_over: AtomicBool,
}

/// See the module's description. Dropping it closes what goes through it.
pub struct Cable {
    address: SocketAddr,
    state: Arc<State>,
}

impl Cable {
    /// To a port of loopback, at which nobody need listen yet.
    ///
    /// # Panics
    /// When there is no port for it.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for ours in listener.incoming().flatten() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Nobody there: the connection is closed, as a host without the program does it.
                if let Ok(theirs) = TcpStream::connect(("127.0.0.1", port)) {
                    join(&ours, &theirs, &shared);
                }
            }
        });
        Self { address, state }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Nothing goes through, in no direction.
    pub fn cut(&self) {
        self.state.cut_there.store(true, Ordering::Relaxed);
        self.cut_back();
    }

    /// What is sent arrives, and no answer comes back.
    pub fn cut_back(&self) {
        self.state.cut_back.store(true, Ordering::Relaxed);
    }

    pub fn heal(&self) {
        self.state.cut_there.store(false, Ordering::Relaxed);
        self.state.cut_back.store(false, Ordering::Relaxed);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // The thread that takes connections looks when one comes.
        let _ = TcpStream::connect(self.address);
    }
}

fn join(ours: &TcpStream, theirs: &TcpStream, state: &Arc<State>) {
    for stream in [ours, theirs] {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(LOOK_PAUSE));
    }
    let clones = [ours, theirs, theirs, ours].map(TcpStream::try_clone);
    let [Ok(ours), Ok(theirs), Ok(theirs_again), Ok(ours_again)] = clones else { return };
    let (there, back) = (Arc::clone(state), Arc::clone(state));
    thread::spawn(move || carry(ours, theirs, &there.cut_there, &there.is_over));
    thread::spawn(move || carry(theirs_again, ours_again, &back.cut_back, &back.is_over));
}

/// Until one end is closed.
fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool, is_over: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while !is_over.load(Ordering::Relaxed) {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        while is_cut.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
            // Polled until somebody heals it.
            thread::sleep(LOOK_PAUSE);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
