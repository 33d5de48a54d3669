//! The open connections: their number, how long each has been silent, and which is closed for a new
//! one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// The state of one connection.
#[derive(Debug)]
pub struct Connection {
    /// When a byte was last read or written.
    last_transfer: Cell<Instant>,
    /// Requests that were read, and whose replies are not written yet.
    in_flight: Cell<u32>,
    /// Those of them whose replies are in the connection's own buffer.
    buffered: Cell<u32>,
    evicted: Cell<bool>,
    end: Notify,
}

impl Connection {
    fn new(now: Instant) -> Self {
        Self {
            last_transfer: Cell::new(now),
            in_flight: Cell::new(0),
            buffered: Cell::new(0),
            evicted: Cell::new(false),
            end: Notify::new(),
        }
    }

    /// Records that a byte was read or written.
    pub fn record_transfer(&self, now: Instant) {
        self.last_transfer.set(now);
    }

    /// Records that a request was read.
    pub fn record_request(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Records that a reply is in the connection's buffer.
    pub fn record_reply(&self) {
        self.buffered.set(self.buffered.get() + 1);
    }

    /// Records that the buffer was written to the socket.
    pub fn record_flush(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(self.buffered.take()));
    }

    /// Whether a request was read whose reply is not written yet.
    pub fn is_busy(&self) -> bool {
        self.in_flight.get() > 0
    }

    /// Ends when the connection must close for another one.
    pub async fn evicted(&self) {
        while !self.evicted.get() {
            self.end.notified().await;
        }
    }

    fn evict(&self) {
        self.evicted.set(true);
        self.end.notify_one();
    }
}

/// All open connections of a server, on its one thread.
#[derive(Debug)]
pub struct ConnectionTable {
    max: usize,
    next: Cell<u64>,
    open: RefCell<HashMap<u64, Rc<Connection>>>,
    evictions: Cell<u64>,
    accepted: Cell<u64>,
}

/// No connection can be closed for a new one: each has a request in flight.
#[derive(Debug, PartialEq, Eq)]
pub struct NoIdleConnection;

/// An open connection. Dropping this removes it from the table.
#[derive(Debug)]
pub struct ConnectionGuard {
    number: u64,
    all: Rc<ConnectionTable>,
    /// The connection's state.
    pub connection: Rc<Connection>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.all.open.borrow_mut().remove(&self.number);
    }
}

impl ConnectionTable {
    /// Creates a table for at most `max` connections.
    pub fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            next: Cell::new(0),
            open: RefCell::new(HashMap::new()),
            evictions: Cell::new(0),
            accepted: Cell::new(0),
        }
    }

    /// Adds a new connection. If the table is full, closes the connection that has been silent
    /// longest and has no request in flight.
    pub fn add(self: &Rc<Self>, now: Instant) -> Result<ConnectionGuard, NoIdleConnection> {
        let full = self.open.borrow().len() >= self.max;
        if full {
            self.evict_one()?;
        }
        self.accepted.set(self.accepted.get() + 1);
        let number = self.next.replace(self.next.get() + 1);
        let connection = Rc::new(Connection::new(now));
        self.open.borrow_mut().insert(number, Rc::clone(&connection));
        Ok(ConnectionGuard { number, all: Rc::clone(self), connection })
    }

    /// Closes the connection that has been silent longest and has no request in flight.
    pub fn evict_one(&self) -> Result<(), NoIdleConnection> {
        let mut open = self.open.borrow_mut();
        let idle = open.iter().filter(|(_, connection)| !connection.is_busy());
        let longest =
            idle.min_by_key(|(number, connection)| (connection.last_transfer.get(), **number));
        let number = *longest.ok_or(NoIdleConnection)?.0;
        // The entry is free at once. The socket closes when the connection's task has run.
        if let Some(connection) = open.remove(&number) {
            connection.evict();
            self.evictions.set(self.evictions.get() + 1);
        }
        Ok(())
    }

    /// Returns the number of open connections.
    pub fn len(&self) -> usize {
        self.open.borrow().len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Returns the number of connections with a request in flight.
    pub fn busy(&self) -> usize {
        self.open.borrow().values().filter(|connection| connection.is_busy()).count()
    }

    /// Returns how many connections were closed for others.
    pub fn evictions(&self) -> u64 {
        self.evictions.get()
    }

    /// Returns how many connections were added.
    pub fn accepted(&self) -> u64 {
        self.accepted.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_silent_one_without_a_request_makes_room() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let all = Rc::new(ConnectionTable::new(3));
        let guards: Vec<_> = (0..3).map(|second| all.add(at(second)).unwrap()).collect();
        guards[0].connection.record_transfer(at(10));
        guards[1].connection.record_request();
        let fourth = all.add(at(11)).unwrap();
        assert!(guards[2].connection.evicted.get());
        assert!(!guards[0].connection.evicted.get() && !guards[1].connection.evicted.get());
        assert_eq!((all.len(), all.evictions(), all.busy(), all.accepted()), (3, 1, 1, 4));
        drop(guards);
        assert_eq!(all.len(), 1);
        drop(fourth);
        assert!(all.is_empty());
    }

    #[test]
    fn a_connection_with_a_request_in_flight_never_makes_room() {
        let all = Rc::new(ConnectionTable::new(2));
        let guards = [all.add(Instant::now()).unwrap(), all.add(Instant::now()).unwrap()];
        for guard in &guards {
            guard.connection.record_request();
        }
        assert_eq!(all.add(Instant::now()).unwrap_err(), NoIdleConnection);
        guards[0].connection.record_flush();
        assert_eq!(
            all.add(Instant::now()).unwrap_err(),
            NoIdleConnection,
            "nothing was in the buffer"
        );
        guards[0].connection.record_reply();
        guards[0].connection.record_flush();
        assert!(all.add(Instant::now()).is_ok());
        assert!(guards[0].connection.evicted.get() && !guards[1].connection.evicted.get());
    }

    #[test]
    fn there_is_always_room_for_one() {
        let all = Rc::new(ConnectionTable::new(0));
        let _guard = all.add(Instant::now()).unwrap();
        assert_eq!(all.len(), 1);
    }
}
