//! Watches of a context: they get everything that happens in it, as far as they keep up, and never
//! delay anybody.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use protocol::repl::{Event, Happening, encode_record};
use tokio::sync::Notify;

use super::limits::WATCH_BYTES_MAX;
use crate::flow::Outlet;
use crate::sys::clock;
use crate::task;

/// One who looks.
pub struct Watch {
    outlet: Outlet,
    waiting: RefCell<Vec<u8>>,
    missed: Cell<MissedEvents>,
    woken: Notify,
    over: Cell<bool>,
}

#[derive(Clone, Copy, Default)]
struct MissedEvents {
    events: u64,
    bytes: u64,
}

impl Watch {
    pub fn begin(outlet: Outlet) -> Rc<Self> {
        let watch = Rc::new(Self {
            outlet,
            waiting: RefCell::default(),
            missed: Cell::default(),
            woken: Notify::new(),
            over: Cell::new(false),
        });
        task::spawn(deliver(watch.clone()));
        watch
    }

    /// Takes a record along if there is room, and counts it otherwise.
    pub fn offer(&self, record: &[u8], at_us: u64) {
        let missed = self.missed.get();
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() + record.len() > WATCH_BYTES_MAX && !waiting.is_empty() {
            let (events, bytes) = (missed.events + 1, missed.bytes + record.len() as u64);
            self.missed.set(MissedEvents { events, bytes });
            return;
        }
        self.own_up(&mut waiting, at_us);
        waiting.extend_from_slice(record);
        self.woken.notify_one();
    }

    /// Reports missed events before the next one.
    fn own_up(&self, waiting: &mut Vec<u8>, at_us: u64) {
        let MissedEvents { events, bytes } = self.missed.take();
        if events > 0 {
            let what = Happening::Gap { events, bytes };
            encode_record(&Event { run: 0, at_us, what }, waiting);
        }
    }

    /// Nothing more will happen.
    pub fn end(&self) {
        self.over.set(true);
        self.woken.notify_one();
    }

    /// Whether there are no watches any more.
    pub fn is_abandoned(&self) -> bool {
        self.outlet.is_abandoned()
    }
}

async fn deliver(watch: Rc<Watch>) {
    loop {
        let mut records = std::mem::take(&mut *watch.waiting.borrow_mut());
        if records.is_empty() {
            // No later event could report it.
            watch.own_up(&mut records, clock::wall_us());
        }
        if records.is_empty() {
            if watch.over.get() {
                break;
            }
            tokio::select! {
                () = watch.woken.notified() => {}
                () = watch.outlet.abandoned() => return,
            }
        } else if watch.outlet.write(&records).await.is_err() {
            return;
        }
    }
    watch.outlet.close();
}
