//! The open connections, and which of them is closed when there is no place left: the one that has been
//! idle longest. A server full of idle clients still answers the next one.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::limits::GIVE_WAY_AT_ONCE;

/// The connections of a server.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connections_max: usize,
    /// Notified when nobody is connected any more.
    empty: Notify,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: usize,
    next: u64,
    /// Idle connections, the one that has been so longest first.
    idle: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub struct ConnectionSlot {
    places: Connections,
    leave: Arc<Notify>,
    idle: Mutex<Option<u64>>,
}

impl Connections {
    pub fn new(connections_max: usize) -> Self {
        Self(Arc::new(Inner { connections_max, empty: Notify::new(), table: Mutex::default() }))
    }

    /// A place for a connection that has just come; `None` when all are busy.
    pub fn take(&self) -> Option<ConnectionSlot> {
        {
            let mut table = self.table();
            if table.open >= self.0.connections_max {
                // It closes in its own time; for the moment there is one more than there may be.
                let (_, leave) = table.idle.pop_first()?;
                leave.notify_one();
            }
            table.open += 1;
        }
        let place =
            ConnectionSlot { places: self.clone(), leave: Arc::default(), idle: Mutex::default() };
        place.set_idle(true);
        Some(place)
    }

    /// Has the connections leave that have been idle longest: the host has no more descriptors.
    pub fn give_way(&self) {
        let mut table = self.table();
        for _ in 0..GIVE_WAY_AT_ONCE {
            let Some((_, leave)) = table.idle.pop_first() else { return };
            leave.notify_one();
        }
    }

    pub fn open(&self) -> usize {
        self.table().open
    }

    /// Resolves when every place is free.
    pub async fn all_free(&self) {
        loop {
            let mut empty = pin!(self.0.empty.notified());
            // From here on no notice is missed.
            empty.as_mut().enable();
            if self.open() == 0 {
                return;
            }
            empty.await;
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Says whether the connection waits for a request.
    pub fn set_idle(&self, is_idle: bool) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.places.table();
        if let Some(number) = idle.take() {
            table.idle.remove(&number);
        }
        if is_idle {
            let number = table.next;
            table.next += 1;
            table.idle.insert(number, Arc::clone(&self.leave));
            *idle = Some(number);
        }
    }

    /// Resolves when the connection has to give way.
    pub async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.set_idle(false);
        let mut table = self.places.table();
        table.open -= 1;
        if table.open == 0 {
            self.places.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;

    fn leaves(place: &ConnectionSlot) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(place.must_leave()).as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn the_longest_idle_gives_way() {
        let places = Connections::new(2);
        let first = places.take().unwrap();
        let second = places.take().unwrap();
        first.set_idle(false);
        first.set_idle(true);
        let _third = places.take().unwrap();
        assert!(leaves(&second));
        assert!(!leaves(&first));
    }

    #[test]
    fn the_longest_idle_leave_where_there_are_no_descriptors() {
        let places = Connections::new(2 * GIVE_WAY_AT_ONCE);
        let all: Vec<_> = (0..=GIVE_WAY_AT_ONCE).map(|_| places.take().unwrap()).collect();
        all[0].set_idle(false);
        places.give_way();
        assert!(!leaves(&all[0]) && all[1..].iter().all(leaves));
        places.give_way();
    }

    #[test]
    fn busy_connections_stay_and_a_new_one_gets_no_place() {
        let places = Connections::new(1);
        let only = places.take().unwrap();
        only.set_idle(false);
        assert!(places.take().is_none());
        drop(only);
        assert_eq!(places.open(), 0);
        assert!(places.take().is_some());
    }

    #[test]
    fn the_end_waits_for_the_last() {
        let places = Connections::new(2);
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        let mut cx = Context::from_waker(Waker::noop());
        let mut all_free = pin!(places.all_free());
        assert!(all_free.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(all_free.as_mut().poll(&mut cx).is_pending());
        drop(second);
        assert!(all_free.as_mut().poll(&mut cx).is_ready());
    }
}
