//! The list of sessions. It is shared and has a lock in every row.
//!
//! It follows the Thread-Safe Interface pattern: the methods of [`Sessions`] take the lock, and the
//! methods of [`List`] are called with the lock held.

use super::locks::{Guarded, Tally};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of pages that a session remembers.
pub const REMEMBERED: usize = 4;

/// The server's data on a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Session {
    /// The number of visits, with this one.
    pub visits: u32,
    /// The last pages, the latest first.
    pub pages: [u32; REMEMBERED],
}

/// All users' sessions.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<List>);

#[derive(Debug, Default)]
struct List(HashMap<u32, Session>);

impl Sessions {
    /// Records a user's visit of a page, and returns the user's session.
    pub fn visit(&self, user: u32, page: u32, tally: &Tally) -> Session {
        self.lock(tally).visit(user, page)
    }

    fn lock(&self, tally: &Tally) -> MutexGuard<'_, List> {
        tally.takes(Guarded::SessionList);
        // Ignores poisoning: a panic leaves the list valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn visit(&mut self, user: u32, page: u32) -> Session {
        let session = self.0.entry(user).or_default();
        session.visits = session.visits.saturating_add(1);
        session.pages.rotate_right(1);
        session.pages[0] = page;
        *session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returning_user_finds_his_session() {
        let (sessions, tally) = (Sessions::default(), Tally::default());
        assert_eq!(sessions.visit(7, 1, &tally), Session { visits: 1, pages: [1, 0, 0, 0] });
        assert_eq!(sessions.visit(8, 9, &tally).visits, 1);
        assert_eq!(sessions.visit(7, 2, &tally), Session { visits: 2, pages: [2, 1, 0, 0] });
        assert_eq!(tally.counts()[0], 3);
    }
}
