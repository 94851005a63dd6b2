//! The client's end of a stream, without a link in between.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use protocol::mux::Fetched;
use protocol::spool::Budget;
use protocol::{Fault, FaultCode, StreamId};
use tokio::sync::Notify;

use crate::flow::{Inlet, Outlet, Pin, Tap, Wire};

/// A test that takes longer counts as stuck.
const DEADLINE: Duration = Duration::from_mins(1);

/// Runs a test on an event loop like the agent's.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(DEADLINE, test).await.expect("the test is stuck");
    });
}

/// A message from the agent's end of a stream.
#[derive(Default)]
pub(crate) struct Client {
    consumed: Cell<u64>,
    fault: RefCell<Option<Fault>>,
    woken: Notify,
}

impl Wire for Client {
    fn wake(&self, _: StreamId) {
        self.woken.notify_one();
    }

    fn consumed(&self, _: StreamId, to: u64) {
        assert!(to >= self.consumed.get(), "acknowledgements never go back");
        self.consumed.set(to);
        self.woken.notify_one();
    }

    fn reset(&self, _: StreamId, fault: Fault) {
        *self.fault.borrow_mut() = Some(fault);
        self.woken.notify_one();
    }
}

impl Client {
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.borrow().clone()
    }

    /// Everything the agent has taken.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.get()
    }

    /// Waits until the agent has taken everything below `to`.
    pub(crate) async fn consumed_up_to(&self, to: u64) {
        while self.consumed.get() < to {
            self.woken.notified().await;
        }
    }
}

/// A stream that the agent writes.
pub(crate) struct Download {
    pub(crate) client: Rc<Client>,
    pub(crate) outlet: Outlet,
    tap: Tap,
    at: u64,
}

impl Download {
    pub(crate) fn from(at: u64) -> Self {
        Self::of(Rc::default(), at)
    }

    fn of(client: Rc<Client>, at: u64) -> Self {
        let outlet = Outlet::transfer(at, 512 * 1024, &Budget::new(usize::MAX));
        let tap = Tap { wire: client.clone(), stream: StreamId(1) };
        outlet.attach(tap.clone(), Pin::None, at);
        Self { client, outlet, tap, at }
    }

    /// Takes the next bytes; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            let mut bytes = Vec::new();
            match self.outlet.fetch(self.at, 64 * 1024, &mut bytes) {
                Fetched::Bytes(count) => {
                    self.at += count as u64;
                    self.outlet.acked(&self.tap, self.at);
                    return Ok(Some(bytes));
                }
                Fetched::End => return self.client.fault().map_or(Ok(None), Err),
                Fetched::Nothing => {}
                Fetched::Gap { to } => panic!("a transfer has a gap up to {to}"),
            }
            if let Some(fault) = self.client.fault() {
                return Err(fault);
            }
            self.client.woken.notified().await;
        }
    }

    pub(crate) async fn all(&mut self) -> Result<Vec<u8>, Fault> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            all.extend(bytes);
        }
        Ok(all)
    }

    /// Stops reading, and reports that.
    pub(crate) fn abandon(&self) {
        self.outlet.detach(&self.tap);
    }
}

/// A stream that the agent reads.
pub(crate) fn upload() -> (Rc<Client>, Inlet) {
    let client = Rc::<Client>::default();
    let inlet = Inlet::new(Tap { wire: client.clone(), stream: StreamId(1) });
    (client, inlet)
}

/// One that has all of `bytes` already, in chunks of odd sizes.
pub(crate) fn uploaded(bytes: &[u8]) -> Inlet {
    let (_, inlet) = upload();
    for chunk in bytes.chunks(50_001) {
        inlet.push(chunk);
    }
    inlet.finish();
    inlet
}

/// A stream in both directions.
pub(crate) fn two_way() -> (Inlet, Download) {
    let download = Download::from(0);
    let inlet = Inlet::new(download.tap.clone());
    (inlet, download)
}

/// What a client that disconnects leaves.
pub(crate) fn gone() -> Fault {
    Fault::new(FaultCode::Gone, "the client has closed the stream")
}
