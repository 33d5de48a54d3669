//! The list of sessions: the shared object, in whichever way the rest is shared.
//!
//! It follows the Thread-Safe Interface: the methods of [`Sessions`] take the lock, those of [`List`] are called with it.

use super::locks::{Guarded, Tally};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pages that a session remembers.
pub const REMEMBERED: usize = 4;

/// What the server knows of a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Session {
    /// Visits, with this one.
    pub visits: u32,
    /// The last pages, the youngest first.
    pub pages: [u32; REMEMBERED],
}

/// All users' sessions.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<List>);

#[derive(Debug, Default)]
struct List(HashMap<u32, Session>);

impl Sessions {
    /// A user comes, for the first time or again, and wants this page.
    pub fn visit(&self, user: u32, page: u32, tally: &Tally) -> Session {
        self.lock(tally).visit(user, page)
    }

    fn lock(&self, tally: &Tally) -> MutexGuard<'_, List> {
        tally.takes(Guarded::SessionList);
        // A panic leaves a list that is whole: no method stops half way.
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
